"""The module of etcd on full hosts: a real cluster with TLS, which a second run does not change."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubexm_spec.clusters.build import build_create, pipeline_text
from tests.clusters.kit import checked
from tests.e2e.program import environment, run
from tests.lab import programs
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
NEEDED = ["etcd", "etcdctl", "etcdutl"]
_LONG = 300.0
_CTL = """
etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/trusted-ca.crt \
  --cert=/etc/etcd/pki/healthcheck-client.crt --key=/etc/etcd/pki/healthcheck-client.key "$@"
"""


def archive(path: Path) -> None:
    """The programs, as etcd's own archive has them."""
    with tarfile.open(path, "w") as made:
        for name in NEEDED:
            source = programs.find(name)
            assert source is not None
            content = source.read_bytes()
            info = tarfile.TarInfo(f"etcd-lab/{name}")
            info.size, info.mode = len(content), 0o755
            made.addfile(info, io.BytesIO(content))


def pipeline(folder: Path, hosts: dict[str, tuple[Machine, str]]) -> None:
    """What `kubexm cluster create` would do about etcd alone, with the programs of the lab."""
    key = next(iter(hosts.values()))[0].key
    text = (
        "apiVersion: kubexm.io/v1\nkind: Cluster\nmetadata: {name: lab}\nkubernetes: {version: 1.36.4}\n"
        f"defaults: {{user: root, privateKeyPath: {key}, knownHosts: {folder}/known_hosts}}\nhosts:\n"
    )
    for name, (machine, roles) in hosts.items():
        text += f"  - {{name: {name}, address: {machine.address}, roles: [{roles}]}}\n"
    built = build_create(checked(folder, text))
    built["modules"] = [module for module in built["modules"] if module["name"] == "etcd"]
    built["resources"] = {"etcd": {"path": "etcd.tar"}}
    (folder / "pipeline.yaml").write_text(pipeline_text(built, "cluster.yaml"))


def kubexm(folder: Path, *options: str, code: int = 0) -> dict[str, Any]:
    words = ["pipeline.yaml", "--output", "plain", "--result", "result.json", *options]
    env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")
    done = run("kubexm-run", *words, cwd=folder, env=env, timeout=_LONG)
    assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def changed(result: dict[str, Any]) -> list[str]:
    return [
        f"{name} on {host}"
        for name, node in result["nodeResults"].items()
        for host, each in node["hostResults"].items()
        if each.get("changed")
    ]


@pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED))
def test_etcd_with_tls_is_made_once(machines: Callable[[int], list[Machine]], tmp_path: Path) -> None:
    first, second, third = machines(3)
    archive(tmp_path / "etcd.tar")
    hosts = {"e1": (first, "controlPlane, etcd"), "e2": (second, "etcd"), "e3": (third, "etcd")}
    pipeline(tmp_path, hosts)
    assert changed(kubexm(tmp_path))
    assert changed(kubexm(tmp_path)) == [], "the second run changes nothing"

    members = json.loads(first.sh(_CTL, "endpoint", "status", "--cluster", "-w", "json"))
    assert len(members) == 3
    assert len({each["Status"]["leader"] for each in members}) == 1
    second.sh(_CTL, "put", "greeting", "hello")
    assert third.sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"
    # The API server's certificate is a client's; without one, nobody is let in.
    client = "--cert=/etc/kubernetes/pki/apiserver-etcd-client.crt --key=/etc/kubernetes/pki/apiserver-etcd-client.key"
    ask = f"etcdctl --endpoints=https://{second.address}:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt"
    assert first.sh(f"{ask} {client} get greeting --print-value-only").strip() == "hello"
    assert first.sh(f"{ask} --command-timeout=2s get greeting >/dev/null 2>&1 || echo refused").strip() == "refused"
    assert first.sh("stat -c %a /etc/etcd/pki/*.key").split() == ["600"] * 4
    assert second.sh("stat -c '%a %U' /var/lib/etcd; ls /etc/etcd/pki/ca.key 2>/dev/null || :").split() == [
        "700",
        "etcd",
    ]
    assert "unrecognized environment" not in first.sh("journalctl -u etcd --no-pager")

    # A member that is gone and comes back finds its data, and its peers.
    second.sh("systemctl kill -s KILL etcd")
    second.sh("until systemctl is-active --quiet etcd; do systemctl reset-failed etcd; systemctl start etcd; done")
    assert second.sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"
    assert changed(kubexm(tmp_path)) == []

"""Nodes that join and leave on full hosts, with stand-ins for the programs of Kubernetes.

What the real programs make of it is asked in test_real_nodes.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.real import changed
from tests.e2e.program import environment, run
from tests.lab import machines
from tests.lab.machines import running
from tests.lab.nodes import Node

pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(machines.missing()), reason=machines.missing()),
]
_LONG = 600.0
VERSION = "1.36.4"
PROGRAMS = {"containerd": "2.3.4", "runc": "1.4.3", "cniPlugins": "1.9.1", "crictl": "1.36.0"}
NAMES = ("cp1", "cp2", "cp3", "worker1", "worker2")
AUTHORITIES = ("ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt")


class Host(Node):
    """A host on which stand-ins are the programs of a cluster."""

    def make(self) -> None:
        super().make()
        (self.root / "etc/hostname").write_text(f"{NAMES[self._number - 1]}\n")
        self.shared.mkdir(exist_ok=True)

    @property
    def shared(self) -> Path:
        """The folder that all of them have."""
        return self._ground.folder / "shared"

    def _options(self) -> list[str]:
        return [f"--bind={self.shared}:/shared", *super()._options()]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: it would stand between the lines of the tests."""


def program(name: str) -> bytes:
    return f'#!/bin/sh\nexec /shared/standin.py {name} "$@"\n'.encode()


def _file(name: str) -> str:
    return f"{name}.tar.gz" if name in ("containerd", "cniPlugins", "crictl") else name


def archive(**files: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("_", "/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


class Cluster:
    """A cluster of one control plane and one worker, and a document with two control planes and one worker more."""

    def __init__(self, folder: Path, hosts: list[Host], url: str, files: Path) -> None:
        self.folder = folder
        self.hosts = dict(zip(NAMES, hosts, strict=True))
        self.shared = hosts[0].shared
        sums: dict[str, dict[str, dict[str, str]]] = {}
        served = {
            **{name: (VERSION, program(name)) for name in ("kubeadm", "kubelet", "kubectl")},
            "containerd": (PROGRAMS["containerd"], archive(bin_containerd=program("containerd"))),
            "runc": (PROGRAMS["runc"], program("runc")),
            "cniPlugins": (PROGRAMS["cniPlugins"], archive(loopback=program("loopback"))),
            "crictl": (PROGRAMS["crictl"], archive(crictl=program("crictl"))),
        }
        for name, (version, content) in served.items():
            (files / _file(name)).write_bytes(content)
            sums[name] = {version: {"amd64": hashlib.sha256(content).hexdigest()}}
        versions = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Versions",
            "metadata": {"name": "standin"},
            "artifacts": {name: {"url": f"{url}/{_file(name)}", "sha256": each} for name, each in sums.items()},
        }
        document = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "lab"},
            "versions": "versions.yaml",
            "defaults": {
                "user": "root",
                "privateKeyPath": str(hosts[0].key),
                "knownHosts": str(folder / "known_hosts"),
            },
            "hosts": [
                {"name": name, "address": host.address, "roles": ["worker" if "worker" in name else "controlPlane"]}
                for name, host in self.hosts.items()
            ],
            "kubernetes": {"version": VERSION},
            "containerRuntime": {
                "version": PROGRAMS["containerd"],
                "runcVersion": PROGRAMS["runc"],
                "cniPluginsVersion": PROGRAMS["cniPlugins"],
                "crictlVersion": PROGRAMS["crictl"],
            },
            "network": {"plugin": "none"},
            "operations": {"drain": {"timeout": "10s"}},
        }
        (folder / "versions.yaml").write_text(json.dumps(versions))
        (folder / "cluster.yaml").write_text(json.dumps(document, indent=1))
        self._env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")
        shutil.copy(Path(__file__).with_name("nodes_standin.py"), self.shared / "standin.py")
        (self.shared / "standin.py").chmod(0o755)
        self._begin()

    def _begin(self) -> None:
        nodes = {name: {"ready": "True", "cordoned": False, "pods": [f"web-{name}"]} for name in ("cp1", "worker1")}
        self.state = {
            "nodes": nodes,
            "members": {"cp1": True},
            "leader": "cp1",
            "endpoint": "api.lab.internal:6443",
            "version": VERSION,
            "blocked": False,
            "log": [],
        }
        for name in nodes:
            self.hosts[name].sh("mkdir -p /etc/kubernetes/manifests && touch /etc/kubernetes/kubelet.conf")
        first = self.hosts["cp1"].root
        for tool in ("kubectl", "kubeadm", "crictl"):
            (first / "usr/local/bin" / tool).write_bytes(program(tool))
            (first / "usr/local/bin" / tool).chmod(0o755)
        (first / "etc/kubernetes/kubexm").mkdir()
        (first / "etc/kubernetes/admin.conf").touch()
        (first / "etc/kubernetes/pki/etcd").mkdir(parents=True)
        for each in (*AUTHORITIES, "etcd/ca.key"):
            (first / "etc/kubernetes/pki" / each).write_text(f"{each} of the cluster\n")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.shared / "state.json").read_text())
        return found

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        (self.shared / "state.json").write_text(json.dumps(value))

    def run(self, command: str, *options: str, code: int = 0) -> dict[str, Any]:
        """The result of a command, what was said, and what was asked of the cluster meanwhile."""
        self.state = self.state | {"log": []}
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        words = ["cluster", command, "-f", "cluster.yaml", "--output", "plain", "--result", result.name, *options]
        done = run("kubexm", *words, cwd=self.folder, env=self._env, timeout=_LONG)
        assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
        found = json.loads(result.read_text()) if result.exists() else {}
        return {**found, "said": done.stdout + done.stderr, "log": self.state["log"]}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    files = tmp_path / "files"
    files.mkdir()
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(running(Host, len(NAMES)))
        handler = functools.partial(_Quiet, directory=str(files))
        server = stack.enter_context(http.server.ThreadingHTTPServer((hosts[0].gateway, 0), handler))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield Cluster(tmp_path, hosts, f"http://{hosts[0].gateway}:{server.server_port}", files)


def of_host(result: dict[str, Any], host: str) -> set[str]:
    """The modules that changed something on a host."""
    return {each.partition("/")[0] for each in changed(result) if each.endswith(f" on {host}")}


def test_nodes_join_and_leave_as_stand_ins_of_kubernetes_have_it(cluster: Cluster) -> None:
    grown = cluster.run("add-nodes")
    # One control plane at a time, workers at last, and tokens from a control plane that was there.
    told = [each for each in grown["log"] if not each.startswith("token")]
    assert told == ["control plane cp2", "control plane cp3", "worker worker2"]
    assert grown["log"].count("token of cp1") == 3
    assert set(cluster.state["nodes"]) == set(NAMES)
    assert of_host(grown, "cp1") == set()
    assert of_host(grown, "worker1") == {"load-balancer"}
    assert "server cp3 " in cluster.hosts["worker1"].sh("cat /etc/kubernetes/haproxy/haproxy.cfg")
    assert cluster.hosts["cp3"].sh("cat /etc/hosts").count("127.0.0.1 api.lab.internal") == 1

    assert "All hosts of the document have joined the cluster" in cluster.run("add-nodes")["said"]
    again = cluster.run("add-nodes", "--nodes", "cp2,worker2")
    assert changed(again) == []
    assert again["log"] == []

    assert "approve it with --yes" in cluster.run("remove-nodes", "--nodes", "worker2", code=3)["said"]
    # Pods that do not go: the node takes pods again, and stays.
    cluster.state = cluster.state | {"blocked": True}
    refused = cluster.run("remove-nodes", "--nodes", "worker2", "--yes", code=1)
    assert refused["log"] == ["cordon worker2", "uncordon worker2"]
    assert "default/web-worker2" in refused["said"]
    cluster.state = cluster.state | {"blocked": False}

    # A worker, and the first control plane of the document, which leads etcd.
    shrunk = cluster.run("remove-nodes", "--nodes", "cp1,worker2", "--yes")
    assert shrunk["log"] == [
        "cordon worker2", "drain worker2", "delete worker2", "reset worker2",
        "cordon cp1", "drain cp1", "cp2 leads", "member cp1 leaves through cp2", "delete cp1", "reset cp1",
    ]  # fmt: skip
    assert set(cluster.state["nodes"]) == {"cp2", "cp3", "worker1"}
    assert "server cp1 " not in cluster.hosts["worker1"].sh("cat /etc/kubernetes/haproxy/haproxy.cfg")
    left = shrunk["nodeResults"]["reset/compare/difference"]["hostResults"]["worker2"]["outputs"]["stdout"]
    assert [line for line in left.splitlines() if not line.startswith("left package ")] == []
    assert "worker1" not in shrunk["nodeResults"]["reset/hosts/files"]["hostResults"]

    # It comes back through another one; then it dies.
    back = cluster.run("add-nodes", "--nodes", "cp1")
    assert back["log"] == ["token of cp2", "control plane cp1"]
    cluster.hosts["cp1"].stop()
    alive = cluster.run("remove-nodes", "--nodes", "cp1", "--yes", code=2)
    assert "error[unreachable]" in alive["said"]
    assert "--dead" in alive["said"]
    assert "error[not-dead]" in cluster.run("remove-nodes", "--nodes", "cp1", "--dead", "--yes", code=2)["said"]
    state = cluster.state
    state["nodes"]["cp1"]["ready"], state["members"]["cp1"] = "Unknown", False
    cluster.state = state
    # The first control plane of the document does not answer: another one speaks for the cluster.
    assert cluster.run("add-nodes", "--nodes", "worker2")["log"] == ["token of cp2", "worker worker2"]
    assert "error[quorum]" in cluster.run("remove-nodes", "--nodes", "cp2", "--yes", code=2)["said"]
    buried = cluster.run("remove-nodes", "--nodes", "cp1", "--dead", "--yes")
    assert buried["log"] == ["member cp1 leaves through cp2", "delete cp1"]
    assert set(cluster.state["nodes"]) == {"cp2", "cp3", "worker1", "worker2"}

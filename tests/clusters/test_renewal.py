"""`kubexm cluster renew-certs`: by age or all, nothing but certificates, one control plane at a time."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from kubexm_spec.clusters.build import FLOWS, Asked, pipeline_text
from kubexm_spec.clusters.renewal import largest_threshold
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked
from tests.clusters.real import changed
from tests.clusters.test_etcd import _CTL, NEEDED, archive, kubexm, pipeline
from tests.lab import programs
from tests.lab.machines import Machine, missing
from tests.lab.nodes import nodes
from tests.lab.oci import Image

MODULES = pathlib.Path(__file__).parents[2] / "specs" / "modules"
HOSTS = "e1", "e2", "e3"


def module(name: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(MODULES / f"{name}.yaml")
    return found


def certificates(name: str) -> dict[str, dict[str, Any]]:
    """By step the leaf certificates of a module."""
    tasks = module(name)["tasks"]
    steps = [step for task in tasks for step in task.get("steps", ()) if step.get("type") == "certificate"]
    for step in steps:
        # Every member has the same CA: it does not matter which one is asked.
        step["with"]["ca"] = {key: value for key, value in step["with"].get("ca", {}).items() if key != "host"}
    return {step["name"]: step["with"] for step in steps if step["with"].get("kind") != "ca"}


def test_what_is_renewed_of_etcd_is_what_was_made() -> None:
    made, renewed = certificates("etcd"), certificates("renew-etcd")
    for name, wanted in renewed.items():
        assert (wanted.pop("renewBefore"), wanted.pop("force")) == ("{{ params.days }}d", "{{ params.all }}"), name
    assert renewed == made, "another one would be issued anew by the next `create`"


def test_control_planes_are_renewed_first_and_restarted_one_at_a_time() -> None:
    tasks = {task["name"]: task for task in module("renew-certificates")["tasks"]}
    assert list(tasks) == ["renew", "restart", "kubelets"]
    assert tasks["restart"]["batch"] == 1
    assert [step["name"] for step in tasks["restart"]["steps"]][-1] == "answers"


@pytest.mark.parametrize(
    ("document", "modules"),
    [(SMALLEST, ["certificates"]), (HIGHLY_AVAILABLE, ["etcd", "certificates"])],
)
def test_an_etcd_of_our_own_comes_first(document: str, modules: list[str], tmp_path: pathlib.Path) -> None:
    built = FLOWS["renew-certs"](checked(tmp_path, document), Asked(days=40, everything=True))
    assert [each["name"] for each in built["modules"]] == modules
    assert all(each["with"]["days"] == 40 and each["with"]["all"] for each in built["modules"])
    assert built["lock"] == "cluster lab"


def test_a_threshold_that_would_renew_for_ever_is_refused(tmp_path: pathlib.Path) -> None:
    assert largest_threshold(checked(tmp_path, HIGHLY_AVAILABLE)) == 364
    assert largest_threshold(checked(tmp_path, SMALLEST.replace("4}", "4, certificates: {validity: 240h}}"))) == 9
    path = tmp_path / "cluster.yaml"
    path.write_text(SMALLEST)
    words = ["cluster", "renew-certs", "-f", str(path), "--executor", "dry-run", "--output", "plain"]
    refused = CliRunner().invoke(main, [*words, "--days", "365"])
    assert refused.exit_code == 2
    assert "use at most --days 364" in refused.output
    assert CliRunner().invoke(main, [*words, "--days", "364"]).exit_code == 0
    assert CliRunner().invoke(main, [*words, "--days", "400", "--all"]).exit_code == 0


@pytest.mark.xdist_group("machines")
@pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED))
def test_certificates_of_a_real_etcd_are_renewed_by_their_age_with_a_quorum_all_the_time(
    machines: Callable[[int], list[Machine]], tmp_path: pathlib.Path
) -> None:
    made = machines(3)
    archive(tmp_path / "etcd.tar")
    hosts = dict(zip(HOSTS, zip(made, ("controlPlane, etcd", "etcd", "etcd"), strict=True), strict=True))
    pipeline(tmp_path, hosts)
    kubexm(tmp_path)
    made[0].sh(_CTL, "put", "greeting", "hello")

    def renew(days: int, *, everything: bool = False) -> list[str]:
        cluster = checked(tmp_path, (tmp_path / "cluster.yaml").read_text())
        built = FLOWS["renew-certs"](cluster, Asked(days=days, everything=everything))
        built["modules"] = [each for each in built["modules"] if each["name"] == "etcd"]
        (tmp_path / "pipeline.yaml").write_text(pipeline_text(built, "cluster.yaml"))
        return changed(kubexm(tmp_path))

    def state() -> list[str]:
        show = "cat /etc/etcd/pki/*.crt | sha256sum; systemctl show -p MainPID --value etcd"
        return [each.sh(show) for each in made]

    before = state()
    assert renew(30) == []
    assert state() == before
    renewed = renew(30, everything=True)
    for host in HOSTS:
        assert f"etcd/members/server on {host}" in renewed
        assert f"etcd/members/peer on {host}" in renewed
    assert "etcd/clients/apiserver on e1" in renewed
    after = state()
    assert all(one != other for one, other in zip(before, after, strict=True)), "new files, and new processes"
    assert made[2].sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"
    assert renew(30) == []
    assert state() == after


KUBELET = ["containerd", "containerd-shim-runc-v2", "ctr", "runc", "crictl", "kubelet", "pause"]
SANDBOX = "registry.k8s.io/pause:3.10.2"
FILES = {
    "etc/crictl.yaml": "runtime-endpoint: unix:///run/containerd/containerd.sock\n",
    "root/containerd.toml": f"""\
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{SANDBOX}"
""",
    "root/kubelet.yaml": """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
staticPodPath: /root/pods
authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ''
""",
    "root/pods/scheduler.yaml": f"""\
apiVersion: v1
kind: Pod
metadata: {{name: kube-scheduler, namespace: kube-system}}
spec:
  hostNetwork: true
  containers: [{{name: kube-scheduler, image: "{SANDBOX}", imagePullPolicy: IfNotPresent}}]
""",
    "etc/kubernetes/scheduler.conf": "",
}
RUNNING = "crictl ps --name '^kube-scheduler$' --state Running -q"
BEGIN = f"""
systemd-run -q --unit=containerd -p Delegate=yes -p KillMode=process /usr/local/bin/containerd -c /root/containerd.toml
until ctr version >/dev/null 2>&1; do systemctl is-active -q containerd || exit 1; sleep 0.2; done
ctr -n k8s.io images import /root/pause.tar >/dev/null
systemd-run -q --unit=kubelet /usr/local/bin/kubelet --config /root/kubelet.yaml
until [ -n "$({RUNNING} 2>/dev/null)" ]; do systemctl is-active -q kubelet || exit 1; sleep 0.2; done
"""


@pytest.mark.xdist_group("machines")
@pytest.mark.skipif(bool(missing() or programs.missing(KUBELET)), reason=missing() or programs.missing(KUBELET))
def test_a_static_pod_of_a_real_kubelet_restarts_if_a_certificate_is_newer_and_only_then(
    tmp_path: pathlib.Path,
) -> None:
    pause = programs.find("pause")
    assert pause is not None
    with nodes(1) as (node,):
        programs.bring(node, KUBELET)
        for path, text in FILES.items():
            (node.root / path).parent.mkdir(parents=True, exist_ok=True)
            (node.root / path).write_text(text)
        (node.root / "root/pause.tar").write_bytes(Image({"/pause": pause}, ["/pause"]).archive(SANDBOX))
        node.sh(BEGIN)
        # The task alone, without the wait for an API server: there is none.
        task = next(each for each in module("renew-certificates")["tasks"] if each["name"] == "restart")
        task["steps"] = [step for step in task["steps"] if step["name"] == "pods"]
        host = {"name": "cp1", "address": node.address, "roles": ["controlPlane"], "vars": {"nodeIP": node.address}}
        pipeline = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Pipeline",
            "metadata": {"name": "restart"},
            "params": {"apiPort": {"type": "integer", "default": 6443}},
            "vars": {"pki": "/etc/kubernetes/pki"},
            "inventory": {
                "defaults": {"user": "root", "privateKeyPath": str(node.key), "knownHosts": f"{tmp_path}/known_hosts"},
                "hosts": [host],
            },
            "modules": [{"name": "certificates", "tasks": [task]}],
        }
        (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
        before = node.sh(RUNNING)
        assert changed(kubexm(tmp_path)) == []
        assert node.sh(RUNNING) == before
        node.sh("touch /etc/kubernetes/scheduler.conf")
        assert changed(kubexm(tmp_path)) == ["certificates/restart/pods[kube-scheduler] on cp1"]
        after = node.sh(RUNNING)
        assert after.strip()
        assert after != before
        assert changed(kubexm(tmp_path)) == []
        assert node.sh(RUNNING) == after

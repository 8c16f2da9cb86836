"""Real clusters: the real programs on full hosts, created by the real command from a document."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.program import environment, run
from tests.lab.depot import KUBERNETES, Depot, depot
from tests.lab.nodes import Node, nodes

_LONG = 600.0
"""Seconds that a command may take on a busy machine."""
_RUNTIME = """\
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
"""


class RealCluster:
    """A cluster of nodes by their names, each with its roles."""

    def __init__(self, folder: Path, hosts: Mapping[str, tuple[Node, Sequence[str]]], served: Depot) -> None:
        self.folder = folder
        self.hosts = {name: node for name, (node, _) in hosts.items()}
        self.document: dict[str, Any] = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "lab"},
            "versions": "versions.yaml",
            "defaults": {
                "user": "root",
                "privateKeyPath": str(next(iter(self.hosts.values())).key),
                "knownHosts": str(folder / "known_hosts"),
            },
            "hosts": [
                {"name": name, "address": node.address, "roles": list(roles)} for name, (node, roles) in hosts.items()
            ],
            # The hosts of the lab have control groups of version 1, and limits of their kernel that they cannot change.
            "kubernetes": {
                "version": KUBERNETES[0],
                "ignorePreflightErrors": ["SystemVerification"],
                "kubelet": {"config": {"failCgroupV1": False}},
                "proxy": {"config": {"conntrack": {"maxPerCore": 0, "min": 0}}},
            },
            "containerRuntime": {"config": _RUNTIME},
            "network": {"plugin": "flannel"},
            "registry": {"mirrors": dict.fromkeys(("registry.k8s.io", "ghcr.io", "docker.io"), served.registry)},
        }
        (folder / "versions.yaml").write_text(served.versions())
        self._env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")

    def run(self, command: str, *options: str, code: int = 0) -> dict[str, Any]:
        """`kubexm cluster` with a command to its end: the result, and what was said in it."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        said = self._said(command, "--result", result.name, *options, code=code)
        found: dict[str, Any] = json.loads(result.read_text())
        return {**found, "said": said}

    def refused(self, command: str, *options: str) -> str:
        """What `kubexm cluster` says to a command that does not fit the cluster."""
        return self._said(command, *options, code=2)

    def _said(self, command: str, *options: str, code: int) -> str:
        (self.folder / "cluster.yaml").write_text(json.dumps(self.document, indent=1))
        words = ["cluster", command, "-f", "cluster.yaml", "--output", "plain", *options]
        done = run("kubexm", *words, cwd=self.folder, env=self._env, timeout=_LONG)
        assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def ask(self, command: str, *options: str, code: int = 0) -> str:
        """What `kubexm cluster` says with a command that changes nothing."""
        (self.folder / "cluster.yaml").write_text(json.dumps(self.document, indent=1))
        words = ["cluster", command, "-f", "cluster.yaml", *options]
        done = run("kubexm", *words, cwd=self.folder, env=self._env, timeout=_LONG)
        assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def kubectl(self, *words: str, stdin: str = "", on: str = "") -> str:
        """What kubectl says on the first host, or on another one."""
        first = self.hosts[on] if on else next(iter(self.hosts.values()))
        inside = [
            "ssh",
            "-i",
            str(first.key),
            "-o",
            f"UserKnownHostsFile={self.folder}/known_hosts",
            "-o",
            "BatchMode=yes",
        ]
        remote = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *words]
        done = subprocess.run(
            [*inside, f"root@{first.address}", subprocess.list2cmdline(remote)],
            input=stdin, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


def changed(result: Mapping[str, Any]) -> list[str]:
    """The nodes of a run and the hosts on which they changed something."""
    return [
        f"{name} on {host}"
        for name, node in result["nodeResults"].items()
        for host, each in node["hostResults"].items()
        if each.get("changed")
    ]


@contextlib.contextmanager
def real_cluster(folder: Path, **roles: Sequence[str]) -> Iterator[RealCluster]:
    """Hosts with these names and roles, and what they need from elsewhere."""
    with nodes(len(roles)) as made, depot(made[0].gateway) as served:
        hosts = {name: (node, roles[name]) for name, node in zip(roles, made, strict=True)}
        yield RealCluster(folder, hosts, served)

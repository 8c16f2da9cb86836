#!/usr/bin/env python3
"""Stands in for the programs of Kubernetes on a host of the lab: `standin.py NAME VERSION ARGUMENTS...`.

All hosts share one folder with the state of the cluster. It keeps to the forms in which the real programs are called
and answer, and to nothing else of them; what it is called for is written to a log. Runs with the Python of the hosts.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

SHARED = Path("/shared")
MANIFEST = Path("/etc/kubernetes/manifests/kube-apiserver.yaml")


class State:
    """The cluster, for one call: written back at the end."""

    def __enter__(self) -> State:
        self.lock = (SHARED / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.data: Any = json.loads((SHARED / "state.json").read_text())
        return self

    def __exit__(self, *failure: object) -> None:
        scratch = SHARED / "state.new"
        scratch.write_text(json.dumps(self.data, indent=1))
        scratch.rename(SHARED / "state.json")
        self.lock.close()

    def node(self, name: str) -> Any:
        return self.data["nodes"][name]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    with (SHARED / "log").open("a") as log:
        log.write(f"{text}\n")


def fault(what: str) -> None:
    """Fail, hang until somebody kills us, or break a workload, if a test has asked for it: once."""
    place = SHARED / f"fault-{what.replace(' ', '-')}"
    if not place.exists():
        return
    kind = place.read_text()
    place.unlink()
    note(f"fault {what}")
    if kind == "break":
        (SHARED / "workloads.json").write_text('{"web": 1, "broken": 0}')
        return
    if kind == "hang":
        time.sleep(600)
    sys.exit(f"stand-in: {what} fails as it was told to")


def kubelet(version: str, words: list[str]) -> None:
    if words == ["--version"]:
        say(f"Kubernetes v{version}")
        return
    with State() as state:
        state.node(host())["kubelet"] = f"v{version}"
        note(f"kubelet {version} on {host()}")
    time.sleep(10**8)


def containerd(version: str, words: list[str]) -> None:
    if words == ["--version"]:
        say(f"containerd github.com/containerd/containerd/v2 v{version} abc")
    elif words == ["config", "dump"]:
        say(Path("/etc/containerd/config.toml").read_text())
    else:
        note(f"containerd {version} on {host()}")
        time.sleep(10**8)


def crictl(version: str, words: list[str]) -> None:
    if words == ["--version"]:
        say(f"crictl version v{version}")
    elif words[0] == "info":
        say('"type": "RuntimeReady",\n"status": true')
    elif words[0] == "ps":
        say("0123abcd")
    elif words[0] == "exec":
        inside(words[2:])
    elif "images" in words:
        with State() as state:
            there = state.node(host())["images"]
        say(json.dumps({"images": [{"id": "sha256:" + "0" * 64, "repoTags": [each]} for each in there]}))
    elif "pull" in words:
        with State() as state:
            state.node(host())["images"].append(words[-1])
        note(f"pull {words[-1]} on {host()}")


def inside(words: list[str]) -> None:
    """etcdctl and etcdutl in the container of etcd."""
    if "save" in words:
        fault("snapshot")
        Path(words[-1]).write_text("a snapshot")
        note(f"snapshot on {host()}")
    elif "health" in words:
        say("healthy")


def kubeadm(version: str, words: list[str]) -> None:
    if words[:1] == ["version"]:
        say(f"v{version}")
    elif words[:2] == ["config", "validate"]:
        say("ok")
    elif words[:2] == ["upgrade", "plan"]:
        note(f"kubeadm {version} upgrade plan on {host()}")
        components = [{"name": "kube-apiserver", "currentVersion": tag(), "newVersion": words[2]}]
        say(json.dumps({"availableUpgrades": [{"components": components}]}) if tag() != words[2] else "")
    elif words[:1] == ["upgrade"]:
        note(f"kubeadm {version} upgrade {words[1]} on {host()}")
        fault(f"kubeadm {words[1]} {host()}")
        if MANIFEST.exists():
            MANIFEST.write_text(f"    image: registry.k8s.io/kube-apiserver:v{version}\n")


def tag() -> str:
    return MANIFEST.read_text().rpartition(":")[2].strip()


def kubectl(version: str, words: list[str]) -> None:
    words = [word for word in words if not word.startswith(("--kubeconfig", "--request-timeout"))]
    words = [word for word in words if not word.startswith("/etc/kubernetes/admin.conf")]
    with State() as state:
        nodes = state.data["nodes"]
        match words:
            case ["get", "nodes", *_]:
                for name, node in nodes.items():
                    mark = node["annotations"].get("kubexm.io/upgrade", "<none>")
                    cordoned = "true" if node["cordoned"] else "<none>"
                    say(f"{name} {node['kubelet']} {node['ready']} {cordoned} {mark}")
            case ["get", "node", name, *rest] if "json" in rest:
                say(json.dumps(shown(name, nodes[name])) if name in nodes else "")
            case ["get", "node", name, *_]:
                sys.stdout.write(f"{nodes[name]['kubelet']} {nodes[name]['ready']}")
            case ["get", "pods", "--all-namespaces", selector, *_]:
                name = selector.rpartition("=")[2]
                say(json.dumps({"items": [pod(each) for each in nodes[name]["pods"]]}))
            case ["get", "pdb", *_]:
                say(json.dumps({"items": []}))
            case ["get", "deployments,statefulsets,daemonsets", *_]:
                for name, ready in json.loads((SHARED / "workloads.json").read_text()).items():
                    say(f"Deployment default {name} 2 {ready} <none> <none>")
                note("workloads")
            case ["--namespace", "kube-system", "get", "pods", *_]:
                say(f"registry.k8s.io/kube-apiserver:{tag()}")
            case ["patch", "node", name, *rest]:
                patch = json.loads(rest[-1].partition("=")[2])
                node = nodes[name]
                if "spec" in patch:
                    node["cordoned"] = bool(patch["spec"]["unschedulable"])
                    note(f"{'cordon' if node['cordoned'] else 'uncordon'} {name}")
                for key, value in patch.get("metadata", {}).get("annotations", {}).items():
                    node["annotations"].pop(key, None)
                    if value is not None:
                        node["annotations"][key] = value
            case ["drain", name, *rest] if "--dry-run=server" in rest:
                if nodes[name]["blocked"]:
                    sys.exit(f"error when evicting pods of {name}: Cannot evict pod as it would violate the budget web")
            case ["drain", name, *_]:
                note(f"drain {name}")
                nodes[name]["pods"] = []
            case [*_, "get", "--raw", "/readyz"]:
                say("ok")
            case _:
                sys.exit(f"stand-in: kubectl {words}")
    if words[0] == "drain" and "--dry-run=server" not in words:
        fault(f"drain {words[1]}")


def shown(name: str, node: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": node["annotations"]},
        "spec": {"unschedulable": True} if node["cordoned"] else {},
        "status": {
            "conditions": [{"type": "Ready", "status": node["ready"]}],
            "nodeInfo": {"kubeletVersion": node["kubelet"]},
        },
    }


def pod(name: str) -> dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "controller": True}]
    return {"metadata": {"namespace": "default", "name": name, "ownerReferences": owners}, "spec": {}, "status": {}}


def host() -> str:
    return re.sub(r"\..*", "", socket.gethostname())


if __name__ == "__main__":
    name, version, *words = sys.argv[1:]
    if name == "runc":
        say(f"runc version {version}")
    elif name == "loopback":
        sys.stderr.write(f"CNI loopback plugin v{version}\n")
    else:
        os.umask(0o022)
        globals()[name](version, words)

#!/usr/bin/env python3
"""Stands in for the programs of a cluster on a host of the lab: `nodes_standin.py NAME ARGUMENTS...`.

All hosts share one folder with the state of the cluster. It keeps to the forms in which the real programs are called
and answer when nodes join and leave, and to nothing else of them. Runs with the Python of the hosts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARED = Path("/shared")
ETC = Path("/etc/kubernetes")


@contextlib.contextmanager
def state() -> Iterator[dict[str, Any]]:
    """The cluster, for one call: written back at the end."""
    with (SHARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = json.loads((SHARED / "state.json").read_text())
        yield data
        (SHARED / "state.new").write_text(json.dumps(data, indent=1))
        (SHARED / "state.new").rename(SHARED / "state.json")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def kubectl(words: list[str], cluster: dict[str, Any]) -> None:
    if not (ETC / "admin.conf").exists():
        sys.exit("error: stat /etc/kubernetes/admin.conf: no such file or directory")
    words = [word for word in words if not word.startswith(("--kubeconfig", "--request-timeout", str(ETC)))]
    nodes = cluster["nodes"]
    match words:
        case ["get", "nodes", "-o", template]:
            assert r"{\"\t\"}".replace('\\"', '"') in template, template
            for name, node in nodes.items():
                say(f"{name}\t{node['ready']}")
        case ["get", "configmap", "kubeadm-config", *_]:
            say(f"controlPlaneEndpoint: {cluster['endpoint']}\nkubernetesVersion: v{cluster['version']}")
        case ["get", "node", name, *_]:
            if name in nodes:
                conditions = [{"type": "Ready", "status": nodes[name]["ready"]}]
                status = {"conditions": conditions, "nodeInfo": {"kubeletVersion": "v1"}}
                spec = {"unschedulable": True} if nodes[name]["cordoned"] else {}
                say(json.dumps({"metadata": {"name": name}, "spec": spec, "status": status}))
        case ["get", "pods", "--all-namespaces", here, *_]:
            found = []
            for pod in nodes[here.rpartition("=")[2]]["pods"]:
                metadata = {
                    "name": pod,
                    "namespace": "default",
                    "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
                }
                found.append({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})
            say(json.dumps({"items": found}))
        case ["get", "pdb", *_]:
            say('{"items": []}')
        case ["get", "volumeattachments", *_] | ["get", "--raw", "/readyz"]:
            pass
        case ["patch", "node", name, "--type=merge", patch]:
            nodes[name]["cordoned"] = bool(json.loads(patch.partition("=")[2])["spec"]["unschedulable"])
            cluster["log"].append(f"{'cordon' if nodes[name]['cordoned'] else 'uncordon'} {name}")
        case ["drain", name, *_]:
            if cluster["blocked"]:
                sys.exit("error when evicting pods: Cannot evict pod as it would violate the pod's disruption budget.")
            cluster["log"].append(f"drain {name}")
            nodes[name]["pods"] = []
        case ["delete", "node", name, *_]:
            cluster["log"].append(f"delete {name}")
            del nodes[name]
        case ["wait", *_]:
            wanted = words[words.index("node") + 1 :]
            if missing := [name for name in wanted if nodes.get(name, {}).get("ready") != "True"]:
                sys.exit(f"error: timed out waiting for the condition on nodes/{missing[0]}")
        case _:
            sys.exit(f"kubectl: not known here: {words}")


def kubeadm(words: list[str], cluster: dict[str, Any]) -> None:
    match words:
        case ["config", "validate", "--config", file]:
            assert "kubeadm.k8s.io/v1beta4" in Path(file).read_text()
        case ["token", "create", *_]:
            cluster["log"].append(f"token of {socket.gethostname()}")
            given = f"--token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:{'0' * 64}"
            say(f"kubeadm join {cluster['endpoint']} {given}")
        case ["join", "--config", file]:
            join(Path(file).read_text(), cluster)
        case ["reset", *_]:
            cluster["log"].append(f"reset {socket.gethostname()}")
            for path in (ETC / "kubelet.conf", ETC / "admin.conf", Path("/var/lib/kubelet/config.yaml")):
                path.unlink(missing_ok=True)
        case _:
            sys.exit(f"kubeadm: not known here: {words}")


def join(config: str, cluster: dict[str, Any]) -> None:
    name = re.search(r'nodeRegistration:\n  name: "(\S+)"', config)
    assert name is not None, config
    if "\ncontrolPlane:" in config:
        for each in ("ca.key", "sa.key", "front-proxy-ca.key", "etcd/ca.key"):
            assert (ETC / "pki" / each).read_text() == f"{each} of the cluster\n", each
        cluster["members"][name[1]] = True
        (ETC / "admin.conf").touch()
        # As of a living cluster: nobody else may join meanwhile.
        cluster["log"].append(f"control plane {name[1]}")
    else:
        cluster["log"].append(f"worker {name[1]}")
    cluster["nodes"][name[1]] = {"ready": "True", "cordoned": False, "pods": [f"web-{name[1]}"]}
    (ETC / "kubelet.conf").touch()


def crictl(words: list[str], cluster: dict[str, Any]) -> None:
    match words:
        case ["info"]:
            say('{"status": {"conditions": [{"type": "RuntimeReady", "status": true}]}}')
        case ["ps", *_]:
            say("etcd-container")
        case ["exec", "etcd-container", "etcdctl", *rest]:
            etcdctl(
                [word for word in rest if not re.match("--(endpoints|cacert|cert|key|dial|command)", word)], cluster
            )
        case _:
            pass


def etcdctl(words: list[str], cluster: dict[str, Any]) -> None:
    members = cluster["members"]
    ids = {name: sum(name.encode()) for name in members}
    urls = {name: f"https://{name}:2379" for name in members}
    match words:
        case ["member", "list", "-w", "json"]:
            found = [{"ID": ids[name], "name": name, "peerURLs": [f"https://{name}:2380"], "clientURLs": [urls[name]]}
                     for name in members]  # fmt: skip
            say(json.dumps({"members": found}))
        case ["endpoint", "health", "--cluster", "-w", "json"]:
            say(json.dumps([{"endpoint": urls[name], "health": answers} for name, answers in members.items()]))
            if not all(members.values()):
                sys.exit("Error: unhealthy cluster")
        case ["endpoint", "status", "-w", "json"]:
            status = [{"Status": {"header": {"member_id": ids[name]}, "leader": ids[cluster["leader"]], "raftIndex": 1}}
                      for name, answers in members.items() if answers]  # fmt: skip
            say(json.dumps(status))
        case ["move-leader", heir]:
            cluster["leader"] = next(name for name in members if f"{ids[name]:x}" == heir)
            cluster["log"].append(f"{cluster['leader']} leads")
        case ["member", "remove", id_]:
            name = next(name for name in members if f"{ids[name]:x}" == id_)
            del members[name]
            cluster["log"].append(f"member {name} leaves through {socket.gethostname()}")
        case _:
            sys.exit(f"etcdctl: not known here: {words}")


def containerd(words: list[str]) -> None:
    if words == ["config", "dump"]:
        say(Path("/etc/containerd/config.toml").read_text())
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    signal.pause()


def main() -> None:
    name, *words = sys.argv[1:]
    if name == "containerd":
        containerd(words)
    elif name in ("kubectl", "kubeadm", "crictl"):
        with state() as cluster:
            {"kubectl": kubectl, "kubeadm": kubeadm, "crictl": crictl}[name](words, cluster)


if __name__ == "__main__":
    main()

"""A real cluster that grows and shrinks: workers, control planes, the first one, and one that is dead."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.real import RealCluster, changed, real_cluster
from tests.lab import depot, machines

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(machines.missing() or depot.missing()), reason=machines.missing() or depot.missing()),
]
_UP_TIME = 300.0
_WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: docker.io/library/busybox:latest
          imagePullPolicy: IfNotPresent
          command: [sh, -c, "cd /tmp && echo served >index.html && exec httpd -f -p 8080"]
          readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec:
  nodeName: worker2
  containers:
    - name: c
      image: docker.io/library/busybox:latest
      imagePullPolicy: IfNotPresent
      command: [sleep, "100000"]
"""


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _UP_TIME
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.5)


def nodes(cluster: RealCluster, on: str) -> dict[str, tuple[str, bool]]:
    """By name whether a node is Ready, and whether it takes pods."""
    items = json.loads(cluster.kubectl("get", "nodes", "-o", "json", on=on))["items"]
    return {
        node["metadata"]["name"]: (
            next(each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"),
            not node["spec"].get("unschedulable", False),
        )
        for node in items
    }


def members(cluster: RealCluster, on: str) -> set[str]:
    """The members of etcd."""
    script = """
crictl exec "$(crictl ps -q --state Running --name '^etcd$')" etcdctl --endpoints=https://127.0.0.1:2379 \
  --cacert=/etc/kubernetes/pki/etcd/ca.crt --cert=/etc/kubernetes/pki/etcd/healthcheck-client.crt \
  --key=/etc/kubernetes/pki/etcd/healthcheck-client.key member list -w json
"""
    return {each["name"] for each in json.loads(cluster.hosts[on].sh(script))["members"]}


def places(result: dict[str, Any]) -> set[str]:
    """The hosts on which something was done."""
    return {
        each.get("place") or host
        for node in result["nodeResults"].values()
        for host, each in node["hostResults"].items()
    }


def test_a_cluster_grows_and_shrinks(tmp_path: Path) -> None:
    control, work = ["controlPlane"], ["worker"]
    with real_cluster(tmp_path, cp1=control, worker1=work, worker2=work, cp2=control, cp3=control) as cluster:
        everybody = cluster.document["hosts"]
        fine = ("True", True)
        # What else the endpoint would be depends on the number of control planes.
        cluster.document["loadBalancer"] = {"type": "local"}
        cluster.document["hosts"] = everybody[:2]
        cluster.run("create")

        cluster.document["hosts"] = everybody[:3]
        before = cluster.hosts["cp1"].sh("find /etc /usr/local -xdev -newer /etc/kubernetes/admin.conf -type f | sort")
        added = cluster.run("add-nodes")
        assert places(added) == {"cp1", "worker2"}
        assert not [each for each in changed(added) if each.endswith(" on cp1")]
        after = cluster.hosts["cp1"].sh("find /etc /usr/local -xdev -newer /etc/kubernetes/admin.conf -type f | sort")
        assert after == before
        assert nodes(cluster, "cp1") == dict.fromkeys(["cp1", "worker1", "worker2"], fine)

        cluster.document["hosts"] = everybody
        cluster.run("add-nodes")
        assert nodes(cluster, "cp2") == dict.fromkeys(["cp1", "cp2", "cp3", "worker1", "worker2"], fine)
        assert members(cluster, "cp3") == {"cp1", "cp2", "cp3"}
        assert changed(cluster.run("add-nodes", "--nodes", "cp2,cp3,worker2")) == []

        # A pod that nothing would create again is in the way: nothing is removed, and the node takes pods.
        cluster.kubectl("apply", "-f", "-", stdin=_WEB)
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")
        refused = cluster.run("remove-nodes", "--nodes", "worker2", "--yes", code=1)
        assert "default/lonely" in refused["said"]
        assert nodes(cluster, "cp1")["worker2"] == fine
        cluster.kubectl("delete", "pod", "lonely", "--now")

        removed = cluster.run("remove-nodes", "--nodes", "worker2", "--yes")
        assert "worker2" not in nodes(cluster, "cp1")
        left = removed["nodeResults"]["reset/compare/difference"]["hostResults"]["worker2"]["outputs"]["stdout"]
        assert [line for line in left.splitlines() if not line.startswith("left package ")] == []
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")

        cluster.run("remove-nodes", "--nodes", "cp1", "--yes")
        assert nodes(cluster, "cp2") == dict.fromkeys(["cp2", "cp3", "worker1"], fine)
        assert members(cluster, "cp2") == {"cp2", "cp3"}

        # Back again, through another one; then it dies.
        cluster.run("add-nodes", "--nodes", "cp1")
        assert members(cluster, "cp2") == {"cp1", "cp2", "cp3"}
        cluster.hosts["cp1"].stop()
        assert "--dead" in cluster.refused("remove-nodes", "--nodes", "cp1", "--yes")
        until(lambda: nodes(cluster, "cp2")["cp1"][0] != "True", "cp1 is Ready although it is off")
        cluster.run("remove-nodes", "--nodes", "cp1", "--dead", "--yes")
        assert nodes(cluster, "cp2") == dict.fromkeys(["cp2", "cp3", "worker1"], fine)
        assert members(cluster, "cp2") == {"cp2", "cp3"}
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s", on="cp2")

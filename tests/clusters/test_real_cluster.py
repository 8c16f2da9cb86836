"""One real Kubernetes on full hosts: created from a document, used, created again without a change, and removed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.clusters.real import RealCluster, changed, real_cluster
from tests.lab import depot, machines

pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(machines.missing() or depot.missing()), reason=machines.missing() or depot.missing()),
]
_UP_TIME = 120.0
_WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
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
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
"""


def answers(cluster: RealCluster, host: str, script: str) -> None:
    """Wait until a script on a host says what the pod serves."""
    until = time.monotonic() + _UP_TIME
    while (said := cluster.hosts[host].sh(script, check=False)).strip() != "served":
        assert time.monotonic() < until, f"{script} on {host} says {said!r}"
        time.sleep(0.2)


def test_a_cluster_is_created_used_left_alone_and_removed(tmp_path: Path) -> None:
    with real_cluster(tmp_path, cp1=["controlPlane"], worker1=["worker"]) as cluster:
        cluster.run("create")
        nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        ready = {
            node["metadata"]["name"]: next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")
            for node in nodes
        }
        assert ready == {"cp1": "True", "worker1": "True"}
        assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {f"v{depot.KUBERNETES[0]}"}

        cluster.kubectl("apply", "-f", "-", stdin=_WEB)
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")
        for host, node in cluster.hosts.items():
            answers(cluster, host, f"curl -sS -m 2 http://{node.address}:30080/index.html")
        named = ["exec", "deployment/web", "--", "wget", "-q", "-O", "-"]
        assert cluster.kubectl(*named, "http://web.default.svc.cluster.local/index.html").strip() == "served"

        assert changed(cluster.run("create")) == []

        removed = cluster.run("reset", "--yes")
        left = removed["nodeResults"]["reset/compare/difference"]["hostResults"]
        assert set(left) == {"cp1", "worker1"}
        for host, found in left.items():
            lines = found["outputs"]["stdout"].splitlines()
            assert [line for line in lines if not line.startswith("left package ")] == [], host
            assert cluster.hosts[host].answers()
        assert changed(cluster.run("reset", "--yes")) == []

"""One real Kubernetes on full hosts: created from a document, used, created again without a change, and removed."""

from __future__ import annotations

import json
import subprocess
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


def looked_at(cluster: RealCluster) -> None:
    """Status, certificates and kubeconfig of a cluster that is as its document says."""
    status = json.loads(cluster.ask("status", "--output", "json"))
    assert status["problems"] == []
    assert [(each["name"], each["roles"], each["ready"]) for each in status["nodes"]] == [
        ("cp1", ["control-plane"], True),
        ("worker1", ["worker"], True),
    ]
    (member,) = status["members"]
    assert (member["name"], member["state"]) == ("cp1", "leader")
    assert member["size"] > 0
    parts = {each["component"] for each in status["components"]}
    assert parts == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert {"coredns", "kube-proxy"} <= {each["name"] for each in status["workloads"]}
    files = {(each["host"], each["path"]) for each in status["certificates"]["certificates"]}
    assert {("cp1", "/etc/kubernetes/pki/apiserver.crt"), ("cp1", "/etc/kubernetes/admin.conf")} <= files
    assert ("worker1", "/var/lib/kubelet/pki/kubelet-client-current.pem") in files
    assert "cp1      control-plane  Ready" in cluster.ask("status")
    cluster.ask("certs", "--days", "300")
    cluster.ask("certs", "--days", "400", code=1)
    cluster.ask("kubeconfig", "-o", "admin.kubeconfig")
    written = cluster.folder / "admin.kubeconfig"
    assert written.stat().st_mode & 0o777 == 0o600
    address = cluster.hosts["cp1"].address
    assert f"server: https://{address}:6443" in written.read_text()
    kubectl = depot.programs() / f"kubernetes-{depot.KUBERNETES[0]}" / "kubectl"
    words = [str(kubectl), "--kubeconfig", str(written), "get", "nodes", "-o", "name"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.split() == ["node/cp1", "node/worker1"]


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
        looked_at(cluster)
        assert changed(cluster.run("renew-certs")) == [], "nothing is due"

        removed = cluster.run("reset", "--yes")
        left = removed["nodeResults"]["reset/compare/difference"]["hostResults"]
        assert set(left) == {"cp1", "worker1"}
        for host, found in left.items():
            lines = found["outputs"]["stdout"].splitlines()
            assert [line for line in lines if not line.startswith("left package ")] == [], host
            assert cluster.hosts[host].answers()
        assert changed(cluster.run("reset", "--yes")) == []

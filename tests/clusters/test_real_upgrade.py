"""A real cluster goes from one minor version to the next, with a workload behind a disruption budget that is kept."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.clusters.real import RealCluster, changed, real_cluster
from tests.lab import depot, machines

NEW, OLD = depot.KUBERNETES
_WHY = machines.missing() or depot.missing(NEW) or depot.missing(OLD)
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(_WHY), reason=_WHY),
]
_LEAST = 1
_WEB = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {{matchLabels: {{app: web}}}}
      containers:
        - name: web
          image: docker.io/library/busybox:latest
          imagePullPolicy: IfNotPresent
          command: [sh, -c, "cd /tmp && echo served >index.html && exec httpd -f -p 8080"]
          readinessProbe: {{httpGet: {{port: 8080, path: /index.html}}, periodSeconds: 1}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web}}
spec: {{minAvailable: {_LEAST}, selector: {{matchLabels: {{app: web}}}}}}
"""
_MORE = {"spec": {"minAvailable": 2}}


class Watch:
    """Asks again and again how many pods of the workload are ready, and keeps the lowest number."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.lowest = 2
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.5):
            try:
                shown = self.cluster.kubectl("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")
            except AssertionError:
                continue  # The only API server is being replaced.
            self.lowest = min(self.lowest, int(shown or 0))


def nodes(cluster: RealCluster) -> dict[str, tuple[str, str, bool]]:
    """By node its version, whether it is Ready, and whether it is cordoned."""
    items = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]: (
            node["status"]["nodeInfo"]["kubeletVersion"],
            next(each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"),
            node["spec"].get("unschedulable", False),
        )
        for node in items
    }


def test_a_cluster_goes_to_the_next_minor_version_and_its_workload_stays(tmp_path: Path) -> None:
    with real_cluster(tmp_path, cp1=["controlPlane"], worker1=["worker"]) as cluster:
        cluster.document["kubernetes"] |= {"version": OLD, "schedulableControlPlane": True}
        cluster.run("create")
        cluster.kubectl("apply", "-f", "-", stdin=_WEB)
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=110s")
        before = dict.fromkeys(("cp1", "worker1"), (f"v{OLD}", "True", False))
        assert nodes(cluster) == before
        assert changed(cluster.run("upgrade")) == []

        # A budget that allows no eviction is found before the first change.
        cluster.document["kubernetes"]["version"] = NEW
        cluster.kubectl("patch", "pdb", "web", "--type=merge", "--patch", json.dumps(_MORE))
        refused = cluster.run("upgrade", code=1)
        assert "could not be drained" in refused["said"]
        assert changed(refused) == []
        cluster.kubectl(
            "patch", "pdb", "web", "--type=merge", "--patch", json.dumps({"spec": {"minAvailable": _LEAST}})
        )

        with Watch(cluster) as watch:
            cluster.run("upgrade")
        assert watch.lowest >= _LEAST
        assert nodes(cluster) == dict.fromkeys(("cp1", "worker1"), (f"v{NEW}", "True", False))
        images = cluster.kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}").split()
        for part in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
            assert {each.rpartition(":")[2] for each in images if f"/{part}:" in each} == {f"v{NEW}"}
        kept = cluster.hosts["cp1"].sh("cd /var/backups/etcd && sha256sum -c *.sha256 && ls *.db").splitlines()
        assert len(kept) == 2
        assert changed(cluster.run("upgrade")) == []

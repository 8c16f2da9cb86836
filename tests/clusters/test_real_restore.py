"""A real Kubernetes whose etcd, run by kubeadm, loses all its data and comes back from a snapshot."""

from __future__ import annotations

import json
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


def ids(cluster: RealCluster, kind: str) -> dict[str, str]:
    items: list[dict[str, Any]] = json.loads(cluster.kubectl("get", kind, "-o", "json"))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def test_stacked_etcd_comes_back_from_a_snapshot_after_all_its_data_is_gone(tmp_path: Path) -> None:
    roles = {f"cp{number}": ["controlPlane"] for number in (1, 2, 3)}
    with real_cluster(tmp_path, **roles, worker1=["worker"]) as cluster:
        cluster.run("create")
        cluster.kubectl("create", "namespace", "precious")
        before = {kind: ids(cluster, kind) for kind in ("namespaces", "nodes")}
        cluster.run("backup", "-o", "copies")
        (snapshot,) = (tmp_path / "copies").rglob("*.db")
        cluster.hosts["cp2"].sh("systemctl start kubexm-etcd-backup && ls /var/backups/etcd/timer-*.db")

        cluster.kubectl("create", "namespace", "later")
        for name in roles:
            cluster.hosts[name].sh("rm -rf /var/lib/etcd/member")
        cluster.run("restore", "--yes", "--snapshot", str(snapshot))
        assert {kind: ids(cluster, kind) for kind in ("namespaces", "nodes")} == before
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=110s")
        # It takes new objects, on revisions that nobody has seen.
        cluster.kubectl("create", "namespace", "later")
        assert changed(cluster.run("create")) == []

"""Snapshots of etcd: by a timer, on demand, and back again."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.artifacts import build_resources
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.etcd import member_entries
from kubexm_spec.diagnostics import Diagnostics


def build_timer(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The module of the timer on the members, or the one that removes it; none for an etcd of others."""
    if cluster.settings.etcd_type == "external":
        return []
    backup = cluster.settings.document.etcd.backup
    if not backup.enabled:
        return [{"name": "etcd-no-timer", "uses": "kubexm:etcd-no-timer"}]
    values = {**_common(cluster), "onCalendar": backup.on_calendar, "keep": backup.keep}
    return [*_programs(cluster), {"name": "etcd-timer", "uses": "kubexm:etcd-timer", "with": values}]


def build_snapshot(cluster: CheckedCluster, fetch_to: str = "") -> list[dict[str, Any]]:
    """The module that takes a snapshot now, with a copy in a folder of the control node if there is one; SpecError."""
    _refuse_external(cluster)
    values: dict[str, Any] = {
        **_common(cluster),
        "endpoints": [member["clientUrl"] for member in member_entries(cluster.settings)],
    }
    if fetch_to:
        values["fetchTo"] = fetch_to
    return [*_programs(cluster), {"name": "etcd-snapshot", "uses": "kubexm:etcd-snapshot", "with": values}]


def build_restoring(cluster: CheckedCluster, snapshot: str, sha256: str) -> list[dict[str, Any]]:
    """The module that gives all members the data of a snapshot; raises SpecError."""
    _refuse_external(cluster)
    settings = cluster.settings
    etcd = settings.document.etcd
    hosts = settings.control_planes if settings.etcd_type == "kubeadm" else settings.etcd_members
    members = member_entries(settings)
    values: dict[str, Any] = {
        **_common(cluster),
        "members": members,
        "hosts": {host.name: member["name"] for host, member in zip(hosts, members, strict=True)},
        "token": f"{settings.document.metadata.name}-etcd",
        "dataDir": etcd.data_dir,
        "snapshot": snapshot,
        "sha256": sha256,
    }
    # A static pod of kubeadm has its log in its data.
    if etcd.wal_dir is not None and settings.etcd_type == "kubexm":
        values["walDir"] = etcd.wal_dir
    return [*_programs(cluster), {"name": "etcd-restore", "uses": "kubexm:etcd-restore", "with": values}]


def programs_of_etcd(cluster: CheckedCluster) -> dict[str, Any]:
    """The resources of a flow that takes or restores a snapshot: hosts with an etcd of ours have its programs."""
    return {"etcd": build_resources(cluster)["etcd"]} if cluster.settings.etcd_type == "kubeadm" else {}


def _programs(cluster: CheckedCluster) -> list[dict[str, Any]]:
    if cluster.settings.etcd_type != "kubeadm":
        return []
    return [{"name": "etcd-programs", "uses": "kubexm:etcd-programs", "with": {"version": cluster.versions.etcd}}]


def _common(cluster: CheckedCluster) -> dict[str, Any]:
    return {
        "version": cluster.versions.etcd,
        "stacked": cluster.settings.etcd_type == "kubeadm",
        "dir": cluster.settings.document.etcd.backup.dir,
    }


def _refuse_external(cluster: CheckedCluster) -> None:
    if cluster.settings.etcd_type == "external":
        found = Diagnostics()
        summary = "etcd is external: its snapshots are the business of whoever runs it"
        hint = "use etcdctl snapshot save and etcdutl snapshot restore there"
        found.error("external-etcd", summary, cluster.loaded.place("etcd", "type"), hint=hint)
        found.raise_if_errors()

"""etcd beside Kubernetes: one of our own with its members and settings, or the certificates for one of others."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.settings import Settings, in_url, names_file


def build_etcd(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The module, unless kubeadm runs etcd."""
    settings = cluster.settings
    members = settings.etcd_members
    external = settings.document.etcd.external
    if settings.etcd_type == "external" and external is not None:
        given = {"ca": external.ca, "cert": external.cert, "key": external.key}
        references = {name: _reference(cluster, value or "") for name, value in given.items()}
        return [{"name": "etcd", "uses": "kubexm:external-etcd", "with": references}]
    if not members:
        return []
    etcd = settings.document.etcd
    values: dict[str, Any] = {
        "version": cluster.versions.etcd,
        "token": f"{settings.document.metadata.name}-etcd",
        "members": member_entries(settings),
        "first": members[0].name,
        "dataDir": etcd.data_dir,
        "settings": {
            **{f"ETCD_{name.upper().replace('-', '_')}": value for name, value in etcd_flags(settings).items()},
            **{f"ETCD_{name.upper().replace('-', '_')}": ",".join(each) for name, each in etcd.extra_args.items()},
        },
        "algorithm": settings.document.kubernetes.certificates.algorithm.lower(),
    }
    if etcd.wal_dir is not None:
        values["walDir"] = etcd.wal_dir
    return [{"name": "etcd", "uses": "kubexm:etcd", "with": values}]


def build_etcd_check(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The module that refuses members before anything is changed, for an etcd of ours."""
    settings = cluster.settings
    if not settings.etcd_members:
        return []
    etcd = settings.document.etcd
    values: dict[str, Any] = {"members": member_entries(settings), "dataDir": etcd.data_dir}
    if etcd.wal_dir is not None:
        values["walDir"] = etcd.wal_dir
    return [{"name": "etcd-check", "uses": "kubexm:etcd-check", "with": values}]


def member_entries(settings: Settings) -> list[dict[str, str]]:
    """The members as modules take them: those of our own, or the static pods of kubeadm, which have names of nodes."""
    stacked = settings.etcd_type == "kubeadm"
    return [
        {
            "name": host.node_name if stacked else host.name,
            "address": host.ip,
            "peerUrl": f"https://{in_url(host.ip)}:2380",
            "clientUrl": f"https://{in_url(host.ip)}:2379",
        }
        for host in (settings.control_planes if stacked else settings.etcd_members)
    ]


def _reference(cluster: CheckedCluster, value: str) -> str:
    """A file beside the document as a secret in a file; other references as they are."""
    return f"file:{cluster.loaded.folder / value}" if names_file(value) else value


def etcd_flags(settings: Settings) -> dict[str, str]:
    """The settings of the document as flags, which a static pod of kubeadm takes as well."""
    etcd = settings.document.etcd
    return {
        "quota-backend-bytes": str(etcd.quota),
        "heartbeat-interval": str(round(etcd.heartbeat_interval * 1000)),
        "election-timeout": str(round(etcd.election_timeout * 1000)),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": f"{round(etcd.compaction)}s",
    }


def endpoints(settings: Settings) -> list[str]:
    """The addresses of the members for clients."""
    external = settings.document.etcd.external
    if settings.etcd_type == "external" and external is not None:
        return list(external.endpoints)
    return [f"https://{in_url(host.ip)}:2379" for host in settings.etcd_members]

"""Renewal of certificates: those of an etcd of our own, then those of kubeadm and of the kubelets."""

from __future__ import annotations

from typing import Any, Final

from kubexm_spec.clusters.checks import CheckedCluster

_LEAF: Final = 365 * 86400.0
"""Seconds that the certificates of an etcd of our own are valid."""
_DAY: Final = 86400


def build_renewal(cluster: CheckedCluster, days: int, everything: bool) -> list[dict[str, Any]]:
    """The modules."""
    settings = cluster.settings
    modules: list[dict[str, Any]] = []
    asked = {"days": days, "all": everything}
    if settings.etcd_members:
        algorithm = settings.document.kubernetes.certificates.algorithm.lower()
        values = {"first": settings.etcd_members[0].name, "algorithm": algorithm, **asked}
        modules.append({"name": "etcd", "uses": "kubexm:renew-etcd", "with": values})
    values = {**asked, "apiPort": settings.api_port}
    return [*modules, {"name": "certificates", "uses": "kubexm:renew-certificates", "with": values}]


def largest_threshold(cluster: CheckedCluster) -> int:
    """Days: with more, every renewal would renew what the last one has."""
    shortest = cluster.settings.document.kubernetes.certificates.validity
    if cluster.settings.etcd_members:
        shortest = min(shortest, _LEAF)
    return max(0, int(shortest // _DAY) - 1)

"""What is looked at in a running cluster, and on which hosts: its state, its certificates, its administrator's file."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import ClusterHost


def build_status(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The modules, side by side."""
    settings = cluster.settings
    kind = settings.load_balancer
    virtual = {"haproxyKeepalived": settings.balancers, "kubeVip": settings.control_planes}.get(kind, [])
    own = settings.etcd_type == "kubexm"
    values = {
        "apiPort": settings.api_port,
        "etcdHosts": _names(settings.etcd_hosts),
        "etcdPki": "/etc/etcd/pki" if own else "/etc/kubernetes/pki/etcd",
        "etcdCa": "trusted-ca.crt" if own else "ca.crt",
        "balancers": _names(settings.balancers),
        "healthPort": settings.document.load_balancer.health_port,
        "virtualHosts": _names(virtual),
        "virtualAddress": settings.endpoint_address if virtual else "",
    }
    status = {"name": "status", "uses": "kubexm:status", "with": values}
    return [status, {**certificates(), "needs": []}]


def certificates() -> dict[str, Any]:
    """The module of the certificates."""
    return {"name": "certificates", "uses": "kubexm:certificates"}


def kubeconfig(cluster: CheckedCluster) -> dict[str, Any]:
    """The module of the administrator's kubeconfig."""
    return {"name": "kubeconfig", "uses": "kubexm:kubeconfig", "with": {"apiPort": cluster.settings.api_port}}


def _names(hosts: list[ClusterHost]) -> list[str]:
    return [host.name for host in hosts]

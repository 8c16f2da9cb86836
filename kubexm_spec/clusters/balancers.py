"""Load balancers in front of the API servers: which modules each kind needs, before and after the cluster begins."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import ClusterHost
from kubexm_spec.clusters.settings import Settings


def build_before(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """What has to be there before the first control plane begins."""
    settings = cluster.settings
    if settings.load_balancer == "haproxyKeepalived":
        keepalived = settings.document.load_balancer.keepalived
        values = {
            "address": settings.endpoint_address,
            **_haproxy(settings),
            "peers": _named(settings.balancers),
            "interface": keepalived.interface or "",
            "routerId": settings.router_id,
            "unicast": keepalived.unicast,
        }
        if settings.without_packages:
            values["installPackages"] = False
        if keepalived.auth_pass is not None:
            values["authPass"] = keepalived.auth_pass
        return [{"name": "load-balancer", "uses": "kubexm:haproxy-keepalived", "with": values}]
    if settings.load_balancer == "kubeVip":
        return [_kube_vip(cluster, "load-balancer")]
    return []


def build_after(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """What follows when the control planes are there."""
    settings = cluster.settings
    if settings.load_balancer == "kubeVip":
        # The first control plane used the super admin's kubeconfig until there was another.
        return [_kube_vip(cluster, "load-balancer-admin")]
    if settings.load_balancer == "local":
        values = {"image": image(cluster, "haproxy"), **_haproxy(settings)}
        return [{"name": "load-balancer", "uses": "kubexm:local-balancer", "with": values}]
    return []


def _haproxy(settings: Settings) -> dict[str, Any]:
    return {
        "port": settings.balancer_port,
        "healthPort": settings.document.load_balancer.health_port,
        "apiPort": settings.api_port,
        "servers": _named(settings.control_planes),
    }


def _kube_vip(cluster: CheckedCluster, name: str) -> dict[str, Any]:
    settings = cluster.settings
    vip = settings.document.load_balancer.kube_vip
    values = {
        "image": image(cluster, "kube-vip"),
        "address": settings.endpoint_address,
        "port": settings.endpoint_port,
        "interface": vip.interface or "",
        "mode": vip.mode,
        "services": vip.services,
        "bgp": vip.bgp.model_dump(by_alias=True) if vip.bgp is not None else {},
        "first": settings.control_planes[0].name,
    }
    return {"name": name, "uses": "kubexm:kube-vip", "with": values}


def _named(hosts: list[ClusterHost]) -> list[dict[str, str]]:
    return [{"name": host.name, "address": host.ip} for host in hosts]

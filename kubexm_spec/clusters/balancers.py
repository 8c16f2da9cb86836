"""Load balancers in front of the API servers: which modules each kind needs, before and after the cluster begins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import ClusterHost
from kubexm_spec.clusters.settings import Settings


def build_before(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """What has to be there before the first control plane begins."""
    kind = cluster.settings.load_balancer
    if kind == "haproxyKeepalived":
        return build_haproxy(cluster)
    return [_kube_vip(cluster, "load-balancer", cluster.settings.control_planes[0].name)] if kind == "kubeVip" else []


def build_after(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """What follows when the control planes are there."""
    kind = cluster.settings.load_balancer
    if kind == "kubeVip":
        # The first control plane used the super admin's kubeconfig until there was another.
        return [_kube_vip(cluster, "load-balancer-admin", cluster.settings.control_planes[0].name)]
    return build_haproxy(cluster) if kind == "local" else []


def build_virtual(cluster: CheckedCluster, through: str) -> list[dict[str, Any]]:
    """What has to be on a control plane before it joins a cluster that has begun, as ``through`` has."""
    return [_kube_vip(cluster, "virtual-address", through)] if cluster.settings.load_balancer == "kubeVip" else []


def build_haproxy(cluster: CheckedCluster, leaving: Collection[str] = ()) -> list[dict[str, Any]]:
    """haproxy on its hosts, if there are any, with all control planes but those that leave."""
    settings = cluster.settings
    if settings.load_balancer == "local":
        values = {"image": image(cluster, "haproxy"), **_haproxy(settings, leaving)}
        return [{"name": "load-balancer", "uses": "kubexm:local-balancer", "with": values}]
    if settings.load_balancer != "haproxyKeepalived":
        return []
    keepalived = settings.document.load_balancer.keepalived
    values = {
        "address": settings.endpoint_address,
        **_haproxy(settings, leaving),
        "peers": _named(settings.balancers, leaving),
        "interface": keepalived.interface or "",
        "routerId": settings.router_id,
        "unicast": keepalived.unicast,
    }
    if settings.without_packages:
        values["installPackages"] = False
    if keepalived.auth_pass is not None:
        values["authPass"] = keepalived.auth_pass
    return [{"name": "load-balancer", "uses": "kubexm:haproxy-keepalived", "with": values}]


def _haproxy(settings: Settings, leaving: Collection[str]) -> dict[str, Any]:
    return {
        "port": settings.balancer_port,
        "healthPort": settings.document.load_balancer.health_port,
        "apiPort": settings.api_port,
        "servers": _named(settings.control_planes, leaving),
    }


def _kube_vip(cluster: CheckedCluster, name: str, first: str) -> dict[str, Any]:
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
        "first": first,
    }
    return {"name": name, "uses": "kubexm:kube-vip", "with": values}


def _named(hosts: list[ClusterHost], leaving: Collection[str]) -> list[dict[str, str]]:
    return [{"name": host.name, "address": host.ip} for host in hosts if host.name not in leaving]

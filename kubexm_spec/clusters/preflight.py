"""The checks of hosts before the first change: which demands, ports and registries follow from a document."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import ClusterHost
from kubexm_spec.clusters.prepare import kernel_modules
from kubexm_spec.clusters.settings import Settings
from kubexm_spec.semver import version_key

LARGEST_SKEW: Final = 2.0
"""Seconds by which clocks of hosts may differ: leases of etcd and new certificates depend on them."""
_LEAST_KERNEL: Final = "4.19"
"""What the system verification of kubeadm asks for."""
_NFTABLES_KERNEL: Final = "5.13"
_CGROUP_V2: Final = "1.35"
"""The kubelet refuses control groups of version 1 from here on, unless it is told not to."""
_HTTPS: Final = 443


def build_preflight(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The module."""
    settings, preflight = cluster.settings, cluster.settings.document.preflight
    document = settings.document
    nftables = document.kubernetes.proxy.mode == "nftables"
    endpoint = document.control_plane_endpoint
    values: dict[str, Any] = {
        "minCPU": preflight.min_cpu,
        "minMemory": preflight.min_memory,
        "minDisk": preflight.min_disk,
        "dataFolders": list(dict.fromkeys(["/var/lib", document.container_runtime.data_dir])),
        "minKernel": _NFTABLES_KERNEL if nftables else _LEAST_KERNEL,
        "cgroupV1": cgroup_v1(cluster),
        "kernelModules": kernel_modules(settings),
        "swap": "refused" if document.system.skip and document.system.swap == "disable" else document.system.swap,
        "setHostname": document.system.hostname and not document.system.skip,
        "largestSkew": LARGEST_SKEW,
        "ports": _ports(settings),
        "addresses": {host.name: host.ip for host in _hosts(settings)},
        "names": {endpoint.domain: settings.endpoint_address} if endpoint.domain and endpoint.external_dns else {},
        "registries": _registries(cluster),
        "etcdHosts": [host.name for host in settings.etcd_hosts],
        "etcdFolder": document.etcd.wal_dir or document.etcd.data_dir,
        "etcdFsync": preflight.etcd_fsync,
        "kubernetes": cluster.versions.kubernetes,
        "architectures": sorted(cluster.data.artifacts["kubelet"].sha256[cluster.versions.kubernetes]),
        "skip": preflight.skip,
    }
    return [{"name": "preflight", "uses": "kubexm:preflight", "with": values}]


def cgroup_v1(cluster: CheckedCluster) -> str:
    """Whether the kubelet starts on hosts with control groups of version 1: allowed or refused."""
    legacy = cluster.settings.document.kubernetes.kubelet.config.get("failCgroupV1") is False
    old = version_key(cluster.versions.kubernetes) < version_key(_CGROUP_V2)
    return "allowed" if legacy or old else "refused"


def _hosts(settings: Settings) -> list[ClusterHost]:
    return [host for host in settings.hosts.by_name.values() if host.roles]


def _ports(settings: Settings) -> list[dict[str, Any]]:
    """Each port with the program that will have it, the hosts that it is on, and those that have to reach it there."""
    nodes, control, etcd = settings.hosts.nodes, settings.control_planes, settings.etcd_hosts
    found: list[dict[str, Any]] = []

    def add(port: int, program: str, on: list[ClusterHost], clients: list[ClusterHost]) -> None:
        if on:
            names = [host.name for host in clients]
            found.append({"port": port, "program": program, "on": [host.name for host in on], "from": names})

    kind = settings.load_balancer
    behind = settings.balancers if kind == "haproxyKeepalived" else []
    add(settings.api_port, "kube-apiserver", control, _either(nodes, behind))
    add(2379, "etcd", etcd, _either(control, etcd))
    add(2380, "etcd", etcd, etcd)
    add(10250, "kubelet", nodes, control)
    add(10257, "kube-controller-manager", control, [])
    add(10259, "kube-scheduler", control, [])
    if settings.document.kubernetes.proxy.mode != "none":
        add(10256, "kube-proxy", nodes, [])
    if kind in ("local", "haproxyKeepalived"):
        # A local one serves its own host alone.
        add(settings.balancer_port, "haproxy", settings.balancers, nodes if behind else [])
        add(settings.document.load_balancer.health_port, "haproxy", settings.balancers, [])
    if settings.document.network.plugin == "calico":
        add(179, "bird", nodes, nodes)
    return found


def _either(some: list[ClusterHost], others: list[ClusterHost]) -> list[ClusterHost]:
    return [*some, *(host for host in others if host not in some)]


def _registries(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The registries that nodes pull from, each with the places that can serve it: its mirrors, then itself."""
    settings = cluster.settings
    document = settings.document
    if document.offline.bundle is not None:
        return []  # nodes pull nothing
    images = [document.container_runtime.sandbox_image or image(cluster, "pause", cluster.versions.pause)]
    images.append(image(cluster, "kube-apiserver", cluster.versions.kubernetes))
    if settings.load_balancer in ("local", "kubeVip"):
        images.append(image(cluster, "haproxy" if settings.load_balancer == "local" else "kube-vip"))
    if cluster.versions.network:
        manifest = cluster.data.manifests[document.network.plugin][cluster.versions.network]
        images += [each.ref for each in manifest.images]
    proxy = document.system.proxy
    through = [proxy.https or proxy.http] if proxy is not None and (proxy.https or proxy.http) else []
    mirrors = document.registry.mirrors
    found = []
    for registry in dict.fromkeys(_registry(ref) for ref in images):
        served_by = mirrors.get(registry) or mirrors.get("_default") or []
        places = [_place(str(each)) for each in [*served_by, *(through or [f"https://{registry}"])]]
        found.append({"name": registry, "places": list(dict.fromkeys(places))})
    return found


def _registry(ref: str) -> str:
    """The registry of an image; that of a reference without one is Docker's."""
    first, slash, _ = ref.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _place(url: str) -> str:
    """The name and port of an address, as two words."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    return f"{parts.hostname or ''} {parts.port or (80 if parts.scheme == 'http' else _HTTPS)}"

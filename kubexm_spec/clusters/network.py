"""The network plugin: its settings, as a patch of the manifest of its project."""

from __future__ import annotations

import ipaddress
from typing import Any

from kubexm_spec.clusters.settings import Settings

_ENCAPSULATIONS = {
    "VXLANCrossSubnet": ("Never", "CrossSubnet"),
    "VXLAN": ("Never", "Always"),
    "IPIPCrossSubnet": ("CrossSubnet", "Never"),
    "IPIP": ("Always", "Never"),
    "None": ("Never", "Never"),
}
"""Of Calico: how IPIP and VXLAN are set."""


def build_network(settings: Settings) -> list[dict[str, Any]]:
    """The module, if there is a plugin."""
    network = settings.document.network
    if network.plugin == "none":
        return []
    sets = {"flannel": "kube-flannel/kube-flannel-ds", "calico": "kube-system/calico-node"}
    values = {
        "plugin": network.plugin,
        "daemonSet": sets[network.plugin],
        "settings": _flannel(settings) if network.plugin == "flannel" else _calico(settings),
        "podSubnets": network.pod_cidrs,
    }
    return [{"name": "network", "uses": "kubexm:network", "with": values}]


def _flannel(settings: Settings) -> dict[str, Any]:
    network = settings.document.network
    found: dict[str, Any] = {}
    for subnet in network.pod_cidrs:
        if ipaddress.ip_network(subnet).version == 4:
            found["Network"] = subnet
        else:
            found |= {"EnableIPv6": True, "IPv6Network": subnet}
    if "Network" not in found:
        found["EnableIPv4"] = False
    if settings.document.kubernetes.proxy.mode == "nftables":
        found["EnableNFTables"] = True
    backend: dict[str, Any] = {"Type": network.flannel.backend}
    if network.flannel.direct_routing:
        backend["DirectRouting"] = True
    if network.mtu:
        backend["MTU"] = network.mtu
    return {**found, "Backend": backend}


def _calico(settings: Settings) -> dict[str, str]:
    network, calico = settings.document.network, settings.document.network.calico
    ipip, vxlan = _ENCAPSULATIONS[calico.encapsulation]
    found = {
        "CALICO_IPV4POOL_CIDR": network.pod_cidrs[0],
        "CALICO_IPV4POOL_IPIP": ipip,
        "CALICO_IPV4POOL_VXLAN": vxlan,
        "CALICO_IPV4POOL_BLOCK_SIZE": str(calico.block_size),
        "CALICO_IPV4POOL_NAT_OUTGOING": str(calico.nat_outgoing).lower(),
    }
    mode = calico.dataplane or settings.document.kubernetes.proxy.mode
    if mode in ("nftables", "iptables"):
        found["FELIX_NFTABLESMODE"] = "Enabled" if mode == "nftables" else "Disabled"
    return found

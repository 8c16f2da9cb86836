"""The operating system of the hosts: which modules, settings and names they need, and their removal."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.settings import Settings

_KUBELET = "/var/lib/kubelet"
_IPVS = ["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "nf_conntrack"]


def build_prepare(settings: Settings) -> list[dict[str, Any]]:
    """The module, or nothing if the hosts are prepared."""
    system = settings.document.system
    if system.skip:
        return []
    values: dict[str, Any] = {
        "kernelModules": kernel_modules(settings),
        "sysctl": _sysctl(settings),
        "packages": system.packages,
        "swap": system.swap,
        "hostEntries": _host_entries(settings),
        "setHostname": system.hostname,
    }
    if settings.without_packages:
        values["installPackages"] = False
    if system.timezone is not None:
        values["timezone"] = system.timezone
    return [{"name": "prepare", "uses": "kubexm:prepare", "with": values}]


def build_before(settings: Settings) -> list[dict[str, Any]]:
    """The record of the hosts before the first change."""
    return [{"name": "before", "uses": "kubexm:before", "with": {"sysctl": _changed_settings(settings)}}]


def build_removal(settings: Settings) -> list[dict[str, Any]]:
    """The module that removes everything."""
    document = settings.document
    folders = [_KUBELET, document.container_runtime.data_dir, document.etcd.data_dir, document.etcd.wal_dir]
    values = {
        "sysctl": _changed_settings(settings),
        "kernelModules": [] if document.system.skip else kernel_modules(settings),
        "dataFolders": [folder for folder in folders if folder is not None],
    }
    return [{"name": "reset", "uses": "kubexm:reset", "with": values}]


def _changed_settings(settings: Settings) -> list[str]:
    balancer = ["net.ipv4.ip_nonlocal_bind"] if settings.load_balancer == "haproxyKeepalived" else []
    return [*([] if settings.document.system.skip else _sysctl(settings)), *balancer]


def kernel_modules(settings: Settings) -> list[str]:
    """The kernel modules that nodes need."""
    mode = settings.document.kubernetes.proxy.mode
    more = _IPVS if mode == "ipvs" else ["nf_tables"] if mode in (None, "nftables") else []
    return list(dict.fromkeys(["overlay", "br_netfilter", *more, *settings.document.system.modules]))


def _sysctl(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {
        "net.ipv4.ip_forward": "1",
        "net.bridge.bridge-nf-call-iptables": "1",
        "net.bridge.bridge-nf-call-ip6tables": "1",
        # No connection of the host may take a port that a Service has.
        "net.ipv4.ip_local_reserved_ports": settings.document.kubernetes.api_server.node_port_range,
        "fs.inotify.max_user_instances": "8192",
    }
    if settings.is_dual_stack:
        found["net.ipv6.conf.all.forwarding"] = "1"
    return {**found, **settings.document.system.sysctl}


def _host_entries(settings: Settings) -> dict[str, list[str]]:
    """Names by address: all hosts, the endpoint, and what the user adds."""
    entries: dict[str, list[str]] = {}

    def add(address: str, *names: str) -> None:
        entries.setdefault(address, []).extend(name for name in names if name not in entries[address])

    for host in settings.hosts.by_name.values():
        if host.roles:
            add(host.ip, *dict.fromkeys([host.node_name, host.name]))
    endpoint = settings.document.control_plane_endpoint
    # Of a local load balancer the name is 127.0.0.1 once a node has joined: its modules write it.
    if endpoint.domain and not endpoint.external_dns and not settings.local_name:
        add(settings.endpoint_address, endpoint.domain)
    for line in settings.document.system.hosts:
        add(line.ip, *line.names)
    return entries

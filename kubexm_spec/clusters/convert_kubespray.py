"""An inventory of kubespray (hosts and group_vars) as a Cluster document."""

from __future__ import annotations

import re
from typing import Any, Final

from kubexm_spec.clusters.convert import (
    ROLES,
    Foreign,
    Made,
    cidrs,
    encapsulation,
    number,
    put_kubelet_flags,
    put_plugin,
    put_version,
)
from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, WORKER
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.yaml.source import Path, SourceFile

_CONNECTION: Final = ("port", "user", "privateKeyPath", "password", "privateKey", "passphrase", "become")
_GROUPS: Final = (
    "k8s_cluster",
    "k8s-cluster",
    "kube_control_plane",
    "kube-master",
    "kube_node",
    "kube-node",
    "etcd",
    "all",
)
"""Groups whose variables are looked at, the most special last but for those of all hosts."""


def convert_kubespray(source: SourceFile, index: int, found: Diagnostics) -> dict[str, Any]:
    """An inventory of ansible's in our form, as it is read everywhere else, with the variables of kubespray in it."""
    return _Inventory(source, index, found).made()


class _Inventory:
    def __init__(self, source: SourceFile, index: int, found: Diagnostics) -> None:
        self.doc = Foreign(source, index, found)
        self.result = Made(_name(source))
        self.roles: dict[str, list[str]] = {}

    def _path(self, name: str) -> Path | None:
        """Where a variable is set: by a group of the cluster, else for all hosts."""
        for group in _GROUPS:
            if name in self.doc.keys("groups", group, "vars"):
                return ("groups", group, "vars", name)
        return ("vars", name) if name in self.doc.keys("vars") else None

    def var(self, name: str) -> Any:
        path = self._path(name)
        return None if path is None else self.doc.get(*path)

    def word(self, name: str) -> str | None:
        value = self.var(name)
        return None if value is None or isinstance(value, dict | list) else str(value)

    def flag(self, name: str) -> bool | None:
        value = self.var(name)
        return value if isinstance(value, bool) else None if value is None else str(value).lower() in ("true", "yes")

    def names(self, name: str) -> list[str]:
        value = self.var(name)
        return [str(each) for each in value] if isinstance(value, list) else cidrs(str(value)) or [] if value else []

    def lost(self, name: str, why: str, hint: str = "") -> None:
        self.doc.lost(self._path(name) or (), why, hint)

    def made(self) -> dict[str, Any]:
        made = self.result
        self._version()
        self._hosts()
        self._kubernetes()
        self._endpoint()
        self._etcd()
        self._network()
        self._system()
        mirrors = self._path("containerd_registries_mirrors") or ("vars", "containerd_registries_mirrors")
        for position in self.doc.positions(*mirrors):
            each = (*mirrors, position)
            urls = [self.doc.text(*each, "mirrors", at, "host") for at in self.doc.positions(*each, "mirrors")]
            registry = self.doc.text(*each, "prefix")
            made.put(
                {registry: [url for url in urls if url]} if registry and any(urls) else None, "registry", "mirrors"
            )
            for at in self.doc.positions(*each, "mirrors"):
                self.doc.get(*each, "mirrors", at, "capabilities")
        self.doc.rest({})
        return made.ordered()

    def _version(self) -> None:
        path = self._path("kube_version") or ("groups", "k8s_cluster", "vars", "kube_version")
        put_version(self.result, self.doc, *(str(part) for part in path))
        name = self.word("cluster_name")
        # kubespray's name of the cluster is its domain.
        self.result.put(self.word("dns_domain") or name, "kubernetes", "dnsDomain")
        self.result.put(name, "kubernetes", "clusterName")

    def _hosts(self) -> None:
        doc, made = self.doc, self.result
        for group in doc.keys("groups"):
            role = ROLES.get(str(group))
            members = [str(each) for each in doc.items("groups", group, "hosts")]
            doc.get("groups", group, "roles")
            if role is not None:
                self.roles.setdefault(role, []).extend(each for each in members if each not in self.roles.get(role, []))
        if self.word("etcd_deployment_type") == "kubeadm":
            self.roles.pop(ETCD, None)
            made.put("kubeadm", "etcd", "type")
        known = {name for members in self.roles.values() for name in members}
        for key in _CONNECTION:
            made.put(doc.get("defaults", key), "defaults", key)
        hosts = []
        for position in doc.positions("hosts"):
            path = ("hosts", position)
            name = doc.text(*path, "name") or ""
            if name not in known:
                doc.get(*path)
                doc.lost(path, f'host "{name}" has no role in the cluster: it is left out', "")
                continue
            hosts.append(self._host(path, name))
        made.put(hosts, "hosts")
        made.put(self.roles, "roleGroups")
        control, workers = self.roles.get(CONTROL_PLANE, []), self.roles.get(WORKER, [])
        if control and all(name in workers for name in control):
            made.put(True, "kubernetes", "schedulableControlPlane")
        elif any(name in workers for name in control):
            why = "some control planes are workers as well, and others not: none takes pods"
            doc.lost(("groups",), why, "set kubernetes.schedulableControlPlane for all of them")

    def _host(self, path: tuple[str, int], name: str) -> dict[str, Any]:
        doc = self.doc
        address = doc.text(*path, "address") or name
        host: dict[str, Any] = {"name": name, "address": address}
        internal = doc.text(*path, "vars", "ip") or doc.text(*path, "vars", "access_ip")
        doc.get(*path, "vars", "access_ip")
        second = doc.text(*path, "vars", "ip6")
        if internal and (internal != address or second):
            host["internalAddress"] = f"{internal},{second}" if second else internal
        for key in _CONNECTION:
            if (value := doc.get(*path, key)) is not None:
                host[key] = value
        if host.get("user", "root") != "root":
            host.setdefault("become", True)  # as kubespray is run, with -b
        # Names of members are those of their hosts here.
        doc.get(*path, "vars", "etcd_member_name")
        node: dict[str, Any] = {}
        labels = {key: str(value) for key, value in doc.table(*path, "vars", "node_labels").items()}
        node |= {"labels": labels} if labels else {}
        taints = [_taint(str(each)) for each in doc.items(*path, "vars", "node_taints")]
        node |= {"taints": taints} if taints else {}
        return {**host, "node": node} if node else host

    def _kubernetes(self) -> None:
        made = self.result
        made.put(self.word("kube_image_repo"), "kubernetes", "imageRepository")
        made.put(self.names("supplementary_addresses_in_ssl_keys"), "kubernetes", "apiServer", "certSANs")
        made.put(number(self.var("kube_apiserver_port")), "kubernetes", "apiServer", "bindPort")
        made.put(self.word("kube_apiserver_node_port_range"), "kubernetes", "apiServer", "nodePortRange")
        made.put(self.flag("kubernetes_audit") or None, "kubernetes", "apiServer", "audit", "enabled")
        made.put(
            self.names("kube_apiserver_enable_admission_plugins"), "kubernetes", "apiServer", "admission", "enable"
        )
        made.put(self.flag("kube_encrypt_secret_data") or None, "kubernetes", "encryption", "enabled")
        made.put(self.flag("auto_renew_certificates") or None, "kubernetes", "certificates", "autoRenew")
        for source, target in (
            ("apiserver", "apiServer"),
            ("controller", "controllerManager"),
            ("scheduler", "scheduler"),
        ):
            flags = self.var(f"kube_kubeadm_{source}_extra_args")
            made.put(flags if isinstance(flags, dict) else None, "kubernetes", target, "extraArgs")
        gates = dict(each.split("=", 1) for each in self.names("kube_feature_gates") if "=" in each)
        made.put({key: value.lower() == "true" for key, value in gates.items()}, "kubernetes", "featureGates")
        mode = self.word("kube_proxy_mode")
        made.put("none" if self.flag("kube_proxy_remove") else mode, "kubernetes", "proxy", "mode")
        made.put(number(self.var("kube_network_node_prefix")), "kubernetes", "controllerManager", "nodeCIDRMaskSize")
        made.put(number(self.var("kubelet_max_pods")), "kubernetes", "kubelet", "config", "maxPods")
        custom = [each.removeprefix("--").partition("=") for each in self.names("kubelet_custom_flags")]
        if custom:
            path = self._path("kubelet_custom_flags") or ()
            put_kubelet_flags(made, {name: value for name, _, value in custom}, self.doc, path)
        config = self.var("kubelet_config_extra_args")
        made.put(config if isinstance(config, dict) else None, "kubernetes", "kubelet", "config")
        runtime = self.word("container_manager")
        if runtime not in (None, "containerd"):
            self.lost("container_manager", f"there is no {runtime}: containerd is the runtime")
        made.put(self.word("containerd_storage_dir"), "containerRuntime", "dataDir")
        if self.flag("kube_oidc_auth"):
            names = {"kube_oidc_url": "issuerURL", "kube_oidc_client_id": "clientID"}
            names |= {"kube_oidc_username_claim": "usernameClaim", "kube_oidc_groups_claim": "groupsClaim"}
            for source, target in names.items():
                made.put(self.word(source), "kubernetes", "apiServer", "oidc", target)

    def _endpoint(self) -> None:
        made = self.result
        outside = self.var("loadbalancer_apiserver")
        domain = self.word("apiserver_loadbalancer_domain_name")
        local = self.flag("loadbalancer_apiserver_localhost")
        kind = self.word("loadbalancer_apiserver_type")
        vip, interface = self.word("kube_vip_address"), self.word("kube_vip_interface")
        arp, control = self.flag("kube_vip_arp_enabled"), self.flag("kube_vip_controlplane_enabled")
        services = self.flag("kube_vip_services_enabled")
        if self.flag("kube_vip_enabled") and control is not False:
            made.put("kubeVip", "loadBalancer", "type")
            made.put(interface, "loadBalancer", "kubeVip", "interface")
            made.put(services or None, "loadBalancer", "kubeVip", "services")
            if arp is False:
                self.lost("kube_vip_arp_enabled", "BGP needs peers: ARP is written", "set loadBalancer.kubeVip.bgp")
            made.put(vip, "controlPlaneEndpoint", "address")
            made.put(domain, "controlPlaneEndpoint", "domain")
        elif isinstance(outside, dict) and outside.get("address"):
            made.put("external", "loadBalancer", "type")
            made.put(str(outside["address"]), "controlPlaneEndpoint", "address")
            made.put(number(outside.get("port")), "controlPlaneEndpoint", "port")
            made.put(domain, "controlPlaneEndpoint", "domain")
        elif local is not False and len(self.roles.get(CONTROL_PLANE, [])) > 1:
            # As in kubespray, where nginx does it by default.
            workers = [name for name in self.roles.get(WORKER, []) if name not in self.roles.get(CONTROL_PLANE, [])]
            if workers:
                made.put("local", "loadBalancer", "type")
            else:
                why = "a local load balancer runs on workers that are no control planes, and there are none"
                self.doc.lost(("groups",), why, "add a worker, or choose loadBalancer.type kubeVip with an address")
        if kind == "nginx" and made.data.get("loadBalancer", {}).get("type") == "local":
            self.lost("loadbalancer_apiserver_type", "nginx on workers is not there: haproxy does the same")

    def _etcd(self) -> None:
        made = self.result
        made.put(self.word("etcd_data_dir"), "etcd", "dataDir")
        made.put(number(self.var("etcd_quota_backend_bytes")), "etcd", "quota")
        for key, target in (
            ("etcd_heartbeat_interval", "heartbeatInterval"),
            ("etcd_election_timeout", "electionTimeout"),
        ):
            value = number(self.var(key))
            made.put(f"{value}ms" if value else None, "etcd", target)
        hours = number(self.var("etcd_compaction_retention"))
        made.put(f"{hours}h" if hours else None, "etcd", "compaction")
        for key, text in (("etcd_version", "etcd"), ("containerd_version", "containerd"), ("calico_version", "Calico")):
            if self.word(key) is not None:
                self.lost(key, f"the version of {text} that goes with Kubernetes is used", "see kubexm versions list")

    def _network(self) -> None:
        made = self.result
        path = self._path("kube_network_plugin")
        plugin = put_plugin(made, self.word("kube_network_plugin"), self.doc, path or ())
        pods, services = self.names("kube_pods_subnet"), self.names("kube_service_addresses")
        if self.flag("enable_dual_stack_networks") or self.flag("ipv6_stack"):
            pods += self.names("kube_pods_subnet_ipv6")
            services += self.names("kube_service_addresses_ipv6")
        made.put(pods, "network", "podCIDRs")
        made.put(services, "network", "serviceCIDRs")
        kind = encapsulation(self.word("calico_ipip_mode"), self.word("calico_vxlan_mode"))
        mtu = number(self.var("calico_mtu")) or number(self.var("calico_veth_mtu"))
        backend = self.word("flannel_backend_type")
        if plugin == "calico":
            made.put(kind, "network", "calico", "encapsulation")
            made.put(mtu, "network", "mtu")
        if plugin == "flannel":
            made.put(backend, "network", "flannel", "backend")
        made.put(self.flag("enable_nodelocaldns"), "dns", "nodeLocal", "enabled")
        made.put(self.word("nodelocaldns_ip"), "dns", "nodeLocal", "ip")
        made.put(self.names("upstream_dns_servers"), "dns", "upstreams")

    def _system(self) -> None:
        made = self.result
        made.put(self.flag("ntp_enabled"), "system", "ntp", "enabled")
        servers = [each.split()[0] for each in self.names("ntp_servers") if each.split()]
        made.put(servers, "system", "ntp", "servers")
        made.put(self.word("ntp_timezone"), "system", "timezone")
        for source, target in (("http_proxy", "http"), ("https_proxy", "https")):
            made.put(self.word(source), "system", "proxy", target)
        made.put(self.names("additional_no_proxy"), "system", "proxy", "noProxy")
        if self.flag("kubelet_fail_swap_on") is False:
            made.put("keep", "system", "swap")


def _name(source: SourceFile) -> str:
    """The name of the folder, as kubespray has a folder for each cluster."""
    return re.sub(r"[^a-z0-9]+", "-", source.path.parent.name.lower()).strip("-") or "kubespray"


def _taint(text: str) -> dict[str, str]:
    """``key=value:Effect``."""
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect}

"""What is wrong with a Cluster document beyond its shape: its hosts, networks, load balancer, secrets and files."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, ClusterHost, ClusterHosts
from kubexm_spec.clusters.settings import Settings, names_file
from kubexm_spec.clusters.versions import ClusterVersions, choose_versions, load_versions
from kubexm_spec.diagnostics import Diagnostics, did_you_mean, plural, some
from kubexm_spec.documents.loader import SHIPPED_PREFIX, Loaded, Loader
from kubexm_spec.models.cluster import PREFLIGHT_CHECKS, ClusterDocument, HookSpec
from kubexm_spec.models.network import Network, is_node_name
from kubexm_spec.models.versions import VersionsDocument
from kubexm_spec.semver import version_key
from kubexm_spec.yaml.source import Place

_LEAST_PODS: Final = 14
_LEAST_SERVICES: Final = 10
"""Addresses that kubeadm asks for."""
_WIDEST_SERVICES: Final = 20
"""Bits of a Service subnet that the API server can serve."""
_MASK: Final = {4: 24, 6: 64}
"""Size of a node's part of the pod subnet."""
_FLANNEL_PORT: Final = 8081
_LABEL: Final = 63


class CheckedCluster(Struct, frozen=True):
    """A cluster without errors, with all that follows from its document."""

    loaded: Loaded[ClusterDocument]
    settings: Settings
    data: VersionsDocument
    versions: ClusterVersions


def check_cluster(
    cluster: Loaded[ClusterDocument], hosts: ClusterHosts | None, loader: Loader, is_reference: Callable[[str], bool]
) -> CheckedCluster | None:
    """A cluster with its hosts (as `find_hosts` finds them) and versions, or None if there are errors, also before.

    ``is_reference`` tells whether a text names a secret, rather than being one.
    """
    data = load_versions(cluster, loader)
    versions = choose_versions(cluster, data, loader.diagnostics) if data is not None else None
    _check_secrets(cluster, is_reference, loader.diagnostics)
    _check_files(cluster, loader)
    _check_names(cluster, loader.diagnostics)
    if hosts is not None:
        settings = Settings(cluster.document, hosts)
        checks = _Checks(cluster, settings, loader.diagnostics)
        checks.hosts()
        if hosts.whole and settings.control_planes and not checks.unusable:
            checks.networks()
            checks.load_balancer()
            checks.etcd()
            checks.kubernetes(versions)
    if hosts is None or data is None or versions is None or loader.diagnostics.has_errors:
        return None
    return CheckedCluster(cluster, Settings(cluster.document, hosts), data, versions)


def _check_secrets(cluster: Loaded[ClusterDocument], is_reference: Callable[[str], bool], found: Diagnostics) -> None:
    for path, value in _secrets(cluster.document):
        if not is_reference(value):
            summary = f"{path[-1]} must be a secret reference, not the value itself"
            hint = f"write {path[-1]}: env:NAME or file:PATH"
            found.error("plain-password", summary, cluster.place(*path), hint=hint)


def _secrets(document: ClusterDocument) -> Iterator[tuple[tuple[str, ...], str]]:
    """By path the values that are secrets."""
    kubernetes, keepalived = document.kubernetes, document.load_balancer.keepalived
    if keepalived.auth_pass is not None:
        yield ("loadBalancer", "keepalived", "authPass"), keepalived.auth_pass
    if kubernetes.encryption.key is not None:
        yield ("kubernetes", "encryption", "key"), kubernetes.encryption.key
    if kubernetes.certificates.ca_bundle is not None:
        yield ("kubernetes", "certificates", "caBundle", "key"), kubernetes.certificates.ca_bundle.key
    for registry, auth in document.registry.auths.items():
        if auth.password is not None:
            yield ("registry", "auths", registry, "password"), auth.password


def _check_files(cluster: Loaded[ClusterDocument], loader: Loader) -> None:
    document = cluster.document
    api = document.kubernetes.api_server
    named: list[tuple[str, str | None, tuple[str | int, ...]]] = [
        ("policy", api.audit.policy_file, ("kubernetes", "apiServer", "audit", "policyFile")),
        ("CA", api.oidc.ca_file if api.oidc is not None else None, ("kubernetes", "apiServer", "oidc", "caFile")),
    ]
    external = document.etcd.external
    for key, value in external.model_dump().items() if external is not None else ():
        if key in ("ca", "cert", "key") and value and names_file(value):
            named.append(("certificate" if key != "key" else "key", value, ("etcd", "external", key)))
    for number, addon in enumerate(document.addons):
        for index, path in enumerate(addon.manifest.path if addon.manifest is not None else ()):
            named.append(("manifest", path, ("addons", number, "manifest", "path", index)))
        if addon.chart is not None:
            named.append(("chart", addon.chart.path, ("addons", number, "chart", "path")))
            for index, path in enumerate(addon.chart.values_files):
                named.append(("values", path, ("addons", number, "chart", "valuesFiles", index)))
    for what, name, where in named:
        if name is not None and "://" not in name and not (cluster.folder / name).exists():
            loader.not_found(cluster.folder / name, name, what, cluster.place(*where))
    for point, hook in document.hooks:
        key = type(document.hooks).model_fields[point].alias or point
        for when in ("before", "after"):
            for number, module in enumerate(getattr(hook, when) if isinstance(hook, HookSpec) else ()):
                where = ("hooks", key, when, number, "uses")
                if not module.uses.startswith(SHIPPED_PREFIX):
                    loader.resolve(module.uses, cluster.source, "Module", cluster.place(*where))


def _check_names(cluster: Loaded[ClusterDocument], found: Diagnostics) -> None:
    seen: dict[str, Place] = {}
    for number, addon in enumerate(cluster.document.addons):
        place = cluster.place("addons", number, "name")
        if addon.name in seen:
            hint = f"also at {seen[addon.name].file_line}"
            found.error("duplicate-name", f'there are two addons "{addon.name}"', place, hint=hint)
        seen.setdefault(addon.name, place)
    for number, name in enumerate(cluster.document.preflight.skip):
        if name not in PREFLIGHT_CHECKS:
            hint = did_you_mean(name, PREFLIGHT_CHECKS) or f"there are {', '.join(PREFLIGHT_CHECKS)}"
            place = cluster.place("preflight", "skip", number)
            found.error("unknown-check", f'there is no check "{name}"', place, hint=hint)


def _networks(texts: list[str]) -> list[Network]:
    return [ipaddress.ip_network(text) for text in texts]


def _families(versions: Sequence[int]) -> str:
    return "dual stack" if len(set(versions)) == 2 else f"IPv{versions[0]} alone"


class _Checks:
    def __init__(self, cluster: Loaded[ClusterDocument], settings: Settings, found: Diagnostics) -> None:
        self.cluster = cluster
        self.document = cluster.document
        self.settings = settings
        self.found = found
        self.unusable = False
        """Whether hosts have no addresses, so that nothing else can be said."""
        network = cluster.document.network
        self.pods, self.services = _networks(network.pod_cidrs), _networks(network.service_cidrs)

    def hosts(self) -> None:
        """Names, addresses and roles."""
        names: dict[str, ClusterHost] = {}
        addresses: dict[str, ClusterHost] = {}
        for host in self.settings.hosts.by_name.values():
            if host.roles:
                self._check_address(host, addresses)
            elif not host.spec.roles and self.document.inventory is None:
                summary, hint = f'host "{host.name}" has no role', "give it one, or remove it"
                self.found.warning("no-role", summary, host.place.child("name"), hint=hint)
            if host.is_node:
                self._check_node_name(host, names)
        if not self.settings.control_planes and not self.found.has_errors:
            summary = "the cluster has no control plane"
            hint = f"give a host the role {CONTROL_PLANE}"
            self.found.error(
                "no-control-plane",
                summary,
                self.cluster.place("inventory" if self.document.inventory else "hosts").key(),
                hint=hint,
            )

    def _check_address(self, host: ClusterHost, seen: dict[str, ClusterHost]) -> None:
        place = host.place.child("internalAddress" if host.spec.internal_address else "address")
        if not host.addresses:
            summary = f'host "{host.name}" has no IP address for traffic between nodes'
            hint = "give it an `internalAddress`; nodes do not use names for one another"
            self.found.error("no-address", summary, place, hint=hint)
            self.unusable = True
        for address in host.addresses:
            if address in seen:
                summary = f'host "{host.name}" has the address {address} of host "{seen[address].name}"'
                self.found.error("duplicate-address", summary, place)
            seen.setdefault(address, host)

    def _check_node_name(self, host: ClusterHost, seen: dict[str, ClusterHost]) -> None:
        name = host.node_name
        place = host.place.child(*(("node", "name") if host.node.name else ("name",)))
        if not is_node_name(name):
            summary = f'"{name}" cannot be the name of a node: lower case letters, digits, - and ., at most {_LABEL}'
            hint = f'give it a name with `node: {{name: "{name.lower()[:_LABEL]}"}}`'
            self.found.error("bad-node-name", summary, place, hint=hint)
        elif name in seen:
            summary = f'hosts "{seen[name].name}" and "{host.name}" would be one node "{name}"'
            self.found.error("duplicate-node-name", summary, place)
        seen.setdefault(name, host)

    def networks(self) -> None:
        """Subnets: apart from one another and from the hosts, large enough, and of the same families."""
        named = [("podCIDRs", self.pods), ("serviceCIDRs", self.services)]
        all_of = [(key, number, net) for key, nets in named for number, net in enumerate(nets)]
        taken = list(self._addresses())
        for at, (key, number, net) in enumerate(all_of):
            place = self.cluster.place("network", key, number)
            for other, _, before in all_of[:at]:
                if net.version == before.version and net.overlaps(before):
                    self.found.error("subnet-overlap", f"{net} and {before} of {other} overlap", place)
            inside = [f"{address} of {what}" for what, address in taken if ipaddress.ip_address(address) in net]
            if inside:
                self.found.error("subnet-overlap", f"{net} contains {some(inside, 3)}", place)
        self._check_families()
        self._check_sizes()

    def _addresses(self) -> Iterator[tuple[str, str]]:
        """Addresses that no pod and no Service may have."""
        for host in self.settings.hosts.by_name.values():
            yield from ((f'host "{host.name}"', address) for address in host.addresses)
        if self.document.dns.node_local.enabled:
            yield "the node-local DNS", self.document.dns.node_local.ip
        if self.document.control_plane_endpoint.address is not None:
            yield "the endpoint", self.document.control_plane_endpoint.address

    def _check_families(self) -> None:
        place = self.cluster.place("network", "serviceCIDRs")
        families = {
            key: [net.version for net in nets] for key, nets in (("pod", self.pods), ("service", self.services))
        }
        for key, versions in families.items():
            if len(versions) == 2 and len(set(versions)) == 1:
                where = self.cluster.place("network", f"{key}CIDRs", 1)
                summary = f"two subnets are for dual stack, and both are of IPv{versions[0]}"
                self.found.error("mixed-stack", summary, where, hint="one of IPv4 and one of IPv6, or one alone")
                return
        pods, services = _families(families["pod"]), _families(families["service"])
        if pods != services:
            summary = f"the subnets of pods are {pods}, those of Services {services}"
            self.found.error("mixed-stack", summary, place, hint="give both the same families")
            return
        for host in self.settings.hosts.nodes:
            missing = set(families["pod"]) - {ipaddress.ip_address(address).version for address in host.addresses}
            if missing:
                summary = f'host "{host.name}" has no address of IPv{min(missing)}, which the subnets of pods have'
                hint = "write internalAddress: IPV4,IPV6" if len(set(families["pod"])) == 2 else ""
                self.found.error("mixed-stack", summary, host.place.child("internalAddress"), hint=hint)

    def _check_sizes(self) -> None:
        for number, net in enumerate(self.pods):
            place = self.cluster.place("network", "podCIDRs", number)
            given = self.document.kubernetes.controller_manager.node_cidr_mask_size
            mask = given or _MASK[net.version]
            nodes = len(self.settings.hosts.nodes)
            if net.prefixlen > mask or net.num_addresses < _LEAST_PODS:
                summary = f"{net} is smaller than the /{mask} that every node gets"
                hint = f"use a larger subnet, or nodeCIDRMaskSize: {min(net.prefixlen + 2, net.max_prefixlen)}"
                self.found.error("subnet-too-small", summary, place, hint=hint)
            elif (1 << (mask - net.prefixlen)) < nodes:
                room = plural(1 << (mask - net.prefixlen), "node")
                summary = f"{net} has room for {room} with /{mask} each, and there are {nodes}"
                self.found.error("subnet-too-small", summary, place, hint="use a larger subnet, or nodeCIDRMaskSize")
        for number, net in enumerate(self.services):
            place = self.cluster.place("network", "serviceCIDRs", number)
            if net.num_addresses < _LEAST_SERVICES:
                summary = f"{net} has {net.num_addresses} addresses; kubeadm needs {_LEAST_SERVICES}"
                self.found.error("subnet-too-small", summary, place)
            elif net.max_prefixlen - net.prefixlen > _WIDEST_SERVICES:
                smallest = net.max_prefixlen - _WIDEST_SERVICES
                summary = f"{net} is too large for Services: /{smallest} is the largest"
                self.found.error("subnet-too-large", summary, place)

    def load_balancer(self) -> None:
        """The endpoint, the virtual address and the ports."""
        settings, endpoint = self.settings, self.document.control_plane_endpoint
        kind = settings.load_balancer
        at_type = self.cluster.place("loadBalancer", "type")
        if kind == "none" and len(settings.control_planes) > 1 and endpoint.address is None:
            summary = f"{plural(len(settings.control_planes), 'control plane')} and no load balancer"
            hint = "choose loadBalancer.type local, or give controlPlaneEndpoint.address"
            self.found.error("no-load-balancer", summary, at_type, hint=hint)
        if kind in ("haproxyKeepalived", "kubeVip") and endpoint.address is None:
            summary, hint = f"{kind} needs a virtual address", "add controlPlaneEndpoint.address"
            self.found.error("no-virtual-address", summary, at_type, hint=hint)
        if kind == "external" and endpoint.address is None and endpoint.domain is None:
            summary, hint = "an external load balancer needs an address", "add controlPlaneEndpoint.address or domain"
            self.found.error("no-virtual-address", summary, at_type, hint=hint)
        if kind == "local" and not settings.workers:
            summary = "a local load balancer runs on workers, and there are none"
            hint = "choose haproxyKeepalived, kubeVip or external"
            self.found.error("no-balancer-hosts", summary, at_type, hint=hint)
        self._check_virtual_address(kind)
        self._check_ports()
        router = self.document.load_balancer.keepalived.virtual_router_id
        if router is not None and not 1 <= router <= 255:
            place = self.cluster.place("loadBalancer", "keepalived", "virtualRouterId")
            summary = f"virtualRouterId {router} is outside 1 to 255; keepalived refuses it"
            self.found.error("bad-router-id", summary, place)

    def _check_virtual_address(self, kind: str) -> None:
        address = self.document.control_plane_endpoint.address
        if address is None or kind not in ("haproxyKeepalived", "kubeVip"):
            return
        place = self.cluster.place("controlPlaneEndpoint", "address")
        hosts = self.settings.hosts.by_name.values()
        for host in hosts:
            if address in host.addresses:
                summary = f'the virtual address {address} is that of host "{host.name}"'
                self.found.error("address-in-use", summary, place, hint="choose a free address")
                return
        version = ipaddress.ip_address(address).version
        announced = self.settings.balancers or self.settings.control_planes
        near = [ip for host in announced for ip in host.addresses if ipaddress.ip_address(ip).version == version]
        nets = [ipaddress.ip_network(f"{ip}/{_MASK[version]}", strict=False) for ip in near]
        if self.document.load_balancer.kube_vip.mode == "arp" and not any(
            ipaddress.ip_address(address) in net for net in nets
        ):
            summary = f"the virtual address {address} is in no /{_MASK[version]} of the hosts that announce it"
            hint = "check that it is in their network segment"
            self.found.warning("address-elsewhere", summary, place, hint=hint)

    def _check_ports(self) -> None:
        settings, balancer = self.settings, self.document.load_balancer
        port = settings.balancer_port
        if settings.load_balancer == "local" and balancer.port not in (None, port):
            summary = f"a local load balancer listens on the port of the API servers, {port}"
            self.found.error("port-conflict", summary, self.cluster.place("loadBalancer", "port"), hint="leave it out")
        for host in settings.balancers:
            if CONTROL_PLANE in host.roles and port == settings.api_port:
                summary = f'haproxy and the API server both want port {port} of host "{host.name}"'
                place = self.cluster.place("loadBalancer", "port")
                self.found.error("port-conflict", summary, place, hint="use another port for one of them, such as 8443")
                return
        if settings.balancers and balancer.health_port in (port, settings.api_port):
            summary = f"healthPort {balancer.health_port} is the port of haproxy or of the API server"
            self.found.error("port-conflict", summary, self.cluster.place("loadBalancer", "healthPort"))
        flannel = self.document.network.plugin == "flannel" and any(host.is_node for host in settings.balancers)
        if flannel and balancer.health_port == _FLANNEL_PORT:
            summary = f"healthPort {balancer.health_port} is the port of flannel's own health on every node"
            self.found.error("port-conflict", summary, self.cluster.place("loadBalancer", "healthPort"))

    def etcd(self) -> None:
        """Members, and what is needed of an etcd that is not ours."""
        etcd, settings = self.document.etcd, self.settings
        place = self.cluster.place("etcd", "type")
        if settings.etcd_type == "kubexm":
            members = settings.etcd_members
            if not members:
                summary, hint = "etcd.type kubexm needs hosts of role etcd", "give the role to one, three or five hosts"
                self.found.error("no-etcd-hosts", summary, place, hint=hint)
            elif len(members) % 2 == 0:
                summary = f"{len(members)} members of etcd survive no more failures than {len(members) - 1}"
                self.found.warning("even-etcd", summary, members[-1].place.child("roles"), hint="use an odd number")
        elif settings.hosts.role(ETCD):
            host = settings.hosts.role(ETCD)[0]
            summary = f'host "{host.name}" has the role etcd, and etcd.type is {settings.etcd_type}'
            hint = "remove the role, or choose etcd.type kubexm"
            self.found.error("unused-role", summary, host.place.child("roles"), hint=hint)
        if settings.etcd_type == "external":
            external = etcd.external
            missing = [
                name for name in ("endpoints", "ca", "cert", "key") if external is None or not getattr(external, name)
            ]
            if missing:
                summary = f"etcd.type external needs etcd.external with {', '.join(missing)}"
                self.found.error("external-etcd", summary, self.cluster.place("etcd", "external"))
        elif etcd.external is not None:
            summary = f"etcd.external is for etcd.type external, and it is {settings.etcd_type}"
            self.found.error("external-etcd", summary, self.cluster.place("etcd", "external").key())

    def kubernetes(self, versions: ClusterVersions | None) -> None:
        """Settings that contradict one another, or that this version no longer has."""
        document = self.document
        plugin, mode = document.network.plugin, document.kubernetes.proxy.mode
        at_mode = self.cluster.place("kubernetes", "proxy", "mode")
        replaces = plugin == "cilium" and document.network.cilium.kube_proxy_replacement is not False
        if mode == "none" and plugin != "none" and not replaces:
            summary = f"without kube-proxy nothing serves Services: {plugin} does not replace it here"
            hint = "use cilium with kubeProxyReplacement, or another mode"
            self.found.error("no-proxy", summary, at_mode, hint=hint)
        if mode == "ipvs" and version_key(document.kubernetes.version) >= version_key("1.35"):
            self.found.warning(
                "deprecated-mode", "ipvs is deprecated since Kubernetes 1.35", at_mode, hint="use nftables"
            )
        if plugin == "flannel":
            place = self.cluster.place("network", "plugin")
            self.found.warning("no-network-policy", "flannel enforces no NetworkPolicy", place)
        for registry, auth in document.registry.auths.items():
            if auth.skip_verify:
                place = self.cluster.place("registry", "auths", registry, "skipVerify")
                more = ", also for what an offline cluster takes from it" if document.offline.bundle else ""
                summary = f'every certificate of "{registry}" is trusted{more}'
                self.found.warning("unverified-registry", summary, place, hint="give its CA with `ca`")
        self._check_flags(versions)

    def _check_flags(self, versions: ClusterVersions | None) -> None:
        gone = "pod-infra-container-image"
        kubelet = self.document.kubernetes.kubelet.extra_args
        if gone in kubelet and version_key(self.document.kubernetes.version) >= version_key("1.35"):
            place = self.cluster.place("kubernetes", "kubelet", "extraArgs", gone).key()
            summary = f"the kubelet has no flag {gone} since 1.35, and does not start with it"
            self.found.error("removed-flag", summary, place, hint="use containerRuntime.sandboxImage")
        if versions is None:
            return
        external = self.document.etcd.external
        if external is not None and external.http_endpoints and version_key(versions.kubernetes) < version_key("1.35"):
            summary = f"Kubernetes {versions.kubernetes} has no etcd.external.httpEndpoints"
            place = self.cluster.place("etcd", "external", "httpEndpoints").key()
            self.found.error("external-etcd", summary, place, hint="leave them out, or use Kubernetes 1.35 or newer")
        etcd = version_key(versions.etcd)
        for flag in self.document.etcd.extra_args:
            removed = flag.startswith(("experimental-", "enable-v2")) and etcd >= version_key("3.7")
            added = flag == "feature-gates" and etcd < version_key("3.6")
            if removed or added:
                place = self.cluster.place("etcd", "extraArgs", flag).key()
                self.found.error("removed-flag", f"etcd {versions.etcd} has no flag {flag}", place)

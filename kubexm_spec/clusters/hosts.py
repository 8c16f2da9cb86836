"""The hosts of a cluster with their roles, from its own list or from an inventory, and from its role groups."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostics, did_you_mean
from kubexm_spec.documents.hosts import ExpandedHost, expand_hosts
from kubexm_spec.documents.inventory import load_inventory
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models.cluster import ClusterDocument, ClusterHostSpec, NodeSpec
from kubexm_spec.models.inventory import HostSpec, InventoryBody
from kubexm_spec.models.network import Address
from kubexm_spec.ranges import match
from kubexm_spec.yaml.source import Place

CONTROL_PLANE: Final = "controlPlane"
WORKER: Final = "worker"
ETCD: Final = "etcd"
LOAD_BALANCER: Final = "loadBalancer"
REGISTRY: Final = "registry"
ROLES: Final = (CONTROL_PLANE, WORKER, ETCD, LOAD_BALANCER, REGISTRY)
ALIASES: Final = {
    "master": CONTROL_PLANE,
    "control-plane": CONTROL_PLANE,
    "kube_control_plane": CONTROL_PLANE,
    "kube_node": WORKER,
    "loadbalancer": LOAD_BALANCER,
}
"""Names that other tools have for roles."""


class ClusterHost(Struct, frozen=True):
    """A host of a cluster."""

    name: str
    address: str
    """Where it is reached from here."""
    addresses: tuple[str, ...]
    """Where other nodes reach it: one, or one of IPv4 and one of IPv6."""
    roles: tuple[str, ...]
    spec: HostSpec
    place: Place

    @property
    def node(self) -> NodeSpec:
        """The host as Kubernetes sees it."""
        return self.spec.node if isinstance(self.spec, ClusterHostSpec) else NodeSpec()

    @property
    def node_name(self) -> str:
        """What Kubernetes calls it."""
        return self.node.name or self.name

    @property
    def ip(self) -> str:
        """Its first address between nodes."""
        return self.addresses[0]

    @property
    def is_node(self) -> bool:
        """Whether it runs a kubelet."""
        return CONTROL_PLANE in self.roles or WORKER in self.roles


class ClusterHosts(Struct, frozen=True):
    """All hosts of a cluster, in the order of the document."""

    by_name: dict[str, ClusterHost]
    inventory: Loaded[InventoryBody]
    """The inventory that they are from, or the document's own list as one."""
    whole: bool = True
    """False if some are unknown because an entry is wrong."""

    def role(self, name: str) -> list[ClusterHost]:
        """The hosts of a role."""
        return [host for host in self.by_name.values() if name in host.roles]

    @property
    def nodes(self) -> list[ClusterHost]:
        """Those that run a kubelet."""
        return [host for host in self.by_name.values() if host.is_node]


def addresses_of(text: str) -> list[Address]:
    """The IP addresses in ``10.0.0.1`` or ``10.0.0.1,fd00::1``; none if it is a name. Raises no error."""
    found: list[Address] = []
    for part in text.split(",") if text else ():
        try:
            found.append(ipaddress.ip_address(part.strip()))
        except ValueError:
            return []
    return found


def find_hosts(cluster: Loaded[ClusterDocument], loader: Loader) -> ClusterHosts | None:
    """The hosts of a cluster with findings about their names and roles; None if its inventory cannot be loaded."""
    document, diagnostics = cluster.document, loader.diagnostics
    if document.inventory is not None and document.hosts:
        summary, hint = "a cluster has `hosts` or an `inventory`, not both", "remove one of them"
        diagnostics.error("two-inventories", summary, cluster.place("inventory"), hint=hint)
        return None
    if document.inventory is None and not document.hosts:
        summary, hint = "the cluster has no hosts", "add `hosts`, or the path of an `inventory`"
        diagnostics.error("empty-inventory", summary, cluster.place("metadata").key(), hint=hint)
        return None
    if document.inventory is not None:
        inventory = load_inventory(loader, document.inventory, cluster.source, cluster.place("inventory"))
        if inventory is None:
            return None
    else:
        # Built by hand: the entries are checked already, and their places are those of the cluster.
        body = InventoryBody.model_construct(
            vars={}, defaults=document.defaults, roles={}, groups={}, hosts=list(document.hosts)
        )
        inventory = Loaded(body, cluster.source, cluster.index, cluster.prefix, cluster.notes)
    expanded, whole = expand_hosts(inventory.document.hosts, inventory.place("hosts"), diagnostics)
    roles = _roles(inventory, document.inventory is None, expanded, diagnostics)
    _add_groups(cluster, expanded, roles, diagnostics)
    hosts = {name: _host(name, each, roles[name]) for name, each in expanded.items()}
    return ClusterHosts(hosts, inventory, whole)


def _host(name: str, expanded: ExpandedHost, roles: dict[str, None]) -> ClusterHost:
    between = addresses_of(expanded.internal_address) or addresses_of(expanded.address or name)
    return ClusterHost(
        name,
        expanded.address or name,
        tuple(map(str, between)),
        tuple(role for role in ROLES if role in roles),
        expanded.spec,
        expanded.place,
    )


def _roles(
    inventory: Loaded[InventoryBody], own: bool, expanded: dict[str, ExpandedHost], diagnostics: Diagnostics
) -> dict[str, dict[str, None]]:
    """By host its roles; an inventory that is shared with others may have roles that are not for clusters."""
    found: dict[str, dict[str, None]] = {}
    for name, each in expanded.items():
        given = [(role, each.place.child("roles", number)) for number, role in enumerate(each.spec.roles)]
        found[name] = dict.fromkeys(_known(given, own, diagnostics))
    for group in inventory.document.groups.values():
        members = [name for pattern in group.hosts for name in match(pattern, expanded)] if group.roles else []
        for name in members:
            found[name].update(dict.fromkeys(ALIASES.get(role, role) for role in group.roles))
    return found


def _known(given: Iterable[tuple[str, Place]], strict: bool, diagnostics: Diagnostics) -> list[str]:
    """The roles under the names that we give them."""
    known = []
    for role, place in given:
        meant = ALIASES.get(role, role)
        if meant != role and strict:
            hint = f"write {meant}"
            diagnostics.warning("role-alias", f'the role "{role}" is called "{meant}" here', place, hint=hint)
        if meant in ROLES:
            known.append(meant)
        elif strict:
            hint = did_you_mean(role, [*ROLES, *ALIASES]) or "to select hosts for work of your own, use labels"
            summary = f'there is no role "{role}"; there are {", ".join(ROLES)}'
            diagnostics.error("unknown-role", summary, place, hint=hint)
    return known


def _add_groups(
    cluster: Loaded[ClusterDocument],
    expanded: dict[str, ExpandedHost],
    roles: dict[str, dict[str, None]],
    diagnostics: Diagnostics,
) -> None:
    for role, patterns in cluster.document.role_groups.items():
        place = cluster.place("roleGroups", role)
        known = _known([(role, place.key())], True, diagnostics)
        for number, pattern in enumerate(patterns):
            names = match(pattern, expanded)
            if not names:
                summary = f'role "{role}": there is no host "{pattern}"'
                hint = did_you_mean(pattern, expanded)
                diagnostics.error("unknown-host", summary, place.child(number), hint=hint)
            for name in names:
                roles[name].update(dict.fromkeys(known))

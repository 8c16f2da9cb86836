"""Which hosts are to join or to leave a cluster, and whether it can bear that: findings before the first change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, ClusterHost
from kubexm_spec.clusters.settings import Settings
from kubexm_spec.diagnostics import Diagnostics, did_you_mean, plural, some
from kubexm_spec.ranges import match

_ENDPOINT: Final = re.compile(r"^controlPlaneEndpoint: *[\"']?([^\"'\s]+)", re.MULTILINE)
_VERSION: Final = re.compile(r"^kubernetesVersion: *v?(\S+)", re.MULTILINE)


class Membership(Struct, frozen=True, kw_only=True):
    """What one control plane knows of its cluster."""

    through: str
    """The host that was asked."""
    nodes: Mapping[str, bool]
    """By the name of a node whether it is Ready."""
    endpoint: str = ""
    version: str = ""
    members: Mapping[str, bool] = {}
    """By the name of a member of etcd that votes whether it answers; none if others run etcd."""
    silent: Mapping[str, str] = {}
    """Hosts that did not answer, and why."""


def membership_of(through: str, said: Mapping[str, str], silent: Mapping[str, str]) -> Membership:
    """What programs said, by the names of the steps: nodes, configuration, members and health. Raises ValueError."""
    lines = [line.split("\t") for line in said["nodes"].splitlines() if line.strip()]
    endpoint, version = _ENDPOINT.search(said["configuration"]), _VERSION.search(said["configuration"])
    return Membership(
        through=through,
        nodes={name: (rest or [""])[0] == "True" for name, *rest in lines},
        endpoint=endpoint.group(1) if endpoint else "",
        version=version.group(1) if version else "",
        members=_members(said.get("members", ""), said.get("health", "")),
        silent=silent,
    )


def _members(members: str, health: str) -> dict[str, bool]:
    if not members.strip():
        return {}
    listed: list[dict[str, Any]] = msgspec.json.decode(members)["members"]
    answers = msgspec.json.decode(health) if health.strip() else []
    healthy = {each["endpoint"] for each in answers if each["health"]}
    return {
        each.get("name", "") or f"{each['ID']:x}": any(url in healthy for url in each.get("clientURLs", ()))
        for each in listed
        if not each.get("isLearner")
    }


def named_nodes(cluster: CheckedCluster, patterns: Iterable[str], found: Diagnostics) -> list[ClusterHost]:
    """The nodes of the document that names, ranges or globs mean, in its order; findings where there are none."""
    hosts = cluster.settings.hosts.by_name
    at_hosts = cluster.settings.hosts.inventory.place("hosts").key()
    chosen: set[str] = set()
    for pattern in patterns:
        names = match(pattern, hosts)
        if not names:
            hint = did_you_mean(pattern, hosts) or f"hosts: {some(hosts)}"
            found.error("unknown-host", f'there is no host "{pattern}" in the document', at_hosts, hint=hint)
        for name in names:
            if not hosts[name].is_node:
                roles = ", ".join(hosts[name].roles) or "none"
                summary = f'host "{name}" is no node of Kubernetes (roles: {roles})'
                found.error("not-a-node", summary, hosts[name].place, hint="name hosts of controlPlane or worker")
        chosen.update(names)
    return [host for host in cluster.settings.hosts.nodes if host.name in chosen]


def check_joining(
    cluster: CheckedCluster, joining: Sequence[ClusterHost], known: Membership | None, found: Diagnostics
) -> None:
    """Findings about hosts that are to join; without a membership those that need none."""
    settings = cluster.settings
    if known is None:
        return
    new = [host for host in joining if host.node_name not in known.nodes]
    for host in new:
        if ETCD in host.roles and settings.etcd_type == "kubexm":
            summary = f'host "{host.name}" is a member of etcd in the document: add-nodes adds none'
            found.error("member-of-etcd", summary, host.place, hint="leave out its role etcd")
    if known.endpoint and known.endpoint != settings.endpoint:
        summary = f"the endpoint of the cluster is {known.endpoint}, that of the document is {settings.endpoint}"
        hint = (
            "say so in controlPlaneEndpoint and loadBalancer.type: the default depends on the number of control planes"
        )
        found.error("another-endpoint", summary, cluster.loaded.place("metadata", "name"), hint=hint)
    if known.version and known.version != cluster.versions.kubernetes:
        summary = f"the cluster has Kubernetes {known.version}, the document says {cluster.versions.kubernetes}"
        hint = f"write {known.version}, or upgrade the cluster first"
        found.error("another-version", summary, cluster.loaded.place("kubernetes", "version"), hint=hint)
    dead = [name for name, answers in known.members.items() if not answers]
    for host in new if dead and settings.etcd_type == "kubeadm" else ():
        if CONTROL_PLANE in host.roles:
            summary = f'host "{host.name}" would be one more member of an etcd in which {some(dead)} does not answer'
            hint = "start it, or remove it first (kubexm cluster remove-nodes --dead): etcd could lose its quorum"
            found.error("dead-member", summary, host.place, hint=hint)


def check_leaving(
    cluster: CheckedCluster,
    leaving: Sequence[ClusterHost],
    gone: Collection[str],
    known: Membership | None,
    found: Diagnostics,
) -> None:
    """Findings about hosts that are to leave; ``gone`` are those of them that do not answer and never will."""
    settings = cluster.settings
    names = {host.name for host in leaving}
    if not any(host.name not in names for host in settings.control_planes):
        summary = f"all {plural(len(settings.control_planes), 'control plane')} would leave: nothing would be left"
        hint = "kubexm cluster reset removes a whole cluster"
        found.error("last-control-plane", summary, settings.control_planes[-1].place, hint=hint)
        return
    for host in leaving:
        if settings.load_balancer != "local" and settings.endpoint_address in (*host.addresses, host.name):
            summary = f'host "{host.name}" has the address of the endpoint, {settings.endpoint}: no node would reach it'
            found.error("endpoint-leaves", summary, host.place, hint="a load balancer makes a control plane removable")
    if settings.load_balancer == "local" and all(host.name in names for host in settings.workers):
        summary = "all workers would leave, and the load balancer runs on them"
        found.error("last-worker", summary, settings.workers[-1].place, hint="keep one worker")
    members = settings.etcd_members
    if members and all(host.name in names for host in members):
        summary = f"all {plural(len(members), 'member')} of etcd would leave, with all data of the cluster"
        found.error("quorum", summary, members[-1].place, hint="let another host be a member first")
        return
    if known is None:
        return
    for host in leaving:
        if host.name in gone and known.nodes.get(host.node_name):
            summary = f'host "{host.name}" does not answer, but its node is Ready'
            hint = "its kubelet runs: see why SSH does not work. Of a host that died, Kubernetes knows within a minute"
            found.error("not-dead", summary, host.place, hint=hint)
    _check_quorum(settings, sorted(leaving, key=lambda host: host.name not in gone), known, found)


def _check_quorum(settings: Settings, leaving: Sequence[ClusterHost], known: Membership, found: Diagnostics) -> None:
    """Members leave one after another, the dead first: each time most of those that stay have to answer."""
    members = dict(known.members)
    for host in leaving:
        name = member_name(settings, host)
        if members.pop(name, None) is None:
            continue
        answering, needed = sum(members.values()), len(members) // 2 + 1
        if answering < needed:
            silent = some([member for member, answers in members.items() if not answers])
            summary = (
                f'without host "{host.name}", {answering} of the {plural(len(members), "member")} of etcd '
                f"that stay would answer, and {needed} are needed"
            )
            hint = f"start or remove {silent} first" if silent else "add a control plane first"
            found.error("quorum", summary, host.place, hint=hint)
            return


def member_name(settings: Settings, host: ClusterHost) -> str:
    """The name of a host as a member of etcd; empty if it is none."""
    if settings.etcd_type == "kubeadm":
        return host.node_name if CONTROL_PLANE in host.roles else ""
    return host.name if settings.etcd_type == "kubexm" and ETCD in host.roles else ""

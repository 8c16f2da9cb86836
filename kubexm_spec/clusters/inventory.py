"""The hosts of a cluster as the inventory of a pipeline: one entry a host, with groups and what Kubernetes needs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kubexm_spec.clusters.hosts import CONTROL_PLANE, ClusterHost
from kubexm_spec.clusters.settings import Settings
from kubexm_spec.ranges import match

Part = tuple[str, list[dict[str, Any]]]
"""Modules, and the hooks of the document that go round them; empty for none."""

_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


class Work(Struct, frozen=True):
    """What is done on some of the hosts, with which others."""

    parts: list[Part]
    hosts: list[str]
    """Hosts that are worked on."""
    beside: list[str]
    """Hosts that do something for them: they have no roles, and of the groups at most that of load balancers."""
    balancers: list[str] = []
    """Those of all these on which the load balancer is set up or changed."""


def build_inventory(settings: Settings, work: Work | None = None) -> dict[str, Any]:
    """The inventory of all hosts, or of those of some work; hosts without a role are not part of the cluster."""
    body = settings.hosts.inventory.document
    known = [host for host in settings.hosts.by_name.values() if host.roles]
    hosts = [host for host in known if work is None or host.name in work.hosts or host.name in work.beside]
    found: dict[str, Any] = {}
    if body.vars:
        found["vars"] = dict(body.vars)
    if defaults := body.defaults.model_dump(by_alias=True, exclude_unset=True, exclude_none=True):
        found["defaults"] = defaults
    # What most nodes share; hosts have their own where they differ.
    found["vars"] = {
        **found.get("vars", {}),
        "nodeTaints": None,
        "kubeletArgs": settings.document.kubernetes.kubelet.extra_args,
        "kubeletPatch": {},
    }
    names = [host.name for host in hosts]
    found["groups"] = _groups(settings, names, work)
    for name, group in body.groups.items():
        found["groups"][name] = group.model_dump(by_alias=True, exclude_unset=True, exclude={"roles"})
        if work is not None:
            found["groups"][name]["hosts"] = [each for pattern in group.hosts for each in match(pattern, names)]
    found["hosts"] = [_entry(settings, host, beside=work is not None and host.name not in work.hosts) for host in hosts]
    return found


def _groups(settings: Settings, present: list[str], work: Work | None) -> dict[str, Any]:
    """Hosts that modules select, besides those of a role."""
    control_planes = [host.name for host in settings.control_planes]
    # A cluster that runs already has begun: all control planes are others.
    first = control_planes[:1] if work is None else []
    groups = {
        "clusterHosts": present,
        "kubernetesNodes": [host.name for host in settings.hosts.nodes],
        "firstControlPlane": first,
        "otherControlPlanes": [name for name in control_planes if name not in first],
        "workers": [host.name for host in settings.workers],
        "balancers": [host.name for host in settings.balancers],
        "etcdMembers": control_planes if settings.etcd_type == "kubeadm" else [h.name for h in settings.etcd_members],
    }
    if work is not None:
        groups = {name: [each for each in members if each in work.hosts] for name, members in groups.items()}
        groups["balancers"] = work.balancers
    return {name: {"hosts": members} for name, members in groups.items()}


def _entry(settings: Settings, host: ClusterHost, *, beside: bool) -> dict[str, Any]:
    kept = host.spec.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, exclude={"node"})
    values: dict[str, Any] = {**host.spec.vars, "nodeName": host.node_name, "nodeIP": host.ip}
    values["nodeIPs"] = ",".join(host.addresses)
    taints = node_taints(settings, host)
    if taints is not None:
        values["nodeTaints"] = taints
    if host.node.kubelet:
        values["kubeletPatch"] = host.node.kubelet
    return {
        **kept,
        "name": host.name,
        "address": host.address,
        "internalAddress": ",".join(host.addresses),
        "roles": [] if beside else list(host.roles),
        "vars": values,
    }


def node_taints(settings: Settings, host: ClusterHost) -> list[dict[str, str]] | None:
    """The taints that a node registers with; None leaves them to kubeadm."""
    own = [taint.model_dump(by_alias=True, exclude_defaults=True) for taint in host.node.taints]
    if CONTROL_PLANE not in host.roles:
        return own or None
    if settings.schedulable:
        return own
    return [_TAINT, *own] if own else None

"""The hosts of a cluster as the inventory of a pipeline: one entry a host, with groups and what Kubernetes needs."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.hosts import CONTROL_PLANE, ClusterHost
from kubexm_spec.clusters.settings import Settings

_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def build_inventory(settings: Settings) -> dict[str, Any]:
    """The inventory; hosts without a role are not part of the cluster."""
    body = settings.hosts.inventory.document
    hosts = [host for host in settings.hosts.by_name.values() if host.roles]
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
    found["groups"] = _groups(settings)
    for name, group in body.groups.items():
        found["groups"][name] = group.model_dump(by_alias=True, exclude_unset=True, exclude={"roles"})
    found["hosts"] = [_entry(settings, host) for host in hosts]
    return found


def _groups(settings: Settings) -> dict[str, Any]:
    """Hosts that modules select, besides those of a role."""
    control_planes = [host.name for host in settings.control_planes]
    groups = {
        "kubernetesNodes": [host.name for host in settings.hosts.nodes],
        "firstControlPlane": control_planes[:1],
        "otherControlPlanes": control_planes[1:],
        "workers": [host.name for host in settings.workers],
        "balancers": [host.name for host in settings.balancers],
        "etcdMembers": control_planes if settings.etcd_type == "kubeadm" else [h.name for h in settings.etcd_members],
    }
    return {name: {"hosts": members} for name, members in groups.items()}


def _entry(settings: Settings, host: ClusterHost) -> dict[str, Any]:
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
        "roles": list(host.roles),
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

"""Nodes that join or leave a cluster which runs: the modules, and the hosts that take part."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kubexm_spec.clusters import balancers
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import CONTROL_PLANE, ETCD, ClusterHost
from kubexm_spec.clusters.inventory import Part, Work
from kubexm_spec.clusters.kubeadm import build_more_control_planes, build_workers
from kubexm_spec.clusters.membership import member_name
from kubexm_spec.clusters.prepare import build_before, build_prepare, build_removal
from kubexm_spec.clusters.runtime import build_runtime
from kubexm_spec.clusters.settings import Settings, in_url

_STACKED: Final = {
    # etcd runs in a container, and etcdctl with it.
    "program": "/etc/kubernetes/kubexm/etcdctl",
    "cacert": "/etc/kubernetes/pki/etcd/ca.crt",
    "cert": "/etc/kubernetes/pki/etcd/healthcheck-client.crt",
    "key": "/etc/kubernetes/pki/etcd/healthcheck-client.key",
}
_OURS: Final = {
    "program": "etcdctl",
    "cacert": "/etc/etcd/pki/trusted-ca.crt",
    "cert": "/etc/etcd/pki/healthcheck-client.crt",
    "key": "/etc/etcd/pki/healthcheck-client.key",
}
_ROLLING: Final = ("haproxyKeepalived", "local")
"""Load balancers with a list of the control planes."""


def choose_through(settings: Settings, nodes: Collection[str], through: str = "") -> ClusterHost:
    """The control plane that speaks for the cluster: the given one, or the first that neither joins nor leaves."""
    if through:
        return settings.hosts.by_name[through]
    return next((host for host in settings.control_planes if host.name not in nodes), settings.control_planes[0])


def work_of_look(cluster: CheckedCluster, nodes: Collection[str], through: str, probed: Collection[str]) -> Work:
    """What tells the membership of a cluster, and which of some hosts answer."""
    settings = cluster.settings
    asked = choose_through(settings, nodes, through)
    etcd = _etcd_through(settings, asked, nodes)
    values = {"through": asked.name, "etcd": settings.etcd_type, "etcdThrough": etcd.name}
    module = {"name": "membership", "uses": "kubexm:membership", "with": values}
    return Work([("", [module])], _unique([asked.name, *probed]), [etcd.name])


def work_of_joining(cluster: CheckedCluster, nodes: Collection[str], through: str, silent: Collection[str]) -> Work:
    """What makes nodes of hosts: nothing is done elsewhere, but load balancers learn of new control planes."""
    settings = cluster.settings
    giver = choose_through(settings, nodes, through)
    joining = [host for host in settings.hosts.nodes if host.name in nodes]
    controlling = [host for host in joining if CONTROL_PLANE in host.roles]
    working = [host for host in joining if CONTROL_PLANE not in host.roles]
    changed = _balancers(settings, controlling, nodes, silent)
    parts: list[Part] = [
        ("", build_before(settings)),
        ("prepare", build_prepare(settings)),
        ("", build_runtime(cluster)),
    ]
    if controlling:
        parts += [
            ("", balancers.build_virtual(cluster, giver.name)),
            ("control_plane", build_more_control_planes(cluster, giver)),
        ]
    # On workers before they join, since it is how they reach the cluster.
    balancing = [host.name for host in settings.balancers if host.name in nodes or host.name in changed]
    if balancing:
        parts.append(("", balancers.build_haproxy(cluster)))
    if working:
        parts.append(("workers", build_workers(cluster, giver)))
    ready = {"through": giver.name, "nodes": [host.node_name for host in joining]}
    parts.append(("", [{"name": "joined", "uses": "kubexm:joined", "with": ready}]))
    return Work(parts, [host.name for host in joining], _unique([giver.name, *changed]), balancing)


def work_of_leaving(
    cluster: CheckedCluster, nodes: Collection[str], through: str, gone: Collection[str], silent: Collection[str]
) -> Work:
    """What takes nodes out of a cluster, and everything that was made for it off their hosts unless these are gone."""
    settings = cluster.settings
    speaker = choose_through(settings, nodes, through)
    leaving = [host for host in settings.hosts.nodes if host.name in nodes]
    alive = [host for host in leaving if host.name not in gone]
    dead = [host for host in leaving if host.name in gone]
    changed = _balancers(settings, [host for host in leaving if CONTROL_PLANE in host.roles], nodes, silent)
    etcd = _etcd_through(settings, speaker, nodes)
    access = dict(_STACKED if settings.etcd_type == "kubeadm" else _OURS)
    parts: list[Part] = []
    if changed:
        parts.append(("", balancers.build_haproxy(cluster, nodes)))
    if dead:
        values: dict[str, Any] = {
            "through": speaker.name,
            "nodes": [host.node_name for host in dead],
            "etcdThrough": etcd.name,
            "members": [
                {"name": name, "peerUrl": _peer(host)} for host in dead if (name := member_name(settings, host))
            ],
            "etcd": access,
        }
        parts.append(("", [{"name": "remove-gone", "uses": "kubexm:remove-gone", "with": values}]))
    removing = _removing(settings, speaker, alive, access)
    parts.append(("remove_node", removing))
    beside = [speaker.name, *changed, etcd.name]
    if settings.etcd_type == "kubexm" and any(ETCD in host.roles for host in alive):
        # From now on the first of the members that stay is the first one.
        heir = next(host for host in settings.etcd_members if host.name not in nodes)
        beside.append(heir.name)
        values = {"through": etcd.name, "heir": heir.name, "etcd": access}
        parts.append(("", [{"name": "etcd-leave", "uses": "kubexm:etcd-leave", "with": values}]))
    if alive:
        parts.append(("", build_removal(settings)))
    return Work(parts, [host.name for host in alive], _unique(beside), changed)


def _removing(
    settings: Settings, speaker: ClusterHost, alive: list[ClusterHost], access: dict[str, str]
) -> list[dict[str, Any]]:
    """Workers first: they have somewhere to send their pods to as long as others stay."""
    drain = settings.document.operations.drain
    shared = {
        "through": speaker.name,
        "drain": {
            "enabled": drain.enabled,
            "timeout": f"{round(drain.timeout)}s",
            "gracePeriod": drain.grace_period,
            "deleteEmptyDirData": drain.delete_empty_dir_data,
            "force": drain.force,
        },
    }
    modules = []
    working = {host.name: host.node_name for host in alive if CONTROL_PLANE not in host.roles}
    if working:
        values: dict[str, Any] = {**shared, "nodes": working}
        modules.append({"name": "remove-workers", "uses": "kubexm:remove-workers", "with": values})
    controlling = [host for host in alive if CONTROL_PLANE in host.roles]
    if controlling:
        values = {
            **shared,
            "nodes": {host.name: host.node_name for host in controlling},
            "peers": {host.name: _peer(host) for host in controlling},
            "stackedEtcd": settings.etcd_type == "kubeadm",
            "etcd": access,
        }
        modules.append({"name": "remove-control-planes", "uses": "kubexm:remove-control-planes", "with": values})
    return modules


def balancers_to_change(settings: Settings, nodes: Collection[str]) -> list[str]:
    """Hosts that stay as they are but for the list of control planes in their load balancer."""
    moving = [host for host in settings.control_planes if host.name in nodes]
    return _balancers(settings, moving, nodes, ())


def _balancers(
    settings: Settings, moving: list[ClusterHost], nodes: Collection[str], silent: Collection[str]
) -> list[str]:
    if not moving or settings.load_balancer not in _ROLLING:
        return []
    return [host.name for host in settings.balancers if host.name not in nodes and host.name not in silent]


def _etcd_through(settings: Settings, through: ClusterHost, nodes: Collection[str]) -> ClusterHost:
    """The host that is asked about members of etcd: a member that stays."""
    if settings.etcd_type != "kubexm" or ETCD in through.roles:
        return through
    return next((host for host in settings.etcd_members if host.name not in nodes), through)


def _peer(host: ClusterHost) -> str:
    """Where other members of etcd reach it: one that has never started has no name yet."""
    return f"https://{in_url(host.ip)}:2380"


def _unique(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))

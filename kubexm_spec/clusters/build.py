"""Turns a cluster into a pipeline of shipped modules: the same document gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubexm_spec.clusters import balancers
from kubexm_spec.clusters.artifacts import build_resources
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.etcd import build_etcd
from kubexm_spec.clusters.hosts import REGISTRY
from kubexm_spec.clusters.inventory import Part, Work, build_inventory
from kubexm_spec.clusters.kubeadm import build_control_plane, build_workers
from kubexm_spec.clusters.network import build_network
from kubexm_spec.clusters.nodes import work_of_joining, work_of_leaving, work_of_look
from kubexm_spec.clusters.preflight import build_preflight
from kubexm_spec.clusters.prepare import build_before, build_prepare, build_removal
from kubexm_spec.clusters.runtime import build_runtime
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.models import API_VERSION
from kubexm_spec.models.cluster import ClusterDocument, HookModuleSpec
from kubexm_spec.yaml.format import format_text

Path = tuple[str, ...]

_NOT_BUILT: Final[tuple[tuple[Path, Callable[[ClusterDocument], bool]], ...]] = (
    (("addons",), lambda c: bool(c.addons)),
    (("dns", "upstreams"), lambda c: bool(c.dns.upstreams or c.dns.hosts or c.dns.extra_config)),
    (("dns", "nodeLocal"), lambda c: c.dns.node_local.enabled),
    (("hardening", "profile"), lambda c: c.hardening.profile != "none"),
    (("kubernetes", "apiServer", "oidc", "caFile"), lambda c: bool((o := c.kubernetes.api_server.oidc) and o.ca_file)),
    (("kubernetes", "certificates", "autoRenew"), lambda c: c.kubernetes.certificates.auto_renew),
    (("kubernetes", "certificates", "caBundle"), lambda c: c.kubernetes.certificates.ca_bundle is not None),
    (("kubernetes", "encryption"), lambda c: bool(c.kubernetes.encryption.enabled)),
    (("kubernetes", "kubelet", "serverCertificates"), lambda c: bool(c.kubernetes.kubelet.server_certificates)),
    (("network", "calico", "bgp"), lambda c: c.network.plugin == "calico" and not c.network.calico.bgp),
    (("network", "mtu"), lambda c: c.network.plugin == "calico" and c.network.mtu > 0),
    (("network", "podCIDRs"), lambda c: c.network.plugin == "calico" and len(c.network.pod_cidrs) > 1),
    (("network", "plugin"), lambda c: c.network.plugin == "cilium"),
    (("hooks",), lambda c: bool(c.hooks.addons or c.hooks.upgrade_node or c.hooks.reset)),
    (("operations", "drain", "disableEvictionFallback"), lambda c: c.operations.drain.disable_eviction_fallback),
    (("operations", "forks"), lambda c: "forks" in c.operations.model_fields_set),
    (("operations", "uploads"), lambda c: "uploads" in c.operations.model_fields_set),
    (("operations", "workers"), lambda c: "workers" in c.operations.model_fields_set),
    (("offline", "bundle"), lambda c: c.offline.bundle is not None),
    (("registry", "auths"), lambda c: bool(c.registry.auths)),
    (("registry", "deploy"), lambda c: bool(c.registry.deploy)),
    (("system", "apparmor"), lambda c: c.system.apparmor != "keep"),
    (("system", "firewall"), lambda c: c.system.firewall != "keep"),
    (("system", "ntp", "servers"), lambda c: bool(c.system.ntp.servers)),
    (("system", "selinux"), lambda c: c.system.selinux != "keep"),
)
"""Settings that no module acts on yet: a cluster that silently lacks what was asked for is worse than none."""


def check_buildable(cluster: CheckedCluster, found: Diagnostics) -> None:
    """Findings about settings that no module acts on yet."""
    for path, asked in _NOT_BUILT:
        if asked(cluster.settings.document):
            summary = f"{'.'.join(path)} is not built yet: a cluster would lack it"
            found.error("not-built", summary, cluster.loaded.place(*path), hint="leave it out")
    for host in cluster.settings.hosts.by_name.values():
        for key in ("labels", "annotations"):
            if getattr(host.node, key):
                summary = f"node.{key} is not built yet: the node would lack them"
                found.error("not-built", summary, host.place.child("node", key), hint="leave it out")
        if REGISTRY in host.roles:
            summary = f'the role {REGISTRY} is not built yet: host "{host.name}" would have no registry'
            found.error("not-built", summary, host.place.child("roles"), hint="leave it out")
    # On by default: nobody should believe in a backup that does not exist.
    if cluster.settings.etcd_type == "kubexm" and cluster.settings.document.etcd.backup.enabled:
        summary = "etcd.backup is not built yet: there are no snapshots by a timer"
        hint = "take your own, and write etcd: {backup: {enabled: false}}"
        place = cluster.settings.etcd_members[0].place.child("roles")
        found.warning("not-built", summary, place, hint=hint)


def build_create(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that creates a cluster."""
    document, version = cluster.settings.document, cluster.versions.kubernetes
    parts: list[Part] = [
        ("", build_before(cluster.settings)),
        ("prepare", build_prepare(cluster.settings)),
        ("etcd", build_etcd(cluster)),
        ("", build_runtime(cluster)),
        ("", balancers.build_before(cluster)),
        ("control_plane", build_control_plane(cluster)),
        ("", balancers.build_after(cluster)),
        ("workers", build_workers(cluster)),
        ("network", build_network(cluster.settings)),
    ]
    description = f"Creates the cluster {document.metadata.name} with Kubernetes {version}."
    return _pipeline(cluster, "create", description, _with_hooks(cluster, parts), build_resources(cluster))


def build_reset(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that removes a cluster from its hosts."""
    description = f"Removes the cluster {cluster.settings.document.metadata.name} from its hosts, with all its data."
    return _pipeline(cluster, "reset", description, build_removal(cluster.settings), {})


def build_checks(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that looks at the hosts before anything is changed: one that does not answer keeps no other back."""
    description = f"Looks at the hosts of the cluster {cluster.settings.document.metadata.name}; nothing is changed."
    built = _pipeline(cluster, "preflight", description, build_preflight(cluster), {})
    return {key: value for key, value in built.items() if key not in ("lock", "readyFirst")} | {"maxFailures": "100%"}


def build_membership(cluster: CheckedCluster, asked: Asked) -> dict[str, Any]:
    """The pipeline that asks one control plane about its cluster, and hosts whether they answer."""
    description = f"Asks which nodes the cluster {cluster.settings.document.metadata.name} has; nothing is changed."
    built = _partial(
        cluster, "membership", description, work_of_look(cluster, asked.nodes, asked.through, asked.probed)
    )
    return {key: value for key, value in built.items() if key not in ("lock", "readyFirst")} | {"maxFailures": "100%"}


def build_add_nodes(cluster: CheckedCluster, asked: Asked) -> dict[str, Any]:
    """The pipeline that makes nodes of hosts."""
    name = cluster.settings.document.metadata.name
    description = f"Adds {', '.join(asked.nodes)} to the cluster {name}."
    work = work_of_joining(cluster, asked.nodes, asked.through, asked.silent)
    return _partial(cluster, "add-nodes", description, work, build_resources(cluster, whole=False))


def build_remove_nodes(cluster: CheckedCluster, asked: Asked) -> dict[str, Any]:
    """The pipeline that takes nodes out of the cluster, and off their hosts what was made for it."""
    name = cluster.settings.document.metadata.name
    description = f"Removes {', '.join(asked.nodes)} from the cluster {name}."
    work = work_of_leaving(cluster, asked.nodes, asked.through, asked.gone, asked.silent)
    return _partial(cluster, "remove-nodes", description, work)


@dataclass(frozen=True)
class Asked:
    """What a command asks for beside what the document says."""

    nodes: tuple[str, ...] = ()
    """Hosts of the document to work on, by name; empty for those that the flow itself selects."""
    through: str = ""
    """The control plane that speaks for the cluster; by default the first that is not among the nodes."""
    gone: tuple[str, ...] = ()
    """Those of the nodes that do not answer and never will: nothing is done on them."""
    probed: tuple[str, ...] = ()
    """Hosts that are only asked whether they answer."""
    silent: tuple[str, ...] = ()
    """Other hosts that do not answer now, and are left out."""


FLOWS: Final[Mapping[str, Callable[[CheckedCluster, Asked], dict[str, Any]]]] = {
    "add-nodes": build_add_nodes,
    "create": lambda cluster, _: build_create(cluster),
    "membership": build_membership,
    "preflight": lambda cluster, _: build_checks(cluster),
    "remove-nodes": build_remove_nodes,
    "reset": lambda cluster, _: build_reset(cluster),
}
"""By the name of a command the pipeline that it runs."""


def _partial(
    cluster: CheckedCluster, flow: str, description: str, work: Work, resources: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A pipeline for some of the hosts; what does not say where it runs is for those that are worked on."""
    built = _pipeline(cluster, flow, description, _with_hooks(cluster, work.parts), resources or {})
    inventory = build_inventory(cluster.settings, work)
    return built | {"inventory": inventory, "runOn": {"groups": ["clusterHosts"]}}


def _with_hooks(cluster: CheckedCluster, parts: list[Part]) -> list[dict[str, Any]]:
    """The modules of all parts, with those of the user before and after them."""
    modules: list[dict[str, Any]] = []
    for point, part in parts:
        hook = getattr(cluster.settings.document.hooks, point) if point else None
        modules += _hooks(point, "before", hook.before if hook is not None else [])
        modules += part
        modules += _hooks(point, "after", hook.after if hook is not None else [])
    return modules


def _pipeline(
    cluster: CheckedCluster, flow: str, description: str, modules: list[dict[str, Any]], resources: dict[str, Any]
) -> dict[str, Any]:
    name = cluster.settings.document.metadata.name
    return {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": f"{flow}-{name}", "description": description},
        "lock": f"cluster {name}",
        "readyFirst": True,
        **({"resources": resources} if resources else {}),
        "inventory": build_inventory(cluster.settings),
        "modules": modules,
    }


def _hooks(point: str, when: str, modules: list[HookModuleSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": module.name or f"{when}-{point.replace('_', '-')}-{number}",
            "uses": module.uses,
            **({"with": module.with_} if module.with_ else {}),
        }
        for number, module in enumerate(modules, 1)
    ]


def pipeline_text(pipeline: dict[str, Any], made_from: str) -> str:
    """A pipeline as YAML for people: to read, to change and to run with kubexm-run."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shown(item) for key, item in value.items()}
        if isinstance(value, list):
            return [shown(item) for item in value]
        return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096  # a value stays on its line
    yaml.representer.ignore_aliases = lambda _: True
    target = io.StringIO()
    yaml.dump(shown(pipeline), target)
    head = f"# Made by `kubexm cluster build` from {made_from}: change that, or this and run it with kubexm-run.\n"
    return format_text(head + target.getvalue(), made_from)

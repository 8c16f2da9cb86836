"""Turns a cluster into a pipeline of shipped modules: the same document gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubexm_spec.clusters import balancers
from kubexm_spec.clusters.artifacts import build_resources
from kubexm_spec.clusters.backups import build_restoring, build_snapshot, build_timer, programs_of_etcd
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.etcd import build_etcd, build_etcd_check
from kubexm_spec.clusters.hosts import REGISTRY
from kubexm_spec.clusters.inventory import Part, Work, build_inventory
from kubexm_spec.clusters.kubeadm import build_control_plane, build_workers
from kubexm_spec.clusters.network import build_network
from kubexm_spec.clusters.nodes import work_of_joining, work_of_leaving, work_of_look
from kubexm_spec.clusters.offline import build_images, build_offline, image_resources
from kubexm_spec.clusters.preflight import build_preflight
from kubexm_spec.clusters.prepare import build_before, build_prepare, build_removal
from kubexm_spec.clusters.renewal import build_renewal
from kubexm_spec.clusters.runtime import build_runtime
from kubexm_spec.clusters.status import build_status, certificates, kubeconfig
from kubexm_spec.clusters.upgrade import build_upgrade_modules, upgrade_inventory
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
    (("offline", "bundle"), lambda c: "://" in (c.offline.bundle or "")),
    (("offline", "packages"), lambda c: c.offline.packages == "bundle"),
    # Without a network they are for the machine that makes the bundle: nodes pull nothing.
    (("registry", "auths"), lambda c: bool(c.registry.auths) and c.offline.bundle is None),
    (("registry", "deploy"), lambda c: bool(c.registry.deploy)),
    (("system", "apparmor"), lambda c: c.system.apparmor != "keep"),
    (("system", "firewall"), lambda c: c.system.firewall != "keep"),
    (("system", "ntp", "servers"), lambda c: bool(c.system.ntp.servers)),
    (("system", "selinux"), lambda c: c.system.selinux != "keep"),
)
"""Settings that no module acts on yet: a cluster that silently lacks what was asked for is worse than none."""


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
    offline: bool = False
    """Whether everything comes from a bundle, whatever the document says."""
    architectures: tuple[str, ...] = ()
    """Architectures that the bundle is for; empty for all that are known."""
    days: int = 30
    """Days before its end at which a certificate is renewed."""
    everything: bool = False
    """Renew all certificates, whatever their age."""
    fetch_to: str = ""
    """Folder of the control node that a snapshot is copied to; empty for none."""
    snapshot: str = ""
    """File of the control node with the snapshot to restore."""
    sha256: str = ""
    """Its digest."""


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


NOTHING_MORE: Final = Asked()


def build_create(cluster: CheckedCluster, asked: Asked = NOTHING_MORE) -> dict[str, Any]:
    """The pipeline that creates a cluster."""
    document, version = cluster.settings.document, cluster.versions.kubernetes
    offline = is_offline(cluster, asked)
    parts: list[Part] = [
        ("", build_offline(cluster, asked.architectures) if offline else []),
        ("", build_etcd_check(cluster)),
        ("", build_before(cluster.settings)),
        ("prepare", build_prepare(cluster.settings)),
        ("etcd", build_etcd(cluster)),
        ("", build_runtime(cluster)),
        ("", build_images(cluster) if offline else []),
        ("", balancers.build_before(cluster)),
        ("control_plane", build_control_plane(cluster, pull=not offline)),
        ("", balancers.build_after(cluster)),
        ("workers", build_workers(cluster)),
        ("network", build_network(cluster.settings)),
        ("", build_timer(cluster)),
    ]
    description = f"Creates the cluster {document.metadata.name} with Kubernetes {version}."
    resources = build_resources(cluster) | (image_resources(cluster) if offline else {})
    return _pipeline(cluster, "create", description, _with_hooks(cluster, parts), resources)


def is_offline(cluster: CheckedCluster, asked: Asked) -> bool:
    """Whether everything comes from a bundle."""
    return asked.offline or cluster.settings.document.offline.bundle is not None


def build_reset(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that removes a cluster from its hosts."""
    description = f"Removes the cluster {cluster.settings.document.metadata.name} from its hosts, with all its data."
    return _pipeline(cluster, "reset", description, build_removal(cluster.settings), {})


def build_renew(cluster: CheckedCluster, asked: Asked) -> dict[str, Any]:
    """The pipeline that renews certificates."""
    description = f"Renews the certificates of the cluster {cluster.settings.document.metadata.name}."
    modules = build_renewal(cluster, asked.days, asked.everything)
    return _pipeline(cluster, "renew-certs", description, modules, {})


def build_backup(cluster: CheckedCluster, fetch_to: str = "") -> dict[str, Any]:
    """The pipeline that takes a snapshot of etcd: members that do not answer keep no other from that. SpecError."""
    description = f"Takes a snapshot of the etcd of the cluster {cluster.settings.document.metadata.name}."
    modules = build_snapshot(cluster, fetch_to)
    return {**_pipeline(cluster, "backup", description, modules, programs_of_etcd(cluster)), "maxFailures": "100%"}


def build_restore(cluster: CheckedCluster, snapshot: str, sha256: str) -> dict[str, Any]:
    """The pipeline that gives all members of etcd the data of a snapshot; raises SpecError."""
    description = (
        f"Replaces the data of the etcd of the cluster {cluster.settings.document.metadata.name} by a snapshot."
    )
    modules = build_restoring(cluster, snapshot, sha256)
    return _pipeline(cluster, "restore", description, modules, programs_of_etcd(cluster))


def build_upgrade(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that brings a running cluster to the versions of its document."""
    name, version = cluster.settings.document.metadata.name, cluster.versions.kubernetes
    description = f"Upgrades the cluster {name} to Kubernetes {version}."
    built = _pipeline(cluster, "upgrade", description, build_upgrade_modules(cluster), build_resources(cluster))
    return {**built, "inventory": upgrade_inventory(cluster.settings)}


def build_checks(cluster: CheckedCluster) -> dict[str, Any]:
    """The pipeline that looks at the hosts before anything is changed."""
    return _looking(cluster, "preflight", "the hosts", build_preflight(cluster))


def _looking(cluster: CheckedCluster, flow: str, what: str, modules: list[dict[str, Any]]) -> dict[str, Any]:
    """A pipeline that changes nothing: it keeps nobody else away, and a host that does not answer no other host."""
    description = f"Looks at {what} of the cluster {cluster.settings.document.metadata.name}; nothing is changed."
    built = _pipeline(cluster, flow, description, modules, {})
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


FLOWS: Final[Mapping[str, Callable[[CheckedCluster, Asked], dict[str, Any]]]] = {
    "add-nodes": build_add_nodes,
    "backup": lambda cluster, asked: build_backup(cluster, asked.fetch_to),
    "certs": lambda cluster, _: _looking(cluster, "certs", "the certificates", [certificates()]),
    "create": build_create,
    "kubeconfig": lambda cluster, _: _looking(cluster, "kubeconfig", "the control planes", [kubeconfig(cluster)]),
    "membership": build_membership,
    "preflight": lambda cluster, _: build_checks(cluster),
    "remove-nodes": build_remove_nodes,
    "renew-certs": build_renew,
    "reset": lambda cluster, _: build_reset(cluster),
    "status": lambda cluster, _: _looking(cluster, "status", "the state", build_status(cluster)),
    "restore": lambda cluster, asked: build_restore(cluster, asked.snapshot, asked.sha256),
    "upgrade": lambda cluster, _: build_upgrade(cluster),
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
    head = f"# Made by `kubexm cluster build` from {made_from}: change that, or this and run it with kubexm-run.\n"
    return document_text(pipeline, head, made_from)


def document_text(data: dict[str, Any], head: str, made_from: str) -> str:
    """A document as formatted YAML, after lines of comment."""
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
    yaml.dump(shown(data), target)
    return format_text(head + target.getvalue(), made_from)

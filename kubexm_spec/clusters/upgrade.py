"""The upgrade of a running cluster to the versions of its document: the modules, in the order that must be kept."""

from __future__ import annotations

from typing import Any, Final

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.etcd import endpoints
from kubexm_spec.clusters.hosts import CONTROL_PLANE
from kubexm_spec.clusters.inventory import build_inventory
from kubexm_spec.clusters.kubeadm import ignored_errors, skipped_phases
from kubexm_spec.clusters.network import build_network
from kubexm_spec.clusters.preflight import cgroup_v1
from kubexm_spec.clusters.runtime import runtime_values
from kubexm_spec.clusters.settings import Settings

_LEAST_FREE: Final = 2048
"""MiB for the images and programs of a version."""
_AT_ONCE: Final = 10
"""Nodes that a control plane drains at the same time, if a batch has so many."""
_CHECK: Final = "upgrade-check"
"""Later modules ask it what has to be done on which node."""
_TO_DO: Final = f"steps['{_CHECK}/whole/to-do'].outputs.upgrade"


def build_upgrade_modules(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The modules: what does not fit is found first, and etcd is kept before anything is changed."""
    settings, versions = cluster.settings, cluster.versions
    shared = {"ignorePreflightErrors": ignored_errors(settings)}
    modules: list[dict[str, Any]] = [
        {"name": _CHECK, "uses": "kubexm:upgrade-check", "with": _check(cluster)},
        *_own_etcd(cluster, "check"),
        {
            "name": "upgrade-prepare",
            "uses": "kubexm:upgrade-prepare",
            "with": {"version": versions.kubernetes, "images": _images(cluster), **shared},
        },
        _snapshot(settings),
        *_own_etcd(cluster, "roll"),
        _control_planes(cluster),
        *build_network(settings),
    ]
    if settings.workers:
        modules.append(_workers(cluster))
    return modules


def upgrade_inventory(settings: Settings) -> dict[str, Any]:
    """The hosts; a control plane serves several nodes of a batch at the same time."""
    inventory = build_inventory(settings)
    for entry in inventory["hosts"]:
        if CONTROL_PLANE in entry["roles"]:
            entry.setdefault("perHostLimit", _AT_ONCE)
    return inventory


def _node_names(settings: Settings) -> dict[str, str]:
    return {host.name: host.node_name for host in settings.hosts.nodes}


def _drain(settings: Settings) -> dict[str, Any]:
    """How pods leave a node; those of the only node would have nowhere to go."""
    drain = settings.document.operations.drain
    return {
        "enabled": drain.enabled and len(settings.hosts.nodes) > 1,
        "timeout": f"{drain.timeout:g}s",
        "gracePeriod": None if drain.grace_period < 0 else drain.grace_period,
        "deleteEmptyDirData": drain.delete_empty_dir_data,
        "force": drain.force,
    }


def _floors(cluster: CheckedCluster) -> list[dict[str, str]]:
    return [floor.model_dump(by_alias=True) for floor in cluster.data.upgrades.etcd]


def _check(cluster: CheckedCluster) -> dict[str, Any]:
    settings, versions = cluster.settings, cluster.versions
    runtime = runtime_values(cluster)
    stacked = settings.etcd_type == "kubeadm"
    return {
        "version": versions.kubernetes,
        "programs": {
            "containerd": versions.containerd,
            "runc": versions.runc,
            "cniPlugins": versions.cni_plugins,
            "crictl": versions.crictl,
        },
        "sandboxImage": runtime["sandboxImage"],
        "nodeNames": _node_names(settings),
        "cgroupV1": cgroup_v1(cluster),
        "minDisk": _LEAST_FREE,
        "dataDir": runtime["dataDir"],
        "drain": _drain(settings),
        "etcdVersion": (versions.minor.kubeadm_etcd or "") if stacked else "",
        "etcdFloors": _floors(cluster) if stacked else [],
    }


def _own_etcd(cluster: CheckedCluster, part: str) -> list[dict[str, Any]]:
    """An etcd of ours is judged with the nodes, and goes to its version before the API servers do."""
    settings = cluster.settings
    if not settings.etcd_members:
        return []
    values: dict[str, Any] = {"version": cluster.versions.etcd, "endpoints": ",".join(endpoints(settings))}
    if part == "check":
        values |= {"floors": _floors(cluster), "dataDir": settings.document.etcd.data_dir}
    name = "etcd-check" if part == "check" else "etcd"
    return [{"name": name, "uses": f"kubexm:upgrade-etcd#{part}", "with": values}]


def _snapshot(settings: Settings) -> dict[str, Any]:
    etcd, members = settings.document.etcd, settings.etcd_members
    needed = _TO_DO
    if members:
        needed += " or steps['etcd-check/whole/to-do'].outputs.upgrade != ''"
    return {
        "name": "snapshot",
        "uses": "kubexm:snapshot",
        "when": needed,
        "with": {
            "etcd": settings.etcd_type,
            "dataDir": etcd.data_dir,
            "folder": etcd.backup.dir,
            "name": f"{settings.document.metadata.name}-before-upgrade",
            "from": (members or settings.control_planes)[0].name,
        },
    }


def _images(cluster: CheckedCluster) -> dict[str, list[str]]:
    """What nodes will run: all of kubeadm's on a control plane, what can come to any node on the others."""
    settings, versions = cluster.settings, cluster.versions
    document = settings.document
    everywhere = [runtime_values(cluster)["sandboxImage"], image(cluster, "coredns", versions.coredns)]
    # The test job of kubeadm, which may come to any node, has kubeadm's own.
    everywhere.append(image(cluster, "pause", versions.pause))
    if document.kubernetes.proxy.mode != "none":
        everywhere.append(image(cluster, "kube-proxy", versions.kubernetes))
    if versions.network:
        manifest = cluster.data.manifests[document.network.plugin][versions.network]
        everywhere += [each.ref for each in manifest.images]
    control = [
        image(cluster, name, versions.kubernetes)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    if settings.etcd_type == "kubeadm" and versions.minor.kubeadm_etcd:
        control.append(image(cluster, "etcd", versions.minor.kubeadm_etcd))
    everywhere = list(dict.fromkeys(everywhere))
    return {"controlPlane": [*control, *everywhere], "worker": everywhere}


def _kubeadm(cluster: CheckedCluster) -> dict[str, Any]:
    settings = cluster.settings
    return {
        "version": cluster.versions.kubernetes,
        "apiPort": settings.api_port,
        "skipPhases": skipped_phases(settings),
        "ignorePreflightErrors": ignored_errors(settings),
    }


def _node(cluster: CheckedCluster) -> dict[str, Any]:
    settings, runtime = cluster.settings, runtime_values(cluster)
    return {
        **_kubeadm(cluster),
        "first": settings.control_planes[0].name,
        "nodeNames": _node_names(settings),
        "drain": _drain(settings),
        **{name: runtime[name] for name in ("schema", "dataDir", "sandboxImage", "config")},
    }


def _hooks() -> dict[str, Any]:
    """Around each batch: what was whole before the upgrade is so before nodes are drained, and after they are back."""
    whole = {
        "name": "workloads",
        "type": "wait",
        "runOn": {"groups": ["firstControlPlane"]},
        "when": _TO_DO,
        "with": {
            "command": [
                "sh",
                "/etc/kubernetes/kubexm/workloads.sh",
                "{{ steps['upgrade-prepare/workloads/before'].outputs.stdout }}",
            ],
            "deadline": "10m",
            "interval": "3s",
        },
    }
    return {"pre": [whole], "post": [whole]}


def _control_planes(cluster: CheckedCluster) -> dict[str, Any]:
    """One at a time: the first with what all share, then its kubelet, then the others."""
    use = {"uses": "kubexm:upgrade-node", "with": _node(cluster)}
    one = {"size": 1, "hooks": _hooks()}
    tasks: list[dict[str, Any]] = [
        {
            "name": "apply",
            "uses": "kubexm:upgrade-apply",
            "runOn": {"groups": ["firstControlPlane"]},
            "with": _kubeadm(cluster),
        },
        {"name": "first", "runOn": {"groups": ["firstControlPlane"]}, "batch": one, **use},
    ]
    if len(cluster.settings.control_planes) > 1:
        others = {"groups": ["otherControlPlanes"]}
        tasks.append({"name": "others", "runOn": others, "batch": one, **use})
    return {"name": "control-planes", "tasks": tasks}


def _workers(cluster: CheckedCluster) -> dict[str, Any]:
    """In batches, as the document says."""
    workers = cluster.settings.document.operations.workers
    batch = {
        "size": workers.batch,
        "pause": f"{workers.pause:g}s",
        "maxFailures": workers.max_failures,
        "hooks": _hooks(),
    }
    task = {"uses": "kubexm:upgrade-node", "runOn": {"groups": ["workers"]}, "batch": batch, "with": _node(cluster)}
    return {"name": "workers", "tasks": [{"name": "upgrade", **task}]}

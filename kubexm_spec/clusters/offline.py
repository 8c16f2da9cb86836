"""A cluster without a network: the images that its nodes need, and what is looked at before the first change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from kubexm_spec.clusters.artifacts import image
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.imagenames import image_name

_CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_PROGRAMS: Final = ("conntrack", "socat", "ethtool", "iptables")
_BALANCER_PROGRAMS: Final = ("haproxy", "keepalived")


class ClusterImage(Struct, frozen=True):
    """An image of a cluster."""

    resource: str
    ref: str
    """Its whole name, with a digest if one is known."""
    everywhere: bool
    """Whether every node needs it, or only control planes."""

    @property
    def name(self) -> str:
        """What containerd calls it, and manifests too."""
        return image_name(self.ref).tagged or self.ref


def images(cluster: CheckedCluster) -> list[ClusterImage]:
    """All images: those of kubeadm's own list, of the network plugin and of the load balancer."""
    settings, versions, document = cluster.settings, cluster.versions, cluster.settings.document
    found: dict[str, bool] = {}

    def add(name: str, version: str, *, everywhere: bool) -> None:
        ref = image(cluster, name, version)
        known = cluster.data.images[name]
        digest = known.digests.get(version or known.versions[0])
        found.setdefault(f"{ref}@{digest}" if digest and "@" not in ref else ref, everywhere)

    for name in _CONTROL_PLANE:
        add(name, versions.kubernetes, everywhere=False)
    if settings.etcd_type == "kubeadm":
        add("etcd", versions.minor.kubeadm_etcd or "", everywhere=False)
    if settings.load_balancer == "kubeVip":
        add("kube-vip", "", everywhere=False)
    if document.kubernetes.proxy.mode != "none":
        add("kube-proxy", versions.kubernetes, everywhere=True)
    add("coredns", versions.coredns, everywhere=True)
    add("pause", versions.pause, everywhere=True)
    if document.container_runtime.sandbox_image is not None:
        found.setdefault(document.container_runtime.sandbox_image, True)
    if settings.load_balancer == "local":
        add("haproxy", "", everywhere=True)
    if versions.network:
        for each in cluster.data.manifests[document.network.plugin][versions.network].images:
            digest = f"@{each.digest}" if each.digest and "@" not in each.ref else ""
            found.setdefault(each.ref + digest, True)
    taken: set[str] = set()
    return [ClusterImage(_resource(ref, taken), ref, everywhere) for ref, everywhere in found.items()]


def _resource(ref: str, taken: set[str]) -> str:
    """A name of a resource for an image, which no other one has."""
    base = "image-" + image_name(ref).repository.rpartition("/")[2].replace(".", "-").replace("_", "-")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name


def build_images(cluster: CheckedCluster) -> list[dict[str, Any]]:
    """The module that imports images."""
    values: dict[str, list[dict[str, str]]] = {"all": [], "controlPlanes": []}
    for each in images(cluster):
        values["all" if each.everywhere else "controlPlanes"].append({"resource": each.resource, "name": each.name})
    return [{"name": "images", "uses": "kubexm:images", "with": values}]


def build_offline(cluster: CheckedCluster, architectures: Sequence[str]) -> list[dict[str, Any]]:
    """The module that looks at the hosts before the first change."""
    bare = cluster.settings.document.offline.packages == "none"
    values = {
        "architectures": list(architectures or known_architectures(cluster)),
        "programs": list(_PROGRAMS) if bare and not cluster.settings.document.system.skip else [],
        "balancerPrograms": (
            list(_BALANCER_PROGRAMS) if bare and cluster.settings.load_balancer == "haproxyKeepalived" else []
        ),
    }
    return [{"name": "offline", "uses": "kubexm:offline", "with": values}]


def image_resources(cluster: CheckedCluster) -> dict[str, Any]:
    """The images as resources by name."""
    return {
        each.resource: {
            "description": f"image {each.name}",
            "image": dict.fromkeys(known_architectures(cluster), each.ref),
            **_access(cluster, image_name(each.ref).registry),
        }
        for each in images(cluster)
    }


def known_architectures(cluster: CheckedCluster) -> list[str]:
    """The architectures that a cluster of its version may have."""
    return list(cluster.data.artifacts["kubelet"].sha256[cluster.versions.kubernetes])


def _access(cluster: CheckedCluster, host: str) -> dict[str, Any]:
    """How the registry of an image is reached: by its mirrors first, with the access that the document has for one."""
    registry = cluster.settings.document.registry
    mirrors = registry.mirrors.get(host, registry.mirrors.get("_default", []))
    found: dict[str, Any] = {"mirrors": mirrors} if mirrors else {}
    more: dict[str, Any] = {}
    for place in (*(urlsplit(mirror).netloc for mirror in mirrors), host):
        access = registry.auths.get(place)
        if access is None:
            continue
        if access.password is not None:
            found |= {"host": place, "username": access.username or "", "password": access.password}
        if access.skip_verify:
            found["insecure"] = True
        if access.ca is not None:
            more["caFile"] = str(cluster.loaded.folder / access.ca)
        break
    return {**more, **({"registry": found} if found else {})}

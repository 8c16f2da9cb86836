"""The files that a cluster needs from elsewhere, as resources of a pipeline: addresses and digests by architecture."""

from __future__ import annotations

from typing import Any, Final

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.versions import KUBERNETES, address_of

_REGISTRY: Final = "registry.k8s.io"


def build_resources(cluster: CheckedCluster, *, whole: bool = True) -> dict[str, Any]:
    """The resources by the names that the modules use; ``whole``: also what the whole cluster needs once."""
    wanted = _wanted(cluster)
    if not whole:
        wanted.pop("etcd", None)
    found = {name: _artifact(cluster, name, version) for name, version in wanted.items()}
    if cluster.versions.network and whole:
        found["network"] = _manifest(cluster)
    return found


def _wanted(cluster: CheckedCluster) -> dict[str, str]:
    """The artifacts with their versions."""
    versions = cluster.versions
    wanted = dict.fromkeys(KUBERNETES, versions.kubernetes)
    if cluster.settings.etcd_type != "external":
        wanted["etcd"] = versions.etcd
    wanted |= {
        "containerd": versions.containerd,
        "runc": versions.runc,
        "cniPlugins": versions.cni_plugins,
        "crictl": versions.crictl,
    }
    return wanted


def _artifact(cluster: CheckedCluster, name: str, version: str) -> dict[str, Any]:
    artifact = cluster.data.artifacts[name]
    digests = artifact.sha256[version]
    return {
        "description": f"{name} {version}",
        "url": {arch: address_of(cluster.data, artifact.url or "", version, arch) for arch in digests},
        "sha256": dict(digests),
    }


def _manifest(cluster: CheckedCluster) -> dict[str, Any]:
    plugin, version = cluster.settings.document.network.plugin, cluster.versions.network
    manifest = cluster.data.manifests[plugin][version]
    return {
        "description": f"the manifest of {plugin} {version}",
        "url": address_of(cluster.data, manifest.url or "", version),
        "sha256": manifest.sha256,
    }


def image(cluster: CheckedCluster, name: str, version: str = "") -> str:
    """The reference of an image, in a version or the newest that is known."""
    known = cluster.data.images[name]
    ref = (known.ref or "").replace("{version}", version or known.versions[0])
    repository = cluster.settings.document.kubernetes.image_repository
    if repository == _REGISTRY or not ref.startswith(f"{_REGISTRY}/"):
        return ref
    # kubeadm looks for CoreDNS one folder higher in a repository that is not its own.
    return ref.replace(_REGISTRY, repository, 1).replace(f"{repository}/coredns/coredns", f"{repository}/coredns", 1)


def sizes(cluster: CheckedCluster) -> dict[tuple[str, str], int]:
    """The sizes that the versions data knows, by the name of a resource and its variant."""
    found: dict[tuple[str, str], int] = {}
    for name, version in _wanted(cluster).items():
        for arch, size in cluster.data.artifacts[name].size.get(version, {}).items():
            found[name, arch] = size
    if cluster.versions.network:
        manifest = cluster.data.manifests[cluster.settings.document.network.plugin][cluster.versions.network]
        if manifest.size is not None:
            found["network", ""] = manifest.size
    return found

"""The files that a cluster needs from elsewhere, as resources of a pipeline: addresses and digests by architecture."""

from __future__ import annotations

from typing import Any

from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.versions import KUBERNETES, address_of


def build_resources(cluster: CheckedCluster, *, whole: bool = True) -> dict[str, Any]:
    """The resources by the names that the modules use; ``whole``: also what the whole cluster needs once."""
    versions = cluster.versions
    wanted = dict.fromkeys(KUBERNETES, versions.kubernetes)
    if cluster.settings.etcd_type == "kubexm" and whole:
        wanted["etcd"] = versions.etcd
    wanted |= {
        "containerd": versions.containerd,
        "runc": versions.runc,
        "cniPlugins": versions.cni_plugins,
        "crictl": versions.crictl,
    }
    found = {name: _artifact(cluster, name, version) for name, version in wanted.items()}
    if versions.network and whole:
        found["network"] = _manifest(cluster)
    return found


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
    return ref.replace("registry.k8s.io", repository, 1) if ref.startswith("registry.k8s.io/") else ref

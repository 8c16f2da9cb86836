"""The versions of a cluster's parts: the shipped data merged with the user's, and what a cluster gets from them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.checking import check
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models.cluster import ClusterDocument
from kubexm_spec.models.versions import ArtifactSpec, ManifestSpec, MinorSpec, VersionsDocument
from kubexm_spec.semver import in_range, in_span, minor_of, newest_first, version_key
from kubexm_spec.shipped import shipped_root
from kubexm_spec.yaml.source import Place, SourceFile

SHIPPED: Final = "versions.yaml"
ARCHITECTURES: Final = ("amd64", "arm64")
"""Architectures that every version in use has digests for."""
KUBERNETES: Final = ("kubeadm", "kubelet", "kubectl")
"""Artifacts whose version is that of Kubernetes."""
_VERSION_LISTS: Final = ("patches", "versions")
_VERSION_MAPS: Final = ("kubernetes", "sha256", "size", "digests")


class ClusterVersions(Struct, frozen=True):
    """The version of every part of a cluster."""

    minor: MinorSpec
    kubernetes: str
    etcd: str
    coredns: str
    pause: str
    containerd: str
    runc: str
    cni_plugins: str
    crictl: str
    network: str
    """Of the network plugin; empty without one."""


def shipped_versions() -> Loaded[VersionsDocument]:
    """The document that comes with kubexm; raises SpecError if it is wrong, which a test rules out."""
    diagnostics = Diagnostics()
    source = SourceFile.load(shipped_root("specs") / SHIPPED, name=f"kubexm:{SHIPPED.removesuffix('.yaml')}")
    document = check(VersionsDocument, source.documents[0], source.place(0), diagnostics)
    diagnostics.raise_if_errors()
    if document is None:
        raise RuntimeError("a document without findings is there")
    return Loaded(document, source, 0)


def load_versions(cluster: Loaded[ClusterDocument], loader: Loader) -> VersionsDocument | None:
    """The data for a cluster: the shipped one with the user's on top; None with findings if that cannot be used."""
    shipped = shipped_versions().document
    named = cluster.document.versions
    if named is None:
        return shipped
    own = loader.resolve(named, cluster.source, "Versions", cluster.place("versions"))
    if own is None or not isinstance(own.document, VersionsDocument):
        return None
    return merged(shipped, own.document)


def merged(base: VersionsDocument, own: VersionsDocument) -> VersionsDocument:
    """Two documents as one: mappings are merged, lists of versions united, everything else is replaced."""
    both = _merge(_plain(base), _plain(own))
    return VersionsDocument.model_validate(in_order(both))


def _plain(document: VersionsDocument) -> dict[str, Any]:
    return document.model_dump(by_alias=True, exclude_unset=True, mode="json")


def _merge(base: Any, own: Any, key: str = "") -> Any:
    if isinstance(base, dict) and isinstance(own, dict):
        return {**base, **{name: _merge(base.get(name), value, name) for name, value in own.items()}}
    if key in _VERSION_LISTS and isinstance(base, list):
        return [*own, *base]
    return own


def in_order(data: Any, key: str = "", above: str = "") -> Any:
    """The data with versions newest first, wherever versions are listed or are keys."""
    if isinstance(data, list) and key in _VERSION_LISTS:
        return newest_first(data)
    if not isinstance(data, dict):
        return data
    names = list(data)
    if key in _VERSION_MAPS or above == "manifests":
        names = newest_first(names)
    return {name: in_order(data[name], name, key) for name in names}


def default_version(data: VersionsDocument) -> str:
    """The newest patch release of the newest minor that is supported."""
    for row in data.kubernetes.values():
        if row.status == "supported" and row.patches:
            return row.patches[0]
    raise ValueError("the versions data has no supported minor with a patch release")


def address_of(data: VersionsDocument, pattern: str, version: str, arch: str = "") -> str:
    """The address of a file of a version, by way of a mirror if there is one for it."""
    url = pattern.replace("{version}", version).replace("{arch}", arch)
    for start, instead in data.mirrors.items():
        if url.startswith(start):
            return instead.rstrip("/") + url[len(start) :] if not start.endswith("/") else instead + url[len(start) :]
    return url


def choose_versions(
    cluster: Loaded[ClusterDocument], data: VersionsDocument, diagnostics: Diagnostics
) -> ClusterVersions | None:
    """The versions of a cluster: what the document says, else what goes with its Kubernetes version."""
    return _Choice(cluster, data, diagnostics).make()


class _Choice:
    def __init__(self, cluster: Loaded[ClusterDocument], data: VersionsDocument, diagnostics: Diagnostics) -> None:
        self.cluster = cluster
        self.document = cluster.document
        self.data = data
        self.diagnostics = diagnostics
        self.complete = True

    def make(self) -> ClusterVersions | None:
        version = self.document.kubernetes.version
        place = self.cluster.place("kubernetes", "version")
        row = self.data.kubernetes.get(minor_of(version))
        if row is None or version not in row.patches:
            self._unknown(
                "kubernetes", version, [p for each in self.data.kubernetes.values() for p in each.patches], place
            )
            return None
        for name in KUBERNETES:
            self._artifact(name, version, None, ("kubernetes", "version"))
        self._judge(version, row, place)
        runtime, etcd = self.document.container_runtime, self.document.etcd
        chosen = ClusterVersions(
            minor=row,
            kubernetes=version,
            etcd=self._artifact("etcd", etcd.version, row.etcd, ("etcd", "version")),
            coredns=row.coredns or "",
            pause=row.pause or "",
            containerd=self._containerd(row),
            runc=self._artifact("runc", runtime.runc_version, None, ("containerRuntime", "runcVersion")),
            cni_plugins=self._artifact(
                "cniPlugins", runtime.cni_plugins_version, row.cni_plugins, ("containerRuntime", "cniPluginsVersion")
            ),
            crictl=self._artifact("crictl", runtime.crictl_version, row.crictl, ("containerRuntime", "crictlVersion")),
            network=self._network(),
        )
        self._check_etcd(row, chosen.etcd)
        return chosen if self.complete else None

    def _judge(self, version: str, row: MinorSpec, place: Place) -> None:
        for span, reason in row.avoid.items():
            if in_span(version, span):
                newer = [patch for patch in row.patches if not in_span(patch, span)]
                hint = f"use {newer[0]}" if newer else ""
                self.diagnostics.warning("avoided-version", f"{version} should be avoided: {reason}", place, hint=hint)
        if row.status == "eol":
            summary = f"Kubernetes {minor_of(version)} is no longer maintained (since {row.eol})"
            hint = f"the newest is {default_version(self.data)}; upgrade one minor at a time"
            self.diagnostics.warning("end-of-life", summary, place, hint=hint)

    def _artifact(self, name: str, wanted: str | None, default: str | None, path: tuple[str, ...]) -> str:
        """A version of an artifact that has digests."""
        known = list(self.data.artifacts.get(name, ArtifactSpec()).sha256)
        version = wanted or default or (known[0] if known else "")
        if version not in known:
            self._unknown(name, version, known, self.cluster.place(*path))
        return version

    def _containerd(self, row: MinorSpec) -> str:
        path = ("containerRuntime", "version")
        known = list(self.data.artifacts.get("containerd", ArtifactSpec()).sha256)
        fitting = [version for version in known if any(in_range(version, each) for each in row.containerd)]
        version = self._artifact(
            "containerd", self.document.container_runtime.version, fitting[0] if fitting else None, path
        )
        place = self.cluster.place(*path)
        advice = f"containerd {' or '.join(row.containerd)} is recommended"
        if row.min_containerd and version_key(version) < version_key(row.min_containerd):
            summary = f"containerd {version} is too old for this Kubernetes, which needs {row.min_containerd}"
            self.diagnostics.error("version-too-old", summary, place, hint=advice)
        elif row.containerd and version not in fitting and not any(in_range(version, each) for each in row.containerd):
            summary = f"containerd {version} is not recommended for Kubernetes {self.document.kubernetes.version}"
            self.diagnostics.warning("not-recommended", summary, place, hint=advice)
        return version

    def _network(self) -> str:
        network = self.document.network
        if network.plugin == "none":
            return ""
        wanted = getattr(network, network.plugin).version
        known = list(self.data.manifests.get(network.plugin, {}))
        version = wanted or (known[0] if known else "")
        if version not in known:
            path = ("network", network.plugin, "version") if wanted else ("network", "plugin")
            self._unknown(network.plugin, version, known, self.cluster.place(*path))
        return version

    def _check_etcd(self, row: MinorSpec, version: str) -> None:
        floor = row.min_external_etcd
        if self.document.etcd.version and floor and version_key(version) < version_key(floor):
            summary = f"etcd {version} is too old: kubeadm {self.document.kubernetes.version} needs {floor}"
            place = self.cluster.place("etcd", "version")
            self.diagnostics.error("version-too-old", summary, place, hint=f"use {row.etcd}")

    def _unknown(self, name: str, version: str, known: list[str], place: Place) -> None:
        self.complete = False
        what = "Kubernetes" if name == "kubernetes" else name
        summary = f"{what} {version} is not in the versions data" if version else f"the versions data has no {what}"
        there = ", ".join(known[:6]) or "none"
        lines = "\n".join(lines_to_add(name, version)) if version else ""
        detail = f"Put this into a Versions document, and its path under `versions`:\n{lines}" if lines else ""
        hint = f"known: {there}; add it with: kubexm versions add {name} {version or 'VERSION'}"
        self.diagnostics.error("unknown-version", summary, place, detail=detail, hint=hint)


def lines_to_add(name: str, version: str) -> list[str]:
    """The lines of a Versions document that make a version known; digests are for the user to fill in."""
    if name == "kubernetes":
        digests = [f"  {each}: {{sha256: {{{version}: {{amd64: SHA256, arm64: SHA256}}}}}}" for each in KUBERNETES]
        return ["kubernetes:", f"  '{minor_of(version)}': {{patches: [{version}]}}", "artifacts:", *digests]
    if name in ("calico", "flannel", "cilium"):
        return ["manifests:", f"  {name}: {{{version}: {{url: URL, sha256: SHA256, images: [REF]}}}}"]
    return ["artifacts:", f"  {name}: {{sha256: {{{version}: {{amd64: SHA256, arm64: SHA256}}}}}}"]


def manifest_of(data: VersionsDocument, name: str, version: str) -> ManifestSpec:
    """The manifest of a project in a version that is known."""
    return data.manifests[name][version]

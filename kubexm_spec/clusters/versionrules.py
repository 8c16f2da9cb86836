"""What is wrong with a Versions document beyond its shape: its order, its addresses, and digests that are missing."""

from __future__ import annotations

from collections.abc import Iterator

from kubexm_spec.clusters.versions import ARCHITECTURES, KUBERNETES
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.models.versions import MinorSpec, VersionsDocument
from kubexm_spec.semver import minor_of, newest_first, version_key
from kubexm_spec.yaml.source import Place

_NEEDED = ("etcd", "coredns", "pause", "crictl", "cni_plugins", "containerd")
"""What a minor version has to say before a cluster can use it."""


def check_versions(own: Loaded[VersionsDocument], data: VersionsDocument, found: Diagnostics) -> None:
    """Findings in a document; ``data`` is the document merged with the shipped one, which fills in the rest."""
    _check_order(own, found)
    _check_addresses(own, found)
    for minor, row in own.document.kubernetes.items():
        _check_minor(minor, row, data, own.place("kubernetes", minor), found)
    for project, versions in own.document.manifests.items():
        for version, manifest in versions.items():
            missing = [key for key in ("url", "sha256", "images") if not getattr(manifest, key)]
            if missing:
                summary = f"the manifest of {project} {version} lacks {', '.join(missing)}"
                hint = f"write it with: kubexm versions add {project} {version}"
                found.error("missing-digest", summary, own.place("manifests", project, version).key(), hint=hint)


def _listed(own: Loaded[VersionsDocument]) -> Iterator[tuple[list[str], Place]]:
    """Versions in the order in which they are written."""
    document = own.document
    yield list(document.kubernetes), own.place("kubernetes")
    for minor, row in document.kubernetes.items():
        yield row.patches, own.place("kubernetes", minor, "patches")
    for name, artifact in document.artifacts.items():
        yield list(artifact.sha256), own.place("artifacts", name, "sha256")
    for name, image in document.images.items():
        yield image.versions, own.place("images", name, "versions")
    for name, manifests in document.manifests.items():
        yield list(manifests), own.place("manifests", name)


def _check_order(own: Loaded[VersionsDocument], found: Diagnostics) -> None:
    for versions, place in _listed(own):
        ordered = newest_first(versions)
        if len(ordered) < len(versions):
            found.error("duplicate-version", "a version is listed twice", place)
        elif ordered != versions:
            summary, hint = "versions are not in order: the newest comes first", f"write {', '.join(ordered)}"
            found.error("versions-order", summary, place.key(), hint=hint)


def _check_addresses(own: Loaded[VersionsDocument], found: Diagnostics) -> None:
    for name, artifact in own.document.artifacts.items():
        for part in ("{version}", "{arch}") if artifact.url is not None else ():
            if part not in (artifact.url or ""):
                place = own.place("artifacts", name, "url")
                found.error("bad-address", f"the address of {name} has no {part}: all would get the same file", place)


def _check_minor(minor: str, row: MinorSpec, data: VersionsDocument, place: Place, found: Diagnostics) -> None:
    for number, patch in enumerate(row.patches):
        if minor_of(patch) != minor:
            where = place.child("patches", number)
            found.error("wrong-minor", f"{patch} is not a release of {minor}", where)
    whole = data.kubernetes[minor]
    if not whole.patches:
        return  # nothing can use it yet
    missing = [key for key in _NEEDED if not getattr(whole, key)]
    if missing:
        names = ", ".join(MinorSpec.model_fields[key].alias or key for key in missing)
        found.error("incomplete-minor", f"{minor} has releases, and lacks {names}", place.key())
        return
    used = [(name, patch) for patch in row.patches for name in KUBERNETES]
    used += [("etcd", whole.etcd or ""), ("crictl", whole.crictl or ""), ("cniPlugins", whole.cni_plugins or "")]
    for name, version in used:
        artifact = data.artifacts.get(name)
        digests = artifact.sha256.get(version, {}) if artifact is not None else {}
        lacking = [arch for arch in ARCHITECTURES if arch not in digests]
        if lacking:
            summary = f"{name} {version} has no sha256 for {', '.join(lacking)}"
            hint = f"add it with: kubexm versions add {name} {version}"
            found.error("missing-digest", summary, place.key(), hint=hint)
    floor = whole.min_external_etcd
    if floor and version_key(whole.etcd or "0") < version_key(floor):
        found.error("version-too-old", f"etcd {whole.etcd} is older than minExternalEtcd {floor}", place.key())

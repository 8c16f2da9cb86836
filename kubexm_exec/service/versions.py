"""The versions data of clusters: read, checked, and added to by what projects publish."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kubexm_exec.service.errors import Invalid, NotFound, ServiceError
from kubexm_spec.clusters.sums import digest_in
from kubexm_spec.clusters.versions import ARCHITECTURES, KUBERNETES, address_of, merged, shipped_versions
from kubexm_spec.diagnostics import Diagnostics, did_you_mean
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models.versions import ArtifactSpec, VersionsDocument
from kubexm_spec.semver import minor_of, newest_first, parse_version, version_key

if TYPE_CHECKING:
    from kubexm_exec.http.messages import Reply

_PATIENCE: Final = 30.0
_RELEASES: Final = "https://dl.k8s.io/release"
_IMAGE: Final = re.compile(r"""^\s*(?:-\s+)?image:\s*["']?([^\s"'#]+)""", re.MULTILINE)
_TAG: Final = re.compile(r"/releases/tag/v([0-9]+\.[0-9]+\.[0-9]+)\b")
_PROJECT: Final = re.compile(r"https://github\.com/[^/]+/[^/]+")


class VersionsData(Struct, frozen=True):
    """The shipped document, the user's if there is one, and both as one."""

    data: VersionsDocument
    own: Loaded[VersionsDocument]
    """The document to judge: the user's, else the shipped one."""
    sources: dict[str, Any]


def read_versions(file: str, folder: str) -> VersionsData:
    """The data with a document of the user's on top, if one is named; raises Invalid."""
    shipped = shipped_versions()
    if not file:
        return VersionsData(shipped.document, shipped, {shipped.source.name: shipped.source})
    diagnostics = Diagnostics()
    loader = Loader(diagnostics, folder=folder)
    source = loader.source(loader.folder / file, file)
    found = loader.choose(source, "", "Versions", source.place(0)) if source is not None else None
    if found is None or not isinstance(found.document, VersionsDocument):
        raise Invalid.documents(diagnostics, {}, folder)
    own = Loaded(found.document, found.source, found.index)
    return VersionsData(merged(shipped.document, own.document), own, {own.source.name: own.source})


def check_data(read: VersionsData) -> Diagnostics:
    """What is wrong with the document."""
    from kubexm_spec.clusters.versionrules import check_versions

    diagnostics = Diagnostics()
    check_versions(read.own, read.data, diagnostics)
    return diagnostics


def unreachable(read: VersionsData) -> Iterator[str]:
    """Asks for the head of every file of the document, and says what is not there or has another size."""
    for name, artifact in read.own.document.artifacts.items():
        pattern = read.data.artifacts[name].url
        for version, digests in artifact.sha256.items() if pattern else ():
            for arch in digests:
                size = artifact.size.get(version, {}).get(arch)
                yield from _judge_head(address_of(read.data, pattern or "", version, arch), size)
    for manifests in read.own.document.manifests.values():
        for version, manifest in manifests.items():
            if manifest.url:
                yield from _judge_head(address_of(read.data, manifest.url, version), manifest.size)


def _judge_head(url: str, size: int | None) -> Iterator[str]:
    reply = _ask("HEAD", url)
    told = reply.headers.get("content-length")
    if reply.status != 200:
        yield f"{url}: status {reply.status}"
    elif size is not None and told is not None and int(told) != size:
        yield f"{url}: {told} bytes instead of {size}"


def addition(data: VersionsDocument, component: str, version: str) -> dict[str, Any]:
    """What a document says of a new version, with digests as its project publishes them; raises ServiceError."""
    try:
        version = parse_version(version)
    except ValueError as error:
        raise Invalid(f'"{version}" {error}', kind="wrong-value") from None
    if component == "kubernetes":
        minor = minor_of(version)
        more = {name: _artifact(data, name, version) for name in KUBERNETES}
        return {"kubernetes": {minor: {**_new_minor(data, minor), "patches": [version]}}, "artifacts": more}
    if component in data.artifacts:
        return {"artifacts": {component: _artifact(data, component, version)}}
    if component in data.manifests:
        return {"manifests": {component: {version: _manifest(data, component, version)}}}
    known = ["kubernetes", *data.artifacts, *data.manifests]
    hint = did_you_mean(component, known) or f"there are {', '.join(known)}"
    raise NotFound(f'there is no component "{component}"', hint, kind="unknown-component")


def _new_minor(data: VersionsDocument, minor: str) -> dict[str, Any]:
    """The row of a minor that is not known yet: that of the newest known one, to be looked over."""
    if minor in data.kubernetes:
        return {}
    row = next(iter(data.kubernetes.values()))
    kept = row.model_dump(by_alias=True, exclude_unset=True, mode="json", exclude={"patches", "avoid", "eol"})
    return {**kept, "status": "preview"}


def _artifact(data: VersionsDocument, name: str, version: str) -> dict[str, Any]:
    artifact = data.artifacts.get(name, ArtifactSpec())
    if artifact.url is None or artifact.sums is None:
        raise Invalid(f"the data has no addresses of {name}", f"add artifacts.{name}.url and .sums")
    digests: dict[str, str] = {}
    for arch in ARCHITECTURES:
        plain = artifact.url.replace("{version}", version).replace("{arch}", arch)
        url = address_of(data, artifact.sums.replace("{url}", plain), version, arch)
        digest = digest_in(_text(url), plain.rpartition("/")[2])
        if digest is None:
            raise ServiceError(f"{url} has no sha256 of {plain.rpartition('/')[2]}", kind="no-digest")
        digests[arch] = digest
    return {"sha256": {version: digests}}


def _manifest(data: VersionsDocument, name: str, version: str) -> dict[str, Any]:
    pattern = next((each.url for each in data.manifests[name].values() if each.url), None)
    if pattern is None:
        raise Invalid(f"the data has no address of a manifest of {name}", f"add manifests.{name} with a url")
    text = _text(address_of(data, pattern, version))
    content = text.encode()
    return {
        "url": pattern,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "images": sorted(set(_IMAGE.findall(text))),
    }


def updates(data: VersionsDocument) -> list[tuple[str, str]]:
    """Components with a newer patch release of a known minor, and new minors of Kubernetes; raises ServiceError."""
    found: list[tuple[str, str]] = []
    newest = parse_version(_text(address_of(data, f"{_RELEASES}/stable.txt", "")).strip())
    minors = [minor for minor, row in data.kubernetes.items() if row.status != "eol"]
    for minor in newest_first([*minors, minor_of(newest)]):
        patch = parse_version(_text(address_of(data, f"{_RELEASES}/stable-{minor}.txt", "")).strip())
        if patch not in (data.kubernetes[minor].patches if minor in data.kubernetes else ()):
            found.append(("kubernetes", patch))
    for name, artifact in data.artifacts.items():
        project = _PROJECT.match(artifact.url or "")
        if project is not None:
            released = _TAG.findall(_text(address_of(data, f"{project[0]}/releases.atom", "")))
            found += [(name, version) for version in _new_patches(list(artifact.sha256), released)]
    return found


def _new_patches(known: list[str], released: list[str]) -> list[str]:
    """Of each known minor the newest release, if it is newer than what is known."""
    found = []
    for minor in newest_first([minor_of(version) for version in known]):
        ours = newest_first([version for version in known if minor_of(version) == minor])[0]
        theirs = newest_first([version for version in released if minor_of(version) == minor])
        if theirs and version_key(theirs[0]) > version_key(ours):
            found.append(theirs[0])
    return found


def write_additions(file: str, folder: str, additions: list[dict[str, Any]]) -> str:
    """The text of the user's document with additions; raises Invalid."""
    from kubexm_spec.clusters.versionedits import EMPTY, with_content
    from kubexm_spec.diagnostics import SpecError

    path = Path(folder, file)
    text = path.read_text("utf-8") if path.exists() else EMPTY
    try:
        for more in additions:
            text = with_content(text, more, file)
    except SpecError as error:
        raise Invalid.documents(error.diagnostics, {}, folder) from None
    return text


def _text(url: str) -> str:
    reply = _ask("GET", url)
    if reply.status != 200:
        raise ServiceError(
            f"{url} answered {reply.status}", "is the version released, and the mirror right?", kind="http"
        )
    return reply.text()


def _ask(method: str, url: str) -> Reply:
    from kubexm_exec.http.client import fetch
    from kubexm_exec.http.messages import BODY_LIMIT, HttpError, Request

    try:
        reply = fetch(Request(method, url), timeout=_PATIENCE)
    except HttpError as error:
        raise ServiceError(f"{url}: {error.reason}", error.hint, kind="http") from error
    if len(reply.body) >= BODY_LIMIT:
        raise ServiceError(f"{url} is larger than {BODY_LIMIT >> 20} MiB", kind="http")
    return reply

"""Container images: what a registry says of one (OCI distribution), and archives of it (OCI layout) for containerd."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from kubexm_exec.control import Cancel
from kubexm_exec.http.attempts import Attempts
from kubexm_exec.http.client import Trust, fetch
from kubexm_exec.http.messages import BODY_LIMIT, PASSING, HttpError, Reply, Request, shown_url
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_spec.imagenames import image_name
from kubexm_spec.models.resource import digest_problem

NAME_OF: Final = "io.containerd.image.name"
"""The annotation by which containerd names what it imports."""
_OCI: Final = "application/vnd.oci.image"
_DOCKER: Final = "application/vnd.docker.distribution"
_INDEXES: Final = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
_MANIFESTS: Final = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json")
_CHALLENGE: Final = re.compile(r'([A-Za-z]+)="([^"]*)"')
_LEAST_LIFE: Final = 60.0
"""Seconds that a token lives if its server does not say."""
_HINTS: Final = {
    401: "authentication required: give the registry a `username` and a `password`",
    403: "access denied: check the user and its permissions",
    404: "there is no such image: check its name and tag, and the mirrors",
}


class Blob(Struct, frozen=True):
    """A part of an image: its configuration or a layer."""

    digest: str
    size: int

    @property
    def sha256(self) -> str:
        """Its digest alone."""
        return self.digest.partition(":")[2]


class Image(Struct, frozen=True):
    """An image in a registry, for one architecture."""

    names: tuple[str, ...]
    """What containerd shall call it."""
    top: Mapping[str, Any]
    """The descriptor that a name stands for: of the index, or of the manifest if there is no index."""
    documents: Mapping[str, bytes]
    """By digest the index and the manifest."""
    blobs: tuple[Blob, ...]
    place: str
    """The registry that has it, as an address."""

    @property
    def digest(self) -> str:
        """What identifies it."""
        return str(self.top["digest"])


class Registries:
    """Asks the mirrors and the registry of one image."""

    def __init__(self, source: Source, cancel: Cancel) -> None:
        self._source = source
        self._name = image_name(source.location)
        self._cancel = cancel
        self._trust = Trust(source.ca_file, source.registry.insecure)
        self._tokens: dict[str, tuple[str, float]] = {}

    def find(self) -> Image:
        """The image at the first place that has it; raises ResourceError, or CommandCancelled."""
        refusals: list[ResourceError] = []
        for place in self._places():
            try:
                return self._at(place)
            except _NotHereError as error:
                refusals.append(error)
        last = refusals[-1]
        said = "; ".join(refusal.message for refusal in refusals)
        raise ResourceError(f"resource {self._source.label}: {said}", last.hint)

    def blob(self, image: Image, blob: Blob) -> Source:
        """A blob as a file of the web, with the access that its registry wants now."""
        source, url = self._source, f"{image.place}/v2/{self._name.repository}/blobs/{blob.digest}"
        return Source(
            name=source.name,
            kind="http",
            location=url,
            sha256=blob.sha256,
            variant=source.variant,
            filename="blob",
            headers=self._authorization(image.place),
            ca_file=source.ca_file,
            timeout=source.timeout,
            retries=source.retries,
            registry=source.registry,
        )

    def forget(self, place: str) -> None:
        """Ask for access anew: what was given has expired."""
        self._tokens.pop(place, None)
        self._ask(place, f"manifests/{self._reference}")

    @property
    def _reference(self) -> str:
        return self._name.digest or self._name.tag

    def _places(self) -> list[str]:
        registry = self._name.registry
        own = "registry-1.docker.io" if registry == "docker.io" else registry
        # As docker and containerd do: only this machine is spoken to without TLS, unless a mirror says http://.
        scheme = "http" if urlsplit(f"//{registry}").hostname in ("localhost", "127.0.0.1", "::1") else "https"
        return [
            *(mirror.rstrip("/").removesuffix("/v2") for mirror in self._source.registry.mirrors),
            f"{scheme}://{own}",
        ]

    def _at(self, place: str) -> Image:
        top, media, data = self._document(place, self._reference, self._name.digest)
        documents = {top: data}
        described: dict[str, Any] = {"mediaType": media, "digest": top, "size": len(data)}
        parsed = self._parsed(data)
        if media in _INDEXES:
            entry = self._of_architecture(parsed)
            manifest, media, data = self._document(place, entry["digest"], entry["digest"])
            documents[manifest] = data
            parsed = self._parsed(data)
        if media not in _MANIFESTS:
            raise self._wrong(f"its manifest has the type {media[:100]!r}, which cannot be imported")
        blobs = tuple(self._blobs(parsed))
        names = [self._name.tagged] if self._name.tag else []
        if self._name.digest:
            names.append(self._name.pinned(self._name.digest))
        return Image(tuple(names), described, documents, blobs, place)

    def _document(self, place: str, reference: str, digest: str) -> tuple[str, str, bytes]:
        """Digest, type and content of an index or a manifest, verified."""
        reply = self._ask(place, f"manifests/{reference}")
        found = f"sha256:{hashlib.sha256(reply.body).hexdigest()}"
        wanted = digest or reply.headers.get("docker-content-digest", found)
        if wanted != found:
            raise ResourceError(
                f"resource {self._source.label}: {self._source.location} of {shown_url(place)} has the wrong digest: "
                f"expected {wanted}, got {found}",
                "the image was changed or is damaged, or the digest is of another version: compare it with what its "
                "makers publish",
            )
        media = reply.headers.get("content-type", "").partition(";")[0].strip()
        said = self._parsed(reply.body).get("mediaType")
        return found, said if isinstance(said, str) else media, reply.body

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(data)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise self._wrong("its manifest is not JSON")
        return parsed

    def _of_architecture(self, index: Mapping[str, Any]) -> dict[str, Any]:
        wanted, there = self._source.variant, []
        for entry in index.get("manifests") or ():
            platform = entry.get("platform") if isinstance(entry, dict) else None
            if not isinstance(platform, dict) or platform.get("os") != "linux":
                continue
            if platform.get("architecture") == wanted and not digest_problem(_hex(entry.get("digest"))):
                return dict(entry)
            there.append(str(platform.get("architecture")))
        raise self._wrong(f"it is not there for linux/{wanted}, but for {', '.join(dict.fromkeys(there)) or 'none'}")

    def _blobs(self, manifest: Mapping[str, Any]) -> Iterator[Blob]:
        seen: set[str] = set()
        for each in (manifest.get("config"), *(manifest.get("layers") or ())):
            digest, size = (each.get("digest"), each.get("size")) if isinstance(each, dict) else (None, None)
            if digest_problem(_hex(digest)) or not isinstance(size, int) or size < 0:
                raise self._wrong("its manifest names a part without a sha256 and a size")
            if digest not in seen:
                seen.add(str(digest))
                yield Blob(str(digest), size)

    def _wrong(self, what: str) -> ResourceError:
        return ResourceError(f"resource {self._source.label}: {self._source.location}: {what}", "check its `image`")

    # speaking to one of them

    def _ask(self, place: str, path: str) -> Reply:
        url = f"{place}/v2/{self._name.repository}/{path}"
        own = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
        reply = self._fetch(Request("GET", url, self._authorization(place), own))
        if reply.status == 401:
            self._authorize(place, reply.headers.get("www-authenticate", ""))
            reply = self._fetch(Request("GET", url, self._authorization(place), own))
        if reply.status != 200:
            hint = _HINTS.get(reply.status, "check the registry and its mirrors")
            raise _NotHereError(f"{shown_url(url)}: the registry answered {reply.status}", hint)
        if len(reply.body) >= BODY_LIMIT:
            raise _NotHereError(f"{shown_url(url)}: the manifest is larger than {BODY_LIMIT >> 20} MiB")
        return reply

    def _fetch(self, request: Request) -> Reply:
        """An answer, with patience for what passes."""
        tries = Attempts(self._source.retries)
        while True:
            try:
                reply = fetch(request, timeout=self._source.timeout, trust=self._trust, cancel=self._cancel)
                if reply.status not in PASSING:
                    return reply
                reason, hint = f"the registry answered {reply.status}", "it is busy or broken: try again later"
            except HttpError as error:
                if not error.passing:
                    raise _NotHereError(f"{shown_url(request.url)}: {error.reason}", error.hint) from error
                reason, hint = error.reason, error.hint
            pause = tries.broke(0, None)
            if pause is None:
                raise _NotHereError(f"{shown_url(request.url)}: {reason} ({tries.made} attempts)", hint)
            if self._cancel.wait(pause):
                raise CommandCancelled(f"while waiting to ask {shown_url(request.url)} again")

    def _authorization(self, place: str) -> dict[str, str]:
        value, until = self._tokens.get(place, ("", 0.0))
        if value and time.monotonic() > until:
            self._tokens.pop(place)
            self._ask(place, f"manifests/{self._reference}")  # it says again what it wants
            value = self._tokens.get(place, ("", 0.0))[0]
        return {"Authorization": value} if value else {}

    def _authorize(self, place: str, challenge: str) -> None:
        """Get the access that a registry asks for: its own token, or user and password."""
        access = self._source.registry
        basic: dict[str, str] = {}
        # Nobody else gets the password.
        if access.password and (urlsplit(place).netloc == access.host if access.host else place == self._places()[-1]):
            given = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
            basic["Authorization"] = f"Basic {given}"
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            if not basic:
                raise _NotHereError(f"{shown_url(place)}: the registry answered 401", _HINTS[401])
            self._tokens[place] = (basic["Authorization"], float("inf"))
            return
        said = {name.lower(): value for name, value in _CHALLENGE.findall(rest)}
        realm = said.get("realm", "")
        plain = place.startswith("https:") and realm.startswith("http:")
        if plain or urlsplit(realm).scheme not in ("http", "https"):
            raise _NotHereError(f"{shown_url(place)}: it sends to a token server at {shown_url(realm)[:200]!r}")
        asked = {"scope": said.get("scope") or f"repository:{self._name.repository}:pull"}
        if "service" in said:
            asked["service"] = said["service"]
        reply = self._fetch(Request("GET", f"{realm}?{urlencode(asked, quote_via=quote)}", basic))
        try:
            data = json.loads(reply.body) if reply.status == 200 else {}
            token = str(data.get("token") or data.get("access_token") or "")
            life = float(data.get("expires_in") or _LEAST_LIFE)
        except (ValueError, TypeError, AttributeError):
            token, life = "", 0.0
        if not token:
            hint = _HINTS.get(reply.status, "check the registry and its mirrors")
            raise _NotHereError(f"{shown_url(realm)}: the token server answered {reply.status} without a token", hint)
        self._tokens[place] = (f"Bearer {token}", time.monotonic() + life / 2)


class _NotHereError(ResourceError):
    """One place does not have the image: others may."""


def _hex(digest: Any) -> str:
    algorithm, _, rest = digest.partition(":") if isinstance(digest, str) else ("", "", "")
    return rest if algorithm == "sha256" else ""


class Writes(Protocol):
    """What an archive is written to."""

    def write(self, data: bytes, /) -> Any:
        """Take more of it."""


def write_archive(target: Writes, image: Image, blobs: Mapping[str, Path]) -> None:
    """An archive of an image in OCI layout; the same image gives the same bytes."""
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.index.v1+json",
        "manifests": [{**image.top, "annotations": {NAME_OF: name}} for name in image.names],
    }
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
        # First what says which images are in it: nobody has to read on for that.
        _add(tar, "index.json", json.dumps(index, sort_keys=True, separators=(",", ":")).encode())
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for digest, data in sorted(image.documents.items()):
            _add(tar, _place(digest), data)
        for blob in sorted(image.blobs, key=lambda each: each.digest):
            with blobs[blob.digest].open("rb") as file:
                _add(tar, _place(blob.digest), file, blob.size)


def _place(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _add(tar: tarfile.TarFile, name: str, content: bytes | BinaryIO, size: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    entry.size = len(content) if isinstance(content, bytes) else size
    tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else content)


def digest_in_archive(path: Path) -> str:
    """The digest of the image in an archive of ours; empty if it is none."""
    try:
        with tarfile.open(path) as tar:
            first = tar.next()
            file = tar.extractfile(first) if first is not None and first.name == "index.json" else None
            manifests = json.loads(file.read(BODY_LIMIT))["manifests"] if file is not None else []
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError):
        return ""
    return str(manifests[0].get("digest", "")) if manifests else ""

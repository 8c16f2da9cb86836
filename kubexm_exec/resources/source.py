"""A resource as one host sees it: where it comes from, the digest it must have, and how it is shown."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from kubexm_exec.http.messages import shown_url
from kubexm_spec.imagenames import image_name, image_problem
from kubexm_spec.models.resource import digest_problem, has_credentials, url_problem

PREFIX: Final = "resource:"
"""Where a step takes a file of the control node, ``resource:NAME`` is the file of a resource."""
Kind = Literal["path", "http", "s3", "image", "bundle"]
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f/\\]")
_LONGEST_NAME: Final = 120


class ResourceError(Exception):
    """A resource cannot be had: which, from where, why, and what to do. Never holds a secret."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class S3Access:
    """How an object store is reached."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How the registry of an image is reached."""

    mirrors: tuple[str, ...] = ()
    host: str = ""
    """Who gets user and password; empty for the registry that the name of the image has."""
    username: str = ""
    password: str = field(default="", repr=False)
    insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is to be fetched, with everything rendered. Equal sources give equal files."""

    name: str
    """What people call it."""
    kind: Kind
    location: str
    """An absolute path, a URL, the name of an image, or the folder of a bundle."""
    sha256: str = ""
    """The digest it must have; empty if nobody has said."""
    variant: str = ""
    filename: str = "resource"
    fetch_on: Literal["control", "host"] = "control"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    ca_file: str = ""
    timeout: float = 30.0
    retries: int = 5
    s3: S3Access = field(default_factory=S3Access, repr=False, compare=False)
    registry: RegistryAccess = field(default_factory=RegistryAccess, repr=False, compare=False)

    @classmethod
    def of_url(cls, name: str, url: str, *, sha256: str = "", **more: Any) -> Source:
        """The source behind an address; raises ResourceError."""
        kind = kind_of(check_url(name, url))
        if kind == "s3" and more.get("fetch_on") == "host":
            raise ResourceError(f"{name}: a host cannot fetch s3:// addresses", "remove `fetchOn: host`")
        digest = check_digest(name, sha256) if sha256 else ""
        return cls(name=name, kind=kind, location=url, sha256=digest, filename=filename_of(url, kind), **more)

    def fetched_on(self, where: Literal["control", "host"]) -> Source:
        """The same, fetched by somebody else."""
        return replace(self, fetch_on=where)

    @property
    def key(self) -> str:
        """What the same download has in common, also between processes."""
        return hashlib.sha256(f"{self.kind}\0{self.identity}\0{self.sha256}".encode()).hexdigest()

    @property
    def identity(self) -> str:
        """Where it comes from: a key in two stores is two files, as is an image for two architectures."""
        if self.kind == "image":
            return f"{self.location} {self.variant}"
        return f"{self.s3.endpoint} {self.location}" if self.kind == "s3" else self.location

    @property
    def shown(self) -> str:
        """The source for people: what follows a question mark may be a signature or a token."""
        return shown_url(self.location) if self.kind in ("http", "s3") else self.location

    @property
    def label(self) -> str:
        """The name with its variant."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


def kind_of(url: str) -> Kind:
    """How a URL is fetched."""
    return "s3" if url.startswith("s3:") else "http"


def check_url(name: str, url: str) -> str:
    """The URL, if it can be fetched; raises ResourceError."""
    if has_credentials(url):
        raise ResourceError(
            f"resource {name}: its address contains a user or a password", "use `headers` with {{ secret('env:NAME') }}"
        )
    if problem := url_problem(url):
        raise ResourceError(f"resource {name}: {problem}; got {shown_url(url)!r}", "check its `url`")
    return url


def check_image(name: str, image: str) -> str:
    """The name of an image, if it is a whole one; raises ResourceError."""
    if problem := image_problem(image):
        raise ResourceError(f"resource {name}: {problem}", "check its `image`")
    return image


def check_digest(name: str, digest: str) -> str:
    """The digest in lower case; raises ResourceError."""
    if problem := digest_problem(digest):
        raise ResourceError(f"resource {name}: {problem}; got {digest[:80]!r}", "check its `sha256`")
    return digest.lower()


def filename_of(location: str, kind: Kind) -> str:
    """A harmless name for the file: the last part of where it comes from."""
    last = unquote(posixpath.basename(urlsplit(location).path)) if kind in ("http", "s3") else Path(location).name
    return safe_name(last)


def archive_name(image: str, architecture: str) -> str:
    """The name of the archive of an image."""
    name = image_name(image)
    last = name.repository.rpartition("/")[2]
    return safe_name(f"{last}-{name.tag or name.digest.partition(':')[2][:12]}-{architecture}.tar")


def safe_name(name: str) -> str:
    """The name without anything that would lead elsewhere."""
    cleaned = _UNSAFE.sub("_", name).strip()[-_LONGEST_NAME:]
    return cleaned if cleaned.strip(".") else "resource"


class LocalResource(Struct, frozen=True):
    """A verified file on the control node."""

    path: Path
    sha256: str
    size: int
    where: Literal["path", "bundle", "cache", "fetched"] = "cache"
    """Where it was found."""

"""Resources: files from elsewhere that steps use by name, each with its source and its digest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kubexm_spec.duration import Duration
from kubexm_spec.imagenames import image_problem
from kubexm_spec.models.common import Model, Name

SHA256 = re.compile(r"[0-9a-fA-F]{64}")
SCHEMES = ("http", "https", "s3")
_PLACES = ("path", "url", "image", "bundle")


def url_problem(url: str) -> str:
    """What is wrong with the address of a resource, or an empty text."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "this is not an address"
    if parts.scheme not in SCHEMES or not parts.hostname:
        return "an address starts with http://, https:// or s3:// and a host"
    if parts.scheme == "s3" and not parts.path.strip("/"):
        return "an address in an object store is s3://BUCKET/KEY"
    return ""


def has_credentials(url: str) -> bool:
    """Whether an address holds a user or a password; it must not be repeated then."""
    try:
        parts = urlsplit(url)
        return parts.username is not None or parts.password is not None
    except ValueError:
        return "@" in url


def digest_problem(text: str) -> str:
    """What is wrong with a digest, or an empty text."""
    return "" if SHA256.fullmatch(text) else "a sha256 has 64 hexadecimal digits"


def _is_dynamic(text: str) -> bool:
    return "{{" in text or "{%" in text


_Varied = str | dict[str, str]
"""A text, or one for each variant."""


def _each(value: _Varied, problem_of: Callable[[str], str]) -> _Varied:
    """The value, if none of its texts is wrong; expressions are judged when they are rendered."""
    named = {"": value} if isinstance(value, str) else value
    for name, text in named.items():
        if not _is_dynamic(text) and (problem := problem_of(text)):
            raise ValueError(f'variant "{name}": {problem}' if name else problem)
    return value


def _urls(value: _Varied) -> _Varied:
    # What holds a password is refused by the compiler, which does not show it.
    return _each(value, lambda url: "" if has_credentials(url) else url_problem(url))


def _images(value: _Varied) -> _Varied:
    return _each(value, image_problem)


def _digests(value: _Varied) -> _Varied:
    return _each(value, digest_problem)


def _header(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a header has one line")
    return text


_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]


def _mirror(text: str) -> str:
    if has_credentials(text) or url_problem(text) or not text.startswith("http"):
        raise ValueError("the address of a mirror starts with http:// or https:// and has no user or password")
    return text


class S3Spec(Model):
    """Access to an object store; without keys, the credentials that the AWS tools find (environment, files, roles)."""

    endpoint: str | None = Field(default=None, description="Address of the store, if it is not AWS's own.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    access_key_id: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    secret_access_key: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    session_token: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    anonymous: bool = Field(default=False, description="Access without credentials: the bucket is public.")

    @model_validator(mode="after")
    def _both_keys(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("accessKeyId and secretAccessKey go together")
        return self


class RegistryAccessSpec(Model):
    """Access to the registry of an image."""

    mirrors: list[Annotated[str, AfterValidator(_mirror)]] = Field(
        default_factory=list, description="Addresses of registries that are asked before its own."
    )
    host: str | None = Field(
        default=None, description="The one that gets user and password, as in its address; by default the image's own."
    )
    username: str | None = Field(default=None, description="User.")
    password: str | None = Field(default=None, description="Only as a secret reference such as `env:NAME`.")
    insecure: bool = Field(default=False, description="Trust every certificate; not for production.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        return self


class ResourceSpec(Model):
    """A file from elsewhere: its source and its digest."""

    description: str = Field(default="", description="Description.")
    path: _Varied | None = Field(
        default=None, description="File on the control node, relative to this file; or one per variant."
    )
    url: Annotated[_Varied, AfterValidator(_urls)] | None = Field(
        default=None, description="Address: http://, https:// or s3://BUCKET/KEY; or one per variant."
    )
    image: Annotated[_Varied, AfterValidator(_images)] | None = Field(
        default=None,
        description="Container image by its whole name, with `@sha256:...` for its digest; or one per variant. The "
        "file is an archive (OCI) of it for the architecture of the host, which `container-image` imports.",
    )
    bundle: str | None = Field(
        default=None, description="Folder created by `kubexm resources bundle`, relative to this file."
    )
    sha256: Annotated[_Varied, AfterValidator(_digests)] | None = Field(
        default=None,
        description="Digest of the content; or one per variant. Without it, any content is accepted.",
    )
    variant: str | None = Field(
        default=None,
        description="Variant for a host; by default the one named after the host's `facts.architecture`.",
    )
    filename: str | None = Field(default=None, description="Name of the file; by default the last part of the source.")
    fetch_on: Literal["control", "host"] = Field(
        default="control", description="Who fetches it: the control node, once for all hosts, or each host itself."
    )
    headers: dict[_HeaderName, Annotated[str, AfterValidator(_header)]] = Field(
        default_factory=dict, description="Headers of the request; secrets as `{{ secret('env:NAME') }}`."
    )
    ca_file: str | None = Field(
        default=None, description="CA file for the server's certificate, relative to this file."
    )
    timeout: Duration = Field(default=30.0, gt=0, description="Maximum silence of the server.")
    retries: int = Field(default=5, ge=0, le=100, description="How often an interrupted transfer is retried.")
    s3: S3Spec | None = Field(default=None, description="Access to the object store of an s3:// address.")
    registry: RegistryAccessSpec | None = Field(default=None, description="Access to the registry of an image.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = [name for name in _PLACES if getattr(self, name) is not None]
        if len(given) != 1:
            both = f"; it has {' and '.join(given)}" if given else ""
            raise ValueError(f"a resource comes from exactly one of path, url, image and bundle{both}")
        if self.image is not None and (self.sha256 is not None or self.headers):
            raise ValueError("the digest of an image is a part of its name, NAME@sha256:..., and it takes no headers")
        if self.registry is not None and self.image is None:
            raise ValueError("`registry` is for images")
        if self.fetch_on == "host" and self.url is None:
            raise ValueError("a host can fetch only what has a url")
        if self.fetch_on == "host" and any(text.startswith("s3:") for text in values_of(self.url)):
            raise ValueError("a host cannot fetch s3:// addresses; leave fetchOn out, or use the https:// address")
        if self.s3 is not None and not any(_is_dynamic(text) or text.startswith("s3:") for text in values_of(self.url)):
            raise ValueError("`s3` is for s3:// addresses")
        maps = [value for value in (self.path, self.url, self.image, self.sha256) if isinstance(value, dict)]
        if any(not value for value in maps):
            raise ValueError("a mapping of variants names at least one")
        return self

    @property
    def variants(self) -> list[str]:
        """The names of its variants in the order of the spec; empty if there are none."""
        named: dict[str, None] = {}
        for value in (self.path, self.url, self.image, self.sha256):
            if isinstance(value, dict):
                named.update(dict.fromkeys(value))
        return list(named)


def values_of(value: _Varied | None) -> list[str]:
    """The texts of something that may differ between variants."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value.values())


def _short(value: Any) -> Any:
    """Accepts the short forms ``name: https://...`` and ``name: ./file``."""
    if isinstance(value, str):
        return {"url": value} if "://" in value else {"path": value}
    return value


Resources = dict[Name, Annotated[ResourceSpec, BeforeValidator(_short, json_schema_input_type=ResourceSpec | str)]]
"""Resources by name."""

"""Versions: which versions of the parts of a cluster go together, and where each file is found with which digest."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kubexm_spec.models.common import Metadata, Model, Name, no_items
from kubexm_spec.models.resource import digest_problem, url_problem
from kubexm_spec.semver import Minor, Version, VersionRange, is_span


def _span(text: str) -> str:
    if not is_span(text):
        raise ValueError('should be a version, or two such as "1.35.0 - 1.35.4"')
    return text


def _digest(text: str) -> str:
    if problem := digest_problem(text):
        raise ValueError(problem)
    return text.lower()


def _image_digest(text: str) -> str:
    algorithm, _, digest = text.partition(":")
    if algorithm != "sha256" or digest_problem(digest):
        raise ValueError("should be the digest of an image, such as sha256:... with 64 hexadecimal digits")
    return text.lower()


def _url(text: str) -> str:
    # The address of the file itself may be a part of another: `{url}.sha256`.
    if problem := url_problem(text.replace("{url}", "https://example.org")):
        raise ValueError(problem)
    return text


def _image(value: Any) -> Any:
    return {"ref": value} if isinstance(value, str) else value


Sha256 = Annotated[str, AfterValidator(_digest)]
ImageDigest = Annotated[str, AfterValidator(_image_digest)]
UrlPattern = Annotated[str, AfterValidator(_url)]
"""An address in which `{version}` and `{arch}` stand for what they say, and `{url}` for the address of the file."""


class MinorSpec(Model):
    """A minor version of Kubernetes, and what goes with it."""

    status: Literal["supported", "maintenance", "eol", "preview"] | None = Field(
        default=None, description="What its maintainers do for it."
    )
    eol: date | None = Field(default=None, description="Day on which its maintenance ends.")
    patches: list[Version] = Field(default_factory=no_items, description="Known patch releases, newest first.")
    avoid: dict[Annotated[str, AfterValidator(_span)], str] = Field(
        default_factory=dict, description="Patch releases to avoid, by version or `A - B`, with the reason."
    )
    etcd: Version | None = Field(default=None, description="etcd of `etcd.type: kubexm`.")
    kubeadm_etcd: Version | None = Field(default=None, description="etcd that kubeadm runs as a static pod.")
    min_external_etcd: Version | None = Field(default=None, description="Oldest etcd that kubeadm accepts.")
    coredns: Version | None = Field(default=None, description="CoreDNS.")
    pause: str | None = Field(default=None, description="Tag of the pause image.")
    crictl: Version | None = Field(default=None, description="crictl.")
    cni_plugins: Version | None = Field(default=None, description="CNI plugins.")
    containerd: list[VersionRange] = Field(default_factory=no_items, description="Recommended ranges of containerd.")
    min_containerd: Version | None = Field(default=None, description="Oldest containerd that works.")
    calico: list[VersionRange] = Field(default_factory=no_items, description="Ranges of Calico.")
    cilium: list[VersionRange] = Field(default_factory=no_items, description="Ranges of Cilium.")
    flannel: list[VersionRange] = Field(default_factory=no_items, description="Ranges of Flannel.")


class UpgradeFloorSpec(Model):
    """The oldest release of a minor from which an upgrade to the next one may start."""

    from_: Minor = Field(alias="from", description="Minor version before the upgrade.")
    to: Minor = Field(description="Minor version after it.")
    needs: Version = Field(description="Oldest release to start from.")


class ArtifactSpec(Model):
    """A file of a project, for each version and architecture."""

    url: UrlPattern | None = Field(default=None, description="Its address, with `{version}` and `{arch}`.")
    sums: UrlPattern | None = Field(
        default=None, description="Address of its published digests, with `{version}`, `{arch}` and `{url}`."
    )
    files: dict[str, str] = Field(
        default_factory=dict, description="Programs in an archive, and their paths in it (globs)."
    )
    sha256: dict[Version, dict[Name, Sha256]] = Field(
        default_factory=dict, description="By version and architecture its digest; newest first."
    )
    size: dict[Version, dict[Name, int]] = Field(
        default_factory=dict, description="By version and architecture its size in bytes."
    )


class ImageSpec(Model):
    """A container image."""

    ref: str | None = Field(default=None, description="Its reference, with `{version}`.")
    versions: list[str] = Field(
        default_factory=no_items, description="Known versions, newest first, if no other row names them."
    )
    digests: dict[str, ImageDigest] = Field(default_factory=dict, description="By version its digest.")


class ManifestImageSpec(Model):
    """An image that a manifest names."""

    ref: str = Field(min_length=1, description="Its reference.")
    digest: ImageDigest | None = Field(default=None, description="Its digest.")


class ManifestSpec(Model):
    """A manifest of a project in one version."""

    url: UrlPattern | None = Field(default=None, description="Its address, with `{version}`.")
    sha256: Sha256 | None = Field(default=None, description="Its digest.")
    size: int | None = Field(default=None, ge=0, description="Its size in bytes.")
    images: list[
        Annotated[ManifestImageSpec, BeforeValidator(_image, json_schema_input_type=ManifestImageSpec | str)]
    ] = Field(default_factory=no_items, description="The images that it names.")


class UpgradesSpec(Model):
    """What upgrades have to keep to."""

    etcd: list[UpgradeFloorSpec] = Field(default_factory=no_items, description="Floors of etcd.")


class VersionsDocument(Model):
    """Versions that go together, and files with their digests; a document of yours is merged with the shipped one."""

    api_version: Literal["kubexm.io/v1"] = Field(description="Version of the format.")
    kind: Literal["Versions"] = Field(description="Kind of the document.")
    metadata: Metadata = Field(description="Name and description of the document.")
    kubernetes: dict[Minor, MinorSpec] = Field(
        default_factory=dict, description="By minor version (in quotes) what goes with it; newest first."
    )
    upgrades: UpgradesSpec = Field(default_factory=UpgradesSpec, description="What upgrades have to keep to.")
    artifacts: dict[Name, ArtifactSpec] = Field(default_factory=dict, description="Files by name.")
    images: dict[Name, ImageSpec] = Field(default_factory=dict, description="Container images by name.")
    manifests: dict[Name, dict[Version, ManifestSpec]] = Field(
        default_factory=dict, description="Manifests by project and version; newest first."
    )
    mirrors: dict[str, str] = Field(
        default_factory=dict, description="By the beginning of an address the one to use instead."
    )

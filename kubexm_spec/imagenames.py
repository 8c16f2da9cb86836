"""Names of container images: registry, repository, tag and digest, as containerd wants them in whole."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NAME: Final = re.compile(
    r"(?:[a-z0-9.-]+\.[a-z0-9.-]+(?::\d+)?|localhost(?::\d+)?|[a-z0-9.-]+:\d+|\[[0-9a-f:.]+\](?::\d+)?)"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)+"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


class ImageName(NamedTuple):
    """The parts of a whole name."""

    registry: str
    repository: str
    tag: str
    digest: str
    """Such as sha256:...; empty if the name has none."""

    @property
    def tagged(self) -> str:
        """The name without its digest; empty if it has no tag."""
        return f"{self.registry}/{self.repository}:{self.tag}" if self.tag else ""

    def pinned(self, digest: str) -> str:
        """The name by a digest alone."""
        return f"{self.registry}/{self.repository}@{digest}"


def image_problem(name: str) -> str:
    """What is wrong with the name of an image, or an empty text."""
    if _NAME.fullmatch(name) is None:
        return f"{name!r} is not the whole name of an image, such as docker.io/library/nginx:1.27"
    if ":" not in name.rpartition("/")[2]:
        return f"{name!r} has neither a tag nor a digest, such as :1.27 or @sha256:..."
    return ""


def image_name(name: str) -> ImageName:
    """The parts of a name without problems."""
    place, _, digest = name.partition("@")
    registry, _, path = place.partition("/")
    repository, _, tag = path.partition(":")
    return ImageName(registry, repository, tag, digest)

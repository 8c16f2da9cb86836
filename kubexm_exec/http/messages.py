"""Requests, replies and errors, and how addresses are checked and shown."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct

AGENT: Final = "kubexm"
BODY_LIMIT: Final = 1 << 20
"""Bytes of an answer that are read; the rest is cut off."""
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes of transient errors."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORTS: Final = {"http": 80, "https": 443}


class HttpError(Exception):
    """There was no usable answer. It never has a header, a query or a body."""

    def __init__(self, reason: str, hint: str = "", *, passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.passing = passing
        """Whether it may be transient."""


class EndedError(HttpError):
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a server."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the user, which may be secrets: no other server gets them."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Headers of the program, which are not secret."""
    body: bytes | None = field(default=None, repr=False)

    def lines(self) -> dict[str, str]:
        """All headers; those of the user have priority. Raises HttpError for one that cannot be sent."""
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name):
                raise HttpError(f"{name!r} is not a valid name of a header")
            if _CONTROL.search(value):
                raise HttpError(f"the header {name} has a line break or another control character")
        given = {name.lower() for name in self.headers}
        kept = {name: value for name, value in self.own.items() if name.lower() not in given}
        return {"User-Agent": AGENT, **kept, **self.headers} if "user-agent" not in given else {**kept, **self.headers}


class Reply(Struct, frozen=True):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """At most its first mebibyte."""
    url: str

    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


def check_url(url: str) -> str:
    """The URL, if it can be requested; ValueError says what is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL that starts with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with user and password is not accepted; use an Authorization header with a secret")
    _ = parts.port
    return url


def shown_url(url: str) -> str:
    """A URL without parts that may be secret."""
    head, mark, _ = url.partition("?")
    scheme, sep, rest = head.partition("://")
    rest = rest.rpartition("@")[2] if "@" in rest.partition("/")[0] else rest
    return f"{scheme}{sep}{rest}" + ("?..." if mark else "")


def plain_url(url: str) -> str:
    """The URL as it is sent: ASCII, without spaces and without a fragment."""
    parts = urlsplit(url)
    place = parts.netloc
    if not place.isascii():
        place = place.encode("idna").decode()
    path, query = quote(parts.path, safe=string.punctuation), quote(parts.query, safe=string.punctuation)
    return urlunsplit((parts.scheme, place, path, query, ""))


def origin(url: str) -> tuple[str, str, int]:
    """The server behind a URL: scheme, host and port."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme, 0)

"""Where a redirect may lead, and which part of a request follows it (RFC 9110, 15.4, and stricter)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urljoin, urlsplit

from kubexm_exec.http.messages import HttpError, Request, check_url, origin, plain_url, shown_url

MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class RedirectError(HttpError):
    """A redirect that is not followed."""


def redirected(request: Request, status: int, location: str, seen: int) -> Request | None:
    """The redirected request, or None; another server gets no user headers and no body. Raises RedirectError."""
    if status not in _REDIRECTS or not location:
        return None
    try:
        url = plain_url(urljoin(request.url, location.strip()))
        check_url(url)
    except ValueError:
        scheme = location.strip().partition(":")[0][:20]
        raise RedirectError(
            f"{shown_url(request.url)} leads to an address that is not followed ({scheme!r})",
            "only http:// and https:// addresses without a password are followed",
        ) from None
    where = f"{shown_url(request.url)} leads to {shown_url(url)}"
    if seen >= MOST_REDIRECTS:
        raise RedirectError(f"{where} after {MOST_REDIRECTS} other redirects", "check where its address leads")
    if urlsplit(request.url).scheme == "https" and urlsplit(url).scheme != "https":
        raise RedirectError(f"{where}, which is not encrypted", "use the https address that it should lead to")
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        request = replace(request, headers=_of_a_question(request.headers), own=_of_a_question(request.own))
    if origin(url) == origin(request.url):
        return replace(request, method=method, url=url, body=body)
    if method not in _SAFE or body is not None:
        raise RedirectError(
            f"{where}, another server, to which the {method} is not sent",
            "if you want that, give its address in the spec",
        )
    return replace(request, method=method, url=url, body=body, headers={})


def _of_a_question(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers without those of a body."""
    return {name: value for name, value in headers.items() if not name.lower().startswith("content-")}

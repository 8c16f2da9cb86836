"""Fetches over http and https: ranges, few redirects, proxies from the environment, certificates always checked."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import IO, Any, Final
from urllib.parse import urlsplit

from kubexm_exec.resources.source import ResourceError, Source, shown_url
from kubexm_exec.resources.transfer import Answer, BrokenError, NotModifiedError

MOST_REDIRECTS: Final = 5
_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_HINTS: Final = {
    401: "it wants to know who asks: give it `headers` with {{ secret('env:NAME') }}",
    403: "it does not let you have it: look at its `headers` and the rights of whoever asks",
    404: "there is no such file: look at the address, and at the version in it",
    407: "the proxy wants a password: look at https_proxy in the environment",
    410: "it was taken away for good: look for a newer version",
}


class WebFetcher:
    """Files behind http:// and https:// addresses."""

    @contextlib.contextmanager
    def open(self, source: Source, *, start: int = 0, validator: str = "", unless: str = "") -> Iterator[Answer]:
        """Ask for the file."""
        headers = {"User-Agent": "kubexm", "Accept": "*/*", "Accept-Encoding": "identity", **source.headers}
        if start:
            headers["Range"] = f"bytes={start}-"
            if validator:
                headers["If-Range"] = validator
        elif unless:
            headers["If-None-Match" if _is_tag(unless) else "If-Modified-Since"] = unless
        try:
            with self._ask(source, headers) as reply:
                yield _answer(source, reply, start)
        except _RestartError:
            with self.open(source, unless="") as answer:
                yield answer

    @contextlib.contextmanager
    def _ask(self, source: Source, headers: dict[str, str]) -> Iterator[Any]:
        request = urllib.request.Request(source.location)  # noqa: S310 - the scheme was checked
        for name, value in headers.items():
            request.add_header(name, value)
        opener = _opener(source, frozenset(name.capitalize() for name in source.headers))
        try:
            try:
                reply: Any = opener.open(request, timeout=source.timeout)
            except urllib.error.HTTPError as error:
                reply = error
        except urllib.error.URLError as error:
            raise _reason(source, error.reason) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _reason(source, error) from error
        with reply:
            yield reply


class _RestartError(Exception):
    """What is here does not fit what is there any more."""


def _is_tag(validator: str) -> bool:
    return validator.startswith(('"', "W/"))


def _answer(source: Source, reply: Any, start: int) -> Answer:
    status: int = reply.status
    if status == 304:
        raise NotModifiedError
    shown = _RANGE.fullmatch(reply.headers.get("Content-Range", ""))
    if status == 416 and start:
        # All of it is here already, if the whole is as long as what is here.
        if shown is not None and shown[2] == str(start):
            return Answer(lambda _: b"", start, start, _validator(reply))
        raise _RestartError
    if status == 206 and start:
        if shown is None or shown[1] != str(start):
            raise _RestartError
        total = None if shown[2] == "*" else int(shown[2])
        return Answer(_reader(source, reply), start, total, _validator(reply))
    if status == 200:
        length = reply.headers.get("Content-Length", "")
        return Answer(_reader(source, reply), 0, int(length) if length.isdecimal() else None, _validator(reply))
    said = f"the server answered {status} {reply.reason or ''}".rstrip()
    if status in _PASSING:
        raise BrokenError(said, "the server is busy or broken: try again later")
    raise ResourceError(f"resource {source.label}: {source.shown}: {said}", _HINTS.get(status, "look at its address"))


def _validator(reply: Any) -> str:
    """The name of the version; a weak one says that two are alike, not that their bytes are the same."""
    tag: str = reply.headers.get("ETag", "")
    if tag and not tag.startswith("W/"):
        return tag
    return str(reply.headers.get("Last-Modified", ""))


def _reader(source: Source, reply: Any) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            # Whatever is there, so that a slow server's progress is seen.
            data: bytes = reply.read1(size)
            return data
        except http.client.IncompleteRead as error:
            raise BrokenError("the connection ended in the middle") from error
        except (OSError, http.client.HTTPException) as error:
            reason = _reason(source, error)
            raise reason if isinstance(reason, BrokenError) else BrokenError(str(reason)) from error

    return read


def _opener(source: Source, secret: frozenset[str]) -> urllib.request.OpenerDirector:
    # Built by hand: urllib's own opener would also open file: and ftp: addresses that a server redirects to.
    opener = urllib.request.OpenerDirector()
    local = urlsplit(source.location).hostname in ("127.0.0.1", "::1", "localhost")
    for handler in (
        urllib.request.ProxyHandler({} if local else None),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_tls(source)),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(source, secret),
    ):
        opener.add_handler(handler)
    return opener


def _tls(source: Source) -> ssl.SSLContext:
    try:
        return _trust(source.ca_file)
    except FileNotFoundError:
        raise ResourceError(
            f"resource {source.label}: there is no CA file {source.ca_file}", "look at its `caFile`"
        ) from None
    except (ssl.SSLError, OSError) as error:
        raise ResourceError(
            f"resource {source.label}: {source.ca_file} is no file of CA certificates: {error.strerror or error}",
            "it holds certificates in PEM form",
        ) from error


@lru_cache(maxsize=16)
def _trust(ca_file: str) -> ssl.SSLContext:
    """Whom to trust; reading the system's CAs takes longer than a small download."""
    return ssl.create_default_context(cafile=ca_file or None)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects to other web addresses, never from https to http, and tells another host no secrets."""

    max_repeats = max_redirections = MOST_REDIRECTS

    def __init__(self, source: Source, secret: frozenset[str]) -> None:
        self._source = source
        self._secret = secret

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        refused = self._refused(req, newurl)
        if refused is not None:
            fp.close()
            raise refused
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None:
            # urllib keeps the headers of the first request only in part.
            for name, value in req.headers.items():
                if name not in self._secret or _same_place(req.full_url, newurl):
                    new.add_header(name, value)
                else:
                    new.remove_header(name)
        return new

    def _refused(self, req: urllib.request.Request, newurl: str) -> ResourceError | None:
        where = f"resource {self._source.label}: {self._source.shown} leads to {shown_url(newurl)}"
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            return ResourceError(f"{where}, which is not encrypted", "ask for the https address that it should lead to")
        if len(getattr(req, "redirect_dict", {})) >= MOST_REDIRECTS:
            return ResourceError(f"{where} after {MOST_REDIRECTS} other redirects", "look where its address leads to")
        return None


def _same_place(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.port) == (second.scheme, second.hostname, second.port)


def _reason(source: Source, error: object) -> Exception:
    """What a failure means: a no that stays one, or something that may pass."""
    match error:
        case ResourceError():
            return error
        case ssl.SSLCertVerificationError():
            return ResourceError(
                f"resource {source.label}: the certificate of {source.shown} is not trusted: {error.verify_message}",
                "name the CA that signed it in `caFile`",
            )
        case ssl.SSLError():
            return BrokenError(f"TLS failed: {error.reason or error}", "does the server speak https on this port?")
        case ConnectionRefusedError():
            return BrokenError("connection refused", "nothing listens there: is the address right, is the server up?")
        case TimeoutError():
            return BrokenError(
                f"no answer within {source.timeout:g}s", "is there a way to it? A proxy is named by https_proxy"
            )
        case socket.gaierror():
            return BrokenError(
                f"the name does not resolve: {error.strerror}",
                "look at the host in the address; without a network, use a bundle: --bundle FOLDER",
            )
        case OSError():
            return BrokenError((error.strerror or str(error)).lower())
        case _:
            return BrokenError(str(error) or type(error).__name__)

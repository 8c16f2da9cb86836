"""HTTP from the control node: one request with a deadline that can be given up at any moment."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import IO, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from kubexm_exec.step import StepContext, StepFailed

BODY_LIMIT: Final = 1 << 20
_LOOKS_A_SECOND: Final = 20
_SECRET_HEADERS: Final = ("Authorization", "Cookie", "Proxy-authorization")
T = TypeVar("T")


class Reply(Struct, frozen=True):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """At most its first mebibyte."""
    url: str

    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


class HttpError(Exception):
    """There was no answer."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def check_url(url: str) -> str:
    """The URL, if it is one that can be asked; ValueError says what is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL that starts with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with user and password in it is not taken; use an Authorization header with a secret")
    _ = parts.port
    return url


def tls_context(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    """How servers are trusted: as the system does, by a CA of one's own, or blindly."""
    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: float,
    context: ssl.SSLContext | None = None,
    follow: bool = True,
) -> Reply:
    """One request; any status is an answer. Raises HttpError."""
    # Built by hand: urllib's own opener would also open file: and ftp: addresses that a server redirects to.
    opener = urllib.request.OpenerDirector()
    local = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.ProxyHandler({} if local else None),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context or tls_context(None, False)),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ]
    if follow:
        handlers.append(_Redirects())
    for handler in handlers:
        opener.add_handler(handler)
    over = time.monotonic() + timeout
    try:
        asked = urllib.request.Request(url, data=body, headers=dict(headers), method=method)  # noqa: S310  # by check_url
        try:
            answer = opener.open(asked, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return Reply(
                answer.status,
                {name.lower(): value for name, value in answer.headers.items()},
                _read(answer, over),
                answer.url,
            )
    except urllib.error.URLError as error:
        raise _reason(error.reason) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _reason(error) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to other web addresses, and tells another host no secrets."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and new.host != req.host:
            for name in _SECRET_HEADERS:
                new.remove_header(name)
        return new


def _read(answer: IO[bytes], over: float) -> bytes:
    """The body up to the limit; a server that drips it out byte by byte is given up at the deadline."""
    body = bytearray()
    while len(body) < BODY_LIMIT:
        if time.monotonic() > over:
            raise TimeoutError("timed out")
        chunk = answer.read(min(1 << 16, BODY_LIMIT - len(body)))
        if not chunk:
            break
        body += chunk
    return bytes(body)


def _reason(error: object) -> HttpError:
    match error:
        case ssl.SSLCertVerificationError():
            return HttpError(
                f"its certificate is not trusted: {error.verify_message}",
                "name the CA that signed it in `caFile`; `insecure: true` only where it does not matter",
            )
        case ssl.SSLError():
            return HttpError(f"TLS failed: {error.reason or error}", "does the server speak https on this port?")
        case ConnectionRefusedError():
            return HttpError("connection refused", "nothing listens there: is the service up, is the port right?")
        case TimeoutError():
            return HttpError("no answer in time", "give it a longer `timeout`, or find out what holds it up")
        case socket.gaierror():
            return HttpError(f"the name does not resolve: {error.strerror}", "look at the host in the URL")
        case OSError():
            return HttpError((error.strerror or str(error)).lower())
        case _:
            return HttpError(str(error) or type(error).__name__)


def patiently(ctx: StepContext, work: Callable[[], T]) -> T:
    """Do something that blocks, in a thread, and leave it behind when the run is cancelled or the step's time is over.

    What is left behind ends with its own timeout and touches nothing of ours.
    """
    done = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # it is raised again, in the thread that waits
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=target, name="kubexm-request", daemon=True).start()
    while not done.wait(1 / _LOOKS_A_SECOND):
        ctx.sleep(0)
    if errors:
        raise errors[0]
    return results[0]


def failed(what: str, error: HttpError) -> StepFailed:
    """The failure that a missing answer is."""
    return StepFailed(f"{what}: {error.reason}", hint=error.hint)

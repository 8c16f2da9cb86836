"""The client of the control node, on urllib3: one exchange after the other, with a deadline and a cancel."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import itertools
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import urllib3
from msgspec import Struct
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError, ProxyError
from urllib3.exceptions import TimeoutError as LateError

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.http.attempts import LEAST_SPEED
from kubexm_exec.http.messages import BODY_LIMIT, EndedError, HttpError, Reply, Request, plain_url, shown_url
from kubexm_exec.http.redirects import redirected
from kubexm_exec.model.errors import CommandCancelled

_CHUNK: Final = 1 << 16


class Trust(Struct, frozen=True):
    """How servers are trusted: by the CAs of the system, by a CA of your own, or always."""

    ca_file: str = ""
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The context for TLS; raises HttpError if the file has no certificates."""
        try:
            return _context(self.ca_file, self.insecure)
        except FileNotFoundError:
            raise HttpError(f"there is no CA file {self.ca_file}", "check `caFile`") from None
        except OSError as error:  # also ssl.SSLError: the file has no certificate
            raise HttpError(
                f"caFile {self.ca_file}: it is not a file of CA certificates: {error.strerror or error}",
                "give a file with certificates in PEM format",
            ) from error


@lru_cache(maxsize=16)
def _context(ca_file: str, insecure: bool) -> ssl.SSLContext:
    """Cached: to read the CAs of the system takes longer than a small download."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Response(Struct, frozen=True):
    """The head of an answer, and a reader of its body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case."""
    url: str
    read: Callable[[int], bytes]
    """Returns at most so many bytes, as they are on the wire; none at the end. Raises HttpError, CommandCancelled."""


def fetch(
    request: Request,
    *,
    timeout: float,
    trust: Trust | None = None,
    follow: bool = True,
    cancel: Cancel | None = None,
) -> Reply:
    """One answer with its body, all of it within ``timeout``; any status is an answer. Raises HttpError."""
    with ask(
        request, silence=timeout, trust=trust, follow=follow, deadline=Deadline.after(timeout), cancel=cancel
    ) as response:
        body = bytearray()
        while len(body) < BODY_LIMIT and (data := response.read(min(_CHUNK, BODY_LIMIT - len(body)))):
            body += data
        return Reply(response.status, response.headers, bytes(body), response.url)


@contextlib.contextmanager
def ask(
    request: Request,
    *,
    silence: float,
    trust: Trust | None = None,
    follow: bool = True,
    deadline: Deadline | None = None,
    cancel: Cancel | None = None,
) -> Iterator[Response]:
    """Send a request, follow redirects, yield the answer. ``silence``: the longest pause. Raises HttpError."""
    trust = trust or Trust()
    for seen in itertools.count():
        with _exchange(request, trust, silence, deadline or Deadline(), cancel or Cancel()) as response:
            location = response.headers.get("location", "")
            further = redirected(request, response.status, location, seen) if follow else None
            if further is None:
                yield response
                return
            request = further


@contextlib.contextmanager
def _exchange(request: Request, trust: Trust, silence: float, deadline: Deadline, cancel: Cancel) -> Iterator[Response]:
    lines = {name: value.encode("utf-8", "surrogateescape") for name, value in request.lines().items()}
    url = plain_url(request.url)
    with contextlib.ExitStack() as stack:
        guard = stack.enter_context(_Guard(url, silence, deadline, cancel))
        manager = stack.enter_context(contextlib.closing(_Manager(url, trust, guard)))
        with guard.within(silence):
            reply = stack.enter_context(contextlib.closing(manager.send(request.method, lines, request.body)))
        headers = {name.lower(): value for name, value in reply.headers.items()}
        yield Response(reply.status, reply.reason or "", headers, request.url, _reader(reply, guard, silence))


def _reader(reply: Any, guard: _Guard, silence: float) -> Callable[[int], bytes]:
    """Reads what has arrived, so that progress of a slow server is seen, and one below the least speed is given up."""
    arrived, used = 0, 0.0

    def read(size: int) -> bytes:
        nonlocal arrived, used
        if arrived >= LEAST_SPEED:
            arrived, used = 0, 0.0
        began = time.monotonic()
        with guard.within(silence - used):
            data: bytes = reply.read1(size)
        used += time.monotonic() - began
        arrived += len(data)
        return data

    return read


class _Manager:
    """One connection to a server, or to its proxy."""

    def __init__(self, url: str, trust: Trust, guard: _Guard) -> None:
        self._url = url
        self._guard = guard
        more: dict[str, Any] = {"num_pools": 1, "maxsize": 1, "retries": False}
        if url.startswith("https:"):
            more["ssl_context"] = trust.context()
        proxy = _proxy(url)
        self._manager = _proxy_manager(proxy, more) if proxy else urllib3.PoolManager(**more)

    def send(self, method: str, headers: Mapping[str, Any], body: bytes | None) -> Any:
        pool = self._manager.connection_from_url(self._url)
        pool.ConnectionCls = _secure(self._guard) if pool.scheme == "https" else _plain(self._guard)
        patience = self._guard.patience()
        return self._manager.urlopen(
            method,
            self._url,
            headers=headers,
            body=body,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(connect=patience, read=patience),
        )

    def close(self) -> None:
        self._manager.clear()


class _Head:
    """The head of an answer, which must end with an empty line: http.client also accepts the end of the connection."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._begun = False

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(size)
        if self._begun and not line.endswith(b"\n") and len(line) < size:
            raise http.client.IncompleteRead(line)
        self._begun = True
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Answer(http.client.HTTPResponse):
    """An answer with a complete head and only one length."""

    fp: Any

    def begin(self) -> None:
        file, self.fp = self.fp, _Head(self.fp)
        super().begin()
        self.fp = file
        lengths = {each.strip() for line in self.headers.get_all("Content-Length", []) for each in line.split(",")}
        if len(lengths) > 1 or not all(each.isdecimal() for each in lengths):
            raise http.client.HTTPException("Content-Length")


def _plain(guard: _Guard) -> type[HTTPConnection]:
    class Plain(HTTPConnection):
        response_class = _Answer

        def _new_conn(self) -> socket.socket:
            return guard.watch(super()._new_conn())

    return Plain


def _secure(guard: _Guard) -> type[HTTPSConnection]:
    class Secure(HTTPSConnection):
        response_class = _Answer

        def _new_conn(self) -> socket.socket:
            return guard.watch(super()._new_conn())

        def connect(self) -> None:
            super().connect()
            # No warning about `insecure: true`.
            self.is_verified = True

    return Secure


class _Guard:
    """Ends an exchange from outside: on a cancel, at its deadline, and when the server is too slow.

    The timeout of a library starts again with every byte, so that a slow server could block it for ever.
    """

    def __init__(self, url: str, silence: float, deadline: Deadline, cancel: Cancel) -> None:
        self._url = url
        self._silence = silence
        self._deadline = deadline
        self._cancel = cancel
        self._news = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._due: float | None = None
        self._wakes = 0.0
        self._ended = self._closed = False
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> _Guard:
        self._remove = self._cancel.on_set(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        with self._news:
            self._closed = True
            self._news.notify_all()
            for each in self._sockets:
                each.close()

    def patience(self) -> float:
        """Seconds for the next blocking call."""
        left = self._deadline.left()
        return max(0.001, self._silence if left is None else min(self._silence, left))

    def watch(self, connected: socket.socket) -> socket.socket:
        """Watch a connection; its time starts now, after that for connecting."""
        with self._news:
            # A copy: TLS takes over the descriptor of the socket.
            self._sockets.append(connected.dup())
            if self._due is not None:
                self._due = time.monotonic() + self.patience()
            ended = self._ended
        if ended or self._cancel.is_set():
            self._end()
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="kubexm-http-guard", daemon=True)
            self._watcher.start()
        return connected

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the time of what is inside; raises HttpError or CommandCancelled."""
        self._check()
        left = self._deadline.left()
        with self._news:
            self._due = time.monotonic() + (seconds if left is None else min(seconds, left))
            if self._due < self._wakes:
                self._news.notify_all()
        try:
            yield
        except (HTTPError, OSError, http.client.HTTPException, ValueError) as error:
            self._check()
            cause = _cause(error)
            if isinstance(cause, TimeoutError | LateError):
                raise self._late() from error
            raise _reason(cause, isinstance(error, ProxyError)) from error
        finally:
            with self._news:
                self._due = None
        self._check()

    def _check(self) -> None:
        if self._cancel.is_set():
            raise CommandCancelled(f"while asking {shown_url(self._url)}")
        if self._ended or self._deadline.passed():
            raise self._late()

    def _late(self) -> HttpError:
        said = "no answer in time" if self._deadline.at is not None else f"no answer within {self._silence:g}s"
        hint = "use a longer `timeout`, or find out what delays it; a proxy is set by https_proxy"
        return HttpError(said, hint, passing=True)

    def _watch(self) -> None:
        with self._news:
            while not self._closed:
                now = time.monotonic()
                if self._due is not None and self._due <= now:
                    break
                # It wakes rarely, not for each piece of a body.
                self._wakes = self._due if self._due is not None else now + self._silence
                self._news.wait(self._wakes - now)
        self._end()

    def _end(self) -> None:
        with self._news:
            self._ended = True
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


# proxies


def _proxy(url: str) -> str:
    """The proxy of the environment for a URL; none for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host):
        return ""
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all", "")
    if not found or urllib.request.proxy_bypass(parts.netloc):
        return ""
    return found if "://" in found else f"http://{found}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy_manager(proxy: str, more: Mapping[str, Any]) -> urllib3.ProxyManager:
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HttpError(
            f"the proxy {shown_url(proxy)} does not start with http:// or https://",
            "check http_proxy, https_proxy and all_proxy in the environment",
        )
    place = parts.netloc.rpartition("@")[2]
    headers = None
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=login)
    return urllib3.ProxyManager(f"{parts.scheme}://{place}", proxy_headers=headers, **more)


# failures


def _cause(error: BaseException) -> BaseException:
    while True:
        inner = error.__cause__ if isinstance(error, NewConnectionError) else None
        inner = inner or next((each for each in reversed(error.args) if isinstance(each, BaseException)), None)
        if inner is None or not isinstance(error, HTTPError):
            return error
        error = inner


def _reason(cause: BaseException, by_proxy: bool) -> HttpError:
    """The error for a failure, without anything that was sent or received."""
    through = "the proxy: " if by_proxy else ""
    match cause:
        case HttpError():
            return cause
        case ssl.SSLCertVerificationError():
            return HttpError(
                f"{through}its certificate is not trusted: {cause.verify_message}",
                "give the CA that signed it as `caFile`",
            )
        case ssl.SSLError():
            said = f"{through}TLS failed: {cause.reason or 'no handshake'}"
            return HttpError(said, "does the server speak https on this port?", passing=True)
        case ConnectionRefusedError():
            said = f"{through}connection refused"
            return HttpError(said, "nothing listens there: is the address right, is the service up?", passing=True)
        case socket.gaierror():
            return HttpError(
                f"{through}the name does not resolve: {cause.strerror}",
                "check the host in the address",
                passing=True,
            )
        case http.client.IncompleteRead() | http.client.RemoteDisconnected():
            return EndedError(f"{through}the connection ended in the middle", passing=True)
        case http.client.HTTPException() | HTTPError() | ValueError():
            return HttpError(
                f"{through}the answer is not HTTP ({type(cause).__name__})",
                "does a web server listen on this port?",
                passing=True,
            )
        case OSError():
            words = cause.strerror or (str(cause.args[0]) if cause.args else type(cause).__name__)
            return HttpError(f"{through}{words.lower()}", passing=True)
        case _:
            return HttpError(f"{through}{type(cause).__name__}")

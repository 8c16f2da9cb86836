"""A real web server on this machine with ranges, versions and faults to order."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Page:
    """A file of the server, and how it behaves."""

    content: bytes
    etag: str = '"v1"'
    modified: str = ""
    ranges: bool = True
    length: bool = True
    """Whether the server says how long it is; else it is sent in chunks."""
    needs: dict[str, str] = field(default_factory=dict)
    """Headers without which the answer is 401."""
    drops: list[int] = field(default_factory=list)
    """For each of the next answers: cut the connection after so many bytes."""
    statuses: list[int] = field(default_factory=list)
    """For each of the next requests: answer this and nothing else."""
    hold: threading.Event | None = None
    """Wait for this in the middle."""
    held: threading.Event = field(default_factory=threading.Event)

    def is_known(self, headers: dict[str, str]) -> bool:
        """Whether whoever asks has this version already."""
        tag, date = headers.get("if-none-match"), headers.get("if-modified-since")
        return (tag is not None and tag == self.etag) or (date is not None and date == self.modified)


@dataclass
class Web:
    """The server, and what it was asked."""

    port: int = 0
    scheme: str = "http"
    pages: dict[str, Page] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def url(self, path: str = "/tool.bin") -> str:
        """The address of a page."""
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def add(self, content: bytes, path: str = "/tool.bin", **options: Any) -> Page:
        """Another page."""
        self.pages[path] = Page(content, **options)
        return self.pages[path]

    def ranges(self) -> list[str]:
        """The ranges that were asked for, empty for the whole."""
        return [headers.get("range", "") for _, headers in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.web.asked.append((self.path, headers))
        self.close_connection = True
        if self.path in self.web.redirects:
            self._status(302, {"Location": self.web.redirects[self.path]})
            return
        page = self.web.pages.get(self.path.partition("?")[0])
        if page is None:
            self._status(404)
        elif page.statuses:
            self._status(page.statuses.pop(0))
        elif any(headers.get(name.lower()) != value for name, value in page.needs.items()):
            self._status(401)
        elif page.is_known(headers):
            self._status(304)
        else:
            self._content(page, headers)

    def do_HEAD(self) -> None:
        page = self.web.pages.get(self.path.partition("?")[0])
        self._status(404 if page is None else 200, {"Content-Length": str(len(page.content) if page else 0)})

    def _status(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _content(self, page: Page, headers: dict[str, str]) -> None:
        start = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        fits = headers.get("if-range", page.etag or page.modified) == (page.etag or page.modified)
        if wanted and page.ranges and fits:
            start = int(wanted[1])
            if start >= len(page.content):
                self._status(416, {"Content-Range": f"bytes */{len(page.content)}"})
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(page.content) - 1}/{len(page.content)}")
        if page.etag:
            self.send_header("ETag", page.etag)
        if page.modified:
            self.send_header("Last-Modified", page.modified)
        body = page.content[start:]
        self.send_header(*(("Content-Length", str(len(body))) if page.length else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        cut = page.drops.pop(0) if page.drops else None
        if page.hold is not None:
            self._send(page, body[: len(body) // 2])
            page.held.set()
            page.hold.wait(30)
            body = body[len(body) // 2 :]
        self._send(page, body if cut is None else body[:cut])
        if cut is not None:
            self.connection.shutdown(socket.SHUT_RDWR)
        elif not page.length:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, page: Page, data: bytes) -> None:
        if page.length or not data:
            self.wfile.write(data)
        else:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Quiet(ThreadingHTTPServer):
    request_queue_size = 100

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or does not trust us, is what some tests are about."""


@contextlib.contextmanager
def serve(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A server on a free port until the end of the ``with``."""
    web = Web(scheme="https" if context is not None else "http")
    server = _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": web}))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        for page in web.pages.values():
            if page.hold is not None:
                page.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


Behaviour = Callable[[socket.socket, dict[str, str], int], None]
"""Answers a request with these headers (names in lower case), the so manieth one."""


@dataclass
class Hostile:
    """A server that keeps no rule, and what it was sent."""

    port: int = 0
    asked: list[bytes] = field(default_factory=list)
    """The heads of all requests."""

    def url(self, path: str = "/tool.bin") -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def serve_raw(behaviour: Behaviour) -> Iterator[Hostile]:
    """A server that does with each connection what it likes, until the end of the ``with``."""
    hostile = Hostile()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            head = b""
            while b"\r\n\r\n" not in head and (data := connection.recv(1 << 16)):
                head += data
            if not head:
                return
            hostile.asked.append(head)
            lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            behaviour(connection, headers, len(hostile.asked))

    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        hostile.port = listener.getsockname()[1]

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield hostile
        finally:
            # close() alone does not wake a thread that waits in accept().
            listener.shutdown(socket.SHUT_RDWR)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A CA of one's own (which is the server's certificate too), and a server's context with it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, ca = folder / "key.pem", folder / "ca.pem"
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", ca,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, key)
    return ca, context

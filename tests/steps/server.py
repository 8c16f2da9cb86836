"""A small web server on this machine whose answers a test decides."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Site:
    """What it answers, by path, and what it was asked."""

    port: int = 0
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    """Pages below /hold wait for this."""
    held: threading.Event = field(default_factory=threading.Event)
    """Somebody waits there."""

    def url(self, path: str = "/", scheme: str = "http") -> str:
        """The address of a page."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def serve(context: ssl.SSLContext | None = None) -> Iterator[Site]:
    """A server on a free port until the end of the ``with``."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.asked.append((self.command, self.path, headers, body))
            if self.path.startswith("/hold"):
                site.held.set()
                site.hold.wait(30)
            status, more, content = site.pages.get(self.path, (404, {}, b"nothing here"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away, or does not trust us, is what some tests are about."""

    server = Quiet(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()

"""A stand-in for Vault on loopback: mounts, KV 1 and 2, AppRole and Kubernetes logins, tokens that run out."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "hvs.root-token-of-the-stand-in"
ROLE_ID, SECRET_ID = "role-of-kubexm", "secret-id-of-kubexm"
JWT = "header.claims-of-a-pod.signature"


class StandIn:
    """What the vault holds, and what it was asked."""

    def __init__(self) -> None:
        self.mounts = {"secret/": "2", "team/kv/": "2", "old/": "1"}
        self.secrets: dict[str, list[dict[str, Any]]] = {}
        self.tokens = {TOKEN}
        self.asked: list[str] = []
        self.hide_mounts = False
        self.sealed = False
        self.busy = 0
        """How many questions are answered with 503 before the first real answer."""
        self.url = ""

    def put(self, path: str, **data: Any) -> None:
        """A new version of a secret."""
        self.secrets.setdefault(path, []).append(data)

    def answer(self, method: str, url: str, body: dict[str, Any], token: str) -> tuple[int, Any]:
        """Status and data of one question."""
        parts = urlsplit(url)
        path = parts.path.removeprefix("/v1/")
        self.asked.append(f"{method} {path}")
        if self.busy:
            self.busy -= 1
            return 503, {"errors": ["busy"]}
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if path in ("auth/approle/login", "auth/kubernetes/login"):
            return self._login(path, body)
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        if path.startswith("sys/internal/ui/mounts/"):
            return self._mount(path.removeprefix("sys/internal/ui/mounts/"))
        mount = next((each for each in self.mounts if path.startswith(each)), None)
        if mount is None:
            return 404, {"errors": ["no handler for route"]}
        rest = path.removeprefix(mount)
        if self.mounts[mount] == "1":
            versions = self.secrets.get(path, [])
            return (200, {"data": versions[-1]}) if versions else (404, {"errors": []})
        versions = self.secrets.get(mount + rest.removeprefix("data/"), [])
        wanted = int(parse_qs(parts.query).get("version", ["0"])[0]) or len(versions)
        if not versions or wanted > len(versions):
            return 404, {"errors": []}
        return 200, {"data": {"data": versions[wanted - 1], "metadata": {"version": wanted}}}

    def _login(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        known = (
            (body.get("role_id"), body.get("secret_id")) == (ROLE_ID, SECRET_ID)
            if "approle" in path
            else (body.get("role"), body.get("jwt")) == ("deployer", JWT)
        )
        if not known:
            return 400, {"errors": ["invalid role or secret ID"]}
        token = f"hvs.by-login-number-{len(self.asked)}"
        self.tokens.add(token)
        return 200, {"auth": {"client_token": token}}

    def _mount(self, path: str) -> tuple[int, Any]:
        mount = next((each for each in self.mounts if path.startswith(each)), None)
        if mount is None or self.hide_mounts:
            return 403, {"errors": ["preflight capability check returned 403"]}
        options = {"version": "2"} if self.mounts[mount] == "2" else None
        return 200, {"data": {"path": mount, "type": "kv", "options": options}}


@contextlib.contextmanager
def stand_in(tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    """The server, while it is up."""
    vault = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, data = vault.answer(self.command, self.path, body, self.headers.get("X-Vault-Token", ""))
            raw = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    vault.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield vault
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

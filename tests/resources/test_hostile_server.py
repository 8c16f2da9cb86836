"""Everything that speaks HTTP against a hostile server: each user of HTTP, and each way to harm it."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.http import attempts
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.store import ResourceStore
from kubexm_exec.secrets import vault
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_steps.repository import RepositoryParams, load_key
from tests.resources.server import Behaviour, Hostile, certificate, serve, serve_raw
from tests.resources.test_download import gnu_wget, only_this

CONTENT = random.Random(5).randbytes(300_000)
OTHER = random.Random(6).randbytes(300_000)
SECRETS = {"Authorization": "Bearer s3cret", "X-Token": "s3cret", "Cookie": "a=s3cret"}
Get = Callable[..., bytes]
"""Gets what is behind a URL: its content, or StepFailed."""
KEEPS = ("store", "control", "curl", "wget")
"""Those that take up a transfer again."""


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(attempts, "LARGEST", 1 << 20)


@pytest.fixture(params=["http", "wait", "key", *KEEPS])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def get(user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Get]:
    worlds: list[StepTest] = []
    target = tmp_path / "host" / "tool"
    target.parent.mkdir()
    if user in ("curl", "wget"):
        found = shutil.which("curl") if user == "curl" else gnu_wget()
        if found is None:
            pytest.skip(f"there is no {user} here")
        only_this(tmp_path / "bin", monkeypatch, user, found)

    def world(kind: str, **with_: Any) -> StepTest:
        worlds.append(StepTest(tmp_path, kind, with_))
        return worlds[-1]

    def fetch(url: str, *, retries: int = 2, ca: str | None = None) -> bytes:
        if user == "http":
            more = {} if ca is None else {"caFile": ca}
            outputs = world("http", url=url, headers=SECRETS, timeout="1s", expect={"status": [200]}, **more).run()
            return str(outputs.outputs["body"]).encode("utf-8", "surrogateescape")
        if user == "wait":
            world("wait", url=url, deadline="1s", interval="200ms").run()
            return b""
        if user == "key":
            monkeypatch.setattr("kubexm_steps.repository._KEY_TIMEOUT", 1.0)
            params = RepositoryParams.model_validate({"name": "x", "url": url, "keyUrl": url, "fingerprint": "0" * 40})
            return load_key(world("wait", url=url)._make()[1], params) or b""
        if user == "store":
            source = Source.of_url("tool", url, headers=SECRETS, timeout=1.0, retries=retries, ca_file=ca or "")
            try:
                return ResourceStore().fetch(source).path.read_bytes()
            except ResourceError as error:
                raise StepFailed(error.message) from error
        more = {} if ca is None else {"caFile": ca}
        where = "control" if user == "control" else "host"
        world(
            "download", url=url, path=str(target), headers=SECRETS, timeout="1s", retries=retries, fetchOn=where, **more
        ).run()
        return target.read_bytes()

    yield fetch
    for each in worlds:
        each.close()


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Date: Tue, 17 Nov 2026 10:00:00 GMT", *lines, "", ""]).encode()


def whole(content: bytes, *lines: str) -> bytes:
    return head("200 OK", f"Content-Length: {len(content)}", "Connection: close", *lines) + content


def says(*answers: bytes) -> Behaviour:
    """Sends the first answer to the first request, and so on; the last one to all others."""

    def behaviour(connection: socket.socket, headers: dict[str, str], number: int) -> None:
        connection.sendall(answers[min(number, len(answers)) - 1])

    return behaviour


def redirect(location: str, status: str = "302 Found") -> Behaviour:
    return says(head(status, f"Location: {location}", "Content-Length: 0", "Connection: close"))


def start_of(headers: dict[str, str]) -> int:
    found = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
    return int(found[1]) if found else 0


# redirects


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_another_server_gets_no_header_of_the_user(user: str, get: Get, status: str) -> None:
    with serve_raw(says(whole(b"arrived"))) as other, serve_raw(redirect(other.url("/x?t=1"), status)) as first:
        assert get(first.url()) in (b"arrived", b"")
        assert len(other.asked) == 1
        assert b"s3cret" not in other.asked[0]
        assert user in ("wait", "key") or b"s3cret" in first.asked[0]


def test_headers_stay_away_when_another_server_leads_back(user: str, get: Get) -> None:
    def first(connection: socket.socket, headers: dict[str, str], number: int) -> None:
        connection.sendall(
            whole(b"arrived") if number > 1 else head("302 Found", f"Location: {there.url()}", "Content-Length: 0")
        )

    with serve_raw(first) as one, serve_raw(redirect(one.url("/chosen"))) as there:
        get(one.url())
        assert b"s3cret" not in one.asked[-1]


def test_a_circle_of_redirects_ends(user: str, get: Get) -> None:
    with serve_raw(redirect("/again")) as hostile:
        with pytest.raises(StepFailed, match="after 5 other redirects"):
            get(hostile.url(), retries=0)
        assert len(hostile.asked) <= (6 if user != "wait" else 60)


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:1/x", "http://a:b@127.0.0.1/", "javascript:1"],
)
def test_a_redirect_to_what_is_no_web_address_is_refused(get: Get, location: str) -> None:
    with serve_raw(redirect(location)) as hostile, pytest.raises(StepFailed, match="not followed"):
        get(hostile.url(), retries=0)


@pytest.mark.parametrize("user", ["http", *KEEPS], indirect=True)
def test_https_never_becomes_http(get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}/usr/bin")
    ca, context = certificate(folder)
    monkeypatch.setenv("PATH", path)
    with serve_raw(says(whole(b"plain"))) as plain, serve(context) as secure:
        secure.redirects["/tool.bin"] = plain.url()
        with pytest.raises(StepFailed, match="not encrypted"):
            get(secure.url(), ca=str(ca))
        assert plain.asked == []


# answers that are none


def drip_head(connection: socket.socket, headers: dict[str, str], number: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for index in range(400):
        connection.sendall(b"X-%d: y\r\n" % index)
        time.sleep(0.05)  # the attack itself


def drip_body(connection: socket.socket, headers: dict[str, str], number: int) -> None:
    connection.sendall(head("200 OK", f"Content-Length: {len(CONTENT)}", 'ETag: "v1"'))
    for index in range(400):
        connection.sendall(CONTENT[index : index + 1])
        time.sleep(0.05)  # the attack itself


def silent(connection: socket.socket, headers: dict[str, str], number: int) -> None:
    connection.recv(1)


def closes_early(connection: socket.socket, headers: dict[str, str], number: int) -> None:
    """Ten more bytes each time, for ever."""
    start = start_of(headers)
    part = CONTENT[start : start + 10]
    lines = ['ETag: "v1"', f"Content-Length: {len(CONTENT) - start}"]
    if start:
        lines.append(f"Content-Range: bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
    connection.sendall(head("206 Partial" if start else "200 OK", *lines) + part)


ATTACKS: dict[str, Behaviour] = {
    "garbage": says(b"\x00\xff hello s3cret\r\n\r\n"),
    "nothing": says(b""),
    "half a head": says(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "huge header": says(head("200 OK", "X: " + "y" * (2 << 20), "Content-Length: 1") + b"x"),
    "many headers": says(head("200 OK", *(f"X-{n}: {'y' * 1000}" for n in range(2000)), "Content-Length: 1") + b"x"),
    "two lengths": says(head("200 OK", "Content-Length: 5", "Content-Length: 50", "Connection: close") + b"12345"),
    "silence": silent,
    "dripping head": drip_head,
    "dripping body": drip_body,
    "early end": closes_early,
    "early end of a chunk": says(head("200 OK", "Transfer-Encoding: chunked", "Connection: close") + b"ff\r\nshort"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_whole_answer_is_a_failure_soon_and_after_few_requests(user: str, get: Get, attack: str) -> None:
    began = time.monotonic()
    with serve_raw(ATTACKS[attack]) as hostile:
        with pytest.raises(StepFailed) as caught:
            get(hostile.url(), retries=0 if "drip" in attack or attack == "silence" else 2)
        assert "s3cret" not in caught.value.message + caught.value.stderr + caught.value.stdout
        assert len(hostile.asked) <= (4 if user != "wait" else 20)
    assert time.monotonic() - began < 40


# bodies


def endless(connection: socket.socket, headers: dict[str, str], number: int) -> None:
    connection.sendall(head("200 OK", "Connection: close"))
    for _ in range(64):
        connection.sendall(bytes(1 << 18))


def test_an_endless_body_is_cut_or_refused(user: str, get: Get, tmp_path: Path) -> None:
    with serve_raw(endless) as hostile:
        if user in KEEPS:
            with pytest.raises(StepFailed):
                get(hostile.url(), retries=0)
        else:
            assert len(get(hostile.url())) in (1 << 20, 0)
    largest = max((path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()), default=0)
    assert largest <= 2 << 20


@pytest.mark.parametrize("user", KEEPS, indirect=True)
def test_a_file_that_is_said_to_be_too_large_is_not_begun(get: Get) -> None:
    with (
        serve_raw(says(head("200 OK", f"Content-Length: {1 << 40}") + b"x")) as hostile,
        pytest.raises(StepFailed, match=r"more than the limit of|Maximum file size exceeded"),
    ):
        get(hostile.url(), retries=0)


def test_what_is_packed_stays_packed(user: str, get: Get) -> None:
    bomb = gzip.compress(bytes(8 << 20))
    with serve_raw(says(whole(bomb, "Content-Encoding: gzip"))) as hostile:
        got = get(hostile.url())
        assert got == (bomb if user in (*KEEPS, "key") else got)
        assert len(got) < 1 << 20


def test_a_part_of_a_file_is_not_taken_for_all_of_it(user: str, get: Get) -> None:
    part = head("206 Partial Content", "Content-Range: bytes 0-9/20", "Content-Length: 10") + b"0123456789"
    with serve_raw(says(part)) as hostile, pytest.raises(StepFailed):
        get(hostile.url(), retries=0)


# versions


def versions(second: Callable[[int], bytes]) -> Behaviour:
    """Breaks off in the first version, and answers what asks for the rest of it with ``second``."""

    def behaviour(connection: socket.socket, headers: dict[str, str], number: int) -> None:
        start = start_of(headers)
        if number == 1:
            lines = ['ETag: "v1"', f"Content-Length: {len(CONTENT)}", "Connection: close"]
            connection.sendall(head("200 OK", *lines) + CONTENT[:100_000])
        else:
            connection.sendall(second(start) if start else whole(OTHER, 'ETag: "v2"'))

    return behaviour


def rest(start: int, *lines: str, begin: int | None = None, total: int = len(OTHER)) -> bytes:
    first = start if begin is None else begin
    shown = f"Content-Range: bytes {first}-{total - 1}/{total}"
    body = OTHER[first:]
    return head("206 Partial", shown, f"Content-Length: {len(body)}", "Connection: close", *lines) + body


CHANGES: dict[str, Callable[[int], bytes]] = {
    "another tag": lambda start: rest(start, 'ETag: "v2"'),
    "a weak tag": lambda start: rest(start, 'ETag: W/"v1"'),
    "no tag": lambda start: rest(start),
    "another start": lambda start: rest(start, 'ETag: "v1"', begin=start - 5),
    "another length": lambda start: rest(start, 'ETag: "v1"', total=len(OTHER) + 1),
    "no range": lambda start: (
        head("206 Partial", 'ETag: "v1"', f"Content-Length: {len(OTHER) - start}") + OTHER[start:]
    ),
    "all of it": lambda start: whole(OTHER, 'ETag: "v2"'),
    "nothing more": lambda start: head("416 No", f"Content-Range: bytes */{start}", "Content-Length: 0"),
}


@pytest.mark.parametrize("user", KEEPS, indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_two_versions_are_never_mixed(get: Get, change: str) -> None:
    with serve_raw(versions(CHANGES[change])) as hostile:
        assert get(hostile.url()) == OTHER
        assert any(b'if-range: "v1"' in asked.lower() for asked in hostile.asked)


@pytest.mark.parametrize("user", KEEPS, indirect=True)
def test_the_same_version_is_gone_on_with(get: Get) -> None:
    def behaviour(connection: socket.socket, headers: dict[str, str], number: int) -> None:
        start = start_of(headers)
        lines = ['ETag: "v1"', f"Content-Length: {len(CONTENT) - start}", "Connection: close"]
        if start:
            lines.append(f"Content-Range: bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        body = CONTENT[start : start + 100_000]
        connection.sendall(head("206 Partial" if start else "200 OK", *lines) + body)

    with serve_raw(behaviour) as hostile:
        assert get(hostile.url()) == CONTENT
        assert len(hostile.asked) == 3


# what is sent


@pytest.mark.parametrize(("status", "method"), [("301", "POST"), ("302", "POST"), ("303", "PUT")])
def test_a_redirect_that_makes_a_question_of_it_takes_no_body_along(tmp_path: Path, status: str, method: str) -> None:
    with serve_raw(says(whole(b"ok"))) as other, serve_raw(redirect(other.url(), f"{status} x")) as first:
        _send(tmp_path, first, method)
        assert other.asked[0].startswith(b"GET ")
        assert b"content-" not in other.asked[0].lower()


@pytest.mark.parametrize(("status", "method"), [("307", "POST"), ("308", "PUT"), ("301", "PUT"), ("302", "DELETE")])
def test_another_server_is_sent_nothing_but_questions(tmp_path: Path, status: str, method: str) -> None:
    with serve_raw(says(whole(b"ok"))) as other, serve_raw(redirect(other.url(), f"{status} x")) as first:
        with pytest.raises(StepFailed, match="another server, to which the"):
            _send(tmp_path, first, method)
        assert other.asked == []


def _send(tmp_path: Path, server: Hostile, method: str) -> None:
    world = StepTest(tmp_path, "http", {"url": server.url(), "method": method, "body": "b0dy", "headers": SECRETS})
    try:
        world.run()
    finally:
        world.close()


def test_a_vault_that_leads_to_plain_http_is_not_followed(tmp_path: Path) -> None:
    requests = pytest.importorskip("requests")
    ca, context = certificate(tmp_path)
    with serve_raw(says(whole(b"{}"))) as plain, serve(context) as secure:
        secure.redirects["/v1/secret"] = plain.url()
        with vault.plain_session() as session, pytest.raises(requests.RequestException, match="unencrypted"):
            session.get(secure.url("/v1/secret"), verify=str(ca), headers={"X-Vault-Token": "s3cret"})
        assert plain.asked == []

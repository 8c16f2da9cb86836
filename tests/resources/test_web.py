"""Fetching over the web: what is followed, tried again and refused; who is trusted, and who gets to see what."""

from __future__ import annotations

import hashlib
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.http import attempts
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.store import ResourceStore
from tests.resources.server import Web, certificate, serve

CONTENT = random.Random(1).randbytes(700_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def source(web: Web, path: str = "/tool.bin", *, sha256: str = DIGEST, **more: Any) -> Source:
    return Source.of_url("tool", web.url(path), sha256=sha256, timeout=more.pop("timeout", 10.0), **more)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_FIRST_PAUSE", 0.01)


def test_a_busy_server_is_tried_again(web: Web) -> None:
    web.add(CONTENT, statuses=[503, 429])
    assert ResourceStore().fetch(source(web)).path.read_bytes() == CONTENT
    assert len(web.asked) == 3


def test_a_server_that_stays_busy_is_given_up_with_the_number_of_attempts(web: Web) -> None:
    web.add(CONTENT, statuses=[503] * 10)
    with pytest.raises(ResourceError, match=r"the server answered 503 Service Unavailable \(3 attempts\)$"):
        ResourceStore().fetch(source(web, retries=2))


@pytest.mark.parametrize(("status", "hint"), [(404, "there is no such file"), (403, "access denied")])
def test_a_no_is_not_tried_again_and_says_what_to_do(web: Web, status: int, hint: str) -> None:
    web.add(CONTENT, statuses=[status])
    with pytest.raises(ResourceError, match=f"resource tool: {web.url()}: the server answered {status}") as caught:
        ResourceStore().fetch(source(web))
    assert hint in caught.value.hint
    assert len(web.asked) == 1


def test_nothing_listens_there() -> None:
    with serve() as gone:
        address = gone.url()
    with pytest.raises(ResourceError, match="connection refused") as caught:
        ResourceStore().fetch(Source.of_url("tool", address, retries=1))
    assert "is the service up" in caught.value.hint


def test_a_server_that_falls_silent_is_given_up_after_the_timeout(web: Web) -> None:
    web.add(CONTENT, hold=threading.Event())
    with pytest.raises(ResourceError, match=r"no answer within 0\.2s"):
        ResourceStore().fetch(source(web, timeout=0.2, retries=0))


def test_redirects_are_followed_a_few_times(web: Web) -> None:
    web.add(CONTENT)
    web.redirects = {f"/r{n}": web.url(f"/r{n + 1}" if n < 4 else "/tool.bin") for n in range(5)}
    assert ResourceStore().fetch(source(web, "/r0")).path.read_bytes() == CONTENT
    web.redirects["/tool.bin"] = web.url("/r9")
    with pytest.raises(ResourceError, match="after 5 other redirects"):
        ResourceStore().fetch(source(web, "/r0", sha256="0" * 64))


def test_a_redirect_in_a_circle_ends(web: Web) -> None:
    web.redirects["/a"] = web.url("/a")
    with pytest.raises(ResourceError):
        ResourceStore().fetch(source(web, "/a"))
    assert len(web.asked) < 12


def test_a_redirect_to_a_file_of_this_machine_is_refused(web: Web) -> None:
    web.redirects["/a"] = "file:///etc/passwd"
    with pytest.raises(ResourceError, match="leads to an address that is not followed"):
        ResourceStore().fetch(source(web, "/a"))


def test_headers_go_to_the_server_and_to_no_other(web: Web) -> None:
    headers = {"Authorization": "Bearer s3cret", "X-Team": "blue"}
    web.add(CONTENT, "/private", needs=headers)
    assert ResourceStore().fetch(source(web, "/private", headers=headers)).path.read_bytes() == CONTENT
    with serve() as other:
        other.add(b"two")
        web.redirects["/away"] = other.url()
        ResourceStore().fetch(source(web, "/away", sha256="", headers=headers))
        assert other.asked[0][1].keys().isdisjoint({"authorization", "x-team"})
    web.redirects["/near"] = web.url("/private")
    assert ResourceStore().fetch(source(web, "/near", sha256="", headers=headers)).path.read_bytes() == CONTENT


def test_a_certificate_is_checked_with_the_ca_that_is_named(tmp_path: Path) -> None:
    ca, context = certificate(tmp_path)
    with serve(context) as secure:
        secure.add(CONTENT)
        with pytest.raises(ResourceError, match="is not trusted: self-signed certificate") as caught:
            ResourceStore().fetch(source(secure))
        assert caught.value.hint == "give the CA that signed it as `caFile`"
        assert ResourceStore().fetch(source(secure, ca_file=str(ca))).path.read_bytes() == CONTENT
        with pytest.raises(ResourceError, match="there is no CA file"):
            ResourceStore().fetch(source(secure, sha256="", ca_file=str(tmp_path / "nothing.pem")))


def test_https_never_becomes_http_on_the_way(web: Web, tmp_path: Path) -> None:
    ca, context = certificate(tmp_path)
    web.add(CONTENT)
    with serve(context) as secure:
        secure.redirects["/tool.bin"] = web.url()
        with pytest.raises(ResourceError, match="which is not encrypted"):
            ResourceStore().fetch(source(secure, ca_file=str(ca)))
    assert web.asked == []


def test_the_proxy_of_the_environment_is_asked(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is a web server that gets the whole address."""
    web.add(CONTENT, "http://files.example/tool.bin")
    monkeypatch.setenv("http_proxy", web.url(""))
    found = ResourceStore().fetch(Source.of_url("tool", "http://files.example/tool.bin", sha256=DIGEST))
    assert found.path.read_bytes() == CONTENT


def test_tokens_in_an_address_are_not_shown_or_written_down(web: Web) -> None:
    web.add(b"x")
    signed = source(web, "/tool.bin?X-Signature=t0ps3cret", sha256="")
    assert signed.shown == f"{web.url()}?..."
    store = ResourceStore()
    store.fetch(signed)
    kept = [path for path in store.cache.folder.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"t0ps3cret" in path.read_bytes() or "t0ps3cret" in str(path)]
    assert "t0ps3cret" not in store.fetch(signed).path.name
    with pytest.raises(ResourceError) as caught:
        store.fetch(replace(source(web, "/no?X-Signature=t0ps3cret"), sha256=""))
    assert "t0ps3cret" not in caught.value.message


@pytest.mark.parametrize("url", ["https://user:s3cret@example.com/x", "http://u@h/x"])
def test_an_address_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ResourceError, match="contains a user or a password") as caught:
        Source.of_url("tool", url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/b.tar.gz?x=1", "b.tar.gz"),
        ("https://h/", "resource"),
        ("https://h/a/%2e%2e%2f%2e%2e%2fetc%2fpasswd", ".._.._etc_passwd"),
        ("https://h/a/..", "resource"),
        ("https://h/a%00b", "a_b"),
        ("https://h/" + "x" * 500, "x" * 120),
    ],
)
def test_the_name_of_a_file_never_leads_elsewhere(url: str, name: str) -> None:
    assert Source.of_url("tool", url).filename == name

"""``http`` and ``wait`` from the host: by each tool that it may have, with the rules of the control node."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps.http import HttpParams
from kubexm_steps.wait import WaitParams
from tests.lab.sshd import MISSING, SSHD, ssh_host
from tests.steps.server import Site, serve
from tests.steps.test_http import certificate, secure, site
from tests.steps.test_wait import after_the_first_look, free_port

__all__ = ["certificate", "secure", "site"]
BASE = ("sh", "cat", "head", "grep", "sleep", "printf", "id", "stat", "timeout")
HTTP_TOOLS = ("curl", "python3", "wget")
PORT_TOOLS = ("python3", "bash", "nc")

NC = f"""#!/bin/sh
# Says and does what busybox's nc does with -z.
[ "$1" != -h ] || {{ echo '  -z  Zero-I/O mode (scanning)' >&2; exit 1; }}
[ "$1 $2" = '-z -w' ] && [ "$3" -gt 0 ] || exit 9
exec {os.path.realpath(sys.executable)} -c '
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' "$4" "$5"
"""


def only_these(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let commands find no other tools."""
    folder.mkdir()
    for name in (*BASE, *names):
        if name == "nc":
            (folder / name).write_text(NC)
            (folder / name).chmod(0o755)
            continue
        found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} here")
        (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("kubexm_exec.connectors.local.connector._SYSTEM_FOLDERS", ())
    if "python3" in names:
        monkeypatch.setattr("kubexm_exec.connectors.local.connector._PASSED_ON", frozenset({"PATH", "HOME"}))


@pytest.fixture(params=HTTP_TOOLS)
def tool(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    only_these(tmp_path / "bin", monkeypatch, name)
    return name


def asks(tmp_path: Path, url: str, **more: Any) -> StepTest:
    options = {key: more.pop(key) for key in ("sensitive", "timeout", "host") if key in more}
    if "within" in more:
        more["timeout"] = more.pop("within")
    return StepTest(tmp_path, "http", {"url": url, "from": "host", **more}, **options)


def test_an_answer_has_status_headers_and_body(site: Site, tmp_path: Path, tool: str) -> None:
    step = asks(tmp_path, site.url("/health"), expect={"json": {"health": "true"}})
    before = snapshot(tmp_path, exact=True)
    forecast = step.forecast()
    assert snapshot(tmp_path, exact=True) == before
    assert forecast.state is ForecastState.SATISFIED
    assert forecast.message == f"GET {site.url('/health')} from the host: 200"
    assert forecast.outputs["headers"]["content-type"] == "application/json"
    assert forecast.outputs["json"] == {"health": "true", "more": [1, {"a": 2}]}
    assert forecast.outputs["status"] == 200
    assert site.asked[0][2]["user-agent"] == "kubexm"


@pytest.mark.parametrize("status", [204, 301, 404, 503])
def test_any_status_is_an_answer(site: Site, tmp_path: Path, tool: str, status: int) -> None:
    site.pages["/x"] = (status, {"X-Y": "z"}, b"" if status == 204 else b"not now")
    outputs = asks(tmp_path, site.url("/x"), expect={"status": [status]}).run().outputs
    assert (outputs["status"], outputs["headers"]["x-y"]) == (status, "z")
    if status > 400:
        assert outputs["body"] == "not now"
    with pytest.raises(StepFailed, match=f"status {status}, expected 299"):
        asks(tmp_path, site.url("/x"), expect={"status": [299]}).run()


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method_is_sent(site: Site, tmp_path: Path, tool: str, method: str) -> None:
    result = asks(tmp_path, site.url(), method=method).run()
    assert (result.changed, site.asked[0][0]) == (method not in ("HEAD", "OPTIONS"), method)
    assert result.outputs["body"] == ("" if method == "HEAD" else "hello")


def test_a_body_of_any_bytes_is_sent_and_says_nothing_of_itself(site: Site, tmp_path: Path, tool: str) -> None:
    body = "line é\n\n'\"$x`\\ \udcff" + "x" * 3_000_000
    step = asks(tmp_path, site.url(), method="POST", body=body, headers={"X-N": 1})
    if tool == "wget":
        with pytest.raises(StepFailed, match="its only tool is wget"):
            asks(tmp_path, site.url(), headers={"X-N": 1}).run()
        with pytest.raises(StepFailed, match="its only tool is wget") as caught:
            step.run()
        assert "install curl or python3" in caught.value.hint
        return
    assert step.run().changed
    _, _, headers, sent = site.asked[0]
    assert sent == body.encode("utf-8", "surrogateescape")
    assert headers["x-n"] == "1"
    assert "content-type" not in headers
    assert "expect" not in headers
    asks(tmp_path, site.url(), method="PUT", json={"a": 1}).run()
    assert (site.asked[1][2]["content-type"], site.asked[1][3]) == ("application/json", b'{"a": 1}')


def test_a_large_body_is_cut(site: Site, tmp_path: Path, tool: str) -> None:
    site.pages["/big"] = (200, {}, b"x" * (3 << 20))
    assert len(asks(tmp_path, site.url("/big")).run().outputs["body"]) == 1 << 20


def test_nobody_listening_is_told_in_the_words_of_the_control_node(tmp_path: Path, tool: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    with pytest.raises(StepFailed) as caught:
        asks(tmp_path, url).run()
    assert caught.value.message.startswith(f"GET {url} from the host: connection refused")
    assert "is the service up" in caught.value.hint


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path, tool: str) -> None:
    with pytest.raises(StepFailed, match=r"resol|name"):
        asks(tmp_path, "http://no-such-host.invalid/").run()


def test_redirects_follow_the_rules_of_the_control_node(site: Site, tmp_path: Path, tool: str) -> None:
    with serve() as other:
        other.pages["/there"] = (200, {}, b"arrived")
        site.pages["/go"] = (302, {"Location": "/on"}, b"moved")
        site.pages["/on"] = (302, {"Location": other.url("/there")}, b"")
        headers = {} if tool == "wget" else {"Authorization": "Bearer x", "X-Other": "y"}
        assert asks(tmp_path, site.url("/go"), headers=headers).run().outputs["body"] == "arrived"
        assert [asked[2].get("authorization") for asked in site.asked] == [headers.get("Authorization")] * 2
        assert other.asked[0][2].keys().isdisjoint({"authorization", "x-other"})
        with pytest.raises(StepFailed, match="another server, to which the PUT is not sent"):
            asks(tmp_path, site.url("/on"), method="PUT", headers=headers).run()
    site.pages["/file"] = (302, {"Location": "file:///etc/passwd"}, b"")
    with pytest.raises(StepFailed, match="leads to an address that is not followed"):
        asks(tmp_path, site.url("/file")).run()
    site.pages["/round"] = (302, {"Location": "/round"}, b"")
    with pytest.raises(StepFailed, match="after 5 other redirects"):
        asks(tmp_path, site.url("/round")).run()
    left = asks(tmp_path, site.url("/go"), followRedirects=False, expect={"status": [302]}).run()
    assert left.outputs["headers"]["location"] == "/on"


def test_a_silent_server_is_given_up(site: Site, tmp_path: Path, tool: str) -> None:
    with pytest.raises(StepFailed, match="no answer in time"):
        asks(tmp_path, site.url("/hold"), within="1s").run()
    with pytest.raises((CommandTimedOut, StepFailed)):
        asks(tmp_path, site.url("/hold"), timeout=1.0).run()


def test_a_cancel_ends_it(site: Site, tmp_path: Path, tool: str) -> None:
    step = asks(tmp_path, site.url("/hold"))

    def stop() -> None:
        site.held.wait(30)
        step.cancel.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(CommandCancelled):
        step.run()
    stopper.join()


def test_an_answer_that_is_cut_off_is_none(site: Site, tmp_path: Path, tool: str) -> None:
    site.pages["/short"] = (200, {"Content-Length": "100"}, b"only this")
    with pytest.raises(StepFailed):
        asks(tmp_path, site.url("/short"), within="5s").run()


def test_no_process_and_no_file_shows_address_header_or_body(site: Site, tmp_path: Path, tool: str) -> None:
    seen: list[bytes] = []

    def look() -> None:
        site.held.wait(30)
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(process.read_bytes() + process.with_name("environ").read_bytes())
            except OSError:
                continue
        site.hold.set()

    headers = {"Authorization": 'Bearer s3cr3t-"h\\eader'}
    more = {} if tool == "wget" else {"method": "POST", "body": "b0dy-s3cr3t", "headers": headers}
    site.pages["/hold?token=s3cr3t-addr"] = (200, {}, b"fine")
    step = asks(tmp_path, site.url("/hold?token=s3cr3t-addr"), **more)
    looker = threading.Thread(target=look)
    looker.start()
    assert step.run().outputs["body"] == "fine"
    looker.join()
    assert site.asked[0][2].get("authorization") == (None if tool == "wget" else headers["Authorization"])
    assert [line for line in seen if tool.encode() in line]
    assert not [line for line in seen if b"s3cr3t" in line]


def test_certificates_are_checked(secure: Site, tmp_path: Path, certificate: Path, tool: str) -> None:
    url = secure.url(scheme="https")
    with pytest.raises(StepFailed) as caught:
        asks(tmp_path, url).run()
    assert "its certificate is not trusted" in caught.value.message
    assert "hostCaFile" in caught.value.hint
    assert secure.asked == []
    trusted = asks(tmp_path, url, hostCaFile=str(certificate.with_name("cert.pem")))
    assert trusted.run().outputs["body"] == "secure"
    assert asks(tmp_path, url, insecure=True).run().outputs["body"] == "secure"


def test_https_never_becomes_http(secure: Site, site: Site, tmp_path: Path, tool: str) -> None:
    secure.pages["/go"] = (302, {"Location": site.url()}, b"")
    with pytest.raises(StepFailed, match="which is not encrypted"):
        asks(tmp_path, secure.url("/go", scheme="https"), insecure=True).run()
    assert site.asked == []


def test_a_sensitive_request_shows_nothing(site: Site, tmp_path: Path, tool: str) -> None:
    site.pages["/token-s3cret"] = (500, {}, b"s3cret")
    step = asks(tmp_path, site.url("/token-s3cret"), sensitive=True)
    assert "s3cret" not in step.forecast().message
    with pytest.raises(StepFailed) as caught:
        step.run()
    assert "s3cret" not in caught.value.message + caught.value.stdout


def test_a_proxy_of_the_environment_is_never_used_for_the_host_itself(
    site: Site, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = frozenset({"PATH", "HOME", "http_proxy", "https_proxy"})
    monkeypatch.setattr("kubexm_exec.connectors.local.connector._PASSED_ON", passed)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert asks(tmp_path, site.url()).run().outputs["body"] == "hello"
    with serve() as proxy:
        proxy.pages["http://elsewhere.invalid/x"] = (200, {}, b"by proxy")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert asks(tmp_path, "http://elsewhere.invalid/x").run().outputs["body"] == "by proxy"


def test_a_host_without_any_tool_says_so(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_these(tmp_path / "bin", monkeypatch)
    with pytest.raises(StepFailed, match="it has neither curl nor python3 nor GNU wget") as caught:
        asks(tmp_path, site.url()).run()
    assert "leave out `from: host`" in caught.value.hint
    with pytest.raises(StepFailed, match="it has neither python3 nor bash nor nc"):
        StepTest(tmp_path, "wait", {"port": site.port, "from": "host"}).forecast()


# wait


@pytest.fixture(params=PORT_TOOLS)
def prober(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    only_these(tmp_path / "bin", monkeypatch, name)
    return name


def waits(tmp_path: Path, **more: Any) -> StepTest:
    return StepTest(tmp_path, "wait", {"interval": "20ms", "deadline": "20s", "from": "host", **more})


def test_a_port_is_tried_from_the_host(tmp_path: Path, prober: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        step = waits(tmp_path, port=port)
        forecast = step.forecast()
        assert forecast.state is ForecastState.UNKNOWN
        assert forecast.message.startswith(f"waits for port 127.0.0.1:{port} from the host: ")
        if prober != "nc":
            assert forecast.message.endswith("connection refused")
        after_the_first_look(step, listener.listen)
        assert step.run().message.startswith(f"port 127.0.0.1:{port} from the host after ")
        gone = waits(tmp_path, port=port, state="absent", deadline="300ms")
        with pytest.raises(StepFailed, match="it still accepts connections"):
            gone.run()
    assert waits(tmp_path, port=port, state="absent").forecast().state is ForecastState.SATISFIED


def test_a_url_is_tried_from_the_host(site: Site, tmp_path: Path, tool: str) -> None:
    site.pages["/up"] = (503, {}, b"")
    step = waits(tmp_path, url=site.url("/up"))
    assert step.forecast().message == f"waits for url {site.url('/up')} from the host: status 503"
    after_the_first_look(step, lambda: site.pages.update({"/up": (200, {}, b"")}))
    assert step.run().changed is False


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphHost]:
    if SSHD is None:
        pytest.skip(MISSING)
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host.host()


def test_a_host_over_ssh_asks_itself(site: Site, tmp_path: Path, box: GraphHost) -> None:
    body = "x\n'é" * 300_000
    result = asks(tmp_path, site.url(), host=box, method="POST", body=body, headers={"A": "b"}).run()
    assert (result.outputs["body"], site.asked[0][3]) == ("hello", body.encode())
    assert asks(tmp_path, site.url(), host=box).forecast().state is ForecastState.SATISFIED
    step = StepTest(tmp_path, "wait", {"port": site.port, "from": "host"}, host=box)
    assert step.forecast().state is ForecastState.SATISFIED
    other = StepTest(tmp_path, "wait", {"port": free_port(), "from": "host"}, host=box)
    assert "connection refused" in other.forecast().message


@pytest.mark.parametrize(
    ("model", "wrong", "message"),
    [
        (HttpParams, {"url": "http://x/", "from": "host", "caFile": "ca.pem"}, "is given as hostCaFile"),
        (HttpParams, {"url": "http://x/", "hostCaFile": "/ca.pem"}, "hostCaFile cannot be used with `from: control`"),
        (HttpParams, {"url": "http://x/", "from": "elsewhere"}, "'control' or 'host'"),
        (WaitParams, {"file": "/x", "from": "host"}, "from goes with port and url only"),
    ],
)
def test_wrong_parameters_are_refused(model: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        model.model_validate(wrong)

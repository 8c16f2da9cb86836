"""The step ``download`` on a local host and a real web server: by the control node, and by the host itself."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_exec.values.expressions import UnknownValueError
from kubexm_steps.download import DownloadParams
from tests.resources.server import Web, certificate, serve

CONTENT = random.Random(2).randbytes(900_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
TOOLS = (
    "sh", "sed", "stat", "sha256sum", "cut", "mv", "rm", "chmod", "chown", "dd", "sleep", "grep", "cat", "readlink",
    "mkdir", "mktemp", "rmdir", "env", "id",
)  # fmt: skip


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Any]:
    made: list[StepTest] = []

    def make(url: str, *, sensitive: bool = False, **more: Any) -> StepTest:
        path = str(tmp_path / "host" / "tool")
        with_ = {"url": url, "path": path, "sha256": DIGEST, **more}
        with_ = {key: value for key, value in with_.items() if value is not None}
        made.append(StepTest(tmp_path, "download", with_, sensitive=sensitive))
        return made[-1]

    (tmp_path / "host").mkdir()
    yield make
    for world in made:
        world.close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "host" / "tool"


def only(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


@pytest.mark.parametrize("where", ["control", "host"])
def test_a_new_file_is_forecast_downloaded_recognised_and_undone(
    worlds: Any, web: Web, target: Path, where: str
) -> None:
    web.add(CONTENT)
    world = worlds(web.url(), fetchOn=where, mode="0755")
    forecast = world.forecast()
    assert (forecast.state, forecast.message) == (
        ForecastState.CHANGE,
        f"would download {web.url()} to {target}",
    )
    assert [diff.note for diff in forecast.diffs] == [f"created, 0755, content of {web.url()}"]
    assert (web.asked, only(target)) == ([], []), "a forecast asks nobody and leaves nothing"
    result = world.run()
    assert (result.changed, result.message) == (True, f"downloaded {web.url()} to {target}")
    assert dict(result.outputs) == {"path": str(target), "sha256": DIGEST, "size": len(CONTENT)}
    assert target.read_bytes() == CONTENT
    assert target.stat().st_mode & 0o7777 == 0o755
    assert only(target) == ["tool"]
    asked = len(web.asked)
    again = world.forecast()
    assert (again.state, dict(again.outputs)) == (ForecastState.SATISFIED, dict(result.outputs))
    assert worlds(web.url(), fetchOn=where, mode="0755").run().changed is False
    assert len(web.asked) == asked == 1
    for _ in range(2):
        world.rollback()
        assert only(target) == []


@pytest.mark.parametrize("where", ["control", "host"])
def test_another_file_is_replaced_with_its_mode_kept_and_comes_back(
    worlds: Any, web: Web, target: Path, where: str
) -> None:
    web.add(CONTENT)
    target.write_bytes(b"before")
    target.chmod(0o640)
    world = worlds(web.url(), fetchOn=where)
    world.run()
    assert (target.read_bytes(), target.stat().st_mode & 0o7777) == (CONTENT, 0o640)
    world.rollback()
    assert (target.read_bytes(), target.stat().st_mode & 0o7777) == (b"before", 0o640)


def test_the_right_content_with_another_mode_is_not_fetched(worlds: Any, web: Web, target: Path) -> None:
    target.write_bytes(CONTENT)
    target.chmod(0o600)
    world = worlds(web.url(), mode="0755")
    assert world.forecast().message == f"would change {target} (0600 -> 0755)"
    assert world.run().changed is True
    assert (target.stat().st_mode & 0o7777, web.asked) == (0o755, [])
    world.rollback()
    assert target.stat().st_mode & 0o7777 == 0o600


def test_missing_folders_are_made_if_that_is_wanted_and_go_with_the_undo(worlds: Any, web: Web, tmp_path: Path) -> None:
    web.add(CONTENT)
    deep = tmp_path / "host" / "a" / "b" / "tool"
    assert worlds(web.url(), path=str(deep)).forecast().state is ForecastState.UNKNOWN
    for where in ("control", "host"):
        world = worlds(web.url(), path=str(deep), createParents=True, fetchOn=where)
        world.run()
        assert deep.read_bytes() == CONTENT
        world.rollback()
        assert not (tmp_path / "host" / "a").exists()


@pytest.mark.parametrize("where", ["control", "host"])
def test_other_content_changes_nothing_and_is_kept_aside(worlds: Any, web: Web, target: Path, where: str) -> None:
    web.add(b"wrong")
    target.write_bytes(b"before")
    with pytest.raises(StepFailed) as caught:
        worlds(web.url(), fetchOn=where).run()
    got = hashlib.sha256(b"wrong").hexdigest()
    assert f"expected {DIGEST}, got {got}; it is kept as " in caught.value.message
    aside = Path(caught.value.message.rpartition("kept as ")[2])
    assert (aside.read_bytes(), target.read_bytes()) == (b"wrong", b"before")
    web.add(CONTENT)
    worlds(web.url(), fetchOn=where).run()
    assert target.read_bytes() == CONTENT


def test_without_a_digest_the_value_to_paste_is_said(worlds: Any, web: Web, target: Path) -> None:
    web.add(CONTENT)
    for where in ("control", "host"):
        target.unlink(missing_ok=True)
        world = worlds(web.url(), sha256=None, fetchOn=where)
        result = world.run()
        assert result.message == f"downloaded {web.url()} to {target}; add sha256: {DIGEST}"
        assert world.forecast().state is ForecastState.SATISFIED


def test_without_a_digest_a_file_of_the_host_is_taken_for_the_right_one(worlds: Any, web: Web, target: Path) -> None:
    target.write_bytes(b"anything")
    forecast = worlds(web.url(), sha256=None, fetchOn="host").forecast()
    assert forecast.state is ForecastState.SATISFIED
    assert "without `sha256` its content is not verified" in forecast.message


def test_in_a_check_nothing_is_fetched_even_if_the_digest_is_missing(worlds: Any, web: Web) -> None:
    web.add(CONTENT)
    world = worlds(web.url(), sha256=None)
    world.runtime.looks_only = "check fetches nothing"
    with pytest.raises(UnknownValueError, match="has no sha256, so that its source must be asked"):
        world.forecast()
    assert web.asked == []


def test_progress_is_told_in_bytes(worlds: Any, web: Web) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    world = worlds(web.url())

    def let_go() -> None:
        page.held.wait(10)
        assert page.hold is not None
        page.hold.set()

    thread = threading.Thread(target=let_go)
    thread.start()
    world.run()
    thread.join()
    told = [event.data for event in world.events if event.kind == "action.progress"]
    assert ("fetch tool.bin", len(CONTENT)) in {(data["message"], data["total"]) for data in told}


def test_a_cancel_ends_a_download_of_the_control_node(worlds: Any, web: Web, target: Path) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    world = worlds(web.url())
    threading.Thread(target=lambda: page.held.wait(10) and world.cancel.set()).start()
    with pytest.raises(CommandCancelled):
        world.run()
    assert only(target) == []


def test_a_cancel_ends_a_download_of_the_host_and_the_next_run_goes_on(worlds: Any, web: Web, target: Path) -> None:
    page = web.add(CONTENT, hold=threading.Event())
    world = worlds(web.url(), fetchOn="host")

    def cancel() -> None:
        until = time.monotonic() + 20
        parts = target.parent.glob
        while time.monotonic() < until and not any(path.stat().st_size for path in parts(".kx-*.part/data")):
            time.sleep(0.01)
        world.cancel.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(CommandCancelled):
        world.run()
    thread.join()
    assert page.hold is not None
    page.hold.set()
    page.hold = None
    assert not target.exists()
    worlds(web.url(), fetchOn="host").run()
    assert (target.read_bytes(), only(target)) == (CONTENT, ["tool"])
    assert web.ranges()[-1].startswith("bytes=")


def gnu_wget() -> str | None:
    wget = shutil.which("wget")
    if wget is None:
        return None
    shown = subprocess.run([wget, "--version"], capture_output=True, text=True, check=False)
    return wget if shown.stdout.startswith("GNU Wget") else None


@pytest.fixture(params=["curl", "wget", "busybox"])
def tool(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A host that has only one of them."""
    found = {"curl": shutil.which("curl"), "wget": gnu_wget(), "busybox": shutil.which("busybox")}[request.param]
    if found is None:
        pytest.skip(f"there is no {request.param} here")
    only_this(tmp_path / "bin", monkeypatch, "wget" if request.param == "busybox" else request.param, found)
    return str(request.param)


def only_this(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "", found: str = "") -> None:
    folder.mkdir()
    for each in TOOLS:
        (folder / each).symlink_to(shutil.which(each) or each)
    if name:
        (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


def test_the_host_fetches_with_whatever_it_has(worlds: Any, web: Web, target: Path, tool: str) -> None:
    web.add(CONTENT, etag="")
    worlds(web.url(), fetchOn="host").run()
    assert (target.read_bytes(), only(target)) == (CONTENT, ["tool"])


def test_the_host_goes_on_where_it_was_cut_off(worlds: Any, web: Web, target: Path, tool: str) -> None:
    web.add(CONTENT, drops=[300_000])
    worlds(web.url(), fetchOn="host").run()
    assert (target.read_bytes(), web.ranges()) == (CONTENT, ["", "bytes=300000-"])


def test_the_host_begins_anew_when_the_parts_do_not_fit(worlds: Any, web: Web, target: Path, tool: str) -> None:
    page = web.add(random.Random(3).randbytes(900_000), drops=[300_000], etag="")
    with pytest.raises(StepFailed):
        worlds(web.url(), fetchOn="host", retries=0).run()
    page.content = CONTENT
    worlds(web.url(), fetchOn="host").run()
    assert (target.read_bytes(), only(target)) == (CONTENT, ["tool"])


def test_the_host_says_what_its_tool_said(worlds: Any, web: Web, target: Path, tool: str) -> None:
    with pytest.raises(StepFailed, match=rf"^download {web.url('/none')} on the host: .*404") as caught:
        worlds(web.url("/none"), fetchOn="host", retries=0).run()
    assert "let the control node fetch it" in caught.value.hint
    assert only(target) == []


def processes_during(page: Any, work: Callable[[], object]) -> list[bytes]:
    """The command lines of all processes while a download is held."""
    lines: list[bytes] = []

    def look() -> None:
        page.held.wait(10)
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(process.read_bytes())
            except OSError:
                continue
        page.hold.set()

    thread = threading.Thread(target=look)
    thread.start()
    work()
    thread.join()
    return lines


def test_the_host_sends_headers_that_its_processes_do_not_show(worlds: Any, web: Web, target: Path, tool: str) -> None:
    secret = 'Bearer s3"cr\\et'
    page = web.add(CONTENT, needs={"Authorization": secret}, hold=threading.Event())
    world = worlds(web.url(), fetchOn="host", headers={"Authorization": secret})
    if tool == "busybox":
        with pytest.raises(StepFailed, match="would show the headers to everybody"):
            world.run()
        return
    lines = processes_during(page, world.run)
    assert target.read_bytes() == CONTENT
    assert any(tool.encode() in line for line in lines)
    assert not [line for line in lines if b's3"cr' in line]
    assert only(target) == ["tool"], "the file with the headers is gone"


def test_the_host_asks_for_an_address_that_its_processes_do_not_show(
    worlds: Any, web: Web, target: Path, tool: str
) -> None:
    if tool == "busybox":
        pytest.skip("it takes an address as an argument only")
    page = web.add(CONTENT, hold=threading.Event())
    world = worlds(f"{web.url()}?token=s3cr3t%22%5Cq", fetchOn="host")
    lines = processes_during(page, world.run)
    assert target.read_bytes() == CONTENT
    assert any(tool.encode() in line for line in lines)
    assert not [line for line in lines if b"s3cr3t" in line]
    assert only(target) == ["tool"]


def test_the_host_checks_certificates(worlds: Any, target: Path, tmp_path: Path, tool: str) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    os.environ["PATH"] += os.pathsep + "/usr/bin"
    ca, context = certificate(folder)
    os.environ["PATH"] = os.environ["PATH"].rpartition(os.pathsep)[0]
    with serve(context) as secure:
        secure.add(CONTENT)
        with pytest.raises(StepFailed, match=r"on the host: .*certificate"):
            worlds(secure.url(), fetchOn="host", retries=0).run()
        if tool != "busybox":
            worlds(secure.url(), fetchOn="host", caFile=str(ca)).run()
            assert target.read_bytes() == CONTENT


def test_a_host_without_any_tool_says_so(
    worlds: Any, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_this(tmp_path / "bin", monkeypatch)
    with pytest.raises(StepFailed, match="it has neither curl nor wget"):
        worlds(web.url(), fetchOn="host").run()


def test_an_address_with_shell_in_it_is_only_an_address(worlds: Any, web: Web, target: Path, tmp_path: Path) -> None:
    path = f"/a;touch%20{tmp_path}/bad;$(touch%20x)'\"`id`"
    web.add(CONTENT, path)
    worlds(web.url(path), fetchOn="host").run()
    assert target.read_bytes() == CONTENT
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "either resource"),
        ({"url": "http://h/x", "resource": "x"}, "either resource"),
        (
            {"resource": "x", "sha256": DIGEST, "headers": {"A": "b"}},
            "sha256 and headers cannot be used with `resource`",
        ),
        ({"url": "http://h/x", "sha256": "123"}, "sha256"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DownloadParams.model_validate({"path": "/x", **params})


def test_an_address_with_a_password_is_refused_and_not_repeated(worlds: Any) -> None:
    with pytest.raises(StepFailed, match="contains a user or a password") as caught:
        worlds("https://me:s3cret@example.com/x").forecast()
    assert "s3cret" not in caught.value.message

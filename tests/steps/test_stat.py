"""What the step type ``stat`` says of a path, by any connector and with the tools of busybox."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.graph import GraphHost
from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import Effect, StepFailed
from kubexm_exec.testing import StepTest
from tests.lab.sshd import SSHD, ssh_host

pytestmark = pytest.mark.xdist_group("stat")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphHost | None]:
    if SSHD is None:
        yield None
        return
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host.host()


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest, box: GraphHost | None) -> GraphHost | None:
    if request.param == "ssh" and box is None:
        pytest.skip("no sshd here")
    return box if request.param == "ssh" else None


def ask(folder: Path, host: GraphHost | None, **with_: Any) -> dict[str, Any]:
    sensitive = with_.pop("sensitive", False)
    with StepTest(folder, "stat", with_, host=host, sensitive=sensitive) as step:
        forecast = step.forecast()
        assert (forecast.state, forecast.effect) == (ForecastState.SATISFIED, Effect.READS)
        result = step.run()
    assert not result.changed
    return dict(result.outputs)


@pytest.mark.parametrize("name", ["plain", "it's $odd\n", "é"])
def test_a_file_is_described(tmp_path: Path, host: GraphHost | None, name: str) -> None:
    path = tmp_path / name
    path.write_text("text\n")
    path.chmod(0o4750)
    os.utime(path, (1_000, 86_400))
    found = ask(tmp_path, host, path=str(path), sha256=True)
    info = path.stat()
    assert found == {
        "path": str(path), "exists": True, "type": "file", "size": 5, "mode": "4750", "owner": path.owner(),
        "group": path.group(), "uid": info.st_uid, "gid": info.st_gid, "mtime": 86_400, "target": "",
        "sha256": hashlib.sha256(b"text\n").hexdigest(),
    }  # fmt: skip
    assert ask(tmp_path, host, path=str(path))["sha256"] == ""
    assert ask(tmp_path, host, path=str(path), sha256=True, sensitive=True)["sha256"] == ""


def test_everything_that_can_be_at_a_path_has_its_type(tmp_path: Path, host: GraphHost | None) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("a\nb")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        for name in ("directory", "pipe", "socket", "link"):
            # A digest that makes no sense is not computed: reading a pipe would never end.
            found = ask(tmp_path, host, path=f"{tmp_path}/{name}", sha256=True)
            assert (found["type"], found["sha256"]) == (name, "")
            assert found["target"] == ("a\nb" if name == "link" else "")
    assert ask(tmp_path, host, path="/dev/null")["type"] == "char-device"
    assert ask(tmp_path, host, path="/")["path"] == "/"


def test_a_link_is_described_itself_or_followed(tmp_path: Path, host: GraphHost | None) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("text")
    (tmp_path / "way").symlink_to("there")
    (tmp_path / "there/link").symlink_to("file")
    path = f"{tmp_path}/way/link"
    itself = ask(tmp_path, host, path=path)
    assert (itself["path"], itself["type"], itself["target"]) == (f"{tmp_path}/there/link", "link", "file")
    led = ask(tmp_path, host, path=path, followLinks=True)
    assert (led["path"], led["type"], led["size"]) == (f"{tmp_path}/there/file", "file", 4)
    assert ask(tmp_path, host, path=path, followLinks=True, follow=True)["path"] == f"{tmp_path}/there/file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work as another user")
def test_a_folder_that_may_not_be_entered_is_a_failure_and_not_nothing(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    pid = os.fork()
    if pid == 0:  # as nobody: what root may not enter does not exist
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            try:
                ask(tmp_path, None, path=f"{locked}/file")
            except StepFailed as error:
                code = 0 if "permission denied" in error.message else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

"""The local connector keeps the contract of all connectors, and what is its own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.graph import GraphHost
from tests.connectors.contract import ConnectorContract


def local(**options: object) -> LocalConnector:
    return LocalConnector(GraphHost("here", connector="local", options=options), lambda reference: reference)


class TestLocalConnector(ConnectorContract):
    @pytest.fixture
    def connector(self) -> Iterator[Connector]:
        connector = local()
        connector.open(Deadline.after(5))
        yield connector
        connector.close()


def test_it_is_a_connector() -> None:
    assert isinstance(local(), Connector)


def test_commands_do_not_see_our_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KX_SECRET", "s3cret")
    result = local().run(Command(argv=("env",)), deadline=Deadline(), cancel=Cancel())
    assert "s3cret" not in result.out


def test_the_systems_folders_are_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    result = local().run(Command(argv=("printenv", "PATH")), deadline=Deadline(), cancel=Cancel())
    assert result.out == "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin\n"


def test_a_nul_in_an_argument_or_a_name_is_an_answer_and_not_a_crash(tmp_path: Path) -> None:
    result = local().run(Command(argv=("echo", "a\0b")), deadline=Deadline(), cancel=Cancel())
    assert result.exit_code == 126
    assert "null byte" in result.err
    with pytest.raises(OSError, match="null byte"):
        local().get(f"{tmp_path}/a\0b", deadline=Deadline(), cancel=Cancel())


def test_nothing_is_left_open_after_many_commands(tmp_path: Path) -> None:
    connector = local()

    def once() -> None:
        connector.run(Command(argv=("cat",), stdin=b"x"), deadline=Deadline(), cancel=Cancel())
        connector.run(Command(argv=("kx-none",)), deadline=Deadline(), cancel=Cancel())
        connector.put(b"x", str(tmp_path / "x"), deadline=Deadline(), cancel=Cancel())
        connector.get(str(tmp_path / "x"), deadline=Deadline(), cancel=Cancel())

    once()
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208  # the names count, not the files
    threads = threading.active_count()
    for _ in range(20):
        once()
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert threading.active_count() == threads


def test_cancel_that_comes_when_the_command_has_ended_harms_nobody() -> None:
    cancel = Cancel()
    late = []
    original = cancel.on_set

    def remember(callback: object) -> object:
        late.append(callback)
        return original(callback)  # type: ignore[arg-type]

    cancel.on_set = remember  # type: ignore[method-assign,assignment]
    local().run(Command(argv=("true",)), deadline=Deadline(), cancel=cancel)
    assert late
    for callback in late:
        callback()  # type: ignore[operator]
    assert local().run(Command(argv=("true",)), deadline=Deadline(), cancel=Cancel()).exit_code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_in_the_path_that_may_not_be_entered_does_not_hide_that_a_program_is_missing(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o000)
    command = Command(argv=("kx-none",), env={"PATH": f"{tmp_path}/closed:/usr/bin:/bin"})
    result = local().run(command, deadline=Deadline(), cancel=Cancel())
    assert (result.exit_code, result.err) == (127, "kx-none: command not found\n")


def test_whoever_is_killed_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = """
import io, sys, time
from kubexm_exec.connectors.base import Cancel, Deadline
from tests.connectors.test_local import local

class Endless(io.RawIOBase):
    begun = False
    def read(self, size=-1):
        if self.begun:
            print("writing", flush=True)
            time.sleep(60)
        self.begun = True
        return b"half"

local().put(Endless(), sys.argv[1], mode=0o600, deadline=Deadline.after(60), cancel=Cancel())
"""
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.kill()
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_whoever_runs_the_program_is_no_other_user_to_become() -> None:
    own = pwd.getpwuid(os.geteuid()).pw_name
    connector = local(become=own)
    assert connector.as_user(own) is connector.as_user(False) is connector

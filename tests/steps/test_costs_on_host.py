"""How often a step that changes files asks its host over a real connection, and what programs that starts there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec import testing
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.filescripts import Writing
from kubexm_exec.connectors.ssh.shell import setup
from kubexm_exec.testing import StepTest
from tests.lab.sshd import MISSING, SSHD, ssh_host

pytestmark = [pytest.mark.skipif(SSHD is None, reason=MISSING), pytest.mark.xdist_group("costs-on-host")]


class Counted(SshConnector):
    """A host that is reached by SSH, and the number of commands it was sent."""

    commands = 0

    def _do(self, *arguments: Any, **more: Any) -> Any:
        Counted.commands += 1
        return super()._do(*arguments, **more)


class _Registry:
    def load(self, name: str) -> type[SshConnector]:
        return Counted

    def names(self) -> list[str]:
        return ["ssh"]


Cost = Callable[..., int]


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as box, pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "connector_registry", _Registry)

        def count(base: Path, step: str, **with_: Any) -> int:
            """The commands of a run that has something to do."""
            world = StepTest(base, step, with_, host=box.host())
            try:
                Counted.commands = 0
                assert world.run().changed
                return Counted.commands
            finally:
                world.close()

        yield count


def test_a_folder_is_made_with_two_commands_however_many_are_missing_above(cost: Cost, tmp_path: Path) -> None:
    assert cost(tmp_path, "directory", path=str(tmp_path / "one"), mode="0750") == 2
    assert cost(tmp_path, "directory", path=str(tmp_path / "a/b/c"), mode="0700") == 2
    modes = [(tmp_path / name).stat().st_mode & 0o7777 for name in ("one", "a", "a/b", "a/b/c")]
    assert modes == [0o750, 0o755, 0o755, 0o700]


def test_a_new_template_costs_two_commands_and_one_that_changes_three(cost: Cost, tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_text("{{ name }}\n")
    path = tmp_path / "file"
    made = {"src": "t.j2", "path": str(path)}
    assert cost(tmp_path, "template", **made, vars={"name": "first"}) == 2
    assert cost(tmp_path, "template", **made, vars={"name": "second"}) == 3
    assert path.read_text() == "second\n"
    below = {**made, "path": str(tmp_path / "a/b/file"), "createParents": True}
    assert cost(tmp_path, "template", **below, vars={"name": "third"}) == 3


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o440])
def test_a_file_is_written_by_three_programs(tmp_path: Path, mode: int) -> None:
    tools, log, path = tmp_path / "tools", tmp_path / "log", tmp_path / "file"
    tools.mkdir()
    for name in ("stat", "dd", "mv", "chmod", "chown", "rm", "mkdir", "rmdir", "ls", "id", "sync", "cat"):
        program = shutil.which(name)
        (tools / name).write_text(f'#!/bin/sh\necho {name} >>{log}\nexec {program} "$@"\n')
        (tools / name).chmod(0o755)
    frame = Writing(str(path), mode, None, None).whole().frame(b"text\n")
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-s"], input=setup("sync").encode() + b"\n" + frame, env=env, check=True, capture_output=True)
    assert log.read_text().split() == ["stat", "dd", "mv"]
    assert (path.read_text(), path.stat().st_mode & 0o7777) == ("text\n", mode)
    assert sorted(tmp_path.iterdir()) == [path, log, tools]

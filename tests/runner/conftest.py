"""A runner on this machine: with the system's own tools, and with busybox's where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.runner import Runner


class WithTools(LocalConnector):
    """This machine with other tools in front of its own."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(GraphHost("here", connector="local"), lambda reference: reference)
        self.tools = env
        self.count = 0

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        self.count += 1
        command = replace(command, env={**self.tools, **command.env})
        return super().run(command, deadline=deadline, cancel=cancel, on_output=on_output)


BUSYBOX = shutil.which("busybox")


@pytest.fixture(params=["system", "busybox"] if BUSYBOX else ["system"])
def connector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WithTools:
    if request.param == "system":
        return WithTools({})
    assert BUSYBOX is not None
    tools = tmp_path_factory.mktemp("tools")
    for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
        (tools / name).symlink_to(BUSYBOX)
    return WithTools({"PATH": str(tools)})


@pytest.fixture
def busybox(connector: WithTools) -> bool:
    """Whether the tools are busybox's."""
    return bool(connector.tools)


@pytest.fixture
def runner(connector: LocalConnector) -> Runner:
    return Runner(connector, deadline=Deadline.after(60))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name needs quoting everywhere."""
    odd = tmp_path / "it's a $folder; `x`"
    odd.mkdir()
    return odd

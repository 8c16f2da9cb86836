"""What several tests of the SSH connector need: a home of their own, both ways to run commands, and users."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.scripts import SETUP
from tests.lab.people import PASSWORD, PeopledHost, missing, peopled_host

NO_PROC = "[ -r /proc/loadavg ]"
SHELLS = {
    "sh": ["/bin/sh"],
    "dash": ["dash"],
    "bash": ["bash"],
    "bash as sh": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests: no keys, no agent, no known hosts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(params=["one process", "sessions"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc tells enough, and where each command needs a shell and a session of its own."""
    if request.param == "sessions":
        assert NO_PROC in SETUP
        monkeypatch.setattr("kubexm_exec.connectors.ssh.shell.SETUP", SETUP.replace(NO_PROC, "false"))


@pytest.fixture(scope="module")
def peopled() -> Iterator[PeopledHost]:
    if missing():
        pytest.skip(missing())
    with peopled_host() as host:
        yield host


@pytest.fixture
def as_user(peopled: PeopledHost) -> Iterator[Callable[..., SshConnector]]:
    with ExitStack() as stack:

        def make(user: str, become: Any) -> SshConnector:
            made = SshConnector(replace(peopled.host(become=become), user=user), lambda _: PASSWORD)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]} here")
    return argv

"""Connections that are begun ahead: used by whoever needs them first, and to nobody who may not be needed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.config import is_redirecting
from kubexm_exec.connectors.ssh.dialing import Dialled, dial
from kubexm_exec.control import Cancel, Deadline
from tests.e2e.program import environment, start, write_spec


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def place_of(server: socket.socket) -> tuple[str, int]:
    return "127.0.0.1", server.getsockname()[1]


def calls(server: socket.socket) -> int:
    """How many have called and were not heard yet."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_a_connection_that_was_begun_is_the_one_that_is_used_and_only_once(server: socket.socket) -> None:
    dialled = Dialled()
    place = place_of(server)
    dialled.begin([place, place])
    there, _ = server.accept()
    with there, dial(*place, Deadline.after(30), Cancel(), dialled) as first:
        assert first.getsockname() == there.getpeername()
        assert calls(server) == 0
        with dial(*place, Deadline.after(30), Cancel(), dialled) as second:
            assert second.getsockname() != first.getsockname()


def test_one_that_nobody_needs_is_closed(server: socket.socket) -> None:
    dialled = Dialled()
    dialled.begin([place_of(server)])
    there, _ = server.accept()
    dialled.close()
    with there:
        there.settimeout(30)
        assert there.recv(1) == b""


def test_one_that_failed_is_dialled_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        place = place_of(gone)
    dialled = Dialled()
    dialled.begin([place])
    with socket.create_server(place) as server, dial(*place, Deadline.after(30), Cancel(), dialled) as sock:
        assert sock.getpeername() == server.getsockname()


def test_names_are_not_looked_up_ahead(server: socket.socket) -> None:
    Dialled().begin([("localhost", server.getsockname()[1])])
    assert calls(server) == 0


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("Host *\n  SendEnv LANG\n  HashKnownHosts yes\n  User me\n  IdentityFile ~/.ssh/key\n", False),
        ("Host web\n  HostName 10.0.0.1\n", True),
        ("host web\n\tport 2222\n", True),
        ("Host *\n  ProxyJump bastion\n", True),
        ("ProxyCommand=nc %h %p\n", True),
        ("Match exec true\n  User me\n", True),
        ("BindAddress 10.0.0.9\n", True),
        ("Include more\n", True),
        ("Include nothing\n", False),
    ],
)
def test_an_ssh_configuration_that_may_send_hosts_elsewhere_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, elsewhere: bool
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(text)
    (tmp_path / ".ssh" / "more").write_text("Host *\n  Port 2222\n")
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    if is_redirecting():
        pytest.skip("the machine's own configuration may send hosts elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert is_redirecting() is elsewhere


STEP = "{name: a, type: command, with: {argv: [date]}%s}"


@pytest.mark.parametrize(
    ("task", "step", "called"),
    [
        ("", "", (1, 1)),
        (", batch: {size: 1, maxFailures: 0}", "", (1, 0)),
        ("", ", when: facts.hostname == 'x'", (1, 1)),
        (", when: 'false'", "", (0, 0)),
        (", runOn: {hosts: [a]}", "", (1, 0)),
    ],
)
def test_only_hosts_that_a_run_needs_are_called(tmp_path: Path, task: str, step: str, called: tuple[int, int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
        hosts = [{"name": name, "address": "127.0.0.1", "port": port} for name, port in zip("ab", ports, strict=True)]
        # Nobody there says a word, so that each host fails; one that is called twice would be called by mistake.
        inventory = {"defaults": {"user": "x", "hostKeys": "off", "connectTimeout": 1}, "hosts": hosts}
        write_spec(
            tmp_path,
            f"inventory: {json.dumps(inventory)}\nmodules:\n  - name: m\n    tasks:\n"
            f"      - {{name: t{task}, steps: [{STEP % step}]}}\n",
        )
        process = start("kubexm-run", "spec.yaml", cwd=tmp_path, env=environment(HOME=str(tmp_path)))
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in out + err
        assert (calls(first), calls(second)) == called, out + err


def test_a_run_that_is_refused_calls_nobody(tmp_path: Path, server: socket.socket) -> None:
    address, port = place_of(server)
    hosts = [{"name": "a", "address": address, "port": port, "password": "env:NOBODY_SET_THIS"}]
    write_spec(
        tmp_path,
        f"inventory: {json.dumps({'hosts': hosts})}\nmodules:\n  - name: m\n    tasks:\n"
        f"      - {{name: t, steps: [{STEP % ''}]}}\n",
    )
    assert "NOBODY_SET_THIS" not in os.environ
    process = start("kubexm-run", "spec.yaml", cwd=tmp_path, env=environment(HOME=str(tmp_path)))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out + err
    assert calls(server) == 0

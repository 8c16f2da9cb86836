"""Hosts that are silent, frozen or gone: noticed, and never waited for once nobody wants them any more."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.pool import ConnectorPool
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandCancelled, ConnectorError, OutcomeUnknown
from kubexm_exec.model.graph import GraphHost
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)
LATE = 300.0
"""Seconds that nothing here may take: what ends at once does not end because of this."""
QUICK = {"serverAliveInterval": 0.2, "serverAliveCountMax": 2}


class Registry:
    """Knows the SSH connector alone."""

    def load(self, name: str) -> Any:
        return SshConnector

    def names(self) -> list[str]:
        return ["ssh"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "box") as host:
        yield host


@contextmanager
def listener(greeting: bytes = b"") -> Iterator[tuple[int, threading.Event]]:
    """A port that takes a connection, says something at most, and never answers; with what tells that it was called."""
    called = threading.Event()
    callers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:

        def accept() -> None:
            with suppress(OSError):  # that is how it is told to end
                while True:
                    caller, _ = server.accept()
                    callers.append(caller)
                    with suppress(OSError):
                        caller.sendall(greeting)
                    called.set()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], called
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for caller in callers:
                caller.close()


@contextmanager
def deaf() -> Iterator[int]:
    """A port at which even a TCP connection does not come about: nobody takes those that wait already."""
    with socket.socket() as server, ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def silent_host(port: int, name: str = "h", **options: Any) -> GraphHost:
    given = {"connectTimeout": LATE, "hostKeys": "off", "privateKeyPath": None, **options}
    return GraphHost(name, address="127.0.0.1", port=port, user="x", options=given)


def pool_of(*hosts: GraphHost, most_opening: int = 100) -> ConnectorPool:
    return ConnectorPool({host.name: host for host in hosts}, Registry(), str, most_opening=most_opening)


def cancel_when(called: threading.Event | None, cancel: Cancel) -> threading.Thread:
    def wait() -> None:
        if called is not None:
            assert called.wait(LATE)
        cancel.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


# Nobody wants it any more


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-Silent\r\n"], ids=["no banner", "no key exchange"])
def test_a_cancel_ends_the_connecting_to_a_host_that_never_answers(greeting: bytes) -> None:
    with listener(greeting) as (port, called):
        cancel = Cancel()
        thread = cancel_when(called, cancel)
        with pytest.raises(CommandCancelled):
            pool_of(silent_host(port)).get("h", Deadline.after(LATE), cancel)
        thread.join()


def test_a_cancel_ends_the_connecting_to_a_port_that_is_deaf() -> None:
    with deaf() as port:
        cancel = Cancel()
        timer = threading.Timer(0.2, cancel.set)
        timer.start()
        with pytest.raises(CommandCancelled):
            pool_of(silent_host(port)).get("h", Deadline.after(LATE), cancel)
        timer.join()


def test_a_cancel_ends_the_wait_for_a_turn_to_connect() -> None:
    with listener() as (port, called):
        pool = pool_of(silent_host(port, "first"), silent_host(port, "second"), most_opening=1)
        first, second = Cancel(), Cancel()
        ended: list[BaseException] = []

        def open_first() -> None:
            with pytest.raises(CommandCancelled) as caught:
                pool.get("first", Deadline.after(LATE), first)
            ended.append(caught.value)

        thread = threading.Thread(target=open_first)
        thread.start()
        assert called.wait(LATE)
        second.set()
        with pytest.raises(CommandCancelled):
            pool.get("second", Deadline.after(LATE), second)
        first.set()
        thread.join()
        assert len(ended) == 1


def test_a_cancel_ends_a_reconnecting_in_the_middle_of_a_step(box: SshHost) -> None:
    connector = SshConnector(box.host(connectTimeout=LATE), str)
    connector.open(Deadline.after(LATE))
    port = box.port
    transport = connector._connection._link.transport  # type: ignore[union-attr]
    box.stop()
    transport.join(10)
    with socket.create_server(("127.0.0.1", port), backlog=1) as server:
        cancel = Cancel()

        def stop() -> None:
            caller, _ = server.accept()
            cancel.set()
            caller.recv(1000)
            caller.close()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(CommandCancelled):
            connector.run(Command(argv=("true",)), deadline=Deadline(), cancel=cancel)
        thread.join()
    connector.close()


def test_closing_a_connector_ends_its_opening() -> None:
    with listener() as (port, called):
        connector = SshConnector(silent_host(port), str)

        def close() -> None:
            assert called.wait(LATE)
            connector.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(ConnectorError, match="closed while it was opened"):
            connector.open(Deadline.after(LATE))
        thread.join()


def test_a_connector_that_was_closed_before_it_was_opened_is_not_opened() -> None:
    with listener() as (port, _):
        connector = SshConnector(silent_host(port), str)
        connector.close()
        with pytest.raises(ConnectorError, match="the run is over"):
            connector.open(Deadline.after(LATE))


def test_whoever_waits_for_a_turn_takes_no_place_that_a_cancel_made_free() -> None:
    with listener() as (port, called):
        pool = pool_of(*(silent_host(port, f"h{n}") for n in range(8)), most_opening=2)
        cancel = Cancel()
        ended: list[str] = []

        def open_one(name: str) -> None:
            with pytest.raises(CommandCancelled):
                pool.get(name, Deadline.after(LATE), cancel)
            ended.append(name)

        threads = [threading.Thread(target=open_one, args=(f"h{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        assert called.wait(LATE)
        cancel.set()
        for thread in threads:
            thread.join()
        assert len(ended) == 8


def test_nothing_is_left_of_a_cancelled_connecting() -> None:
    with listener() as (port, called):
        before = set(threading.enumerate())
        cancel = Cancel()
        thread = cancel_when(called, cancel)
        with pytest.raises(CommandCancelled):
            pool_of(silent_host(port)).get("h", Deadline.after(LATE), cancel)
        thread.join()
        assert set(threading.enumerate()) <= before


# Nobody is there any more


@pytest.fixture
def opened(box: SshHost) -> Iterator[Callable[..., SshConnector]]:
    with ExitStack() as stack:

        def make(**options: Any) -> SshConnector:
            connector = SshConnector(box.host(**options), str)
            stack.callback(connector.close)
            connector.open(Deadline.after(LATE))
            return connector

        yield make


def test_a_host_that_freezes_during_a_command_without_a_timeout_is_noticed(box: SshHost, opened: Any) -> None:
    connector = opened(**QUICK)
    with pytest.raises(OutcomeUnknown, match=r"host box: the host stopped answering during a command; .*unknown"):
        connector.run(
            Command(shell="echo up; sleep 600"),
            deadline=Deadline(),
            cancel=Cancel(),
            on_output=lambda stream, data: box.freeze(),
        )


def test_a_host_that_is_frozen_when_a_command_begins_is_noticed(box: SshHost, opened: Any) -> None:
    connector = opened(**QUICK)
    box.freeze()
    with pytest.raises(ConnectorError, match=r"host box: the host stopped answering") as caught:
        connector.run(Command(argv=("true",)), deadline=Deadline(), cancel=Cancel())
    assert not isinstance(caught.value, OutcomeUnknown)


@pytest.mark.parametrize("stdin", [None, b"x"])
def test_a_host_that_is_frozen_between_two_commands_is_noticed(box: SshHost, opened: Any, stdin: bytes | None) -> None:
    connector = opened(**QUICK)
    connector.run(Command(argv=("true",)), deadline=Deadline(), cancel=Cancel())
    box.freeze()
    with pytest.raises(ConnectorError, match=r"host box: the host stopped answering"):
        connector.run(Command(argv=("true",), stdin=stdin), deadline=Deadline(), cancel=Cancel())


def test_a_host_that_freezes_while_a_file_is_sent_is_noticed(box: SshHost, opened: Any) -> None:
    connector = opened(**QUICK)

    class Freezing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == 0:
                box.freeze()
            return super().read(size)

    with pytest.raises(ConnectorError, match=r"host box: "):
        connector.put(Freezing(b"x" * (64 << 20)), f"{box.prefix}/big", deadline=Deadline(), cancel=Cancel())
    assert not (box.prefix / "big").exists()


def test_a_long_silent_command_on_a_host_that_is_there_is_left_alone(opened: Any) -> None:
    connector = opened(**QUICK)
    transport = connector._connection._link.transport
    result = connector.run(Command(shell="sleep 2; echo end"), deadline=Deadline.after(LATE), cancel=Cancel())
    assert result.out == "end\n"
    assert connector._connection._link.transport is transport


def test_the_users_own_settings_say_when_a_silent_host_is_given_up(box: SshHost, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host *\n  ServerAliveInterval 7\n  ServerAliveCountMax 5\n")
    config = {"serveraliveinterval": "7", "serveralivecountmax": "5"}
    from kubexm_exec.connectors.ssh.options import Alive, read_options

    assert read_options(box.host(), str).alive(config) == Alive(7.0, 5)
    assert read_options(box.host(), str).alive({}) == Alive(15.0, 3)
    assert read_options(box.host(serverAliveInterval=0.0), str).alive(config) == Alive(0.0, 5)
    connector = SshConnector(box.host(), str)
    connector.open(Deadline.after(LATE))
    assert connector._connection._link.transport.sock.gettimeout() == 7.0  # type: ignore[union-attr]
    connector.close()


# Gateways


@pytest.fixture
def gateway(box: SshHost, home: Path, tmp_path: Path) -> Iterator[SshHost]:
    (home / ".ssh" / "config").write_text(f"Host 127.0.0.*\n  IdentityFile {box.key}\n")
    with ssh_host(tmp_path / "gateway", "127.0.0.31") as host:
        host.authorized.write_text((box.folder / "id.pub").read_text())
        yield host


def behind(box: SshHost, gateway: SshHost, name: str, **options: Any) -> GraphHost:
    return replace(box.host(proxyJump=f"{gateway.user}@{gateway.address}:{gateway.port}", **options), name=name)


def say(pool: ConnectorPool, name: str) -> str:
    connector = pool.get(name, Deadline.after(LATE))
    return connector.run(Command(argv=("echo", name)), deadline=Deadline.after(LATE), cancel=Cancel()).out


def test_hosts_behind_the_same_gateway_share_one_connection_to_it(box: SshHost, gateway: SshHost) -> None:
    pool = pool_of(*(behind(box, gateway, f"h{n}") for n in range(5)))
    threads = [threading.Thread(target=say, args=(pool, f"h{n}")) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(gateway.sessions()), len(box.sessions())) == (1, 5)
    pool.close()


def test_hosts_come_back_when_their_gateway_dropped_them(box: SshHost, gateway: SshHost) -> None:
    pool = pool_of(*(behind(box, gateway, f"h{n}") for n in range(3)))
    for n in range(3):
        say(pool, f"h{n}")
    links = [pool.get(f"h{n}", Deadline())._connection._link for n in range(3)]  # type: ignore[attr-defined]
    gateway.drop_connections()
    for link in links:
        link.transport.join(30)
    assert [say(pool, f"h{n}") for n in range(3)] == ["h0\n", "h1\n", "h2\n"]
    assert len(gateway.sessions()) == 1
    pool.close()


def test_a_gateway_is_left_when_the_last_host_behind_it_is_closed(box: SshHost, gateway: SshHost) -> None:
    before = set(threading.enumerate())
    pool = pool_of(behind(box, gateway, "a"), behind(box, gateway, "b"))
    say(pool, "a")
    say(pool, "b")
    assert pool.close() == []
    assert set(threading.enumerate()) <= before


def test_a_gateway_whose_key_changed_is_refused_for_every_host_behind_it(box: SshHost, gateway: SshHost) -> None:
    hosts = [behind(box, gateway, f"h{n}") for n in range(2)]
    pool = pool_of(*hosts)
    say(pool, "h0")
    pool.close()
    gateway.stop()
    gateway.new_host_key()
    gateway.start()
    pool = pool_of(*hosts)
    for n in range(2):
        with pytest.raises(ConnectorError, match=rf"host h{n}: the key of .*127\.0\.0\.31.* has CHANGED"):
            pool.get(f"h{n}", Deadline.after(LATE))


def test_hosts_with_another_idea_of_trust_have_a_gateway_of_their_own(
    box: SshHost, gateway: SshHost, tmp_path: Path
) -> None:
    pool = pool_of(
        behind(box, gateway, "a"),
        behind(box, gateway, "b", hostKeys="off"),
        behind(box, gateway, "c", knownHosts=str(tmp_path / "others")),
    )
    for name in "abc":
        say(pool, name)
    assert len(gateway.sessions()) == 3
    pool.close()


def test_a_cancel_ends_the_wait_for_a_gateway_that_cannot_get_there(box: SshHost, gateway: SshHost) -> None:
    with deaf() as port:
        pool = pool_of(
            replace(behind(box, gateway, "far", connectTimeout=LATE), port=port), behind(box, gateway, "near")
        )
        say(pool, "near")
        cancel = Cancel()
        timer = threading.Timer(0.3, cancel.set)
        timer.start()
        with pytest.raises(CommandCancelled):
            pool.get("far", Deadline.after(LATE), cancel)
        timer.join()
        # Those who share the gateway notice nothing.
        assert say(pool, "near") == "near\n"
        pool.close()


def test_no_more_hosts_than_the_limit_share_a_connection_to_a_gateway(box: SshHost, gateway: SshHost) -> None:
    from kubexm_exec.connectors.ssh.link import Gateways

    gateways = Gateways(most_behind=2)
    connectors = [SshConnector(behind(box, gateway, f"h{n}"), str, gateways) for n in range(5)]
    for connector in connectors:
        connector.open(Deadline.after(LATE))
    assert len(gateway.sessions()) == 3
    for connector in connectors:
        connector.close()

"""Files sent to a host: not if they are there, atomically, resumed where they were cut, and some at a time."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubexm_exec.connectors.base import Command, OnOutput, Readable
from kubexm_exec.connectors.filescripts import BLOCK
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, ConnectorError
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.runner import Runner
from kubexm_exec.runner.files import transfer
from kubexm_exec.runner.transfers import Transfers
from kubexm_exec.step import StepFailed
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host


class Counted:
    """A stream with a count of what was read of it."""

    def __init__(self, source: Readable) -> None:
        self.bytes = 0
        self._source = source

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self.bytes += len(data)
        return data


class Counting(LocalConnector):
    """This machine, with a count of what was sent to it."""

    def __init__(self) -> None:
        super().__init__(GraphHost("here", connector="local"), str)
        self.sent = 0
        self.commands = 0

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        from dataclasses import replace

        self.commands += 1
        stdin = command.stdin
        if stdin is None or isinstance(stdin, bytes):
            self.sent += len(stdin or b"")
            return super().run(command, deadline=deadline, cancel=cancel, on_output=on_output)
        counted = Counted(stdin)
        try:
            command = replace(command, stdin=counted)
            return super().run(command, deadline=deadline, cancel=cancel, on_output=on_output)
        finally:
            self.sent += counted.bytes


def content(size: int) -> bytes:
    """Bytes of which no two blocks are alike."""
    return random.Random(size).randbytes(size)


def part(target: Path, data: bytes, left: bytes, name: str = "00") -> Path:
    """What a try that was cut has left beside its target."""
    whole = hashlib.sha256(data).hexdigest()
    bound = hashlib.sha256(f"{whole} {target.name}".encode()).hexdigest()[:32]
    path = target.parent / f".kx-{bound}.{name}.part"
    path.write_bytes(left)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LARGE", 2 * BLOCK)
    monkeypatch.setattr(transfer, "SMALL", 1000)


@pytest.mark.parametrize("size", [0, 1, 1000, transfer.SMALL, transfer.SMALL + 1, 3 << 20, transfer.LARGE + 1])
def test_a_file_of_any_size_arrives_and_a_second_time_nothing_is_sent(
    runner: Runner, folder: Path, tmp_path: Path, size: int
) -> None:
    local = tmp_path / "local"
    local.write_bytes(content(size))
    assert runner.send(local, f"{folder}/file", mode=0o640) is True
    assert (folder / "file").read_bytes() == content(size)
    assert (folder / "file").stat().st_mode & 0o7777 == 0o640
    inode = (folder / "file").stat().st_ino
    assert runner.send(local, f"{folder}/file", mode=0o640) is False
    assert (folder / "file").stat().st_ino == inode
    assert runner.send(local, f"{folder}/file", mode=0o600) is True
    assert (folder / "file").stat().st_mode & 0o7777 == 0o600
    assert (folder / "file").stat().st_ino == inode, "the mode alone is no reason to send it again"
    assert names(folder) == ["file"]


def test_an_open_file_is_sent_in_the_same_way(runner: Runner, folder: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(content(transfer.LARGE))
    with local.open("rb") as file:
        runner.write(f"{folder}/file", file)
        file.seek(transfer.LARGE - 3)
        runner.write(f"{folder}/rest", file)
    assert (folder / "file").read_bytes() == content(transfer.LARGE)
    assert (folder / "rest").read_bytes() == content(transfer.LARGE)[-3:]


def test_a_replaced_file_keeps_its_mode(runner: Runner, folder: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(content(transfer.LARGE))
    (folder / "file").write_bytes(b"old")
    (folder / "file").chmod(0o751)
    runner.send(local, f"{folder}/file")
    assert (folder / "file").stat().st_mode & 0o7777 == 0o751


@pytest.mark.parametrize("size", [100_000, transfer.LARGE])
def test_a_failure_on_the_host_leaves_the_old_file_and_nothing_else(
    runner: Runner, folder: Path, tmp_path: Path, size: int
) -> None:
    local = tmp_path / "local"
    local.write_bytes(content(size))
    (folder / "file").write_bytes(b"old")
    with pytest.raises(StepFailed, match="kx-nobody"):
        runner.send(local, f"{folder}/file", owner="kx-nobody")
    assert (folder / "file").read_bytes() == b"old"
    assert names(folder) == ["file"]
    (folder / "sub").mkdir()
    with pytest.raises(StepFailed, match="is a directory"):
        runner.send(local, f"{folder}/sub")
    with pytest.raises(StepFailed, match="no such file") as caught:
        runner.send(local, f"{folder}/missing/file")
    assert "createParents" in caught.value.hint
    assert names(folder) == ["file", "sub"]


@pytest.mark.parametrize("size", [500, 100_000, transfer.LARGE])
def test_a_file_that_is_written_to_while_it_is_sent_is_refused(folder: Path, tmp_path: Path, size: int) -> None:
    local = tmp_path / "local"
    local.write_bytes(content(size))
    runner = Runner(Counting(), deadline=Deadline.after(60))
    source = runner.source(local)
    local.write_bytes(content(size)[::-1])
    (folder / "file").write_bytes(b"old")
    with pytest.raises(StepFailed, match="was changed while it was sent"):
        transfer.send(runner._session, source, transfer.Target(f"{folder}/file"))
    assert (folder / "file").read_bytes() == b"old"
    assert names(folder) == ["file"]


def test_a_local_file_is_read_once_for_all_hosts(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * 5_000_000)
    transfers = Transfers()
    now = Deadline.after(60)
    first = transfers.source(local, now, Cancel())
    assert all(transfers.source(local, now, Cancel()) is first for _ in range(20))
    local.write_bytes(b"y" * 5_000_000)
    assert transfers.source(local, now, Cancel()).sha256 == hashlib.sha256(b"y" * 5_000_000).hexdigest()


def test_a_local_file_that_cannot_be_read_is_named(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="local on the control node: no such file"):
        runner.source(tmp_path / "local")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StepFailed, match="not a regular file"):
        runner.source(tmp_path / "pipe")


# resuming


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    size=st.integers(2 * BLOCK, 5 * BLOCK + 17),
    cut=st.integers(0, 6 * BLOCK),
    wrong=st.one_of(st.none(), st.integers(0, 5 * BLOCK)),
)
def test_whatever_was_left_the_whole_file_arrives_and_what_was_right_is_not_sent_again(
    small_is_large: None, tmp_path_factory: pytest.TempPathFactory, size: int, cut: int, wrong: int | None
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    data = content(size)
    left = bytearray(data[:cut].ljust(min(cut, size), b"!"))
    if wrong is not None and wrong < len(left):
        left[wrong] ^= 1
    (folder / "local").write_bytes(data)
    (folder / "host").mkdir()
    target = folder / "host" / "file"
    part(target, data, bytes(left))
    connector = Counting()
    Runner(connector, deadline=Deadline.after(60)).send(folder / "local", str(target))
    assert target.read_bytes() == data
    assert names(target.parent) == ["file"]
    right = len(left) // BLOCK * BLOCK
    broken = wrong is not None and wrong < right
    assert connector.sent == size - (0 if broken else right)


def test_the_longest_part_is_taken_and_old_ones_of_others_are_removed(
    small_is_large: None, folder: Path, tmp_path: Path
) -> None:
    data = content(5 * BLOCK)
    local = tmp_path / "local"
    local.write_bytes(data)
    target = folder / "file"
    part(target, data, data[:BLOCK], "aa")
    part(target, data, data[: 3 * BLOCK], "bb")
    old, young = folder / ".kx-0123.ab.part", folder / ".kx-4567.cd.part"
    killed = folder / ".kx-89.tmp"
    for path in (old, young, killed):
        path.write_bytes(b"x")
    for path in (old, killed):
        os.utime(path, (time.time() - 200_000,) * 2)
    connector = Counting()
    Runner(connector, deadline=Deadline.after(60)).send(local, str(target))
    assert connector.sent == 2 * BLOCK
    assert set(names(folder)) - {part(target, data, b"", "aa").name} == {young.name, "file"}


@pytest.mark.parametrize("trap", ["link", "hard link"])
def test_a_part_that_leads_elsewhere_is_never_written_to(
    small_is_large: None, folder: Path, tmp_path: Path, trap: str
) -> None:
    data = content(4 * BLOCK)
    (tmp_path / "local").write_bytes(data)
    precious = tmp_path / "precious"
    precious.write_bytes(data[:BLOCK])
    target = folder / "file"
    path = part(target, data, b"")
    path.unlink()
    if trap == "link":
        path.symlink_to(precious)
    else:
        path.hardlink_to(precious)
    Runner(Counting(), deadline=Deadline.after(60)).send(tmp_path / "local", str(target))
    assert precious.read_bytes() == data[:BLOCK]
    assert target.read_bytes() == data


def test_a_part_that_somebody_else_spoils_is_noticed_and_sent_anew(
    small_is_large: None, folder: Path, tmp_path: Path
) -> None:
    data = content(6 * BLOCK)
    local = tmp_path / "local"
    local.write_bytes(data)
    target = folder / "file"
    part(target, data, data[: 3 * BLOCK])
    spoilt: list[Path] = []

    def spoil(message: str, done: float | None, total: float | None) -> None:
        if not spoilt:
            (taken,) = folder.glob(".kx-*.part")
            spoilt.append(taken)
            with taken.open("r+b") as file:
                file.write(b"spoilt")

    connector = Counting()
    Runner(connector, deadline=Deadline.after(60), on_progress=spoil).send(local, str(target))
    assert target.read_bytes() == data
    assert connector.sent == 3 * BLOCK + 6 * BLOCK
    assert names(folder) == ["file"]


def test_what_was_stopped_is_gone_on_with_the_next_time(folder: Path, tmp_path: Path) -> None:
    size = 2 * transfer.LARGE
    local = tmp_path / "local"
    local.write_bytes(content(size))
    cancel = Cancel()
    connector = Counting()

    def watch(message: str, done: float | None, total: float | None) -> None:
        if (done or 0) > size / 2:
            cancel.set()

    deadline = Deadline.after(60)
    with pytest.raises(CommandCancelled, match=rf"while sending {folder.parent}.*/file \(\d+ of {size} bytes\)"):
        Runner(connector, deadline=deadline, cancel=cancel, on_progress=watch).send(local, f"{folder}/file")
    (left,) = folder.iterdir()
    assert left.name.endswith(".part")
    assert left.stat().st_mode & 0o7777 == 0o600
    connector.sent = 0
    Runner(connector, deadline=Deadline.after(60)).send(local, f"{folder}/file")
    assert (folder / "file").read_bytes() == content(size)
    assert connector.sent < size
    assert names(folder) == ["file"]


# a limit for large ones


def in_threads(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_so_many_large_files_are_sent_at_once_and_small_ones_never_wait(folder: Path, tmp_path: Path) -> None:
    large, little = tmp_path / "large", tmp_path / "little"
    large.write_bytes(content(transfer.LARGE))
    little.write_bytes(b"x" * 100_000)
    transfers = Transfers(2)
    lock, both, go = threading.Lock(), threading.Event(), threading.Event()
    sending: set[int] = set()
    waits: set[int] = set()
    most = 0

    def send(number: int) -> None:
        def watch(message: str, done: float | None, total: float | None) -> None:
            nonlocal most
            with lock:
                if "waits" in message:
                    assert message == f"file{number}: waits, 2 uploads are going on"
                    waits.add(number)
                else:
                    sending.add(number)
                    most = max(most, len(sending))
                if len(sending) == 2 and len(waits) == 3:
                    both.set()
            if done is not None:
                go.wait(60)
            if done == total:
                with lock:
                    sending.discard(number)

        runner = Runner(Counting(), deadline=Deadline.after(60), transfers=transfers, on_progress=watch)
        runner.send(large, f"{folder}/file{number}")

    threads = in_threads(5, send)
    assert both.wait(60)
    Runner(Counting(), deadline=Deadline.after(60), transfers=transfers).send(little, f"{folder}/little")
    assert names(folder)[-1] == "little"
    go.set()
    for thread in threads:
        thread.join(60)
    assert most == 2
    assert [name for name in names(folder) if name.startswith("file")] == [f"file{number}" for number in range(5)]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_waiting_for_a_turn_ends_with_a_cancel_or_the_deadline(how: str) -> None:
    transfers = Transfers(1)
    cancel = Cancel()
    deadline = Deadline.after(0.05 if how == "deadline" else 60)
    with transfers.upload(Deadline(), Cancel(), lambda: None):
        expected = CommandCancelled if how == "cancel" else CommandTimedOut
        with (
            pytest.raises(expected, match="turn"),
            transfers.upload(deadline, cancel, cancel.set if how == "cancel" else lambda: None),
        ):
            pytest.fail("it is not its turn")
    with transfers.upload(Deadline.after(1), Cancel(), lambda: pytest.fail("nobody is in the way")):
        pass


# over a connection that breaks


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.mark.skipif(SSHD is None, reason=MISSING)
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_dropped_connection_leaves_the_old_file_and_a_part_and_the_rest_is_sent_later(
    box: SshHost, tmp_path: Path, at: float
) -> None:
    size = 40 << 20
    local, target = tmp_path / "local", tmp_path / "host" / "file"
    target.parent.mkdir()
    target.write_bytes(b"old")
    local.write_bytes(content(size))
    connector = SshConnector(box.host(), str)
    dropped = False

    def drop(message: str, done: float | None, total: float | None) -> None:
        nonlocal dropped
        if not dropped and (done or 0) > size * at:
            dropped = True
            box.drop_connections()

    with pytest.raises(ConnectorError):
        Runner(connector, deadline=Deadline.after(60), on_progress=drop).send(local, str(target))
    assert target.read_bytes() == b"old"
    seen: list[float] = []
    resumed = Runner(connector, deadline=Deadline.after(60), on_progress=lambda *said: seen.append(said[1] or 0))
    resumed.send(local, str(target))
    connector.close()
    assert target.read_bytes() == local.read_bytes()
    assert names(target.parent) == ["file"]
    if at > 0.4:
        assert seen[0] > size * at / 4, "it went on, and did not begin again"

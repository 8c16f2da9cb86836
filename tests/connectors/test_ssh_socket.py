"""The socket below a transport: all that comes arrives in order, however it is asked for, and closing wakes readers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.connectors.sshsocket import EagerSocket, HostPacketizer


@pytest.fixture
def pair() -> Iterator[tuple[EagerSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield EagerSocket(ours), theirs


@given(pieces=st.lists(st.binary(min_size=1, max_size=20_000), max_size=5), sizes=st.lists(st.integers(1, 30_000)))
def test_what_was_sent_arrives_whole_in_pieces_of_any_size(pieces: list[bytes], sizes: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        eager = EagerSocket(ours)
        for piece in pieces:
            theirs.sendall(piece)
        theirs.shutdown(socket.SHUT_WR)
        found = []
        wanted = iter(sizes)
        while data := eager.recv(size := next(wanted, 16)):
            assert len(data) <= size
            found.append(data)
        assert b"".join(found) == b"".join(pieces)


def test_a_read_of_nothing_times_out_and_what_comes_later_is_still_read(
    pair: tuple[EagerSocket, socket.socket],
) -> None:
    eager, theirs = pair
    eager.settimeout(0.01)
    with pytest.raises(TimeoutError):
        eager.recv(16)
    theirs.sendall(b"late")
    assert (eager.recv(1), eager.recv(16)) == (b"l", b"ate")


def test_a_write_that_nobody_takes_times_out_as_paramiko_expects_it(pair: tuple[EagerSocket, socket.socket]) -> None:
    eager, _ = pair
    eager.settimeout(0.01)

    def fill() -> None:
        while True:
            eager.send(b"x" * 65536)

    with pytest.raises(TimeoutError):
        fill()


def test_closing_wakes_whoever_reads(pair: tuple[EagerSocket, socket.socket]) -> None:
    eager, _ = pair
    eager.settimeout(300.0)

    def read() -> None:
        with contextlib.suppress(OSError):  # if it was closed before
            eager.recv(16)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    eager.close()
    reader.join(60)
    assert not reader.is_alive()


def test_a_handshake_may_take_its_time_and_no_more(pair: tuple[EagerSocket, socket.socket]) -> None:
    packetizer = HostPacketizer(pair[0].plain)
    assert not packetizer.handshake_timed_out()
    packetizer.start_handshake(300.0)
    assert not packetizer.handshake_timed_out()
    packetizer.start_handshake(0.0)
    assert packetizer.handshake_timed_out()
    packetizer.complete_handshake()
    assert not packetizer.handshake_timed_out()

"""The socket below a transport: all that comes arrives in order, however it is asked for, and closing wakes readers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.packet import Packetizer

from kubexm_exec.connectors.ssh.transport import EagerSocket, HostPacketizer


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


@given(groups=st.lists(st.lists(st.binary(min_size=1, max_size=200_000), max_size=6), max_size=4))
def test_what_is_sent_together_arrives_whole_and_in_order(groups: list[list[bytes]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # So small that a group does not fit.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        eager = EagerSocket(ours)
        found: list[bytes] = []

        def read() -> None:
            while data := theirs.recv(65536):
                found.append(data)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for pieces in groups:
            with eager.together():
                for piece in pieces:
                    assert eager.send(piece) == len(piece)
            eager.plain.sendall(b"|")
        ours.shutdown(socket.SHUT_WR)
        reader.join(60)

    assert b"".join(found) == b"".join(b"".join([*pieces, b"|"]) for pieces in groups)


def test_nothing_is_written_before_the_end_and_what_others_send_meanwhile_comes_after_it(
    pair: tuple[EagerSocket, socket.socket],
) -> None:
    eager, theirs = pair
    with eager.together():
        eager.send(b"one ")
        other = threading.Thread(target=eager.send, args=(b"two ",))
        other.start()
        other.join(60)
        eager.send(b"three ")
        with pytest.raises(BlockingIOError):
            theirs.recv(64, socket.MSG_DONTWAIT)
    eager.send(b"four")
    assert theirs.recv(64) == b"one two three four"


def test_what_cannot_be_written_together_is_the_end_as_paramiko_expects_it(
    pair: tuple[EagerSocket, socket.socket],
) -> None:
    eager, theirs = pair
    theirs.close()

    def send() -> None:
        with eager.together():
            eager.send(b"x")

    with pytest.raises(EOFError):
        send()
    with pytest.raises(BrokenPipeError):
        eager.send(b"not gathered for ever")


def test_a_close_ends_a_write_that_nobody_takes(pair: tuple[EagerSocket, socket.socket]) -> None:
    eager, theirs = pair
    eager.settimeout(0.01)
    ended = threading.Event()

    def fill() -> None:
        with contextlib.suppress(EOFError), eager.together():
            for _ in range(64):
                eager.send(b"x" * 65536)
        ended.set()

    threading.Thread(target=fill, daemon=True).start()
    theirs.recv(1)  # it is being written
    assert not ended.is_set()
    eager.close()
    assert ended.wait(60)


@given(size=st.integers(0, 70_000), block=st.sampled_from([8, 16]))
def test_a_packet_is_built_as_paramiko_builds_it(size: int, block: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        payload = os.urandom(size)
        cipher = {"block_engine": object(), "block_size": block, "mac_engine": None, "mac_size": 16, "mac_key": None}
        packets: list[bytes] = []
        for packetizer in (HostPacketizer(ours), Packetizer(ours)):
            made: Any = packetizer
            made.set_outbound_cipher(**cipher, aead=True, iv_out=b"")
            packets.append(made._build_packet(payload))

    one, other = packets
    assert len(one) == len(other)
    assert one[: 5 + size] == other[: 5 + size]
    assert (len(one) - 4) % block == 0
    assert 4 <= one[4] == len(one) - 5 - size

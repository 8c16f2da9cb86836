"""The transport of a connection: ciphers, keys and keepalive.

All overrides of paramiko are here, and a test compares them with the installed paramiko.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_REQUEST,
    cMSG_CHANNEL_CLOSE,
    cMSG_CHANNEL_EOF,
    cMSG_CHANNEL_REQUEST,
    cMSG_CHANNEL_WINDOW_ADJUST,
    cMSG_GLOBAL_REQUEST,
)
from paramiko.packet import Packetizer

from kubexm_exec.connectors.ssh.dialing import hang_up
from kubexm_exec.connectors.ssh.options import Alive
from kubexm_exec.model.errors import ConnectorError

_AT_ONCE: Final = 1 << 13
"""Bytes that are taken at once, if there are so many: most packets are much smaller."""


class EagerSocket:
    """A connected socket that takes all that has come, and lets the kernel watch the time.

    paramiko asks for a packet in two pieces, and Python's own timeouts ask whether anything is there before each. Every
    one of these calls releases the interpreter lock, for which all threads of a run compete.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.plain = sock
        self._receive = sock.recv
        self._held = b""
        self._at = 0
        self._timeout: float | None = None
        self._lock = threading.Lock()
        self._gathering = False
        self._gathered: list[bytes] = []
        sock.settimeout(None)

    def recv(self, size: int) -> bytes:
        """At most so many bytes, none at the end; only one thread reads."""
        at, held = self._at, self._held
        if at == len(held):
            try:
                held = self._receive(max(size, _AT_ONCE))
            except BlockingIOError:
                raise TimeoutError("timed out") from None
            if len(held) <= size:
                return held
            self._held, at = held, 0
        self._at = end = min(at + size, len(held))
        return held[at:end]

    def send(self, data: bytes) -> int:
        """As many of the bytes as there is room for; waits for room. A call that waits for room for all is slower."""
        with self._lock:
            if self._gathering:
                self._gathered.append(data)
                return len(data)
        try:
            return self.plain.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if not self._wait_for_room():
                raise TimeoutError("timed out") from None
            return self.plain.send(data, socket.MSG_DONTWAIT)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write what any thread sends meanwhile with one call at the end; one thread at a time. Raises EOFError."""
        self._gathering = True
        try:
            yield
        finally:
            try:
                # What others send while it is written comes after it.
                while pieces := self._gathered_so_far():
                    self._write(pieces)
            except OSError as error:
                raise EOFError from error
            finally:
                self._gathering = False

    def _gathered_so_far(self) -> list[bytes]:
        with self._lock:
            pieces, self._gathered = self._gathered, []
            self._gathering = bool(pieces)
            return pieces

    def _write(self, pieces: Sequence[bytes]) -> None:
        left = deque(memoryview(piece) for piece in pieces)
        while left:
            try:
                sent = self.plain.sendmsg(left, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                # Giving up on a host that accepts nothing closes the socket.
                self._wait_for_room()
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]

    def _wait_for_room(self) -> bool:
        room = select.poll()
        room.register(self.plain, select.POLLOUT)
        return bool(room.poll(None if self._timeout is None else self._timeout * 1000))

    def settimeout(self, seconds: float) -> None:
        """How long a call waits: it then raises TimeoutError."""
        self._timeout = seconds
        # None at all would mean for ever.
        value = struct.pack("ll", *divmod(max(1, int(seconds * 1_000_000)), 1_000_000))
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)

    def gettimeout(self) -> float | None:
        """How long a call waits."""
        return self._timeout

    def getpeername(self) -> object:
        """The address of the peer."""
        return self.plain.getpeername()

    @property
    def _closed(self) -> bool:
        """Asked for by paramiko, of every socket."""
        return self.plain.fileno() < 0

    def close(self) -> None:
        """Shut it down and close it: closing alone would not wake threads that wait in the kernel."""
        with contextlib.suppress(OSError):
            self.plain.shutdown(socket.SHUT_RDWR)
        self.plain.close()


CIPHERS: Final = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
"""What OpenSSH itself offers, the quickest first: GCM needs no second pass for a MAC. The CBC ones stay out."""
_IDLE_LOOK: Final = 60.0
"""Seconds between two looks of an idle connection's thread if nobody is asked; paramiko's own 0.1 costs much CPU."""
_HANDSHAKE_LOOK: Final = 1.0
"""The same during login, to detect a timeout; giving up wakes it."""
_COURTESIES: Final = (cMSG_CHANNEL_WINDOW_ADJUST, cMSG_CHANNEL_EOF, cMSG_CHANNEL_CLOSE)
"""Messages that a host which has gone need not get."""


class RememberingConfig(paramiko.SSHConfig):
    """An SSH configuration that is asked for each host more than once, and puts the answer together once."""

    def __init__(self, check: Callable[[str], object], check_found: Callable[[str, Any], object]) -> None:
        """``check`` is asked about a host before it is looked up, ``check_found`` about what was found."""
        super().__init__()
        self._check, self._check_found = check, check_found
        self._found: dict[str, Any] = {}

    def lookup(self, hostname: str) -> Any:
        """What is configured for a host; only to be read."""
        found = self._found.get(hostname)
        if found is None:
            self._check(hostname)
            found = super().lookup(hostname)
            self._check_found(hostname, found)
            self._found[hostname] = found
        return found


class Exit:
    """The end of the process that the host runs for a channel."""

    def __init__(self) -> None:
        self.seen: float | None = None
        """When it was told, by this process's clock."""
        self.wake: Callable[[], object] | None = None
        """Called when it is told."""

    def ring(self) -> None:
        """It has ended."""
        self.seen = time.monotonic()
        if self.wake is not None:
            self.wake()


class HostPacketizer(Packetizer):
    """One that checks the clock instead of starting a thread for the handshake timeout, and copies less."""

    _until: float | None = None
    _block = 0
    """Of the cipher that is used, if it is one that leaves the length of a packet as it is."""

    def set_outbound_cipher(self, *arguments: Any, **named: Any) -> None:
        """Use this cipher from now on."""
        super().set_outbound_cipher(*arguments, **named)
        self._block = named["block_size"] if named.get("aead") else 0

    def _build_packet(self, payload: bytes) -> bytes:
        if not self._block:
            return cast(bytes, super()._build_packet(payload))  # type: ignore[misc]
        padding = 3 + self._block - (len(payload) + 4) % self._block
        head = struct.pack(">IB", len(payload) + padding + 1, padding)
        return b"".join((head, payload, os.urandom(padding)))

    def start_handshake(self, timeout: float) -> None:
        """The handshake has begun and may take so long."""
        self._until = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        """Whether it has taken too long."""
        return self._until is not None and time.monotonic() >= self._until

    def complete_handshake(self) -> None:
        """It is over."""
        self._until = None


class HostTransport(paramiko.Transport):
    """A transport with a keepalive, which ends after too many unanswered requests."""

    silent: bool = False
    """Whether it ended because the host did not answer."""
    _unanswered = 0
    _most = 0
    _broken = False
    _exits: WeakKeyDictionary[paramiko.Channel, Exit]

    @classmethod
    def over(cls, kinds: Sequence[str], sock: Any, **more: Any) -> HostTransport:
        """A transport that asks first for the kinds of key that the host is known by."""
        eager: Any = EagerSocket(sock) if isinstance(sock, socket.socket) else sock
        transport = cls(eager, packetizer_class=HostPacketizer, **more)
        transport._exits = WeakKeyDictionary()
        transport.sock.settimeout(_HANDSHAKE_LOOK)
        security = transport.get_security_options()
        security.ciphers = [name for name in CIPHERS if name in security.ciphers] or list(security.ciphers)
        if kinds:
            wanted = [kind for known in kinds for kind in _signatures(known) if kind in security.key_types]
            security.key_types = [*wanted, *(kind for kind in security.key_types if kind not in wanted)]
        return transport

    def watch(self, alive: Alive) -> None:
        """Ask from now on, whenever nothing has come for a while."""
        self.sock.settimeout(alive.interval or _IDLE_LOOK)
        if alive.interval:
            self._most = alive.most
            _set_tcp_limits(getattr(self.sock, "plain", self.sock), alive)
            # Called by the reading thread whenever its read has timed out, that is after each interval of silence.
            self.packetizer.set_keepalive(0.001, self._ask)

    def is_active(self) -> bool:
        """Whether it is up, as far as its reading thread and the last writer know."""
        return super().is_active() and not self._broken

    def exit_of(self, channel: paramiko.Channel) -> Exit:
        """Tells when what the host runs for a channel has ended, also while others hold its output open."""
        return self._exits.setdefault(channel, Exit())

    def _handle_channel_request(self, channel: paramiko.Channel, m: paramiko.Message) -> None:
        at = m.packet.tell()
        kind = m.get_text()
        m.packet.seek(at)
        _handle_request(channel, m)
        if kind in ("exit-status", "exit-signal"):
            self.exit_of(channel).ring()

    def send_request(self, channel: paramiko.Channel, kind: str, *arguments: bytes | int) -> None:
        """Send a request of a channel, and do not wait for its answer; raises OSError, or ConnectorError."""
        message = paramiko.Message()
        message.add_byte(cMSG_CHANNEL_REQUEST)
        message.add_int(channel.remote_chanid)
        message.add_string(kind)
        message.add_boolean(True)
        for argument in arguments:
            if isinstance(argument, int):
                message.add_int(argument)
            else:
                message.add_string(argument)
        try:
            self._send_user_message(message)
        except paramiko.SSHException as error:
            raise ConnectorError(f"the host does not start a shell: {error}") from error

    def send_some(self, channel: paramiko.Channel, data: memoryview) -> int:
        """Send as much as the host has room for, and wait until it has for some; gives how much, 0 after the end.

        As ``channel.send`` does it, but not only one packet: each system call releases the interpreter lock.
        """
        messages: list[paramiko.Message] = []
        at = 0
        with channel.lock:
            if channel.closed:
                raise OSError("the channel is closed")
            while at < len(data) and (at == 0 or channel.out_window_size > 0):
                size = channel._wait_for_send_window(len(data) - at)  # type: ignore[attr-defined]
                if size == 0:
                    break
                head = struct.pack(">BII", MSG_CHANNEL_DATA, channel.remote_chanid, size)
                messages.append(paramiko.Message(b"".join((head, data[at : at + size]))))
                at += size
        # As paramiko does it, without the channel's lock: new keys may be due just now.
        if messages:
            self._send_user_message(messages)
        return at

    def _send_message(self, data: paramiko.Message | list[paramiko.Message]) -> None:
        if not isinstance(data, list):
            super()._send_message(data)  # type: ignore[misc]
            return
        with self.sock.together() if isinstance(self.sock, EagerSocket) else contextlib.nullcontext():
            for message in data:
                super()._send_message(message)  # type: ignore[misc]

    def _send_user_message(self, data: paramiko.Message | list[paramiko.Message]) -> None:
        """Send messages; an OSError, and not paramiko's EOFError, if the host has gone and did not get all of it."""
        try:
            super()._send_user_message(data)  # type: ignore[misc]
        except EOFError as error:
            self._broken = True
            hang_up(getattr(self.sock, "plain", self.sock))
            if isinstance(data, list) or data.asbytes()[:1] not in _COURTESIES:
                raise ConnectionResetError("the connection broke") from error

    def _parse_debug(self, m: paramiko.Message) -> None:
        # OpenSSH sends some to every client, and paramiko formats each one even if its log is off.
        if self.logger.isEnabledFor(logging.DEBUG):
            super()._parse_debug(m)  # type: ignore[misc]

    def _ask(self) -> None:
        if self._unanswered >= self._most:
            self.silent = True
            raise paramiko.SSHException("the host does not answer any more")
        self._unanswered += 1
        # A writer may be blocked because the host does not read: its data then serves as the request.
        if self.clear_to_send_lock.acquire(blocking=False):
            try:
                if self.clear_to_send.is_set():
                    message = paramiko.Message()
                    message.add_byte(cMSG_GLOBAL_REQUEST)
                    message.add_string("keepalive@openssh.com")
                    message.add_boolean(True)
                    self._send_message(message)
            finally:
                self.clear_to_send_lock.release()

    def _parse_request_success(self, m: paramiko.Message) -> None:
        self._unanswered = 0
        super()._parse_request_success(m)  # type: ignore[misc]

    def _parse_request_failure(self, m: paramiko.Message) -> None:
        # How OpenSSH answers a request that it does not know: it is there.
        self._unanswered = 0
        super()._parse_request_failure(m)  # type: ignore[misc]


# paramiko hands on an exit status to whoever waits for that alone, and knows nothing of signals.
_handle_request: Final = paramiko.Transport._channel_handler_table[MSG_CHANNEL_REQUEST]  # type: ignore[attr-defined]
HostTransport._channel_handler_table = {  # type: ignore[attr-defined]
    **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
    MSG_CHANNEL_REQUEST: lambda channel, m: channel.transport._handle_channel_request(channel, m),
}


def _set_tcp_limits(sock: Any, alive: Alive) -> None:
    """Let the kernel notice a dead peer no later than we do, also while something is being written."""
    if not isinstance(sock, socket.socket) or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = max(1, round(alive.interval))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_KEEPCNT", max(1, alive.most)),
        ("TCP_USER_TIMEOUT", 1000 * seconds * (alive.most + 1)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _signatures(kind: str) -> tuple[str, ...]:
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)

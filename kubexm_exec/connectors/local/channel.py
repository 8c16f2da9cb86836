"""A shell on the control node, behind the interface that the SSH connector has of a channel."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import selectors
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from kubexm_exec.connectors.local.process import CHUNK, POLL, TERMINAL_SIZE, exit_descriptor, in_terminal
from kubexm_exec.control import Waker

_MOST: Final = 1 << 20
"""Bytes that wait for their reader; then the process waits."""
_PIPE: Final = 1 << 15
"""Bytes that a pipe takes at once, whatever the process does."""
_LOOK: Final = 0.2
"""Seconds between two looks whether somebody has closed the channel that a process does not read from."""
# Numbers of RFC 4254, each with the part of a terminal's settings and the flag.
_MODES: Final = {
    33: (0, termios.ISTRIP), 34: (0, termios.INLCR), 35: (0, termios.IGNCR), 36: (0, termios.ICRNL),
    38: (0, termios.IXON), 40: (0, termios.IXOFF), 50: (3, termios.ISIG), 51: (3, termios.ICANON),
    53: (3, termios.ECHO), 59: (3, termios.IEXTEN), 70: (1, termios.OPOST), 72: (1, termios.ONLCR),
}  # fmt: skip


class _Exit:
    """The end of the process."""

    def __init__(self) -> None:
        self.seen: float | None = None
        self.wake: Any = None

    def ring(self) -> None:
        self.seen = time.monotonic()
        if self.wake is not None:
            self.wake()


class _Buffer:
    """One stream of the process, until it is read."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._news = threading.Condition()
        self._event: Any = None
        self._closed = False

    def set_event(self, event: Any) -> None:
        """Set this event whenever there is something to read, and at the end."""
        with self._news:
            self._event = event
            if self._data or self._closed:
                event.set()

    def put(self, data: bytes) -> None:
        """Add bytes; waits for its reader if there are many already."""
        with self._news:
            while len(self._data) >= _MOST and not self._closed:
                self._news.wait()
            self._data += data
            self.ring()

    def take(self, size: int) -> bytes:
        """At most so many bytes."""
        with self._news:
            data = bytes(self._data[:size])
            del self._data[:size]
            self._news.notify_all()
            return data

    def ring(self) -> None:
        """Wake the reader."""
        if self._event is not None:
            self._event.set()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            self.ring()

    def __len__(self) -> int:
        return len(self._data)


class LocalChannel:
    """What is used of a paramiko channel and its transport, over the pipes or the terminal of a process."""

    out_window_size: Final = _PIPE

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        """Commands start in this folder, the working directory if it is empty."""
        self.transport = self
        self.in_buffer, self.in_stderr_buffer = _Buffer(), _Buffer()
        self.closed = self.eof_received = False
        self._folder = folder
        self._env = env
        self._exit = _Exit()
        self._modes: bytes | None = None
        self._timeout: float | None = None
        self._lock = threading.Lock()
        self._input: int | None = None
        self._waker: Waker | None = None

    # the transport

    def get_transport(self) -> LocalChannel:
        """Itself: it has no other."""
        return self

    def exit_of(self, channel: object) -> _Exit:
        """Tells when the process has ended, also while others hold its output open."""
        return self._exit

    def send_request(self, channel: object, kind: str, *arguments: bytes | int) -> None:
        """Have a terminal (``pty-req``), or start the shell that runs a line (``exec``)."""
        line = arguments[-1]
        assert isinstance(line, bytes)
        if kind == "pty-req":
            self._modes = line
        else:
            self._start(line)

    def send_some(self, channel: object, data: memoryview) -> int:
        """Write as much as there is room for, and wait until there is for some."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            with self._lock:
                if self._input is None:
                    raise OSError(errno.EPIPE, "the channel is closed")
                with contextlib.suppress(BlockingIOError):
                    return os.write(self._input, data[:CHUNK])
                room = select.poll()
                room.register(self._input, select.POLLOUT)
            left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
            if left <= 0:
                raise TimeoutError
            # In small steps: a descriptor that is closed meanwhile wakes nobody.
            room.poll(left * 1000)

    # the channel

    def settimeout(self, seconds: float | None) -> None:
        """Wait at most so long for each write."""
        self._timeout = seconds

    def sendall(self, data: bytes) -> None:
        """Write everything."""
        left = memoryview(data)
        while left:
            left = left[self.send_some(self, left) :]

    def shutdown_write(self) -> None:
        """End the input; that of a terminal has no end."""
        with self._lock:
            if self._modes is None and self._input is not None:
                os.close(self._input)
                self._input = None

    def recv_ready(self) -> bool:
        """Whether there is output."""
        return len(self.in_buffer) > 0

    def recv(self, size: int) -> bytes:
        """Some output."""
        return self.in_buffer.take(size)

    def recv_stderr_ready(self) -> bool:
        """Whether there are messages."""
        return len(self.in_stderr_buffer) > 0

    def recv_stderr(self, size: int) -> bytes:
        """Some messages."""
        return self.in_stderr_buffer.take(size)

    def close(self) -> None:
        """Let go of the process, which ends if it waits for input."""
        self.closed = True
        self.in_buffer.close()
        self.in_stderr_buffer.close()
        with self._lock:
            if self._input is not None:
                os.close(self._input)
                self._input = None
            if self._waker is not None:
                self._waker.wake()

    # the process

    def _start(self, line: bytes) -> None:
        argv: list[Any] = ["/bin/sh", "-c", line]
        more: dict[str, Any] = {"cwd": self._folder or None, "start_new_session": True, "bufsize": 0}
        if self._modes is None:
            pipe = subprocess.PIPE
            process = subprocess.Popen(argv, env=self._env, stdin=pipe, stdout=pipe, stderr=pipe, **more)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            outputs = {
                os.dup(process.stdout.fileno()): self.in_buffer,
                os.dup(process.stderr.fileno()): self.in_stderr_buffer,
            }
            entry = os.dup(process.stdin.fileno())
            for each in (process.stdin, process.stdout, process.stderr):
                each.close()
        else:
            entry, theirs = _terminal(self._modes)
            try:
                process = subprocess.Popen(
                    in_terminal(theirs, argv), env={**self._env, "TERM": "dumb"}, stdin=theirs, stdout=theirs,
                    stderr=theirs, **more,
                )  # fmt: skip
            finally:
                os.close(theirs)
            outputs = {os.dup(entry): self.in_buffer}
        os.set_blocking(entry, False)
        self._input = entry
        self._waker = waker = Waker()
        threading.Thread(target=self._pump, args=(process, outputs, waker), name="kubexm-channel", daemon=True).start()

    def _pump(self, process: subprocess.Popen[bytes], outputs: dict[int, _Buffer], waker: Waker) -> None:
        """Read what the process writes, tell when it has ended, and reap it."""
        ending = exit_descriptor(process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(waker.reader, selectors.EVENT_READ)
            for fd in outputs:
                selector.register(fd, selectors.EVENT_READ)
            if ending is not None:
                selector.register(ending, selectors.EVENT_READ)
            running = True
            while not self.closed and (outputs or running):
                for key, _ in selector.select(None if ending is not None else POLL):
                    if (fd := key.fd) in outputs and not _move(fd, outputs[fd]):
                        selector.unregister(fd)
                        del outputs[fd]
                        os.close(fd)
                        self._end_of_output(left=bool(outputs))
                if running and process.poll() is not None:
                    running = False
                    if ending is not None:
                        selector.unregister(ending)
                    self._exit.ring()
        for fd in (*outputs, *(() if ending is None else (ending,))):
            os.close(fd)
        with self._lock:
            self._waker = None
            waker.close()
            if self._input is not None:
                os.close(self._input)
                self._input = None
        self._end_of_output(left=False)
        process.wait()

    def _end_of_output(self, *, left: bool) -> None:
        if not left:
            self.eof_received = True
            self.in_buffer.close()
            self.in_stderr_buffer.close()


def _move(fd: int, buffer: _Buffer) -> bool:
    """Read what there is; False at the end."""
    try:
        data = os.read(fd, CHUNK)
    except OSError as error:
        # The other end of a terminal was closed.
        if error.errno != errno.EIO:
            raise
        data = b""
    if data:
        buffer.put(data)
    return bool(data)


def _terminal(modes: bytes) -> tuple[int, int]:
    """The two ends of a new terminal, with some settings turned off."""
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    for number, value in struct.iter_unpack(">BI", modes[: len(modes) // 5 * 5]):
        if not value and number in _MODES:
            part, flag = _MODES[number]
            settings[part] &= ~flag
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, TERMINAL_SIZE)
    return ours, theirs

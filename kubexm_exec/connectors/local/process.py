"""Runs one process group to its end, its deadline or its cancel, whatever its children do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.guard import Guard
from kubexm_exec.control import Cancel, Deadline, Waker, raise_if_over
from kubexm_exec.model.command import CommandResult

TERMINAL_SIZE: Final = struct.pack("HHHH", 50, 200, 0, 0)
_END_OF_INPUT: Final = b"\x04"
# The first terminal that the leader of a session opens becomes that of the session.
_TAKE: Final = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'


def open_terminal() -> tuple[int, int]:
    """The two ends of a new terminal: ours, and that of the command, whose input is at its end."""
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, TERMINAL_SIZE)
    os.write(ours, _END_OF_INPUT)
    return ours, theirs


def in_terminal(theirs: int, argv: Sequence[str]) -> list[str]:
    """The command line that takes a terminal for its session, and then runs a command."""
    return ["/bin/sh", "-c", _TAKE, os.ttyname(theirs), *argv]


CHUNK: Final = 1 << 16
KILL_GRACE: Final = 2.0
"""Seconds between TERM and KILL."""
PIPE_SIZE: Final = 1 << 20
"""The largest pipe without privileges."""
LINGER: Final = 0.2
"""Seconds to wait for output after the process has ended: a background child may keep the pipes open."""
POLL: Final = 0.02
"""Seconds between two polls where the kernel has no event."""


def run_process(
    command: Command,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    guard: Guard,
    deadline: Deadline,
    cancel: Cancel,
    on_output: OnOutput | None,
) -> CommandResult:
    """Run a command in a session of its own to its end; one that cannot be started gives 127 or 126, as in a shell."""
    started = time.monotonic()
    raise_if_over(deadline, cancel)
    with _Supervisor(command, guard, on_output) as supervisor:
        try:
            supervisor.start(argv, env)
        except (OSError, ValueError) as error:
            code, reason = _start_failure(error, argv[0], command.cwd, env)
            return CommandResult(command=command.display(), exit_code=code, stderr=f"{reason}\n".encode())
        code = supervisor.wait(deadline, cancel)
    return CommandResult(
        command=command.display(),
        exit_code=code,
        stdout=supervisor.stdout.kept(),
        stderr=supervisor.stderr.kept(),
        seconds=time.monotonic() - started,
        dropped=supervisor.stdout.dropped + supervisor.stderr.dropped,
    )


class Tail:
    """The last bytes of a stream, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = max(0, limit)
        self._data = bytearray()
        self._seen = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._seen += len(data)
        self._data += data
        if len(self._data) > self._limit + (1 << 20):
            self._trim()

    def kept(self) -> bytes:
        """The last bytes."""
        self._trim()
        return bytes(self._data)

    @property
    def dropped(self) -> int:
        """How many bytes were not kept."""
        return max(0, self._seen - self._limit)

    def _trim(self) -> None:
        if len(self._data) > self._limit:
            del self._data[: len(self._data) - self._limit]


class _Supervisor:
    """Feeds and reads one process; at the end its group is killed if it did not end by itself."""

    def __init__(self, command: Command, guard: Guard, on_output: OnOutput | None) -> None:
        self.stdout = Tail(command.max_output)
        self.stderr = Tail(command.max_output)
        self._command = command
        self._guard = guard
        self._on_output = on_output
        stdin = command.stdin
        self._source = None if stdin is None or isinstance(stdin, bytes) else stdin
        self._input = memoryview(stdin if isinstance(stdin, bytes) else b"")
        self._pipes: dict[str, IO[bytes]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_fd: int | None = None
        # What needs descriptors comes before the process, which would be left alone if it failed.
        self._waker = Waker()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._process is not None:
                self._kill_group(self._process)
        finally:
            if self._process is not None:
                self._guard.forget(self._process.pid)
            self._selector.close()
            self._waker.close()
            if self._exit_fd is not None:
                os.close(self._exit_fd)
            for pipe in self._pipes.values():
                pipe.close()

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the process and register its pipes."""
        self._guard.ready()
        if self._command.pty:
            process, terminal = self._start_in_terminal(argv, env)
            ends: Sequence[tuple[str, IO[bytes] | None]] = (("stdout", terminal),)
        else:
            process = subprocess.Popen(
                argv,
                cwd=self._command.cwd,
                env=env,
                stdin=subprocess.DEVNULL if self._command.stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
            ends = (("stdin", process.stdin), ("stdout", process.stdout), ("stderr", process.stderr))
        self._process = process
        self._guard.watch(process.pid)
        for name, pipe in ends:
            if pipe is not None:
                self._pipes[name] = pipe
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ, name)
        self._selector.register(self._waker.reader, selectors.EVENT_READ, "wake")
        self._exit_fd = exit_descriptor(process.pid)
        if self._exit_fd is not None:
            self._selector.register(self._exit_fd, selectors.EVENT_READ, "exit")

    def _start_in_terminal(
        self, argv: Sequence[str], env: Mapping[str, str]
    ) -> tuple[subprocess.Popen[bytes], IO[bytes]]:

        ours, theirs = open_terminal()
        terminal = os.fdopen(ours, "rb", buffering=0)
        try:
            return subprocess.Popen(
                in_terminal(theirs, argv),
                cwd=self._command.cwd,
                env={"TERM": "dumb", **env},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            ), terminal
        except BaseException:
            terminal.close()
            raise
        finally:
            os.close(theirs)

    def wait(self, deadline: Deadline, cancel: Cancel) -> int:
        """The exit code, after all output was read; raises after the deadline or a cancel."""
        assert self._process is not None
        remove = cancel.on_set(self._waker.wake)
        try:
            while (code := self._process.poll()) is None:
                raise_if_over(deadline, cancel)
                left = deadline.left()
                if self._exit_fd is None:
                    left = POLL if left is None else min(POLL, left)
                self._step(left)
            self._drain(Deadline.after(LINGER).earlier(deadline.left()), cancel)
            return code
        finally:
            remove()

    def _drain(self, deadline: Deadline, cancel: Cancel) -> None:
        """Read the pipes to their end, or for a moment if a background child keeps them open."""
        while self._pipes.keys() & {"stdout", "stderr"} and not deadline.passed() and not cancel.is_set():
            self._step(deadline.left())
        # However slow the listener was, all output of the process itself is in the pipes by now.
        for name in self._pipes.keys() & {"stdout", "stderr"}:
            for _ in range(PIPE_SIZE // CHUNK):
                if not self._read(name):
                    break

    def _step(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            match key.data:
                case "stdin":
                    self._write()
                case "exit":
                    self._selector.unregister(key.fileobj)
                case "wake":
                    os.read(self._waker.reader, 64)
                case name:
                    self._read(name)

    def _read(self, name: str) -> bool:
        try:
            data = os.read(self._pipes[name].fileno(), CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:
            # The other end of a terminal was closed.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self._finish(name)
            return False
        if self._command.pty:
            data = data.replace(b"\r\n", b"\n")
        (self.stdout if name == "stdout" else self.stderr).add(data)
        if self._on_output is not None:
            self._on_output(name, data)
        return True

    def _write(self) -> None:
        if not self._input and self._source is not None:
            self._input = memoryview(self._source.read(CHUNK))
        try:
            written = os.write(self._pipes["stdin"].fileno(), self._input[:CHUNK]) if self._input else 0
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It does not read all of its input, as in a pipeline.
            self._source = None
            written = len(self._input)
        more = bool(self._input) and self._source is not None
        self._input = self._input[written:]
        if not self._input and not more:
            self._finish("stdin")

    def _finish(self, name: str) -> None:
        pipe = self._pipes.pop(name)
        self._selector.unregister(pipe)
        pipe.close()

    def _kill_group(self, process: subprocess.Popen[bytes]) -> None:
        """TERM, a grace period in which output is read, then KILL; the process itself is reaped."""
        group = process.pid
        self._on_output = None
        if "stdin" in self._pipes:
            # Its input is not complete, and an end of file would tell it so.
            self._selector.unregister(self._pipes["stdin"])
        grace = Deadline.after(KILL_GRACE)
        _signal_group(group, signal.SIGTERM)
        while not grace.passed():
            if process.poll() is not None and not _group_lives(group):
                return
            self._step(POLL)
        _signal_group(group, signal.SIGKILL)
        # Bounded: a process that hangs in the kernel does not die.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_GRACE)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group; False if it is empty."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # A process is left that has become another user.
        return True
    return True


def _group_lives(group: int) -> bool:
    """Whether any process of the group still runs; those that are not reaped yet do not count."""
    if not _signal_group(group, 0):
        return False
    states = list(Path("/proc").glob("[0-9]*/stat"))
    return not states or any(_is_alive_in(group, stat) for stat in states)


def _is_alive_in(group: int, stat: Path) -> bool:
    try:
        text = stat.read_bytes()
    except OSError:
        return False
    # After the name in parentheses, which may have any characters: state, parent, group.
    state, _, of, *_ = text.rpartition(b")")[2].split()
    return int(of) == group and state not in (b"Z", b"X")


def exit_descriptor(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _search_path(env: Mapping[str, str]) -> list[str]:
    return [folder for folder in env.get("PATH", "").split(os.pathsep) if folder and os.access(folder, os.X_OK)]


def _start_failure(
    error: OSError | ValueError, program: str, cwd: str | None, env: Mapping[str, str]
) -> tuple[int, str]:
    """The exit code and the message of a shell for a program that cannot be started."""
    if isinstance(error, ValueError):
        return 126, f"{program!r} cannot be run: {error}"
    reason = (error.strerror or str(error)).lower()
    if cwd is not None and error.filename == cwd:
        return 126, f"cannot change to folder {cwd}: {reason}"
    if error.errno == errno.E2BIG:
        return 126, f"{program}: {reason}"
    if os.sep not in program and not any(Path(folder, program).exists() for folder in _search_path(env)):
        # Also if a folder of PATH may not be entered, for which the kernel says "permission denied".
        return 127, f"{program}: command not found"
    return (127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126), f"{program}: {reason}"

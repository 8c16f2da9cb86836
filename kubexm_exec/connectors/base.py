"""The narrow contract that every connector keeps: open, run, put, get, stream, close."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from kubexm_exec.model.graph import GraphHost


class ConnectorError(Exception):
    """The host could not be reached or the transport broke: the action is ``unreachable``, not ``failed``."""


class OutcomeUnknown(ConnectorError):
    """The transport broke during a command: it ran to its end, in part or not at all. Look before it is run again."""

    command = ""
    """What was running, for messages; filled in by those who know how much of it may be shown."""


class CommandTimedOut(Exception):
    """A command ran into its deadline; its whole process group has been killed."""


class CommandCancelled(Exception):
    """The run was cancelled while the command ran; its whole process group has been killed."""


class Cancel:
    """A flag that one thread sets and blocking calls of others look at; it can also call back, to wake them."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0

    def set(self) -> None:
        """Cancel: wake and stop everybody who holds this."""
        self._event.set()
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it was cancelled."""
        return self._event.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Wait that long or until cancelled; True if cancelled."""
        return self._event.wait(seconds)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when cancelled (at once if it already is); the returned function takes the callback off again."""
        with self._lock:
            key = self._next
            self._next += 1
            self._callbacks[key] = callback
        if self._event.is_set():
            callback()

        def remove() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return remove


class Deadline(Struct, frozen=True):
    """A moment (``time.monotonic``) after which a blocking call gives up; ``None`` means never."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """The moment that many seconds from now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left(self) -> float | None:
        """Seconds left (never negative), or None."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at

    def earlier(self, seconds: float | None) -> Deadline:
        """The earlier of this one and that many seconds from now."""
        if seconds is None:
            return self
        other = time.monotonic() + seconds
        return Deadline(other if self.at is None else min(self.at, other))


class Readable(Protocol):
    """Anything that gives bytes piece by piece."""

    def read(self, size: int, /) -> bytes:
        """At most that many bytes; none at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to be run: an argument vector (never a shell), or a line of POSIX shell."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | Readable | None = None
    """Its input; what is read piece by piece never has to be in memory as a whole."""
    pty: bool = False
    """It runs in a terminal of its own, on which nobody types; all that it writes is one stream, ``stdout``."""
    max_output: int = 1 << 20
    """Bytes kept of each stream (the last ones); what is beyond is counted, streamed and dropped."""
    question: bool = False
    """Whether it is a script of the runner's own (``sh -c SCRIPT NAME ARGUMENTS...``) that leaves nothing running: a
    connector may start that with less ado."""

    def __post_init__(self) -> None:
        if self.pty and self.stdin is not None:
            raise ValueError("a command has either a terminal or input, not both")

    def display(self) -> str:
        """The command as a person would type it, without what all scripts of ours begin with."""
        import shlex

        from kubexm_exec.connectors.safepaths import WAY

        return self.shell if self.shell else shlex.join(word.replace(WAY, "") for word in self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command left: exit code and bytes. A code is negative if a signal ended it."""

    command: str
    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    dropped: int = 0
    """Bytes of output that were not kept."""

    @property
    def out(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced, never raised."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


OnOutput: TypeAlias = Callable[[str, bytes], None]
"""Called with ("stdout" | "stderr", some bytes) while a command runs."""

Sink: TypeAlias = Callable[[bytes], object]
"""Takes the next piece of something that is read."""


@runtime_checkable
class Connector(Protocol):
    """How one host is reached. One object a host; it may be called by several threads at once."""

    def open(self, deadline: Deadline) -> None:
        """Connect; raises ConnectorError. Calling it again is harmless."""

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command to its end; an exit code never raises.

        Raises CommandTimedOut, CommandCancelled or ConnectorError.
        """

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file atomically: temp in the same folder, fsync, rename.

        Mode and owner of a file that is replaced are kept unless given; a new file gets 0644 unless given. Raises
        OSError with the host's reason.
        """

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a file, at most ``limit``.

        Raises FileNotFoundError, PermissionError, IsADirectoryError or another OSError.
        """

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Hand the bytes of a file on piece by piece, however large it is; an error of the sink ends it and is raised.

        Raises what ``get`` raises.
        """

    def close(self) -> None:
        """Let go of everything. Calling it again is harmless; by another thread, it ends an ``open`` that goes on."""


@runtime_checkable
class HangsUp(Protocol):
    """A connector that has to wait for something when it is closed: all of a run are told before any is waited for."""

    def hang_up(self) -> None:
        """Begin to close, and wait for nothing; ``close`` comes next."""


User: TypeAlias = bool | str | None
"""A user of a host: a name, True for root, False for whoever logs in, None for the one that the host says."""


@runtime_checkable
class Becomes(Protocol):
    """A connector that can work as several users of its host."""

    def as_user(self, user: bool | str) -> Connector:
        """The same host as another user: True is root, False whoever logs in. It is open while this one is.

        Raises ValueError with what to do if it cannot be.
        """


@runtime_checkable
class Marks(Protocol):
    """A connector whose commands or files outlive a program that is killed: who goes on with the run has to find them.

    It may have an attribute ``own_mark``: then the names of temporary folders begin with ``kx.MARK.``, and those with
    one of the marks ``left`` are to be removed too.
    """

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Let all that is run on the host carry the mark ``own``, a word of letters and digits; called before ``open``.

        What carries one of the marks ``left`` is ended before anything else is done there, each as the user who had
        begun it. If it cannot be ended, everything raises ConnectorError.
        """


class ConnectorFactory(Protocol):
    """What the entry-point group ``kubexm.connectors`` holds: makes a connector for a host.

    One whose connectors share something (a gateway, say) has a method ``for_run``: it is asked once a run for the
    factory to be used in that run.
    """

    def __call__(self, host: GraphHost, secrets: Callable[[str], str]) -> Connector:
        """A connector that is not open yet; ``secrets`` resolves references such as ``env:NAME``."""


ConnectorOptions: TypeAlias = Mapping[str, Any]

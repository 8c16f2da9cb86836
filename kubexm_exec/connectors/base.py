"""The narrow contract that every connector keeps: open, run, put, get, stream, close."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, TypeAlias, runtime_checkable

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.graph import GraphHost


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

        from kubexm_exec.safepaths import WAY

        return self.shell if self.shell else shlex.join(word.replace(WAY, "") for word in self.argv)


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
    """A connector whose commands or files outlive a killed program: who goes on with the run has to find them."""

    @property
    def own_mark(self) -> str:
        """Names of temporary folders begin with ``kx.MARK.``; those with one of the marks ``left`` are removed too."""

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Let all that is run on the host carry the mark ``own``, a word of letters and digits; called before ``open``.

        What carries one of the marks ``left`` is ended before anything else is done there, each as the user who had
        begun it. If it cannot be ended, everything raises ConnectorError.
        """


@runtime_checkable
class StartsIn(Protocol):
    """A connector that starts programs or reads files on the control node: relative names of those begin in a folder.

    It is the run's folder, not the working directory of the process: several runs may share that.
    """

    def start_in(self, folder: str) -> None:
        """Begin there; called before ``open``."""


class ConnectorFactory(Protocol):
    """What the entry-point group ``kubexm.connectors`` holds: makes a connector for a host; most often its class."""

    def __call__(self, host: GraphHost, secrets: Callable[[str], str]) -> Connector:
        """A connector that is not open yet; ``secrets`` resolves references such as ``env:NAME``."""


@runtime_checkable
class ExpectsHosts(Protocol):
    """A factory of a run that can get something ready for hosts before their connectors are asked for."""

    def expect(self, hosts: Sequence[GraphHost]) -> None:
        """These are connected to in a moment, most likely. It must not wait for anything, and it must not log in."""


@runtime_checkable
class SharesInRun(Protocol):
    """A factory whose connectors share something in a run, such as a gateway."""

    def for_run(self) -> ConnectorFactory:
        """The factory for one run: asked once, before the first connector is made. It must not wait for anything."""

"""The contract of every connector: open, run, put, get, stream, close."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Literal, Protocol, TypeAlias, runtime_checkable

from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.graph import GraphHost

OWN_SCRIPT: Final = "kx"
"""The name (``$0``) of the runner's own scripts, whose paths are absolute."""


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most that many bytes; none at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: an argument vector (never a shell), or a line of POSIX shell."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | Readable | None = None
    """Its input; a stream never is in memory as a whole."""
    pty: bool = False
    """Whether it runs in a terminal of its own, on which nobody types; all of its output is then ``stdout``."""
    max_output: int = 1 << 20
    """How many of the last bytes of each stream are kept; others are streamed, counted and dropped."""
    question: bool = False
    """Whether it is a script of the runner (``sh -c SCRIPT NAME ARGUMENTS...``) that leaves nothing running, which a
    connector may start at less cost."""

    def __post_init__(self) -> None:
        if self.pty and self.stdin is not None:
            raise ValueError("a command has either a terminal or input, not both")

    def display(self) -> str:
        """The command as a person would type it, without the prelude of our scripts."""
        import shlex

        from kubexm_exec.safepaths import WAY

        return self.shell if self.shell else shlex.join(word.replace(WAY, "") for word in self.argv)


def chunks(
    source: bytes | Readable, size: int, deadline: Deadline, cancel: Cancel, limit: int | None = None
) -> Iterator[bytes]:
    """The content of a source in pieces, up to a limit; checks the deadline and the cancel before each."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    left = limit
    while left is None or left > 0:
        raise_if_over(deadline, cancel)
        piece = file.read(size if left is None else min(size, left))
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece


OnOutput: TypeAlias = Callable[[str, bytes], None]
"""Called with ("stdout" | "stderr", some bytes) while a command runs."""

Sink: TypeAlias = Callable[[bytes], object]
"""Called with the next piece of what is read."""


@runtime_checkable
class Connector(Protocol):
    """The way to reach one host; several threads may call it at once."""

    def open(self, deadline: Deadline) -> None:
        """Connect; raises ConnectorError. Calling it again is harmless."""

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command; an exit code never raises. Raises CommandTimedOut, CommandCancelled or ConnectorError."""

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

        An existing file keeps its mode and owner unless given; a new one is 0644 unless given. Raises OSError with the
        reason of the host.
        """

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a file, at most ``limit``.

        Raises FileNotFoundError, PermissionError, IsADirectoryError or another OSError.
        """

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Pass the bytes of a file to a sink, whose error ends it; raises what ``get`` raises."""

    def close(self) -> None:
        """Release everything. Calling it again is harmless; another thread can end an ``open`` by it."""


@runtime_checkable
class Compares(Protocol):
    """A connector whose ``put`` replaces a file only if that is still what somebody saw: it takes ``seen`` besides.

    That is the sha256 of the file, or empty if there was none. It is compared at the last moment before the rename; if
    it is another one, OSError with ESTALE is raised.
    """

    compares: Literal[True]
    put: Callable[..., None]


@runtime_checkable
class HangsUp(Protocol):
    """A connector that waits for something when it is closed: all of a run begin before the first one waits."""

    def hang_up(self) -> None:
        """Begin to close, without waiting; ``close`` comes next."""


User: TypeAlias = bool | str | None
"""A user of a host: a name, True for root, False for the login user, None for the one in the inventory."""


@runtime_checkable
class Becomes(Protocol):
    """A connector that can work as several users of its host."""

    def as_user(self, user: bool | str) -> Connector:
        """The same host as another user: True is root, False the login user. It is open while this one is.

        Raises ValueError with what to do if it cannot be.
        """


@runtime_checkable
class Marks(Protocol):
    """A connector whose commands or files outlive a killed program: the next session of the run has to find them."""

    @property
    def own_mark(self) -> str:
        """The mark in the names of temporary folders, ``kx.MARK.``; those with a mark in ``left`` are removed."""

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Mark everything that runs on the host with ``own``, a word of letters and digits; called before ``open``.

        Commands with one of the marks ``left`` are ended first, each as its user. If one cannot be ended, every call
        raises ConnectorError.
        """


@runtime_checkable
class StartsIn(Protocol):
    """A connector that starts programs or reads files on the control node, where relative names begin in a folder.

    It is that of the run, not the working directory of the process, which several runs may share.
    """

    def start_in(self, folder: str) -> None:
        """Use this folder; called before ``open``."""


class ConnectorFactory(Protocol):
    """A member of the entry-point group ``kubexm.connectors``: makes a connector for a host; most often its class."""

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
        """The factory for one run: called once, before the first connector is made. It must not wait."""

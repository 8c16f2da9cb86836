"""What every operation on a host is bound to: the connector, the deadline, and the listeners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, Connector, OnOutput
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.transfers import Transfers

OnProgress: TypeAlias = Callable[[str, float | None, float | None], None]
"""Called with a message, how much is done, and how much there is in all."""


class Ask(Protocol):
    """Asks the host for the states of paths, then for those of ``more``, of which large files have no digest."""

    def __call__(self, paths: Sequence[str], *, digest: bool, more: Sequence[str] = ()) -> list[FileState]:
        """The states."""


class Ahead(Protocol):
    """A cache of states of files."""

    def inspect(self, paths: Sequence[str], ask: Ask, *, digest: bool) -> list[FileState]:
        """The states of the paths, which may be cached."""


class Session(Struct, frozen=True):
    """The access of an action to its host."""

    connector: Connector
    deadline: Deadline = field(default_factory=Deadline)
    cancel: Cancel = field(default_factory=Cancel)
    on_output: OnOutput | None = None
    sensitive: bool = False
    """True if neither commands nor their output may be shown."""
    become: str = ""
    """The user that the connector becomes on the host, for messages."""
    gather: Callable[[], Mapping[str, Any]] | None = None
    """Returns the facts of the host; None: ask the host each time."""
    transfers: Transfers = field(default_factory=Transfers)
    """Shared by all transfers of the run."""
    on_progress: OnProgress | None = None
    """Called with the progress of long operations."""
    forget: Callable[[], None] | None = None
    """Drops what is cached of the host."""
    ahead: Ahead | None = None
    """States that an earlier step may have seen."""
    looking: Callable[[], bool] | None = None
    """Says whether precheck is running."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all commands; those of a command itself win."""
    seen: dict[str, bytes] = field(default_factory=dict)
    """Content that was read, by its digest: an undo keeps what a diff shows."""
    attributes: dict[str, Mapping[str, str] | None] = field(default_factory=dict)
    """Extended attributes of files that were read, by path; None if the host cannot tell."""

    def run(
        self, command: Command, *, deadline: Deadline | None = None, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command on the host, in the environment of the action; an exit code never raises."""
        if self.env:
            command = dataclasses.replace(command, env={**self.env, **command.env})
        return self.connector.run(command, deadline=deadline or self.deadline, cancel=self.cancel, on_output=on_output)

    def progress(self, message: str, done: float | None, total: float | None) -> None:
        """Report the progress."""
        if self.on_progress is not None:
            self.on_progress(message, done, total)

    def changes(self, what: str, path: str = "") -> None:
        """Called by every operation that changes something on the host: refused while precheck runs."""
        if self.looking is not None and self.looking():
            raise TypeError(f"precheck would {f'{what} {path}'.strip()}, and must change nothing: do it in `run`")

    def facts(self) -> Mapping[str, Any]:
        """The facts of the host."""
        if self.gather is not None:
            return self.gather()
        from kubexm_exec.runner.facts import gather

        return gather(self.connector, deadline=self.deadline, cancel=self.cancel)

    def for_cleanup(self, seconds: float = 15.0) -> Session:
        """The same session with a deadline of its own, to clean up also after a timeout or a cancel."""
        return replace(self, deadline=Deadline.after(seconds), cancel=Cancel(), on_output=None)

"""What every operation on a host is bound to: the connector, the time that is left, and who watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.connectors.base import Connector, OnOutput
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.transfers import Transfers

OnProgress: TypeAlias = Callable[[str, float | None, float | None], None]
"""Called with what is done, how much of it, and how much there is in all."""


class Ask(Protocol):
    """Asks the host: the states of the paths, and then those of ``more``, without digests of what is large there."""

    def __call__(self, paths: Sequence[str], *, digest: bool, more: Sequence[str] = ()) -> list[FileState]:
        """What is there."""


class Ahead(Protocol):
    """What may know already what is asked about files."""

    def inspect(self, paths: Sequence[str], ask: Ask, *, digest: bool) -> list[FileState]:
        """The states of the paths, which may have been seen before."""


class Session(Struct, frozen=True):
    """One action's way to its host."""

    connector: Connector
    deadline: Deadline = field(default_factory=Deadline)
    cancel: Cancel = field(default_factory=Cancel)
    on_output: OnOutput | None = None
    sensitive: bool = False
    """True if neither commands nor their output may be shown."""
    become: str = ""
    """The user that the connector becomes on the host, for messages."""
    gather: Callable[[], Mapping[str, Any]] | None = None
    """Asks for the host's facts; None: ask the host each time."""
    transfers: Transfers = field(default_factory=Transfers)
    """What all transfers of the run share."""
    on_progress: OnProgress | None = None
    """Told how far something long is."""
    forget: Callable[[], None] | None = None
    """Has what is remembered of the host asked for anew."""
    ahead: Ahead | None = None
    """What an earlier step may have seen already."""
    seen: dict[str, bytes] = field(default_factory=dict)
    """Content that was read already, by its digest: what a diff shows is what an undo keeps."""

    attributes: dict[str, Mapping[str, str] | None] = field(default_factory=dict)
    """Extended attributes of files that were read, by path; None if the host cannot tell."""

    def progress(self, message: str, done: float | None, total: float | None) -> None:
        """Tell those who watch how far it is."""
        if self.on_progress is not None:
            self.on_progress(message, done, total)

    def facts(self) -> Mapping[str, Any]:
        """What the host says about itself."""
        if self.gather is not None:
            return self.gather()
        from kubexm_exec.runner.facts import gather

        return gather(self.connector, deadline=self.deadline, cancel=self.cancel)

    def for_cleanup(self, seconds: float = 15.0) -> Session:
        """The same way with time of its own: what was begun is tidied up also after a timeout or a cancel."""
        return replace(self, deadline=Deadline.after(seconds), cancel=Cancel(), on_output=None)

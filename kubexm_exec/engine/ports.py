"""The interfaces of the engine: a journal that makes entries durable, and workers that perform attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from kubexm_exec.engine.attempt import ActionOutcome, Attempt

Entry: TypeAlias = Any
"""What happened, as data that a journal does not interpret."""


class JournalError(Exception):
    """The journal cannot be used; with what to do about it."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


class ChangedError(JournalError):
    """Stored content was changed."""

    def __init__(self, place: str, token: str) -> None:
        super().__init__(
            f"{place}: the content stored under {token[:16]} was changed",
            "it is not used; check who may write the journal",
        )


Durable: TypeAlias = Callable[[JournalError | None], None]
"""Called when entries are durable, or with the error why they will not be."""


class Journal(Protocol):
    """Records one run in order; after an error nothing more is written."""

    error: JournalError | None
    """Why nothing more is written, if that is so."""
    digests: dict[str, str]
    """Digests of the inputs of nodes, by their ids."""

    def submit(self, entries: Sequence[Entry], durable: Durable) -> None:
        """Write entries in the background; ``durable`` is called in another thread."""

    def submit_here(self, entries: Sequence[Entry], durable: Durable, aside: Callable[[], None]) -> None:
        """Write entries in this thread, which has nothing else to do but ``aside``."""

    def write(self, *entries: Entry) -> None:
        """Write entries and wait until they are durable; raises JournalError."""

    def keep(self, token: str, data: bytes) -> None:
        """Store content for an undo; durable when this returns."""

    def kept(self, token: str) -> bytes:
        """Stored content; raises KeyError."""


class Entries(Protocol):
    """Where the entries of runs can be read."""

    def entries(self, run: str, *, read: Callable[[str], list[Any]]) -> Iterator[tuple[int, int, Sequence[Any]]]:
        """The entries of a run in their order: (number, session, group), each group decoded by ``read``."""


Perform: TypeAlias = Callable[[Attempt], ActionOutcome]
"""Performs an attempt; must not raise."""
Done: TypeAlias = tuple[Attempt, ActionOutcome]


class Workers(Protocol):
    """Perform attempts in parallel, and report their outcomes; called by the driver's thread only."""

    def submit(self, attempts: Sequence[Attempt], busy: int) -> None:
        """Perform attempts; ``busy``: how many there are now, with these."""

    def abandon(self) -> None:
        """One does not return: another may start in its place. The attempt was marked before."""

    def close(self, *, wait: bool) -> None:
        """End; ``wait`` for those that will return."""


MakeWorkers: TypeAlias = Callable[[Perform, Callable[[Done], None], int], Workers]
"""Makes workers that perform at most so many attempts at once, and report each from any thread."""

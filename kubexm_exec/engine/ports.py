"""What the engine needs of others: a journal that makes entries durable, and workers that perform attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from kubexm_exec.engine.attempt import ActionOutcome, Attempt

Entry: TypeAlias = Any
"""One thing that happened, as plain data; a journal does not look into it."""


class JournalError(Exception):
    """The journal cannot be used: what is wrong, and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


class ChangedError(JournalError):
    """Something in it is not what was put there."""

    def __init__(self, place: str, token: str) -> None:
        super().__init__(
            f"{place}: the journal was changed: what is kept under {token[:16]} is not what was put there",
            "it is not used; see who may write the journal",
        )


Durable: TypeAlias = Callable[[JournalError | None], None]
"""Called when entries are durable, or with why they never will be."""


class Journal(Protocol):
    """The pen of one run. What is handed over first is written first; after an error nothing is written any more."""

    error: JournalError | None
    """Why nothing is written any more, if that is so."""
    digests: dict[str, str]
    """Of the inputs of nodes, by their ids."""

    def submit(self, entries: Sequence[Entry], durable: Durable) -> None:
        """Have entries written; ``durable`` is called in another thread."""

    def submit_here(self, entries: Sequence[Entry], durable: Durable, aside: Callable[[], None]) -> None:
        """Have entries written by this thread, which has nothing else to do but ``aside``."""

    def write(self, *entries: Entry) -> None:
        """Write entries and wait until they are durable; raises JournalError."""

    def keep(self, token: str, data: bytes) -> None:
        """Keep content for an undo; durable when this returns."""

    def kept(self, token: str) -> bytes:
        """Content that was kept; raises KeyError."""


class Entries(Protocol):
    """Where the entries of runs can be read."""

    def entries(self, run: str, *, read: Callable[[str], list[Any]]) -> Iterator[tuple[int, int, Sequence[Any]]]:
        """The entries of a run in their order: (number, session, group), each group decoded by ``read``."""


Perform: TypeAlias = Callable[[Attempt], ActionOutcome]
"""Does what an executor does with an attempt; must not raise."""
Done: TypeAlias = tuple[Attempt, ActionOutcome]


class Workers(Protocol):
    """Perform attempts side by side, and hand on what each came to; called by the driver's thread alone."""

    def submit(self, attempts: Sequence[Attempt], busy: int) -> None:
        """Have attempts performed; ``busy`` says how many there are now, with these."""

    def abandon(self) -> None:
        """One does not come back: another may be begun in its place. The attempt is marked before."""

    def close(self, *, wait: bool) -> None:
        """End; ``wait`` for those that will come back."""


MakeWorkers: TypeAlias = Callable[[Perform, Callable[[Done], None], int], Workers]
"""Makes workers that perform at most so many attempts at once, and report each from whatever thread."""

"""Between the driver and the outside of a journaled run: nothing is begun or told before the journal has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kubexm_exec.attempt import Attempt
from kubexm_exec.events import EventBus
from kubexm_exec.journal import entries
from kubexm_exec.journal.errors import JournalError
from kubexm_exec.journal.recorder import Recorder

_Told: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""Something to be told: how, and what."""


class Ledger:
    """Collects entries, and what must not happen before they are durable; used by the driver's thread alone.

    It looks like the event bus to those who only tell things.
    """

    def __init__(
        self,
        recorder: Recorder,
        bus: EventBus,
        post: Callable[[Callable[[], None]], None],
        *,
        begin: Callable[[Sequence[Attempt]], None],
        lost: Callable[[], None],
    ) -> None:
        """``post`` hands something to the driver's thread, from any other.

        ``begin`` is called with attempts that may begin, ``lost`` if the journal is.
        """
        self._recorder = recorder
        self._bus = bus
        self._post = post
        self._begin = begin
        self._lost = lost
        self._entries: list[entries.Row] = []
        self._told: list[_Told] = []
        self._starts: list[Attempt] = []
        self._outstanding = 0
        self.error: JournalError | None = None

    @property
    def outstanding(self) -> bool:
        """Whether something waits for the journal."""
        return bool(self._outstanding or self._entries or self._told or self._starts)

    def note(self, entry: entries.Row) -> None:
        """Write an entry with the next group."""
        if self.error is None:
            self._entries.append(entry)

    def start(self, attempt: Attempt) -> None:
        """Write down that an attempt begins, and begin it when that is durable; if the journal is lost, at once."""
        if self.error is None:
            self._entries.append(entries.start(attempt))
            self._starts.append(attempt)
        else:
            self._begin((attempt,))

    def emit(self, kind: str, node: str = "", host: str = "", /, **data: Any) -> None:
        """Tell something when the journal has all that was noted so far."""
        if self.error is None:
            self._told.append((self._emit, (kind, node, host, data)))
        else:
            self._bus.emit(kind, node, host, **data)

    def tell(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        """The same, for what holds no secret."""
        if self.error is None:
            self._told.append((self._bus.tell, (kind, node, host, data)))
        else:
            self._bus.tell(kind, node, host, data)

    def seal(self) -> None:
        """Hand over what was noted as one group."""
        if not self._entries and not self._told:
            return
        noted, told, starts = self._entries, self._told, self._starts
        self._entries, self._told, self._starts = [], [], []
        if not noted and not self._outstanding:
            _tell(told)
            return
        self._outstanding += 1
        self._recorder.submit(noted, lambda error: self._post(lambda: self._durable(told, starts, error)))

    def _durable(self, told: Sequence[_Told], starts: Sequence[Attempt], error: JournalError | None) -> None:
        self._outstanding -= 1
        if error is not None and self.error is None:
            self.error = error
            self._lost()
        # What follows from an end is noted after it, so all that is told of a group is older than what it begins.
        _tell(told)
        self._begin(starts)

    def _emit(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        self._bus.emit(kind, node, host, **data)


def _tell(several: Sequence[_Told]) -> None:
    for how, what in several:
        how(*what)

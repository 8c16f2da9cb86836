"""Between the driver and the outside of a journaled run: nothing is begun or told before the journal has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from kubexm_exec.events import EventBus
from kubexm_exec.journal.entries import Row
from kubexm_exec.journal.errors import JournalError
from kubexm_exec.journal.recorder import Recorder

_Deed: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""Something to be done, and with what."""


class Ledger:
    """Collects entries, and what must not happen before they are durable; used by the driver's thread alone.

    It looks like the event bus to those who only tell things.
    """

    def __init__(
        self,
        recorder: Recorder,
        bus: EventBus,
        post: Callable[[Callable[[], None]], None],
        lost: Callable[[], None],
    ) -> None:
        """``post`` hands something to the driver's thread, from any other; ``lost`` is called if the journal is."""
        self._recorder = recorder
        self._bus = bus
        self._post = post
        self._lost = lost
        self._entries: list[Row] = []
        self._then: list[_Deed] = []
        self._outstanding = 0
        self.error: JournalError | None = None

    @property
    def outstanding(self) -> bool:
        """Whether something waits for the journal."""
        return bool(self._outstanding or self._entries or self._then)

    def note(self, entry: Row) -> None:
        """Write an entry with the next group."""
        if self.error is None:
            self._entries.append(entry)

    def then(self, what: Callable[..., None], *arguments: Any) -> None:
        """Do something when all that was noted so far is durable; if the journal is lost, at once."""
        if self.error is None:
            self._then.append((what, arguments))
        else:
            what(*arguments)

    def emit(self, kind: str, node: str = "", host: str = "", /, **data: Any) -> None:
        """Tell something when the journal has it."""
        self.then(partial(self._bus.emit, **data), kind, node, host)

    def tell(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        """The same, for what holds no secret."""
        if self.error is None:
            self._then.append((self._bus.tell, (kind, node, host, data)))
        else:
            self._bus.tell(kind, node, host, data)

    def seal(self) -> None:
        """Hand over what was noted as one group."""
        if not self._entries and not self._then:
            return
        entries, then = self._entries, self._then
        self._entries, self._then = [], []
        if not entries and not self._outstanding:
            _do(then)
            return
        self._outstanding += 1
        self._recorder.submit(entries, lambda error: self._post(lambda: self._durable(then, error)))

    def _durable(self, then: list[_Deed], error: JournalError | None) -> None:
        self._outstanding -= 1
        if error is not None and self.error is None:
            self.error = error
            self._lost()
        _do(then)


def _do(several: list[_Deed]) -> None:
    for what, arguments in several:
        what(*arguments)

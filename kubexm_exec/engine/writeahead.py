"""Between the driver and the outside of a journaled run: nothing is changed or told before the journal has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import Attempt, Written
from kubexm_exec.engine.ports import Journal, JournalError
from kubexm_exec.model.events import ACTION_STARTED, Event, EventBus
from kubexm_exec.model.graph import ExecutionNode, digest

_QUICK: Final = msgspec.json.Encoder(enc_hook=str, order="sorted")
_DIGITS: Final = 16
"""There is one in the entry of every attempt."""


def inputs_digest(node: ExecutionNode, mask: Callable[[Any], Any]) -> str:
    """The digest of all inputs of a node on a host, without secrets; empty for a sensitive node."""
    if node.sensitive:
        return ""
    inputs = mask(node.inputs())
    try:
        return sha256(_QUICK.encode(inputs)).hexdigest()[:_DIGITS]
    except (TypeError, ValueError, OverflowError):
        # Such as keys that are not text, large numbers, or a lone surrogate.
        return digest(inputs)[:_DIGITS]


_Call: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""Something to be done later: how, and with what."""


class WriteAhead:
    """Collects entries, and what must not happen before they are durable; used by the driver's thread alone.

    While a group is written the driver would have nothing to do, so that what is not needed before is done then.
    """

    def __init__(
        self,
        recorder: Journal,
        bus: EventBus,
        post: Callable[[Callable[[], None]], None],
        *,
        mask: Callable[[Any], Any],
        begin: Callable[[Sequence[Attempt]], None],
        lost: Callable[[], None],
    ) -> None:
        """``post`` hands something to the driver's thread, from any other.

        ``mask`` takes secrets out of data. ``begin`` is called with attempts whose start is being written: they may
        look at their hosts, and wait before they change anything; or was written, if they have nothing to look at.
        ``lost`` is called if the journal is.
        """
        self._recorder = recorder
        self._bus = bus
        self._post = post
        self._mask = mask
        self._begin = begin
        self._lost = lost
        self._entries: list[entries.Entry] = []
        self._meanwhile: list[_Call] = []
        self._told: list[Event] = []
        self._starts: list[Attempt] = []
        self._digests = recorder.digests
        self._blind: set[str] = set()
        """Step types of which an attempt has asked its host nothing before its work: beginning early gains nothing, and
        a thread that waits for the journal costs more than such a step."""
        self._outstanding = 0
        self.error: JournalError | None = None

    @property
    def outstanding(self) -> bool:
        """Whether something waits for the journal."""
        return bool(self._outstanding or self._entries or self._meanwhile or self._told)

    def note(self, entry: entries.Entry) -> None:
        """Write an entry with the next group."""
        if self.error is None:
            self._entries.append(entry)

    def note_start(self, attempt: Attempt) -> None:
        """Write down with the next group that an attempt begins."""
        if self.error is None:
            node = attempt.node
            inputs = self._digests.get(node.id)
            if inputs is None:
                # One that another step has returned.
                inputs = self._digests[node.id] = inputs_digest(node, self._mask)
            place = attempt.place if node.choices else ""
            self._entries.append(
                entries.Start(
                    node.id, attempt.host, attempt.number, attempt.started, inputs,
                    tells=bool(attempt.notifies or attempt.node.loop), place=place,
                )
            )  # fmt: skip

    def start(self, attempt: Attempt) -> bool:
        """Record that an attempt begins, and begin it while that is written or then; True if the journal is lost."""
        if self.error is None:
            self.note_start(attempt)
            self._starts.append(attempt)
            return False
        self.seal()
        self._bus.tell(ACTION_STARTED, attempt.node.id, attempt.host, attempt.told())
        self._begin((attempt,))
        return True

    def learn(self, attempt: Attempt) -> None:
        """Whether the next attempts of its step type are to begin while their start is written."""
        if attempt.blind:
            self._blind.add(attempt.node.step_name)
        elif attempt.connected:
            self._blind.discard(attempt.node.step_name)

    def meanwhile(self, how: Callable[..., None], *what: Any) -> None:
        """Do something while what was noted so far is written: before that is told, and before its attempts begin."""
        self._meanwhile.append((how, what))

    def emit(self, kind: str, node: str = "", host: str = "", /, **data: Any) -> None:
        """Tell something after all that has happened before, when the journal has it; for those who know a bus."""
        self._meanwhile.append((self._tell_masked, (kind, node, host, data)))

    def tell(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        """Tell something without any secret with what is written now: to be called meanwhile."""
        self._told.append(Event(kind, self._bus.run, time.time(), node, host, data))

    def seal(self, running: int = 0) -> None:
        """Hand over what was noted as one group; ``running``: how many attempts there are, waiting ones included."""
        if not self._entries and not self._meanwhile:
            return
        noted, meanwhile, told, starts = self._entries, self._meanwhile, self._told, self._starts
        self._entries, self._meanwhile, self._starts = [], [], []

        begun: list[Event] = []
        written = Written()
        early: list[Attempt] = []
        late: list[Attempt] = []
        for attempt in starts:
            if attempt.node.step_name in self._blind:
                late.append(attempt)
            else:
                attempt.written = written
                early.append(attempt)

        def prepare() -> None:
            for how, what in meanwhile:
                how(*what)
            # What follows from an end is noted after it, so all that is told of a group is older than what it begins.
            begun.extend(
                Event(ACTION_STARTED, self._bus.run, 0.0, attempt.node.id, attempt.host, attempt.told())
                for attempt in starts
            )

        def durable(error: JournalError | None) -> None:
            self._post(lambda: self._durable(told, begun, late, written, error))

        if not noted and not self._outstanding:
            prepare()
            self._told = []
            self._bus.tell_all(told)
            return
        # Whether this thread has little to do before this is durable.
        alone = not self._outstanding and running == len(starts)
        self._outstanding += 1
        if alone and not early:
            self._recorder.submit_here(noted, durable, prepare)
        elif alone:
            # Before they begin: their expressions may refer to what has just ended.
            prepare()
            self._begin(early)
            self._recorder.submit_here(noted, durable, _nothing)
        else:
            self._recorder.submit(noted, durable)
            prepare()
            self._begin(early)
        self._told = []

    def _durable(
        self,
        told: Sequence[Event],
        begun: Sequence[Event],
        late: Sequence[Attempt],
        written: Written,
        error: JournalError | None,
    ) -> None:
        self._outstanding -= 1
        if error is not None and self.error is None:
            self.error = error
            self._lost()
        self._bus.tell_all(told)
        now = time.time()
        for event in begun:
            event.time = now
        self._bus.tell_all(begun)
        written.tell(error)
        self._begin(late)

    def _tell_masked(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        self._told.append(self._bus.event(kind, node, host, data))


def _nothing() -> None:
    """All is done already."""

"""One try of an action and what it came to: the data that the driver and the life cycle pass to each other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import ForecastState, HostResult, NodeResult
from kubexm_exec.step import Params
from kubexm_exec.values.evaluate import ActionRecord

NO_DEADLINE: Final = Deadline()


class Attempt(Struct, eq=False):
    """One try of a step for a host, with what may end it early and what it saved for its undo."""

    node: ExecutionNode
    host: str
    """The host that it is for; it works at ``place``."""
    number: int
    cancel: Cancel
    deadline: Deadline = NO_DEADLINE
    started: float = 0.0
    params: Mapping[str, Any] | None = None
    """Rendered parameters to be used instead of the node's (the debugger's ``set``)."""
    rendered: Mapping[str, Any] | None = None
    """The parameters it ran with, as they were before they were checked."""
    used: Params | None = None
    """The checked parameters it ran with."""
    undo: Mapping[str, Any] | None = None
    begun: bool = False
    """It was handed to a worker; before that it waits for the journal, and nothing is unknown about it."""
    abandoned: bool = False
    """The driver has given up on it; whatever it still says is ignored."""
    connected: bool = False
    """It has a connection, so a kill of its command may take a moment."""
    working: bool = False
    """It has got beyond precheck: something may have been changed."""
    worked: bool = False
    """An earlier try, of this session or of one before, got beyond precheck and failed: something was not as it should
    be. If it is now, that is a change by this run."""
    unsure: str = ""
    """Not empty: the connection dropped while an earlier try, or this one, was at work; this is what was said of it.
    Until precheck has looked nobody knows what was done."""

    @property
    def place(self) -> str:
        """The host that it works on."""
        return self.node.place(self.host)

    def told(self) -> dict[str, Any]:
        """What is told when it begins."""
        told: dict[str, Any] = {"attempt": self.number, "step": self.node.step_name}
        if place := self.node.elsewhere(self.host):
            told["place"] = place
        return told

    def begin(self) -> None:
        """Let its time run from now."""
        timeout = self.node.policy.timeout
        self.started = time.time()
        self.deadline = NO_DEADLINE if timeout is None else Deadline.after(timeout)


class ActionOutcome(Struct, eq=False):
    """What an attempt came to. ``result`` is what people see; ``outputs`` are the real ones, for later steps."""

    result: HostResult
    outputs: Mapping[str, Any] | None = None
    fragment: Sequence[Mapping[str, Any]] = ()
    unknown: str = ""
    """Not empty: nothing was done and what it would give is not known, because of this."""
    added: Sequence[ExecutionNode] = ()
    """The nodes that its fragment was compiled to."""
    forgotten: bool = False
    """They must not be written down: there is a secret in them."""
    final: bool = False
    """It must not be tried again, whatever the policy says."""
    worked: bool = False
    """It failed, or was ended, beyond precheck: something may have been changed."""


class Earlier(Struct, frozen=True):
    """When earlier sessions of the run changed something by an action, and when it succeeded; 0 for never."""

    changed: int = 0
    succeeded: int = 0
    """Numbers that grow from one end of an action to the next."""


_NOTHING: Final = Earlier()


class ActionRecords:
    """Finished actions, for the expressions of later ones."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeResult] = {}
        self.earlier: Mapping[tuple[str, str], Earlier] = {}
        """What earlier sessions of the run did, by node and host."""
        self._more: dict[tuple[str, str], ActionOutcome] = {}

    def add(self, node: str, outcome: ActionOutcome) -> None:
        """Remember what an action came to, besides its result, which is among those of its node."""
        if outcome.outputs or outcome.unknown:
            self._more[node, outcome.result.host_name] = outcome

    def get(self, node: str, host: str) -> ActionRecord | None:
        """The record of an action, or None if it has not finished."""
        of = self.nodes.get(node)
        result = None if of is None else of.host_results.get(host)
        if result is None:
            return None
        more = self._more.get((node, host))
        if more is None:
            return ActionRecord(result.status.value, result.changed, message=result.message)
        # A check that has seen what would change knows that it changes, and so what would be restarted for it.
        foreseen = result.forecast is ForecastState.CHANGE and bool(result.diffs)
        return ActionRecord(
            result.status.value, result.changed or foreseen, more.outputs or {}, more.unknown, result.message
        )

    def owes(self, node: str, host: str, by: tuple[str, str] | None) -> bool:
        """Whether a change that an earlier session of the run made counts for who waits for it: until that succeeds.

        Without ``by`` it counts as long as the run: who hands it on does not know for whom.
        """
        changed = self.earlier.get((node, host), _NOTHING).changed
        return changed > (0 if by is None else self.earlier.get(by, _NOTHING).succeeded)

"""The entries of a journal: what happened to actions, encoded and decoded by msgspec."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from msgspec import DecodeError, Struct, convert, field
from msgspec.json import Decoder
from msgspec.structs import replace

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.ports import JournalError
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import FailureKind, HostResult

_KEPT: Final = 16 << 10
"""Characters recorded of each stream; the whole is in the run's log."""
_DIFFS: Final = 64 << 10
"""Characters recorded of all diffs of an attempt."""
_MOST_DIFFS: Final = 500
"""Places of a host that are recorded for an attempt."""


class _Row(Struct, frozen=True, array_like=True):
    """The base of entries: rows without names, since there are two for each action. New fields come last."""


class Repeat(_Row, frozen=True):
    """Nodes to run again although they were done, on some hosts or on all (None)."""

    nodes: tuple[str, ...]
    hosts: tuple[str, ...] | None = None


class Session(_Row, frozen=True, tag="session"):
    """A session begins."""

    mode: str
    """run, resume or rollback"""
    holder: str
    again: tuple[Repeat, ...] = ()
    time: float = field(default_factory=time.time)


class Start(_Row, frozen=True, tag="s"):
    """An attempt is about to begin, with inputs of this digest. Until its end its outcome is unknown."""

    node: str
    host: str
    attempt: int
    time: float
    inputs: str
    tells: bool = False
    """Whether there is an entry for its going beyond precheck."""
    place: str = ""
    """Where, if the run has chosen that."""


class End(_Row, frozen=True, tag="e"):
    """An action has ended."""

    node: str
    result: HostResult
    nodes: tuple[ExecutionNode, ...] = ()
    """Those of its fragment."""
    hidden: bool = False
    """Outputs were not recorded because they contain a secret."""
    forgotten: bool = False
    """Its nodes were not recorded because they contain a secret."""
    worked: bool = False
    notifies: tuple[str, ...] = ()
    """The handlers that are due if it has changed something."""
    handler: str = ""
    """The handler that it has run well."""
    served: tuple[str, ...] = ()
    """The nodes whose notifications are served by that."""
    confirmed: bool = False
    """A person said so later: it was done when its last attempt began, not now."""

    @property
    def host(self) -> str:
        """The host of the action."""
        return self.result.host_name

    @property
    def time(self) -> float | None:
        """When it ended."""
        return self.result.end_time


class Work(_Row, frozen=True, tag="w"):
    """An attempt that notifies handlers goes beyond precheck: they are possibly due from here on."""

    node: str
    host: str
    notifies: tuple[str, ...]
    time: float = field(default_factory=time.time)


class Asks(_Row, frozen=True, tag="asks"):
    """A step asks a question, without its secrets; an empty one: it does not wait for an answer any more."""

    node: str
    host: str
    question: str
    default: bool | None = None
    time: float = field(default_factory=time.time)


class Retry(_Row, frozen=True, tag="retry"):
    """An attempt failed, and will be followed by another one."""

    node: str
    host: str
    attempt: int
    message: str
    failure: FailureKind | None = None
    unsure: str = ""
    worked: bool = False
    time: float = field(default_factory=time.time)
    diffs: Sequence[Mapping[str, Any]] = ()
    """What it may have changed."""
    place: str = ""
    """The place could not be reached, and nothing was done there: this is the next one, and no attempt is lost."""


class Rescued(_Row, frozen=True, tag="rescued"):
    """The rescue of its group has handled that an action failed, or was skipped because of a failure."""

    node: str
    host: str
    time: float = field(default_factory=time.time)


class Undo(_Row, frozen=True, tag="undo"):
    """The undo data of an attempt; durable before anything is changed. A later one replaces it."""

    node: str
    host: str
    data: Mapping[str, Any] | None
    """None: nothing was changed."""
    become: bool | str | None = None
    step: str = ""
    """Step type and parameters, if those may be recorded."""
    params: Any = None
    place: str = ""
    time: float = field(default_factory=time.time)
    withheld: bool = False
    """Content that it restores was not recorded, because it contains a secret: no later session can use it."""


class Undoing(_Row, frozen=True, tag="undoing"):
    """The undo of an action is about to begin."""

    node: str
    host: str
    time: float = field(default_factory=time.time)


class Undone(_Row, frozen=True, tag="undone"):
    """The outcome of an undo."""

    node: str
    host: str
    state: str
    message: str = ""
    time: float = field(default_factory=time.time)
    withdraws: bool = True
    """Whether it may have notified handlers: what it made due is not any more if it was undone."""


class Stop(_Row, frozen=True, tag="stop"):
    """No new action starts from here on."""

    reason: str
    time: float = field(default_factory=time.time)


class Ended(_Row, frozen=True, tag="status"):
    """The session has ended."""

    status: str
    message: str = ""
    time: float = field(default_factory=time.time)


OfAction: TypeAlias = Start | End | Work | Asks | Retry | Rescued | Undo | Undoing | Undone
Entry: TypeAlias = Session | Stop | Ended | OfAction


@cache
def _decoder() -> Decoder[list[Entry]]:
    # Made when a journal is read: it takes a hundredth of a small run, which only writes one.
    return Decoder(list[Entry])


def read(text: str) -> list[Entry]:
    """The entries of one group in the journal; raises JournalError."""
    try:
        return _decoder().decode(text)
    except DecodeError as error:
        # A lone surrogate is written as an escape, which only the standard library reads.
        with contextlib.suppress(ValueError):
            return convert(json.loads(text), list[Entry])
        raise JournalError(f"an entry of the journal cannot be decoded: {error}", "the journal is damaged") from None


def end(node: str, outcome: ActionOutcome, *, confirmed: bool = False) -> End:
    """The entry for the end of an action."""
    result = outcome.result
    if len(result.stdout) > _KEPT or len(result.stderr) > _KEPT:
        result = replace(result, stdout=result.stdout[-_KEPT:], stderr=result.stderr[-_KEPT:])
    if result.diffs and (kept := bounded(result.diffs)) is not result.diffs:
        result = replace(result, diffs=kept)
    if result.refused and (kept := bounded(result.refused)) is not result.refused:
        result = replace(result, refused=kept)
    hidden = bool(outcome.outputs) and result.outputs != outcome.outputs
    return End(
        node, result, tuple(outcome.added), hidden, outcome.forgotten, outcome.worked, outcome.notifies,
        outcome.handler, outcome.served, confirmed,
    )  # fmt: skip


def undo(attempt: Attempt, data: Mapping[str, Any] | None, params: Any = None, *, withheld: bool = False) -> Undo:
    """The entry for the undo data of an attempt, with its parameters if those may be recorded."""
    node, host = attempt.node, attempt.host
    step = "" if params is None else node.step_name
    return Undo(node.id, host, data, node.become, step, params, node.elsewhere(host), withheld=withheld)


def retry(attempt: Attempt, result: HostResult, place: str = "") -> Retry:
    """The entry for an attempt that failed and will be followed by another one, perhaps at another place."""
    return Retry(
        attempt.node.id, attempt.host, attempt.number, result.message, result.kind, attempt.unsure,
        attempt.may_have_changed,
        diffs=bounded(result.diffs),
        place=place,
    )  # fmt: skip


def bounded(diffs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The diffs of an attempt, as far as they are recorded: every place that can be, and of long ones no content."""
    left = _DIFFS - sum(len(diff["path"]) + len(diff["note"]) for diff in diffs[:_MOST_DIFFS])
    if len(diffs) <= _MOST_DIFFS and sum(len(diff["text"]) for diff in diffs) <= left:
        return diffs
    kept: list[Mapping[str, Any]] = []
    for diff in diffs[:_MOST_DIFFS]:
        size = len(diff["text"])
        if size > left:
            lines = f"a diff of {diff['text'].count(chr(10)) + 1} lines, which was too long to be recorded"
            diff = {**diff, "text": "", "note": f"{diff['note']}, {lines}" if diff["note"] else lines}
        else:
            left -= size
        kept.append(diff)
    if len(diffs) > _MOST_DIFFS:
        kept.append({"path": "", "text": "", "note": f"and {len(diffs) - _MOST_DIFFS} more places"})
    return kept

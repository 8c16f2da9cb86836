"""The entries of a journal: what happened to actions, encoded and decoded by msgspec."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
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

    @property
    def host(self) -> str:
        """The host of the action."""
        return self.result.host_name

    @property
    def time(self) -> float | None:
        """When it ended."""
        return self.result.end_time


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


class Stop(_Row, frozen=True, tag="stop"):
    """No new action starts from here on."""

    reason: str
    time: float = field(default_factory=time.time)


class Ended(_Row, frozen=True, tag="status"):
    """The session has ended."""

    status: str
    message: str = ""
    time: float = field(default_factory=time.time)


OfAction: TypeAlias = Start | End | Asks | Retry | Undo | Undoing | Undone
Entry: TypeAlias = Session | Stop | Ended | OfAction


_DECODER: Final = Decoder(list[Entry])


def read(text: str) -> list[Entry]:
    """The entries of one group in the journal; raises JournalError."""
    try:
        return _DECODER.decode(text)
    except DecodeError as error:
        # A lone surrogate is written as an escape, which only the standard library reads.
        with contextlib.suppress(ValueError):
            return convert(json.loads(text), list[Entry])
        raise JournalError(f"an entry of the journal cannot be decoded: {error}", "the journal is damaged") from None


def end(node: str, outcome: ActionOutcome) -> End:
    """The entry for the end of an action."""
    result = outcome.result
    if len(result.stdout) > _KEPT or len(result.stderr) > _KEPT:
        result = replace(result, stdout=result.stdout[-_KEPT:], stderr=result.stderr[-_KEPT:])
    hidden = bool(outcome.outputs) and result.outputs != outcome.outputs
    return End(node, result, tuple(outcome.added), hidden, outcome.forgotten, outcome.worked)


def undo(attempt: Attempt, data: Mapping[str, Any] | None, params: Any = None) -> Undo:
    """The entry for the undo data of an attempt, with its parameters if those may be recorded."""
    node, host = attempt.node, attempt.host
    step = "" if params is None else node.step_name
    return Undo(node.id, host, data, node.become, step, params, node.elsewhere(host))


def retry(attempt: Attempt, result: HostResult) -> Retry:
    """The entry for an attempt that failed and will be followed by another one."""
    return Retry(
        attempt.node.id, attempt.host, attempt.number, result.message, result.kind, attempt.unsure, attempt.working
    )

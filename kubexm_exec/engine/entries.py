"""The entries of a journal: what happened to actions, as msgspec writes it down and reads it."""

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
"""Characters kept of each stream; the whole is in the run's log."""


class _Row(Struct, frozen=True, array_like=True):
    """What all entries are: short rows without names, as there are two for each action. New fields come last."""


class Repeat(_Row, frozen=True):
    """What is to be run again although it was done: some nodes on some hosts, or on all (None)."""

    nodes: tuple[str, ...]
    hosts: tuple[str, ...] | None = None


class Session(_Row, frozen=True, tag="session"):
    """Somebody began, or went on with, the run."""

    mode: str
    """run, resume or rollback"""
    holder: str
    again: tuple[Repeat, ...] = ()
    time: float = field(default_factory=time.time)


class Start(_Row, frozen=True, tag="s"):
    """An attempt is about to begin, with inputs of this digest. Until its end nobody knows what it has done."""

    node: str
    host: str
    attempt: int
    time: float
    inputs: str


class End(_Row, frozen=True, tag="e"):
    """An action has come to its end."""

    node: str
    result: HostResult
    nodes: tuple[ExecutionNode, ...] = ()
    """Those of the fragment that it returned."""
    hidden: bool = False
    """Outputs were not kept because there is a secret in them."""
    forgotten: bool = False
    """Its nodes were not kept because there is a secret in them."""
    worked: bool = False

    @property
    def host(self) -> str:
        """The host of the action."""
        return self.result.host_name

    @property
    def time(self) -> float | None:
        """When that was."""
        return self.result.end_time


class Retry(_Row, frozen=True, tag="retry"):
    """An attempt failed, and there will be another one."""

    node: str
    host: str
    attempt: int
    message: str
    failure: FailureKind | None = None
    unsure: str = ""
    worked: bool = False
    time: float = field(default_factory=time.time)


class Undo(_Row, frozen=True, tag="undo"):
    """What an attempt will need to be undone; durable before anything is changed. A later one of it replaces it."""

    node: str
    host: str
    data: Mapping[str, Any] | None
    """None: it has changed nothing."""
    become: bool | str | None = None
    step: str = ""
    """The step type, and the parameters, unless they are not to be kept."""
    params: Any = None
    place: str = ""
    time: float = field(default_factory=time.time)


class Undoing(_Row, frozen=True, tag="undoing"):
    """The undo of an action is about to begin."""

    node: str
    host: str
    time: float = field(default_factory=time.time)


class Undone(_Row, frozen=True, tag="undone"):
    """An action was undone, that failed, or there was nothing to undo."""

    node: str
    host: str
    state: str
    message: str = ""
    time: float = field(default_factory=time.time)


class Stop(_Row, frozen=True, tag="stop"):
    """Nothing new is started from here on."""

    reason: str
    time: float = field(default_factory=time.time)


class Ended(_Row, frozen=True, tag="status"):
    """The session has come to its end."""

    status: str
    message: str = ""
    time: float = field(default_factory=time.time)


OfAction: TypeAlias = Start | End | Retry | Undo | Undoing | Undone
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
    """An action has come to its end."""
    result = outcome.result
    if len(result.stdout) > _KEPT or len(result.stderr) > _KEPT:
        result = replace(result, stdout=result.stdout[-_KEPT:], stderr=result.stderr[-_KEPT:])
    hidden = bool(outcome.outputs) and result.outputs != outcome.outputs
    return End(node, result, tuple(outcome.added), hidden, outcome.forgotten, outcome.worked)


def undo(attempt: Attempt, data: Mapping[str, Any] | None, params: Any = None) -> Undo:
    """What an attempt will need to be undone, with its parameters unless they are not to be kept."""
    node, host = attempt.node, attempt.host
    step = "" if params is None else node.step_name
    return Undo(node.id, host, data, node.become, step, params, node.elsewhere(host))


def retry(attempt: Attempt, result: HostResult) -> Retry:
    """An attempt failed, and there will be another one."""
    return Retry(
        attempt.node.id, attempt.host, attempt.number, result.message, result.kind, attempt.unsure, attempt.working
    )

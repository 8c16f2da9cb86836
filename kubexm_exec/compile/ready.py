"""Passes for ``readyFirst``: all hosts are connected to, and their facts gathered, before the first action."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubexm_exec.compile.chains import barrier, gate
from kubexm_exec.compile.state import State
from kubexm_exec.compile.types import load_type
from kubexm_exec.model.graph import ExecutionFragment, ExecutionNode, Hook, Origin, Policy
from kubexm_exec.model.result import NO_HOSTS

_ID: Final = "readyFirst"
_TYPE: Final = "ready"
_TIME: Final = 60.0
"""Seconds that a host has to answer."""


def ready_fragment(state: State) -> ExecutionFragment:
    """The node that waits for all hosts, with a gate behind it; nothing if the pipeline does not ask for it."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    place = pipeline.place(_ID)
    if not document.ready_first or load_type(state, _TYPE, place) is None:
        return ExecutionFragment()
    span = place.span()
    node = ExecutionNode(
        id=_ID, name=_ID, step_name=_TYPE, hook=Hook.PRE,
        policy=Policy(timeout=_TIME, max_failures=document.max_failures or "0"),
        reversible=True, every_session=True, origin=Origin(span.file, span.line, span.column),
    )  # fmt: skip
    opened = gate("#ready", [barrier(node.id)])
    return ExecutionFragment.of([node, opened], [opened.id])


def choose_ready(state: State) -> None:
    """Pass: the hosts that must be ready are those on which something is selected to run."""
    node = state.nodes.get(_ID)
    if node is None or not node.every_session:
        return
    at_work = {host for other in state.nodes.values() if other.id != _ID and not other.skip for host in other.locations}
    hosts = tuple(host for host in state.hosts if host in at_work)
    state.nodes[_ID] = replace(node, hosts=hosts, skip="" if hosts else NO_HOSTS)

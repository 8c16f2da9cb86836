"""Takes a run back that the journal knows: says what cannot be undone, asks, and undoes the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail
from kubexm_exec.cli.journaled import refuse, waiting
from kubexm_exec.cli.resuming import check_broken_off, enter_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubexm_exec.cli.resuming import Past
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.scheduler import Action

_NEWEST: Final = 1000
"""How many runs are looked through for later ones."""
_NAMED: Final = 5


def roll_back(
    store: Store,
    past: Past,
    *,
    yes: bool,
    wait: bool,
    output: str,
    verbose: int,
    again: tuple[str, ...] = (),
    undone: tuple[str, ...] = (),
    overwrite: bool = False,
) -> int:
    """Undo what the run has done; gives the exit code.

    ``again``, ``undone``: globs of nodes whose undo broke off before: to be undone once more, or known to be undone.
    ``overwrite``: undo also what somebody else changed since.
    """
    from kubexm_exec.cli.running import Run
    from kubexm_exec.console.text import plural
    from kubexm_exec.engine.history import tell, whole_graph, with_earlier
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.executors.rollback import RollbackExecutor, broken_off, remaining, was_undone
    from kubexm_exec.journal.database import state_folder
    from kubexm_exec.journal.session import Session
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import timestamp

    form = "json" if output == "json" else "text"
    try:
        history, later = tell(store, past.row.id), _later(store, past.row)
    except JournalError as error:
        refuse(error, form)
    can, cannot = remaining(history)
    check_broken_off(history, (*again, *undone), past.row.id, form)
    if not can:
        fail(f"there is nothing to undo in run {past.row.id}", f"kubexm runs show {past.row.id}", output=form)
    if form == "text":
        click.echo(f"run {past.row.id} of {past.row.name}: {plural(len(can), 'action')} can be undone", err=True)
        for key in cannot:
            click.echo(f"  cannot be undone, and stays as it is: {key.node} on {key.host}", err=True)
        if blind := _blind(past, can):
            text = ", ".join(blind[:_NAMED]) + (f" and {len(blind) - _NAMED} more" if len(blind) > _NAMED else "")
            click.echo(f"  undone without a look whether somebody else changed it since: {text}", err=True)
        for row in later[:_NAMED]:
            began = timestamp(row.created)
            click.echo(f"  a later run worked on the same target: {row.id} of {row.name} ({began})", err=True)
        if len(later) > _NAMED:
            click.echo(f"  and {len(later) - _NAMED} more", err=True)
        if later:
            click.echo(
                "  what they changed of the same things is left alone: roll them back first to undo that too", err=True
            )
    if not yes:
        if form == "json" or not sys.stdin.isatty():
            fail("nobody can be asked whether to go on", "say so: --yes", code=codes.REFUSED, output=form)
        if not click.confirm("undo it?", err=True):
            raise SystemExit(codes.REFUSED)
    try:
        session = Session.go_on(store, state_folder(), past.row.id, "rollback", wait=waiting(form) if wait else None)
        for key in broken_off(history, undone):
            session.recorder.write(was_undone(key))
        history = tell(store, past.row.id)
        # What a changed spec has no more was done all the same.
        before = (ExecutionGraph.from_json(each["graph"]) for each in store.all_made_from(past.row.id))
        graph = with_earlier(past.graph, before)
    except JournalError as error:
        refuse(error, form)
    typed = ["kubexm-run", os.path.relpath(past.row.spec)]
    if Path(past.inputs["folder"]).is_dir():
        enter_folder(past, form)
    run = Run(
        whole_graph(graph, history), "concurrent", past.inputs["forks"], output, verbose, past.choice.templates, typed,
        Path(past.inputs["bundle"]) if past.inputs["bundle"] else None, run_id=past.row.id,
    )  # fmt: skip
    run.configure_logs("warning", "text")
    run.runtime.options.overwrite = overwrite
    run.make_executor = lambda: RollbackExecutor(history, again)
    run.success = "RolledBack"
    run.left = frozenset(can).__contains__
    run.keep(session, history)
    return run.exit_code(run.execute())


def _blind(past: Past, actions: Sequence[Action]) -> list[str]:
    """The nodes whose step types do not look, before they undo something, whether somebody else was there."""
    from kubexm_exec.plugins import RegistryError, step_registry
    from kubexm_exec.step import Step

    registry, found = step_registry(), []
    for node in dict.fromkeys(action.node for action in actions):
        of = past.graph.nodes.get(node)
        try:
            if of is not None and registry.load(of.step_name).standing is Step.standing:
                found.append(node)
        except RegistryError:
            continue
    return found


def _later(store: Store, row: RunRow) -> list[RunRow]:
    """The runs that may have changed something on the same target since, the newest first, if that still stands."""
    from kubexm_exec.model.result import Status

    # An id begins with the time.
    newer = (each for each in store.runs(limit=_NEWEST) if each.id > row.id and each.target == row.target)
    # Of one that broke off nobody has counted anything.
    return [each for each in newer if each.counts.get("changed", 1) and each.status != Status.ROLLED_BACK.value]

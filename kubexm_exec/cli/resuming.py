"""Goes on with a run that the journal knows: compares the spec with what it was, and runs what is not done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Choice, compile_or_exit, fail
from kubexm_exec.cli.journaled import refuse, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubexm_exec.cli.running import Run
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.engine.entries import Row
    from kubexm_exec.engine.history import RunHistory
    from kubexm_exec.engine.prior import Known
    from kubexm_exec.engine.resume import Selection
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import GraphExecutionResult
    from kubexm_exec.scheduler import Action


class Past(Struct):
    """A run as the journal has it, ready to be gone on with."""

    row: RunRow
    inputs: dict[str, Any]
    graph: ExecutionGraph
    """As it was compiled, without what was added while it ran."""

    @property
    def choice(self) -> Choice:
        """What was chosen for it on the command line."""
        kept: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in self.inputs["choice"].items()
        }
        return Choice(**kept)


def load_past(store: Store, wanted: str, output: str) -> Past:
    """The run that somebody means; ends the program if there is none, or it cannot be understood."""
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.model.graph import ExecutionGraph

    try:
        row = store.run(wanted)
        inputs = store.made_from(row.id)
        graph = replace(ExecutionGraph.from_json(inputs["graph"]), target=inputs["target"])
    except JournalError as error:
        refuse(error, output)
    except ValueError as error:
        fail(f"run {row.id} cannot be used by this version of kubexm: {error}", output=output, kind="journal")
    return Past(row, inputs, graph)


def graph_now(past: Past, output: str) -> ExecutionGraph | None:
    """The graph of the spec as it is now; None for a run of a plan, which has no spec of its own."""
    if is_plan(past):
        return None
    before = Path.cwd()
    try:
        enter_folder(past, output)
        _, graph = compile_or_exit(past.inputs["spec"], past.choice.options(output), output)
        return graph
    finally:
        os.chdir(before)


def enter_folder(past: Past, output: str) -> None:
    """Go where the run was begun: relative names on its command line and in what it runs here start there."""
    try:
        os.chdir(past.inputs["folder"])
    except OSError as error:
        fail(f"the folder of run {past.row.id} cannot be used: {error.filename}: {error.strerror}", output=output)


def is_plan(past: Past) -> bool:
    """Whether it was a plan that was run, not a spec."""
    from kubexm_exec.compile.plan import KIND

    spec = Path(past.inputs["spec"])
    if past.inputs["spec"].startswith("kubexm:") or spec.suffix != ".json":
        return False
    try:
        return KIND in spec.read_text("utf-8", "replace")[:200]
    except OSError:
        return False


def changes_since(past: Past, now: ExecutionGraph) -> list[NodeChange]:
    """What is not as it was when the run began."""
    from kubexm_exec.compile.compare import compare

    return compare(past.graph, now)


def changed_nodes(changes: list[NodeChange]) -> frozenset[str]:
    """The nodes that are to be run again; on more or fewer hosts than before is no change of what was done."""
    return frozenset(change.node for change in changes if change.change == "added" or change.details)


def changed_files(before: ExecutionGraph, now: ExecutionGraph) -> list[str]:
    """What became of the files that a graph is made from."""
    old, new = before.sources, now.sources
    said = {name: "is not used any more" for name in old if name not in new}
    said |= {name: "is new" for name in new if name not in old}
    said |= {name: "has changed" for name in new if name in old and new[name] != old[name]}
    return [f"file {name} {said[name]}" for name in sorted(said)]


def show_changes(changes: list[NodeChange], others: list[str], run: str, output: str) -> None:
    """Say what changed, and refuse; ``others``: what changed besides nodes."""
    lines = [f"    {each}" for each in others]
    for change in changes:
        if change.gate:
            continue
        details = [
            *change.details, *(f"on {host} too" for host in change.hosts_added),
            *(f"not on {host} any more" for host in change.hosts_removed),
        ]  # fmt: skip
        detail = f": {'; '.join(details)}" if details else ""
        lines.append(f"    {change.change} {change.node}{detail}")
    fail(
        "the spec has changed since the run, nothing was run:\n" + "\n".join(lines),
        f"kubexm runs resume {run} --accept-changes runs what has changed and all that depends on it",
        code=codes.REFUSED,
        output=output,
        kind="changed-spec",
    )


def resume(
    store: Store,
    past: Past,
    selection: Selection,
    *,
    accept: bool,
    wait: bool,
    output: str,
    verbose: int,
    forks: int | None,
    again: tuple[str, ...] = (),
    undone: tuple[str, ...] = (),
    overwrite: bool = False,
) -> int:
    """Go on with the run; gives the exit code.

    ``again``, ``undone``: globs of nodes whose undo broke off before: to be undone once more, or known to be undone.
    ``overwrite``: if the run's policy has it undone, then also what somebody else changed since.
    """
    from kubexm_exec.cli.running import Run
    from kubexm_exec.compile.compare import compare_hosts
    from kubexm_exec.engine.history import staying, tell, whole_graph
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.engine.resume import in_doubt, known_actions
    from kubexm_exec.executors.resumed import ResumedExecutor
    from kubexm_exec.journal.database import state_folder
    from kubexm_exec.journal.session import Session

    form = "json" if output == "json" else "text"
    graph, inputs = past.graph, None
    now = graph_now(past, form)
    if now is not None:
        changes, hosts = changes_since(past, now), compare_hosts(past.graph, now)
        if (changes or hosts) and not accept:
            show_changes(changes, [*changed_files(past.graph, now), *hosts], past.row.id, form)
        if changes or hosts:
            graph = replace(now, target=past.inputs["target"])
            inputs = {**past.inputs, "graph": graph.to_json()}
            selection = replace(selection, changed=changed_nodes(changes))
    typed = ["kubexm-run", os.path.relpath(past.row.spec)]
    try:
        history = tell(store, past.row.id)
        for glob in selection.done:
            if not in_doubt(history, [glob]):
                fail(
                    f'nothing is in doubt of "{glob}" in run {past.row.id}',
                    f"kubexm runs show {past.row.id}",
                    output=form,
                )
        check_broken_off(history, (*again, *undone), past.row.id, form)
        session = Session.go_on(
            store, state_folder(), past.row.id, "resume", inputs, wait=waiting(form) if wait else None,
            first=lambda: _first(graph, tell(store, past.row.id), selection, undone),
        )  # fmt: skip
        history = tell(store, past.row.id)
    except JournalError as error:
        refuse(error, form)
    enter_folder(past, form)
    graph = staying(graph, history)
    whole = whole_graph(graph, history)
    known = known_actions(whole, history, selection)
    run = Run(
        graph, past.row.executor, forks or past.inputs["forks"], output, verbose, past.choice.templates, typed,
        Path(past.inputs["bundle"]) if past.inputs["bundle"] else None, run_id=past.row.id,
    )  # fmt: skip
    run.configure_logs("warning", "text")
    run.runtime.prior = known
    run.left = lambda action: action not in known or known[action].outcome is None
    run.runtime.options.overwrite = overwrite
    chosen = run.make_executor
    run.make_executor = lambda: ResumedExecutor(chosen, again)
    run.sessions = history.sessions
    run.keep(session, history)
    _tell_done(run, whole.actions(), list(known.values()))
    result = run.execute()
    if selection.partial and _is_well(run, result, known):
        return codes.OK
    return run.exit_code(result)


def _first(
    graph: ExecutionGraph, history: RunHistory, selection: Selection, undone: tuple[str, ...]
) -> tuple[list[Row], list[dict[str, Any]]]:
    """What somebody says was done or undone, and what is to be run again: also of the former, if it has changed."""
    from kubexm_exec.engine import entries
    from kubexm_exec.engine.history import whole_graph
    from kubexm_exec.engine.resume import in_doubt, seen_done, to_repeat
    from kubexm_exec.executors.rollback import broken_off, was_undone

    done = [entries.end(action.node, seen_done(action)) for action in in_doubt(history, selection.done)]
    done += [was_undone(action) for action in broken_off(history, undone)]
    return done, to_repeat(whole_graph(graph, history), history, selection)


def _is_well(run: Run, result: GraphExecutionResult, known: Mapping[Action, Known]) -> bool:
    """Whether all that was chosen is done, and the rest is only left: nobody cancelled it."""
    from kubexm_exec.model.result import Status
    from kubexm_exec.scheduler import Action

    if result.status is not Status.CANCELLED or run.runtime.cancel.is_set() or run.journal_error is not None:
        return False
    left = {action for action, each in known.items() if each.outcome is not None}
    return not any(
        each.status is Status.CANCELLED or each.cause
        for node, of in result.node_results.items()
        for host, each in of.host_results.items()
        if Action(node, host) not in left
    )


def _tell_done(run: Run, actions: int, known: Sequence[Known]) -> None:
    """Say how much there is that need not be done again."""
    from kubexm_exec.console.lines import done_before
    from kubexm_exec.model.events import RUN_RESUMED
    from kubexm_exec.model.result import Status

    ended = [each.outcome.result.status for each in known if each.outcome is not None]
    # What was not chosen for this session is not done either.
    run.done_before = sum(status in (Status.SUCCESS, Status.SKIPPED) for status in ended)
    counts = {"done": run.done_before, "unknown": sum(1 for each in known if each.doubt), "actions": actions}
    run.bus.emit(RUN_RESUMED, **counts)
    if run.console.draws:
        run.console.output.write(f"resuming run {run.bus.run}: {done_before(counts)}\n")


def check_broken_off(history: RunHistory, globs: Sequence[str], run: str, form: str) -> None:
    """End the program if somebody says something of an undo that did not break off."""
    from kubexm_exec.executors.rollback import broken_off

    for glob in globs:
        if not broken_off(history, [glob]):
            fail(f'no undo of "{glob}" broke off in run {run}', f"kubexm runs show {run}", output=form)

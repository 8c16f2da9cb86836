"""``kubexm runs show``: the history of a run, for somebody who was not there."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import Any, Final

import click

from kubexm_exec.cli.common import HOST_PATTERNS, output_option, wants_color
from kubexm_exec.cli.journaled import runs_command, service_of
from kubexm_exec.cli.runtables import next_commands, row_json, show_run
from kubexm_exec.cli.typed import chosen
from kubexm_exec.console.failures import find_failures, find_node
from kubexm_exec.console.jsonl import json_line
from kubexm_exec.console.tables import count
from kubexm_exec.model.result import HostResult, timestamp
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import PastRun, RunDetails, RunInfo

SLOWEST: Final = 5


@click.command("show")
@click.argument("run", default="last")
@click.option("-D", "--diff", "diffs", is_flag=True, help="Show what it changed on each host, instead of its history.")
@click.option("--host", "hosts", metavar="HOSTS", help=f"With --diff, only these hosts: {HOST_PATTERNS}.")
@click.option(
    "--node", "nodes", metavar="NODE", multiple=True, help="With --diff, only this node (or module, task, glob)."
)
@output_option
@click.pass_obj
def command(journal: str | None, run: str, diffs: bool, hosts: str | None, nodes: tuple[str, ...], output: str) -> None:
    """Show the history of RUN: what ran, what failed and why, what was slow, what remains, and what to do next.

    A run in progress is shown as it is now. The default is the newest run.
    """
    if diffs:
        _show_changes(journal, run, hosts, nodes, output)
        return
    if hosts is not None or nodes:
        raise Invalid("--host and --node choose changes", "add --diff, or see `kubexm runs logs`")
    found = service_of(journal).get(run)
    if output == "json":
        click.echo(json_line(_json(found, runs_command(journal))), nl=False)
        return
    text = show_run(found, runs_command(journal), color=wants_color(sys.stdout), width=get_terminal_size().columns)
    click.echo(text, nl=False)


def _show_changes(journal: str | None, run: str, hosts: str | None, nodes: tuple[str, ...], output: str) -> None:
    from kubexm_exec.console.changes import render_changes
    from kubexm_exec.console.text import Paint

    found = service_of(journal).changes(run, hosts=hosts, nodes=nodes)
    if output == "json":
        click.echo(json_line({"changes": [each.to_json() for each in found]}), nl=False)
        return
    for line in render_changes(found, Paint(wants_color(sys.stdout))):
        click.echo(line)


def _json(found: RunDetails, command: str) -> dict[str, Any]:
    seen = found.past
    shown = seen.shown
    total, modules, hosts = count(seen.whole, shown)
    failures = []
    for failure in find_failures(seen.whole, shown):
        node = find_node(seen.whole, failure.node)
        each = failure.result
        failures.append({
            "node": failure.node, "step": failure.step, "hosts": failure.hosts, "message": each.message,
            "failureKind": each.kind.value if each.kind else None, "command": each.command,
            "exitCode": each.exit_code, "stdout": each.stdout, "stderr": each.stderr,
            "hint": each.hint, "attempts": each.attempts,
            "origin": str(node.origin) if node is not None else "", "skipped": failure.skipped,
        })  # fmt: skip
    return {
        **row_json(RunInfo(seen.row, seen.state)),
        "alive": seen.alive,
        "version": found.version,
        "plan": found.request.documents.plan or None,
        "choice": chosen(found.request.documents),
        "seconds": _seconds(shown.start_time, shown.end_time),
        "sessions": [
            {
                "mode": session.mode, "holder": session.holder, "startTime": timestamp(session.begun),
                "endTime": timestamp(session.ended), "lastSeen": timestamp(session.last), "status": session.status,
                "message": session.message, "stop": session.stop,
            }
            for session in seen.history.sessions
        ],
        "actions": {"total": total.actions, **total.numbers},
        "modules": {name: {**each.numbers, "hosts": len(each.hosts)} for name, each in modules.items()},
        "hosts": {name: each.numbers for name, each in hosts.items()},
        "failures": failures,
        "retries": [
            {"node": key.node, "host": key.host, "attempts": told.attempts, "message": told.retries[-1].message}
            for key, told in seen.retried()
        ],
        "repeated": [_brief(*each) for each in seen.repeated()],
        "running": [_brief(*each) for each in seen.running()],
        "waiting": [
            {"node": action.node, "host": action.host, "question": question}
            for action, question in seen.waiting().items()
        ],
        "unknown": [_brief(*each) for each in seen.unknown()],
        "undoing": [_brief(*each) for each in seen.undoing()],
        "undone": [{**_brief(*each), "undo": each[1].undo} for each in seen.undone()],
        "left": [_brief(*each) for each in seen.left()],
        "due": [{"handler": each.handler, "host": each.host, "sure": each.sure} for each in found.due],
        "slowest": [
            {"node": node, "host": each.host_name, "seconds": round(seconds, 3)}
            for node, each, seconds in seen.slowest(SLOWEST)
        ],
        "next": [{"command": typed, "what": what} for typed, what in next_commands(seen, command)],
        "inputs": _inputs(seen),
        "result": seen.result.to_json(),
    }  # fmt: skip


def _brief(node: str, each: HostResult) -> dict[str, Any]:
    place = {"place": each.place} if each.place else {}
    return {"node": node, "host": each.host_name, **place, "status": each.status.value, "message": each.message}


def _inputs(seen: PastRun) -> dict[str, dict[str, str]]:
    """Digests of what the last attempt of each action was given, by node and host."""
    found: dict[str, dict[str, str]] = {}
    for key, told in seen.history.actions.items():
        if told.inputs:
            found.setdefault(key.node, {})[key.host] = told.inputs
    return found


def _seconds(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(end - start, 3)

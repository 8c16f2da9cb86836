"""``kubexm plan``: saves the compiled graph."""

from __future__ import annotations

import json
import shlex

import click
from msgspec.structs import replace

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Warnings, fail, output_option, value_options
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.cli.targets import Product, check_targets, force_option
from kubexm_exec.compile.plan import PlanError, save_plan
from kubexm_exec.console.text import columns
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.service.requests import Documents
from kubexm_spec.diagnostics import plural


@click.command("plan")
@click.argument("spec")
@click.option(
    "-o", "--out", "target", metavar="FILE", help="Where to save the plan; without it, only a summary is shown."
)
@force_option
@value_options
@output_option
def command(spec: str, target: str | None, force: bool, choice: Documents, output: str) -> None:
    """Compile SPEC and save the graph with digests of all its inputs.

    Run it later with: kubexm-run --plan FILE. A plan whose inputs have changed is refused.
    """
    planned = service_of(None).plan(replace(choice, spec=spec), Warnings(output))
    check_targets([(target, Product.PLAN)], output, force=force, reads=planned.reads)
    plan, graph = planned.plan, planned.plan.graph
    if target is not None:
        try:
            save_plan(plan, target)
        except PlanError as error:
            fail(str(error), code=codes.FAILED, output=output)
    hosts = {host for node in graph.steps() for host in node.hosts}
    lasting = [node.id for node in graph.steps() if not node.reversible and not node.skip]
    if output == "json":
        summary = {
            "name": graph.name,
            "hash": graph.content_hash(),
            "nodes": sum(1 for _ in graph.steps()),
            "actions": graph.actions(),
            "hosts": sorted(hosts),
            "notReversible": lasting,
            "file": target,
        }
        click.echo(json.dumps(summary, ensure_ascii=False))
        return
    steps = list(graph.steps())
    size = f"{plural(len(steps), 'node')}, {plural(graph.actions(), 'action')} on {plural(len(hosts), 'host')}"
    click.echo(f"{graph.name}: {size}")
    for line in columns([_columns(node) for node in steps], left=frozenset(range(4))):
        click.echo(f"  {line}")
    click.echo(f"hash {graph.content_hash()[:16]}")
    if target is not None:
        click.echo(f"Saved to {target}. Run it with: kubexm-run --plan {shlex.quote(str(target))}")
    else:
        click.echo(f"Save it with: kubexm plan {shlex.quote(spec)} -o plan.json")


def _columns(node: ExecutionNode) -> tuple[str, ...]:
    return node.id, node.step_name, node.summary, "" if node.reversible else "cannot be undone"

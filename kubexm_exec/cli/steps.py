"""``kubexm steps``: lists step types, or documents one."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, output_option, wants_color
from kubexm_exec.console.text import columns
from kubexm_exec.plugins import PluginInfo, Registry, RegistryError, step_registry
from kubexm_exec.step import load_step
from kubexm_exec.step.describe import FieldDoc, StepDoc, describe, params_schema, summary_of

_UNDO = {
    (True, True): "It can be undone.\n",
    (False, True): "It cannot be undone.\n",
    (True, False): "It changes nothing.\n",
    (False, False): "It changes nothing.\n",
}


@click.command("steps")
@click.argument("name", required=False)
@output_option
def command(name: str | None, output: str) -> None:
    """List the installed step types with their packages, or document the step type NAME."""
    registry = step_registry()
    if name is None:
        _list(registry, output)
        return
    try:
        info, step = registry.info(name), load_step(registry, name)
        params_schema(registry, name)
    except RegistryError as error:
        fail(error.message, error.hint, code=codes.WRONG, output=output, kind=error.code)
    _show(describe(name, step), info, output)


def _list(registry: Registry[Any], output: str) -> None:
    rows: list[dict[str, Any]] = []
    for info in registry.infos():
        row: dict[str, Any] = {"name": info.name, "distribution": info.distribution, "version": info.version}
        try:
            step = load_step(registry, info.name)
            row.update(summary=summary_of(step), reversible=step.undo.reversible, error="")
        except RegistryError as error:
            row.update(summary="", reversible=False, error=error.message)
        rows.append(row)
    if output == "json":
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    cells = [
        (
            row["name"],
            f"{row['distribution']} {row['version']}",
            row["summary"] if not row["error"] else f"BROKEN: {row['error']}",
        )
        for row in rows
    ]
    for line in columns(cells, left=frozenset(range(3))):
        click.echo(line)
    click.echo("\nOne in full: kubexm steps NAME")


def _show(doc: StepDoc, info: PluginInfo, output: str) -> None:
    if output == "json":
        click.echo(
            json.dumps(
                {**doc.to_json(), "distribution": info.distribution, "version": info.version}, ensure_ascii=False
            )
        )
        return
    color = wants_color(sys.stdout)

    def head(text: str) -> str:
        return click.style(text, bold=True) if color else text

    click.echo(f"{head(doc.name)}  ({info.distribution} {info.version})\n\n{doc.text}\n")
    _fields(head("Parameters"), doc.params)
    _fields(head("Outputs"), doc.outputs)
    if doc.any_output:
        click.echo("Outputs can have any name.\n")
    click.echo(_UNDO[doc.reversible, doc.changes])
    if doc.repeatable:
        click.echo("It is repeatable: it is simply run again when nobody knows how far it came.\n")
    if doc.example:
        click.echo(head("Example") + "\n")
        click.echo("\n".join(f"  {line}" for line in doc.example.splitlines()))


def _fields(title: str, fields: tuple[FieldDoc, ...]) -> None:
    if not fields:
        return
    click.echo(title)
    width = max(len(field.name) for field in fields)
    for field in fields:
        mark = (
            " (required)"
            if field.required and title.endswith("Parameters")
            else f" (default {field.default})"
            if field.default
            else ""
        )
        click.echo(f"  {field.name:<{width}}  {field.type}{mark}")
        if field.description:
            click.echo(f"  {'':<{width}}    {field.description}")
    click.echo("")

"""``kubexm``: everything around a run; each command lives in its own module and is imported when it is called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from kubexm_exec.cli.interrupts import interruptible

_COMMANDS: dict[str, tuple[str, str]] = {
    "cluster": ("kubexm_exec.cli.cluster", "Build the pipeline of a Kubernetes cluster from its document."),
    "diff": ("kubexm_exec.cli.diff", "Show what changes in the graph between two specs."),
    "drift": ("kubexm_exec.cli.drift", "Show differences from the last successful run of a spec."),
    "exec": ("kubexm_exec.cli.exec", "Run one command on some hosts, without a spec."),
    "facts": ("kubexm_exec.cli.facts", "Show facts of hosts."),
    "fmt": ("kubexm_exec.cli.fmt", "Format specs, keeping comments."),
    "graph": ("kubexm_exec.cli.graph", "Draw the graph of a spec."),
    "inventory": ("kubexm_exec.cli.inventory", "Show the hosts of an inventory."),
    "notifications": ("kubexm_exec.cli.notifications", "List handlers that are due, or drop them."),
    "plan": ("kubexm_exec.cli.plan", "Save the compiled graph, to run exactly that later."),
    "resources": ("kubexm_exec.cli.resources", "List, fetch and bundle the resources of a spec."),
    "run": ("kubexm_exec.cli.run", "Run a spec or a plan (the same as kubexm-run)."),
    "runs": ("kubexm_exec.cli.runs", "Inspect, resume, roll back or cancel runs, and answer their questions."),
    "schema": ("kubexm_exec.cli.schema", "Print JSON Schema for editors."),
    "shell": ("kubexm_exec.cli.shell", "Open a shell on a host."),
    "steps": ("kubexm_exec.cli.steps", "List the step types, or document one."),
    "validate": ("kubexm_exec.cli.validate", "Check specs without running them."),
    "versions": ("kubexm_exec.cli.versions", "Show, check and extend the versions data of clusters."),
    "vars": ("kubexm_exec.cli.vars", "Show the values that a host sees, and their sources."),
}


class LazyGroup(click.Group):
    """Knows its commands by name and help, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, or be interrupted before it has begun."""
        with interruptible():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown name gets a suggestion."""
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            from kubexm_spec.diagnostics import did_you_mean

            guess = did_you_mean(args[0], _COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; {guess}" if guess else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in sorted(_COMMANDS)])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kubexm", prog_name="kubexm")
def main() -> None:
    """Bring hosts into the state that declarative specs describe.

    Run one with: kubexm-run SPEC
    """

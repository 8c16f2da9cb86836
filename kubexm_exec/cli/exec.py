"""``kubexm exec``: one command on some hosts, run by the same engine as a spec."""

from __future__ import annotations

import shlex

import click

from kubexm_exec.cli.common import (
    console_option,
    executor_option,
    forks_option,
    inventory_option,
    site_documents,
    spec_option,
)
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.cli.targets import force_option
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import CommandRequest


def _check_user(name: str) -> None:
    from kubexm_spec.models.common import written_out

    try:
        written_out(name)
    except ValueError as error:
        raise Invalid(f'--become "{name}": it {error}') from None


@click.command("exec")
@click.argument("pattern")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@inventory_option
@spec_option
@click.option("--shell", "line", metavar="LINE", help="A line of POSIX shell instead of a program and its arguments.")
@click.option("--become", metavar="USER", help="Run as this user, whatever the inventory says.")
@executor_option
@forks_option("hosts")
@console_option
@click.option("--result", "result_file", metavar="FILE", help="Write the result as JSON.")
@force_option
def command(
    pattern: str,
    argv: tuple[str, ...],
    inventory: str | None,
    spec: str | None,
    line: str | None,
    become: str | None,
    executor: str,
    forks: int,
    output: str,
    result_file: str | None,
    force: bool,
) -> None:
    """Run ARGV on the hosts that PATTERN selects: kubexm exec PATTERN -i FILE -- ARGV...

    PATTERN is `all`, or names, ranges, globs, groups and roles, separated by commas. ARGV is passed to the hosts
    unchanged: no shell interprets it, and no expression in it is evaluated.

    Exit codes are those of kubexm-run: 0 success, 1 the command failed on a host, 2 wrong command line, nothing ran.
    """
    if bool(argv) == (line is not None):
        raise Invalid(
            "give either a command after -- or a line with --shell",
            f"kubexm exec {shlex.quote(pattern)} -i FILE -- uptime",
        )
    if become is not None:
        _check_user(become)
    if line is not None and not line.strip():
        raise Invalid("the line of --shell is empty")
    from kubexm_exec.cli.running import Terminal

    request = CommandRequest(
        documents=site_documents(spec, inventory), pattern=pattern, argv=argv, shell=line, become=become,
        executor=executor, forks=forks,
    )  # fmt: skip
    terminal = Terminal(output, 1, typed=(), result_file=result_file, force=force)
    raise SystemExit(terminal.conclude(service_of(None).run_command(request, terminal)))

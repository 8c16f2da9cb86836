"""``kubexm exec``: one command on some hosts, run by the same engine as a spec."""

from __future__ import annotations

import json
import shlex

import click

from kubexm_exec.cli.common import fail
from kubexm_exec.cli.sites import hosts_or_exit, inventory_option, site_or_exit, spec_option
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text


def _check_user(name: str, form: str) -> None:
    from kubexm_spec.models.common import written_out

    try:
        written_out(name)
    except ValueError as error:
        fail(f'--become "{name}": it {error}', output=form)


@click.command("exec")
@click.argument("pattern")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@inventory_option
@spec_option
@click.option("--shell", "line", metavar="LINE", help="A line of POSIX shell instead of a program and its arguments.")
@click.option("--become", metavar="USER", help="Work as this user of the hosts, whatever they say themselves.")
@click.option(
    "--executor",
    default="concurrent",
    show_default=True,
    metavar="NAME",
    help="concurrent, debug, dry-run, check, or a third party's.",
)
@click.option(
    "--forks", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many hosts work at once."
)
@click.option(
    "--output",
    type=click.Choice(["auto", "live", "plain", "json", "quiet"]),
    default="auto",
    show_default=True,
    help="auto is live on a terminal and plain lines elsewhere; json is one event a line.",
)
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
    """Run ARGV on the hosts that PATTERN means: kubexm exec PATTERN -i FILE -- ARGV...

    PATTERN is `all`, or names, ranges, globs, groups and roles, separated by commas. ARGV goes to the hosts as it is:
    no shell reads it, and no expression in it is evaluated.

    Exit codes are those of kubexm-run: 0 all well, 1 the command failed on a host, 2 the call is wrong and nothing ran.
    """
    form = "json" if output == "json" else "text"
    if bool(argv) == (line is not None):
        fail(
            "give either a command after -- or a line with --shell",
            f"kubexm exec {shlex.quote(pattern)} -i FILE -- uptime",
            output=form,
        )
    if argv and not argv[0]:
        fail("the command names no program", output=form)
    if become is not None:
        _check_user(become, form)
    if line is not None and not line.strip():
        fail("the line of --shell is empty", output=form)
    site = site_or_exit(spec, inventory, form)
    hosts = hosts_or_exit(site, [pattern], form)
    from kubexm_exec.cli.running import Run
    from kubexm_exec.compile.adhoc import command_graph

    reads = [spec, inventory, *(str(source.path) for source in site.sources.values())]
    check_targets([(result_file, Product.RESULT)], form, force=force, reads=reads)
    graph = command_graph(site, hosts, list(argv) if argv else None, line, become)
    run = Run(graph, executor, forks, output, 1, (), [])
    run.configure_logs("warning", "text")
    result = run.execute()
    if result_file is not None:
        write_text(result_file, json.dumps(run.result_json(result), indent=2, ensure_ascii=False) + "\n", private=True)
    raise SystemExit(run.exit_code(result))

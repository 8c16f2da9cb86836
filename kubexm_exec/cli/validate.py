"""``kubexm validate``: checks files and folders of specs."""

from __future__ import annotations

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import output_option, show_diagnostics, value_options
from kubexm_exec.cli.gc import prepare
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.service.requests import Documents


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@value_options
@output_option
def command(paths: tuple[str, ...], choice: Documents, output: str) -> None:
    """Check specs: files, or folders with all specs below them. No step is run.

    Pipelines are compiled with everything they include; other documents are checked on their own. In a folder, YAML
    files without kubexm documents (values, files of other tools) and hidden folders are ignored. Inventory programs are
    run to obtain the hosts.
    """
    prepare()
    found = service_of(None).validate(paths, choice)
    show_diagnostics(found.diagnostics, found.sources, output)
    if found.diagnostics.has_errors:
        raise SystemExit(codes.WRONG)
    if output == "text":
        from kubexm_spec.excerpt import nothing_was_run

        left, checked = found.left_out, found.checked
        others = f" {left} other YAML {'file was' if left == 1 else 'files were'} left out." if left else ""
        valid = f"{checked} {'file is' if checked == 1 else 'files are'} valid."
        click.echo(f"{valid}{others} {nothing_was_run(found.sources)}")

"""``kubexm fmt``: formats specs."""

from __future__ import annotations

import pathlib
import sys

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, show_diagnostics, write_text


@click.command("fmt")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a file is not formatted.")
@click.option("--diff", "show_diff", is_flag=True, help="Change nothing; show what would change.")
def command(paths: tuple[str, ...], check: bool, show_diff: bool) -> None:
    """Format specs in place: indentation and spacing; comments, order and values stay. `-` reads standard input."""
    from kubexm_spec.diagnostics import Diagnostics, SpecError
    from kubexm_spec.fmt import format_text

    diagnostics = Diagnostics()
    different: list[str] = []
    total = 0
    for name, text in _texts(paths):
        total += 1
        try:
            formatted = format_text(text, name)
        except SpecError as error:
            diagnostics.extend(error.diagnostics)
            continue
        if name == "-":
            click.echo(formatted, nl=False)
            continue
        if formatted == text:
            continue
        different.append(name)
        if show_diff:
            import difflib

            lines = difflib.unified_diff(text.splitlines(True), formatted.splitlines(True), name, f"{name} (formatted)")
            click.echo("".join(lines), nl=False)
        elif not check:
            write_text(name, formatted)
    if diagnostics.has_errors:
        show_diagnostics(diagnostics, {}, "text")
        raise SystemExit(codes.WRONG)
    if check or show_diff:
        for name in different:
            click.echo(f"{name} is not formatted; format it with: kubexm fmt {name}", err=True)
        if different:
            raise SystemExit(codes.FAILED)
    for name in [] if check or show_diff else different:
        click.echo(f"formatted {name}")
    if paths != ("-",) and not different:
        click.echo(f"{total} {'file is' if total == 1 else 'files are'} formatted.")


def _texts(paths: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name in paths:
        path = pathlib.Path(name)
        if name == "-":
            found.append(("-", sys.stdin.read()))
            continue
        files = sorted(p for p in path.rglob("*.y*ml") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            try:
                found.append((str(file), file.read_bytes().decode("utf-8")))
            except OSError as error:
                fail(f"{file} cannot be read: {error.strerror}")
            except UnicodeDecodeError as error:
                fail(f"{file} is not UTF-8: byte {error.start + 1} is wrong")
    return found

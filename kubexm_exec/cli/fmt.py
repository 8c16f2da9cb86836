"""``kubexm fmt``: formats specs."""

from __future__ import annotations

import pathlib
import shlex
import sys
from collections.abc import Iterator

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, show_diagnostics
from kubexm_exec.cli.targets import write_text
from kubexm_exec.service.inspecting import yaml_files
from kubexm_spec.diagnostics import Diagnostics, SpecError


@click.command("fmt")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a file is not formatted.")
@click.option("--diff", "show_diff", is_flag=True, help="Change nothing; show what would change.")
def command(paths: tuple[str, ...], check: bool, show_diff: bool) -> None:
    """Format specs in place: indentation and spacing; comments, order and values stay. `-` reads standard input.

    In a folder, YAML files without kubexm documents and hidden folders are ignored.
    """
    from kubexm_spec.yaml.format import format_text

    diagnostics = Diagnostics()
    different: list[str] = []
    total = 0
    for name, data in _contents(paths):
        total += 1
        try:
            text = _decoded(data, name)
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
    for name in [] if check or show_diff else different:
        click.echo(f"formatted {name}")
    if diagnostics.has_errors:
        show_diagnostics(diagnostics, {}, "text")
        raise SystemExit(codes.WRONG)
    if check or show_diff:
        for name in different:
            click.echo(f"{name} is not formatted; format it with: kubexm fmt {shlex.quote(str(name))}", err=True)
        if different:
            raise SystemExit(codes.FAILED)
    if paths != ("-",) and not different:
        click.echo(f"{total} {'file is' if total == 1 else 'files are'} formatted.")


def _contents(paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for name in paths:
        path = pathlib.Path(name)
        if name == "-":
            yield "-", sys.stdin.buffer.read()
            continue
        for file in [file for file, is_spec in yaml_files(path) if is_spec] if path.is_dir() else [path]:
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                fail(f"{file} cannot be read: {error.strerror}")


def _decoded(data: bytes, name: str) -> str:
    from kubexm_spec.yaml.source import SourceFile

    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        SourceFile(name, pathlib.Path(name), data)  # raises the finding that says where
        raise

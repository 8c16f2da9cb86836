"""What commands share: options for specs, compiling with errors shown as people or machines want them, and exits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from msgspec import Struct

from kubexm_exec.cli import codes

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile import Compilation, CompileOptions
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_spec.diagnostics import Diagnostics, Span

F = TypeVar("F", bound=Callable[..., Any])


def output_option(function: F) -> F:
    """``--output text|json`` for commands that report."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people, or data for machines.",
    )(function)


def bundle_option(function: F) -> F:
    """``--bundle DIR``, or KUBEXM_BUNDLE."""
    return click.option(
        "--bundle",
        metavar="DIR",
        envvar="KUBEXM_BUNDLE",
        help="Folder with resources that is looked at before anything is fetched (or KUBEXM_BUNDLE).",
    )(function)


def bundle_folder(bundle: str | None, output: str) -> Path | None:
    """The folder of a bundle that was typed; ends the program if there is none."""
    import pathlib

    if not bundle:
        return None
    folder = pathlib.Path(bundle)
    if not folder.is_dir():
        fail(f"there is no bundle {bundle}", "make one: kubexm resources bundle SPEC -o DIR", output=output)
    return folder.absolute()


HOST_PATTERNS = "names, ranges, globs, groups, roles, label=value or all; a,b is either, a&b both, !a not"
"""How hosts are named on the command line, for the help of commands."""


class Choice(Struct, frozen=True, kw_only=True):
    """Where values and hosts come from, as it was typed: the options of ``value_options``."""

    values: tuple[str, ...]
    vars_files: tuple[str, ...]
    inventory: str | None
    limit: str | None
    tags: str | None
    skip_tags: str | None
    templates: tuple[str, ...]

    def is_empty(self) -> bool:
        """Whether nothing was chosen that changes what is compiled."""
        return not (self.values or self.vars_files or self.inventory or self.limit or self.tags or self.skip_tags)

    def options(self, output: str) -> CompileOptions:
        """The same as the compiler takes it; ends the program with a message if it cannot be."""
        from kubexm_exec.compile import CompileOptions

        texts: dict[str, str] = {}
        for pair in self.values:
            key, sign, value = pair.partition("=")
            if not sign or not key.strip():
                fail(f"-e {pair}: a value is given as KEY=VALUE", output=output)
            texts[key.strip()] = value
        if self.limit is not None and not _words(self.limit):
            fail("--limit names no host", f"give {HOST_PATTERNS}", output=output)
        values, given_at = _read_values(self.vars_files, output)
        return CompileOptions(
            values=values,
            given_at=given_at,
            texts=texts,
            inventory=self.inventory,
            limit=_words(self.limit),
            tags=frozenset(_words(self.tags)),
            skip_tags=frozenset(_words(self.skip_tags)),
            templates=self.templates,
        )


def value_options(function: Callable[..., None]) -> Callable[..., None]:
    """Where values and hosts come from; the command gets them all as ``choice``."""

    @wraps(function)
    def packed(**arguments: Any) -> None:
        chosen = {name: arguments.pop(name) for name in Choice.__struct_fields__}
        function(choice=Choice(**chosen), **arguments)

    decorated: Callable[..., None] = packed
    for option in reversed(
        [
            click.option(
                "-e",
                "--set",
                "values",
                multiple=True,
                metavar="KEY=VALUE",
                help="Value of a parameter; may be repeated.",
            ),
            click.option(
                "--vars-file",
                "vars_files",
                multiple=True,
                metavar="FILE",
                help="YAML file with values of parameters; may be repeated.",
            ),
            click.option("-i", "--inventory", metavar="FILE", help="Inventory instead of the spec's own."),
            click.option("--limit", metavar="HOSTS", help=f"Only these hosts: {HOST_PATTERNS}."),
            click.option("--tags", metavar="TAGS", help="Only steps with one of these tags."),
            click.option("--skip-tags", metavar="TAGS", help="No steps with one of these tags."),
            click.option(
                "--templates",
                multiple=True,
                metavar="FOLDER",
                help="Folder of templates that come before the shipped ones.",
            ),
        ]
    ):
        decorated = option(decorated)
    return decorated


def fail(
    message: str, hint: str = "", *, code: int = codes.WRONG, output: str = "text", kind: str = "usage"
) -> NoReturn:
    """End with one clear message."""
    if output == "json":
        finding: dict[str, Any] = {
            "code": kind,
            "severity": "error",
            "summary": message,
            "hint": hint,
            "span": None,
            "notes": [],
            "detail": "",
        }
        click.echo(
            json.dumps(
                {"event": "diagnostics", "diagnostics": [finding], "errors": 1, "warnings": 0}, ensure_ascii=False
            )
        )
    else:
        click.echo(f"error: {message}" + (f"\n  → {hint}" if hint else ""), err=True)
    raise SystemExit(code)


def wants_color(stream: Any) -> bool:
    """Whether to colour what is written to a stream."""
    from kubexm_exec.console import wants_color as decide

    return decide(stream)


def show_diagnostics(
    diagnostics: Diagnostics, sources: Mapping[str, Any], output: str, *, ran: bool = False, to_stderr: bool = False
) -> None:
    """All findings, for people on stderr or as one JSON object on stdout (stderr if stdout is for something else)."""
    if output == "json":
        data = {
            "event": "diagnostics",
            "diagnostics": diagnostics.as_list(),
            "errors": len(diagnostics.errors),
            "warnings": len(diagnostics.warnings),
        }
        click.echo(json.dumps(data, ensure_ascii=False), err=to_stderr)
        return
    if not len(diagnostics):
        return
    from kubexm_spec.excerpt import render, summary_line

    text = render(diagnostics, color=wants_color(sys.stderr), sources=sources)
    click.echo(text.rstrip("\n"), err=True)
    if diagnostics.has_errors:
        click.echo("\n" + summary_line(diagnostics, ran, sources), err=True)
    else:
        click.echo("", err=True)


def _read_values(files: tuple[str, ...], output: str) -> tuple[dict[str, Any], dict[str, Span]]:
    """The values in some files, and where each was written; a later file wins."""
    from kubexm_spec.diagnostics import SpecError
    from kubexm_spec.yaml.source import SourceFile

    found: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for name in files:
        try:
            source = SourceFile.load(name)
        except SpecError as error:
            show_diagnostics(error.diagnostics, {}, output)
            raise SystemExit(codes.WRONG) from None
        data = source.documents[0] if source.documents else {}
        # What is no name is not quoted: it may be any file.
        if not isinstance(data, dict) or not all(map(str.isidentifier, data)):
            fail(f"{name} holds no mapping of names of parameters to values", output=output)
        found.update(data)
        places.update({key: source.place(0, (key,)).span() for key in data})
    return found, places


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def compile_or_exit(
    spec: str, options: CompileOptions, output: str, *, alone: bool = False
) -> tuple[Compilation, ExecutionGraph]:
    """The compiled spec; findings are shown, errors end the program with exit code 2.

    ``alone``: the command prints one JSON document of its own, so that warnings go to stderr.
    """
    from kubexm_exec.compile import compile_file

    result = compile_file(spec, options)
    if result.graph is None:
        show_diagnostics(result.diagnostics, result.sources, output)
        raise SystemExit(codes.WRONG)
    if len(result.diagnostics):
        show_diagnostics(result.diagnostics, result.sources, output, to_stderr=alone)
    return result, result.graph


def yaml_files(folder: Path) -> list[tuple[Path, bool]]:
    """All YAML files below a folder, but not those in hidden ones; each with whether it is a spec of ours."""
    found = (path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml") and path.is_file())
    seen = sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return [(path, _mentions_kubexm(path)) for path in seen]


def _mentions_kubexm(path: Path) -> bool:
    try:
        return b"kubexm.io/" in path.read_bytes()
    except OSError:  # told when it is loaded
        return True

"""What commands share: options for specs, errors shown as people or machines want them, and exits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, TypeVar

import click

from kubexm_exec.cli import codes
from kubexm_exec.model.result import DEFAULT_EXECUTOR
from kubexm_exec.service.errors import Held, Invalid, Refused, ServiceError
from kubexm_exec.service.live import Watcher
from kubexm_exec.service.requests import Documents
from kubexm_spec.diagnostics import Diagnostics

F = TypeVar("F", bound=Callable[..., Any])


def output_option(function: Callable[..., None]) -> Callable[..., None]:
    """``--output text|json`` for commands that report; errors are told in the same form."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, or JSON for programs.",
    )(telling(function))


def console_option(function: Callable[..., None]) -> Callable[..., None]:
    """``--output`` for commands that run something; errors are told in the same form."""
    return click.option(
        "--output",
        type=click.Choice(["auto", "live", "plain", "json", "quiet"]),
        default="auto",
        show_default=True,
        help="auto is live on a terminal and plain lines elsewhere; json is one event per line.",
    )(telling(function))


def telling(function: Callable[..., None]) -> Callable[..., None]:
    """A command that ends with what is wrong with a request, in the form that its ``output`` says."""

    @wraps(function)
    def told(*arguments: Any, **options: Any) -> None:
        with errors_told(options.get("output", "text")):
            function(*arguments, **options)

    return told


@contextmanager
def errors_told(output: str) -> Iterator[None]:
    """An error of the service inside ends the program with a message."""
    form = "json" if output == "json" else "text"
    try:
        yield
    except ServiceError as error:
        if isinstance(error, Invalid) and error.diagnostics is not None:
            show_diagnostics(error.diagnostics, error.sources, form, folder=error.folder)
            raise SystemExit(codes.WRONG) from None
        code = codes.REFUSED if isinstance(error, Refused) else codes.WRONG
        hint = error.hint
        if isinstance(error, Held):
            hint = f"wait for it with --wait, or see it: kubexm runs show {error.run}"
        fail(error.message, hint, code=code, output=form, kind=error.kind)


def bundle_option(function: F) -> F:
    """``--bundle DIR``, or KUBEXM_BUNDLE."""
    return click.option(
        "--bundle",
        metavar="DIR|FILE",
        envvar="KUBEXM_BUNDLE",
        help="Bundle to search for resources before anything is fetched (or KUBEXM_BUNDLE).",
    )(function)


def offline_option(function: F) -> F:
    """``--offline``."""
    return click.option(
        "--offline", is_flag=True, help="Fetch nothing: what is not in the bundle is an error before anything is run."
    )(function)


def forks_option(of: str = "actions", default: int | None = 50, instead: str = "") -> Callable[[F], F]:
    """``--forks`` for so many of something at once; ``instead``: what holds by default, if that is no number."""
    return click.option(
        "--forks", type=click.IntRange(1, 10_000), default=default, show_default=default is not None,
        help=f"Maximum number of concurrent {of}{instead}."
    )  # fmt: skip


def executor_option(function: F) -> F:
    """``--executor NAME``."""
    return click.option(
        "--executor", default=DEFAULT_EXECUTOR, show_default=True, metavar="NAME",
        help="concurrent, debug, dry-run, check, or a third party's."
    )(function)  # fmt: skip


def verbose_option(function: F) -> F:
    """``-v``, repeatable."""
    return click.option("-v", "--verbose", count=True, help="Show the output of steps; -vv shows more.")(function)


def approve(question: str, output: str) -> None:
    """Ask for approval; ends the program, or raises Refused where nobody can be asked."""
    if output == "json" or not sys.stdin.isatty():
        raise Refused("this needs approval, and there is no terminal to ask", "approve it with --yes")
    if not click.confirm(question, err=True):
        raise SystemExit(codes.REFUSED)


def inventory_option(function: F) -> F:
    """``-i``, in every form that inventories have."""
    return click.option(
        "-i",
        "--inventory",
        metavar="FILE",
        help="Inventory: a file (of kubexm, Ansible or Terraform outputs), a folder, a program, or NAME:argument.",
    )(function)


def spec_option(function: F) -> F:
    """``--spec``, for commands whose arguments are something else."""
    return click.option("--spec", metavar="SPEC", help="Use the inventory of this spec.")(function)


def site_documents(spec: str | None, inventory: str | None) -> Documents:
    """What the hosts of a command come from; raises Invalid if neither is given."""
    if not spec and inventory is None:
        raise Invalid("which hosts? Give an inventory with -i FILE, or a spec")
    return Documents(folder=here(), spec=spec or "", inventory=inventory)


def diff_option(function: F) -> F:
    """``--diff``, for commands that change something."""
    return click.option("-D", "--diff", "diffs", is_flag=True, help="Show what is changed, as it happens.")(function)


HOST_PATTERNS = "names, ranges, globs, groups, roles, label=value or all; a,b is either, a&b both, !a not"
"""How hosts are named on the command line, for the help of commands."""


_VALUE_OPTIONS = (
    click.option(
        "-e", "--set", "values", multiple=True, metavar="KEY=VALUE",
        help="Value of a parameter or variable; repeatable."
    ),
    click.option(
        "--vars-file", "vars_files", multiple=True, metavar="FILE",
        help="YAML file with values of parameters and variables; repeatable."
    ),
    click.option("-i", "--inventory", metavar="FILE", help="Inventory instead of the spec's own."),
    click.option("--limit", metavar="HOSTS", help=f"Only these hosts: {HOST_PATTERNS}."),
    click.option("--tags", metavar="TAGS", help="Only steps with one of these tags, or with the tag always."),
    click.option("--skip-tags", metavar="TAGS", help="No steps with one of these tags."),
    click.option(
        "--templates", multiple=True, metavar="FOLDER", help="Folder of templates, searched before the shipped ones."
    ),
)  # fmt: skip


def here() -> str:
    """The folder in which names on the command line start."""
    return os.getcwd()  # noqa: PTH109 - pathlib costs more than the rest of this


def value_options(function: Callable[..., None]) -> Callable[..., None]:
    """Where values and hosts come from; the command gets them all as ``choice``, documents without a spec."""

    @wraps(function)
    @telling
    def packed(
        *,
        values: tuple[str, ...],
        limit: str | None,
        tags: str | None,
        skip_tags: str | None,
        inventory: str | None,
        vars_files: tuple[str, ...],
        templates: tuple[str, ...],
        **arguments: Any,
    ) -> None:
        texts: dict[str, str] = {}
        for pair in values:
            key, sign, value = pair.partition("=")
            if not sign or not key.strip():
                hint = f"--vars-file {pair[1:]} reads values from a file" if pair.startswith("@") else ""
                raise Invalid(f"-e {pair}: a value is given as KEY=VALUE", hint)
            texts[key.strip()] = value
        if limit is not None and not _words(limit):
            raise Invalid("--limit names no host", f"give {HOST_PATTERNS}")
        choice = Documents(
            folder=here(), texts=texts, vars_files=vars_files, inventory=inventory, limit=_words(limit),
            tags=_words(tags), skip_tags=_words(skip_tags), templates=templates,
        )  # fmt: skip
        function(choice=choice, **arguments)

    decorated: Callable[..., None] = packed
    for option in reversed(_VALUE_OPTIONS):
        decorated = option(decorated)
    return decorated


def fail(
    message: str, hint: str = "", *, code: int = codes.WRONG, output: str = "text", kind: str = "usage"
) -> NoReturn:
    """End with one clear message."""
    if output == "json":
        from kubexm_spec.diagnostics import Diagnostic, Diagnostics

        show_diagnostics(Diagnostics([Diagnostic(kind, message, hint=hint)]), {}, "json")
    else:
        click.echo(f"error: {message}" + (f"\n  → {hint}" if hint else ""), err=True)
    raise SystemExit(code)


def wants_color(stream: Any) -> bool:
    """Whether to colour what is written to a stream."""
    from kubexm_exec.console import wants_color as decide

    return decide(stream)


def show_diagnostics(
    diagnostics: Diagnostics, sources: Mapping[str, Any], output: str, *, to_stderr: bool = False, folder: str = ""
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

    text = render(diagnostics, color=wants_color(sys.stderr), sources=sources, folder=folder)
    click.echo(text.rstrip("\n"), err=True)
    if diagnostics.has_errors:
        click.echo("\n" + summary_line(diagnostics, sources=sources), err=True)
    else:
        click.echo("", err=True)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


class Warnings(Watcher):
    """Shows warnings on stderr, for a command that prints something of its own."""

    def __init__(self, output: str = "text") -> None:
        self.output = output

    def found(self, diagnostics: Diagnostics, sources: Mapping[str, Any]) -> None:
        """There are warnings."""
        show_diagnostics(diagnostics, sources, self.output, to_stderr=True)

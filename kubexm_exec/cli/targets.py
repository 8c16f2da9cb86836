"""Files that a command writes on the control node: what may be replaced, decided before anything runs, and how."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, TypeVar

import click

from kubexm_exec import safepaths
from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail

F = TypeVar("F", bound=Callable[..., Any])
_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_MOST: Final = 64 << 20
"""Bytes that are looked at to tell what a file is."""


class Product(Enum):
    """What commands write, and how an earlier one is recognised."""

    PLAN = ("plan", (rb'\{[^\0]*"kind":\s*"kubexm\.io/plan"',))
    RESULT = ("result", (rb'\{\s*"graphName": ' + _TEXT + rb',\s*"runId": ',))
    REPORT = ("report", (rb'<!DOCTYPE html>[^\0]{0,4096}<meta name="generator" content="kubexm report">',))
    GRAPH = (
        "drawing",
        (
            rb'<!DOCTYPE html>[^\0]{0,4096}<meta name="generator" content="kubexm graph">',
            rb'<svg [^>]*class="kx"',
            rb"---\ntitle: [^\n]*\n---\nflowchart TD\n[^\0]*\n  classDef join fill:",
            rb"digraph " + _TEXT + rb" \{\n  label=[^\n]*\n  rankdir=TB; newrank=true; compound=true;",
            rb'\{\s*"format": \d+,\s*"name": ' + _TEXT + rb',\s*"description": ' + _TEXT + rb',\s*"failurePolicy": ',
        ),
    )
    PIPELINE = ("pipeline", (rb"# Made by `kubexm cluster build` from ",))
    KUBECONFIG = ("kubeconfig", (rb"# Made by `kubexm cluster kubeconfig` from ",))
    CLUSTER = ("cluster document", (rb"# Converted by `kubexm cluster convert` from ",))
    SCHEMA = ("schema", (rb'\{\s*"\$defs": [^\0]*\n  "\$id": "https://kubexm\.io/schema/',))

    def __init__(self, noun: str, patterns: tuple[bytes, ...]) -> None:
        self.noun = noun
        self.patterns = patterns

    def made(self, path: str) -> bool:
        """Whether a file is an earlier one of this kind; an empty file is anybody's."""
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs more than the rest of a small command
            data = file.read(_MOST)
        return not data or any(re.match(pattern, data) for pattern in self.patterns)


def force_option(function: F) -> F:
    """``--force`` for commands that write a file."""
    return click.option(
        "--force",
        is_flag=True,
        help="Overwrite the output file, whatever it is; by default only an earlier output of the same kind.",
    )(function)


def check_targets(
    targets: Iterable[tuple[str | None, Product]], form: str, *, force: bool, reads: Iterable[str | None] = ()
) -> None:
    """End the program if a file cannot or must not be written: a run of an hour must not end with that, or replace
    what it was made from.

    Without ``force`` nothing is replaced but an earlier product of the same kind, and never what this call reads, by
    whatever name: files are compared, not paths.
    """
    wanted = [(name, product) for name, product in targets if name is not None and name != "-"]
    if not wanted:
        return
    inputs = {found: name for name in reads if name is not None and (found := _identity(name)) is not None}
    seen: dict[str, str] = {}
    for name, product in wanted:
        _check_folder(name, form)
        try:
            with _place(name):
                pass
        except OSError as error:
            fail(f"{name} cannot be written: {error.strerror}", "use a folder that only you can write", output=form)
        place = os.path.realpath(name)
        if place in seen:
            fail(f"{name} cannot be both the {seen[place]} and the {product.noun}", "give two names", output=form)
        seen[place] = product.noun
        if os.path.isdir(name):  # noqa: PTH112 - pathlib costs as much as the rest of this check
            fail(f"{name} cannot be written: it is a folder", "give the name of a file in it", output=form)
        if force or not os.path.isfile(name):  # noqa: PTH113 - a pipe or a device is written to, not replaced
            continue
        if (found := _identity(name)) in inputs:
            read = inputs[found]
            also = "" if os.path.normpath(read) == os.path.normpath(name) else f" (it is {read})"
            fail(
                f"{name} is not overwritten with the {product.noun}: this command reads it{also}",
                "use another name, or overwrite it with --force",
                output=form,
                kind="would-replace",
            )
        try:
            known = product.made(name)
        except OSError as error:
            fail(f"{name} cannot be replaced: {error.strerror}", output=form)
        if not known:
            fail(
                f"{name} exists and is not a {product.noun} of kubexm: it is not overwritten",
                "use another name, or overwrite it with --force",
                output=form,
                kind="would-replace",
            )


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _check_folder(name: str, form: str) -> None:
    folder = os.path.dirname(os.path.realpath(name))  # noqa: PTH120 - as above
    if not os.path.isdir(folder):  # noqa: PTH112
        shown = os.path.dirname(name) or folder  # noqa: PTH120
        fail(f"{name} cannot be written: there is no folder {shown}", f"mkdir -p {shown}", output=form)
    if not os.access(folder, os.W_OK):
        fail(f"{name} cannot be written: {folder} is not writable", output=form)


def write_text(path: str, text: str, *, private: bool = False) -> None:
    """Write a file whole or not at all; ``-`` is standard output. A file of ours keeps its mode, and a link its target.

    A new file that is ``private`` is its owner's alone. What is no file, such as a pipe or a device, is written to.
    """
    if path == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    # Bytes: line ends are those of the text.
    data = text.encode("utf-8", "backslashreplace")
    try:
        with _place(path) as (folder, name, there):
            if _is_open_file(folder):
                with open(path, "wb") as file:  # noqa: PTH123
                    file.write(data)
                return
            if there is not None and not stat.S_ISREG(there.st_mode):
                with os.fdopen(os.open(name, os.O_WRONLY | _FLAGS, dir_fd=folder), "wb") as file:
                    file.write(data)
                return
            kept = None
            if there is not None:
                kept = there.st_mode & 0o7777 if there.st_uid == os.geteuid() else 0o600
            with safepaths.replacing(folder, name, 0o600 if private or kept is not None else 0o666, kept) as file:
                file.write(data)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}", code=codes.FAILED)


@contextlib.contextmanager
def _place(path: str) -> Iterator[tuple[int, str, os.stat_result | None]]:
    """The folder that a file is to be written in, its name there, and what is there now.

    Raises OSError with the reason if a link of somebody else leads there, or the file is theirs: they would read what
    is written, or have chosen what it replaces.
    """
    with safepaths.at(path, last=True) as (folder, name):
        try:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is not None and there.st_uid not in (0, os.geteuid()):
            who = safepaths.others(folder)
            if who:
                owner, mode = safepaths.user_name(there.st_uid), stat.S_IMODE(there.st_mode)
                raise PermissionError(
                    errno.EPERM, f"it belongs to {owner} (mode {mode:04o}), in a folder that {who} may write"
                )
        yield folder, name, there


def _is_open_file(folder: int) -> bool:
    """Whether it is where the system shows our open files: of a pipe there is no other name."""
    with contextlib.suppress(OSError):
        return re.fullmatch(r"/proc/\d+(/task/\d+)?/fd", os.readlink(f"/proc/self/fd/{folder}")) is not None  # noqa: PTH115
    return False

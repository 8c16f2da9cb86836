"""What commands share that read or write the journal: where it is, and the service that keeps it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kubexm_exec.service.protocol import Service

F = TypeVar("F", bound=Callable[..., Any])


def journal_option(function: F) -> F:
    """``--journal PLACE``, or KUBEXM_JOURNAL."""
    return click.option(
        "--journal",
        metavar="PLACE",
        envvar="KUBEXM_JOURNAL",
        help="A file, or postgresql://...; by default a file in your state folder (or KUBEXM_JOURNAL).",
    )(function)


def wait_option(function: F) -> F:
    """``--wait``: until nobody else works on the target."""
    return click.option("--wait", is_flag=True, help="If another run holds the target, wait for it to end.")(function)


def patient_option(function: F) -> F:
    """``--wait-for-answers``: until somebody answers from elsewhere."""
    return click.option(
        "--wait-for-answers",
        "patient",
        is_flag=True,
        help="Without a terminal, every question waits for `kubexm runs answer`; by default those with a timeout and "
        "no default do.",
    )(function)


def overwrite_option(function: F) -> F:
    """``--overwrite``: whatever somebody else has done since."""
    return click.option(
        "--overwrite",
        is_flag=True,
        help="When undoing, restore also what somebody else has changed since the run: their changes are lost. "
        "By default they are kept.",
    )(function)


def service_of(journal: str | None) -> Service:
    """The service that keeps a journal."""
    from kubexm_exec.service.local import LocalService

    return LocalService(journal or "")


def journal_words(journal: str | None) -> list[str]:
    """How this journal is named in a command; the password of a database is left out."""
    place = service_of(journal).place
    return [] if not place or journal == os.environ.get("KUBEXM_JOURNAL") else ["--journal", place]


def runs_command(journal: str | None) -> str:
    """How ``kubexm runs`` is typed for this journal."""
    import shlex

    return shlex.join(["kubexm", "runs", *journal_words(journal)])

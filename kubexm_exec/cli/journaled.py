"""What commands share that read or write the journal: where it is, opening it, and a run that is written down."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from msgspec.structs import asdict

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Choice, fail

if TYPE_CHECKING:
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.leases import HeldError
    from kubexm_exec.journal.store import Store
    from kubexm_exec.model.graph import ExecutionGraph

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
    return click.option("--wait", is_flag=True, help="If another run works on the same target, wait for its end.")(
        function
    )


def overwrite_option(function: F) -> F:
    """``--overwrite``: whatever somebody else has done since."""
    return click.option(
        "--overwrite",
        is_flag=True,
        help="Where something is undone: also what somebody else changed since the run, which is left alone otherwise.",
    )(function)


def open_store(place: str | None, output: str, *, reading: bool = False) -> Store:
    """The journal; ends the program with a message if it cannot be used. ``reading``: nothing will be written to it."""
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.database import state_folder
    from kubexm_exec.journal.store import Store

    try:
        return Store(place or str(state_folder() / "journal.db"), reading=reading)
    except JournalError as error:
        refuse(error, output)


def runs_command(store: Store) -> str:
    """How ``kubexm runs`` is typed for this journal; the password of a database is left out."""
    import shlex

    from kubexm_exec.journal.database import shown, state_folder

    if store.url in (str(state_folder() / "journal.db"), os.environ.get("KUBEXM_JOURNAL")):
        return "kubexm runs"
    place = store.url if "://" not in store.url else shown(store.url).removeprefix("journal ")
    return f"kubexm runs --journal {shlex.quote(place)}"


def refuse(error: JournalError, output: str) -> NoReturn:
    """End with what is wrong with the journal, or who holds what is wanted."""
    from kubexm_exec.journal.errors import FencedError
    from kubexm_exec.journal.leases import HeldError

    held = isinstance(error, HeldError | FencedError)
    fail(error.what, error.hint, code=codes.REFUSED if held else codes.WRONG, output=output, kind="journal")


def waiting(output: str) -> Callable[[HeldError], None]:
    """Says once who is waited for."""
    said: list[str] = []

    def say(error: HeldError) -> None:
        if error.lease.run not in said:
            said.append(error.lease.run)
            if output != "json":
                click.echo(f"waiting: {error.what}", err=True)

    return say


def made_from(
    graph: ExecutionGraph, spec: str, choice: Choice, forks: int, packages: Any, bundle: str | None
) -> dict[str, Any]:
    """All that a run was made from, so that it can be gone on with from anywhere."""
    import importlib.metadata

    return {
        "version": importlib.metadata.version("kubexm"),
        "graph": graph.to_json(),
        "target": graph.target,
        "spec": spec,
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib costs more than the rest of this
        "choice": asdict(choice),
        "forks": forks,
        "packages": packages,
        "bundle": bundle,
    }

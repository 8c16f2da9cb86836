"""Why a request was not done: a few kinds of errors, each with what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.journal.leases import Lease
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_spec.diagnostics import Diagnostics


class ServiceError(Exception):
    """A request that was not done."""

    def __init__(self, message: str, hint: str = "", *, kind: str = "usage") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = kind
        """A word for machines."""


class Invalid(ServiceError):
    """The documents or the request are wrong; nothing was done."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        kind: str = "usage",
        diagnostics: Diagnostics | None = None,
        sources: Mapping[str, Any] | None = None,
        folder: str = "",
    ) -> None:
        super().__init__(message, hint, kind=kind)
        self.diagnostics = diagnostics
        """All that is wrong in documents, if it is that."""
        self.sources = sources or {}
        """The files that were read, by their names, and where others are searched."""
        self.folder = folder

    @classmethod
    def documents(cls, diagnostics: Diagnostics, sources: Mapping[str, Any], folder: str) -> Invalid:
        """What is wrong is in documents."""
        said = [f"{each.span}: {each.summary}" if each.span else each.summary for each in diagnostics.errors]
        return cls("; ".join(said), diagnostics=diagnostics, sources=sources, folder=folder)


class NotFound(ServiceError):
    """There is no such thing."""


class Refused(ServiceError):
    """Possible, but refused."""


class Held(Refused):
    """Another run holds the lease of the target."""

    def __init__(self, message: str, hint: str, lease: Lease) -> None:
        super().__init__(message, hint, kind="journal")
        self.run = lease.run
        self.by = str(lease.holder)
        self.since = lease.since


class Changed(Refused):
    """The spec or the plan has changed since."""

    def __init__(self, message: str, hint: str, changes: Sequence[str], *, kind: str) -> None:
        listed = "\n".join(f"    {change}" for change in changes)
        super().__init__(f"{message}, nothing was run:\n{listed}", hint, kind=kind)
        self.changes = list(changes)


class Unavailable(ServiceError):
    """The journal cannot be used."""


@contextmanager
def journal_errors() -> Iterator[None]:
    """Turns errors of the journal into errors of the service."""
    from kubexm_exec.engine.ports import JournalError

    try:
        yield
    except JournalError as error:
        from kubexm_exec.journal.errors import FencedError, UnknownRunError
        from kubexm_exec.journal.leases import HeldError

        if isinstance(error, HeldError):
            raise Held(error.what, error.hint, error.lease) from error
        kinds = {FencedError: Refused, UnknownRunError: NotFound}
        raise kinds.get(type(error), Unavailable)(error.what, error.hint, kind="journal") from error


def said_changes(before: ExecutionGraph, now: ExecutionGraph, nodes: Sequence[NodeChange]) -> Iterator[str]:
    """What is not as it was: files, hosts and nodes."""
    from kubexm_exec.compile.compare import compare_hosts

    old, new = before.sources, now.sources
    said = {name: "is no longer used" for name in old if name not in new}
    said |= {name: "is new" for name in new if name not in old}
    said |= {name: "has changed" for name in new if name in old and new[name] != old[name]}
    yield from (f"file {name} {said[name]}" for name in sorted(said))
    yield from compare_hosts(before, now)
    for change in nodes:
        if change.gate:
            continue
        details = [
            *change.details, *(f"on {host} too" for host in change.hosts_added),
            *(f"no longer on {host}" for host in change.hosts_removed),
        ]  # fmt: skip
        yield f"{change.change} {change.node}" + (f": {'; '.join(details)}" if details else "")

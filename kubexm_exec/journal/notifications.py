"""Notifications in the journal: what entries make due, serve or withdraw, in the transaction that writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kubexm_exec.engine.entries import End, Entry, Undone, Work
from kubexm_exec.engine.history import is_done
from kubexm_exec.engine.notifications import Notification

if TYPE_CHECKING:
    from kubexm_exec.journal.database import Door

Change: TypeAlias = tuple[str, dict[str, Any]]
"""A statement by its name, with its values besides the run."""
_UNDONE = ("undone", "nothing")


def changes_by(entries: Iterable[Entry]) -> list[Change]:
    """What entries mean for the notifications of the run's target, in order."""
    found: list[Change] = []
    for entry in entries:
        if isinstance(entry, End):
            if entry.notifies or entry.served:
                found += _ended(entry)
        elif isinstance(entry, Work):
            found += [
                ("notification.possible", _values(handler, entry.host, entry.node, entry.time))
                for handler in entry.notifies
            ]
        elif isinstance(entry, Undone) and entry.withdraws and entry.state in _UNDONE:
            # What is as it was before needs nothing that the change would have needed.
            found.append(("notification.withdraw", {"host": entry.host, "node": entry.node}))
    return found


def _ended(entry: End) -> list[Change]:
    host, node, done = entry.host, entry.node, is_done(entry.result)
    # What it has served first: it may notify others, but never itself.
    found: list[Change] = [
        ("notification.serve", {"handler": entry.handler, "host": host, "node": source}) for source in entry.served
    ]
    if entry.result.changed:
        found += [("notification.due", _values(handler, host, node, entry.time or 0.0)) for handler in entry.notifies]
    elif entry.notifies and done:
        found.append(("notification.needless", {"host": host, "node": node}))
    if entry.notifies and done:
        # All is as it should be, and nobody has changed it now: that was the interrupted attempt of another run.
        found.append(("notification.confirm", {"host": host, "node": node}))
    return found


def _values(handler: str, host: str, node: str, at: float) -> dict[str, Any]:
    return {"handler": handler, "host": host, "node": node, "at": at}


def pending(door: Door, target: str) -> list[Notification]:
    """The notifications of a target that were not served yet; of a handler on a host the oldest first."""
    return [_row(*row) for row in door.rows("notifications.of", target=target)]


def targets(door: Door) -> Sequence[str]:
    """The targets that have some."""
    return [target for (target,) in door.rows("notifications.targets")]


def _row(handler: str, host: str, node: str, run: str, at: float, sure: int, spec: str) -> Notification:
    return Notification(handler, host, node, run, at, bool(sure), spec)

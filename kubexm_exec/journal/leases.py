"""Leases: two runs never work on the same target at once; only the lease of a dead process is taken over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.database import Door
from kubexm_exec.journal.errors import FencedError, GoneError
from kubexm_exec.journal.owner import Owner, boot_id
from kubexm_exec.journal.store import INTERRUPTED, RUNNING, RunRow, Store

TERM: Final = 30.0
"""Seconds that a lease lasts unless it is renewed; ``KUBEXM_LEASE`` overrides it."""
_BEATS: Final = 6
"""How often a lease is renewed during its term."""
_EAR: Final = 0.5
"""Seconds between two queries for requests, such as a cancel."""


def term_of_leases() -> float:
    """Seconds that a lease lasts; raises JournalError."""
    said = os.environ.get("KUBEXM_LEASE", "")
    try:
        term = float(said or TERM)
    except ValueError:
        term = 0.0
    if not 1.0 <= term <= 86_400.0:
        raise JournalError(f'KUBEXM_LEASE is "{said}"', "give the seconds that a lease lasts: a number from 1 to 86400")
    return term


class Lease(Struct, frozen=True):
    """A run's claim on its target."""

    target: str
    run: str
    epoch: int
    holder: Owner
    since: float
    expires: float
    """By the clock of the database, see ``Door.now``."""

    def dead(self, door: Door) -> bool:
        """Whether it may be taken over: its process is gone, or invisible from here and late to renew it."""
        alive = self.holder.alive()
        if alive is not None:
            return not alive
        if door.one_kernel and self.holder.boot != boot_id():
            return True
        return door.now() > self.expires


class HeldError(JournalError):
    """Another run works on the target."""

    def __init__(self, lease: Lease) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease.since))
        super().__init__(
            f'"{lease.target}" is being worked on by run {lease.run} of {lease.holder} since {since}',
            "wait until it ends, or see it: kubexm runs show " + lease.run,
        )
        self.lease = lease


def find(store: Store, target: str) -> Lease | None:
    """The lease of a target, whether its holder is alive or not."""
    with store.looking() as door:
        return _find(door, target)


def is_held(store: Store, target: str, run: str) -> bool:
    """Whether a process works on a target for a run now."""
    with store.looking() as door:
        lease = _find(door, target)
        return lease is not None and lease.run == run and not lease.dead(door)


def acquire(
    store: Store, target: str, run: str, epoch: int, holder: Owner, *, term: float | None = None
) -> Lease | None:
    """Take the lease of a target, and return that of a dead process; raises HeldError if a live process holds it."""
    term = term_of_leases() if term is None else term
    with store.writing() as door:
        door.lock_leases()
        expires = door.now() + term
        values = {"run": run, "epoch": epoch, "holder": holder.to_json(), "since": time.time(), "expires": expires}
        old = _find(door, target)
        if old is None:
            door.do("lease.new", target=target, **values)
            return None
        # Also for the same run: of two processes that resume it, one is second.
        if not old.dead(door):
            raise HeldError(old)
        door.do("lease.take", of=target, **values)
        if old.run != run:
            # In case it is alive after all (it was only suspended), it must not write any more.
            told = f"run {run} has taken over its target"
            door.do("run.stale", run=old.run, old=old.epoch, still=RUNNING, status=INTERRUPTED, message=told)
        return old


def check(store: Store, target: str, run: str, epoch: int) -> None:
    """Raise FencedError if the lease is another run's."""
    lease = find(store, target)
    if lease is None or (lease.run, lease.epoch) != (run, epoch):
        raise _lost(target, run)


def renew(store: Store, target: str, run: str, epoch: int, *, term: float = TERM) -> None:
    """Renew a lease; raises FencedError if it is another run's now."""
    with store.writing() as door:
        if door.do("lease.renew", of=target, by=run, old=epoch, expires=door.now() + term) != 1:
            raise _lost(target, run)


def release(store: Store, target: str, run: str, epoch: int) -> None:
    """Release a lease; harmless if it is not ours any more."""
    with store.writing() as door:
        door.do("lease.release", of=target, by=run, old=epoch)


def remove(store: Store, row: RunRow) -> None:
    """Remove a run with all that belongs to it; raises HeldError if a process works on it by now."""
    with store.writing() as door:
        door.lock_leases()
        lease = _find(door, row.target)
        if lease is not None and lease.run == row.id and not lease.dead(door):
            raise HeldError(lease)
        door.do("run.remove", run=row.id)


def check_free(door: Door, targets: Iterable[str]) -> None:
    """Raise HeldError if a process works on one of the targets; nobody will until the transaction ends."""
    door.lock_leases()
    for target in targets:
        lease = _find(door, target)
        if lease is not None and not lease.dead(door):
            raise HeldError(lease)


def _lost(target: str, run: str) -> FencedError:
    return FencedError(f'the lease of "{target}" was lost: another run has taken it over', f"kubexm runs show {run}")


class Keeper:
    """Renews a lease while a run goes on, and receives requests to the run."""

    def __init__(
        self,
        store: Store,
        target: str,
        run: str,
        epoch: int,
        *,
        lost: Callable[[JournalError], None],
        asked: Callable[[str, str, str], None],
        heard: int = 0,
        term: float | None = None,
        beat: float | None = None,
    ) -> None:
        """``lost``: called when the lease is lost; ``asked``: with each request; ``heard``: the last one before."""
        self._store, self._target, self._run, self._epoch = store, target, run, epoch
        self._lost, self._asked = lost, asked
        self._term = term_of_leases() if term is None else term
        self._beat = self._term / _BEATS if beat is None else beat
        self._heard = heard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="kubexm-lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and release the lease."""
        self._stop.set()
        self._thread.join()
        release(self._store, self._target, self._run, self._epoch)

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(min(_EAR, self._beat)):
            try:
                self._store.check()
                for number, kind, by, data in self._store.asked(self._run, self._heard):
                    self._heard = number
                    self._asked(kind, by, data)
                if time.monotonic() - renewed >= self._beat:
                    renew(self._store, self._target, self._run, self._epoch, term=self._term)
                    renewed = time.monotonic()
            except (FencedError, GoneError) as error:
                self._lost(error)
                return
            except JournalError as error:
                # While the database is briefly unavailable the lease is not lost, until it would have expired.
                if time.monotonic() - renewed > self._term - self._beat:
                    self._lost(error)
                    return


def _find(door: Door, target: str) -> Lease | None:
    found = door.rows("lease.find", target=target)
    if not found:
        return None
    target, run, epoch, holder, since, expires = found[0]
    return Lease(target, run, epoch, Owner.from_json(holder), since, expires)

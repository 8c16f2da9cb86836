"""One session of a run: takes the target's lease, records what the run is made from, and releases it at the end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kubexm_exec.engine import entries
from kubexm_exec.engine.digests import inputs_digest
from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal import leases
from kubexm_exec.journal.errors import FencedError, GoneError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.recorder import Recorder
from kubexm_exec.journal.store import INTERRUPTED, RunRow, Store, folder_of

if TYPE_CHECKING:
    from kubexm_exec.connectors.base import User
    from kubexm_exec.engine.runtime import Runtime
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import GraphExecutionResult

_LOOK: Final = 0.5
"""Seconds between two tries to take a lease."""
_MARK: Final = 20
"""Digits of a mark."""


class Start(Struct, frozen=True, kw_only=True):
    """A new run."""

    run: str
    name: str
    target: str
    spec: str
    executor: str
    made_from: Mapping[str, Any]
    asked: Mapping[str, Any] | None = None
    """The request."""


class Session:
    """This process's work on a run."""

    def __init__(self, store: Store, state: Path, run: str, target: str, epoch: int, after: int, heard: int) -> None:
        self.store = store
        self.run = run
        self.target = target
        self.epoch = epoch
        self.folder = folder_of(state, run)
        self.recorder = Recorder(store, run, epoch, after)
        self._heard = heard
        self._keeper: leases.Keeper | None = None
        self._runtime: Runtime | None = None
        self._before: RunRow | None = None
        """The run as it stays if this session ends before anything has begun."""
        self._after = after
        self.asked_by = ""
        """Who cancelled the run from another process."""

    @classmethod
    def begin(
        cls, store: Store, state: Path, start: Start, *, wait: Callable[[leases.HeldError], None] | None
    ) -> Session:
        """A new run; raises HeldError if the target is taken, unless ``wait`` (called repeatedly) returns."""
        holder = Owner.me()
        _acquire(store, start.target, start.run, 1, holder, wait)
        try:
            epoch = store.begin(
                start.run, name=start.name, target=start.target, spec=start.spec, executor=start.executor,
                holder=holder, made_from=start.made_from, asked=start.asked,
                opening=[entries.Session("run", str(holder))],
            )  # fmt: skip
            # From here on taking the lease fences the run; a process that took it just before could not do that.
            leases.check(store, start.target, start.run, epoch)
        except JournalError:
            leases.release(store, start.target, start.run, 1)
            raise
        return cls(store, state, start.run, start.target, epoch, 1, 0)

    @classmethod
    def go_on(
        cls,
        store: Store,
        state: Path,
        run: str,
        mode: str,
        made_from: Mapping[str, Any] | None = None,
        *,
        wait: Callable[[leases.HeldError], None] | None = None,
        first: Callable[[], tuple[Sequence[entries.Entry], Sequence[entries.Repeat]]] | None = None,
    ) -> Session:
        """Continue a run that no process works on; raises HeldError or FencedError.

        ``first``: called with the lease taken; returns entries to write before the session begins, and what to repeat
        in it (see ``entries.Repeat``). Both become durable together with what the run is made from now.
        """
        row = store.run(run)
        holder = Owner.me()
        _acquire(store, row.target, run, row.epoch + 1, holder, wait)
        try:
            heard = max((number for number, *_ in store.asked(run)), default=0)
            noted, again = first() if first is not None else ((), ())
            epoch = store.take_on(
                run, row.epoch, holder, made_from, [*noted, entries.Session(mode, str(holder), tuple(again))]
            )
            leases.check(store, row.target, run, epoch)
        except BaseException:
            leases.release(store, row.target, run, row.epoch + 1)
            raise
        session = cls(store, state, run, row.target, epoch, store.last(run), heard)
        if row.over and made_from is None and not again:
            session._before = row
        return session

    def attach(self, runtime: Runtime, left: Mapping[str, Sequence[tuple[int, str]]] | None = None) -> None:
        """Record a run, and end it if the lease is lost or a request says so.

        ``left``: what earlier sessions may have left running on hosts (see ``RunHistory.left``).
        """
        runtime.journal = self.recorder
        mask = runtime.redactor.mask
        self.recorder.digests = {node.id: inputs_digest(node, mask) for node in runtime.graph.steps()}
        runtime.connections.mark(mark_of(self.run, self.epoch), self._marks(left) if left else {})
        self._runtime = runtime
        self._keeper = leases.Keeper(
            self.store, self.target, self.run, self.epoch, lost=self.lost, asked=self._asked, heard=self._heard
        )
        self._keeper.start()

    def _marks(self, left: Mapping[str, Sequence[tuple[int, str]]]) -> dict[str, list[tuple[str, User]]]:
        """The marks of what earlier sessions may have left running, each with its user."""
        from kubexm_exec.engine.history import tell, whole_graph
        from kubexm_exec.model.graph import ExecutionGraph

        history = tell(self.store, self.run)
        # Accepted changes may have changed the user, too.
        graphs = [
            whole_graph(ExecutionGraph.from_json(each["graph"]), history) for each in self.store.all_made_from(self.run)
        ]
        found: dict[str, dict[tuple[str, User], None]] = {}
        for host, several in left.items():
            for epoch, node in several:
                spots = {(g.nodes[node].place(host), _user(g, node, host)) for g in graphs if node in g.nodes}
                for place, user in spots or {(host, None)}:
                    found.setdefault(place, {})[mark_of(self.run, epoch), user] = None
        return {host: list(marks) for host, marks in found.items()}

    def lost(self, error: JournalError) -> None:
        """The run cannot be recorded any more: no new action starts, and running ones are stopped."""
        assert self._runtime is not None
        self.recorder.fail(error)
        self._runtime.cancel.set()

    def _asked(self, kind: str, by: str, data: str) -> None:
        assert self._runtime is not None
        if kind == "cancel":
            self.asked_by = by
            self._runtime.cancel.set()
        elif kind == "answer":
            said = json.loads(data)
            self._runtime.asker.answer(said["node"], said["host"], said["answer"], by)

    def close(
        self, result: GraphExecutionResult | None, counts: Mapping[str, int], success: str = "Success"
    ) -> JournalError | None:
        """Record the end, and release the target; returns the error of the journal, if there was one."""
        error = self._end(result, counts, success)
        try:
            if self._keeper is not None:
                self._keeper.close()
            else:
                leases.release(self.store, self.target, self.run, self.epoch)
        except JournalError as late:
            error = error or late
        return error

    def _end(self, result: GraphExecutionResult | None, counts: Mapping[str, int], success: str) -> JournalError | None:
        try:
            if self.recorder.error is not None:
                return self.recorder.error
            if result is None:
                # Otherwise this process would count as working on the run as long as it lives.
                was = self._before
                if was is None or self.recorder.written != self._after:
                    self.store.end(self.run, self.epoch, status=INTERRUPTED, message="", counts={})
                else:
                    self.store.end(self.run, self.epoch, status=was.status, message=was.message, counts=was.counts)
            else:
                status, message = result.status.value, result.message
                status = success if status == "Success" else status
                self.recorder.write(entries.Ended(status, message))
                self.store.end(self.run, self.epoch, status=status, message=message, counts=counts)
        except JournalError as error:
            return error
        finally:
            self.recorder.close()
        return self.recorder.error

    @property
    def gone(self) -> bool:
        """Whether this process cannot resume the run: another one has taken over, or the journal is gone."""
        return isinstance(self.recorder.error, FencedError | GoneError)


def mark_of(run: str, epoch: int) -> str:
    """The mark of all that a session runs on hosts: the next session finds its leftovers by it."""
    return f"kx{hashlib.sha256(f'{run} {epoch}'.encode()).hexdigest()[:_MARK]}"


def _user(graph: ExecutionGraph, node: str, host: str) -> User:
    """The user that a node works as on a host."""
    of = graph.nodes[node]
    known = graph.hosts.get(of.place(host))
    return known.becomes or False if of.become is None and known is not None else of.become


def _acquire(
    store: Store,
    target: str,
    run: str,
    epoch: int,
    holder: Owner,
    wait: Callable[[leases.HeldError], None] | None,
) -> None:
    while True:
        try:
            leases.acquire(store, target, run, epoch, holder)
        except leases.HeldError as error:
            if wait is None:
                raise
            wait(error)
            time.sleep(_LOOK)
        else:
            return

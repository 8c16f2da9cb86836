"""Runs in the journal: begins and resumes them, appends their entries, and reads them."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from kubexm_exec.engine.notifications import Notification
from kubexm_exec.engine.ports import ChangedError, Entry, JournalError
from kubexm_exec.journal.database import Database, Door, shown
from kubexm_exec.journal.errors import FencedError, UnknownRunError, explained
from kubexm_exec.journal.notifications import Change, changes_by, pending
from kubexm_exec.journal.owner import Owner
from kubexm_exec.model.data import builtins
from kubexm_exec.model.ids import is_run_id

RUNNING: Final = "Running"
INTERRUPTED: Final = "Interrupted"
"""Its process died, or another process took the run over."""
_PAGE: Final = 500
_ALL: Final = 1_000_000
_ASKED: Final = 1
"""The version of a stored request; a migration converts older ones."""
_QUICK: Final = msgspec.json.Encoder()
_DIE_AT: Final = os.environ.get("KUBEXM_DIE_AT", "")
_TIMES: Final = itertools.count(1)


class RunRow(Struct, frozen=True):
    """A run in the list of runs, with the columns of the table in their order."""

    id: str
    name: str
    target: str
    spec: str
    executor: str
    status: str
    message: str
    created: float
    ended: float | None
    epoch: int
    holder: Owner
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.status != RUNNING


def point(name: str) -> None:
    """Where tests kill the process: ``KUBEXM_DIE_AT=append.after:7`` at its seventh time, ``any`` at all points."""
    if _DIE_AT:
        wanted, _, times = _DIE_AT.partition(":")
        if wanted in (name, "any") and next(_TIMES) == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)


def open_database(url: str, *, reading: bool = False) -> Database:
    """The database at a path or URL, with the newest schema; ``reading``: for queries only. Raises JournalError."""
    place = shown(url)
    with explained(place):
        if "://" in url:
            from kubexm_exec.journal.server import Server

            return Server(url, place)
        from kubexm_exec.journal.sqlitefile import SqliteFile, SqliteReading, may_only_be_read

        path = Path(url)
        return (SqliteReading if reading and may_only_be_read(path) else SqliteFile)(path, place)


class Store:
    """The journal in one database. May be used by several threads and many processes at once."""

    def __init__(self, url: str, *, reading: bool = False) -> None:
        """``url``: a SQLite file or ``postgresql://...``; ``reading``: for queries only. Raises JournalError."""
        self.url = url
        self.place = shown(url)
        self._database = open_database(url, reading=reading)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # Runs

    def begin(
        self, run: str, *, name: str, target: str, spec: str, executor: str, holder: Owner, made_from: Any,
        asked: Any = None, opening: Sequence[Entry] = (),
    ) -> int:  # fmt: skip
        """Record a new run before it starts, with its request (``asked``) and first entries; returns its epoch."""
        point("begin.before")
        with self.writing() as door:
            door.do(
                "run.new", id=run, name=name, target=target, spec=spec, executor=executor, status=RUNNING, message="",
                created=time.time(), epoch=1, holder=holder.to_json(), counts="{}",
            )  # fmt: skip
            door.do("run.inputs", run=run, epoch=1, data=_pack(made_from))
            door.do("run.asked", run=run, version=_ASKED, data=json.dumps(asked))
            _open(door, run, 1, opening)
        point("begin.after")
        return 1

    def take_on(self, run: str, epoch: int, holder: Owner, made_from: Any = None, opening: Sequence[Entry] = ()) -> int:
        """Continue a run last seen with ``epoch``, with the entries ``opening``; returns the new epoch."""
        new = epoch + 1
        point("take.before")
        with self.writing() as door:
            if door.do("run.take", run=run, old=epoch, epoch=new, holder=holder.to_json(), status=RUNNING) != 1:
                raise FencedError(f"run {run} was just taken over by another process", f"kubexm runs show {run}")
            if made_from is not None:
                door.do("run.inputs", run=run, epoch=new, data=_pack(made_from))
            _open(door, run, new, opening)
        point("take.after")
        return new

    def append(self, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """Make entries durable, all or none; raises FencedError if another process has taken the run over."""
        door = self.connect()
        try:
            self.append_by(door, run, epoch, seq, entries)
        finally:
            door.close()

    def append_by(self, door: Door, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """The same through a door that the caller keeps open."""
        text, changes = _encoded(entries), changes_by(entries)
        point("append.before")
        with explained(self.place):
            if not changes:
                done = door.do("entries.append", run=run, epoch=epoch, seq=seq, data=text)
            else:
                with door.together():
                    done = door.do("entries.append", run=run, epoch=epoch, seq=seq, data=text)
                    point("append.between")
                    if done == 1:
                        _apply(door, run, changes)
        if done != 1:
            raise _taken_over(run)
        point("append.after")

    def connect(self) -> Door:
        """A door of one's own, for frequent writes."""
        with explained(self.place):
            return self._database.connect()

    def end(self, run: str, epoch: int, *, status: str, message: str, counts: Mapping[str, int]) -> None:
        """Record the end of a session."""
        point("end.before")
        with self.writing() as door:
            done = door.do(
                "run.end", run=run, old=epoch, status=status, message=message, counts=json.dumps(dict(counts)),
                ended=time.time(),
            )  # fmt: skip
            if done != 1:
                raise _taken_over(run)
        point("end.after")

    # Reading

    def runs(
        self, *, limit: int = 50, name: str = "", status: str = "", spec: str = "", target: str = ""
    ) -> list[RunRow]:
        """The newest runs, newest first."""
        with self.looking() as door:
            return _rows(door.rows("runs.newest", limit=limit, name=name, status=status, spec=spec, target=target))

    def run(self, wanted: str) -> RunRow:
        """The run with an id, with an unambiguous beginning or end of one, or ``last``."""
        if wanted == "last":
            newest = self.runs(limit=1)
            if not newest:
                raise UnknownRunError("there is no run yet", "start one with kubexm-run SPEC")
            return newest[0]
        word = wanted.upper()
        if not re.fullmatch("[0-9A-Z]{1,26}", word):
            raise _unknown(wanted)
        with self.looking() as door:
            rows = _rows(door.rows("runs.like", begins=f"{word}%", ends=f"%{word}", limit=6))
        exact = [row for row in rows if row.id == word]
        if exact or len(rows) == 1:
            return (exact or rows)[0]
        if rows:
            names = ", ".join(row.id for row in rows)
            raise UnknownRunError(f'"{wanted}" is ambiguous: {names}', "give more of the id")
        raise _unknown(wanted)

    def made_from(self, run: str) -> Any:
        """What a run was made from; after accepted changes, the latest version."""
        found = self._made_from(run, 1)
        if not found:
            raise JournalError(f"{self.place}: the inputs of run {run} are missing", "the journal is damaged")
        return found[0]

    def asked_for(self, run: str) -> Any:
        """The request that began the run."""
        with self.looking() as door:
            found = door.rows("asked.of", run=run)
        if not found:
            raise JournalError(f"{self.place}: the request of run {run} is missing", "the journal is damaged")
        [(version, data)] = found
        if version > _ASKED:
            raise JournalError(f"{self.place}: run {run} was started by a newer kubexm", "use that version")
        return json.loads(data)

    def all_made_from(self, run: str) -> list[Any]:
        """All versions of what a run was made from, the newest first: several if changes were accepted."""
        return self._made_from(run, _ALL)

    def _made_from(self, run: str, limit: int) -> list[Any]:
        with self.looking() as door:
            return [
                json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
                for [data] in door.rows("inputs.newest", run=run, limit=limit)
            ]

    def entries(
        self, run: str, after: int = 0, *, read: Callable[[str], list[Any]] = json.loads
    ) -> Iterator[tuple[int, int, list[Any]]]:
        """What happened, in order: (seq, epoch, entries); page by page, so that a long run is never in memory whole."""
        while True:
            with self.looking() as door:
                rows = door.rows("entries.after", run=run, after=after, limit=_PAGE)
            for seq, epoch, data in rows:
                yield seq, epoch, read(data)
                after = seq
            if len(rows) < _PAGE:
                return

    def last(self, run: str) -> int:
        """The number of the last group of entries; 0 if there is none."""
        with self.looking() as door:
            return _last(door, run)

    def notifications(self, target: str) -> list[Notification]:
        """The handlers that are due on the hosts of a target; of each on a host the oldest notification first."""
        with self.looking() as door:
            return pending(door, target)

    # Content that was replaced

    def keep(self, run: str, token: str, data: bytes) -> None:
        """Keep bytes for an undo; keeping the same ones again is harmless."""
        with self.writing() as door:
            if not door.rows("blob.there", run=run, token=token):
                door.do("blob.keep", run=run, token=token, data=data)

    def kept(self, run: str, token: str) -> bytes:
        """The bytes of a token, their digest; raises KeyError, or ChangedError."""
        with self.looking() as door:
            found = door.rows("blob.kept", run=run, token=token)
        if not found:
            raise KeyError(f"no content is stored under the token {token!r}")
        data = bytes(found[0][0])
        if hashlib.sha256(data).hexdigest() != token:
            raise ChangedError(self.place, token)
        return data

    # Requests

    def ask(self, run: str, kind: str, by: str, data: str = "") -> None:
        """Send a request to a running run; durable when this returns."""
        with self.writing() as door:
            door.lock_run(run)
            door.do("request.new", run=run, kind=kind, at=time.time(), by=by, data=data)

    def asked(self, run: str, after: int = 0) -> list[tuple[int, str, str, str]]:
        """The requests to a run after the one with that number: (number, kind, by whom, data)."""
        with self.looking() as door:
            return door.rows("requests.after", run=run, after=after)

    # Housekeeping

    def give_back(self) -> None:
        """Return the space of removed runs to the file system."""
        with explained(self.place):
            self._database.give_back()

    def check(self) -> None:
        """Raise GoneError if the database was removed or replaced."""
        with explained(self.place):
            self._database.check()

    @contextmanager
    def writing(self) -> Iterator[Door]:
        """A transaction."""
        with explained(self.place), self._database.writing() as door:
            yield door

    @contextmanager
    def looking(self) -> Iterator[Door]:
        """For queries only."""
        with explained(self.place), self._database.looking() as door:
            yield door


def folder_of(state: Path, run: str) -> Path:
    """The folder of a run's files, such as its log; raises UnknownRunError for what is no id and could lead astray."""
    if not is_run_id(run):
        raise _unknown(run)
    return state / "runs" / run


def _last(door: Door, run: str) -> int:
    found = door.rows("entries.last", run=run, limit=1)
    return int(found[0][0]) if found else 0


def _open(door: Door, run: str, epoch: int, entries: Sequence[Entry]) -> None:
    if entries:
        door.do("entries.append", run=run, epoch=epoch, seq=_last(door, run) + 1, data=_encoded(entries))
        _apply(door, run, changes_by(entries))


def _apply(door: Door, run: str, changes: Sequence[Change]) -> None:
    for name, values in changes:
        door.do(name, run=run, **values)


def _encoded(entries: Sequence[Entry]) -> str:
    try:
        return _QUICK.encode(entries).decode()
    except (TypeError, UnicodeEncodeError):
        # Such as a subclass of str, or a lone surrogate.
        return json.dumps(builtins(entries))


def _pack(data: Any) -> bytes:
    return zlib.compress(
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), 3
    )


def _taken_over(run: str) -> FencedError:
    return FencedError(f"run {run} was taken over by another process", f"kubexm runs show {run}")


def _unknown(run: str) -> UnknownRunError:
    return UnknownRunError(f'there is no run "{run[:80]}"', "list them with kubexm runs")


def _rows(rows: Sequence[Sequence[Any]]) -> list[RunRow]:
    """Runs; what somebody has put there under another name than an id is none: it would be the name of a folder."""
    return [
        RunRow(*(*plain, Owner.from_json(holder), json.loads(counts)))
        for *plain, holder, counts in rows
        if is_run_id(plain[0])
    ]

"""Runs in the journal: beginning, taking on, appending what happened, and reading it again."""

from __future__ import annotations

import hashlib
import json
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from kubexm_exec.engine.ports import ChangedError, Entry, JournalError
from kubexm_exec.journal.crashpoints import point
from kubexm_exec.journal.database import Door, shown
from kubexm_exec.journal.errors import FencedError, UnknownRunError, explained
from kubexm_exec.journal.opening import open_database
from kubexm_exec.journal.owner import Owner
from kubexm_exec.model.data import builtins

RUNNING: Final = "Running"
INTERRUPTED: Final = "Interrupted"
"""It ended without saying so: its process died, or somebody took its place."""
_PAGE: Final = 500
_ALL: Final = 1_000_000
_ASKED: Final = 1
"""The version of what is written down of a request; a migration brings older ones up."""
_COLUMNS: Final = (
    "id", "name", "target", "spec", "executor", "status", "message", "created", "ended", "epoch",
)  # fmt: skip
"""What is read of a run as it is, in the order of the table."""
_QUICK: Final = msgspec.json.Encoder()


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as the list of runs has it."""

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
        """Whether it came to an end by itself."""
        return self.status != RUNNING


class Store:
    """The journal in one database. May be used by several threads, and by many processes at once."""

    def __init__(self, url: str, *, reading: bool = False) -> None:
        """``url``: the path of a SQLite file, or that of another database; raises JournalError.

        ``reading``: nothing will be written to it.
        """
        self.url = url
        self.place = shown(url)
        self._database = open_database(url, reading=reading)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # Runs

    def begin(
        self, run: str, *, name: str, target: str, spec: str, executor: str, holder: Owner, made_from: Any,
        asked: Any = None, opening: Sequence[Entry] = (),
    ) -> int:  # fmt: skip
        """Write down a new run with all it was made from, before anything is done; gives its first epoch.

        ``asked``: what somebody asked for, as plain data. ``opening``: its first entries.
        """
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
        """Go on with a run that nobody works on; ``epoch`` is the one that was seen. Gives the new epoch.

        ``opening``: entries that become durable with it, such as what is to be run again because of what has changed.
        """
        new = epoch + 1
        point("take.before")
        with self.writing() as door:
            if door.do("run.take", run=run, old=epoch, epoch=new, holder=holder.to_json(), status=RUNNING) != 1:
                raise FencedError(f"run {run} was just taken on by somebody else", f"kubexm runs show {run}")
            if made_from is not None:
                door.do("run.inputs", run=run, epoch=new, data=_pack(made_from))
            _open(door, run, new, opening)
        point("take.after")
        return new

    def append(self, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """Make entries durable, all or none; raises FencedError if somebody else has taken the run on."""
        door = self.connect()
        try:
            self.append_by(door, run, epoch, seq, entries)
        finally:
            door.close()

    def append_by(self, door: Door, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """The same through a door that is kept for it."""
        text = _encoded(entries)
        point("append.before")
        with explained(self.place):
            done = door.do("entries.append", run=run, epoch=epoch, seq=seq, data=text)
        if done != 1:
            raise _taken_over(run)
        point("append.after")

    def connect(self) -> Door:
        """A door for somebody who writes often."""
        with explained(self.place):
            return self._database.connect()

    def end(self, run: str, epoch: int, *, status: str, message: str, counts: Mapping[str, int]) -> None:
        """The run has come to its end."""
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

    def runs(self, *, limit: int = 50, name: str = "", status: str = "", spec: str = "") -> list[RunRow]:
        """The newest runs, newest first."""
        with self.looking() as door:
            return [_row(row) for row in door.rows("runs.newest", limit=limit, name=name, status=status, spec=spec)]

    def run(self, wanted: str) -> RunRow:
        """The run of an id, of the beginning or end of one that is no other's, or ``last``."""
        if wanted == "last":
            newest = self.runs(limit=1)
            if not newest:
                raise UnknownRunError("there is no run yet", "kubexm-run SPEC makes one")
            return newest[0]
        word = wanted.upper()
        plain = re.sub("([/%_])", r"/\1", word)
        with self.looking() as door:
            found = door.rows("runs.like", begins=f"{plain}%", ends=f"%{plain}", limit=6) if word else []
        rows = [_row(row) for row in found]
        exact = [row for row in rows if row.id == word]
        if exact or len(rows) == 1:
            return (exact or rows)[0]
        if rows:
            names = ", ".join(row.id for row in rows)
            raise UnknownRunError(f'several runs are called "{wanted}": {names}', "write more of the id")
        raise UnknownRunError(f'there is no run "{wanted}"', "kubexm runs")

    def made_from(self, run: str) -> Any:
        """What a run was made from; after accepted changes, what it was made from last."""
        found = self._made_from(run, 1)
        if not found:
            raise JournalError(f"{self.place}: what run {run} was made from is not there", "the journal is damaged")
        return found[0]

    def asked_for(self, run: str) -> Any:
        """What somebody asked for when the run began."""
        with self.looking() as door:
            found = door.rows("asked.of", run=run)
        if not found:
            raise JournalError(f"{self.place}: what run {run} was asked for is not there", "the journal is damaged")
        [(version, data)] = found
        if version > _ASKED:
            raise JournalError(f"{self.place}: run {run} was begun by a newer kubexm", "use that version")
        return json.loads(data)

    def all_made_from(self, run: str) -> list[Any]:
        """All that a run was ever made from, the newest first: more than one if changes were accepted."""
        return self._made_from(run, _ALL)

    def _made_from(self, run: str, limit: int) -> list[Any]:
        with self.looking() as door:
            return [_unpack(data) for [data] in door.rows("inputs.newest", run=run, limit=limit)]

    def entries(self, run: str, after: int = 0) -> Iterator[tuple[int, int, list[Entry]]]:
        """What happened, in order: (seq, epoch, entries); in pages, so that a long run is never in memory whole."""
        while True:
            with self.looking() as door:
                rows = door.rows("entries.after", run=run, after=after, limit=_PAGE)
            for seq, epoch, data in rows:
                yield seq, epoch, json.loads(data)
                after = seq
            if len(rows) < _PAGE:
                return

    def last(self, run: str) -> int:
        """The number of the last entries; 0 if there are none."""
        with self.looking() as door:
            return _last(door, run)

    # Content that was replaced

    def keep(self, run: str, token: str, data: bytes) -> None:
        """Keep bytes for an undo; the same ones again are no harm."""
        with self.writing() as door:
            if not door.rows("blob.there", run=run, token=token):
                door.do("blob.keep", run=run, token=token, data=data)

    def kept(self, run: str, token: str) -> bytes:
        """The bytes, which have the digest that they are named by; raises KeyError, or ChangedError."""
        with self.looking() as door:
            found = door.rows("blob.kept", run=run, token=token)
        if not found:
            raise KeyError(f"nothing is kept under the token {token!r}")
        data = bytes(found[0][0])
        if hashlib.sha256(data).hexdigest() != token:
            raise ChangedError(self.place, token)
        return data

    # Requests

    def ask(self, run: str, kind: str, by: str, data: str = "") -> None:
        """Ask a running run for something; durable when this returns."""
        with self.writing() as door:
            door.lock_run(run)
            door.do("request.new", run=run, kind=kind, at=time.time(), by=by, data=data)

    def asked(self, run: str, after: int = 0) -> list[tuple[int, str, str, str]]:
        """What a run was asked for after the request of that number: (number, kind, by whom, data)."""
        with self.looking() as door:
            return door.rows("requests.after", run=run, after=after)

    # Leaving

    def remove(self, runs: Sequence[str]) -> None:
        """Forget runs with all that belongs to them."""
        with self.writing() as door:
            for run in runs:
                door.do("run.remove", run=run)

    def give_back(self) -> None:
        """Give the space of what was forgotten back to the file system."""
        with explained(self.place):
            self._database.give_back()

    def check(self) -> None:
        """Raise GoneError if what is written is not where others look for it any more."""
        with explained(self.place):
            self._database.check()

    @contextmanager
    def writing(self) -> Iterator[Door]:
        """A transaction."""
        with explained(self.place), self._database.writing() as door:
            yield door

    @contextmanager
    def looking(self) -> Iterator[Door]:
        """For questions alone."""
        with explained(self.place), self._database.looking() as door:
            yield door


def folder_of(state: Path, run: str) -> Path:
    """The folder of a run's own files, such as its whole log."""
    return state / "runs" / run


def _last(door: Door, run: str) -> int:
    found = door.rows("entries.last", run=run, limit=1)
    return int(found[0][0]) if found else 0


def _open(door: Door, run: str, epoch: int, entries: Sequence[Entry]) -> None:
    if entries:
        door.do("entries.append", run=run, epoch=epoch, seq=_last(door, run) + 1, data=_encoded(entries))


def _encoded(entries: Sequence[Entry]) -> str:
    try:
        return _QUICK.encode(entries).decode()
    except (TypeError, UnicodeEncodeError):
        # Such as a text of a class of its own, or half a character.
        return json.dumps(builtins(entries))


def _pack(data: Any) -> bytes:
    return zlib.compress(
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), 3
    )


def _unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))


def _taken_over(run: str) -> FencedError:
    return FencedError(f"run {run} was taken over by somebody else", f"kubexm runs show {run}")


def _row(row: Sequence[Any]) -> RunRow:
    *plain, holder, counts = row
    values = dict(zip(_COLUMNS, plain, strict=True))
    return RunRow(**values, holder=Owner.from_json(holder), counts=json.loads(counts))

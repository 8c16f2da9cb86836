"""Runs in the journal: beginning, taking on, appending what happened, and reading it again."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kubexm_exec.journal.database import open_engine, reading, shown, single
from kubexm_exec.journal.errors import FencedError, JournalError, UnknownRunError, explained
from kubexm_exec.journal.holder import Holder
from kubexm_exec.journal.points import point

if TYPE_CHECKING:
    from sqlalchemy import Connection

Entry: TypeAlias = Any
"""One thing that happened, as plain data; the store does not look into it."""

RUNNING: Final = "Running"
INTERRUPTED: Final = "Interrupted"
"""It ended without saying so: its process died, or somebody took its place."""
_PAGE: Final = 500
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
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
    holder: Holder
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether it came to an end by itself."""
        return self.status != RUNNING

    @property
    def alive(self) -> bool:
        """Whether its process works on it now, as far as this machine can know."""
        return not self.over and self.holder.alive() is not False


class Store:
    """The journal in one database. May be used by several threads, and by many processes at once."""

    def __init__(self, url: str) -> None:
        """``url``: the path of a SQLite file, or that of another database; raises JournalError."""
        self.url = url
        self.place = shown(url)
        self._engine = open_engine(url)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # Runs

    def begin(
        self, run: str, *, name: str, target: str, spec: str, executor: str, holder: Holder, made_from: Any
    ) -> int:
        """Write down a new run with all it was made from, before anything is done; gives its first epoch."""
        from kubexm_exec.journal.schema import INPUTS, RUNS

        row = {
            "id": run, "name": name, "target": target, "spec": spec, "executor": executor, "status": RUNNING,
            "message": "", "created": time.time(), "epoch": 1, "holder": holder.to_json(), "counts": "{}",
        }  # fmt: skip
        point("begin.before")
        with explained(self.place), self._engine.begin() as connection:
            connection.execute(RUNS.insert().values(**row))
            connection.execute(INPUTS.insert().values(run=run, epoch=1, data=_pack(made_from)))
        point("begin.after")
        return 1

    def take_on(self, run: str, epoch: int, holder: Holder, made_from: Any = None) -> int:
        """Go on with a run that nobody works on; ``epoch`` is the one that was seen. Gives the new epoch."""
        from kubexm_exec.journal.schema import INPUTS, RUNS

        new = epoch + 1
        point("take.before")
        with explained(self.place), self._engine.begin() as connection:
            done = connection.execute(
                RUNS.update()
                .where(RUNS.c.id == run, RUNS.c.epoch == epoch)
                .values(epoch=new, holder=holder.to_json(), status=RUNNING, ended=None)
            )
            if done.rowcount != 1:
                raise FencedError(f"run {run} was just taken on by somebody else", f"kubexm runs show {run}")
            if made_from is not None:
                connection.execute(INPUTS.insert().values(run=run, epoch=new, data=_pack(made_from)))
        point("take.after")
        return new

    def append(self, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """Make entries durable, all or none; raises FencedError if somebody else has taken the run on."""
        with self.connect() as connection:
            self.append_to(connection, run, epoch, seq, entries)

    def append_to(self, connection: Connection, run: str, epoch: int, seq: int, entries: Sequence[Entry]) -> None:
        """The same on a connection that is kept for it."""
        text = _ENCODE(entries)
        point("append.before")
        with explained(self.place):
            done = connection.execute(self._insert, {"run": run, "epoch": epoch, "seq": seq, "data": text})
        if done.rowcount != 1:
            raise FencedError(f"run {run} was taken over by somebody else", f"kubexm runs show {run}")
        point("append.after")

    def connect(self) -> Connection:
        """A connection for somebody who writes often."""
        with explained(self.place):
            return single(self._engine)

    @cached_property
    def _insert(self) -> Any:
        from sqlalchemy import text

        # One statement: between a question and an answer somebody else could take the run over. Where several write at
        # once, that somebody also has to wait for it: who has taken a run over reads all that was ever written.
        lock = "" if self._engine.dialect.name == "sqlite" else " FOR SHARE"
        return text(
            "INSERT INTO entries (run, seq, epoch, data) "
            "SELECT id, CAST(:seq AS INTEGER), epoch, :data FROM runs WHERE id = :run AND epoch = :epoch" + lock
        )

    def end(self, run: str, epoch: int, *, status: str, message: str, counts: Mapping[str, int]) -> None:
        """The run has come to its end."""
        from kubexm_exec.journal.schema import RUNS

        point("end.before")
        with explained(self.place), self._engine.begin() as connection:
            done = connection.execute(
                RUNS.update()
                .where(RUNS.c.id == run, RUNS.c.epoch == epoch)
                .values(status=status, message=message, counts=json.dumps(dict(counts)), ended=time.time())
            )
            if done.rowcount != 1:
                raise FencedError(f"run {run} was taken over by somebody else", f"kubexm runs show {run}")
        point("end.after")

    # Reading

    def runs(self, *, limit: int = 50, name: str = "", status: str = "", spec: str = "") -> list[RunRow]:
        """The newest runs, newest first."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import RUNS

        query = select(RUNS).order_by(RUNS.c.id.desc()).limit(limit)
        if name:
            query = query.where(RUNS.c.name == name)
        if status:
            query = query.where(RUNS.c.status == status)
        if spec:
            query = query.where(RUNS.c.spec == spec)
        with explained(self.place), reading(self._engine) as connection:
            return [_row(row) for row in connection.execute(query).mappings()]

    def run(self, wanted: str) -> RunRow:
        """The run of an id, of the beginning or end of one that is no other's, or ``last``."""
        from sqlalchemy import or_, select

        from kubexm_exec.journal.schema import RUNS

        if wanted == "last":
            newest = self.runs(limit=1)
            if not newest:
                raise UnknownRunError("there is no run yet", "kubexm-run SPEC makes one")
            return newest[0]
        word = wanted.upper()
        like = or_(RUNS.c.id.startswith(word, autoescape=True), RUNS.c.id.endswith(word, autoescape=True))
        query = select(RUNS).where(like).order_by(RUNS.c.id.desc()).limit(6)
        with explained(self.place), reading(self._engine) as connection:
            rows = [_row(row) for row in connection.execute(query).mappings()] if word else []
        exact = [row for row in rows if row.id == word]
        if exact or len(rows) == 1:
            return (exact or rows)[0]
        if rows:
            names = ", ".join(row.id for row in rows)
            raise UnknownRunError(f'several runs are called "{wanted}": {names}', "write more of the id")
        raise UnknownRunError(f'there is no run "{wanted}"', "kubexm runs")

    def made_from(self, run: str) -> Any:
        """What a run was made from; after accepted changes, what it was made from last."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import INPUTS

        query = select(INPUTS.c.data).where(INPUTS.c.run == run).order_by(INPUTS.c.epoch.desc()).limit(1)
        with explained(self.place), reading(self._engine) as connection:
            data = connection.execute(query).scalar()
        if data is None:
            raise JournalError(f"{self.place}: what run {run} was made from is not there", "the journal is damaged")
        return _unpack(data)

    def all_made_from(self, run: str) -> list[Any]:
        """All that a run was ever made from, the newest first: more than one if changes were accepted."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import INPUTS

        query = select(INPUTS.c.data).where(INPUTS.c.run == run).order_by(INPUTS.c.epoch.desc())
        with explained(self.place), reading(self._engine) as connection:
            return [_unpack(data) for data in connection.execute(query).scalars()]

    def entries(self, run: str, after: int = 0) -> Iterator[tuple[int, int, list[Entry]]]:
        """What happened, in order: (seq, epoch, entries); in pages, so that a long run is never in memory whole."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import ENTRIES

        while True:
            query = (
                select(ENTRIES.c.seq, ENTRIES.c.epoch, ENTRIES.c.data)
                .where(ENTRIES.c.run == run, ENTRIES.c.seq > after)
                .order_by(ENTRIES.c.seq)
                .limit(_PAGE)
            )
            with explained(self.place), reading(self._engine) as connection:
                rows = connection.execute(query).all()
            for seq, epoch, data in rows:
                yield seq, epoch, json.loads(data)
                after = seq
            if len(rows) < _PAGE:
                return

    # Content that was replaced

    def keep(self, run: str, token: str, data: bytes) -> None:
        """Keep bytes for an undo; the same ones again are no harm."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import BLOBS

        with explained(self.place), self._engine.begin() as connection:
            known = select(BLOBS.c.token).where(BLOBS.c.run == run, BLOBS.c.token == token)
            if connection.execute(known).first() is None:
                connection.execute(BLOBS.insert().values(run=run, token=token, data=data))

    def kept(self, run: str, token: str) -> bytes:
        """The bytes; raises KeyError."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import BLOBS

        query = select(BLOBS.c.data).where(BLOBS.c.run == run, BLOBS.c.token == token)
        with explained(self.place), reading(self._engine) as connection:
            data = connection.execute(query).scalar()
        if data is None:
            raise KeyError(f"nothing is kept under the token {token!r}")
        return bytes(data)

    # Requests

    def ask(self, run: str, kind: str, by: str) -> None:
        """Ask a running run for something; durable when this returns."""
        from kubexm_exec.journal.schema import REQUESTS

        with explained(self.place), self._engine.begin() as connection:
            connection.execute(REQUESTS.insert().values(run=run, kind=kind, at=time.time(), by=by))

    def asked(self, run: str, after: int = 0) -> list[tuple[int, str, str]]:
        """What a run was asked for after the request of that number: (number, kind, by whom)."""
        from sqlalchemy import select

        from kubexm_exec.journal.schema import REQUESTS

        query = (
            select(REQUESTS.c.id, REQUESTS.c.kind, REQUESTS.c.by)
            .where(REQUESTS.c.run == run, REQUESTS.c.id > after)
            .order_by(REQUESTS.c.id)
        )
        with explained(self.place), reading(self._engine) as connection:
            return [(number, kind, by) for number, kind, by in connection.execute(query)]

    # Leaving

    def remove(self, runs: Sequence[str]) -> None:
        """Forget runs with all that belongs to them."""
        from kubexm_exec.journal.schema import RUNS

        with explained(self.place), self._engine.begin() as connection:
            connection.execute(RUNS.delete().where(RUNS.c.id.in_(list(runs))))

    def give_back(self) -> None:
        """Give the space of what was forgotten back to the file system; a server sees to that by itself."""
        if self._engine.dialect.name != "sqlite":
            return
        with explained(self.place), reading(self._engine) as connection:
            # It frees one page each time it is asked to go on: only a script is asked until it ends.
            driver: Any = connection.connection.driver_connection
            driver.executescript("PRAGMA incremental_vacuum")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def writing(self) -> Any:
        """A transaction for the parts of the journal that have a module of their own."""
        return self._engine.begin()

    def looking(self) -> Any:
        """A connection that only reads."""
        return reading(self._engine)


def folder_of(state: Path, run: str) -> Path:
    """The folder of a run's own files, such as its whole log."""
    return state / "runs" / run


def _pack(data: Any) -> bytes:
    return zlib.compress(
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), 3
    )


def _unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))


def _row(row: Mapping[Any, Any]) -> RunRow:
    data = dict(row)
    data["holder"] = Holder.from_json(data["holder"])
    data["counts"] = json.loads(data["counts"])
    return RunRow(**data)

"""What is asked of the database of the journal, once for all databases; each statement has a name.

SQLite is given the same as text (``prepared``), made from these by tools/statements.py: importing SQLAlchemy takes
longer than everything else that a short run does with its journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, Text, bindparam, insert, literal_column, null, or_, select

from kubexm_exec.journal.schema import ASKED, BLOBS, ENTRIES, INPUTS, LEASES, REQUESTS, RUNS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table, TableClause
    from sqlalchemy.sql.base import Executable


_EMPTY: Final = literal_column("''", Text)
_ONE: Final = literal_column("1", Integer)
_NONE: Final = literal_column("0", Integer)


def _given(column: Any, name: str = "") -> Any:
    """A value that comes with the call, of a column's type."""
    return bindparam(name or column.name, type_=column.type)


def _row(table: Table | TableClause, *without: str) -> Executable:
    return insert(table).values({one.name: _given(one) for one in table.columns if one.name not in without})


def _unless_given(column: Any) -> ColumnElement[bool]:
    """True of every row if the value is empty."""
    return or_(_given(column) == _EMPTY, column == _given(column))


_OURS: Final = (RUNS.c.id == _given(RUNS.c.id, "run"), RUNS.c.epoch == _given(RUNS.c.epoch, "old"))
_LEASE: Final = (
    LEASES.c.target == _given(LEASES.c.target, "of"),
    LEASES.c.run == _given(LEASES.c.run, "by"),
    LEASES.c.epoch == _given(LEASES.c.epoch, "old"),
)
_BLOB: Final = (BLOBS.c.run == _given(BLOBS.c.run), BLOBS.c.token == _given(BLOBS.c.token))
_LIMIT: Final = bindparam("limit", type_=Integer)

STATEMENTS: Final[dict[str, Executable]] = {
    "run.new": _row(RUNS, "ended"),
    "run.inputs": _row(INPUTS),
    "run.asked": _row(ASKED),
    "run.take": RUNS.update()
    .where(*_OURS)
    .values(epoch=_given(RUNS.c.epoch), holder=_given(RUNS.c.holder), status=_given(RUNS.c.status), ended=null()),
    "run.end": RUNS.update()
    .where(*_OURS)
    .values(
        status=_given(RUNS.c.status),
        message=_given(RUNS.c.message),
        counts=_given(RUNS.c.counts),
        ended=_given(RUNS.c.ended),
    ),
    "run.stale": RUNS.update()
    .where(*_OURS, RUNS.c.status == _given(RUNS.c.status, "still"))
    .values(epoch=RUNS.c.epoch + _ONE, status=_given(RUNS.c.status), message=_given(RUNS.c.message)),
    "run.remove": RUNS.delete().where(RUNS.c.id == _given(RUNS.c.id, "run")),
    # One statement: between a question and an answer somebody else could take the run over. Where several write at
    # once, that somebody also has to wait for it: who has taken a run over reads all that was ever written.
    "entries.append": insert(ENTRIES)
    .from_select(
        ["run", "seq", "epoch", "data"],
        select(RUNS.c.id, _given(ENTRIES.c.seq), RUNS.c.epoch, _given(ENTRIES.c.data))
        .where(RUNS.c.id == _given(RUNS.c.id, "run"), RUNS.c.epoch == _given(RUNS.c.epoch))
        .with_for_update(read=True),
    )
    .execution_options(preserve_rowcount=True),
    "entries.after": select(ENTRIES.c.seq, ENTRIES.c.epoch, ENTRIES.c.data)
    .where(ENTRIES.c.run == _given(ENTRIES.c.run), ENTRIES.c.seq > _given(ENTRIES.c.seq, "after"))
    .order_by(ENTRIES.c.seq)
    .limit(_LIMIT)
    .offset(_NONE),
    "entries.last": select(ENTRIES.c.seq)
    .where(ENTRIES.c.run == _given(ENTRIES.c.run))
    .order_by(ENTRIES.c.seq.desc())
    .limit(_LIMIT)
    .offset(_NONE),
    "runs.newest": select(RUNS)
    .where(_unless_given(RUNS.c.name), _unless_given(RUNS.c.status), _unless_given(RUNS.c.spec))
    .order_by(RUNS.c.id.desc())
    .limit(_LIMIT)
    .offset(_NONE),
    "runs.like": select(RUNS)
    .where(or_(RUNS.c.id.like(_given(RUNS.c.id, "begins"), "/"), RUNS.c.id.like(_given(RUNS.c.id, "ends"), "/")))
    .order_by(RUNS.c.id.desc())
    .limit(_LIMIT)
    .offset(_NONE),
    "inputs.newest": select(INPUTS.c.data)
    .where(INPUTS.c.run == _given(INPUTS.c.run))
    .order_by(INPUTS.c.epoch.desc())
    .limit(_LIMIT)
    .offset(_NONE),
    "asked.of": select(ASKED.c.version, ASKED.c.data).where(ASKED.c.run == _given(ASKED.c.run)),
    "blob.there": select(BLOBS.c.token).where(*_BLOB),
    "blob.keep": _row(BLOBS),
    "blob.kept": select(BLOBS.c.data).where(*_BLOB),
    "request.new": _row(REQUESTS, "id"),
    "requests.after": select(REQUESTS.c.id, REQUESTS.c.kind, REQUESTS.c.by)
    .where(REQUESTS.c.run == _given(REQUESTS.c.run), REQUESTS.c.id > _given(REQUESTS.c.id, "after"))
    .order_by(REQUESTS.c.id),
    "lease.find": select(LEASES).where(LEASES.c.target == _given(LEASES.c.target)),
    "lease.new": _row(LEASES),
    "lease.take": LEASES.update()
    .where(LEASES.c.target == _given(LEASES.c.target, "of"))
    .values({one.name: _given(one) for one in LEASES.columns if one.name != "target"}),
    "lease.renew": LEASES.update().where(*_LEASE).values(expires=_given(LEASES.c.expires)),
    "lease.release": LEASES.delete().where(*_LEASE),
}

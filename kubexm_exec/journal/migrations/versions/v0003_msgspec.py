"""Graphs of format 2, and entries as structs in place of rows that were made by hand."""

from __future__ import annotations

import contextlib
import json
import zlib
from typing import Any, Final

import sqlalchemy as sa
from alembic import op
from msgspec import ValidationError, convert

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.sqlitefile import kernel_time
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, FailurePolicy, GraphHost, Scope

revision = "0003"
down_revision = "0002"

_OTHERS: Final[dict[str, dict[str, Any]]] = {
    "session": {"mode": "run", "holder": "", "again": (), "time": 0.0},
    "retry": {
        "node": "", "host": "", "attempt": 1, "message": "", "failure": None, "unsure": "", "worked": False,
        "time": 0.0,
    },
    "undo": {
        "node": "", "host": "", "data": None, "become": None, "step": "", "params": None, "place": "", "time": 0.0,
    },
    "undoing": {"node": "", "host": "", "time": 0.0},
    "undone": {"node": "", "host": "", "state": "", "message": "", "time": 0.0},
    "stop": {"reason": "", "time": 0.0},
    "status": {"status": "", "message": "", "time": 0.0},
}  # fmt: skip
"""The fields of entries that had names, in their order now, with what is meant where they are not there."""
_ODD: Final = (LookupError, TypeError, ValueError, AttributeError, ValidationError, zlib.error)
"""What cannot be understood stays as it is: whoever asks for that run is told so, and has all others."""


def upgrade() -> None:
    """Write everything again, one run after another."""
    connection = op.get_bind()
    _check_idle(connection)
    inputs = sa.table("inputs", sa.column("run"), sa.column("epoch"), sa.column("data"))
    entries = sa.table("entries", sa.column("run"), sa.column("seq"), sa.column("data"))
    for run in connection.execute(sa.text("SELECT id FROM runs")).scalars().all():
        for table, key, converted in ((inputs, inputs.c.epoch, _inputs), (entries, entries.c.seq, _entries)):
            changed = []
            for number, data in connection.execute(sa.select(key, table.c.data).where(table.c.run == run)):
                with contextlib.suppress(*_ODD):
                    changed.append({"number": number, "new": converted(data)})
            if changed:
                these = (table.c.run == run, key == sa.bindparam("number"))
                connection.execute(table.update().where(*these).values(data=sa.bindparam("new")), changed)


def _check_idle(connection: sa.Connection) -> None:
    """Raise JournalError while an older kubexm writes: it would go on in its own way."""
    server = connection.dialect.name != "sqlite"
    clock = sa.text("SELECT extract(epoch FROM clock_timestamp())")
    now = float(connection.execute(clock).scalar_one()) if server else kernel_time()
    for run, holder, expires in connection.execute(sa.text("SELECT run, holder, expires FROM leases")):
        owner = Owner.from_json(holder)
        alive = owner.alive()
        if alive or (alive is None and now <= expires):
            raise JournalError(
                f"the journal was made by an older kubexm, and run {run} of {owner} still writes to it",
                "wait for its end",
            )


def _inputs(data: bytes) -> bytes:
    made_from = json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    old = made_from["graph"]
    nodes = (convert(_node(each), ExecutionNode) for each in old["nodes"])
    hosts = (convert(each, GraphHost) for each in old["hosts"])
    scopes = (convert(each, Scope) for each in old["scopes"])
    graph = ExecutionGraph(
        name=old["name"],
        description=old["description"],
        nodes={each.id: each for each in nodes},
        hosts={each.name: each for each in hosts},
        scopes={each.id: each for each in scopes},
        failure_policy=FailurePolicy(old["failurePolicy"]),
        locks=old["locks"],
        sources=old["sources"],
    )
    text = json.dumps({**made_from, "graph": graph.to_json()}, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 3)


def _node(old: dict[str, Any]) -> dict[str, Any]:
    node = dict(old)
    node["policy"] = {key: node.pop(key) for key in ("retry", "timeout", "ignoreErrors", "maxFailures")}
    node["constraints"] = {key: node.pop(key) for key in ("globalLimit", "perHostLimit", "locks")}
    return {**node, "hasItem": "item" in node}


def _entries(data: str) -> str:
    return json.dumps([_entry(*row) for row in json.loads(data)], separators=(",", ":"))


def _entry(kind: str, *row: Any) -> list[Any]:
    if kind == "s":
        node, host, attempt, began, *rest = row
        return ["s", node, host, attempt, began / 1000, *(rest or [""])]
    if kind == "e":
        return _end(*row)
    [old] = row
    kind = old["kind"]
    if kind == "session":
        old["again"] = [[some["nodes"], some["hosts"]] for some in old.get("again", ())]
    return [kind, *(old.get(name, default) for name, default in _OTHERS[kind].items())]


def _end(
    node: str, host: str, status: str, attempts: int, begun: int | None, ended: int | None, more: Any = None
) -> list[Any]:
    result = {
        "hostName": host, "status": status, "attempts": attempts,
        "startTime": None if begun is None else begun / 1000, "endTime": None if ended is None else ended / 1000,
        **(more or {}),
    }  # fmt: skip
    for old, new in (("failure", "failureKind"), ("unknown", "outcomeUnknown")):
        if old in result:
            result[new] = result.pop(old)
    nodes = [_node(each) for each in result.pop("nodes", ())]
    return ["e", node, result, nodes, *(result.pop(key, False) for key in ("hidden", "forgotten", "worked"))]

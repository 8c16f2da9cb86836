"""The SQL statements of the journal by name, for both SQLite and PostgreSQL.

As text: importing SQLAlchemy takes longer than everything else that a short run does with its journal. It is only
needed to migrate a schema and to connect to a server.
"""

from __future__ import annotations

from typing import Final


def _insert(table: str, *columns: str) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in columns)})"


_RUN: Final = "id, name, target, spec, executor, status, message, created, ended, epoch, holder, counts"
_OURS: Final = "WHERE id = :run AND epoch = :old"
_HANDLED: Final = "target = (SELECT target FROM runs WHERE id = :run)"
_NOTIFY: Final = (
    "INSERT INTO notifications (target, handler, host, node, run, at, sure, spec) "
    "SELECT target, :handler, :host, :node, id, :at, {sure}, spec FROM runs WHERE id = :run "
    "ON CONFLICT (target, handler, host, node, run) DO "
)
_LEASE: Final = "WHERE target = :of AND run = :by AND epoch = :old"

STATEMENTS: Final = {
    "run.new": _insert(
        "runs", "id", "name", "target", "spec", "executor", "status", "message", "created", "epoch", "holder", "counts"
    ),
    "run.inputs": _insert("inputs", "run", "epoch", "data"),
    "run.asked": _insert("asked", "run", "version", "data"),
    "run.take": f"UPDATE runs SET status = :status, ended = NULL, epoch = :epoch, holder = :holder {_OURS}",
    "run.end": f"UPDATE runs SET status = :status, message = :message, ended = :ended, counts = :counts {_OURS}",
    "run.stale": f"UPDATE runs SET status = :status, message = :message, epoch = epoch + 1 {_OURS} AND status = :still",
    "run.remove": "DELETE FROM runs WHERE id = :run",
    # One statement: between a query and an insert another process could take the run over.
    "entries.append": (
        "INSERT INTO entries (run, seq, epoch, data) "
        "SELECT id, :seq, epoch, :data FROM runs WHERE id = :run AND epoch = :epoch"
    ),
    "entries.after": (
        "SELECT seq, epoch, data FROM entries WHERE run = :run AND seq > :after ORDER BY seq LIMIT :limit"
    ),
    "entries.last": "SELECT seq FROM entries WHERE run = :run ORDER BY seq DESC LIMIT :limit",
    "runs.newest": (
        f"SELECT {_RUN} FROM runs WHERE (:name = '' OR name = :name) AND (:status = '' OR status = :status) "
        "AND (:spec = '' OR spec = :spec) AND (:target = '' OR target = :target) ORDER BY id DESC LIMIT :limit"
    ),
    "runs.like": (f"SELECT {_RUN} FROM runs WHERE id LIKE :begins OR id LIKE :ends ORDER BY id DESC LIMIT :limit"),
    "asked.of": "SELECT version, data FROM asked WHERE run = :run",
    "inputs.newest": "SELECT data FROM inputs WHERE run = :run ORDER BY epoch DESC LIMIT :limit",
    "blob.there": "SELECT token FROM blobs WHERE run = :run AND token = :token",
    "blob.keep": _insert("blobs", "run", "token", "data"),
    "blob.kept": "SELECT data FROM blobs WHERE run = :run AND token = :token",
    "request.new": _insert("requests", "run", "kind", "at", "by", "data"),
    "requests.after": 'SELECT id, kind, "by", data FROM requests WHERE run = :run AND id > :after ORDER BY id',
    "lease.find": "SELECT target, run, epoch, holder, since, expires FROM leases WHERE target = :target",
    "lease.new": _insert("leases", "target", "run", "epoch", "holder", "since", "expires"),
    "lease.take": (
        "UPDATE leases SET run = :run, epoch = :epoch, holder = :holder, since = :since, expires = :expires "
        "WHERE target = :of"
    ),
    "lease.renew": f"UPDATE leases SET expires = :expires {_LEASE}",
    "lease.release": f"DELETE FROM leases {_LEASE}",
    "notification.possible": _NOTIFY.format(sure=0) + "NOTHING",
    "notification.due": _NOTIFY.format(sure=1) + "UPDATE SET at = excluded.at, sure = 1",
    # By an action that has looked, in the run that was not sure, and in another one.
    "notification.needless": (
        f"DELETE FROM notifications WHERE {_HANDLED} AND host = :host AND node = :node AND run = :run AND sure = 0"
    ),
    "notification.confirm": (
        f"UPDATE notifications SET sure = 1 WHERE {_HANDLED} AND host = :host AND node = :node AND run <> :run"
    ),
    "notification.serve": (
        f"DELETE FROM notifications WHERE {_HANDLED} AND handler = :handler AND host = :host AND node = :node"
    ),
    "notification.withdraw": (
        f"DELETE FROM notifications WHERE {_HANDLED} AND host = :host AND node = :node AND run = :run"
    ),
    "notification.drop": "DELETE FROM notifications WHERE target = :target AND handler = :handler AND host = :host",
    "notifications.of": (
        "SELECT handler, host, node, run, at, sure, spec FROM notifications WHERE target = :target "
        "ORDER BY handler, host, at, node, run"
    ),
    "notifications.targets": "SELECT DISTINCT target FROM notifications ORDER BY target",
}

SCHEMA: Final = (
    # One row a run. Each session raises ``epoch``, and writes with an older one are refused.
    "CREATE TABLE runs (id VARCHAR(26) NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, spec TEXT NOT NULL, "
    "executor TEXT NOT NULL, status VARCHAR(16) NOT NULL, message TEXT NOT NULL, created FLOAT NOT NULL, ended FLOAT, "
    "epoch INTEGER NOT NULL, holder TEXT NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (id))",
    # What a run was made from (graph, options, packages), compressed; one more row whenever changes were accepted.
    "CREATE TABLE inputs (run VARCHAR(26) NOT NULL, epoch INTEGER NOT NULL, data BLOB NOT NULL, "
    "PRIMARY KEY (run, epoch), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)",
    # The request (document, values, choices, executor, options), in the format of that version.
    "CREATE TABLE asked (run VARCHAR(26) NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (run), "
    "FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)",
    # What happened, in order. A row is a group of entries that became durable together.
    "CREATE TABLE entries (run VARCHAR(26) NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, data TEXT NOT NULL, "
    "PRIMARY KEY (run, seq), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)",
    # Content that was replaced on hosts, for an undo.
    "CREATE TABLE blobs (run VARCHAR(26) NOT NULL, token VARCHAR(64) NOT NULL, data BLOB NOT NULL, "
    "PRIMARY KEY (run, token), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)",
    # Which run works on a target now; ``epoch`` is that of the run.
    "CREATE TABLE leases (target TEXT NOT NULL, run VARCHAR(26) NOT NULL, epoch INTEGER NOT NULL, "
    "holder TEXT NOT NULL, since FLOAT NOT NULL, expires FLOAT NOT NULL, PRIMARY KEY (target))",
    # Handlers that are due, by what changed; ``sure`` is 0 while nobody knows whether it did. They outlive their runs.
    "CREATE TABLE notifications (target TEXT NOT NULL, handler TEXT NOT NULL, host TEXT NOT NULL, node TEXT NOT NULL, "
    "run VARCHAR(26) NOT NULL, at FLOAT NOT NULL, sure INTEGER NOT NULL, spec TEXT NOT NULL, "
    "PRIMARY KEY (target, handler, host, node, run))",
    # Requests to a running run, such as a cancel.
    "CREATE TABLE requests (id INTEGER NOT NULL, run VARCHAR(26) NOT NULL, kind VARCHAR(16) NOT NULL, "
    'at FLOAT NOT NULL, "by" TEXT NOT NULL, data TEXT, PRIMARY KEY (id), '
    "FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE)",
    "CREATE INDEX requests_of_run ON requests (run)",
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
)
"""The schema that the migrations produce, for an empty SQLite file; a test compares the two."""

"""Statements and schema of the journal as SQLite takes them. Made by tools/statements.py: `make docs`."""
# ruff: noqa: E501

from __future__ import annotations

from typing import Final

SQLITE: Final = {
    "run.new": "INSERT INTO runs (id, name, target, spec, executor, status, message, created, epoch, holder, counts) VALUES (:id, :name, :target, :spec, :executor, :status, :message, :created, :epoch, :holder, :counts)",
    "run.inputs": "INSERT INTO inputs (run, epoch, data) VALUES (:run, :epoch, :data)",
    "run.asked": "INSERT INTO asked (run, version, data) VALUES (:run, :version, :data)",
    "run.take": "UPDATE runs SET status=:status, ended=NULL, epoch=:epoch, holder=:holder WHERE runs.id = :run AND runs.epoch = :old",
    "run.end": "UPDATE runs SET status=:status, message=:message, ended=:ended, counts=:counts WHERE runs.id = :run AND runs.epoch = :old",
    "run.stale": "UPDATE runs SET status=:status, message=:message, epoch=(runs.epoch + 1) WHERE runs.id = :run AND runs.epoch = :old AND runs.status = :still",
    "run.remove": "DELETE FROM runs WHERE runs.id = :run",
    "entries.append": "INSERT INTO entries (run, seq, epoch, data) SELECT runs.id, :seq AS anon_1, runs.epoch, :data AS anon_2 FROM runs WHERE runs.id = :run AND runs.epoch = :epoch",
    "entries.after": "SELECT entries.seq, entries.epoch, entries.data FROM entries WHERE entries.run = :run AND entries.seq > :after ORDER BY entries.seq LIMIT :limit OFFSET 0",
    "entries.last": "SELECT entries.seq FROM entries WHERE entries.run = :run ORDER BY entries.seq DESC LIMIT :limit OFFSET 0",
    "runs.newest": "SELECT runs.id, runs.name, runs.target, runs.spec, runs.executor, runs.status, runs.message, runs.created, runs.ended, runs.epoch, runs.holder, runs.counts FROM runs WHERE (:name = '' OR runs.name = :name) AND (:status = '' OR runs.status = :status) AND (:spec = '' OR runs.spec = :spec) ORDER BY runs.id DESC LIMIT :limit OFFSET 0",
    "runs.like": "SELECT runs.id, runs.name, runs.target, runs.spec, runs.executor, runs.status, runs.message, runs.created, runs.ended, runs.epoch, runs.holder, runs.counts FROM runs WHERE runs.id LIKE :begins ESCAPE '/' OR runs.id LIKE :ends ESCAPE '/' ORDER BY runs.id DESC LIMIT :limit OFFSET 0",
    "inputs.newest": "SELECT inputs.data FROM inputs WHERE inputs.run = :run ORDER BY inputs.epoch DESC LIMIT :limit OFFSET 0",
    "asked.of": "SELECT asked.version, asked.data FROM asked WHERE asked.run = :run",
    "blob.there": "SELECT blobs.token FROM blobs WHERE blobs.run = :run AND blobs.token = :token",
    "blob.keep": "INSERT INTO blobs (run, token, data) VALUES (:run, :token, :data)",
    "blob.kept": "SELECT blobs.data FROM blobs WHERE blobs.run = :run AND blobs.token = :token",
    "request.new": 'INSERT INTO requests (run, kind, at, "by") VALUES (:run, :kind, :at, :by)',
    "requests.after": 'SELECT requests.id, requests.kind, requests."by" FROM requests WHERE requests.run = :run AND requests.id > :after ORDER BY requests.id',
    "lease.find": "SELECT leases.target, leases.run, leases.epoch, leases.holder, leases.since, leases.expires FROM leases WHERE leases.target = :target",
    "lease.new": "INSERT INTO leases (target, run, epoch, holder, since, expires) VALUES (:target, :run, :epoch, :holder, :since, :expires)",
    "lease.take": "UPDATE leases SET run=:run, epoch=:epoch, holder=:holder, since=:since, expires=:expires WHERE leases.target = :of",
    "lease.renew": "UPDATE leases SET expires=:expires WHERE leases.target = :of AND leases.run = :by AND leases.epoch = :old",
    "lease.release": "DELETE FROM leases WHERE leases.target = :of AND leases.run = :by AND leases.epoch = :old",
}

SCHEMA: Final = (
    "CREATE TABLE alembic_version ( version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num) )",
    "CREATE TABLE runs ( id VARCHAR(26) NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, spec TEXT NOT NULL, executor TEXT NOT NULL, status VARCHAR(16) NOT NULL, message TEXT NOT NULL, created FLOAT NOT NULL, ended FLOAT, epoch INTEGER NOT NULL, holder TEXT NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (id) )",
    "CREATE TABLE inputs ( run VARCHAR(26) NOT NULL, epoch INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, epoch), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE )",
    "CREATE TABLE entries ( run VARCHAR(26) NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (run, seq), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE )",
    "CREATE TABLE blobs ( run VARCHAR(26) NOT NULL, token VARCHAR(64) NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, token), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE )",
    "CREATE TABLE leases ( target TEXT NOT NULL, run VARCHAR(26) NOT NULL, epoch INTEGER NOT NULL, holder TEXT NOT NULL, since FLOAT NOT NULL, expires FLOAT NOT NULL, PRIMARY KEY (target) )",
    'CREATE TABLE requests ( id INTEGER NOT NULL, run VARCHAR(26) NOT NULL, kind VARCHAR(16) NOT NULL, at FLOAT NOT NULL, "by" TEXT NOT NULL, PRIMARY KEY (id), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE )',
    "CREATE INDEX requests_of_run ON requests (run)",
    "CREATE TABLE asked ( run VARCHAR(26) NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (run), FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE )",
    "INSERT INTO alembic_version (version_num) VALUES ('0003')",
)

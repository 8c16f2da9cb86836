"""The tables of the journal: one schema for SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text

METADATA: Final = MetaData()

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("id", String(26), primary_key=True),
    Column("name", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("executor", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("message", Text, nullable=False, default=""),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("counts", Text, nullable=False, default="{}"),
)
"""One row a run. ``epoch`` is raised by whoever takes the run on: whoever writes with an older one is refused."""

INPUTS: Final = Table(
    "inputs",
    METADATA,
    Column("run", String(26), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""What a run was made from (graph, packages), compressed; a second one if changes were accepted later."""

ASKED: Final = Table(
    "asked",
    METADATA,
    Column("run", String(26), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("data", Text, nullable=False),
)
"""What somebody asked for (document, values, choices, executor, options), in the form of that version."""

ENTRIES: Final = Table(
    "entries",
    METADATA,
    Column("run", String(26), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("data", Text, nullable=False),
)
"""What happened, in order. A row holds all that became durable together."""

BLOBS: Final = Table(
    "blobs",
    METADATA,
    Column("run", String(26), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("token", String(64), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""Content that was replaced on hosts, for an undo."""

LEASES: Final = Table(
    "leases",
    METADATA,
    Column("target", Text, primary_key=True),
    Column("run", String(26), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("since", Float, nullable=False),
    Column("expires", Float, nullable=False),
)
"""Who works on a target now; ``epoch`` is that of the run."""

REQUESTS: Final = Table(
    "requests",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(26), ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", Float, nullable=False),
    Column("by", Text, nullable=False),
    Index("requests_of_run", "run"),
)
"""What others ask a running run for, such as to stop."""

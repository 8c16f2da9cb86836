"""What somebody asked for is data of its own, not a command line among what a run was made from; requests have data."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables, and fill one from what older runs were made from."""
    table = op.create_table(
        "asked",
        sa.Column("run", sa.String(26), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    # Requests are of use only while a run goes on.
    op.drop_table("requests")
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String(26), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("data", sa.Text),
    )
    op.create_index("requests_of_run", "requests", ["run"])
    connection = op.get_bind()
    found = connection.execute(sa.text("SELECT id, executor FROM runs ORDER BY id")).all()
    for run, executor in found:
        query = sa.text("SELECT data FROM inputs WHERE run = :run ORDER BY epoch LIMIT 1")
        packed = connection.execute(query, {"run": run}).scalar()
        if packed is None:
            continue
        # What cannot be understood stays as it is: whoever asks for that run is told so, and has all others.
        with contextlib.suppress(zlib.error, ValueError, LookupError, TypeError):
            inputs = json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
            data = json.dumps(_asked(inputs, executor))
            connection.execute(table.insert(), {"run": run, "version": 1, "data": data})


def _asked(inputs: dict[str, Any], executor: str) -> dict[str, Any]:
    choice, spec = inputs["choice"], inputs["spec"]
    documents = {
        "folder": inputs["folder"],
        "plan" if _is_plan(spec) else "spec": spec,
        "texts": dict(pair.split("=", 1) for pair in choice["values"]),
        "varsFiles": choice["vars_files"],
        "inventory": choice["inventory"],
        "limit": _words(choice["limit"]),
        "tags": _words(choice["tags"]),
        "skipTags": _words(choice["skip_tags"]),
        "templates": choice["templates"],
        "bundle": inputs.get("bundle"),
    }
    return {"documents": {key: value for key, value in documents.items() if value}, "executor": executor,
            "forks": inputs["forks"]}  # fmt: skip


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _is_plan(spec: str) -> bool:
    if spec.startswith("kubexm:") or not spec.endswith(".json"):
        return False
    try:
        return "kubexm.io/plan" in Path(spec).read_text("utf-8", "replace")[:200]
    except (OSError, ValueError):
        return False

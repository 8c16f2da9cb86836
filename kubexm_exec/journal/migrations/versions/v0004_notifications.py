"""Notifications that were not served yet: handlers that are due on the hosts of a target, whichever run left them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table. No run of an older version has notified anything."""
    op.create_table(
        "notifications",
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("handler", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("run", sa.String(26), primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("sure", sa.Integer, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
    )

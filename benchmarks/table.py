"""A table of results, each with the goal it is held against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    name: str
    value: str
    goal: str = ""
    reached: bool | None = None


def render(rows: list[Row]) -> str:
    """The rows under each other."""
    widths = [max(len(getattr(row, key)) for row in rows) for key in ("name", "value", "goal")]
    lines = []
    for row in rows:
        mark = "" if row.reached is None else "reached" if row.reached else "MISSED"
        lines.append(f"{row.name:<{widths[0]}}  {row.value:>{widths[1]}}  {row.goal:<{widths[2]}}  {mark}".rstrip())
    return "\n".join(lines)

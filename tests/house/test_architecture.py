"""ARCHITECTURE.md: what it names is there, and every room is named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:kubexm_|tests/)[\w/]+\.py)`", PAGE)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_room_is_named() -> None:
    rooms = [path.name for path in (ROOT / "kubexm_exec").iterdir() if (path / "__init__.py").is_file()]
    assert [room for room in rooms if not re.search(rf"\b{room}\b", PAGE)] == []


def test_contributing_leads_to_it() -> None:
    assert "(ARCHITECTURE.md)" in (ROOT / "CONTRIBUTING.md").read_text()

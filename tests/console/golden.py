"""Texts that a change must not alter unseen: compared with files, written anew with UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    """The text is what the file says."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{path.name} differs; if that is right: UPDATE_GOLDEN=1 make tests"

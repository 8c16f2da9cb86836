"""Finds the templates and specs that come with kubexm, in an installed wheel and in a source checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def shipped_root(kind: Literal["templates", "specs"]) -> Path:
    """Return the folder of the shipped templates or specs."""
    package = Path(__file__).resolve().parent
    checkout = package.parent
    installed = package / "_shipped" / kind
    if installed.is_dir():
        return installed
    # pyproject.toml tells a checkout from site-packages, where a folder of this name would be somebody else's.
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise FileNotFoundError(f"kubexm's own {kind} are missing: {installed} does not exist; install kubexm again")

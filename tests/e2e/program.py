"""Runs the real commands in a folder of their own, as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
HEAD = "apiVersion: kubexm.io/v1\nkind: Pipeline\nmetadata: {name: test}\n"


def environment(**more: str) -> dict[str, str]:
    """The environment without what would change the output."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KUBEXM", "COLUMNS", "FORCE_COLOR"))}
    return {**kept, "NO_COLOR": "1", **more}


def run(
    program: str, *arguments: str, cwd: Path, stdin: str = "", env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """The command's end, with what it printed."""
    return subprocess.run(
        [str(BIN / program), *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env=env or environment(),
        timeout=timeout,
        check=False,
    )


def start(program: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The command while it runs."""
    return subprocess.Popen(
        [str(BIN / program), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or environment(),
    )


def write_spec(folder: Path, body: str, name: str = "spec.yaml") -> Path:
    """A pipeline with the usual head."""
    path = folder / name
    path.write_text(HEAD + body)
    return path

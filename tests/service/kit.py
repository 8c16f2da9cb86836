"""Folders with specs, and a service whose journal is beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubexm_exec.model.events import Event
from kubexm_exec.service.live import LiveRun, Watcher
from kubexm_exec.service.requests import Documents, RunRequest

HEAD = "apiVersion: kubexm.io/v1\nkind: Pipeline\nmetadata: {name: NAME}\n"


def spec(folder: Path, body: str, name: str = "demo") -> Path:
    """Write a pipeline to ``spec.yaml`` of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.yaml"
    path.write_text(HEAD.replace("NAME", name) + body)
    return path


def steps(*lines: str, more: str = "") -> str:
    """A body with one task of these steps."""
    listed = "".join(f"          - {line}\n" for line in lines)
    return f"{more}modules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n{listed}"


def request(folder: Path, **options: Any) -> RunRequest:
    """A request to run the spec of a folder."""
    return RunRequest(documents=Documents(folder=str(folder), spec="spec.yaml"), **options)


class Listener(Watcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.live: LiveRun | None = None
        self.ends = 0

    def attach(self, run: LiveRun) -> None:
        """Listen."""
        self.live = run
        run.subscribe(self.events.append)

    def ended(self, result: object) -> None:
        """Count it."""
        self.ends += 1

    def text(self) -> str:
        """All that was told."""
        return json.dumps([event.to_json() for event in self.events])

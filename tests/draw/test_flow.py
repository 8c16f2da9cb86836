"""The two layout engines, Python's for SVG and JavaScript's for frames that are opened and closed: one golden file.

``KUBEXM_GOLDEN=write pytest tests/draw`` writes it anew, by Python.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.draw import flow
from kubexm_exec.draw.cells import Cell, Edge, Placed, Room
from kubexm_exec.draw.layout import MODULES, TASKS, ranked
from kubexm_exec.model.data import builtins

GOLDEN = Path(__file__).parent / "golden" / "flow.json"
SCRIPT = Path(flow.__file__).parent / "static" / "flow.js"
STYLES = ("", "barrier", "hook")


def frame(seed: int) -> tuple[list[Cell], list[Edge], Room]:
    """A frame of some cells in a small room, so that rows are wrapped; lines skip layers, and some lead back."""
    chance = random.Random(seed)
    count = chance.randint(1, 14)
    pairs = [(chance.randrange(count), chance.randrange(count)) for _ in range(chance.randint(0, 2 * count))]
    pairs = list(dict.fromkeys((s, t) if s < t or chance.random() < 0.1 else (t, s) for s, t in pairs if s != t))
    ranks, keys = ranked(count, pairs)
    sizes = [(chance.randint(20, 600) / 2, chance.randint(20, 300) / 2) for _ in ranks]
    cells = [Cell(u, v, min(19.0, v / 2), rank, key) for (u, v), rank, key in zip(sizes, ranks, keys, strict=True)]
    edges = [Edge(s, t, chance.choice(STYLES)) for s, t in pairs]
    return cells, edges, chance.choice((TASKS, MODULES, Room(500, 400, 18, 40, 34)))


FRAMES = [frame(seed) for seed in range(40)]


def plain(placed: Placed) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(builtins(placed)))
    return data


@pytest.fixture(scope="module")
def golden() -> list[dict[str, Any]]:
    if os.environ.get("KUBEXM_GOLDEN") == "write":
        lines = [json.dumps(plain(flow.place(*each)), separators=(",", ":")) for each in FRAMES]
        GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
    return found


def test_python_lays_out_frames_as_agreed(golden: list[dict[str, Any]]) -> None:
    assert [plain(flow.place(*each)) for each in FRAMES] == golden


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run JavaScript")
def test_javascript_lays_out_frames_as_agreed(golden: list[dict[str, Any]]) -> None:
    frames = [
        {
            "cells": builtins(cells),
            "edges": [{"s": edge.source, "t": edge.target, "style": edge.style} for edge in edges],
            "room": builtins(room),
        }
        for cells, edges, room in FRAMES
    ]
    program = (
        SCRIPT.read_text()
        + "\nconst frames = JSON.parse(require('fs').readFileSync(0));"
        + "\nprocess.stdout.write(JSON.stringify(frames.map(one => kxPlace(one.cells, one.edges, one.room))));"
    )
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(frames), capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == golden

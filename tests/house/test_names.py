"""Who is above the plug-ins knows none of them by name: what others must know of it, an executor or a step declares."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("scheduler", "compile", "engine", "journal", "service", "console", "draw", "report")
ADHOC = "kubexm_exec/compile/adhoc.py"
"""Makes a spec of one command, and names its step type as any spec does."""
STEPS = {point.name for point in entry_points(group="kubexm.steps") if point.value.startswith("kubexm_steps")}
EXECUTORS = {point.name for point in entry_points(group="kubexm.executors") if point.value.startswith("kubexm_exec")}
LEVELS = {"debug", "info", "warning", "error"}
"""Of a log; one of them is an executor's name, too."""
KINDS = {"kind", "mode", "_stopped", "state"}
"""What nodes, files and stops have: they share words with step types ("gate", "file") and are none."""


def literals(tree: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def asked_of(side: ast.expr) -> set[str]:
    """The names of attributes and keys in an expression: ``node.get("kind")`` asks for "kind"."""
    return {each.attr for each in ast.walk(side) if isinstance(each, ast.Attribute)} | literals(side)


def named(path: Path) -> Iterator[str]:
    """Each place where a text of the program is the name of a plug-in: one that is compared with, or no other word."""
    tree = ast.parse(path.read_bytes(), str(path))
    levels = {
        id(each)
        for part in ast.walk(tree)
        if isinstance(part, ast.Dict | ast.Tuple | ast.IfExp) and len(LEVELS & literals(part)) > 1
        for each in ast.walk(part)
    }
    for node in ast.walk(tree):
        found: set[str] = set()
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            values = {each for side in sides for each in literals(side)}
            if not any(KINDS & asked_of(side) for side in sides):
                found = values & STEPS
        elif isinstance(node, ast.MatchValue):
            found = literals(node) & STEPS
        elif isinstance(node, ast.Constant) and id(node) not in levels:
            found = literals(node) & (EXECUTORS | {name for name in STEPS if "-" in name})
        yield from (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', '')}: {name}" for name in sorted(found))


@pytest.mark.parametrize("room", ROOMS)
def test_no_executor_and_no_step_type_is_known_by_its_name(room: str) -> None:
    assert STEPS
    assert EXECUTORS
    files = [path for path in (ROOT / "kubexm_exec" / room).rglob("*.py") if str(path.relative_to(ROOT)) != ADHOC]
    assert [place for path in sorted(files) for place in named(path)] == []


@pytest.mark.parametrize(
    "text", ['x = node.step_name == "set"', 'x = step in ("copy", "wait")', 'f("check")', "y = {'dry-run': 1}"]
)
def test_a_name_would_be_found(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "some.py").write_text(text)
    assert list(named(tmp_path / "some.py"))

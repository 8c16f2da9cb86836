"""Every case in cases/: a step on given files, its forecast, what it does, that it does it once, and its undo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec.registry import step_registry
from tests.steps import trees
from tests.steps.context import World
from tests.steps.play import play

CASES = Path(__file__).parent / "cases"
KEYS = {
    "step", "runs", "given", "local", "with", "sensitive", "vars", "forecast", "result", "fails", "after", "again",
    "undo",
    "shown",
}  # fmt: skip


def cases() -> list[Any]:
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in sorted(CASES.glob("*/*.yaml"))]


def filled(value: Any, host: Path, local: Path) -> Any:
    """The data with the two folders put in."""
    if isinstance(value, str):
        return value.replace("$HOST", str(host)).replace("$LOCAL", str(local))
    if isinstance(value, Mapping):
        return {filled(key, host, local): filled(item, host, local) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, host, local) for item in value]
    return value


@pytest.mark.parametrize("path", cases())
def test_step_does_what_its_case_says(path: Path, tmp_path: Path) -> None:
    host, local = tmp_path / "host", tmp_path / "local"
    host.mkdir()
    local.mkdir()
    case = filled(YAML(typ="safe").load(path), host, local)
    assert case.keys() <= KEYS, f"unknown keys: {case.keys() - KEYS}"
    assert case["step"] == path.parent.name
    trees.make(host, case.get("given", {}))
    trees.make(local, case.get("local", {}))
    world = World(local, case["step"], case["with"], sensitive=case.get("sensitive", False), host_vars=case.get("vars"))
    try:
        play(case, world, _Files(host))
    finally:
        world.close()


class _Files:
    """What a case looks at: the files of a folder."""

    undo_is_due = True

    def __init__(self, host: Path) -> None:
        self._host = host

    def state(self) -> Any:
        return trees.read(self._host)

    def exact(self) -> Any:
        """Times too: precheck leaves not even a temporary file."""
        return trees.read(self._host, exact=True)

    def check(self, case: Mapping[str, Any], before: Any) -> None:
        assert trees.differences(self._host, case.get("after", {})) == []


def test_every_step_type_has_cases() -> None:
    """Here or, if they change a whole system, in machines/; those that need a server or a person have tests instead."""
    elsewhere = {"http", "wait", "gate", "fragment"}
    ours = {info.name for info in step_registry().infos() if info.value.startswith("kubexm_steps.")}
    here = {path.name for path in CASES.iterdir()}
    machines = {path.name for path in CASES.with_name("machines").iterdir() if path.is_dir()}
    assert here | machines == ours - elsewhere

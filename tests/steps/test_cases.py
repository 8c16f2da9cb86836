"""Every case in cases/: a step on given files, its forecast, what it does, that it does it once, and its undo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec.registry import step_registry
from kubexm_exec.result import ForecastState
from kubexm_exec.step import Forecast, StepFailed
from tests.steps import trees
from tests.steps.context import World

CASES = Path(__file__).parent / "cases"
KEYS = {
    "step", "runs", "given", "local", "with", "sensitive", "vars", "forecast", "result", "fails", "after", "again",
    "undo",
    "shown",
}  # fmt: skip

GUARDS = {"creates", "removes", "unless", "onlyIf"}
"""Parameters that only precheck looks at."""


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


def check_forecast(forecast: Forecast, expected: Mapping[str, Any]) -> None:
    assert forecast.state.value == expected["state"], forecast
    if "message" in expected:
        assert forecast.message == expected["message"]
    if "outputs" in expected:
        assert dict(forecast.outputs) == expected["outputs"]
    if "diffs" in expected:
        shown = [
            {key: value for key, value in asdict(diff).items() if value not in (None, "")} for diff in forecast.diffs
        ]
        assert shown == expected["diffs"]


def check_failure(failure: StepFailed, expected: Mapping[str, Any]) -> None:
    assert re.fullmatch(expected["message"], failure.message, re.DOTALL), failure.message
    assert expected.get("hint", "") in failure.hint
    assert expected.get("stderr", "") in failure.stderr
    if "exitCode" in expected:
        assert failure.exit_code == expected["exitCode"]


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
        play(case, world, host)
    finally:
        world.close()


def play(case: Mapping[str, Any], world: World, host: Path) -> None:
    untouched = trees.read(host, exact=True)
    before = trees.read(host)
    fails = case.get("fails", {})
    if fails.get("in") == "precheck":
        with pytest.raises(StepFailed) as caught:
            world.forecast()
        check_failure(caught.value, fails)
        assert trees.read(host, exact=True) == untouched
        return

    forecast = world.forecast()
    assert trees.read(host, exact=True) == untouched, "precheck must change nothing, not even a temporary file"
    check_forecast(forecast, case["forecast"])
    assert forecast.runs is case.get("runs", False), forecast
    if forecast.state is ForecastState.SATISFIED and not forecast.runs:
        # What run would do all the same: nothing.
        if not GUARDS & case["with"].keys():
            assert world.run().changed is False
        assert trees.read(host) == before
        return

    if fails:
        with pytest.raises(StepFailed) as caught:
            world.run()
        check_failure(caught.value, fails)
    else:
        result = world.run()
        expected = case.get("result", {})
        assert result.changed is expected.get("changed", True)
        if "message" in expected:
            assert re.fullmatch(expected["message"], result.message, re.DOTALL), result.message
        if "outputs" in expected:
            assert dict(result.outputs) == expected["outputs"]
    if "shown" in case:
        assert world.output() == case["shown"]
    assert trees.differences(host, case.get("after", {})) == []
    if not fails:
        again = world.forecast()
        assert again.state.value == case.get("again", "satisfied"), again
        if again.state is ForecastState.SATISFIED and not again.runs and not GUARDS & case["with"].keys():
            assert dict(again.outputs) == dict(result.outputs), "the outputs are the same both times"
    if case.get("undo", step_registry().load(case["step"]).reversible):
        undo(world, host, before)


def undo(world: World, host: Path, before: Mapping[str, Any]) -> None:
    for time in ("once", "twice"):
        world.rollback()
        assert trees.read(host) == before, f"undone {time}"


def test_every_step_type_has_cases() -> None:
    """Here or, if they change a whole system, in machines/; those that need a server or a person have tests instead."""
    elsewhere = {"http", "wait", "gate", "fragment"}
    ours = {info.name for info in step_registry().infos() if info.value.startswith("kubexm_steps.")}
    here = {path.name for path in CASES.iterdir()}
    machines = {path.name for path in CASES.with_name("machines").iterdir() if path.is_dir()}
    assert here | machines == ours - elsewhere

"""Every case in machines/: a step on a full host, its forecast, what it does, that it does it once, and its undo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec.registry import step_registry
from kubexm_exec.result import ForecastState
from kubexm_exec.step import StepFailed
from tests.lab.machines import Machine
from tests.steps.context import World
from tests.steps.test_cases import GUARDS, check_failure, check_forecast

CASES = Path(__file__).parent / "machines"
KEYS = {
    "step", "setup", "prepare", "with", "sensitive", "runs", "probe", "forecast", "result", "after", "again", "undo",
    "fails", "cleanup", "shown",
}  # fmt: skip


# What cases work in, and must leave as it was: the machine is the next one's too.
_GROUND = r"""
find /srv /mnt /opt /home /tmp -mindepth 1 -maxdepth 2 ! -path '/tmp/.*' ! -path '/tmp/systemd-private-*' | sort
grep -E '^[^ ]+ /(srv|mnt|opt|home|tmp|etc)' /proc/mounts || :
"""
# Package managers take about as long as all others together: two processes share the work.
_PACKAGES = {"package", "repository"}


def cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*/*.yaml")):
        group = pytest.mark.xdist_group("machines-packages" if path.parent.name in _PACKAGES else "machines")
        found.append(pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=group))
    return found


@pytest.mark.parametrize("path", cases())
def test_step_does_on_a_full_host_what_its_case_says(path: Path, machine: Machine, tmp_path: Path) -> None:
    case = YAML(typ="safe").load(path)
    assert case.keys() <= KEYS, f"unknown keys: {case.keys() - KEYS}"
    assert case["step"] == path.parent.name
    world = World(
        tmp_path, case["step"], case["with"], sensitive=case.get("sensitive", False), host=machine.host(), timeout=120
    )
    found = machine.sh(_GROUND)
    try:
        # What many cases begin with is a script beside them; its functions are there for `prepare`.
        setup = (CASES / case["setup"]).read_text("utf-8") if "setup" in case else ""
        machine.sh(setup + case.get("prepare", ""))
        play(case, world, machine)
    finally:
        world.close()
        machine.sh(case.get("cleanup", ""))
    assert machine.sh(_GROUND) == found, "the case leaves something behind: remove it in `cleanup`"


def play(case: Mapping[str, Any], world: World, machine: Machine) -> None:
    def probe() -> str:
        return machine.sh(case["probe"]).strip()

    before = probe()
    fails = case.get("fails", {})
    if fails.get("in") == "precheck":
        with pytest.raises(StepFailed) as caught:
            world.forecast()
        check_failure(caught.value, fails)
        assert probe() == before, "precheck must change nothing"
        return

    forecast = world.forecast()
    assert probe() == before, "precheck must change nothing"
    check_forecast(forecast, case["forecast"])
    assert forecast.runs is case.get("runs", False), forecast
    if forecast.state is ForecastState.SATISFIED and not forecast.runs:
        # What run would do all the same: nothing.
        if not GUARDS & case["with"].keys():
            assert world.run().changed is False
        assert probe() == before
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
    # What was saved by the run that changed something: a run that changes nothing saves nothing that matters.
    undo = world.undo
    assert probe() == case.get("after", before if fails else "").strip()
    if not fails:
        again = world.forecast()
        assert again.state.value == case.get("again", "satisfied"), again
        if again.state is ForecastState.SATISFIED and not again.runs and not GUARDS & case["with"].keys():
            assert dict(again.outputs) == dict(result.outputs), "the outputs are the same both times"
            assert world.run().changed is False, "the second run has nothing to do"
            assert probe() == case["after"].strip()
    if case.get("undo", step_registry().load(case["step"]).reversible and undo is not None):
        world.undo = undo
        for time in ("once", "twice"):
            world.rollback()
            assert probe() == before, f"undone {time}"

"""Plays a case: what a step forecasts, what it does, that it does it once, and that its undo takes it back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

import pytest

from kubexm_exec.plugins import step_registry
from kubexm_exec.step import Effect, Forecast, Step, StepFailed
from kubexm_exec.testing import StepTest

GUARDS = {"creates", "removes", "unless", "onlyIf"}
"""With these there are no outputs of a command that need not run."""


class Ground(Protocol):
    """What a case is played on."""

    undo_is_due: bool
    """Whether a step that can be undone must have saved something, also where it failed."""

    def meddle(self, case: Mapping[str, Any], before: Any) -> bool:
        """Change something of that which the run changed, as somebody else would; False if there is no way here."""

    def state(self) -> Any:
        """All that an undo brings back."""

    def exact(self) -> Any:
        """All that precheck must leave as it is."""

    def check(self, case: Mapping[str, Any], before: Any) -> None:
        """Assert that everything is as the case says after the run; ``before`` is the state at first."""


def looks(step: str) -> bool:
    """Whether a step type looks, before it undoes something, whether somebody else was there."""
    kind = step_registry().load(step)
    return bool(kind.undo.reversible and kind.standing is not Step.standing)


def check_forecast(forecast: Forecast[Any], expected: Mapping[str, Any]) -> None:
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


def play(case: Mapping[str, Any], world: StepTest, ground: Ground) -> None:
    """Play a case to its end."""
    untouched, before = ground.exact(), ground.state()
    fails = case.get("fails", {})
    if fails.get("in") == "precheck":
        with pytest.raises(StepFailed) as caught:
            world.forecast()
        check_failure(caught.value, fails)
        assert ground.exact() == untouched, "precheck must change nothing"
        return

    forecast = world.forecast()
    assert ground.exact() == untouched, "precheck must change nothing"
    check_forecast(forecast, case["forecast"])
    assert (forecast.effect in (Effect.TELLS, Effect.READS)) is case.get("runs", False), forecast
    if forecast.effect is Effect.NONE:
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
    ground.check(case, before)
    if not fails:
        again = world.forecast()
        assert again.state.value == case.get("again", "satisfied"), again
        if again.effect is Effect.NONE and not GUARDS & case["with"].keys():
            # A backup is made once.
            once = {name: value for name, value in result.outputs.items() if name != "backup"}
            assert dict(again.outputs) == once, "the outputs are the same both times"
    reversible = step_registry().load(case["step"]).undo.reversible and (ground.undo_is_due or undo is not None)
    if case.get("undo", reversible):
        world.undo = undo
        found = world.standing()
        assert not found.changed, "what the run left is taken for somebody else's work"
        # A probe tells only some of what there is, and a service may still be on its way.
        if fails and ground.undo_is_due and ground.state() == before:
            assert found.before, "a run that failed and changed nothing has nothing to undo"
        if not fails and looks(case["step"]) and ground.meddle(case, before):
            meddled = ground.state()
            state, said = world.undo_run()
            assert (state, ground.state()) == ("leftAlone", meddled), "somebody else's work is left alone"
            assert said, "what was left alone is named"
            assert world.undo_run(overwrite=True)[0] == "undone"
            assert ground.state() == before, "with --overwrite it is undone all the same"
        for time in ("once", "twice"):
            world.rollback()
            assert ground.state() == before, f"undone {time}"
        assert not world.standing().changed, "what was undone is taken for somebody else's work"

"""The steps that need somebody to answer, or the engine to go on with what they return."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pydantic import ValidationError

from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_steps.fragment import FragmentParams


def gate(tmp_path: Path, answers: str | None = None, **more: object) -> StepTest:
    typed = None if answers is None else io.StringIO(answers)
    return StepTest(tmp_path, "gate", {"question": "Go on?", **more}, answers=typed)


def test_what_somebody_will_answer_is_not_known_before(tmp_path: Path) -> None:
    forecast = gate(tmp_path).forecast()
    assert (forecast.state, forecast.message) == (ForecastState.UNKNOWN, "needs approval: Go on?")


def test_a_yes_goes_on_and_changes_nothing(tmp_path: Path) -> None:
    result = gate(tmp_path, "y\n").run()
    assert (result.changed, dict(result.outputs)) == (False, {"approved": True})


def test_a_no_is_a_failure_that_repeats_the_question(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"not approved: Go on\?"):
        gate(tmp_path, "n\n").run()


def test_without_anybody_the_default_counts(tmp_path: Path) -> None:
    assert gate(tmp_path, default=True).run().outputs["approved"] is True
    with pytest.raises(StepFailed, match="not approved"):
        gate(tmp_path, default=False).run()


def test_without_anybody_and_default_it_fails(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"Go on\?"):
        gate(tmp_path).run()


def test_a_fragment_hands_its_steps_on_as_they_are_written(tmp_path: Path) -> None:
    steps = [{"name": "later", "type": "command", "with": {"argv": ["echo", "{{ steps.unknown.outputs.stdout }}"]}}]
    world = StepTest(tmp_path, "fragment", {"steps": steps})
    assert world.forecast().state is ForecastState.UNKNOWN
    result = world.run()
    assert result.changed is False
    assert list(result.fragment) == steps


def test_a_fragment_without_steps_is_refused() -> None:
    with pytest.raises(ValidationError):
        FragmentParams.model_validate({"steps": []})

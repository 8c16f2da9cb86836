"""The step ``container-image``: an archive of the control node reaches containerd on a full host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubexm_exec.step import ForecastState, StepFailed
from kubexm_exec.testing import StepTest
from tests.lab import programs
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
FUNCTIONS = (Path(__file__).parent / "machines" / "images.sh").read_text()
NEEDED = ["containerd", "ctr"]


@pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED))
def test_an_archive_of_the_control_node_is_imported_once(machine: Machine, tmp_path: Path) -> None:
    programs.bring(machine, NEEDED)
    archive = tmp_path / "app.tar"
    machine.sh(FUNCTIONS + "store; image /srv/a.tar registry.example/app:1 one")
    try:
        archive.write_bytes((machine.root / "srv/a.tar").read_bytes())
        params = {"localSrc": "app.tar", "address": "/srv/ctd/c.sock"}
        with StepTest(tmp_path, "container-image", params, host=machine.host()) as step:
            assert step.forecast().state is ForecastState.CHANGE
            result = step.run()
            assert list(result.outputs["images"]) == ["registry.example/app:1"]
            assert machine.sh(FUNCTIONS + "images").split() == ["registry.example/app:1"]
            assert step.forecast().state is ForecastState.SATISFIED
        archive.write_text("no archive")
        test = StepTest(tmp_path, "container-image", params, host=machine.host())
        with test as step, pytest.raises(StepFailed, match="it is no tar archive"):
            step.forecast()
    finally:
        machine.sh(FUNCTIONS + "end")

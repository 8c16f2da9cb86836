"""The step type ``reboot`` on full hosts that really boot, and what it refuses to do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine


def await_boot(machine: Machine, before: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        # Between two boots there is nobody to ask.
        with suppress(AssertionError, OSError, subprocess.SubprocessError):
            if machine.boot_id() != before:
                break
    machine.wait()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def make(machine: Machine | None, with_: dict[str, Any], **host: Any) -> StepTest:
        where = None if machine is None else machine.host("here", **host)
        made = StepTest(tmp_path, "reboot", with_, timeout=120, host=where)
        request.addfinalizer(made.close)
        return made

    return make


def test_the_machine_that_kubexm_runs_on_is_refused(world: Any) -> None:
    for act in (world(None, {}).forecast, world(None, {"ifFile": "/"}).run):
        with pytest.raises(StepFailed, match="here is the machine that kubexm itself runs on") as caught:
            act()
        assert "by hand" in caught.value.hint


@pytest.mark.xdist_group("machines")
def test_a_host_is_back_with_another_boot_id_and_its_facts_are_new(
    world: Any, machines: Callable[[int], list[Machine]]
) -> None:
    [machine] = machines(1)
    machine.sh("touch /run/reboot-required; echo old >/run/kubexm-old")
    made = world(machine, {"ifFile": "/run/reboot-required", "readyWhen": "systemctl is-active --quiet ssh"})
    facts = made.runtime.facts("here")
    before = machine.boot_id()
    assert facts["bootId"] == before
    forecast = made.forecast()
    assert (forecast.state, forecast.message) == (ForecastState.CHANGE, "would reboot")
    assert machine.boot_id() == before
    result = made.run()
    assert result.changed
    assert result.outputs["rebooted"] is True
    assert result.outputs["bootId"] == machine.boot_id() != before
    assert result.outputs["seconds"] > 0
    assert made.runtime.facts("here")["bootId"] == machine.boot_id()
    # The second time there is nothing to do: what asked for it has gone with the boot.
    again = made.forecast()
    assert (again.state, again.message) == (ForecastState.SATISFIED, "/run/reboot-required does not exist")
    assert again.outputs == {"rebooted": False, "bootId": machine.boot_id(), "seconds": 0.0}


@pytest.mark.xdist_group("machines")
def test_a_reboot_that_an_earlier_attempt_began_is_not_begun_again(
    world: Any, machines: Callable[[int], list[Machine]]
) -> None:
    [machine] = machines(1)
    before = machine.boot_id()
    # A machine may be back sooner than a step can look: this one takes its time.
    machine.sh("printf '[Service]\\nExecStartPre=/bin/sleep 5\\n' >/etc/systemd/system/ssh.service.d/slow.conf")
    made = world(machine, {"timeout": "1s"})
    with pytest.raises(StepFailed, match=r"the host is not back 1.0?s after its reboot; last seen: ") as caught:
        made.run()
    assert "`timeout`" in caught.value.hint
    await_boot(machine, before)
    now = machine.boot_id()
    result = made.run()
    assert (result.changed, result.message) == (True, "it has already rebooted")
    assert machine.boot_id() == now


@pytest.mark.xdist_group("machines")
def test_what_a_host_says_that_does_not_want_to_reboot_is_told(world: Any, machine: Machine) -> None:
    before = machine.boot_id()
    machine.sh("printf '#!/bin/sh\\necho not today >&2\\nexit 3\\n' >/usr/local/sbin/shutdown")
    machine.sh("chmod 755 /usr/local/sbin/shutdown")
    try:
        with pytest.raises(StepFailed, match=r"the host refuses to reboot: not today \(exit code 3\)"):
            world(machine, {"timeout": "60s"}).run()
        assert machine.boot_id() == before
    finally:
        machine.sh("rm /usr/local/sbin/shutdown /run/kubexm-reboot.*")


@pytest.mark.xdist_group("machines")
def test_a_reboot_that_is_not_needed_does_not_happen(world: Any, machine: Machine) -> None:
    before = machine.boot_id()
    for with_, why in (
        ({"ifFile": "/run/reboot-required"}, "/run/reboot-required does not exist"),
        ({"onlyIf": "false"}, "the command in `onlyIf` did not succeed"),
    ):
        made = world(machine, with_)
        assert (made.forecast().state, made.forecast().message) == (ForecastState.SATISFIED, why)
        result = made.run()
        assert (result.changed, result.message) == (False, why)
    assert machine.boot_id() == before

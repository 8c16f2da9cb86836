"""Every case in machines/: a step on a full host, its forecast, what it does, that it does it once, and its undo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec.testing import StepTest
from tests.lab import programs
from tests.lab.machines import Machine
from tests.steps import trees
from tests.steps.play import play

CASES = Path(__file__).parent / "machines"
KEYS = {
    "step", "needs", "functions", "setup", "local", "prepare", "with", "sensitive", "runs", "probe", "forecast",
    "result", "after", "again", "undo", "fails", "cleanup", "shown", "meddle",
}  # fmt: skip


# What cases work in, and must leave as it was: the machine is the next one's too.
_GROUND = r"""
find /srv /mnt /opt /home /tmp -mindepth 1 -maxdepth 2 ! -path '/tmp/.*' ! -path '/tmp/systemd-private-*'
grep -E '^[^ ]+ /(srv|mnt|opt|home|tmp|etc)' /proc/mounts || :
places='/etc /root /usr/local /usr/share/ca-certificates /usr/share/keyrings /var/spool'
find $places -xdev -type f ! -name '*-' -exec sha256sum {} +
find $places -xdev -type l -printf '%p -> %l\n'
dpkg-query -W
cat /proc/sys/kernel/hostname
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
    # Programs that no package of the image brings.
    needed = case.get("needs", [])
    if why := programs.missing(needed):
        pytest.skip(why)
    trees.make(tmp_path, case.get("local", {}))
    world = StepTest(
        tmp_path, case["step"], case["with"], sensitive=case.get("sensitive", False), host=machine.host(), timeout=120
    )
    programs.bring(machine, needed)
    found = ground(machine)
    functions = (CASES / case["functions"]).read_text("utf-8") if "functions" in case else ""
    try:
        # What many cases begin with is a script beside them; its functions are there for `prepare`.
        setup = (CASES / case["setup"]).read_text("utf-8") if "setup" in case else ""
        machine.sh(functions + setup + case.get("prepare", ""))
        play(case, world, Probed(machine, case["probe"], functions))
    finally:
        world.close()
        machine.sh(functions + case.get("cleanup", ""))
    left = ground(machine) ^ found
    assert not left, "the case leaves something behind, or takes something away: mend that in `cleanup`"


def ground(machine: Machine) -> set[str]:
    """What cases share, one line a thing."""
    return set(machine.sh(_GROUND).splitlines())


class Probed:
    """What a case looks at: what its probe prints on the machine."""

    undo_is_due = False

    def __init__(self, machine: Machine, probe: str, functions: str = "") -> None:
        self._machine = machine
        self._functions = functions
        """A piece of shell before each script of the case."""
        self._probe = probe

    def state(self) -> str:
        return self._machine.sh(self._functions + self._probe).strip()

    exact = state

    def meddle(self, case: Mapping[str, Any], before: Any) -> bool:
        """Run the case's own script: what somebody else could do to that which the run left."""
        if "meddle" not in case:
            return False
        self._machine.sh(self._functions + case["meddle"])
        return True

    def check(self, case: Mapping[str, Any], before: Any) -> None:
        assert self.state() == case.get("after", before if case.get("fails") else "").strip()

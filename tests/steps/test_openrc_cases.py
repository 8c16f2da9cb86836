"""The cases in openrc/: `service` with the real openrc, on a full host whose systemd is hidden from the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec import testing
from kubexm_exec.connectors.base import Command, Connector, OnOutput
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine
from tests.steps.play import play
from tests.steps.test_machine_cases import Probed

pytestmark = pytest.mark.xdist_group("machines")

CASES = Path(__file__).parent / "openrc"
# What openrc makes of /run when it boots a host.
STARTED = """
for d in starting started stopping inactive wasinactive failed hotplugged daemons options exclusive scheduled; do
  mkdir -p "/run/openrc/$d"
done
echo default >/run/openrc/softlevel
"""
SERVICE = """
cat >/etc/init.d/kxo <<'X'
#!/sbin/openrc-run
extra_started_commands="reload"
start() {
  if [ -e /tmp/kxo.broken ]; then echo no such port >>/var/log/kxo.log; return 1; fi
  start-stop-daemon --start --background --make-pidfile --pidfile /run/kxo.pid --exec /bin/sleep -- 1000
}
stop() { start-stop-daemon --stop --retry 5 --remove-pidfile --pidfile /run/kxo.pid; }
reload() { echo again >>/tmp/kxo.reloads; }
X
chmod +x /etc/init.d/kxo
"""
PROBE = """
exec 2>/dev/null
rc-service kxo status | sed 's/^.*status/status/'
pgrep -F /run/kxo.pid >/dev/null && echo runs
cd /etc/runlevels; ls -d */kxo || :
"""
GONE = """
rc-service -q kxo stop; rm -rf /etc/init.d/kxo /etc/runlevels/*/kxo /tmp/kxo.* /run/kxo.pid /var/log/kxo.log
"""


class WithoutSystemd(SshConnector):
    """A host where commands find no systemd: what it tells about itself is that openrc is there."""

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        hide = 'mount -t tmpfs hidden /run/systemd && exec "$@"'
        argv = ("unshare", "-m", "sh", "-c", hide, "sh", *command.argv)
        return super().run(replace(command, argv=argv), deadline=deadline, cancel=cancel, on_output=on_output)


class OnlyThat:
    """A registry that knows one connector, whatever it is asked for."""

    def load(self, name: str) -> Callable[..., Connector]:
        return WithoutSystemd

    def names(self) -> list[str]:
        return ["ssh"]


@pytest.fixture
def openrc(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(testing, "connector_registry", OnlyThat)
    machine.sh(STARTED + SERVICE)
    yield machine
    machine.sh(GONE + "rm -rf /run/openrc", check=False)


def world(machine: Machine, base: Path, **params: Any) -> StepTest:
    return StepTest(base, "service", params, host=machine.host(), timeout=60)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_service_does_with_openrc_what_its_case_says(path: Path, openrc: Machine, tmp_path: Path) -> None:
    case = {"step": "service", "probe": PROBE, **YAML(typ="safe").load(path)}
    made = world(openrc, tmp_path, **case["with"])
    try:
        openrc.sh(case.get("prepare", ""))
        play(case, made, Probed(openrc, case["probe"]))
    finally:
        made.close()


def test_a_service_that_does_not_start_is_told_with_its_log(openrc: Machine, tmp_path: Path) -> None:
    openrc.sh("touch /tmp/kxo.broken")
    made = world(openrc, tmp_path, name="kxo", state="started")
    with pytest.raises(StepFailed, match="start kxo: ") as caught:
        made.run()
    made.close()
    assert "no such port" in caught.value.stderr
    assert "rc-service kxo status" in caught.value.hint

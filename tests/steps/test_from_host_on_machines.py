"""``http`` and ``wait`` from a full host: they reach what listens on that host alone, as its own users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
PORT = 8099
URL = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def served(machine: Machine) -> Iterator[Machine]:
    """A machine with a web server that only the machine itself can reach."""
    machine.sh("mkdir -p /srv/kx-www && printf 'hello\\n' >/srv/kx-www/page")
    machine.sh(f"systemd-run -q --unit=kx-httpd -p Type=forking busybox httpd -p 127.0.0.1:{PORT} -h /srv/kx-www")
    yield machine
    machine.sh("systemctl stop kx-httpd; rm -rf /srv/kx-www")


def world(folder: Path, machine: Machine, kind: str, **with_: Any) -> StepTest:
    return StepTest(folder, kind, with_, host=machine.host())


def test_a_host_asks_what_only_it_can_reach(served: Machine, tmp_path: Path) -> None:
    here = world(tmp_path, served, "http", url=f"{URL}/page", **{"from": "host"})
    forecast = here.forecast()
    assert forecast.state is ForecastState.SATISFIED
    assert (forecast.outputs["status"], forecast.outputs["body"]) == (200, "hello\n")
    with pytest.raises(StepFailed, match="status 404"):
        world(tmp_path, served, "http", url=f"{URL}/none", **{"from": "host"}).run()
    with pytest.raises(StepFailed, match="connection refused"):
        world(tmp_path, served, "http", url=f"{URL}/page", timeout="5s").run()
    here.close()


def test_a_host_waits_for_its_own_ports_and_pages(served: Machine, tmp_path: Path) -> None:
    for what in ({"port": PORT}, {"url": f"{URL}/page"}):
        step = world(tmp_path, served, "wait", **what, **{"from": "host"})
        assert step.forecast().state is ForecastState.SATISFIED, what
        step.close()
    closed = world(tmp_path, served, "wait", port=PORT + 1, deadline="1s", interval="100ms", **{"from": "host"})
    with pytest.raises(StepFailed, match=rf"port 127.0.0.1:{PORT + 1} from the host; last seen: connection refused"):
        closed.run()
    closed.close()


def test_another_user_of_the_host_asks_too(served: Machine, tmp_path: Path) -> None:
    host = replace(served.host(), options={**served.host().options, "become": {"user": "daemon", "method": "su"}})
    step = StepTest(
        tmp_path, "http", {"url": f"{URL}/page", "from": "host", "headers": {"Authorization": "x"}}, host=host
    )
    assert step.forecast().outputs["body"] == "hello\n"
    step.close()

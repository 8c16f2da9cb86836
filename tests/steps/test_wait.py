"""The step ``wait``: each thing it can wait for, what was seen last, and how it ends early."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.model.events import ACTION_PROGRESS, Event
from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_steps.wait import WaitParams
from tests.steps.server import serve


def world(tmp_path: Path, **more: Any) -> StepTest:
    options = {key: more.pop(key) for key in ("address", "timeout", "sensitive") if key in more}
    return StepTest(tmp_path, "wait", {"interval": "20ms", "deadline": "20s", **more}, **options)


def after_the_first_look(waits: StepTest, then: Callable[[], object]) -> None:
    """Do something as soon as it has looked in vain."""
    done = threading.Event()

    def listen(event: Event) -> None:
        if event.kind == ACTION_PROGRESS and not done.is_set():
            done.set()
            then()

    waits.runtime.bus.subscribe(listen)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_what_is_so_already_is_satisfied(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    forecast = world(tmp_path, file=f"{tmp_path}/there").forecast()
    assert (forecast.state, dict(forecast.outputs)) == (ForecastState.SATISFIED, {"seconds": 0.0})


def test_what_is_not_so_yet_is_unknown_and_says_what_is_seen(tmp_path: Path) -> None:
    forecast = world(tmp_path, file=f"{tmp_path}/there").forecast()
    assert forecast.state is ForecastState.UNKNOWN
    assert forecast.message == f"waits for file {tmp_path}/there: it does not exist"


def test_it_goes_on_when_the_file_comes(tmp_path: Path) -> None:
    waits = world(tmp_path, file=f"{tmp_path}/there")
    after_the_first_look(waits, (tmp_path / "there").touch)
    result = waits.run()
    assert result.changed is False
    assert result.outputs["seconds"] > 0


def test_it_goes_on_when_the_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    waits = world(tmp_path, file=f"{tmp_path}/there", state="absent")
    after_the_first_look(waits, (tmp_path / "there").unlink)
    assert waits.run().changed is False


def test_it_goes_on_when_the_port_opens(tmp_path: Path) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    waits = world(tmp_path, port=listener.getsockname()[1])
    after_the_first_look(waits, listener.listen)
    assert waits.run().message.startswith(f"port 127.0.0.1:{listener.getsockname()[1]} after ")
    listener.close()


def test_the_hosts_own_address_is_tried(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
        assert world(tmp_path, port=port, address="127.0.0.2").forecast().state is ForecastState.SATISFIED
        assert world(tmp_path, port=port, host="127.0.0.2").forecast().state is ForecastState.SATISFIED
        assert world(tmp_path, port=port).forecast().state is ForecastState.UNKNOWN


def test_it_goes_on_when_the_port_is_closed(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    waits = world(tmp_path, port=listener.getsockname()[1], state="absent")
    after_the_first_look(waits, listener.close)
    assert waits.run().changed is False


def test_it_goes_on_when_the_url_answers_well(tmp_path: Path) -> None:
    with serve() as site:
        waits = world(tmp_path, url=site.url("/ready"), status=[204])
        after_the_first_look(waits, lambda: site.pages.update({"/ready": (204, {}, b"")}))
        assert waits.run().changed is False
        assert len(site.asked) >= 2


def test_it_goes_on_when_the_command_succeeds(tmp_path: Path) -> None:
    for command in (["test", "-e", f"{tmp_path}/x"], f"[ -e {tmp_path}/x ]"):
        (tmp_path / "x").unlink(missing_ok=True)
        waits = world(tmp_path, command=command)
        after_the_first_look(waits, (tmp_path / "x").touch)
        assert waits.run().changed is False


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"file": "/kx/missing"}, "waited 50ms for file /kx/missing; last seen: it does not exist"),
        ({"file": "/tmp", "state": "absent"}, "waited 50ms for file /tmp to be gone; last seen: it still exists"),
        ({"command": "echo why >&2; exit 3"}, "last seen: exit code 3: why"),
    ],
)
def test_after_the_deadline_it_says_what_was_seen_last(tmp_path: Path, what: dict[str, Any], message: str) -> None:
    with pytest.raises(StepFailed) as caught:
        world(tmp_path, **what, deadline="50ms").run()
    assert caught.value.message.endswith(message)
    assert "longer `deadline`" in caught.value.hint


def test_a_closed_port_and_a_bad_status_are_seen(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="last seen: connection refused"):
        world(tmp_path, port=free_port(), deadline="50ms").run()
    with serve() as site, pytest.raises(StepFailed, match="last seen: status 404"):
        world(tmp_path, url=site.url(), deadline="50ms").run()


def test_cancel_ends_the_waiting(tmp_path: Path) -> None:
    waits = world(tmp_path, file=f"{tmp_path}/x", interval="1h", deadline="2h")
    after_the_first_look(waits, lambda: threading.Thread(target=waits.cancel.set).start())
    with pytest.raises(CommandCancelled):
        waits.run()


def test_the_steps_timeout_ends_the_waiting(tmp_path: Path) -> None:
    with pytest.raises(CommandTimedOut):
        world(tmp_path, file=f"{tmp_path}/x", interval="1h", deadline="2h", timeout=0.2).run()


def test_a_sensitive_command_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        world(tmp_path, command="echo s3cret >&2; false", deadline="10ms", sensitive=True).run()
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "exactly one of port, file, url and command, and none is given"),
        ({"port": 1, "file": "/x"}, "not port and file"),
        ({"file": "/x", "host": "h"}, "host goes with port only"),
        ({"command": "x", "state": "absent"}, "port and file only"),
        ({"command": []}, "the command is empty"),
        ({"port": 70000}, "65535"),
        ({"file": "relative"}, "starts with"),
        ({"url": "ftp://x"}, "http://"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WaitParams.model_validate(wrong)

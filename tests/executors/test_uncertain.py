"""A connection that drops in the middle of a step: the host is looked at, and nothing is run twice blindly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import OutcomeUnknown
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, FailurePolicy
from kubexm_exec.model.result import FailureKind, SkipReason, Status
from kubexm_exec.plugins import step_registry
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext
from tests.executors.kit import Bench, Ran, graph, node
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

STEPS = {name: step_registry().load(name) for name in ("command", "script", "file")}


class Dropping(LocalConnector):
    """Loses its connection after each command that holds a word, as often as it was told."""

    drops: dict[str, int]

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        done = super().run(command, deadline=deadline, cancel=cancel, on_output=on_output)
        for word, left in self.drops.items():
            if left and word in command.display():
                self.drops[word] -= 1
                raise OutcomeUnknown("host h1: the connection dropped during a command; its outcome is unknown")
        return done


def run(
    with_: dict[str, Any],
    kind: str = "command",
    *,
    drops: dict[str, int],
    attempts: int = 3,
    more: Sequence[ExecutionNode] = (),
    policy: FailurePolicy = FailurePolicy.CONTINUE,
    repeatable: bool | None = None,
) -> Ran:
    connector = type("Once", (Dropping,), {"drops": dict(drops)})
    bench = Bench(steps={**STEPS, **BLIND}, connectors={"local": connector})
    first = node("a", kind, with_=with_, attempts=attempts)
    first = replace(first, policy=replace(first.policy, repeatable=repeatable))
    return bench.run(graph(first, *more, policy=policy))


class Blind(Step[Params]):
    """Has no precheck of its own."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        ctx.runner.run(["sh", "-c", "echo x >> /dev/null # drop"])
        return Result()


class Repeatable(Blind):
    """Says that it may be run again."""

    repeatable = True


class Undecided(Blind):
    """Cannot even say whether it may be run again."""

    def is_repeatable(self) -> bool:
        raise RuntimeError("no idea")


BLIND = {"blind": Blind, "repeatable": Repeatable, "undecided": Undecided}


def test_what_the_host_shows_as_done_is_a_success_that_changed_something(tmp_path: Path) -> None:
    made = tmp_path / "made"
    ran = run({"shell": f"echo x >> {made}", "creates": str(made)}, drops={"echo x >": 1})
    host = ran.host("a")
    assert (host.status, host.changed, host.attempts) == (Status.SUCCESS, True, 2)
    assert host.message == f"the connection dropped; the host shows that it was done: {made} exists"
    assert not host.unknown
    assert made.read_text() == "x\n"


def test_what_the_host_shows_as_not_done_is_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ran = run({"shell": f"echo x >> {log}", "unless": f"[ $(wc -l < {log}) -ge 2 ]"}, drops={"echo x": 1})
    host = ran.host("a")
    assert (host.status, host.changed, host.attempts, host.message) == (Status.SUCCESS, True, 2, "")
    assert log.read_text() == "x\nx\n"


@pytest.mark.parametrize("kind", ["command", "script"])
def test_a_command_of_which_the_host_shows_nothing_is_never_run_a_second_time(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "log"
    key = "shell" if kind == "command" else "content"
    drops = {"echo x": 1} if kind == "command" else {"/script": 1}
    host = run({key: f"echo x >> {log}"}, kind, drops=drops).host("a")
    assert (host.status, host.kind, host.attempts) == (Status.FAILED, FailureKind.UNREACHABLE, 1)
    assert host.unknown
    assert host.to_json()["outcomeUnknown"] is True
    assert "its outcome is unknown" in host.message
    assert "check on the host whether it was done" in host.hint
    assert "`creates`" in host.hint
    assert ("echo x" if kind == "command" else "/script") in host.command
    assert log.read_text() == "x\n"


def test_a_step_type_without_a_precheck_is_never_run_a_second_time() -> None:
    host = run({}, "blind", drops={"drop": 1}).host("a")
    assert (host.status, host.attempts, host.unknown) == (Status.FAILED, 1, True)


def test_a_repeatable_command_is_simply_run_again_and_the_record_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    host = run({"shell": f"echo x >> {log}"}, drops={"echo x": 1}, repeatable=True).host("a")
    assert (host.status, host.changed, host.attempts, host.unknown) == (Status.SUCCESS, True, 2, False)
    assert host.repeated
    assert host.to_json()["repeated"] is True
    assert log.read_text() == "x\nx\n"


def test_a_step_type_says_itself_that_it_is_repeatable_and_the_spec_may_say_otherwise() -> None:
    host = run({}, "repeatable", drops={"drop": 1}).host("a")
    assert (host.status, host.attempts, host.repeated) == (Status.SUCCESS, 2, True)
    host = run({}, "repeatable", drops={"drop": 1}, repeatable=False).host("a")
    assert (host.status, host.attempts, host.unknown, host.repeated) == (Status.FAILED, 1, True, False)
    assert "check on the host whether it was done" in host.hint


def test_a_step_type_that_fails_to_say_whether_it_is_repeatable_is_not_run_again() -> None:
    host = run({}, "undecided", drops={"drop": 1}).host("a")
    assert (host.status, host.attempts, host.unknown) == (Status.FAILED, 1, True)
    assert "its outcome is unknown" in host.message


def test_what_was_not_repeatable_for_its_author_is_not_what_a_look_at_the_host_decides(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with_ = {"shell": f"echo x >> {made}", "creates": str(made)}
    host = run(with_, drops={"echo x >": 1}, repeatable=False).host("a")
    assert (host.status, host.changed, host.repeated) == (Status.SUCCESS, True, False)
    assert made.read_text() == "x\n"


def test_the_last_attempt_of_something_repeatable_says_that_nobody_has_to_confirm_it(tmp_path: Path) -> None:
    with_ = {"shell": f"echo x >> {tmp_path}/log"}
    host = run(with_, drops={"echo x": 1}, attempts=1, repeatable=True).host("a")
    assert (host.status, host.unknown) == (Status.FAILED, True)
    assert host.hint.startswith("run it again: it is repeatable")


def test_a_command_that_only_asks_is_simply_asked_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    host = run({"shell": f"echo x >> {log}", "changedWhen": False}, drops={"echo x": 1}).host("a")
    assert (host.status, host.changed, host.attempts) == (Status.SUCCESS, False, 2)


def test_a_connection_that_drops_in_a_precheck_leaves_no_doubt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    host = run({"shell": f"echo x >> {log}", "unless": "false # guard"}, drops={"guard": 1}).host("a")
    assert (host.status, host.attempts, host.unknown) == (Status.SUCCESS, 2, False)
    assert log.read_text() == "x\n"


def test_without_another_attempt_the_record_says_that_nobody_knows(tmp_path: Path) -> None:
    made = tmp_path / "made"
    host = run({"shell": f"touch {made}", "creates": str(made)}, drops={"touch": 1}, attempts=1).host("a")
    assert (host.status, host.kind, host.unknown) == (Status.FAILED, FailureKind.UNREACHABLE, True)
    assert "run it again: it checks the host first" in host.hint


def test_a_doubt_outlives_attempts_that_could_not_look(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The second attempt drops before its precheck says anything, the third one looks.
    drops = {"echo x": 1, "guard": 0}
    connector = type("Twice", (Dropping,), {"drops": drops})

    def on_event(event: Event, runtime: Runtime) -> None:
        if event.kind == "action.retry" and event.data["attempt"] == 1:
            drops["guard"] = 1

    bench = Bench(steps=STEPS, connectors={"local": connector}, on_event=on_event)
    with_ = {"shell": f"echo x >> {log}", "unless": f"grep -q x {log} # guard"}
    ran = bench.run(graph(node("a", "command", with_=with_, attempts=3)))
    host = ran.host("a")
    assert (host.status, host.changed, host.attempts) == (Status.SUCCESS, True, 3)
    assert host.message.startswith("the connection dropped; the host shows that it was done")
    assert log.read_text() == "x\n"


def test_what_was_done_before_the_drop_can_be_undone(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with_ = {"shell": f"touch {made}", "creates": str(made), "undo": {"argv": ["rm", str(made)]}}
    fails = node("b", with_={"fail": 9}, after=["a"])
    ran = run(with_, drops={"touch": 1}, more=[fails], policy=FailurePolicy.ROLLBACK)
    assert ran.host("a").status is Status.SUCCESS
    assert ran.host("a").undo == "undone"
    assert not made.exists()


def test_a_forecast_says_by_itself_whether_it_decides() -> None:
    assert Forecast.change("x").decides
    assert Forecast.satisfied("x").decides
    assert not Forecast.always("x").decides
    assert not Forecast.unknown("x").decides


# On a real sshd


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshHost]:
    if SSHD is None:
        pytest.skip(MISSING)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with ssh_host(tmp_path / "box") as host:
        yield host


def over_ssh(box: SshHost, with_: dict[str, Any], cut: Callable[[], None], **policy: Any) -> Ran:
    """Run a command that is cut off as soon as it has said something."""
    said = threading.Event()

    def on_event(event: Event, runtime: Runtime) -> None:
        if event.kind == "action.output":
            said.set()

    def wait_and_cut() -> None:
        assert said.wait(60)
        cut()

    cutter = threading.Thread(target=wait_and_cut)
    cutter.start()
    made: ExecutionGraph = graph(node("a", "command", with_=with_, **policy))
    made = replace(made, hosts={"h1": box.host("h1")})
    ran = Bench(steps=STEPS, connectors={"ssh": SshConnector}, on_event=on_event).run(made)
    cutter.join()
    return ran


def test_a_real_connection_that_is_cut_off_is_opened_again_to_look(box: SshHost) -> None:
    made = box.prefix / "made"
    with_ = {"shell": f"echo x >> {made}; echo up; sleep 60", "creates": str(made)}
    host = over_ssh(box, with_, box.drop_connections, attempts=2).host("a")
    assert (host.status, host.changed, host.attempts) == (Status.SUCCESS, True, 2), host
    assert "the host shows that it was done" in host.message
    assert made.read_text() == "x\n"


def test_a_real_connection_that_is_cut_off_leaves_a_plain_command_unknown(box: SshHost) -> None:
    log = box.prefix / "log"
    host = over_ssh(box, {"shell": f"echo x >> {log}; echo up; sleep 60"}, box.drop_connections, attempts=3).host("a")
    assert (host.kind, host.attempts, host.unknown) == (FailureKind.UNREACHABLE, 1, True)
    assert "host h1: the connection dropped during a command" in host.message
    assert log.read_text() == "x\n"


@pytest.mark.parametrize("more", [{}, {"stdin": "x"}, {"pty": True}], ids=["shell", "input", "terminal"])
def test_what_still_runs_when_the_connection_is_back_is_ended_and_only_then_run_again(
    box: SshHost, more: dict[str, Any]
) -> None:
    made, pids, twice = (box.prefix / name for name in ("made", "pids", "twice"))
    # The first one goes on for long, whatever becomes of its terminal; whoever comes later looks whether it does.
    body = f"""trap '' HUP
        for p in $(cat {pids} 2>/dev/null); do grep -qs '^State:.[^ZX]' /proc/$p/status && echo $p >> {twice}; done
        echo $$ >> {pids}; echo ran
        [ $(wc -l < {pids}) -gt 1 ] || sleep 70
        touch {made}"""
    with_ = {"shell": body, "creates": str(made), **more}
    host = over_ssh(box, with_, box.drop_connections, attempts=4).host("a")
    assert (host.status, host.changed, host.attempts, host.unknown) == (Status.SUCCESS, True, 2, False), host
    assert host.stdout == "ran\n"
    assert len(pids.read_text().split()) == 2
    assert not twice.exists()
    assert made.exists()


def test_a_host_that_does_not_come_back_stays_unknown(box: SshHost) -> None:
    made = box.prefix / "made"
    with_ = {"shell": f"echo x >> {made}; echo up; sleep 60", "creates": str(made)}
    host = over_ssh(box, with_, box.stop, attempts=2).host("a")
    assert (host.kind, host.attempts, host.unknown) == (FailureKind.UNREACHABLE, 2, True)
    assert "cannot be reached" in host.message
    assert "the outcome of the attempt before is unknown, because its connection dropped" in host.message


def test_a_satisfied_step_is_still_skipped_when_nothing_dropped(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    host = run({"argv": ["true"], "creates": str(tmp_path / "made")}, drops={}).host("a")
    assert (host.status, host.reason) == (Status.SKIPPED, SkipReason.PRECHECK)

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable

import click
import pytest

from kubexm_exec.console import make_console
from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.result import Status
from tests.console import golden, scenario
from tests.console.scenario import failed_run, good_run, odd_run, rolled_back_run
from tests.console.script import RUN, START, Script, graph, step

LINE = re.compile(r"\d\d:\d\d:\d\d  \S+ +\S+ +\S+(  .*)?\n")


class Writes(io.StringIO):
    """A stream that remembers every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return super().write(text)


def shown(run: Script, *, kind: str = "plain", color: bool = False, verbose: int = 0) -> str:
    stream = io.StringIO()
    console = make_console(kind, run.graph, stream, color=color, verbose=verbose)
    for event in run.events:
        console(event)
    console.close(run.result)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["failed_run", "good_run", "odd_run", "rolled_back_run"])
def test_run_as_plain_lines(name: str) -> None:
    run: Script = getattr(scenario, name)()
    run.finish(Status.FAILED if run.failed else Status.SUCCESS, "23 actions")
    golden.check(f"plain-{name}", shown(run))
    golden.check(f"plain-{name}-v", shown(run, verbose=1))


def test_how_far_something_long_is_is_said_every_ten_seconds() -> None:
    run = good_run()
    node, host = "etcd/install/download", "node3"
    stream = io.StringIO()
    console = make_console("plain", run.graph, stream, color=False, verbose=0)
    console(Event(ev.ACTION_STARTED, RUN, START, node, host, {"step": "copy"}))
    for second in range(1, 26):
        data = {"message": "upload etcd", "done": second * 2e6, "total": 50e6}
        console(Event(ev.ACTION_PROGRESS, RUN, START + second, node, host, data))
    lines = [re.sub(r"^\S+ +", "", line) for line in stream.getvalue().splitlines()]
    assert [" ".join(line.split()) for line in lines] == [
        "still etcd/install/download node3 upload etcd (22.0 of 50.0 MB)",
        "still etcd/install/download node3 upload etcd (42.0 of 50.0 MB)",
    ]


@pytest.mark.parametrize("make", [failed_run, good_run, odd_run, rolled_back_run])
@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_every_line_has_time_word_node_and_host(make: Callable[[], Script], verbose: int) -> None:
    text = shown(make(), verbose=verbose)
    assert text
    for line in text.splitlines(keepends=True):
        assert LINE.fullmatch(line), line


@pytest.mark.parametrize("make", [failed_run, good_run, odd_run, rolled_back_run])
def test_colour_adds_nothing_but_colour(make: Callable[[], Script]) -> None:
    coloured = shown(make(), color=True, verbose=2)
    assert coloured != shown(make(), verbose=2)
    assert click.unstyle(coloured) == shown(make(), verbose=2)


def test_without_colour_no_output_of_a_host_can_steer_the_terminal() -> None:
    text = shown(odd_run(), verbose=2)
    assert text.replace("\n", "").isprintable()
    assert "| 100%\n" in text
    assert "|  red alert\n" in text
    assert "| txt.exe tab\n" in text


def test_quiet_keeps_only_what_went_wrong() -> None:
    lines = shown(failed_run(), kind="quiet").splitlines()
    assert len(lines) == 1
    assert "FAILED     etcd/configure/env      node2" in lines[0]
    assert shown(good_run(), kind="quiet", verbose=2) == ""


def test_gates_and_nodes_are_silent() -> None:
    run = Script(scenario.etcd_graph())
    run.say(ev.NODE_FINISHED, "etcd#end", status="Success", message="")
    run.say(ev.NODE_FINISHED, "etcd/start/unit", status="Success", message="")
    assert len(shown(run, verbose=2).splitlines()) == 1  # that the run started


def fleet_run() -> Script:
    """A run that is stopped while it is at its first step on one of twelve hosts, after another one failed."""
    hosts = [f"h{number}" for number in range(1, 13)]
    nodes = [step("m/t/a", hosts), step("m/t/b", hosts, "m/t/a"), step("m/t/c", hosts, "m/t/b")]
    run = Script(graph(nodes, hosts))
    run.do("m/t/a", *hosts[:10]).start("m/t/a", "h11", "h12").fail("m/t/a", "h12")
    run.skip("m/t/b", "m/t/a", "h12").skip("m/t/c", "m/t/a", "h12")
    run.say(ev.RUN_STOPPING, reason="cancel", message="cancelled")
    told = "Cancelled before it started"
    for node in ("m/t/b", "m/t/c"):
        run.end(node, *hosts[:11], status=Status.CANCELLED, message=told).say(
            ev.NODE_FINISHED, node, status="Cancelled"
        )
    return run.wait(1).end("m/t/a", "h11", status=Status.CANCELLED, message="cancelled while it ran")


def test_what_never_began_on_many_hosts_is_one_line_a_node_and_reason() -> None:
    lines = [line[10:] for line in shown(fleet_run()).splitlines()][11:]
    many = "Cancelled before it started; on 11 hosts: h1, h2, h3, h4, h5, + 6 more"
    assert lines == [
        "FAILED     m/t/a  h12  it said no  (0ms)",
        "stopping   -      -    cancelled",
        "skipped    m/t/b  h12  because m/t/a failed",
        f"cancelled  m/t/b  -    {many}",
        "skipped    m/t/c  h12  because m/t/a failed",
        f"cancelled  m/t/c  -    {many}",
        "cancelled  m/t/a  h11  cancelled while it ran  (1.0s)",
    ]


@pytest.mark.parametrize("ended", [True, False])
def test_what_was_held_back_is_shown_at_the_end_also_if_that_was_not_told(ended: bool) -> None:
    run = fleet_run()
    run.events = [event for event in run.events if event.kind != ev.NODE_FINISHED]
    if ended:
        run.finish(Status.CANCELLED)
    lines = [line[10:] for line in shown(run).splitlines()]
    assert [line.split()[0] for line in lines[13:]] == [
        "cancelled", "skipped", "cancelled", "skipped", "cancelled", *["end"] * ended,
    ]  # fmt: skip


def test_quiet_says_nothing_of_what_never_began() -> None:
    assert [line.split()[1] for line in shown(fleet_run(), kind="quiet").splitlines()] == ["FAILED", "stopping"]


def test_check_and_dry_run_leave_their_findings_to_the_end() -> None:
    text = shown(scenario.checked_run())
    assert [line.split()[1] for line in text.splitlines()] == ["run", "FAILED"]
    words = {line.split()[1] for line in shown(scenario.checked_run(), verbose=1).splitlines()}
    assert words == {"run", "FAILED", "ok", "differs", "unknown", "unseen", "skipped"}


def test_each_event_is_one_write_that_ends_its_line() -> None:
    stream = Writes()
    run = odd_run()
    console = make_console("plain", run.graph, stream, color=False, verbose=2)
    for event in run.events:
        before = len(stream.calls)
        console(event)
        assert len(stream.calls) - before <= 1
    assert all(call.endswith("\n") for call in stream.calls)
    assert any(call.count("\n") > 1 for call in stream.calls)


def test_lines_of_several_threads_never_interleave() -> None:
    class Slow(Writes):
        def write(self, text: str) -> int:
            for char in text:
                super().write(char)
            return len(text)

    stream = Slow()
    run = Script(scenario.etcd_graph())
    console = make_console("plain", run.graph, stream, color=False, verbose=1)

    def work(host: str) -> None:
        for number in range(50):
            text = f"{host} says {number}\n{host} says more\n"
            console(Event(ev.ACTION_OUTPUT, RUN, START, "etcd/start/unit", host, {"stream": "stdout", "text": text}))
            console.output.write(f"log of {host}\n")

    threads = [threading.Thread(target=work, args=(host,)) for host in scenario.HOSTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 * 50 * 3
    for line in lines:
        assert re.fullmatch(r"log of node\d|\S+  out +etcd/start/unit +(node\d)  \| \1 says (\d+|more)", line), line

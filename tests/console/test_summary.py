from __future__ import annotations

import shlex

import click
import pytest

from kubexm_exec.cli.typed import next_command, next_commands
from kubexm_exec.console.checkview import ForecastLog, format_params
from kubexm_exec.console.summary import render_summary
from kubexm_exec.console.text import Paint
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import FailureKind, RunMode, SkipReason, Status
from tests.console import golden, scenario
from tests.console.script import Script, graph, step

COMMAND = "kubexm-run specs/site.yaml"
COMMANDS = next_commands(COMMAND.split())


def summary(run: Script, *, status: Status | None = None, color: bool = False, width: int = 100) -> str:
    result = run.finish(status or (Status.FAILED if run.failed else Status.SUCCESS))
    log = ForecastLog()
    for event in run.events:
        log(event)
    return render_summary(run.graph, result, color=color, width=width, commands=COMMANDS, forecasts=log)


@pytest.mark.parametrize("name", ["failed_run", "good_run", "wide_run", "rolled_back_run", "checked_run", "dry_run"])
def test_end_of_a_run(name: str) -> None:
    golden.check(f"summary-{name}", summary(getattr(scenario, name)()))


@pytest.mark.parametrize("name", ["failed_run", "wide_run", "rolled_back_run", "checked_run", "dry_run"])
def test_colour_adds_nothing_but_colour(name: str) -> None:
    coloured = summary(getattr(scenario, name)(), color=True)
    assert "\x1b[" in coloured
    assert click.unstyle(coloured) == summary(getattr(scenario, name)())


def one(**more: object) -> Script:
    node: ExecutionNode = step("a/b/c", ("h1",), **more)  # type: ignore[arg-type]
    return Script(graph([node], ("h1",), "one"))


def test_last_line_of_every_end_says_what_to_type() -> None:
    for name in ("failed_run", "good_run", "wide_run", "rolled_back_run", "dry_run"):
        assert f"Next:  {COMMAND}" in summary(getattr(scenario, name)())


def test_cancelled_run_offers_to_go_on() -> None:
    run = scenario.etcd_graph()
    script = Script(run).do("prepare/os/packages")
    for node in [node.id for node in run.steps()][1:]:
        script.end(node, status=Status.CANCELLED)
    text = summary(script, status=Status.CANCELLED)
    assert "■ Cancelled  create-etcd: 23 actions on 3 hosts in 1.0s: 3 changed, 20 cancelled\n" in text
    assert text.endswith(f"Next:  {COMMAND}   continue\n")
    assert "  cancelled" in text.splitlines()[1]


def test_nothing_to_do_is_said() -> None:
    text = summary(Script(graph([], (), "empty")))
    assert "✔ Success  empty: nothing to do\n" in text


def test_failures_that_differ_are_blocks_of_their_own() -> None:
    run = Script(graph([step("a/b/c", ("h1", "h2"))], ("h1", "h2")))
    run.start("a/b/c").fail("a/b/c", "h1", message="one").fail("a/b/c", "h2", message="two")
    text = summary(run)
    assert "FAILED  a/b/c on h1 (0ms)" in text
    assert "FAILED  a/b/c on h2 (0ms)" in text


def test_failure_that_names_its_own_host_is_the_same_on_all() -> None:
    hosts = tuple(f"node{index}" for index in range(9))
    run = Script(graph([step("a/b/c", hosts)], hosts))
    run.start("a/b/c")
    for index, host in enumerate(hosts):
        run.fail("a/b/c", host, message=f"{host} at 192.0.2.{index + 1} said no")
    text = summary(run)
    assert text.count("FAILED") == 1
    assert "on 9 hosts: node0, node1, node2, node3, node4, + 4 more (0ms)" in text


def test_many_different_failures_are_folded_with_the_way_to_see_them() -> None:
    hosts = tuple(f"h{index:02d}" for index in range(50))
    run = Script(graph([step("a/b/c", hosts)], hosts))
    run.start("a/b/c")
    for index, host in enumerate(hosts):
        run.fail("a/b/c", host, message=f"problem {index}")
    text = summary(run)
    assert text.count("\nFAILED  ") == 10
    assert "40 more failures:\n  a/b/c on h10: problem 10\n" in text
    assert "+ 10 more: --result FILE writes all of them" in text


def test_skipped_because_of_it_counts_limits_too() -> None:
    run = Script(graph([step("a/b/c", ("h1",)), step("a/b/d", ("h2",))], ("h1", "h2")))
    run.start("a/b/c").fail("a/b/c").end(
        "a/b/d", status=Status.SKIPPED, reason=SkipReason.LIMIT, cause="a/b/c", message="too many"
    )
    assert "1 action on 1 host was skipped because of it: a/b/d\n" in summary(run)


def test_sensitive_step_shows_its_type_only() -> None:
    run = one(type="file", with_={"path": "/etc/secret-place"}, sensitive=True)
    text = summary(run.start("a/b/c").fail("a/b/c"))
    assert "  file\n" in text
    assert "secret-place" not in text


@pytest.mark.parametrize(
    ("with_", "line"),
    [
        ({"mode": "0600", "path": "/x"}, "  file /x\n"),
        ({"argv": ["ls", "-l", "/"]}, "  file ls -l /\n"),
        ({"shell": "one\ntwo\n"}, "  file one …\n"),
        ({"odd": 3}, "  file odd: 3\n"),
        ({}, "  file\n"),
    ],
)
def test_failure_shows_the_main_parameter(with_: dict[str, object], line: str) -> None:
    assert line in summary(one(type="file", with_=with_).start("a/b/c").fail("a/b/c"))


def test_kind_of_failure_is_said() -> None:
    run = one(attempts=2)
    run.start("a/b/c").wait(30).fail("a/b/c", kind=FailureKind.TIMED_OUT, attempts=2, message="timed out after 30s")
    assert "FAILED  a/b/c on h1 (timed out, attempt 2 of 2, 30.0s)\n" in summary(run)


def test_long_messages_commands_and_output_are_folded() -> None:
    lines = "".join(f"line {number}\n" for number in range(40))
    text = summary(one().start("a/b/c").fail("a/b/c", message=lines, command=lines, stdout=f"first\n{lines}"))
    assert "… 33 more lines" in text
    assert "  command: line 0\n           line 1\n           line 2\n           … 37 more lines\n" in text
    assert "  stdout, last 10 of 41 lines:\n    | line 30\n" in text
    assert len(text.splitlines()) < 45


def test_output_of_a_host_cannot_steer_the_terminal() -> None:
    bad = "\x1b[2J\x07\u202eevil\r\n"
    run = one(type=bad, with_={"path": bad}).start("a/b/c")
    text = summary(run.fail("a/b/c", message=bad, command=bad, stderr=bad, hint=bad))
    assert text.replace("\n", "").isprintable()


def test_node_of_a_fragment_points_to_the_step_that_returned_it() -> None:
    run = one()
    run.do("a/b/c").extend("a/b/c", step("a/b/c+more", ("h1",)))
    run.start("a/b/c+more").fail("a/b/c+more")
    known = {name: node for name, node in run.graph.nodes.items() if "+" not in name}
    result = run.finish(Status.FAILED)
    text = render_summary(run.graph.with_nodes(known.values()), result, color=False, width=100, commands=COMMANDS)
    assert "FAILED  a/b/c+more on h1 (0ms)" in text
    assert "  at specs/site.yaml:15:9\n" in text


@pytest.mark.parametrize("width", [1, 40, 60, 72])
def test_tables_drop_columns_without_content_on_a_narrow_terminal(width: int) -> None:
    text = summary(scenario.good_run(), width=width)
    head = next(line for line in text.splitlines() if "module" in line)
    assert "changed" in head
    assert ("unreachable" in head) == (width > 75)


def test_hosts_that_are_well_are_added_up_when_there_are_many() -> None:
    text = summary(scenario.wide_run())
    table = text[text.index("  host ") :]
    assert "✘ host010" in table
    assert "host050" not in table
    assert "110 more hosts" in table


def test_check_without_differences_needs_nothing_next() -> None:
    run = Script(scenario.etcd_graph(), executor="check", mode=RunMode.LOOK)
    for node in list(run.graph.steps()):
        run.satisfied(node.id)
    assert summary(run) == (
        "= 23 actions are as they should be\n"
        "Check: 0 would change, 0 unknown, 23 unchanged on 3 hosts. Nothing was changed.\n"
    )


def test_dry_run_without_a_log_shows_parameters_as_written() -> None:
    run = scenario.dry_run()
    text = render_summary(run.graph, run.finish(), color=False, width=100, commands=COMMANDS)
    assert "{{ host.name }}" in text
    assert "/etc/key" not in text
    assert "Dry run: 7 actions on 2 hosts. No host was contacted.\n" in text


def test_parameters_read_as_yaml_would() -> None:
    params = {"mode": "0644", "word": "yes", "text": "plain", "empty": "", "list": [1, "a"], "none": None, "flag": True}
    assert list(format_params(params, Paint(False), "  ")) == [
        '  mode: "0644"',
        '  word: "yes"',
        "  text: plain",
        '  empty: ""',
        '  list: [1, "a"]',
        "  none: null",
        "  flag: true",
    ]


def test_the_hosts_that_failed_take_the_place_of_those_that_were_asked_for() -> None:
    run = one().start("a/b/c").fail("a/b/c", message="no")
    for typed in ("kubexm-run a.yaml --limit 'all hosts'", "kubexm-run a.yaml --limit=web*"):
        text = render_summary(
            run.graph, run.finish(), color=False, width=100, commands=next_commands(shlex.split(typed))
        )
        assert "kubexm-run a.yaml --limit h1 -v " in text, text


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("kubexm-run a.yaml", "kubexm-run a.yaml"),
        ("kubexm-run a.yaml --executor check -vv --output=json -e x=1", "kubexm-run a.yaml -e x=1"),
        ("kubexm-run --executor=check --result - a.yaml -v --verbose", "kubexm-run a.yaml"),
        ("kubexm-run a.yaml --limit node1", "kubexm-run a.yaml --limit node1"),
    ],
)
def test_next_command_leaves_out_what_was_for_this_time(typed: str, again: str) -> None:
    assert next_command(typed.split()) == again


def test_next_command_quotes_what_needs_it() -> None:
    assert next_command(["kubexm-run", "-e", "title=a b"]) == "kubexm-run -e 'title=a b'"

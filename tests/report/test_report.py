from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.model.events import ACTION_FORECAST, ACTION_OUTPUT, GRAPH_EXTENDED, LOG, Event
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode
from kubexm_exec.model.result import GraphExecutionResult, HostResult, NodeResult, RunMode, SkipReason, Status
from kubexm_exec.report import MOST as MOST_EVENTS
from kubexm_exec.report import ReportEvents, extended, render_report
from kubexm_exec.report.critical import critical_path
from kubexm_exec.report.failures import consequences, failures
from kubexm_exec.report.gantt import MOST, ROWS, STATIC, chart, ticks
from kubexm_exec.report.logs import BUDGET, ENTRIES, logs_data
from kubexm_exec.report.tally import node_outcome, tallies
from tests.draw.graphs import cluster, small, wide
from tests.draw.test_formats import NASTY, nasty
from tests.draw.test_page import Reader, digest, policy
from tests.report import runs
from tests.report.runs import START, simulate


def failed_run() -> GraphExecutionResult:
    changes: dict[tuple[str, str], runs.Change] = {
        ("etcd/configure/env", "node2"): runs.permission_denied,
        ("runtime/containerd/start", "node7"): runs.unreachable,
        ("runtime/containerd/start", "node8"): runs.unreachable,
        ("runtime/containerd/registry[1]", "node9"): runs.broke,
    }
    return simulate(cluster(), changes)


def text_of(page: str) -> str:
    """What is to be read, without what is in scripts and styles."""
    return re.sub(r"<[^>]+>", "", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL))


def test_the_header_says_status_run_time_and_counts() -> None:
    result = failed_run()
    text = text_of(render_report(cluster(), result))
    for words in ("✘ Failed", "create-cluster", "01JC8Z5S6K", "concurrent", "2025-11-16 02:00:00 UTC", "2 unreachable"):
        assert words in text


def test_a_failure_says_what_where_command_exit_code_stderr_hint_and_consequences() -> None:
    text = text_of(render_report(cluster(), failed_run()))
    for words in (
        "etcd/configure/env on node2",
        "template · site.yaml:",
        "3 attempts",
        "file /etc/etcd.env: permission denied",
        "$ install -m 0600",
        "exit code 1",
        "the last 15 of 31 lines",
        "open: permission denied",
        "→ the step has no `become`",
        "not run because of it: ",
        "Traceback (most recent call last)",
    ):
        assert words in text.replace("&#39;", "'")


def test_failures_come_first_on_the_page() -> None:
    page = render_report(cluster(), failed_run())
    order = re.findall(r'<section id="(\w+)"', page)
    assert order[:3] == ["failures", "summary", "graph"]


def test_a_good_run_has_no_section_for_what_there_is_not() -> None:
    page = render_report(small(), simulate(small()))
    assert re.findall(r'<section id="(\w+)"', page) == ["summary", "graph", "timeline", "critical", "logs"]


def test_the_same_failure_on_several_hosts_is_told_once() -> None:
    found = {failure.node: [host.host_name for host in failure.hosts] for failure in failures(failed_run())}
    assert found["runtime/containerd/start"] == ["node7", "node8"]


def test_ignored_failures_come_after_those_that_count() -> None:
    def ignored(action: HostResult, node: ExecutionNode) -> None:
        runs.permission_denied(action, node)
        action.ignored = True

    result = simulate(small(), {("greet/say/write", "node1"): ignored, ("later/tidy/remove", "node1"): runs.broke})
    assert [(one.node, one.first.ignored) for one in failures(result)] == [
        ("later/tidy/remove", False),
        ("greet/say/write", True),
    ]
    assert "✘ ignored" in text_of(render_report(small(), result))


def test_what_was_not_run_is_counted_for_the_failure_that_caused_it() -> None:
    result = simulate(small(), {("greet/say/write", "node1"): runs.permission_denied})
    kept = consequences(result)["greet/say/write"]
    assert next(iter(kept.nodes)) == "greet/say/show"
    assert kept.actions == sum(
        node.host_results[h].cause != "" for node in result.node_results.values() for h in node.host_results
    )


def test_tallies_add_up_per_module_and_per_host() -> None:
    total, modules, hosts = tallies(cluster(), failed_run())
    for column in ("ok", "changed", "unchanged", "skipped", "failed", "unreachable"):
        assert total.numbers[column] == sum(one.numbers[column] for one in modules)
        assert total.numbers[column] == sum(one.numbers[column] for one in hosts)
    assert total.numbers["unreachable"] == 2
    assert {one.name for one in modules} >= {"etcd", "hooks of the pipeline"}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (HostResult(host_name="h", status=Status.SUCCESS, changed=True), "success"),
        (HostResult(host_name="h", status=Status.SUCCESS), "unchanged"),
        (HostResult(host_name="h", status=Status.SKIPPED, reason=SkipReason.PRECHECK), "unchanged"),
        (HostResult(host_name="h", status=Status.SKIPPED, reason=SkipReason.CONDITION), "skipped"),
        (HostResult(host_name="h", status=Status.FAILED, ignored=True), "failed"),
    ],
)
def test_a_node_is_drawn_by_what_its_actions_came_to(action: HostResult, expected: str) -> None:
    node = NodeResult(node_name="n", step_name="x", status=Status.SUCCESS, host_results={"h": action})
    assert node_outcome(node) == expected


def test_a_check_shows_what_would_change_with_its_diffs_and_what_is_unknown() -> None:
    page = render_report(cluster(), runs.checked(cluster()))
    text = text_of(page)
    assert "What would change" in text
    assert "+ETCD_INITIAL_CLUSTER_STATE=&lt;b&gt;" in text
    assert "(0640 -&gt; 0600)" in text
    assert "depends on etcd/configure/env" in text
    assert "would change" in text
    assert "actions are as they should be" in text
    assert '<span class="add">' in page
    assert "Check: nothing was changed." in text


def test_a_dry_run_lists_actions_in_order_with_their_parameters_and_has_no_timeline() -> None:
    result = simulate(small(), executor="dry-run", mode=RunMode.OFFLINE)
    told = [
        Event(
            ACTION_FORECAST, "r", START, node.id, host, {"state": "change", "message": "would run", "params": {"n": i}}
        )
        for i, node in enumerate(small().steps())
        for host in node.hosts[:1]
    ]
    page = render_report(small(), result, told)
    assert "What would run" in text_of(page)
    assert "&quot;n&quot;: 4" in page
    assert 'id="timeline"' not in page
    assert "would run" in text_of(page[page.index('id="summary"') :])


def test_undo_shows_what_went_wrong_first_and_what_can_never_be_undone() -> None:
    result = simulate(small())
    result.node_results["greet/say/write"].host_results["node1"].undo = "undone"
    result.node_results["greet/say/show"].host_results["node1"].undo = "undoFailed: no such file"
    result.not_reversible = ["greet/check/read"]
    text = text_of(render_report(small(), result))
    assert text.index("undo failed: no such file") < text.index("✔ undone")
    assert "1 step cannot be undone" in text


def test_events_add_output_retries_and_the_log_of_the_run() -> None:
    result = failed_run()
    result.node_results["etcd/start/enable"].host_results["node1"].stdout = ""
    spoken = Event(
        ACTION_OUTPUT, "r", START, "etcd/start/enable", "node1", {"stream": "stdout", "text": "from events\n"}
    )
    data = logs_data(result, [*runs.events(), spoken])
    entries = {(entry["n"], entry["h"]): entry for entry in data["entries"]}
    assert entries["etcd/start/enable", "node1"]["o"] == "from events\n"
    assert "attempt 1 failed, again after 2.0s" in entries["etcd/configure/env", "node2"]["r"]
    assert "12 hosts forks=50" in text_of(render_report(cluster(), result, runs.events()))


def fragment() -> ExecutionNode:
    return ExecutionNode(
        id="greet/say/show+extra",
        step_name="file",
        module="greet",
        task="say",
        hosts=("node1",),
        dependencies=(Dependency("greet/say/show"),),
    )


def test_nodes_of_fragments_are_drawn_and_waited_for() -> None:
    event = Event(GRAPH_EXTENDED, "r", START, data={"nodes": [fragment().to_json()], "by": "greet/say/show"})
    graph = extended(small(), [event])
    assert graph.nodes["greet/say/show+extra"].hosts == ("node1",)
    assert "greet/say/show+extra" in {dep.node for dep in graph.nodes["greet/say#end"].dependencies}
    assert extended(graph, [event]) is graph
    assert "show+extra" in text_of(render_report(small(), simulate(graph), [event]))


def test_a_fragment_that_nobody_told_about_is_reported_all_the_same() -> None:
    graph = small().with_nodes([*small().nodes.values(), fragment()])
    assert "greet/say/show+extra" in render_report(small(), simulate(graph))


def test_everything_said_is_escaped_and_the_policy_names_every_script() -> None:
    def said(action: HostResult, node: ExecutionNode) -> None:
        action.status, action.changed = Status.FAILED, False
        for name in ("message", "stdout", "stderr", "command", "hint", "traceback", "undo"):
            setattr(action, name, NASTY)
        action.diffs = [{"path": NASTY, "note": NASTY, "text": NASTY}]

    graph = nasty()
    result = simulate(graph, {(node.id, host): said for node in graph.steps() for host in node.hosts})
    result.run_id = result.message = result.executor = NASTY
    page = render_report(graph, result, [replace(event, data={"message": NASTY}) for event in runs.events()])
    assert "<script>alert" not in page
    assert "\x00" not in page
    reader = Reader(page)
    kinds = [attrs.get("type") for tag, attrs in reader.tags if tag == "script"]
    scripts = [text for text, kind in zip(reader.inside["script"], kinds, strict=True) if kind is None]
    assert policy(reader)["script-src"] == {digest(text) for text in scripts}
    for tag, attrs in reader.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "src", "action")], tag
        assert (attrs.get("href") or "#").startswith("#")


def test_secrets_are_masked_in_what_goes_in_and_the_page_still_works() -> None:
    def mask(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: mask(value) for key, value in data.items()}
        if isinstance(data, list):
            return [mask(value) for value in data]
        # "const" is a word of the page's own scripts
        return data.replace("const", "***") if isinstance(data, str) else data

    def said(action: HostResult, node: ExecutionNode) -> None:
        runs.permission_denied(action, node)
        action.stderr = "the password const is wrong"

    result = simulate(small(), {("greet/say/write", "node1"): said})
    page = render_report(small(), result, runs.events(), mask=mask)
    assert "the password *** is wrong" in text_of(page)
    assert "password const" not in page
    assert "const " in page
    assert result.node_results["greet/say/write"].host_results["node1"].stderr == "the password const is wrong"


def many(hosts: int, modules: int = 2, tasks: int = 4, length: int = 3) -> tuple[ExecutionGraph, GraphExecutionResult]:
    graph = wide(modules, tasks, length, hosts)
    return graph, simulate(graph, {("module-1/task-0/step-1-of-0", "worker-07"): runs.permission_denied}, scale=0.01)


def test_the_timeline_has_a_bar_for_each_action_that_ran_and_marks_the_critical_ones() -> None:
    result = failed_run()
    path = critical_path(cluster(), result)
    made = chart(cluster(), result, path)
    ran = sum(a.start_time is not None for n in result.node_results.values() for a in n.host_results.values())
    assert made.of == "action"
    assert sum(map(len, made.rows.values())) == ran
    assert sum(bar.critical for row in made.rows.values() for bar in row) == len(path.actions)


def test_bars_of_a_host_that_overlap_in_time_are_in_different_lanes() -> None:
    for row in chart(cluster(), failed_run(), critical_path(cluster(), failed_run())).rows.values():
        for bar in row:
            for other in row:
                if bar is not other and bar.lane == other.lane:
                    assert bar.end <= other.start + 1e-6 or other.end <= bar.start + 1e-6


def test_too_many_actions_are_put_together_by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, result = many(20)
    monkeypatch.setitem(MOST, "action", 100)
    made = chart(graph, result, critical_path(graph, result))
    assert made.of == "task"
    bars = {bar.label: bar for bar in made.rows["worker-07"]}
    assert bars["module-0/task-1"].count == 3
    assert bars["module-1/task-0"].status == "failed"
    monkeypatch.setitem(MOST, "task", 50)
    assert chart(graph, result, critical_path(graph, result)).of == "module"


def test_a_long_timeline_is_left_to_the_script() -> None:
    graph, result = many(140)
    page = render_report(graph, result)
    data = json.loads(re.findall(r'id="kx-gantt-data">(.*?)</script>', page)[0])
    ran = sum(a.start_time is not None for n in result.node_results.values() for a in n.host_results.values())
    assert ran > STATIC
    assert sum(map(len, data["rows"])) == 6 * ran
    assert page.count('<rect class="b-') == 0


def test_many_actions_do_not_make_the_page_explode() -> None:
    graph, result = many(2100, 1, 2, 3)
    for node in result.node_results.values():
        for action in node.host_results.values():
            action.stdout = "x" * 5000
    page = render_report(graph, result)
    data = logs_data(result)
    assert len(data["entries"]) == ENTRIES
    assert data["leftOut"] == graph.actions() - ENTRIES
    assert sum(len(str(entry)) for entry in data["entries"]) < BUDGET * 1.5
    assert len(page) < 12_000_000
    assert len(chart(graph, result, critical_path(graph, result)).rows) == ROWS


def test_failures_are_never_left_out_of_the_logs() -> None:
    graph = wide(1, 1, 2, 5200)
    late = {("module-0/task-0/step-1-of-0", f"worker-{i}"): runs.permission_denied for i in range(5190, 5200)}
    data = logs_data(simulate(graph, late))
    assert sum(entry["s"] == "failed" for entry in data["entries"]) == 10


@pytest.mark.parametrize("seconds", [0.0, 0.004, 0.7, 3.0, 42.0, 700.0, 5000.0, 90_000.0])
def test_the_axis_has_a_few_round_times(seconds: float) -> None:
    found = ticks(seconds)
    assert found[0] == 0
    assert found[-1] <= seconds
    assert len(found) <= 13


def test_a_run_in_which_nothing_ran_is_reported() -> None:
    empty = GraphExecutionResult(graph_name="nothing", status=Status.SUCCESS)
    assert "✔ Success" in text_of(render_report(ExecutionGraph("nothing", {}, {}, {}), empty))


def test_a_cancelled_run_is_reported() -> None:
    result = simulate(small())
    result.status = Status.CANCELLED
    for action in result.node_results["later/tidy/remove"].host_results.values():
        action.status, action.start_time, action.end_time, action.reason = Status.CANCELLED, None, None, None
    text = text_of(render_report(small(), result))
    assert "■ Cancelled" in text
    assert "3 cancelled" in text


def test_of_a_runs_events_only_what_a_report_needs_is_kept_and_never_too_many() -> None:
    kept = ReportEvents()
    for event in [*runs.events(), Event(ACTION_OUTPUT, "r", START, "n", "h", {"text": "x"})]:
        kept(event)
    kept(Event(ACTION_FORECAST, "r", START, "n", "h", {"state": "change", "diffs": []}))
    assert [event.kind for event in kept.events] == ["log", "action.retry"]
    for _ in range(MOST_EVENTS + 5):
        kept(Event(LOG, "r", START))
    assert len(kept.events) == MOST_EVENTS

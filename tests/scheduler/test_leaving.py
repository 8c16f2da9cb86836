"""A host that failed leaves the run: what comes after the failure in the graph is skipped on it, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, On
from tests.scheduler.build import Play, gate, graph, step
from tests.scheduler.definitions import Act, Definitions, Door
from tests.scheduler.graphs import HOSTS, Case
from tests.scheduler.test_interleavings import many, play


def test_a_host_stays_away_behind_a_task_that_does_not_run_on_it() -> None:
    nodes = (
        step("a", "h1 h2", max_failures="1"),
        gate("a-end", "a"),
        step("b", "h2", "a-end"),
        gate("b-end", "b"),
        step("c", "h1 h2", "b-end"),
    )
    run = Play(*nodes).run({"a@h1": "fail"})
    assert run.of("b@h2", "c@h1", "c@h2") == ["Success", "Skipped dependency a", "Success"]
    assert run.status == "Success"


def test_a_host_stays_away_behind_several_tasks_loops_and_nodes_that_do_not_run_on_it() -> None:
    nodes = (
        step("a", "h1 h2 h3", max_failures="1"),
        gate("a-end", "a"),
        step("b", "h2", "a-end"),
        step("b2", "h2", "b"),
        gate("b-end", "b2"),
        step("nowhere", "", "b-end"),
        gate("nowhere-end", "nowhere"),
        step("c", "h3", "nowhere-end"),
        gate("c-end", "c"),
        step("d", "h1 h2 h3", "c-end"),
    )
    run = Play(*nodes).run({"a@h1": "fail"})
    assert run.of("d@h1", "d@h2", "d@h3") == ["Skipped dependency a", "Success", "Success"]


def test_what_does_not_come_after_the_failure_runs_on_the_host_whenever_it_is_started() -> None:
    nodes = (step("a", "h1 h2", max_failures="1"), gate("a-end", "a"), step("free", "h1"), step("after", "h1", "a-end"))
    for pick in (min, max):
        run = Play(*nodes).run({"a@h1": "fail"}, pick=pick)
        assert run.of("free@h1", "after@h1") == ["Success", "Skipped dependency a"]


def test_an_always_hook_runs_on_a_host_that_has_left_and_what_follows_it_does_not() -> None:
    nodes = (
        step("a", "h1 h2", max_failures="1"),
        gate("body", "a"),
        step("hook", "h1 h2", "body?done"),
        gate("end", "body hook"),
        step("after", "h1 h2", "end"),
    )
    run = Play(*nodes).run({"a@h1": "fail"})
    assert run.of("hook@h1", "after@h1", "after@h2") == ["Success", "Skipped dependency a", "Success"]


def waited_for(whole: ExecutionGraph, act: Act) -> Iterator[Act]:
    """All actions that an action waits for to succeed, directly or over others."""
    definitions = Definitions(whole)
    todo: list[Act | Door] = [act]
    seen: set[Act | Door] = set()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in definitions.doors:
            door = definitions.doors[one]
            todo += [(look.node, host) for look in door.looks if look.on is On.SUCCESS for host in look.hosts]
            todo += [other for other, on in door.doors if on is On.SUCCESS]
            continue
        if one != act:
            yield one  # type: ignore[misc]
        todo += [need for need, on in definitions.needs[one] if on is On.SUCCESS]  # type: ignore[index]


def layers(dice: Random) -> ExecutionGraph:
    """Steps on some hosts, layer by layer: behind the gates of the layer before, or one or two layers back."""
    nodes: list[ExecutionNode] = []
    gates: list[str] = []
    for number in range(dice.randint(3, 6)):
        opens = " ".join(dice.sample(gates[-3:], min(len(gates), dice.randint(0, 2))))
        made: list[str] = []
        for letter in "xyz"[: dice.randint(1, 3)]:
            after = dice.choice([opens, opens, " ".join(made) or opens])
            hosts = " ".join(dice.sample(HOSTS, dice.randint(0, 3)))
            nodes.append(step(f"{letter}{number}", hosts, after, max_failures="100%"))
            made.append(f"{letter}{number}")
        gates.append(f"g{number}")
        nodes.append(gate(gates[-1], " ".join(made)))
    return graph(*nodes)


@many
@given(seed=st.integers(0, 2**32))
def test_no_action_runs_after_one_that_failed_on_its_host(seed: int) -> None:
    case = _Plain(layers(Random(seed)), forks=3, seed=seed)
    record = play(case, Random(seed + 1))
    assert record == play(case, Random(seed + 2))
    failed = {key for key, end in record.items() if end == "Failed" and key[1]}
    for (node, host), end in record.items():
        if host:
            before = {one for one in waited_for(case.graph, (node, host)) if one[1] == host}
            assert end.startswith("Skipped dependency") == bool(before & failed), f"{node} on {host} is {end}"


class _Plain(Case):
    def returns(self, node: str, host: str) -> bool:
        return False

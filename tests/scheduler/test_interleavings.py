from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.model.graph import ExecutionFragment
from kubexm_exec.scheduler import Action, Scheduler
from tests.scheduler.build import OUTCOMES, text
from tests.scheduler.duet import Duet
from tests.scheduler.graphs import Case, decisions, make_case

many = settings(max_examples=18 * settings().max_examples)


def play(case: Case, dice: Random) -> dict[tuple[str, str], str]:
    """Run a case to its end in an order that the dice decide; how everything ended, with reasons and causes."""
    scheduler = Scheduler(case.graph, forks=case.forks, due=case.due, owed=case.owed, late=dict(case.late))
    nodes = dict(case.graph.nodes)
    record: dict[tuple[str, str], str] = {}
    running: list[Action] = []
    waiting: list[Action] = []
    while not scheduler.done:
        offered = scheduler.ready()
        assert offered or running or waiting, "nothing runs, nothing is offered, and yet it is not done"
        move = dice.random()
        if offered and (move < 0.5 or not (running or waiting)):
            action = dice.choice(offered)
            scheduler.start(action)
            running.append(action)
        elif waiting and (move < 0.6 or not running):
            scheduler.resume(waiting.pop(dice.randrange(len(waiting))))
        elif running:
            action = running.pop(dice.randrange(len(running)))
            if not action.host:
                scheduler.finish(action, OUTCOMES["ok"])
                continue
            if dice.random() < 0.2 and (places := list(scheduler.places(action))):
                scheduler.move(action, dice.choice(places))
                continue
            if dice.random() < 0.2:
                # Whether it has done something by then is a matter of order.
                scheduler.defer(action, begun=False)
                waiting.append(action)
                continue
            outcome = case.outcome(*action)
            if case.returns(*action) and not nodes[action.node].handler:
                outcome = "ok"
                fragment = case.fragment(nodes[action.node], action.host, mixed=False)
                scheduler.extend(action, ExecutionFragment.of(fragment))
                nodes.update((node.id, node) for node in fragment)
            scheduler.finish(action, OUTCOMES[outcome])
            record[action] = text(OUTCOMES[outcome].status, OUTCOMES[outcome].reason)
    for one in scheduler.drain():
        assert (one.node, one.host) not in record
        record[one.node, one.host] = text(one.status, one.reason, one.cause)
    record["", ""] = scheduler.run_status().value
    return record


@many
@given(data=decisions, first=st.integers(0, 2**16), second=st.integers(0, 2**16))
def test_the_same_graph_and_outcomes_give_the_same_record_whatever_the_interleaving(
    data: bytes, first: int, second: int
) -> None:
    case = make_case(data, groups=6)
    assert play(case, Random(first)) == play(case, Random(second))


@many
@given(data=decisions, seed=st.integers(0, 2**16))
def test_every_run_goes_as_the_definitions_say(data: bytes, seed: int) -> None:
    case = make_case(data, policies=True, groups=6)
    duet = Duet(case)
    dice = Random(seed)
    moves = 0
    while not duet.scheduler.done:
        moves += 1
        offered, running, deferred = duet.ready(), duet.running, duet.deferred
        work = [action for action in running if action.host]
        move = dice.random()
        if offered and (move < 0.4 or not (running or deferred)):
            duet.start(dice.choice(offered))
        elif deferred and (move < 0.5 or not running):
            duet.resume(dice.choice(deferred))
        elif move < 0.55 and work and moves < 100:
            duet.defer(dice.choice(work))
        elif move < 0.6 and work and moves < 100:
            action = dice.choice(work)
            if places := list(duet.scheduler.places(action)):
                duet.move(action, dice.choice(places))
        elif move < 0.7 and work and moves < 100:
            action = dice.choice(work)
            node = duet.model.nodes[action.node]
            if action.node.count("+") < 2 and not node.handler:
                duet.extend(action, case.fragment(node, action.host, mixed=True))
        elif move < 0.71:
            duet.stop(dice.choice(["failFast", "rollback", "cancel"]))
        elif running:
            outcomes = ["ok"] * 2 + ["change"] * 3 + ["fail"] * 3 + ["early", "satisfied", "when", "cancel"]
            duet.finish(dice.choice(running), dice.choice(outcomes))

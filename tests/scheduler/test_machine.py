from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from kubexm_exec.model.graph import Dependency, ExecutionFragment, Policy
from kubexm_exec.scheduler import Action
from tests.scheduler.build import OUTCOMES
from tests.scheduler.duet import Duet
from tests.scheduler.graphs import decisions, make_case

some = st.integers(0, 255)


class Interleavings(RuleBasedStateMachine):
    """Random graphs driven in random ways; after every single event the scheduler and the reference model agree."""

    duet: Duet

    @initialize(data=decisions)
    def begin(self, data: bytes) -> None:
        self.duet = Duet(make_case(data, policies=True))

    # What cannot be done at the moment does nothing: as preconditions this would make hypothesis give up many examples.

    @rule(number=some, many=st.integers(1, 3))
    def start(self, number: int, many: int) -> None:
        for _ in range(many):
            if offered := self.duet.ready():
                self.duet.start(offered[number % len(offered)])

    @rule(number=some, outcome=st.sampled_from(["ok", "ok", "fail", *OUTCOMES]))
    def finish(self, number: int, outcome: str) -> None:
        if running := self.duet.running:
            self.duet.finish(running[number % len(running)], outcome)

    def work(self, number: int) -> Action | None:
        """Some action that runs; not a pause."""
        running = [action for action in self.duet.running if action.host]
        return running[number % len(running)] if running else None

    @rule(number=some)
    def defer(self, number: int) -> None:
        if action := self.work(number):
            self.duet.defer(action)

    @rule(number=some)
    def move(self, number: int) -> None:
        action = self.work(number)
        if action and (places := list(self.duet.scheduler.places(action))):
            self.duet.move(action, places[number % len(places)])

    @rule(number=some)
    def resume(self, number: int) -> None:
        if deferred := self.duet.deferred:
            self.duet.resume(deferred[number % len(deferred)])

    @rule(number=some)
    def extend(self, number: int) -> None:
        action = self.work(number)
        if action and action.node.count("+") < 2:
            node = self.duet.model.nodes[action.node]
            self.duet.extend(action, self.duet.case.fragment(node, action.host, mixed=True))

    @rule(number=some, wrong=st.sampled_from(["unknown", "circle", "clash", "other", "twice"]))
    def extend_wrongly(self, number: int, wrong: str) -> None:
        action = self.work(number)
        if action is None or action.node.count("+") > 1:
            return
        node = self.duet.model.nodes[action.node]
        nodes = self.duet.case.fragment(node, action.host, mixed=True)
        first, last = nodes[0], nodes[-1]
        if wrong == "unknown":
            nodes[-1] = replace(last, dependencies=(*last.dependencies, Dependency("nowhere")))
        elif wrong == "circle":
            nodes[-1] = replace(last, dependencies=(*last.dependencies, Dependency(first.id)))
            nodes[0] = replace(nodes[0], dependencies=(*nodes[0].dependencies, Dependency(last.id)))
        elif wrong == "clash":
            nodes.append(replace(node, policy=Policy(timeout=1.0)))
        elif wrong == "other":
            self.duet.extend(action, nodes)
            nodes[-1] = replace(last, tags=("other",))
        else:
            nodes.append(last)
        with pytest.raises(ValueError, match=r"\S"):
            self.duet.scheduler.extend(action, ExecutionFragment.of(nodes))
        self.duet.compare()

    @rule(number=st.integers(0, 15), reason=st.sampled_from(["failFast", "rollback", "cancel"]))
    def stop(self, number: int, reason: str) -> None:
        if number == 15 or self.duet.scheduler.stopped:
            self.duet.stop(reason)

    def teardown(self) -> None:
        """Whatever happened, the run can be brought to its end."""
        duet = getattr(self, "duet", None)
        if duet is None:
            return
        for _ in range(10_000):
            if duet.scheduler.done:
                return
            for action in duet.deferred:
                duet.resume(action)
            for action in duet.ready():
                duet.start(action)
            duet.finish(duet.running[-1], "ok")
        raise AssertionError("it does not end")


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=4 * settings().max_examples, stateful_step_count=30)

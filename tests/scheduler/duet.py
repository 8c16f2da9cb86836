"""The scheduler and its reference model side by side: every event goes to both, and after each one they must agree."""

from __future__ import annotations

from collections.abc import Sequence

from kubexm_exec.model.graph import ExecutionFragment, ExecutionNode
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Action, Scheduler
from tests.scheduler.build import OUTCOMES, text
from tests.scheduler.graphs import Case
from tests.scheduler.model import Model


class Duet:
    """Drives both; the laws that need no model are checked here, too."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.scheduler = Scheduler(case.graph, forks=case.forks, due=case.due, owed=case.owed, late=dict(case.late))
        self.model = Model(case.graph, case.forks, case.due, case.owed, case.late)
        self.places: dict[Action, str] = {}
        """The places that the scheduler chose, or that it was told."""
        self.told: dict[tuple[str, str], str] = {}
        """What the scheduler said of actions it ended itself, of nodes and gates."""
        self.rescued: set[Action] = set()
        """Actions of which the scheduler said that a rescue has handled how they ended."""
        self.started: set[Action] = set()
        self.again: set[Action] = set()
        """Deferred and resumed: may be started once more."""
        self.compare()

    @property
    def running(self) -> list[Action]:
        """Actions and pauses that run, in a fixed order."""
        acts = [*self.model.running, *((gate, "") for gate, state in self.model.pauses.items() if state == "running")]
        return [Action(*act) for act in sorted(acts)]

    @property
    def deferred(self) -> list[Action]:
        """Actions that wait for their next attempt, in a fixed order."""
        return [Action(*act) for act in sorted(self.model.deferred)]

    def ready(self) -> list[Action]:
        """What both offer."""
        offered = self.scheduler.ready()
        assert offered == self.scheduler.ready() == self.model.ready()
        return offered

    def start(self, action: Action) -> None:
        assert action not in self.started or action in self.again, f"{action} is started twice"
        self.again.discard(action)
        if action.host:
            self.started.add(action)
        self.scheduler.start(action)
        self.model.start(action)
        assert self.model.fits(self.model.running), "a limit is exceeded"
        self.compare()

    def finish(self, action: Action, outcome: str) -> None:
        self.scheduler.finish(action, OUTCOMES[outcome])
        said = OUTCOMES[outcome]
        self.model.finish(action, text(said.status, said.reason), notifies=said.notifies, begun=said.begun)
        self.compare()

    def defer(self, action: Action) -> None:
        self.scheduler.defer(action)
        self.model.defer(action)
        self.compare()

    def resume(self, action: Action) -> None:
        self.again.add(action)
        self.scheduler.resume(action)
        self.model.resume(action)
        self.compare()

    def move(self, action: Action, place: str) -> None:
        assert place in self.scheduler.places(action) or place in self.model.nodes[action.node].places_for(action.host)
        self.again.add(action)
        self.scheduler.move(action, place)
        self.model.move(action, place)
        if self.scheduler.status(*action) == Status.PENDING:
            self.places[action] = place
        self.compare()

    def extend(self, action: Action, nodes: Sequence[ExecutionNode]) -> None:
        self.scheduler.extend(action, ExecutionFragment.of(nodes))
        self.model.extend(action, nodes)
        self.compare()

    def stop(self, reason: str) -> None:
        self.scheduler.stop(reason)  # type: ignore[arg-type]
        self.model.stop(reason)
        self.compare()

    def compare(self) -> None:
        """Everything that can be seen of both is the same."""
        scheduler, model = self.scheduler, self.model
        self.places.update(scheduler.placed())
        for act in (*model.go, *model.running):
            if act in model.choices:
                assert self.places.get(Action(*act), model.choices[act][0]) == model.at[act], act
        for one in scheduler.drain():
            assert (one.node, one.host) not in self.told, f"{one} is told twice"
            self.told[one.node, one.host] = text(one.status, one.reason, one.cause)
        said = scheduler.rescued()
        assert len({*self.rescued, *said}) == len(self.rescued) + len(said), "told twice that it was rescued"
        self.rescued.update(said)
        assert self.rescued == model.rescued()
        expected: dict[tuple[str, str], str] = {}
        for act in model.needs:
            status = scheduler.status(*act)
            end = model.ends.get(act)
            if end is None:
                begun = act in model.running or act in model.deferred
                assert status == (Status.RUNNING if begun else Status.PENDING), act
                continue
            assert status == end.what.split()[0], act
            if model.aside(act):
                continue
            if act not in self.started or (end.what == "Cancelled" and act in self.told):
                cause = end.blame[2] if end.blame and end.what.startswith("Skipped") else ""
                expected[act] = f"{end.what.removesuffix(' ignored')} {cause}".strip()
        for name in model.nodes:
            if model.final(name):
                expected[name, ""] = model.node_end(name)
                assert scheduler.status(name) == expected[name, ""].split()[0]
            else:
                assert scheduler.status(name) in (Status.PENDING, Status.RUNNING)
        told = {key: "Cancelled" if end.startswith("Cancelled") else end for key, end in self.told.items()}
        assert told == expected
        for act in model.running:
            assert scheduler.serving(Action(*act)) == tuple(sorted(model.serving.get(act, ())))
        assert scheduler.done == model.done
        assert scheduler.stopped == model.stopped
        assert scheduler.running == len(self.running)
        assert scheduler.deferred == len(model.deferred)
        assert scheduler.pending == len(model.needs) - len(model.ends) - len(model.running) - len(model.deferred)
        if model.done:
            assert scheduler.run_status() == model.run_status()
        elif not self.running and not model.deferred:
            assert self.ready(), "nothing runs, nothing is offered, and yet it is not done"

"""Whoever is taken out is put back: hooks of hosts and batches, over failures, stops, kills and resumed sessions.

Specs are compiled, and played by the real scheduler with what the real engine makes of the history; only the work is
chance. ``Town`` knows the truth: who is out, and what has been done to whom.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.engine import entries
from kubexm_exec.engine.history import Known, RunHistory, staying, whole_graph
from kubexm_exec.engine.resume import Selection, known_actions, to_repeat
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook
from kubexm_exec.model.result import HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler
from tests.compile.kit import Spec

WEB = ("w1", "w2", "w3", "w4")
CP = ("cp1", "cp2")


class Shape(NamedTuple):
    """What a rolling task is like."""

    strategy: str
    size: tuple[int, ...]
    """Hosts in each batch; none: no batches."""
    budget: int
    policy: str
    pre: bool
    kinds: tuple[str, ...]
    """Which hooks there are at the end of a host, and of a batch."""
    batches: bool
    """Whether batches have hooks."""
    place: str
    """Where the hooks work: here, one (of several), each (of several)."""


shapes = st.builds(
    Shape,
    strategy=st.sampled_from(["free", "linear"]),
    size=st.sampled_from([(), (1,), (2,), (3,), (1, 2)]),
    budget=st.sampled_from([0, 1, 4]),
    policy=st.sampled_from(["continue", "failFast", "rollback"]),
    pre=st.booleans() | st.just(True),
    kinds=st.sampled_from([("always",), ("post", "always"), ("post", "onFailure", "always")]),
    batches=st.booleans(),
    place=st.sampled_from(["here", "one", "each"]),
)


def message(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "message", "with": {"text": name}, **more}


@cache
def compiled(shape: Shape) -> ExecutionGraph:
    to: dict[str, Any] = {"one": {"roles": ["cp"], "one": True}, "each": {"roles": ["cp"]}}
    where = {} if shape.place == "here" else {"delegateTo": to[shape.place]}
    kinds = (*(("pre",) if shape.pre else ()), *shape.kinds)
    task: dict[str, Any] = {
        "name": "t", "runOn": {"roles": ["web"]}, "strategy": shape.strategy,
        "hostHooks": {kind: [message(f"{kind}{number}", **where) for number in (1, 2)] for kind in kinds},
        "steps": [message("a", hooks={"always": [message("tidy")]}), message("b")],
    }  # fmt: skip
    if shape.size:
        task["batch"] = {"size": list(shape.size)}
        if shape.batches:
            task["batch"]["hooks"] = {kind: [message(kind)] for kind in ("pre", *shape.kinds)}
    body = {
        "failurePolicy": shape.policy,
        "maxFailures": shape.budget,
        "inventory": {
            "hosts": [
                *({"name": name, "connector": "local", "roles": ["web"]} for name in WEB),
                *({"name": name, "connector": "local", "roles": ["cp"]} for name in CP),
            ]
        },
        "modules": [
            {
                "name": "m",
                "tasks": [
                    {"name": "cps", "runOn": {"roles": ["cp"]}, "maxFailures": 1, "steps": [message("x")]},
                    task,
                    {"name": "after", "runOn": {"roles": ["web"]}, "steps": [message("y")]},
                ],
            }
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        spec = Spec(Path(folder))
        return spec.write("".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())).graph()


class Town:
    """Where the work is done, and what is true there."""

    def __init__(self, shape: Shape, graph: ExecutionGraph) -> None:
        self.shape = shape
        self.graph = graph
        self.out: set[str] = set()
        """Hosts and batches that were taken out and not put back."""
        self.touched: set[str] = set()
        """Those to which something was done, or may have been, since they were last put back."""
        self._put_back: dict[str, set[Action]] = defaultdict(set)
        self._told: dict[str, set[Action]] = defaultdict(set)
        """What of that the journal knows."""
        self._backs: dict[str, set[Action]] = defaultdict(set)
        """All that it takes to put one back."""
        self._batch: dict[str, str] = {}
        for node in graph.steps():
            if node.batch is not None:
                self._batch.update(dict.fromkeys(node.batch.hosts, f"batch {node.batch.number}"))
            for host in node.hosts:
                if self.kind(node) in ("host always", "batch always"):
                    self._backs[self.scope(node, host)].add(Action(node.id, host))

    def kind(self, node: ExecutionNode) -> str:
        if node.id.startswith("m/t/hostHooks/"):
            return f"host {node.hook.value}"
        if node.batch is not None:
            return f"batch {node.hook.value}"
        return "work" if node.task == "t" else "other"

    def scope(self, node: ExecutionNode, host: str) -> str:
        """The host or batch that a node is about."""
        return f"batch {node.batch.number}" if node.batch is not None else host

    def check_start(self, node: ExecutionNode, host: str, before: set[str]) -> None:
        """The laws of what may begin now; ``before``: those to which something had been done when the session began."""
        scope, kind = self.scope(node, host), self.kind(node)
        if kind.endswith("always"):
            assert scope in self.touched | before, f"{node.id} for {host}, which was never taken out"
        if kind == "work" and node.hook is not Hook.ALWAYS:
            assert not self.shape.pre or host in self.out, f"{node.id} on {host}, which was not taken out"
        if kind in ("work", "host pre") and node.hook is not Hook.ALWAYS and host in self._batch:
            assert self._batch[host] in self.out, f"{node.id} on {host}: its batch was not made ready"

    def effect(self, node: ExecutionNode, host: str, *, well: bool, sure: bool = True) -> None:
        """Something was done, or may have been (not ``sure``)."""
        scope, kind = self.scope(node, host), self.kind(node)
        if kind.endswith("always"):
            if well:
                self._put_back[scope].add(Action(node.id, host))
                if sure:
                    self._told[scope].add(Action(node.id, host))
                if self._put_back[scope] >= self._backs[scope]:
                    self.out.discard(scope)
                if self._told[scope] >= self._backs[scope]:
                    self.touched.discard(scope)
        elif kind != "other" and node.hook not in (Hook.ALWAYS, Hook.ON_FAILURE):
            around = [scope, self._batch[host]] if host in self._batch and scope == host else [scope]
            for each in around:
                self.touched.add(each)
                self._put_back[each].clear()
                self._told[each].clear()
            if sure and (kind.endswith("pre") or (kind == "work" and not self.shape.pre)):
                self.out.add(scope)


class Session:
    """One process that works on the run."""

    def __init__(self, town: Town, history: RunHistory, selection: Selection | None, dice: Random) -> None:
        self.town = town
        self.history = history
        self.dice = dice
        self.graph, self.known = town.graph, dict[Action, Known]()
        if selection is not None:
            again = to_repeat(whole_graph(town.graph, history), history, selection)
            history.add(entries.Session("resume", "me", tuple(again)))
            self.graph = staying(town.graph, history, selection.begins)
            self.known = dict(known_actions(whole_graph(self.graph, history), history, selection))
        else:
            history.add(entries.Session("run", "me"))
        owed = [action for action, known in self.known.items() if known.owed]
        self.scheduler = Scheduler(self.graph, forks=dice.randint(1, 6), owed=owed)
        self.running: list[Action] = []
        self.places: dict[Action, str] = {}
        self.failed_back: set[str] = set()
        self.touched_before = set(town.touched)

    def play(self, *, kill: float, cancel: float) -> bool:
        """Work until all is done; False if the process was killed before."""
        scheduler, dice = self.scheduler, self.dice
        while not scheduler.done:
            if dice.random() < kill:
                for action in self.running:
                    node = self.graph.nodes[action.node]
                    self.town.effect(node, action.host, well=True, sure=False)
                    if dice.random() < 0.5:
                        self.town.effect(node, action.host, well=True, sure=not self.town.kind(node).endswith("always"))
                return False
            if dice.random() < cancel:
                scheduler.stop("cancel")
            self._note()
            offered = scheduler.ready()
            assert offered or self.running or scheduler.done
            if offered and (dice.random() < 0.5 or not self.running):
                self._start(dice.choice(offered))
            elif self.running:
                self._finish(self.running.pop(dice.randrange(len(self.running))))
        self._note()
        return True

    def _note(self) -> None:
        self.places.update(self.scheduler.placed())
        for one in self.scheduler.drain():
            if one.host:
                result = HostResult(host_name=one.host, status=one.status, reason=one.reason, cause=one.cause)
                self.history.add(entries.End(one.node, result))

    def _start(self, action: Action) -> None:
        node, known = self.graph.nodes[action.node], self.known.get(action, Known())
        self.scheduler.start(action)
        if known.outcome is not None:
            result = known.outcome.result
            self.scheduler.finish(action, Outcome(result.status, result.reason, begun=False))
            return
        self.town.check_start(node, action.host, self.touched_before)
        place = self.places.get(action) or node.place(action.host)
        if node.choices:
            told = self.history.actions.get(action)
            assert place in CP
            assert not known.doubt or told is None or place == told.place, "nobody knows what was done elsewhere"
        self.history.add(entries.Start(node.id, action.host, 1, 0.0, "", place=place if node.choices else ""))
        self.running.append(action)
        if not known.doubt and not known.worked and self.dice.random() < 0.2:
            others = [other for other in self.scheduler.places(action) if other != place]
            if others:
                self.running.remove(action)
                self.history.add(entries.Retry(node.id, action.host, 1, "unreachable", place=others[0]))
                if self.scheduler.move(action, others[0]):
                    self.places[action] = others[0]

    def _finish(self, action: Action) -> None:
        node, known, dice = self.graph.nodes[action.node], self.known.get(action, Known()), self.dice
        kind = self.town.kind(node)
        choices = ["ok"] * 6 + ["fail", "early", "satisfied"]
        if kind.endswith("always"):
            choices = ["ok"] * 9 + ["fail"]
        elif kind == "work":
            choices += ["when"]
        elif self.scheduler.stopped == "cancel":
            choices = ["ok", "fail", "early", "satisfied"]
        what = dice.choice(choices)
        status, reason = {
            "ok": (Status.SUCCESS, None),
            "fail": (Status.FAILED, None),
            "early": (Status.FAILED, None),
            "satisfied": (Status.SKIPPED, SkipReason.PRECHECK),
            "when": (Status.SKIPPED, SkipReason.CONDITION),
        }[what]
        if self.scheduler.stopped == "cancel" and node.hook is not Hook.ALWAYS and status is Status.FAILED:
            status = Status.CANCELLED
        if what not in ("early", "when"):
            self.town.effect(node, action.host, well=what != "fail")
        if kind.endswith("always") and what == "fail":
            self.failed_back.add(self.town.scope(node, action.host))
        unknown = bool(known.doubt) and what == "early"
        result = HostResult(host_name=action.host, status=status, reason=reason, unknown=unknown, start_time=1.0)
        self.history.add(entries.End(node.id, result, worked=what == "fail"))
        self.scheduler.finish(action, Outcome(status, reason, begun=what != "early"))

    def check_end(self) -> None:
        """Whoever was taken out, in whichever session, is back, unless that very work failed."""
        assert self.town.out <= self.failed_back, f"left out: {self.town.out - self.failed_back}"


def selections(dice: Random) -> Selection:
    """What somebody may ask for who resumes a run."""
    return dice.choice(
        [
            Selection(),
            Selection(),
            Selection(hosts=frozenset(dice.sample(WEB, 2))),
            Selection(only=(dice.choice(["m/cps", "m/t/a", "m/t/b", "m/after"]),)),
            Selection(begin=(dice.choice(["m/cps", "m/t/a", "m/t/b", "m/t/hostHooks/pre/*"]),)),
        ]
    )


@settings(max_examples=12 * settings().max_examples)
@given(shape=shapes, seed=st.integers(0, 2**32))
def test_whoever_is_taken_out_is_put_back_and_nobody_else(shape: Shape, seed: int) -> None:
    dice = Random(seed)
    graph = compiled(shape._replace(batches=shape.batches and bool(shape.size)))
    town, history = Town(shape, graph), RunHistory()
    selection: Selection | None = None
    for number in range(1 + dice.randrange(4)):
        last = number == 3
        session = Session(town, history, selection, dice)
        kill = 0.0 if last else dice.choice([0.0, 0.02, 0.06])
        if session.play(kill=kill, cancel=dice.choice([0.0, 0.0, 0.02])):
            session.check_end()
        selection = selections(dice)

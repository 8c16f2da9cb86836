"""Runs random graphs with a journal: steps that count on the host, and may be ended by kill -9 at any write."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.engine.entries import Repeat
from kubexm_exec.engine.history import staying, tell, whole_graph
from kubexm_exec.engine.notifications import Notifications
from kubexm_exec.engine.resume import Selection, known_actions, to_repeat
from kubexm_exec.engine.runtime import RunOptions, Runtime
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.executors.rollback import RollbackExecutor
from kubexm_exec.journal.session import Session, Start
from kubexm_exec.journal.store import Store
from kubexm_exec.model.events import EventBus
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, GraphHost, On, Retry, Scope
from kubexm_exec.model.result import GraphExecutionResult, RunMode, SkipReason, Status
from kubexm_exec.scheduler import Action
from kubexm_exec.secrets import Redactor, Secrets
from kubexm_exec.step import AnyStep, Forecast, Outputs, Params, Result, Standing, Step, StepContext, StepFailed, Undo
from tests.executors.kit import Plugins
from tests.scheduler.graphs import HOSTS, Case, make_case

MADE = ("done", "half")
"""What an action may leave behind: all of its work, and half of it."""
RUN = "01AAAAAAAAAAAAAAAAAAAAAAAA"


class Host:
    """What steps leave behind, in files: what they did, and how often they were executed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, what: str, node: str, host: str) -> Path:
        """The file of an action."""
        return self._folder / what / quote(f"{node} {host}", safe="")

    def count(self, what: str, node: str, host: str) -> None:
        """One more execution."""
        with self.path(what, node, host).open("a") as file:
            file.write("x\n")

    def counts(self, what: str) -> Counter[tuple[str, str]]:
        """How often actions were executed."""
        found: Counter[tuple[str, str]] = Counter()
        for path in (self._folder / what).iterdir():
            node, _, host = unquote(path.name).rpartition(" ")
            found[node, host] = len(path.read_text().splitlines())
        return found

    def done(self) -> set[str]:
        """What is there."""
        return {unquote(path.name) for what in MADE for path in (self._folder / what).iterdir()}

    def log(self, line: str) -> None:
        """Write down what was undone, in order."""
        with (self._folder / "undo.log").open("a") as file:
            file.write(f"{line}\n")

    def logged(self) -> list[tuple[str, str]]:
        """What was undone, in order: nodes and hosts."""
        path = self._folder / "undo.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(node, host) for node, _, host in (line.rpartition(" ") for line in lines)]


class Gives(Outputs):
    """Who it was."""

    who: str = ""


def step_of(case: Case, place: Host) -> type[AnyStep]:
    """A step that comes to what chance wants of it."""

    class Chance(Step[Params]):
        outputs_model = Gives
        undo = Undo.REPEATABLE

        def precheck(self, ctx: StepContext) -> Forecast:
            outputs = {"who": f"{ctx.node} {ctx.origin.name}"}
            if case.outcome(ctx.node, ctx.origin.name) == "satisfied":
                return Forecast.satisfied("it is so", outputs)
            there = place.path("done", ctx.node, ctx.origin.name).exists()
            # What returns more steps must be run to say which.
            if there and not case.returns(ctx.node, ctx.origin.name):
                return Forecast.satisfied("it is there", outputs)
            return Forecast.change("it is not there")

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            who = ctx.node, ctx.origin.name
            place.count("run", *who)
            if case.outcome(*who) == "fail" and not is_flaky(ctx.node):
                raise StepFailed("chance is against it")
            ctx.save_undo({"attempt": ctx.attempt})
            place.path("done", *who).touch()
            if case.outcome(*who) == "fail":
                raise StepFailed("chance is against it, after it was done")
            if is_flaky(ctx.node) and ctx.attempt == 1:
                place.path("done", *who).unlink()
                place.path("half", *who).touch()
                raise StepFailed("only half of it was done")
            return Result(outputs={"who": " ".join(who)}, fragment=[{}] if case.returns(*who) else ())

        def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
            if is_blind(ctx.node):
                return Standing()
            return Standing(before=not any(place.path(what, ctx.node, ctx.origin.name).exists() for what in MADE))

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            place.count("undo", ctx.node, ctx.origin.name)
            place.log(f"{ctx.node} {ctx.origin.name}")
            for what in MADE:
                place.path(what, ctx.node, ctx.origin.name).unlink(missing_ok=True)

    return Chance


def is_flaky(node: str) -> bool:
    """Whether the first attempt of a node does only half of its work."""
    # Items of a loop have its policy.
    return zlib.crc32(node.partition("[")[0].encode()) % 3 == 0


def is_blind(node: str) -> bool:
    """Whether the undo of a node does not look before it begins."""
    return zlib.crc32(node.encode()) % 2 == 0


def ready(nodes: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """The nodes of a random graph as they can be run: with a step, tried again where that helps, without pauses.

    What follows only what began is a hook of a batch, of a host or of a group, which a resume knows by its name: tasks
    of the compiler have such hooks, and the others do not.
    """
    return [
        replace(
            node,
            dependencies=tuple(
                replace(each, on=On.DONE) if each.on is On.BEGUN and not node.task else each
                for each in node.dependencies
            ),
            step_name="" if node.is_gate else "chance",
            pause=0.0,
            scope=node.scope or "s",
            policy=replace(node.policy, retry=Retry(attempts=2)) if is_flaky(node.id) else node.policy,
        )
        for node in nodes
    ]


@lru_cache(maxsize=4)
def case_of(data: bytes) -> Case:
    """A random graph, often with groups of steps."""
    return make_case(data, groups=3)


def graph_of(case: Case) -> ExecutionGraph:
    """The random graph so that it can be run."""
    nodes = {node.id: node for node in ready(list(case.graph.nodes.values()))}
    # Fragments may name any of them.
    hosts = {name: replace(case.graph.hosts.get(name, GraphHost(name)), connector="local") for name in HOSTS}
    scopes = {node.scope: Scope(node.scope) for node in nodes.values()}
    return replace(case.graph, nodes=nodes, hosts=hosts, scopes=scopes)


def runtime_of(case: Case, folder: Path) -> Runtime:
    """A runtime for it."""
    redactor = Redactor()
    return Runtime(
        graph_of(case),
        options=RunOptions(forks=case.forks),
        bus=EventBus(RUN, redactor.mask),
        secrets=Secrets(redactor),
        steps=Plugins({"chance": step_of(case, Host(folder))}),
        connectors=Plugins({"local": LocalConnector}),
        compile_fragment=lambda graph, node, host, data: ExecutionFragment.of(
            ready(case.fragment(node, host, mixed=False))
        ),
    )


def replace_graph(case: Case, graph: ExecutionGraph) -> Case:
    """The same chance for another graph."""
    return dataclasses.replace(case, graph=graph)


def session(case: Case, folder: Path, mode: str) -> None:
    """One session of its run, in this process: run, resume or rollback; what it came to is in ``result.json``."""
    store = Store(str(folder / "journal.db"))
    if mode != "run":
        case = replace_graph(case, staying(case.graph, tell(store, RUN)))
    runtime = runtime_of(case, folder)
    if mode == "run":
        start = Start(run=RUN, name="r", target="t", spec="s", executor="concurrent", made_from={})
        kept = Session.begin(store, folder, start, wait=None)
    else:
        kept = Session.go_on(store, folder, RUN, mode, first=lambda: ((), _again(runtime.graph, store, mode)))
    history = tell(store, RUN)
    if mode == "rollback":
        runtime.nodes.update(whole_graph(runtime.graph, history).nodes)
    else:
        whole = whole_graph(runtime.graph, history)
        runtime.prior = known_actions(whole, history, Selection(), _due(whole, store))
    kept.attach(runtime)
    result = (RollbackExecutor(history) if mode == "rollback" else ConcurrentExecutor()).execute(runtime)
    error = kept.close(result, {}, "RolledBack" if mode == "rollback" else "Success")
    if error is not None:
        raise error
    due = sorted((each.handler, each.host, each.node, each.sure) for each in store.notifications("t"))
    store.close()
    said = {"status": result.status.value, "actions": actions(result), "due": due}
    (folder / "result.json").write_text(json.dumps(said))


def _due(graph: ExecutionGraph, store: Store) -> set[Action]:
    """The actions of handlers that are due."""
    return Notifications(graph.nodes, store.notifications("t"), RUN, RunMode.ACT).actions()


def _again(graph: ExecutionGraph, store: Store, mode: str) -> list[Repeat]:
    """What a session that goes on says is to be run again."""
    history = tell(store, RUN)
    whole = whole_graph(graph, history)
    return to_repeat(whole, history, Selection(), _due(whole, store)) if mode == "resume" else []


def actions(result: GraphExecutionResult) -> dict[str, Any]:
    """What became of every action; what was done is done, whoever did it."""
    return {
        f"{name} {host}": "done"
        if each.status is Status.SUCCESS or each.reason is SkipReason.PRECHECK
        else [each.status.value, each.reason]
        for name, of in result.node_results.items()
        for host, each in of.host_results.items()
    }

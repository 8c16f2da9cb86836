"""Small graphs, real small steps and a way to run them: what the tests of the executors share."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.engine.runtime import FragmentCompiler, RunOptions, Runtime
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.model.events import Event, EventBus
from kubexm_exec.model.graph import (
    Dependency,
    ExecutionFragment,
    ExecutionGraph,
    ExecutionNode,
    FailurePolicy,
    GraphHost,
    Mode,
    NodeKind,
    On,
    Policy,
    Retry,
    Scope,
)
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult
from kubexm_exec.secrets import Redactor, Secrets
from kubexm_exec.step import AnyStep, Diff, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed, Undo
from kubexm_exec.values.templates import TemplateFinder


class Plugins:
    """A registry in memory."""

    def __init__(self, plugins: Mapping[str, Any]) -> None:
        self._plugins = dict(plugins)

    def load(self, name: str) -> Any:
        from kubexm_exec.plugins import RegistryError

        if name not in self._plugins:
            raise RegistryError("unknown", f'there is no plug-in "{name}"', "install it")
        return self._plugins[name]

    def names(self) -> list[str]:
        return sorted(self._plugins)


class Book:
    """What steps did, in the order they did it; written by many threads."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def write(self, line: str) -> int:
        """Add a line; says how often it was written before."""
        with self._lock:
            self.lines.append(line)
            before = self._seen.get(line, 0)
            self._seen[line] = before + 1
            return before


class ActParams(Params):
    fail: int = 0
    """How many times it fails before it succeeds."""
    kind: FailureKind = FailureKind.FAILED
    satisfied: bool = False
    changed: bool = True
    value: str = ""
    undo: str = ""
    """Save an undo with this text."""


class ActOutputs(Outputs):
    value: str = ""
    long_name: int = 0


def steps_for(book: Book) -> dict[str, type[AnyStep]]:
    """Step types that write down what they do."""

    class Act(Step[ActParams]):
        """Does what its parameters say."""

        outputs_model = ActOutputs
        undo = Undo.REPEATABLE

        def precheck(self, ctx: StepContext) -> Forecast:
            book.write(f"precheck {ctx.node} {ctx.host.name}")
            if self.params.satisfied:
                return Forecast.satisfied("already so", {"value": self.params.value})
            return Forecast.change("would act", [Diff("/a", "old\n", "new\n")])

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            before = book.write(f"run {ctx.node} {ctx.host.name}")
            if self.params.undo:
                ctx.save_undo({"text": self.params.undo})
            if before < self.params.fail:
                raise StepFailed(f"no, said {ctx.host.name}", kind=self.params.kind, hint="ask again")
            return Result(
                changed=self.params.changed, message="acted", outputs={"value": self.params.value, "long_name": 7}
            )

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            book.write(f"undo {ctx.node} {ctx.host.name} {undo['text']}")
            if undo["text"] == "bad":
                raise StepFailed("cannot be undone today")

    return {"act": Act}


def node(
    name: str,
    kind: str = "act",
    *,
    hosts: Sequence[str] = ("h1",),
    after: Sequence[str | Dependency] = (),
    with_: Mapping[str, Any] | None = None,
    attempts: int = 1,
    delay: float = 0.0,
    retry_on: tuple[str, ...] = ("failed", "timedOut", "unreachable"),
    timeout: float | None = None,
    ignore_errors: bool = False,
    **more: Any,
) -> ExecutionNode:
    """A step ``m/t/NAME``; ``after`` names those that it waits for, host by host."""
    dependencies = tuple(Dependency(f"m/t/{each}") if isinstance(each, str) else each for each in after)
    return ExecutionNode(
        id=f"m/t/{name}",
        name=name,
        module="m",
        task="t",
        step_name=kind,
        hosts=tuple(hosts),
        dependencies=dependencies,
        with_=with_ or {},
        scope="s",
        policy=Policy(
            retry=Retry(attempts=attempts, delay=delay, on=retry_on), timeout=timeout, ignore_errors=ignore_errors
        ),
        **more,
    )


def gate(name: str, after: Sequence[str], on: On = On.SUCCESS, **more: Any) -> ExecutionNode:
    """A gate ``m/t#NAME`` behind some steps."""
    dependencies = tuple(Dependency(f"m/t/{each}", Mode.BARRIER, on) for each in after)
    return ExecutionNode(id=f"m/t#{name}", kind=NodeKind.GATE, dependencies=dependencies, **more)


def behind(name: str, on: On = On.SUCCESS) -> Dependency:
    """A dependency on a gate."""
    return Dependency(f"m/t#{name}", Mode.BARRIER, on)


def graph(
    *nodes: ExecutionNode,
    policy: FailurePolicy = FailurePolicy.CONTINUE,
    base: str | Path = "",
    scope: Scope | None = None,
    connector: str = "local",
    per_host: int = 1,
    locks: Mapping[str, int] | None = None,
) -> ExecutionGraph:
    """A graph of these nodes and the hosts they name."""
    names = dict.fromkeys(host for each in nodes for host in each.hosts)
    return ExecutionGraph(
        name="test",
        nodes={each.id: each for each in nodes},
        hosts={
            name: GraphHost(name, connector=connector, address="127.0.0.1", per_host_limit=per_host) for name in names
        },
        scopes={"s": scope or Scope("s", base=str(base))},
        failure_policy=policy,
        locks=locks or {},
    )


@dataclass
class Ran:
    """A run that is over."""

    result: GraphExecutionResult
    events: list[Event]
    book: Book
    runtime: Runtime
    output: str = ""

    def host(self, name: str, host: str = "h1") -> HostResult:
        """The result of ``m/t/NAME`` on a host."""
        return self.result.node_results[f"m/t/{name}"].host_results[host]

    def kinds(self, *wanted: str) -> list[str]:
        """Kinds of the events, in order; only those wanted, if any are named."""
        return [event.kind for event in self.events if not wanted or event.kind in wanted]

    def of(self, kind: str) -> list[Event]:
        """The events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def statuses(self) -> dict[tuple[str, str], tuple[str, str | None, str]]:
        """What the record says of every action."""
        return {
            (name, host): (result.status.value, result.reason, result.cause)
            for name, of in self.result.node_results.items()
            for host, result in of.host_results.items()
        }


@dataclass
class Bench:
    """Makes runtimes and runs them."""

    book: Book = field(default_factory=Book)
    steps: dict[str, Any] = field(default_factory=dict)
    connectors: dict[str, Any] = field(default_factory=lambda: {"local": LocalConnector})
    compile_fragment: FragmentCompiler | None = None
    templates: TemplateFinder | None = None
    forks: int = 8
    grace: float = 0.2
    input: TextIO | None = None
    on_event: Callable[[Event, Runtime], None] | None = None
    redactor: Redactor = field(default_factory=Redactor)

    def runtime(self, of: ExecutionGraph) -> tuple[Runtime, list[Event], io.StringIO]:
        """A runtime with everything real, and what it tells."""
        bus = EventBus("run-1", self.redactor.mask)
        output = io.StringIO()
        options = RunOptions(forks=self.forks, input=self.input, output=output, grace=self.grace)
        runtime = Runtime(
            of,
            options=options,
            bus=bus,
            secrets=Secrets(self.redactor),
            steps=Plugins({**steps_for(self.book), **self.steps}),
            connectors=Plugins(self.connectors),
            templates=self.templates,
            compile_fragment=self.compile_fragment,
        )
        events: list[Event] = []
        bus.subscribe(events.append)
        if self.on_event is not None:
            tell = self.on_event
            bus.subscribe(lambda event: tell(event, runtime))
        return runtime, events, output

    def run(self, of: ExecutionGraph, executor: type[Executor] = ConcurrentExecutor) -> Ran:
        """Run a graph to its end."""
        runtime, events, output = self.runtime(of)
        result = executor().execute(runtime)
        return Ran(result, events, self.book, runtime, output.getvalue())


def fragment_compiler(make: Callable[[ExecutionNode, str, Mapping[str, Any]], ExecutionNode]) -> FragmentCompiler:
    """A compiler of fragments: each returned step becomes the node that ``make`` says."""

    def compile_fragment(
        of: ExecutionGraph, by: ExecutionNode, host: str, steps: Sequence[Mapping[str, Any]]
    ) -> ExecutionFragment:
        return ExecutionFragment.of(make(by, host, step) for step in steps)

    return compile_fragment

"""Graphs to draw, built the way the compiler builds them: end gates that list all members, hooks behind body gates."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kubexm_exec.model.graph import (
    Dependency,
    ExecutionGraph,
    ExecutionNode,
    GraphHost,
    Hook,
    Mode,
    NodeKind,
    On,
    Origin,
    Policy,
    Retry,
)

NO_POLICY = Policy()


@dataclass(frozen=True)
class S:
    """A step; ``items`` makes a loop, ``needs`` replaces the order."""

    name: str
    type: str = "command"
    needs: tuple[str, ...] | None = None
    items: int = 0
    parallel: bool = False
    with_: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = NO_POLICY


Hooks = Mapping[Hook, Sequence[S]]


@dataclass(frozen=True)
class T:
    """A task."""

    name: str
    steps: Sequence[S]
    hosts: tuple[str, ...] = ("node1", "node2", "node3")
    needs: tuple[str, ...] | None = None
    linear: bool = False
    batches: int = 1
    hooks: Hooks = field(default_factory=dict)


@dataclass(frozen=True)
class M:
    """A module."""

    name: str
    tasks: Sequence[T]
    needs: tuple[str, ...] | None = None
    hooks: Hooks = field(default_factory=dict)


def barrier(node: str, on: On = On.SUCCESS) -> Dependency:
    """An edge to or from a gate."""
    return Dependency(node, Mode.BARRIER, on)


class Builder:
    """Adds nodes in graph order."""

    def __init__(self) -> None:
        self.nodes: dict[str, ExecutionNode] = {}

    def gate(self, ident: str, module: str, task: str, dependencies: Sequence[Dependency]) -> str:
        """Add a virtual node."""
        self.nodes[ident] = ExecutionNode(
            id=ident, kind=NodeKind.GATE, module=module, task=task, dependencies=tuple(dependencies)
        )
        return ident

    def step(self, ident: str, step: S, **more: Any) -> str:
        """Add a work node."""
        self.nodes[ident] = ExecutionNode(
            id=ident,
            name=step.name,
            step_name=step.type,
            with_=step.with_,
            policy=step.policy,
            origin=Origin("site.yaml", 10 + len(self.nodes), 9),
            **more,
        )
        return ident

    def hook(
        self, scope: str, hook: Hook, steps: Sequence[S], module: str, task: str, waits: Sequence[Dependency]
    ) -> str:
        """Add the steps of one hook of a scope; returns the last."""
        last = ""
        for step in steps:
            ident = f"{scope}/hooks/{hook}/{step.name}".lstrip("/")
            deps = (Dependency(last),) if last else tuple(waits)
            last = self.step(ident, step, module=module, task=task, hosts=("node1",), hook=hook, dependencies=deps)
        return last

    def after(self, scope: str, hooks: Hooks, module: str, task: str, members: Sequence[str]) -> str:
        """Add the gates and hooks at the end of a scope."""
        ends = [Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS]
        if not any(hooks.get(hook) for hook in ends):
            return self.gate(f"{scope}#end", module, task, [barrier(member) for member in members])
        body = self.gate(f"{scope}#body", module, task, [barrier(member) for member in members])
        on = {Hook.POST: On.SUCCESS, Hook.ON_FAILURE: On.FAILURE, Hook.ALWAYS: On.DONE}
        lasts = [
            self.hook(scope, hook, hooks[hook], module, task, [barrier(body, on[hook])])
            for hook in ends
            if hooks.get(hook)
        ]
        return self.gate(f"{scope}#end", module, task, [barrier(body), *map(barrier, lasts)])

    def task(self, module: str, task: T, waits: Sequence[str]) -> str:
        """Add a task that begins after the given gates."""
        scope = f"{module}/{task.name}"
        entry = [barrier(gate) for gate in waits]
        members: list[str] = []
        if task.hooks.get(Hook.PRE):
            first = self.hook(scope, Hook.PRE, task.hooks[Hook.PRE], module, task.name, entry)
            members.append(first)
            entry = [barrier(self.gate(f"{scope}#begin", module, task.name, [barrier(first)]))]
        ends: dict[str, list[str]] = {}
        before: list[str] = []
        for step in task.steps:
            if step.needs is None:
                deps = [Dependency(ident) for ident in before]
            else:
                deps = [Dependency(ident) for name in step.needs for ident in ends[name]]
            if task.linear and deps:
                gate = self.gate(f"{scope}/{step.name}#all", module, task.name, [barrier(dep.node) for dep in deps])
                deps = [barrier(gate)]
            made: list[str] = []
            for item in range(step.items or 1):
                ident = f"{scope}/{step.name}[{item}]" if step.items else f"{scope}/{step.name}"
                own = [Dependency(made[-1])] if made and not step.parallel else deps or entry
                made.append(
                    self.step(
                        ident,
                        step,
                        module=module,
                        task=task.name,
                        hosts=task.hosts,
                        dependencies=tuple(own),
                        item=item if step.items else None,
                        has_item=bool(step.items),
                    )
                )
            members += made
            before = ends[step.name] = made if step.parallel else made[-1:]
        for batch in range(2, task.batches + 1):
            gate = self.gate(f"{scope}#batch{batch}", module, task.name, [barrier(before[-1])])
            self.nodes[gate] = replace(self.nodes[gate], batch_budget="0")
            first_step = next(member for member in members if not self.nodes[member].hook)
            node = self.nodes[first_step]
            self.nodes[first_step] = replace(
                node, dependencies=(*node.dependencies, Dependency(gate, Mode.BARRIER, On.SUCCESS, task.hosts[-1:]))
            )
        return self.after(scope, task.hooks, module, task.name, members)

    def module(self, module: M, waits: Sequence[str]) -> str:
        """Add a module that begins after the given gates."""
        members: list[str] = []
        if module.hooks.get(Hook.PRE):
            first = self.hook(module.name, Hook.PRE, module.hooks[Hook.PRE], module.name, "", [*map(barrier, waits)])
            members.append(first)
            waits = [self.gate(f"{module.name}#begin", module.name, "", [barrier(first)])]
        before: list[str] = []
        for task in module.tasks:
            if task.needs is None:
                needed = before
            else:
                needed = [f"{name if '/' in name else f'{module.name}/{name}'}#end" for name in task.needs]
            inside = any(gate.startswith(f"{module.name}/") for gate in needed)
            before = [self.task(module.name, task, needed if inside else [*waits, *needed])]
            members += before
        return self.after(module.name, module.hooks, module.name, "", members)


def build(name: str, modules: Sequence[M], hooks: Hooks | None = None) -> ExecutionGraph:
    """The graph of a pipeline."""
    builder = Builder()
    hooks = hooks or {}
    start: list[str] = []
    if hooks.get(Hook.PRE):
        first = builder.hook("", Hook.PRE, hooks[Hook.PRE], "", "", [])
        start = [builder.gate("#begin", "", "", [barrier(first)])]
    before = start
    ends = []
    for module in modules:
        waits = before if module.needs is None else [f"{need}#end" for need in module.needs] or start
        before = [builder.module(module, waits)]
        ends += before
    builder.after("", hooks, "", "", ends)
    hosts = dict.fromkeys(host for node in builder.nodes.values() for host in node.hosts)
    return ExecutionGraph(
        name=name,
        nodes=builder.nodes,
        hosts={host: GraphHost(host, address=f"10.0.0.{i + 1}") for i, host in enumerate(hosts)},
        scopes={},
    )


def steps(*names: str) -> tuple[S, ...]:
    """Steps from ``name:type`` texts."""
    return tuple(S(name, kind) for name, _, kind in (text.partition(":") for text in names))


def small() -> ExecutionGraph:
    """Five steps in two modules."""
    return build(
        "hello",
        [
            M(
                "greet",
                [
                    T("say", steps("write:file", "show:command")),
                    T("check", steps("read:command", "compare:assert"), hosts=("node1",)),
                ],
            ),
            M("later", [T("tidy", steps("remove:file"))]),
        ],
    )


NODES = tuple(f"node{i}" for i in range(1, 13))
MASTERS = NODES[:3]
WORKERS = NODES[3:]


def cluster() -> ExecutionGraph:
    """About sixty steps: parallel branches, a join of many with many, loops, hooks, batches, a need across modules."""
    return build(
        "create-cluster",
        [
            M(
                "prepare",
                [
                    T("facts", steps("hostname:command", "resolv:file"), hosts=NODES),
                    T("sysctl", steps("forwarding:line-in-file", "bridge:line-in-file", "apply:command"), hosts=NODES),
                    T("packages", (S("install", "command", items=9), S("hold", "command")), hosts=NODES),
                    T("time", steps("chrony:template", "start:command"), hosts=NODES, needs=("facts",)),
                ],
            ),
            M(
                "etcd",
                [
                    T("certificates", steps("ca:command", "server:command", "peer:command"), hosts=("control-node",)),
                    T("install", steps("download:http", "unpack:archive", "link:symlink"), hosts=MASTERS, needs=()),
                    T(
                        "configure",
                        steps("env:template", "unit:template", "data:directory"),
                        hosts=MASTERS,
                        needs=("certificates", "install"),
                        hooks={Hook.ALWAYS: steps("forget-keys:file")},
                    ),
                    T("start", steps("enable:command", "wait:wait", "members:assert"), hosts=MASTERS, linear=True),
                ],
                hooks={
                    Hook.PRE: steps("ask:gate"),
                    Hook.ON_FAILURE: steps("collect-logs:script"),
                },
            ),
            M(
                "runtime",
                [
                    T(
                        "containerd",
                        (
                            S("download", "http"),
                            S("unpack", "archive"),
                            S("config", "template", needs=()),
                            S("registry", "template", needs=("config",), items=3, parallel=True),
                            S("start", "command", needs=("unpack", "registry")),
                        ),
                        hosts=NODES,
                    ),
                ],
                needs=("prepare",),
            ),
            M(
                "kubernetes",
                [
                    T("binaries", steps("kubeadm:http", "kubelet:http", "kubectl:http", "unit:template"), hosts=NODES),
                    T("init", steps("config:template", "kubeadm-init:command", "admin.conf:copy"), hosts=MASTERS[:1]),
                    T("masters", steps("join:command", "label:command"), hosts=MASTERS[1:], batches=2),
                    T("workers", steps("join:command", "label:command"), hosts=WORKERS, needs=("init",), batches=3),
                ],
                needs=("etcd", "runtime"),
            ),
            M(
                "addons",
                [
                    T("network", steps("manifest:template", "apply:command", "rollout:wait"), hosts=MASTERS[:1]),
                    T("dns", steps("manifest:template", "apply:command"), hosts=MASTERS[:1], needs=("network",)),
                    T("metrics", steps("manifest:template", "apply:command"), hosts=MASTERS[:1], needs=("network",)),
                    T("ingress", steps("manifest:template", "apply:command"), hosts=MASTERS[:1], needs=("network",)),
                ],
            ),
            M("backup", [T("timer", steps("script:template", "timer:template"), hosts=MASTERS)], needs=("etcd",)),
            M(
                "verify",
                [
                    T(
                        "nodes",
                        steps(
                            "ready:wait",
                        ),
                        hosts=MASTERS[:1],
                    ),
                    T(
                        "smoke",
                        (
                            S(
                                "deploy",
                                "command",
                                with_={
                                    "argv": ["kubectl", "create", "deployment", "smoke", "--image={{ vars.image }}"]
                                },
                                policy=Policy(Retry(attempts=3, delay=2.0, backoff="exponential"), timeout=60.0),
                            ),
                            S("answer", "http"),
                        ),
                        hosts=MASTERS[:1],
                    ),
                ],
                needs=("addons", "backup"),
            ),
        ],
        hooks={Hook.PRE: steps("licence:assert"), Hook.ALWAYS: steps("notify:http")},
    )


def wide(modules: int = 10, tasks: int = 5, length: int = 10, hosts: int = 30) -> ExecutionGraph:
    """As many steps as the product of the numbers; some tasks and modules side by side, some in a row."""
    names = tuple(f"worker-{i:02}" for i in range(hosts))
    made = []
    for m in range(modules):
        inner = []
        for t in range(tasks):
            needs = None if t % 3 != 2 else (f"task-{t - 2}",)
            inner.append(
                T(f"task-{t}", tuple(S(f"step-{i}-of-{t}", "file") for i in range(length)), names, needs=needs)
            )
        need: tuple[str, ...] | None = None
        if m % 4 == 2:
            need = (f"module-{m - 2}",)
        if m % 4 == 3:
            need = (f"module-{m - 2}", f"module-{m - 1}")
        made.append(M(f"module-{m}", inner, needs=need))
    return build("wide", made)


def fan(count: int = 20) -> ExecutionGraph:
    """One task, then many side by side, then three that each wait for all of them, then many modules side by side."""
    many = tuple(
        T(f"part-{i}", steps(*(f"do-{j}:script" for j in range(1 + i % 4))), needs=("first",)) for i in range(count)
    )
    all_of_them = tuple(task.name for task in many)
    last = tuple(T(f"last-{i}", steps("check:assert"), needs=all_of_them) for i in range(3))
    side = [M(f"side-{i}", [T("only", steps("one:command"))], needs=("main",)) for i in range(count)]
    loose = [M(f"loose-{i}", [T("only", steps("one:command"))], needs=()) for i in range(3)]
    main = M("main", [T("first", steps("prepare:directory")), *many, *last])
    join = M("join", [T("all", steps("report:message"))], needs=tuple(module.name for module in side))
    return build("fan", [main, *side, join, *loose])


def tangle(count: int = 40, seed: int = 3) -> ExecutionGraph:
    """A task whose steps need one another at random."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        needs = tuple(f"step-{j}" for j in sorted(chance.sample(range(max(0, i - 9), i), min(i, chance.randint(0, 2)))))
        made.append(S(f"step-{i}", "command", needs=needs))
    return build("tangle", [M("knot", [T("all", made)])])


def loops() -> ExecutionGraph:
    """Two modules each of which waits for a part of the other: no cycle of nodes, but one of frames."""
    first = M("a", [T("one", steps("x:file")), T("two", steps("y:file"))])
    graph = build("crossing", [first, M("b", [T("one", steps("x:file"), needs=("a/one",))], needs=())])
    nodes = dict(graph.nodes)
    step = nodes["a/two/y"]
    nodes["a/two/y"] = replace(step, dependencies=(*step.dependencies, barrier("b/one#end")))
    return graph.with_nodes(nodes.values())

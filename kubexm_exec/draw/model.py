"""What is drawn of a graph: boxes for work in groups (modules, tasks, hooks), dots for big gates, links between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.draw.contract import Wait, Waits, bundle, contract, reduce
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook, Mode, On, Part
from kubexm_spec.diagnostics import plural

FOLD = 6
"""A loop with more items than this is drawn as one box."""
ASIDE = (Hook.ON_FAILURE, Hook.ALWAYS)
ROOT = ""


class Box(Struct, frozen=True):
    """One drawn step: a node of the graph, or all the items of a long loop."""

    id: str
    label: str
    type: str
    group: str
    nodes: tuple[ExecutionNode, ...]
    hosts: tuple[str, ...]
    hook: Hook = Hook.NONE

    @property
    def folded(self) -> bool:
        """Whether it stands for several nodes."""
        return len(self.nodes) > 1

    @property
    def place(self) -> str:
        """Where in the user's files it comes from."""
        return str(self.nodes[0].origin)


class Dot(Struct, frozen=True):
    """A gate where many wait for many."""

    id: str
    group: str


class Link(Struct, frozen=True):
    """An edge from what comes first to what waits for it; both are ids of boxes or dots."""

    source: str
    target: str
    barrier: bool = False
    on: On = On.SUCCESS
    hook: bool = False


class Group(Struct, frozen=True):
    """A frame round boxes: a module (of tasks), a task (of steps) or the hooks of a scope (of steps)."""

    id: str
    kind: str  # module | task | hooks
    title: str
    parent: str = ROOT
    groups: tuple[str, ...] = ()
    boxes: tuple[str, ...] = ()
    note: str = ""


class Drawing(Struct, frozen=True):
    """A graph as it is drawn; everything in the order of the graph."""

    name: str
    boxes: Mapping[str, Box]
    dots: Mapping[str, Dot]
    links: tuple[Link, ...]
    groups: Mapping[str, Group]
    """By id, each after the one it is in; without the root."""

    @property
    def top(self) -> tuple[str, ...]:
        """The outermost groups."""
        return tuple(group.id for group in self.groups.values() if group.parent == ROOT)

    def group_of(self, item: str) -> str:
        """The innermost group that a box or dot is in."""
        box = self.boxes.get(item)
        return box.group if box else self.dots[item].group

    def path(self, group: str) -> tuple[str, ...]:
        """The groups round a group, the root first and the group itself last."""
        found = [group]
        while found[-1] != ROOT:
            found.append(self.groups[found[-1]].parent)
        return tuple(reversed(found))

    def boxes_in(self, group: str) -> Iterator[Box]:
        """All boxes in a group and the groups inside it."""
        frame = self.groups[group]
        for inner in frame.groups:
            yield from self.boxes_in(inner)
        for box in frame.boxes:
            yield self.boxes[box]


def summary(drawing: Drawing, group: str) -> str:
    """What a group holds, in a few words: ``3 tasks · 12 steps · 5 hosts``."""
    frame = drawing.groups[group]
    boxes = list(drawing.boxes_in(group))
    hosts = {host for box in boxes for host in box.hosts}
    tasks = sum(drawing.groups[inner].kind == "task" for inner in frame.groups)
    words = [plural(tasks, "task")] if tasks else []
    words.append(plural(sum(len(box.nodes) for box in boxes), "step"))
    words.append(next(iter(hosts)) if len(hosts) == 1 else plural(len(hosts), "host"))
    if frame.note:
        words.append(frame.note)
    return " · ".join(words)


def model(graph: ExecutionGraph) -> Drawing:
    """The drawing of a graph."""
    steps = [node for node in graph.nodes.values() if not node.is_gate]
    gates = [node for node in graph.nodes.values() if node.is_gate]
    batch_gates = {gate.id for gate in gates if gate.opens_batch or "#batch" in gate.id}
    batches: dict[tuple[str, str], int] = {}
    for gate in gates:
        if gate.id in batch_gates:
            batches[gate.module, gate.task] = batches.get((gate.module, gate.task), 1) + 1

    groups, home = _groups(steps, batches)
    boxes = {box.id: box for box in _boxes(steps, home)}
    stands_for = {node.id: box.id for box in boxes.values() for node in box.nodes}
    stands_for.update({gate.id: gate.id for gate in gates if gate.id not in batch_gates})
    waits: Waits = {vertex: {} for vertex in stands_for.values()}
    for node in graph.nodes.values():
        waiter = stands_for.get(node.id)
        for dep in node.dependencies:
            other = stands_for.get(dep.node)
            if waiter and other and other != waiter:
                old = waits[waiter].get(other)
                barrier = dep.mode is Mode.BARRIER or (old.barrier if old else False)
                waits[waiter][other] = Wait(barrier, On.FAILURE if _rescues(node, graph.nodes[dep.node]) else dep.on)

    aside = {box.id for box in boxes.values() if box.hook in ASIDE}
    vertices = list(waits)
    # A way through a hook for bad days implies nothing: the main line stays visible past it.
    reduce(vertices, waits, lambda source, _: source not in aside)
    dots = contract(vertices, waits, {gate.id for gate in gates})
    # Taking a gate out can make an edge that others imply, and that can make another gate small.
    vertices = list(waits)
    reduce(vertices, waits, lambda source, _: source not in aside)
    dots = contract(vertices, waits, dots)
    dots += bundle(waits)

    groups = _filled(groups, boxes.values())
    draft = Drawing(graph.name, boxes, {}, (), groups)
    placed = _placed(draft, waits, dots)
    hooks = {box.id for box in boxes.values() if box.hook}
    links = tuple(
        Link(source, target, wait.barrier, wait.on, source in hooks or target in hooks)
        for target, sources in waits.items()
        for source, wait in sources.items()
    )
    return Drawing(graph.name, boxes, placed, links, groups)


def _home(node: ExecutionNode) -> tuple[tuple[str, str, str], ...]:
    """The groups a node is in, outermost first, each as (id, kind, title)."""
    if node.hook and node.id.startswith("hooks/"):
        return ((f"#hooks/{node.hook}", "hooks", f"{node.hook} hooks"),)
    if node.handler and node.id.startswith("handlers/"):
        return (("#handlers", "hooks", "handlers"),)
    name = node.module or "(pipeline)"
    module = (name, "module", name)
    if node.handler and node.id.startswith(f"{node.module}/handlers/") and not node.task:
        return (module, (f"{name}#handlers", "hooks", "handlers"))
    if node.hook and node.id.startswith(f"{node.module}/hooks/"):
        return (module, (f"{name}#hooks/{node.hook}", "hooks", f"{node.hook} hooks"))
    return (module, (f"{name}/{node.task}", "task", node.task or "(steps)"))


def _label(node: ExecutionNode) -> str:
    rest = node.id
    for prefix in (f"{node.module}/{node.task}/", f"{node.module}/"):
        if rest.startswith(prefix) and len(rest) > len(prefix):
            rest = rest[len(prefix) :]
            break
    if not node.hook:
        return rest
    if rest.startswith(f"hostHooks/{node.hook}/"):
        return f"each host: {rest.split('/', 2)[2]}"
    if node.batch is not None:
        return f"batch {node.batch.number}: {rest.split('/', 3)[3]}"
    step, _, name = rest.rpartition(f"hooks/{node.hook}/")
    return f"{step.rstrip('/')}: {name}" if step and name else name or rest


def _boxes(steps: Sequence[ExecutionNode], home: Mapping[str, str]) -> Iterator[Box]:
    loops: dict[str, list[ExecutionNode]] = {}
    base: dict[str, str] = {}
    for node in steps:
        stem, bracket, _ = node.id.rpartition("[")
        if node.is_item and bracket:
            base[node.id] = f"{stem}[]"
            loops.setdefault(f"{stem}[]", []).append(node)
    done: set[str] = set()
    for node in steps:
        stem = base.get(node.id, "")
        items = loops.get(stem, [])
        if len(items) <= FOLD:
            yield Box(node.id, _label(node), node.step_name, home[node.id], (node,), node.hosts, node.hook)
        elif stem not in done:
            done.add(stem)
            hosts = tuple(dict.fromkeys(host for item in items for host in item.hosts))
            label = f"{_label(node).partition('[')[0]} [{len(items)} items]"
            yield Box(stem, label, node.step_name, home[node.id], tuple(items), hosts, node.hook)


def _groups(
    steps: Iterable[ExecutionNode], batches: Mapping[tuple[str, str], int]
) -> tuple[dict[str, Group], dict[str, str]]:
    """The groups, still empty, and for each node the innermost one it is in."""
    # Two homes never share an id, even if names hold a slash.
    idents: dict[tuple[tuple[str, str, str], ...], str] = {(): ROOT}
    groups: dict[str, Group] = {}
    home: dict[str, str] = {}
    for node in steps:
        way = _home(node)
        for depth in range(1, len(way) + 1):
            if way[:depth] in idents:
                continue
            ident, kind, title = way[depth - 1]
            while ident in groups:
                ident += "'"
            count = batches.get((node.module, node.task), 0) if kind == "task" else 0
            note = f"{count} batches" if count else ""
            groups[ident] = Group(ident, kind, title, idents[way[: depth - 1]], note=note)
            idents[way[:depth]] = ident
        home[node.id] = idents[way]
    return groups, home


def _filled(groups: Mapping[str, Group], boxes: Iterable[Box]) -> dict[str, Group]:
    inner: dict[str, list[str]] = {ident: [] for ident in groups}
    for group in groups.values():
        if group.parent != ROOT:
            inner[group.parent].append(group.id)
    held: dict[str, list[str]] = {ident: [] for ident in groups}
    for box in boxes:
        held[box.group].append(box.id)
    return {
        ident: replace(group, groups=tuple(inner[ident]), boxes=tuple(held[ident])) for ident, group in groups.items()
    }


def _placed(drawing: Drawing, waits: Waits, dots: Iterable[str]) -> dict[str, Dot]:
    """Each dot in the innermost group round everything that it joins (other dots aside)."""
    joined: dict[str, list[str]] = {dot: list(waits[dot]) for dot in dots}
    for vertex, sources in waits.items():
        for source in sources:
            if source in joined:
                joined[source].append(vertex)
    placed = {}
    for dot, neighbours in joined.items():
        paths = {drawing.path(drawing.boxes[other].group) for other in neighbours if other in drawing.boxes}
        common = ROOT
        for level in zip(*paths, strict=False):
            if len(set(level)) > 1:
                break
            common = level[0]
        placed[dot] = Dot(dot, common)
    return placed


def _rescues(node: ExecutionNode, other: ExecutionNode) -> bool:
    """Whether a node runs only if something failed in the group of another one."""
    body = {each.group for each in other.groups if each.part is Part.BODY}
    return any(each.part is Part.RESCUE and each.group in body for each in node.groups)

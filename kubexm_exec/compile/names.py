"""Judges one reference of an expression: whether there is such a name, and whether its value is known by then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.compile.cycles import Order, scope_graph
from kubexm_exec.compile.loops import TAG_REASONS, TAG_SKIPPED
from kubexm_exec.compile.scopes import layers_of, owner_of, visible_vars
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import linked_evaluator
from kubexm_exec.compile.types import marks_of
from kubexm_exec.model.graph import ExecutionNode, Hook, scope_of_item
from kubexm_exec.plugins import RegistryError
from kubexm_exec.runner.facts import FACT_NAMES
from kubexm_exec.step import AnyStep, load_step
from kubexm_exec.values.evaluate import CONTROL_NODE, NO_ITEMS, ROOTS, item_key
from kubexm_exec.values.expressions import ExpressionError, Reference
from kubexm_exec.values.names import GLOBALS, MAPPING_METHODS
from kubexm_spec.diagnostics import did_you_mean, some

_HOST_KEYS = ("name", "address", "internalAddress", "port", "user", "connector", "roles", "groups", "labels")
_BATCH_KEYS = ("number", "count", "hosts")
_FAILURE_KEYS = ("step", "kind", "message", "exitCode")
_RUN_KEYS = ("id", "name")
_STEP_KEYS = ("outputs", "changed", "status", "hosts")
_HOOK_ORDER = {Hook.PRE: 0, Hook.NONE: 1, Hook.HANDLER: 2, Hook.POST: 3, Hook.ON_FAILURE: 4, Hook.ALWAYS: 5}
_LATE = (Hook.HANDLER, Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)
"""What comes after the tasks of a module, or after all modules."""
_ELSEWHERE = {
    "inventory_hostname": "host.name",
    "ansible_host": "host.address",
    "ansible_user": "host.user",
    "group_names": "host.groups",
    "ansible_facts": "facts",
}
"""Ansible's names, and ours for the same."""
_MANY = 50
"""Hosts whose variables are suggested; more would only make a suggestion slow."""


class Looker(Struct, frozen=True):
    """What evaluates a reference: a node (of a scope), its draft if it is a step, and extra names that it has."""

    node: ExecutionNode
    draft: StepDraft | None = None
    extra: frozenset[str] = frozenset()
    forgiven: frozenset[tuple[str, tuple[str, ...]]] = field(default_factory=frozenset)
    """Chains that its conditions test with ``is defined``."""
    at_end: bool = False
    """Looks when all of its task or module is done: outputs of scopes."""
    lenient: bool = False
    """Looks at a variable whose user forgives that it has no value in this run."""

    def forgives(self, reference: Reference) -> bool:
        """Whether the name may be missing."""
        return reference.optional or any(
            (reference.root, reference.path[:size]) in self.forgiven for size in range(len(reference.path) + 1)
        )


class Problem(Struct, frozen=True):
    """What is wrong with a reference."""

    code: str
    summary: str
    hint: str = ""
    sure: bool = True
    """False if ``default`` or ``is defined`` make it harmless."""
    warns: bool = False
    """It may do no harm: a condition decides whether the expression is evaluated at all."""


class _Outputs(Struct, frozen=True):
    """The outputs of a step type: their names, or the parameters whose keys are their names."""

    names: frozenset[str] | None = None
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, step: type[AnyStep]) -> _Outputs:
        model = step.outputs_model
        if model.model_config.get("extra") == "allow":
            return cls(keys=marks_of(step.params_model).outputs)
        return cls(frozenset(info.alias or name for name, info in model.model_fields.items()))


class _Past:
    """Which nodes of a task, with its hooks, come before which others of it.

    Nodes that just follow one another are a chain, which is passed at once: to look back node by node from each step
    of a long task would take the square of its length.
    """

    def __init__(self, nodes: Mapping[str, ExecutionNode]) -> None:
        self._nodes = nodes
        self._at: dict[str, tuple[str, int]] = {}
        """The first node of the chain that a node is in, and how far behind that it is."""
        self._last: dict[str, str] = {}
        """The last node of each chain by its first one."""

    def holds(self, node: str, other: str) -> bool:
        """Whether another node of the same task comes before one."""
        chain, place = self._place(other)
        passed: set[str] = set()
        pending = self._before(node)
        while pending:
            first, reached = self._place(pending.pop())
            if first == chain and place <= reached:
                return True
            if first not in passed:
                passed.add(first)
                pending.extend(self._before(first))
        return False

    def _before(self, node: str) -> list[str]:
        """What a node waits for in its own task."""
        own = self._nodes[node]
        found = [dep.node for dep in own.dependencies]
        return [one for one in found if (self._nodes[one].module, self._nodes[one].task) == (own.module, own.task)]

    def _place(self, node: str) -> tuple[str, int]:
        trail: list[tuple[str, list[str]]] = []
        current = node
        while current not in self._at:
            before = self._before(current)
            trail.append((current, before))
            if len(before) != 1:
                break
            current = before[0]
        for name, before in reversed(trail):
            chain, place = self._at[before[0]] if len(before) == 1 else (name, -1)
            if place >= 0 and self._last[chain] != before[0]:
                chain, place = name, -1  # another node follows there already
            self._at[name] = chain, place + 1
            self._last[chain] = name
        return self._at[node]


class Names:
    """What can be referred to, from where."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.index = linked_evaluator(state).index
        self._earlier: dict[str, set[str]] = {}
        self._past = _Past(state.nodes)
        self._types: dict[str, _Outputs] = {}
        self._rank = {node_id: number for number, node_id in enumerate(state.nodes)}

    def problem(self, reference: Reference, looker: Looker) -> Problem | None:
        """What is wrong with a reference, or None; variables are found by ``variable``."""
        root, path = reference.root, reference.path
        if root == "result" and root in looker.extra and path:
            return self._result(path[0], looker.node)
        if root in looker.extra or root in GLOBALS:
            return None
        if root == "item":
            looped = looker.node.has_item or (looker.draft is not None and looker.draft.spec.for_each is not None)
            looped = looped or scope_of_item(self.state.scopes, looker.node.scope) is not None
            hint = "add forEach to the step, or use another name"
            return None if looped else Problem("no-item", "`item` is known only in a step with forEach", hint, False)
        if root == "origin" and (looker.draft is None or not looker.draft.for_host):
            summary = "`origin` is not available here: this does not serve a single host"
            hint = "use `host`; `origin` is the host that a step, or a hook of a step or a host, serves"
            return Problem("no-origin", summary, hint, False)
        if root == "batch":
            return self._batch(path, looker)
        if root == "failure":
            return self._failure(path, looker)
        if root not in ROOTS:
            return self._unknown_root(root, looker)
        if not path or (path[0] in MAPPING_METHODS and root in ("params", "vars", "hosts", "host", "origin", "facts")):
            return None
        match root:
            case "params":
                return self._param(path[0], looker)
            case "vars":
                return self.variable(path[0], looker)
            case "host" | "origin" | "run" | "facts":
                return self._key(root, path[0], looker)
            case "hosts":
                return self._host(path)
            case "steps":
                return self._step(path, looker) or self._unselected(reference, looker)
            case "tasks" | "modules":
                return self._outputs_of(root, path, looker) or self._unselected(reference, looker)
        return None

    def _result(self, name: str, node: ExecutionNode) -> Problem | None:
        """``result.NAME``: an output of the step itself."""
        outputs = self._outputs(replace(node, outputs={}))
        if outputs is None or name in outputs or name in MAPPING_METHODS:
            return None
        hint = did_you_mean(name, outputs) or (f"it has {', '.join(sorted(outputs))}" if outputs else "it has none")
        return Problem("unknown-output", f'a step of type {node.step_name} has no output "{name}"', hint, False)

    def _batch(self, path: tuple[str, ...], looker: Looker) -> Problem | None:
        if looker.draft is None or looker.draft.batch is None:
            hint = "`batch` is the batch that a hook of batches (batch.hooks) is for"
            return Problem("no-batch", "`batch` is known only in a hook of a batch", hint, False)
        if path and path[0] not in _BATCH_KEYS and path[0] not in MAPPING_METHODS:
            hint = did_you_mean(path[0], _BATCH_KEYS) or f"it has {', '.join(_BATCH_KEYS)}"
            return Problem("unknown-name", f'batch has no "{path[0]}"', hint, False)
        return None

    def _failure(self, path: tuple[str, ...], looker: Looker) -> Problem | None:
        if not looker.node.after_failure:
            summary = "`failure` is known only in `rescue` and `always` of a group of steps"
            hint = "it tells of the step that failed in the group; elsewhere see steps.NAME.status"
            return Problem("no-failure", summary, hint, False)
        if path and path[0] not in _FAILURE_KEYS and path[0] not in MAPPING_METHODS:
            hint = did_you_mean(path[0], _FAILURE_KEYS) or f"it has {', '.join(_FAILURE_KEYS)}"
            return Problem("unknown-name", f'failure has no "{path[0]}"', hint, False)
        return None

    def _unknown_root(self, root: str, looker: Looker) -> Problem:
        names = [*ROOTS, *sorted(looker.extra)]
        if root in self._vars(looker.node):
            hint = f"write vars.{root}"
        elif root in owner_of(self.state, looker.node.scope).params:
            hint = f"write params.{root}"
        elif root in _ELSEWHERE:
            hint = f"write {_ELSEWHERE[root]}"
        else:
            hint = did_you_mean(root, names) or f'there are {", ".join(names)}; a text needs quotes: "{root}"'
        return Problem("unknown-name", f'there is no name "{root}"', hint, False)

    def _param(self, name: str, looker: Looker) -> Problem | None:
        known = owner_of(self.state, looker.node.scope).params
        if name in known:
            return None
        hint = did_you_mean(name, known)
        if not hint and name in self._vars(looker.node):
            hint = f"write vars.{name}"
        return Problem("unknown-param", f'there is no parameter "{name}"', hint or _listed("parameters", known))

    def _vars(self, node: ExecutionNode) -> set[str]:
        return visible_vars(self.state, node.scope, (node.locations or tuple(self.state.hosts))[:_MANY])

    def variable(self, name: str, looker: Looker) -> Problem | None:
        """What is wrong with a variable."""
        if any(name in scope.vars for scope in layers_of(self.state, looker.node.scope)):
            return None
        if not self.state.hosts_known or not self.state.vars_known:
            return None
        # A task that runs nowhere (an empty role, --limit) is written for hosts all the same.
        hosts = looker.node.locations or tuple(self.state.hosts)
        without = [host for host in hosts if name not in self.state.hosts[host].vars]
        if not without or (not looker.node.hosts and len(without) < len(hosts)):
            return None
        if len(without) == len(hosts):
            known = self._vars(looker.node)
            hint = did_you_mean(name, known)
            if not hint and name in owner_of(self.state, looker.node.scope).params:
                hint = f"write params.{name}"
            if any(name in self.state.hosts[host].vars for host in looker.node.hosts if host in self.state.hosts):
                hint = (
                    f"`vars` are those of {some(hosts, 3)}, where it works; pass the value on with a `set` step before"
                )
            return Problem("unknown-var", f'there is no variable "{name}"', hint or _listed("variables", known), False)
        hint = "give all hosts a value, or use | default(...)"
        return Problem("unknown-var", f'variable "{name}" is not defined on {some(without, 3)}', hint, False)

    def _key(self, root: str, name: str, looker: Looker) -> Problem | None:
        keys = {"host": _HOST_KEYS, "origin": _HOST_KEYS, "run": _RUN_KEYS, "facts": FACT_NAMES}[root]
        if name in keys:
            return None
        hint = did_you_mean(name, keys)
        if root == "host" and name in self._vars(looker.node):
            hint = f"write vars.{name}"
        code = "unknown-fact" if root == "facts" else "unknown-name"
        return Problem(code, f'{root} has no "{name}"', hint or f"it has {', '.join(keys)}", False)

    def _host(self, path: tuple[str, ...]) -> Problem | None:
        name = path[0]
        if not self.state.hosts_known:
            return None
        known = [host for host in self.state.hosts if host != CONTROL_NODE] or [CONTROL_NODE]
        if name not in known:
            hint = did_you_mean(name, known) or _listed("hosts", known)
            return Problem("unknown-host", f'there is no host "{name}"', hint, False)
        if len(path) > 1 and path[1] not in _HOST_KEYS:
            hint = did_you_mean(path[1], _HOST_KEYS) or f"it has {', '.join(_HOST_KEYS)}"
            return Problem("unknown-name", f'a host has no "{path[1]}"', hint, False)
        return None

    def _step(self, path: tuple[str, ...], looker: Looker) -> Problem | None:
        key, rest = path[0], path[1:]
        found = self.index.find(key, looker.node)
        if not found and ("+" in key or key.endswith("]")):
            # A step of a fragment is there only when it has run, and so is an item that only the run knows; the step
            # that returns it is known.
            base, _, _ = key.partition("+") if "+" in key else key.rpartition("[")
            returns = [self.state.nodes[one] for one in self.index.find(base, looker.node)]
            if "+" in key or any(node.loop for node in returns):
                return self._step((base,), looker)
        if not found:
            parts = key.split("/")
            around = {parts[0], "/".join(parts[:2]), f"{looker.node.module}/{parts[0]}"}
            return None if around & self.state.unusable else self._unknown_step(key, looker)
        if not any(self._before(target, looker) for target in found):
            if found[0] == looker.node.id:
                return Problem("later-step", f'step "{key}" is this step itself', "use `result` in its own outputs")
            summary = f'step "{key}" does not run before this one, so its outputs are not known here'
            return Problem("later-step", summary, "change the order, or add it to `needs`")
        if not rest:
            return None
        first = self.state.nodes[found[0]]
        if not key.endswith("]") and (first.is_item or first.loop or first.skip == NO_ITEMS):
            if rest[0] != "items":
                example = item_key(first.id) if first.is_item else "KEY"
                hint = f"write steps['{key}[{example}]'].{rest[0]}, or loop over steps['{key}'].items"
                return Problem("loop-outputs", f'step "{key}" is a loop', hint)
            rest = rest[2:]
        elif rest[0] == "hosts":
            if len(rest) > 1 and rest[1] not in first.hosts:
                hint = did_you_mean(rest[1], first.hosts) or _listed("hosts", first.hosts)
                limited = ": --limit excludes it" if self.state.options.limit and rest[1] in self.state.hosts else ""
                return Problem("unknown-host", f'step "{key}" does not run on "{rest[1]}"{limited}', hint, False)
            rest = rest[2:]
        elif looker.node.hosts and not first.hosts:
            because, change = "no host is selected for it", "see its runOn"
            if self.state.options.limit:
                because, change = "--limit excludes its hosts", "use a wider --limit"
            summary = f'step "{key}" runs on no host, so it has no outputs: {because}'
            return Problem("other-hosts", summary, f"{change}, or use | default(...)", False)
        elif len(first.hosts) > 1 and not first.once and (other := self._without(looker.node, found)):
            summary = f'step "{key}" does not run on {other}, so it has no outputs there'
            return Problem("other-hosts", summary, f"write steps['{key}'].hosts['{first.hosts[0]}'].{rest[0]}")
        return self._step_key(key, rest, first)

    def _without(self, node: ExecutionNode, found: Iterable[str]) -> str:
        """A host of a node for which a step has no outputs: neither for that host, nor for the place it works at."""
        there = {host for name in found for host in self.state.nodes[name].hosts}
        if there.issuperset(node.hosts):
            return ""
        return next((host for host in node.hosts if host not in there and node.place(host) not in there), "")

    def _unknown_step(self, key: str, looker: Looker) -> Problem:
        names = self.index.names(looker.node)
        dashed = [name for name in names if name.startswith(f"{key}-")]
        hint = f"a name with a dash is written steps['{dashed[0]}']" if dashed else did_you_mean(key, names)
        if not hint:
            there = f"; here: {', '.join(names)}" if names else ""
            hint = f"a step of another task is written steps['task/step'] or steps['module/task/step']{there}"
        return Problem("unknown-step", f'there is no step "{key}" here', hint)

    def _step_key(self, key: str, rest: tuple[str, ...], node: ExecutionNode) -> Problem | None:
        outputs = self._outputs(node)
        if rest and rest[0] not in _STEP_KEYS:
            known = outputs is not None and rest[0] in outputs
            hint = f"write steps.{key}.outputs.{rest[0]}" if known else did_you_mean(rest[0], _STEP_KEYS)
            return Problem("unknown-name", f'a step has no "{rest[0]}"', hint or f"it has {', '.join(_STEP_KEYS)}")
        if len(rest) > 1 and rest[0] == "outputs" and outputs is not None and rest[1] not in outputs:
            hint = did_you_mean(rest[1], outputs) or (f"it has {', '.join(sorted(outputs))}" if outputs else "")
            summary = f'step "{key}" (type {node.step_name}) has no output "{rest[1]}"'
            return Problem("unknown-output", summary, hint or "it has none", False)
        return None

    def _outputs(self, node: ExecutionNode) -> Set[str] | None:
        """The outputs that a node has, or None if it may have any."""
        if node.step_name not in self._types:
            try:
                self._types[node.step_name] = _Outputs.of(load_step(self.state.steps, node.step_name))
            except RegistryError:  # told with the step itself
                self._types[node.step_name] = _Outputs()
        known = self._types[node.step_name]
        if known.names is not None:
            return known.names.union(node.outputs) if node.outputs else known.names
        named: list[Any] = [node.with_.get(key) for key in known.keys]
        if not named or not all(isinstance(values, Mapping) for values in named):
            return None
        return {*node.outputs, *(name for values in named for name in values)}

    def _outputs_of(self, root: str, path: tuple[str, ...], looker: Looker) -> Problem | None:
        """``tasks.NAME.outputs`` and ``modules.NAME.outputs``."""
        noun, name, here = root.removesuffix("s"), path[0], looker.node
        base = f"{here.module}/{name}" if root == "tasks" else name
        if base in self.state.looped:
            return self._outputs_of_items(root, path, looker, self.state.looped[base][0])
        known = self.index.tasks(here.module) if root == "tasks" else [module.name for module in self.state.modules]
        if not known and self.state.documents is None:
            known = [name]  # a fragment: modules are not drafted again
        if name not in known:
            hint = did_you_mean(name, known) or _listed(root, known)
            return Problem(f"unknown-{noun}", f'there is no {noun} "{name}" here', hint)
        scope = self.state.scopes.get(f"{here.module}/{name}" if root == "tasks" else name)
        if scope is None or scope.id in self.state.unusable:
            return None
        if not self._scope_done(scope.id, looker):
            summary = f'{noun} "{name}" does not complete before this, so its outputs are not known here'
            return Problem(f"later-{noun}", summary, "change the order, or add it to `needs`")
        if len(path) > 1 and path[1] != "outputs":
            known_outputs = _listed("outputs", scope.outputs)
            hint = f"write {root}.{name}.outputs.{path[1]}" if path[1] in scope.outputs else known_outputs
            return Problem("unknown-name", f'a {noun} has no "{path[1]}", only outputs', hint)
        if len(path) > 2 and path[2] not in scope.outputs:
            hint = did_you_mean(path[2], scope.outputs) or _listed("outputs", scope.outputs)
            return Problem("unknown-output", f'{noun} "{name}" has no output "{path[2]}"', hint, False)
        return None

    def _outputs_of_items(
        self, root: str, path: tuple[str, ...], looker: Looker, items: Sequence[str]
    ) -> Problem | None:
        """``tasks.NAME.items.KEY.outputs`` of a loop."""
        noun, name = root.removesuffix("s"), path[0]
        keys = [item.removesuffix("]").rpartition("[")[2] for item in items]
        if len(path) > 1 and path[1] != "items":
            example = keys[0] if keys else "KEY"
            hint = f"write {root}['{name}[{example}]'].{path[1]}, or loop over {root}.{name}.items"
            return Problem("loop-outputs", f'{noun} "{name}" is a loop', hint)
        if len(path) > 2 and path[2] not in (*keys, *MAPPING_METHODS):
            hint = did_you_mean(path[2], keys) or _listed("items", keys)
            return Problem("unknown-name", f'{noun} "{name}" has no item "{path[2]}"', hint, False)
        chosen = [path[2]] if len(path) > 2 and path[2] in keys else keys
        problems = (self._outputs_of(root, (f"{name}[{key}]", *path[3:]), looker) for key in chosen)
        return next((problem for problem in problems if problem is not None), None)

    def _unselected(self, reference: Reference, looker: Looker) -> Problem | None:
        """Outputs of a step that ``--tags`` or ``--skip-tags`` leave out, used by one that they do not."""
        here = looker.node
        if here.skip or looker.at_end or looker.lenient or not self._leaves_out:
            return None
        step = self._left_out(reference, here, set())
        if step is None:
            return None
        option = "--skip-tags excludes" if step.skip == TAG_SKIPPED else "--tags does not select"
        has = f"select one of its tags too ({', '.join(step.tags)})" if step.tags else "give it a selected tag"
        conditional = bool(here.guards) or isinstance(here.when, str) or here.hook is Hook.ON_FAILURE
        summary = f"{reference} does not exist in this run: {option} step {step.id}"
        return Problem("unselected-step", summary, f"{has}, or use | default(...)", False, conditional)

    @cached_property
    def _leaves_out(self) -> bool:
        """Whether there is any step that tags leave out."""
        return any(node.skip in TAG_REASONS for node in self.state.nodes.values())

    def _left_out(self, reference: Reference, here: ExecutionNode, seen: set[tuple[str, str]]) -> ExecutionNode | None:
        """The step of which an output is meant, directly or by way of outputs of scopes, if tags leave it out."""
        root, path = reference.root, reference.path
        if root == "steps" and "outputs" in path[1:-1]:
            found = [self.state.nodes[one] for one in self.index.find(path[0], here)]
            return found[0] if found and all(node.skip in TAG_REASONS for node in found) else None
        if root not in ("tasks", "modules") or path[1:2] != ("outputs",) or len(path) < 3:
            return None
        module, task = (here.module, path[0]) if root == "tasks" else (path[0], "")
        scope = self.state.scopes.get(f"{module}/{task}" if task else module)
        if scope is None or path[2] not in scope.outputs or (scope.id, path[2]) in seen:
            return None
        seen.add((scope.id, path[2]))
        inside = ExecutionNode(id="", module=module, task=task)
        try:
            references = self.state.expressions.references(scope.outputs[path[2]])
        except ExpressionError:  # told where it stands
            return None
        needed = (self._left_out(one, inside, seen) for _, _, one in references if not one.optional)
        return next((step for step in needed if step is not None), None)

    # Before and after

    @cached_property
    def _scopes(self) -> Order:
        return scope_graph(self.state)

    def _scope_done(self, scope_id: str, looker: Looker) -> bool:
        """Whether a whole task or module is done before the looker."""
        if self.state.documents is None:
            return True
        here = looker.node
        around = f"{here.module}/{here.task}" if here.task else here.module
        if looker.at_end and (not around or scope_id == around or scope_id.startswith(f"{around}/")):
            return True
        if not here.task:
            late = here.hook in _LATE
            inside = not here.module or scope_id.startswith(f"{here.module}/")
            if late and inside:
                return True
            around = f"{here.module}^"  # what a module's own steps come behind
        return bool(here.module) and scope_id in self._ancestors_of_scope(around)

    def _ancestors_of_scope(self, scope: str) -> set[str]:
        key = f"^{scope}"
        if key not in self._earlier:
            self._earlier[key] = self._scopes.ancestors(scope)
        return self._earlier[key]

    def _before(self, target: str, looker: Looker) -> bool:
        """Whether a node is certainly done before the looker."""
        there, here = self.state.nodes[target], looker.node
        if looker.at_end and there.module == here.module and there.task == (here.task or there.task):
            return True
        if (there.module, there.task) != (here.module, here.task) or not here.task:
            return self._scope_before(there, here)
        # A flush can be anywhere among the steps.
        flush = Hook.HANDLER in (there.hook, here.hook) and {there.hook, here.hook} <= {Hook.HANDLER, Hook.NONE}
        if (
            (there.hook or here.hook)
            and not flush
            and not here.is_of_group
            and _HOOK_ORDER[there.hook] != _HOOK_ORDER[here.hook]
        ):
            return _HOOK_ORDER[there.hook] < _HOOK_ORDER[here.hook]
        return self._past.holds(here.id, target)

    def _scope_before(self, there: ExecutionNode, here: ExecutionNode) -> bool:
        """Between tasks: the other is needed, directly or through others; hooks of outer scopes frame inner ones."""
        if self.state.documents is None:
            return True  # a fragment: whatever is in the graph and was named when compiling has its place
        if not there.task or not here.task:
            if there.hook is Hook.PRE and there.module in ("", here.module):
                return self._rank[there.id] < self._rank[here.id]
            if here.hook in _LATE and here.module in ("", there.module):
                return there.hook is Hook.NONE or bool(there.task) or self._rank[there.id] < self._rank[here.id]
            if not here.task and there.task:
                earlier = self._ancestors_of_scope(f"{here.module}^") if here.module else set()
                return f"{there.module}/{there.task}" in earlier or there.module in earlier
            return False
        earlier = self._ancestors_of_scope(f"{here.module}/{here.task}")
        return f"{there.module}/{there.task}" in earlier or there.module in earlier


def _listed(noun: str, names: Iterable[str]) -> str:
    known = sorted(names)
    return f"{noun}: {some(known, 12)}" if known else f"there are no {noun}"

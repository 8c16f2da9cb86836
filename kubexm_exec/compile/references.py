"""Pass: every name that an expression refers to exists, and what it needs has run before."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from kubexm_exec.compile.cycles import scope_graph
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.types import Marks, marks_of
from kubexm_exec.evaluate import ROOTS, StepIndex
from kubexm_exec.expr import GLOBALS, ExpressionError, Reference, find_references, is_dynamic, texts
from kubexm_exec.facts import FACT_NAMES
from kubexm_exec.graph import ExecutionNode, Hook
from kubexm_exec.step import Step
from kubexm_spec.diagnostics import Note, Span, did_you_mean
from kubexm_spec.source import Place

_HOST_KEYS = ("name", "address", "internalAddress", "port", "user", "connector", "roles", "groups", "labels")
_RUN_KEYS = ("id", "name")
_STEP_KEYS = ("outputs", "changed", "status", "hosts")


def check_references(state: State) -> None:
    """Look at every expression of every step; a wrong name is an error at its very place."""
    checker = _Checker(state)
    for draft in state.all_drafts():
        if draft.nodes:
            checker.draft(draft)
    for scope_id, scope in state.scopes.items():
        for name, value in scope.outputs.items() if state.documents is not None else ():
            module, _, task = scope_id.partition("/")
            node = ExecutionNode(id=f"{scope_id}#end", scope=scope_id, module=module, task=task)
            checker.values(value, state.output_places[(scope_id, name)], _View(node, None), ())


class _View:
    """Who looks: a node, its draft (None for outputs of scopes) and the names it has beyond the usual."""

    def __init__(self, node: ExecutionNode, draft: StepDraft | None, extra: Iterable[str] = ()) -> None:
        self.node = node
        self.draft = draft
        self.extra = frozenset(extra)


class _Checker:
    def __init__(self, state: State) -> None:
        self.state = state
        self.index = StepIndex(state.nodes)
        self._vars_seen: set[tuple[str, str, str]] = set()
        self._templates_seen: set[tuple[pathlib.Path, str, frozenset[str]]] = set()
        self._earlier: dict[str, set[str]] = {}
        self._rank = {node_id: number for number, node_id in enumerate(state.nodes)}

    @cached_property
    def scopes(self) -> Any:
        return scope_graph(self.state)

    def draft(self, draft: StepDraft) -> None:
        node = self.state.nodes[draft.nodes[0].id]
        step_type: type[Step[Any]] = self.state.steps.load(draft.spec.type)
        marks = marks_of(step_type.params_model)
        view = _View(node, draft)
        for key, value in draft.spec.with_.items():
            place = draft.place.child("with", key)
            if key in marks.steps:
                self._nested(value, place, draft)
                continue
            if key in marks.expressions:
                known = [*step_type.outputs_model.model_fields] if key != "that" else []
                camel = [info.alias or name for name, info in step_type.outputs_model.model_fields.items()]
                self.values(value, place, _View(node, draft, [*known, *camel]), draft.notes, bare=True)
            else:
                self.values(value, place, view, draft.notes)
        self._template(draft, node, marks)
        if isinstance(draft.spec.when, str):
            self.values(draft.spec.when, draft.place.child("when"), view, draft.notes, bare=True)
        for name, value in draft.spec.outputs.items():
            self.values(value, draft.place.child("outputs", name), _View(node, draft, ["result"]), draft.notes)
        for guard in draft.guards:
            if isinstance(guard.condition, str):
                outer = ExecutionNode(
                    id=node.id, scope=guard.scope, module=node.module, task=node.task, hosts=node.hosts
                )
                self.values(guard.condition, guard.place, _View(outer, draft), draft.notes, bare=True)

    def _nested(self, steps: Any, place: Place, draft: StepDraft) -> None:
        """Steps that a fragment step holds: their types and parameters are checked now, their references when they run."""
        from kubexm_exec.compile.fragment import parse_steps
        from kubexm_exec.compile.types import check_with, load_type

        if not isinstance(steps, list):
            return
        for number, spec in enumerate(parse_steps(steps, place, self.state.diagnostics)):
            where = place.child(number)
            step_type = load_type(self.state, spec.type, where.child("type"), draft.notes)
            if step_type is not None:
                check_with(self.state, step_type, spec, where, draft.notes)

    def values(self, value: Any, place: Place, view: _View, notes: Sequence[Note], *, bare: bool = False) -> None:
        """Check all texts in some data."""
        for path, text in texts(value):
            if not bare and not is_dynamic(text):
                continue
            where = place.child(*path) if path else place
            try:
                compiled = self.state.expressions.expression(text) if bare else self.state.expressions.text(text)
            except ExpressionError as error:
                span = where.find(error.fragment) if error.fragment else where.span()
                self.state.diagnostics.error("bad-expression", error.message, span, notes=notes)
                continue
            for reference in compiled.references:
                self.reference(reference, where, view, notes)

    def reference(
        self, reference: Reference, place: Place | _TemplatePlace, view: _View, notes: Sequence[Note]
    ) -> None:
        """Check one chain of names."""
        problem = self._problem(reference, place, view, notes)
        if problem is None or (reference.optional and problem[0] in ("unknown-var", "unknown-output", "unknown-fact")):
            return
        code, summary, hint = problem
        self.state.diagnostics.error(code, summary, place.find(str(reference)), hint=hint, notes=notes)

    def _problem(
        self, reference: Reference, place: Place | _TemplatePlace, view: _View, notes: Sequence[Note]
    ) -> tuple[str, str, str] | None:
        root, path = reference.root, reference.path
        if root in view.extra or root in GLOBALS:
            return None
        if root == "item":
            looped = view.draft is not None and view.draft.spec.for_each is not None
            return (
                None if looped or view.node.has_item else ("no-item", "`item` is known only in a step with forEach", "")
            )
        if root not in ROOTS:
            names = [*ROOTS, *view.extra]
            variable = self._visible_vars(view.node)
            hint = did_you_mean(root, names)
            if root in variable:
                hint = f"write vars.{root}"
            elif root in self._params(view.node):
                hint = f"write params.{root}"
            return "unknown-name", f'there is no name "{root}"', hint or f"there are {', '.join(names)}"
        if not path:
            return None
        first = path[0]
        if root == "params":
            known = self._params(view.node)
            if first not in known:
                hint = did_you_mean(first, known) or (
                    "write vars." + first if first in self._visible_vars(view.node) else ""
                )
                return "unknown-param", f'there is no parameter "{first}"', hint or _listed("parameters", known)
        elif root == "vars":
            return self._variable(first, view, notes)
        elif root in ("host", "run", "facts"):
            keys = {"host": _HOST_KEYS, "run": _RUN_KEYS, "facts": FACT_NAMES}[root]
            if first not in keys:
                hint = did_you_mean(first, keys)
                if root == "host" and first in self._visible_vars(view.node):
                    hint = f"write vars.{first}"
                code = "unknown-fact" if root == "facts" else "unknown-name"
                return code, f'{root} has no "{first}"', hint or f"it has {', '.join(keys)}"
        elif root == "hosts":
            if first not in self.state.hosts:
                return "unknown-host", f'there is no host "{first}"', did_you_mean(first, self.state.hosts)
        elif root == "steps":
            return self._step(reference, view)
        elif root in ("tasks", "modules"):
            return self._scope_outputs(root, path, view)
        return None

    def _params(self, node: ExecutionNode) -> Mapping[str, Any]:
        scope = self.state.scopes[node.scope]
        while not scope.own_params and scope.parent is not None:
            scope = self.state.scopes[scope.parent]
        return scope.params

    def _layers(self, node: ExecutionNode) -> list[tuple[str, Mapping[str, Any]]]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        scope_id: str | None = node.scope
        while scope_id is not None:
            scope = self.state.scopes[scope_id]
            found.append((scope_id, scope.vars))
            scope_id = None if scope.own_params else scope.parent
        return found

    def _visible_vars(self, node: ExecutionNode) -> set[str]:
        names = {name for _, layer in self._layers(node) for name in layer}
        for host in node.hosts[:50]:
            names.update(self.state.hosts[host].vars)
        return names

    def _variable(self, name: str, view: _View, notes: Sequence[Note]) -> tuple[str, str, str] | None:
        for scope_id, layer in self._layers(view.node):
            if name in layer:
                key = (scope_id, name, view.node.id)
                if is_dynamic(layer[name]) and key not in self._vars_seen:
                    self._vars_seen.add(key)
                    place = self.state.var_places[(scope_id, name)]
                    inner = ExecutionNode(
                        id=view.node.id, scope=scope_id, module=view.node.module, task=view.node.task, hosts=view.node.hosts,
                        has_item=view.node.has_item, item=view.node.item, name=view.node.name, hook=view.node.hook,
                    )  # fmt: skip
                    self.values(layer[name], place, _View(inner, view.draft), notes)
                return None
        without = [host for host in view.node.hosts if name not in self.state.hosts[host].vars]
        if not without and view.node.hosts:
            return None
        known = self._visible_vars(view.node)
        if len(without) == len(view.node.hosts):
            hint = did_you_mean(name, known) or ("write params." + name if name in self._params(view.node) else "")
            return "unknown-var", f'there is no variable "{name}"', hint or _listed("variables", known)
        shown = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        return (
            "unknown-var",
            f'variable "{name}" is not defined on {shown}',
            "give all hosts a value, or use | default(...)",
        )

    def _step(self, reference: Reference, view: _View) -> tuple[str, str, str] | None:
        key, rest = reference.path[0], reference.path[1:]
        found = self.index.find(key, view.node)
        if not found:
            names = self.index.names(view.node)
            dashed = [name for name in names if name.startswith(f"{key}-")]
            hint = did_you_mean(key, names)
            if dashed:
                hint = f"a name with a dash is written steps['{dashed[0]}']"
            return (
                "unknown-step",
                f'there is no step "{key}" here',
                hint or f"other tasks: steps['task/step']; here: {', '.join(names)}",
            )
        if not any(self._before(target, view) for target in found):
            same = found[0] == view.node.id
            return (
                "later-step",
                f'step "{key}" '
                + (
                    "is this step itself" if same else "does not run before this one, so its outputs are not known here"
                ),
                "use `result` in its own outputs" if same else "change the order, or add it to `needs`",
            )
        if not rest:
            return None
        first = self.state.nodes[found[0]]
        if len(found) > 1 or first.has_item and "[" not in key:
            if rest[0] != "items":
                return "loop-outputs", f'step "{key}" is a loop', f"write steps['{key}[KEY]'].{rest[0]}"
            rest = rest[2:] if len(rest) > 2 else ()
        elif rest[0] == "hosts":
            if len(rest) > 1 and rest[1] not in first.hosts:
                return "unknown-host", f'step "{key}" does not run on "{rest[1]}"', did_you_mean(rest[1], first.hosts)
            rest = rest[2:]
        elif view.node.hosts and len(first.hosts) > 1 and not set(view.node.hosts) <= set(first.hosts):
            other = next(host for host in view.node.hosts if host not in set(first.hosts))
            return (
                "other-hosts",
                f'step "{key}" does not run on {other}, so that it has no outputs there',
                f"write steps['{key}'].hosts['NAME']",
            )
        if rest and rest[0] not in _STEP_KEYS:
            outputs = self._outputs(first)
            hint = (
                f"write steps.{key}.outputs.{rest[0]}"
                if outputs is not None and rest[0] in outputs
                else did_you_mean(rest[0], _STEP_KEYS)
            )
            return "unknown-name", f'a step has no "{rest[0]}"', hint or f"it has {', '.join(_STEP_KEYS)}"
        if len(rest) > 1 and rest[0] == "outputs":
            outputs = self._outputs(first)
            if outputs is not None and rest[1] not in outputs:
                return (
                    "unknown-output",
                    f'step "{key}" (type {first.step_name}) has no output "{rest[1]}"',
                    did_you_mean(rest[1], outputs)
                    or (f"it has {', '.join(sorted(outputs))}" if outputs else "it has none"),
                )
        return None

    def _outputs(self, node: ExecutionNode) -> set[str] | None:
        """The outputs that a node has, or None if it may have any."""
        step_type: type[Step[Any]] = self.state.steps.load(node.step_name)
        model = step_type.outputs_model
        if model.model_config.get("extra") == "allow":
            values = node.with_.get("values")
            # A step that only passes values on says their names in the spec.
            return {*values, *node.outputs} if node.step_name == "set" and isinstance(values, Mapping) else None
        return {info.alias or name for name, info in model.model_fields.items()} | set(node.outputs)

    def _before(self, target: str, view: _View) -> bool:
        """Whether a node is surely done before whoever looks."""
        there, here = self.state.nodes[target], view.node
        if here.id.endswith("#end"):
            return True
        if (there.module, there.task) != (here.module, here.task) or not here.task:
            return self._scope_before(there, here)
        if there.hook or here.hook:
            order = {Hook.PRE: 0, Hook.NONE: 1, Hook.POST: 2, Hook.ON_FAILURE: 3, Hook.ALWAYS: 4}
            if order[there.hook] != order[here.hook]:
                return order[there.hook] < order[here.hook]
        return target in self._ancestors(here.id)

    def _ancestors(self, node_id: str) -> set[str]:
        """All nodes before one, found by walking back inside its own task (and its hooks)."""
        if node_id not in self._earlier:
            start = self.state.nodes[node_id]
            found: set[str] = set()
            pending = [dep.node for dep in start.dependencies]
            while pending:
                current = pending.pop()
                if current in found:
                    continue
                found.add(current)
                node = self.state.nodes[current]
                if (node.module, node.task) == (start.module, start.task):
                    pending.extend(dep.node for dep in node.dependencies)
            self._earlier[node_id] = found
        return self._earlier[node_id]

    def _scope_before(self, there: ExecutionNode, here: ExecutionNode) -> bool:
        """Between tasks: the other task is needed, directly or through others; hooks of outer scopes frame inner ones."""
        import networkx as nx

        if not there.task or not here.task:
            if there.hook is Hook.PRE and there.module in ("", here.module):
                return True
            if here.hook in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS) and here.module in ("", there.module):
                return there.hook is Hook.NONE or bool(there.task) or self._rank[there.id] < self._rank[here.id]
            return False
        key = f"^{here.module}/{here.task}"
        if key not in self._earlier:
            self._earlier[key] = set(nx.ancestors(self.scopes, f"{here.module}/{here.task}"))
        return f"{there.module}/{there.task}" in self._earlier[key] or there.module in self._earlier[key]

    def _scope_outputs(self, root: str, path: tuple[str, ...], view: _View) -> tuple[str, str, str] | None:
        name = path[0]
        scope_id = f"{view.node.module}/{name}" if root == "tasks" else name
        known = (
            self.index.tasks(view.node.module) if root == "tasks" else [module.name for module in self.state.modules]
        )
        if name not in known:
            noun = root.removesuffix("s")
            return f"unknown-{noun}", f'there is no {noun} "{name}" here', did_you_mean(name, known)
        outputs = self.state.scopes[scope_id].outputs
        if len(path) > 1 and path[1] != "outputs":
            return "unknown-name", f'a {root.removesuffix("s")} has no "{path[1]}"', "it has outputs"
        if len(path) > 2 and path[2] not in outputs:
            return (
                "unknown-output",
                f'{root}.{name} has no output "{path[2]}"',
                did_you_mean(path[2], outputs) or _listed("outputs", outputs),
            )
        return None

    def _template(self, draft: StepDraft, node: ExecutionNode, marks: Marks) -> None:
        """References inside a template file, with their places in that file."""
        for key in marks.templates:
            name = draft.spec.with_.get(key)
            if not isinstance(name, str) or is_dynamic(name):
                continue
            path = self.state.finder(self.state.scopes[draft.scope].base).find(name)
            if path is None:
                continue
            variables = draft.spec.with_.get("vars")
            extra = frozenset(variables) if isinstance(variables, dict) else frozenset()
            seen = (path, node.scope, extra)
            if seen in self._templates_seen:
                continue
            self._templates_seen.add(seen)
            self._template_file(path, _View(node, draft, extra), draft)

    def _template_file(self, path: pathlib.Path, view: _View, draft: StepDraft) -> None:
        from jinja2 import TemplateSyntaxError

        place = draft.place.child("with").span()
        notes = (Note("used by", place), *draft.notes)
        shown = self.state.shown(path)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.state.diagnostics.error(
                "bad-template", f"template {shown} cannot be read: {error}", draft.place.child("with")
            )
            return
        where = _TemplatePlace(shown, text)
        try:
            tree = self.state.expressions.environment.parse(text)
        except TemplateSyntaxError as error:
            self.state.diagnostics.error(
                "bad-template", f"the template cannot be read: {error.message}", where.line(error.lineno), notes=notes
            )
            return
        for reference in find_references(tree):
            self.reference(reference, where, view, notes)


class _TemplatePlace:
    """A place in a template file, which is no YAML."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def find(self, fragment: str) -> Span:
        """Where a piece of text is."""
        position = self.text.find(fragment)
        if position < 0:
            position = max(self.text.find(fragment.partition(".")[0]), 0)
            fragment = fragment.partition(".")[0]
        line = self.text.count("\n", 0, position) + 1
        column = position - (self.text.rfind("\n", 0, position) + 1) + 1
        return Span(self.name, line, column, line, column + len(fragment))

    def line(self, number: int) -> Span:
        """A whole line."""
        lines = self.text.splitlines() or [""]
        content = lines[min(max(number, 1), len(lines)) - 1]
        indent = len(content) - len(content.lstrip())
        return Span(self.name, number, indent + 1, number, len(content) + 1)


def _listed(noun: str, names: Iterable[str]) -> str:
    shown = sorted(names)[:12]
    return f"{noun}: {', '.join(shown)}" if shown else f"there are no {noun}"

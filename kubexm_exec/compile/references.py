"""Pass: every name that an expression refers to exists, and what it needs has run before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.hosts import merged_layers
from kubexm_exec.compile.loops import loop_place
from kubexm_exec.compile.names import Looker, Names
from kubexm_exec.compile.params import meant_provider, secret_schemes
from kubexm_exec.compile.scopes import is_given, layers_of, owner_of
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import judgements, linked_evaluator
from kubexm_exec.compile.templatefiles import TemplatePlace, find_reference, with_includes
from kubexm_exec.compile.types import Marks, check_with, load_type, marks_of, value_at
from kubexm_exec.model.graph import ExecutionNode, Loop, Scope
from kubexm_exec.resources.resolve import VARIANT
from kubexm_exec.values.expressions import Compiled, ExpressionError, Reference, is_dynamic, texts
from kubexm_spec.diagnostics import Note, Span
from kubexm_spec.yaml.source import Path, Place

_OF_STEPS = frozenset({"steps", "tasks", "modules", "item"})
"""Names whose values depend on a step."""

_OF_SCOPES = frozenset({"facts", "host", "hosts", "params", "run", "vars"})
"""Names whose values are the same for all nodes of a scope on a host."""

_Variable = tuple[str, str, str]
"""What a value is called: kind, scope or place, name."""


class _Written(Struct, frozen=True):
    """A variable or parameter with an expression: where it stands, and the scope that the expression sees."""

    variable: _Variable
    value: Any
    place: Place
    scope: str


def check_references(state: State) -> None:
    """Look at every expression of every step; a wrong name is an error at its very place."""
    checker = _Checker(state)
    broken: set[tuple[str, Path]] = set()
    for draft in state.all_drafts():
        if draft.nodes and draft.step_type is not None:
            before = state.diagnostics.error_count
            checker.draft(draft, marks_of(draft.step_type.params_model))
            draft.broken |= state.diagnostics.error_count > before
            # What is told of the hook of one batch is not told of the next one.
            draft.broken |= (draft.place.source.name, draft.place.path) in broken
            if draft.broken:
                broken.add((draft.place.source.name, draft.place.path))
    if state.documents is None:
        return
    hosts = {task.id: task.hosts for module in state.modules for task in module.tasks}
    for scope_id, scope in state.scopes.items():
        module, _, task = scope_id.partition("/")
        node = ExecutionNode(
            id=f"{scope_id}#end", scope=scope_id, module=module, task=task, hosts=hosts.get(scope_id, ())
        )
        for name, value in scope.outputs.items():
            checker.values(value, state.output_places[(scope_id, name)], Looker(node, at_end=True), ())
        for name, value in scope.resources.items():
            # Seen from before the first step: nothing has run, and any host may ask for it.
            looker = Looker(replace(node, id=f"{scope_id}#resources", task="", hosts=()), extra=frozenset({VARIANT}))
            before = len(state.diagnostics)
            checker.values(value, state.resource_places[(scope_id, name)], looker, (), early=True)
            if len(state.diagnostics) > before:
                state.broken_resources.add((scope_id, name))
        checker.unseen(scope, node)


class _Checker:
    def __init__(self, state: State) -> None:
        self.state = state
        self.names = Names(state)
        self._evaluator = linked_evaluator(state)
        self._seen: set[tuple[_Variable, str, str, bool]] = set()
        """Variables and parameters that were looked at, each with who looked."""
        self._in_order: dict[tuple[Reference, str, int], tuple[str, ...]] = {}
        """References without findings by what the answer depends on, with the hosts, of which the key has the id()."""
        self._alone = False
        """Whether what is being looked at must be looked at for each node."""
        self._known: set[_Variable] = set()
        self._chain: list[_Written] = []

    def draft(self, draft: StepDraft, marks: Marks) -> None:
        node = self.state.nodes[draft.nodes[0].id]
        looker = Looker(node, draft, forgiven=self._tested(draft))
        for path in draft.dynamic:
            place = draft.place.child("with", *path)
            self._text(value_at(draft.spec.with_, path), place, looker, place.notes)
        for key in marks.raw.intersection(draft.spec.with_) if marks.raw else ():
            value, place = draft.spec.with_[key], draft.place.child("with", key)
            if key in marks.steps:
                self._nested(value, place, [handler.spec.name for handler in draft.notifies])
            else:
                more = replace(looker, extra=frozenset(marks.expressions[key]))
                self.values(value, place, more, place.notes, bare=True)
        self._templates(draft, looker, marks)
        if isinstance(draft.spec.when, str):
            always = replace(looker, node=replace(node, when=None))
            self.values(draft.spec.when, draft.place.child("when"), always, draft.place.notes, bare=True)
        for name, value in draft.spec.outputs.items():
            place = draft.place.child("outputs", name)
            self.values(value, place, replace(looker, extra=frozenset({"result"})), place.notes)
        for text, place in judgements(draft.spec, draft.place):
            self.values(text, place, replace(looker, extra=frozenset({"result"})), place.notes, bare=True)
        if node.loop is not None:
            self._loop(draft, node.loop, replace(looker, forgiven=frozenset()))
        for name, variable in draft.environment().items():
            if variable.value is not None and variable.place is not None:
                seen = looker if name in draft.spec.env else Looker(replace(node, scope=variable.scope, has_item=False))
                self.values(variable.value, variable.place, seen, draft.place.notes)
        for guard in draft.guards:
            if isinstance(guard.condition, str):
                outer = replace(node, scope=guard.scope, has_item=False, when=None, guards=(), places={})
                self.values(guard.condition, guard.place, Looker(outer), draft.place.notes, bare=True)

    def _loop(self, draft: StepDraft, loop: Loop, looker: Looker) -> None:
        """The expressions of a loop that is evaluated during the run; only its key knows the item."""
        place = draft.place.child("forEach")
        outside = replace(draft, spec=draft.spec.model_copy(update={"for_each": None}))
        parts: dict[tuple[str, ...], Any] = {("matrix", name): axis for name, axis in (loop.matrix or {}).items()}
        for part, value in (parts or {("items",): loop.items}).items():
            bare = isinstance(value, str) and not is_dynamic(value)
            self.values(value, loop_place(place, part), replace(looker, draft=outside), draft.place.notes, bare=bare)
        if loop.key is not None:
            self.values(loop.key, place.child("key"), looker, draft.place.notes, bare=True)

    def _tested(self, draft: StepDraft) -> frozenset[tuple[str, tuple[str, ...]]]:
        """What the step's conditions test with ``is defined``: a host that lacks it is skipped before it matters."""
        found: set[tuple[str, tuple[str, ...]]] = set()
        for condition in (draft.spec.when, *(guard.condition for guard in draft.guards)):
            if isinstance(condition, str):
                try:
                    compiled = self.state.expressions.expression(condition)
                except ExpressionError:  # told where the condition itself is checked
                    continue
                found.update((one.root, one.path) for one in compiled.references if one.optional)
        return frozenset(found)

    def _nested(self, steps: Any, place: Place, handlers: Sequence[str]) -> None:
        """Steps that a step holds: their types and parameters are checked now, their references when they run.

        ``handlers``: those that the step notifies, so that these can.
        """
        from kubexm_exec.compile.fragmentsteps import check_notify, parse_steps

        if not isinstance(steps, list):
            return
        for where, spec in parse_steps(steps, place, self.state.diagnostics):
            step_type = load_type(self.state, spec.type, where.child("type"))
            if step_type is not None:
                check_with(self.state, step_type, spec, where)
            check_notify(self.state.diagnostics, spec, where, handlers)

    def values(
        self,
        value: Any,
        place: Place,
        looker: Looker,
        notes: Sequence[Note],
        *,
        bare: bool = False,
        early: bool = False,
    ) -> None:
        """Check all texts in some data; ``early``: they are the same for the whole run, whatever steps find out."""
        for path, text in texts(value):
            if bare or is_dynamic(text):
                self._text(text, place.child(*path) if path else place, looker, notes, bare=bare, early=early)

    def _text(
        self, text: str, place: Place, looker: Looker, notes: Sequence[Note], *, bare: bool = False, early: bool = False
    ) -> None:
        compiled = self._compiled(text, place, notes, bare)
        for reference in compiled.references if compiled is not None else ():
            if early and reference.root in _OF_STEPS:
                self._too_early(reference, place)
            else:
                self.reference(reference, place, looker, notes)

    def _too_early(self, reference: Reference, place: Place) -> None:
        summary = f"a resource is the same for all steps, so it cannot refer to {reference.root}"
        hint = "use params, vars and facts, or set `url` on the step"
        self.state.diagnostics.error("bad-resource", summary, find_reference(place, reference), hint=hint)

    def _compiled(self, text: str, place: Place, notes: Sequence[Note], bare: bool) -> Compiled | None:
        expressions = self.state.expressions
        try:
            return expressions.expression(text) if bare else expressions.text(text)
        except ExpressionError as error:
            self._alone = True
            self.state.diagnostics.error("bad-expression", error.message, place.find(error.fragment), notes=notes)
            return None

    def reference(
        self, reference: Reference, place: Place | TemplatePlace, looker: Looker, notes: Sequence[Note]
    ) -> None:
        """Check one chain of names, and what the variable behind it refers to.

        What is in order for one node is so for all that see the same values, unless it depends on the node itself.
        """
        key = self._shared_by(reference, looker)
        if key is not None and key in self._in_order:
            return
        outer, self._alone = self._alone, key is None
        self._look_up(reference, place, looker, notes)
        if key is not None and not self._alone:
            self._in_order[key] = looker.node.hosts
        self._alone |= outer

    def _shared_by(self, reference: Reference, looker: Looker) -> tuple[Reference, str, int] | None:
        """What the answer depends on beside the reference: a scope and some hosts; None if there is more to it."""
        node = looker.node
        if reference.root not in _OF_SCOPES or looker.extra or node.places:
            return None
        return reference, self._evaluator.outermost(node.scope), id(node.hosts)

    def _look_up(
        self, reference: Reference, place: Place | TemplatePlace, looker: Looker, notes: Sequence[Note]
    ) -> None:
        if reference.argument and not self._is_provided(reference):
            self._no_secret(reference.argument, place.find(reference.argument), notes)
        problem = self.names.problem(reference, looker)
        if problem is not None:
            self._alone = True
            if problem.sure or not looker.forgives(reference):
                span = find_reference(place, reference)
                tell = self.state.diagnostics.warning if problem.warns else self.state.diagnostics.error
                tell(problem.code, problem.summary, span, hint=problem.hint, notes=notes)
        elif reference.path and reference.root in ("vars", "params") and reference.root not in looker.extra:
            lenient = looker.lenient or looker.forgives(reference)
            for written in self._written(reference.root, reference.path[0], looker.node):
                self._follow(written, replace(looker, lenient=lenient) if lenient else looker, notes)

    def _no_secret(self, argument: str, span: Span, notes: Sequence[Note]) -> None:
        """A reference that no provider can resolve; what does not look like one may be the secret itself."""
        guess = meant_provider(argument)
        if guess:
            summary = "this is not a reference of an installed secret provider"
            self.state.diagnostics.error("unknown-secret-provider", summary, span, hint=guess, notes=notes)
        else:
            summary = "secret(...) takes a reference of an installed provider, not the secret itself"
            hint = f"installed: {', '.join(sorted(secret_schemes()))}"
            self.state.diagnostics.error("plain-password", summary, span, hint=hint, notes=notes)

    @staticmethod
    def _is_provided(reference: Reference) -> bool:
        scheme, colon, _ = reference.argument.partition(":")
        return scheme in secret_schemes() if colon else not reference.exact

    def _follow(self, written: _Written, looker: Looker, notes: Sequence[Note]) -> None:
        """Check the expressions of a variable or parameter, once for each node that sees it."""
        self._known.add(written.variable)
        if any(known.variable == written.variable for known in self._chain):
            self._alone = True
            self._cycle(written)
            return
        key = (written.variable, looker.node.id, written.scope, looker.lenient)
        if key in self._seen:
            self._alone = True
            return
        self._seen.add(key)
        self._chain.append(written)
        seen_from = replace(looker, node=replace(looker.node, scope=written.scope), extra=frozenset())
        self.values(written.value, written.place, seen_from, notes)
        self._chain.pop()

    def _written(self, root: str, name: str, node: ExecutionNode) -> Iterable[_Written]:
        state = self.state
        if state.documents is None:
            return  # a fragment: its node's values were checked with the spec
        if root == "params":
            owner = owner_of(state, node.scope)
            given = state.param_places.get((owner.id, name))
            if owner.parent is not None and given is not None and is_dynamic(owner.params.get(name)):
                yield _Written(("params", owner.id, name), owner.params[name], given, owner.parent)
            return
        if is_given(state, node.scope, name, host_has_it=False):
            return
        for scope in layers_of(state, node.scope):
            if name in scope.vars:
                if is_dynamic(scope.vars[name]):
                    place = state.var_places[(scope.id, name)]
                    yield _Written(("vars", scope.id, name), scope.vars[name], place, scope.id)
                break
        yield from self._inventory_vars(name, node)

    def _inventory_vars(self, name: str, node: ExecutionNode) -> Iterable[_Written]:
        """The strongest value on each host; hosts that share one are one."""
        found: dict[int, _Written] = {}
        if is_given(self.state, node.scope, name, host_has_it=True):
            return ()
        for host in node.locations:
            value = self.state.hosts[host].vars.get(name)
            if id(value) not in found and is_dynamic(value):
                layers = merged_layers(self.state, host)
                label, place = [(one, where) for one, other, where in layers if other == name][-1]
                found[id(value)] = _Written((label, f"{place.source.name}{place.path}", name), value, place, node.scope)
        return found.values()

    def _cycle(self, written: _Written) -> None:
        start = [known.variable for known in self._chain].index(written.variable)
        chain = self._chain[start:]
        first = min(range(len(chain)), key=lambda number: chain[number].variable)
        chain = [*chain[first:], *chain[:first]]
        names = [f"{'params' if kind == 'params' else 'vars'}.{name}" for kind, _, name in (x.variable for x in chain)]
        following = [*names[1:], names[0]]
        links = zip(names, following, [one.place for one in chain], strict=True)
        notes = [Note(f"{one} refers to {other}", place.find(other)) for one, other, place in links]
        summary = f"values refer to each other: {' -> '.join([*names, names[0]])}"
        hint = "give one of them a value that refers to no other"
        self.state.diagnostics.error("cycle", summary, notes[0].span, hint=hint, notes=notes)

    def unseen(self, scope: Scope, node: ExecutionNode) -> None:
        """Check values that no step refers to, as far as possible without a step: their names must exist somewhere."""
        looker = Looker(
            replace(node, task="", hosts=()),
            at_end=True,
            extra=frozenset({"batch", "item", "origin", "steps", "tasks"}),
        )
        state = self.state
        written = [
            _Written(("vars", scope.id, name), value, state.var_places[(scope.id, name)], scope.id)
            for name, value in scope.vars.items()
            if name not in scope.given
        ]
        if scope.parent is not None:
            given = {name: place for (owner, name), place in state.param_places.items() if owner == scope.id}
            written += [
                _Written(("params", scope.id, name), scope.params[name], place, scope.parent)
                for name, place in given.items()
                if name in scope.params
            ]
        for one in written:
            if one.variable not in self._known and is_dynamic(one.value):
                self._chain.append(one)
                self.values(one.value, one.place, replace(looker, node=replace(looker.node, scope=one.scope)), ())
                self._chain.pop()

    def _templates(self, draft: StepDraft, looker: Looker, marks: Marks) -> None:
        """References inside template files that are named literally, with their places in those files."""
        for key in sorted(marks.templates):
            name = draft.spec.with_.get(key)
            if not isinstance(name, str) or is_dynamic(name):
                continue
            path = self.state.finder(self.state.scopes[draft.scope].base).find(name)
            if path is None:
                continue
            variables = draft.spec.with_.get("vars")
            extra = frozenset(variables) if isinstance(variables, dict) else frozenset()
            notes = (Note("used by", draft.place.child("with", key).span()), *draft.place.notes)
            for template, more in with_includes(self.state, name, path, draft, key):
                for reference in template.references:
                    self.reference(reference, template.place, replace(looker, extra=extra | more), notes)

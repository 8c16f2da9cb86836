"""Drafts handlers, and finds those that steps notify and flushes run: their names, their hosts and their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kubexm_exec.compile.hooks import Surroundings, set_places
from kubexm_exec.compile.needs import check_unique
from kubexm_exec.compile.scopes import Used
from kubexm_exec.compile.state import FlushDraft, State, StepDraft, TaskDraft, with_tags
from kubexm_exec.compile.static import written
from kubexm_exec.model.graph import Hook
from kubexm_spec.diagnostics import Note, did_you_mean
from kubexm_spec.models import FlushSpec, HandlerSpec, StepSpec
from kubexm_spec.yaml.source import Place

NOT_NOTIFIED = "no step notifies it"
"""Why the node of a handler without hosts is skipped."""


def draft_handlers(
    state: State, handlers: Sequence[HandlerSpec], place: Place, scope: str, around: Surroundings
) -> list[StepDraft]:
    """The handlers of one list; their hosts are those of the steps that notify them, which are found later."""
    check_unique(state, [handler.name for handler in handlers], place, "handler")
    prefix = around.prefix.removesuffix("hooks")
    return [
        StepDraft(
            spec=handler, place=place.child(number), id=f"{prefix}handlers/{handler.name}", module=around.module,
            task=around.task, scope=scope, hosts=(), hook=Hook.HANDLER, once=around.once, guards=around.guards,
            env=around.env, tags=with_tags(around.tags, handler.tags), defaults=around.defaults,
            handler=f"{prefix}handlers/{handler.name}",
        )
        for number, handler in enumerate(handlers)
    ]  # fmt: skip


def draft_all_handlers(
    state: State, own: Sequence[HandlerSpec], place: Place, used: Used, outer: str, inner: str, around: Surroundings
) -> list[StepDraft]:
    """The handlers of a module or task: those of the document it uses first, then its own, which see what is around."""
    theirs = draft_handlers(state, used.document.handlers, used.place("handlers"), inner, around) if used else []
    return theirs + draft_handlers(state, own, place.child("handlers"), outer if used else inner, around)


def find_handlers(state: State) -> None:
    """Pass: resolve the names in ``notify`` and ``flush``, from the task outwards, and give handlers their hosts."""
    _Finder(state).find()


def add_notifications(state: State) -> None:
    """Pass: tell the nodes of each step the handlers that they notify, by their nodes."""
    for draft in state.all_drafts():
        if draft.notifies:
            names = tuple(node.id for handler in draft.notifies for node in handler.nodes if node.hosts)
            draft.nodes = [replace(node, notifies=names) for node in draft.nodes]
        elif draft.handler and not draft.hosts and not state.options.limit:
            draft.nodes = [replace(node, skip=NOT_NOTIFIED) for node in draft.nodes]


class _Finder:
    def __init__(self, state: State) -> None:
        self.state = state
        self.hosts: dict[str, dict[str, None]] = {}
        """The hosts of the steps that notify a handler, by its id."""

    def find(self) -> None:
        """Steps first, then handlers from the inside out: each knows its hosts before it notifies others."""
        state = self.state
        of_pipeline = _by_name(state.handlers)
        for module in state.modules:
            of_module = {**of_pipeline, **_by_name(module.handlers)}
            for task in module.tasks:
                of_task = {**of_module, **_by_name(task.handlers)}
                for step in task.steps:
                    if isinstance(step, FlushDraft):
                        continue
                    self._notify(step, of_task)
                self._settle(task.handlers, of_module, task.hosts)
            self._settle(module.handlers, of_pipeline)
        self._settle(state.handlers, {})
        for module in state.modules:
            for task in module.tasks:
                self._flush(task, [*task.handlers, *module.handlers, *state.handlers])
                self._warn_of_batches(task)

    def _notify(self, draft: StepDraft, known: Mapping[str, StepDraft], earlier: Sequence[str] = ()) -> None:
        """Resolve ``notify`` of a step, or of a handler: that cannot notify itself or ``earlier`` ones of its list."""
        spec = draft.spec
        if not isinstance(spec, StepSpec | HandlerSpec):
            return
        noun = "step" if isinstance(spec, StepSpec) else "handler"
        for index, name in enumerate(spec.notify):
            place = _item(draft.place.child("notify"), index)
            if name in earlier:
                summary = f'handler "{spec.name}" notifies "{name}", which does not come after it'
                hint = "handlers run in the order they are declared"
                self.state.diagnostics.error("handler-order", summary, place, hint=hint)
                continue
            handler = self._known(name, known, f'{noun} "{spec.name}" notifies', place)
            if handler is not None and all(handler is not other for other in draft.notifies):
                draft.notifies.append(handler)
                self.hosts.setdefault(handler.id, {}).update(dict.fromkeys(draft.hosts))

    def _known(self, name: str, known: Mapping[str, StepDraft], who: str, place: Place) -> StepDraft | None:
        handler = known.get(name)
        if handler is None:
            summary = f'{who} "{name}", which is no handler of its task, its module or the pipeline'
            there = f"handlers: {', '.join(sorted(known))}" if known else "there are none: add it under `handlers`"
            hint = self._elsewhere(name) or did_you_mean(name, known) or there
            self.state.diagnostics.error("unknown-handler", summary, place, hint=hint)
        return handler

    def _elsewhere(self, name: str) -> str:
        """What to do about a handler that others have."""
        for module in self.state.modules:
            for scope in (module, *module.tasks):
                if name in _by_name(scope.handlers):
                    return f"only steps of {scope.id} can notify it there: move it outwards, to where both see it"
        return ""

    def _settle(
        self, handlers: Sequence[StepDraft], outer: Mapping[str, StepDraft], hosts: tuple[str, ...] = ()
    ) -> None:
        """Give the handlers of a scope their hosts, in their order; ``hosts``: those of the task, in its order."""
        names = [handler.spec.name for handler in handlers]
        known = {**outer, **_by_name(handlers)}
        for number, handler in enumerate(handlers):
            found = self.hosts.get(handler.id)
            if found is None:
                self._warn_of_unused(handler)
                found = {}
            handler.hosts = tuple(host for host in hosts or self.state.hosts if host in found)
            self._place(handler)
            self._notify(handler, known, names[: number + 1])

    def _place(self, handler: StepDraft) -> None:
        if isinstance(handler.spec, HandlerSpec):
            set_places(self.state, handler, handler.spec)

    def _flush(self, task: TaskDraft, handlers: Sequence[StepDraft]) -> None:
        known = _by_name(reversed(handlers))
        for flush in task.steps:
            if not isinstance(flush, FlushDraft):
                continue
            for handler in self._flushed(flush, handlers, known):
                notified = set(handler.hosts)
                hosts = tuple(host for host in flush.hosts if host in notified)
                if not hosts:
                    continue
                part = replace(
                    handler, id=f"{flush.id}/{handler.spec.name}", module=flush.module, task=flush.task, hosts=hosts,
                    once=task.once, nodes=[],
                )  # fmt: skip
                self._place(part)
                flush.parts.append(part)

    def _flushed(
        self, flush: FlushDraft, handlers: Sequence[StepDraft], known: Mapping[str, StepDraft]
    ) -> list[StepDraft]:
        """The handlers that a flush runs, in the order they are declared: those of the task first."""
        spec: FlushSpec = flush.spec
        if spec.flush is True:
            if not handlers:
                summary = f'"{spec.name}" flushes nothing: its task, its module and the pipeline have no handlers'
                self.state.diagnostics.warning("unused-flush", summary, flush.place.child("flush"))
            return [handler for handler in handlers if known[handler.spec.name] is handler]
        wanted = set()
        for index, name in enumerate(spec.flush):
            place = flush.place.child("flush", index)
            if (handler := self._known(name, known, f'"{spec.name}" flushes', place)) is not None:
                wanted.add(handler.id)
        return [handler for handler in handlers if handler.id in wanted]

    def _warn_of_unused(self, handler: StepDraft) -> None:
        if any(finding.code == "unknown-handler" for finding in self.state.diagnostics):
            return  # that one may have been meant
        summary = f'no step notifies the handler "{handler.spec.name}"'
        hint = f"add `notify: [{handler.spec.name}]` to the steps after whose changes it is needed"
        self.state.diagnostics.warning("unused-handler", summary, handler.place.child("name"), hint=hint)

    def _warn_of_batches(self, task: TaskDraft) -> None:
        """A rolling task whose handlers run on all hosts at once in the end is hardly meant."""
        if len(task.batches) < 2:
            return
        last = {step.spec.name: index for index, step in enumerate(task.steps)}
        flushed = {
            part.handler: index
            for index, step in enumerate(task.steps)
            if isinstance(step, FlushDraft)
            for part in step.parts
        }
        for step in task.steps:
            for handler in step.notifies if isinstance(step, StepDraft) else ():
                if handler.task or flushed.get(handler.id, -1) > last[step.spec.name]:
                    continue
                scope = "module" if handler.module else "pipeline"
                name = handler.spec.name
                summary = f'"{name}" is a handler of the {scope}: it runs after the last batch, on all hosts at once'
                hint = f"to have it run in each batch, make it a handler of the task, or add `flush: [{name}]`"
                notes = (Note("the handler", handler.place.child("name").span()), *step.place.notes)
                self.state.diagnostics.warning(
                    "late-handler", summary, step.place.child("notify"), hint=hint, notes=notes
                )


def _by_name(handlers: Iterable[StepDraft]) -> dict[str, StepDraft]:
    return {handler.spec.name: handler for handler in handlers}


def _item(place: Place, index: int) -> Place:
    """The item of a list; a single one may stand alone."""
    return place.child(index) if isinstance(written(place), list) else place

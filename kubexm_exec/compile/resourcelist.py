"""All that a spec may need from elsewhere, without contacting any host: every resource, variant by variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.resources.resolve import ArchitectureOnly, base_of, render
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.values.evaluate import CONTROL_NODE, Evaluator
from kubexm_exec.values.expressions import ExpressionError, UnknownValueError, is_dynamic
from kubexm_spec.models.resource import ResourceSpec

if TYPE_CHECKING:
    from kubexm_exec.compile.state import State, StepDraft
    from kubexm_spec.yaml.source import Place

KEYS = ("url", "sha256", "filename", "fetchOn", "headers", "caFile", "timeout", "retries", "s3")
"""The keys of a resource that a step may have beside its own address."""


class Declared(Struct, frozen=True):
    """A resource as it is written: in a document, or in a step."""

    name: str
    spec: ResourceSpec
    place: Place
    scope: str
    users: tuple[StepDraft, ...] = ()
    """The steps that use it."""
    inline: bool = False
    """Written in a step."""

    @property
    def head(self) -> Place:
        """Where to point at it."""
        return self.place.child("url") if self.inline else self.place.key()


class Possible(Struct, frozen=True):
    """A possible source of a resource, or the reason why it is not known yet."""

    source: Source | None = None
    unknown: str = ""
    """The value that is known only during the run."""
    problem: str = ""
    hint: str = ""


def declared(state: State) -> Iterator[Declared]:
    """Every resource of the documents, then those that steps hold themselves."""
    users: dict[tuple[str, str], list[StepDraft]] = {}
    drafts = state.all_drafts()
    for draft in drafts:
        for name, scope in state.resource_users.get(draft.id, {}).items():
            users.setdefault((scope, name), []).append(draft)
    for (scope, name), place in state.resource_places.items():
        spec = ResourceSpec.model_validate(state.scopes[scope].resources[name])
        yield Declared(name, spec, place, scope, tuple(users.get((scope, name), ())))
    for draft in drafts:
        spec_or_none = inline_spec(draft)
        if spec_or_none is not None:
            place = draft.place.child("with")
            yield Declared(draft.spec.name, spec_or_none, place, draft.scope, (draft,), True)


def inline_spec(draft: StepDraft) -> ResourceSpec | None:
    """The resource that a step holds itself, if it does and if it is one."""
    from kubexm_exec.compile.types import marks_of

    if draft.step_type is None or not any(
        isinstance(draft.spec.with_.get(key), str) for key in marks_of(draft.step_type.params_model).urls
    ):
        return None
    try:
        return ResourceSpec.model_validate({key: draft.spec.with_[key] for key in KEYS if key in draft.spec.with_})
    except ValidationError:  # told where the parameters of steps are checked, or known only during the run
        return None


def possible(
    state: State, evaluator: Evaluator, one: Declared, architectures: Sequence[str] = (), *, whole: bool = False
) -> list[Possible]:
    """The sources that a resource may have on the hosts that use it, each once."""
    found: dict[Possible, None] = {}
    base = base_of(state.scopes, one.scope)
    for context in _contexts(evaluator, state, one):
        for result in _in_context(evaluator, one, base, context, architectures, whole):
            found[result] = None
    return list(found)


def _contexts(evaluator: Evaluator, state: State, one: Declared) -> Iterator[Mapping[str, Any]]:
    """What its expressions see on the hosts that use it: hosts may have other values."""
    data = one.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    nodes = [state.nodes.get(node.id, node) for draft in one.users for node in draft.nodes]
    if not one.inline:
        # It does not see what the node sees, but what is around the place that it is written at.
        nodes = [replace(node, scope=one.scope, has_item=False, item=None) for node in nodes]
    seen = [(node, host) for node in nodes for host in node.hosts]
    if not seen:
        host = CONTROL_NODE if CONTROL_NODE in state.hosts else next(iter(state.hosts))
        seen = [(ExecutionNode(id="", scope=one.scope), host)]
    for node, host in seen if is_dynamic(data) else seen[:1]:
        yield evaluator.context(node, host)


def _in_context(
    evaluator: Evaluator,
    one: Declared,
    base: Path,
    context: Mapping[str, Any],
    architectures: Sequence[str],
    whole: bool,
) -> Iterator[Possible]:
    def attempt(variant: str | None, known: str | None) -> Possible:
        """The source of a variant, on a host whose architecture may be known."""
        names = context if known is None else {**context, "facts": ArchitectureOnly(known)}
        try:
            return Possible(render(evaluator, one.spec, one.name, base, names, variant=variant, whole=whole))
        except UnknownValueError as error:
            return Possible(unknown=error.name)
        except ResourceError as error:
            return Possible(problem=error.message, hint=error.hint)
        except ExpressionError as error:
            return Possible(problem=f"resource {one.name}: {error.message}", hint=f"see {one.place.file_line}")

    if one.spec.variants:
        yield from (attempt(variant, variant) for variant in one.spec.variants)
        return
    found = attempt(None, None)
    if found.unknown.startswith("facts") and architectures:
        yield from (attempt(None, architecture) for architecture in architectures)
    else:
        yield found

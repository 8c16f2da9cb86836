"""Pass: resources that steps name exist, come from a sensible place and have a digest; local ones are in the graph."""

from __future__ import annotations

import pathlib

from kubexm_exec.compile.files import names_of, remember_file
from kubexm_exec.compile.params import is_reference, meant_reference
from kubexm_exec.compile.resourcelist import Declared, declared, possible
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import StaticEvaluator, linked_evaluator
from kubexm_exec.compile.types import marks_of
from kubexm_exec.resources.resolve import find
from kubexm_exec.resources.source import PREFIX, ResourceError, Source
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.models.resource import ResourceSpec, has_credentials, values_of
from kubexm_spec.paths import is_file
from kubexm_spec.yaml.source import Place

_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "private-token", "job-token", "x-auth-token"}
)


def check_resources(state: State) -> None:
    """Look at every resource, and at every step that names one."""
    evaluator = linked_evaluator(state)
    for draft in state.all_drafts():
        _find_used(state, evaluator, draft)
    for one in declared(state):
        if not one.inline and (one.scope, one.name) in state.broken_resources:
            continue
        if check_written(one.spec, one.place, state.diagnostics):
            _check(state, evaluator, one)


def _find_used(state: State, evaluator: StaticEvaluator, draft: StepDraft) -> None:
    if draft.step_type is None:
        return
    marks = marks_of(draft.step_type.params_model)
    for key in sorted(marks.resources | marks.files):
        for written in names_of(evaluator, draft, key):
            if key in marks.files and not written.startswith(PREFIX):
                continue
            name = written.removeprefix(PREFIX) if key in marks.files else written
            try:
                scope, spec = find(state.scopes, draft.scope, name)
            except ResourceError as error:
                place = draft.place.child("with", key)
                state.diagnostics.error("unknown-resource", error.message, place, hint=error.hint)
                continue
            state.resource_users.setdefault(draft.id, {})[name] = scope.id
            if spec.path is not None and state.documents is not None:
                place = state.resource_places[(scope.id, name)]
                _add_files(state, evaluator, draft, Declared(name, spec, place, scope.id))


def _add_files(state: State, evaluator: StaticEvaluator, draft: StepDraft, one: Declared) -> None:
    """A file of this machine is part of what the graph is made from."""
    for result in possible(state, evaluator, one):
        path = pathlib.Path(result.source.location) if result.source is not None else None
        if path is not None and is_file(path):
            state.file_users.setdefault(draft.id, {})[path] = path.name
            remember_file(state, path, one.place)


def check_written(spec: ResourceSpec, place: Place, diagnostics: Diagnostics) -> bool:
    """Whether no secret is written out where everybody can read it; the finding does not repeat it."""
    before = len(diagnostics)
    for url in values_of(spec.url):
        if has_credentials(url) and not is_dynamic(url):
            hint = "write `headers: {Authorization: \"Bearer {{ secret('env:NAME') }}\"}`"
            summary = "an address must not contain a user or a password"
            diagnostics.error("plain-password", summary, place.child("url"), hint=hint)
    for name, value in spec.headers.items():
        if name.lower() in _SECRET_HEADERS and not is_dynamic(value):
            summary = f"the header {name} is a secret: use a reference, not the value itself"
            where, hint = place.child("headers", name), "write {{ secret('env:NAME') }} in it"
            diagnostics.error("plain-password", summary, where, hint=hint)
    keys = spec.s3.model_dump(by_alias=True, exclude_none=True) if spec.s3 is not None else {}
    for name in ("accessKeyId", "secretAccessKey", "sessionToken"):
        key = keys.get(name)
        if key is not None and not is_dynamic(key) and not is_reference(key):
            summary, hint = f"{name} must be a secret reference, not the value itself", meant_reference(key, name)
            diagnostics.error("plain-password", summary, place.child("s3", name), hint=hint)
    password = spec.registry.password if spec.registry is not None else None
    if password is not None and not is_dynamic(password) and not is_reference(password):
        summary, hint = "password must be a secret reference, not the value itself", meant_reference(password, "it")
        diagnostics.error("plain-password", summary, place.child("registry", "password"), hint=hint)
    return len(diagnostics) == before


def _check(state: State, evaluator: StaticEvaluator, one: Declared) -> None:
    bare: dict[Source | None, None] = {}
    for result in possible(state, evaluator, one):
        source = result.source
        if result.problem:
            if state.hosts_known and not state.unusable:
                state.diagnostics.error("bad-resource", result.problem, one.head, hint=result.hint)
        elif source is None:
            if one.spec.sha256 is None and one.spec.image is None:
                bare[None] = None
        elif source.kind == "path" and not _is_there(state, one, source):
            continue
        elif not source.sha256 and source.kind != "image":  # its tag is a version that people chose
            bare[source] = None
    for source in bare:
        _warn(state, one, source)


def _is_there(state: State, one: Declared, source: Source) -> bool:
    path = pathlib.Path(source.location)
    place = one.head
    if not is_file(path):
        summary = f"resource {source.label}: there is no file {state.shown(path)} on this machine"
        hint = "relative paths start at the folder of the file that contains them"
        state.diagnostics.error("file-not-found", summary, place, hint=hint)
        return False
    remember_file(state, path, place)
    digest = state.files[path]
    if digest and source.sha256 and digest != source.sha256:
        summary = f"resource {source.label}: {state.shown(path)} has an unexpected sha256: {digest}"
        hint = "it is another version, or damaged: fetch it again, or correct `sha256`"
        state.diagnostics.error("wrong-digest", summary, place, hint=hint)
        return False
    return True


def _warn(state: State, one: Declared, source: Source | None) -> None:
    """The digest is missing; where it is known, it only has to be pasted."""
    digest = ""
    if source is not None and source.kind == "path":
        digest = state.files.get(pathlib.Path(source.location), "")
    elif source is not None:
        from kubexm_exec.resources.cache import Cache

        record = Cache().record(source)
        digest = record.sha256 if record is not None else ""
    label = source.label if source is not None else one.name
    if source is not None and source.variant:
        hint = f"add sha256: {{{source.variant}: {digest}}}"
    else:
        hint = f"add sha256: {digest}"
    summary = f"resource {label} has no sha256: any content of its source is accepted"
    hint = hint if digest else "`kubexm resources fetch` prints it"
    state.diagnostics.warning("missing-digest", summary, one.head, hint=hint)

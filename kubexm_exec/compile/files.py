"""Pass: files that steps name (templates, scripts, copies) exist; their digests go into the graph."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import StaticEvaluator, linked_evaluator
from kubexm_exec.compile.templatefiles import with_includes
from kubexm_exec.compile.types import marks_of
from kubexm_exec.resources.source import PREFIX
from kubexm_exec.values.expressions import ExpressionError, is_dynamic
from kubexm_spec.diagnostics import did_you_mean, shortened
from kubexm_spec.paths import exists, why_missing
from kubexm_spec.yaml.source import Place


def check_files(state: State) -> None:
    """Look at every parameter that names a file of this machine, on every host if it differs between them."""
    evaluator = linked_evaluator(state)
    for draft in state.all_drafts():
        if draft.step_type is None:
            continue
        marks = marks_of(draft.step_type.params_model)
        for key in sorted(marks.templates | marks.files):
            for name in names_of(evaluator, draft, key):
                if name.startswith(PREFIX) and key in marks.files:
                    continue  # looked at with the other resources
                found = _template(state, draft, key, name) if key in marks.templates else _file(state, draft, key, name)
                for path, label in found:
                    state.file_users.setdefault(draft.id, {})[path] = label
                    remember_file(state, path, draft.place.child("with", key))


def names_of(evaluator: StaticEvaluator, draft: StepDraft, key: str) -> list[str]:
    """The values of a parameter on all hosts, as far as they are known."""
    return values_of(evaluator, draft, draft.spec.with_.get(key))


def values_of(evaluator: StaticEvaluator, draft: StepDraft, value: Any) -> list[str]:
    """The texts that something in the parameters of a step is on all hosts, as far as they are known."""
    if not is_dynamic(value):
        return [value] if isinstance(value, str) else []
    found: dict[str, None] = {}
    for node in draft.nodes:
        for host in node.hosts:
            try:
                name = evaluator.value(value, node, host)
            except ExpressionError:  # known only during the run; or wrong, and told where references are checked
                continue
            if isinstance(name, str):
                found[name] = None
    return list(found)


def _template(state: State, draft: StepDraft, key: str, name: str) -> Iterator[tuple[pathlib.Path, str]]:
    finder = state.finder(state.scopes[draft.scope].base)
    found = finder.find(name)
    if found is None:
        hint = did_you_mean(name, finder.names()) or "searched: " + ", ".join(map(state.shown, finder.folders))
        where = draft.place.child("with", key)
        state.diagnostics.error("unknown-template", f'there is no template "{name}"', where, hint=hint)
        return
    for template, _ in with_includes(state, name, found, draft, key):
        yield template.path, template.path.name


def _file(state: State, draft: StepDraft, key: str, name: str) -> Iterator[tuple[pathlib.Path, str]]:
    found = pathlib.Path(state.scopes[draft.scope].base) / name
    place = draft.place.child("with", key)
    if not exists(found):
        hint = _neighbour(found, name) or "relative paths start at the folder of this file"
        summary = f'the file "{shortened(name, 200)}" {why_missing(found)} on this machine'
        state.diagnostics.error("file-not-found", summary, place, hint=hint)
    elif found.is_dir():
        for folder, folders, names in os.walk(found):
            folders.sort()
            for path in (pathlib.Path(folder, one) for one in sorted(names)):
                if path.is_file():
                    yield path, path.relative_to(found).as_posix()
    elif not found.is_file():
        summary = f'"{name}" cannot be read: it is not a regular file'
        state.diagnostics.error("unreadable-file", summary, place, hint="name a file or a folder")
    else:
        yield found, found.name


def _neighbour(path: pathlib.Path, written: str) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return ""
    return did_you_mean(path.name, names, written.rpartition("/")[0])


def remember_file(state: State, path: pathlib.Path, place: Place) -> None:
    """Put the digest of a file into the graph, once."""
    if path in state.files:
        return
    try:
        state.files[path] = file_digest(path)
    except OSError as error:
        state.files[path] = ""
        summary = f"{state.shown(path)} cannot be read: {error.strerror}"
        state.diagnostics.error("unreadable-file", summary, place, hint="check its owner and mode")


def file_digest(path: pathlib.Path) -> str:
    """sha256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

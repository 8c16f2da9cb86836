"""Template files as the compiler sees them: what they refer to, and which others they include."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from jinja2 import meta, nodes
from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.places import TemplatePlace
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.values.expressions import ExpressionError, Reference
from kubexm_spec.diagnostics import Note, did_you_mean
from kubexm_spec.yaml.source import Place


class TemplateFile(Struct, frozen=True):
    """A template that was read: its references, with their places, and the names of templates it includes."""

    path: pathlib.Path
    place: TemplatePlace
    references: tuple[Reference, ...]
    includes: tuple[tuple[str, bool], ...] = ()
    """Names that are written out, each with whether it may be missing."""
    own: frozenset[str] = frozenset()
    """Names that it defines, which what it includes sees as well."""


def _read(state: State, name: str, path: pathlib.Path, used_by: Place) -> TemplateFile | None:
    """The template in a file, or None with findings."""
    shown = state.shown(path)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        message = f"template {shown} is not UTF-8 text: byte {error.start + 1} is wrong"
        state.diagnostics.error("bad-template", message, used_by, hint="save the file as UTF-8")
        return None
    except OSError as error:
        message = f"template {shown} cannot be read: {error.strerror}"
        state.diagnostics.error("bad-template", message, used_by)
        return None
    place = TemplatePlace(shown, text)
    try:
        tree = state.expressions.parse(text, name)
        template = TemplateFile(path, place, state.expressions.template_references(text, tree))
        # Only what is between these can define a name or include a file; most templates have none.
        if "{%" in text:
            template = replace(template, includes=tuple(_includes(tree)), own=frozenset(_defined(tree)))
        state.expressions.keep_template(tree, text, name, str(path))
    except ExpressionError as error:
        also = (Note("used by", used_by.span()), *used_by.notes)
        state.diagnostics.error("bad-template", error.message, place.find(error.fragment, error.line), notes=also)
        return None
    return template


def _defined(tree: nodes.Template) -> Iterator[str]:
    return (name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param"))


def _includes(tree: nodes.Template) -> Iterator[tuple[str, bool]]:
    forgiving: set[str] = set()
    for include in tree.find_all(nodes.Include):
        several = isinstance(include.template, nodes.List | nodes.Tuple)
        if include.ignore_missing or several:
            forgiving.update(str(const.value) for const in include.template.find_all(nodes.Const))
            if isinstance(include.template, nodes.Const):
                forgiving.add(str(include.template.value))
    for name in sorted({name for name in meta.find_referenced_templates(tree) if name is not None}):
        yield name, name in forgiving


def with_includes(
    state: State, name: str, path: pathlib.Path, draft: StepDraft, key: str
) -> Iterator[tuple[TemplateFile, frozenset[str]]]:
    """A template and all that it includes, each once, with the names that the including ones define."""
    used_by = draft.place.child("with", key)
    finder = state.finder(state.scopes[draft.scope].base)
    waiting: list[tuple[str, pathlib.Path, frozenset[str]]] = [(name, path, frozenset())]
    seen: set[pathlib.Path] = set()
    while waiting:
        called, current, names = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        if current not in state.templates_read:
            state.templates_read[current] = _read(state, called, current, used_by)
        template: TemplateFile | None = state.templates_read[current]
        if template is None:
            continue
        yield template, names
        for included, optional in template.includes:
            found = finder.find(included)
            if found is not None:
                waiting.append((included, found, names | template.own))
            elif not optional:
                hint = did_you_mean(included, finder.names())
                state.diagnostics.error(
                    "unknown-template",
                    f'there is no template "{included}"',
                    template.place.find(included),
                    hint=hint or "names are relative to a templates folder, not to this file",
                    notes=(Note("used by", used_by.span()), *used_by.notes),
                )

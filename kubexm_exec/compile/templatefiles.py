"""Template files as the compiler sees them: their references with their places, and the templates they include."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.values.expressions import ExpressionError, Reference
from kubexm_exec.values.names import plain_parts
from kubexm_spec.diagnostics import Note, Span, did_you_mean
from kubexm_spec.yaml.lines import LineTable
from kubexm_spec.yaml.source import Place

if TYPE_CHECKING:
    from jinja2 import nodes


class TemplatePlace:
    """A place in a template file, which is no YAML."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._table = LineTable(text)

    def find(self, fragment: str, line: int = 0) -> Span:
        """Where a piece of text is, in a line if that is known."""
        start, end = 0, len(self.text)
        if line:
            lines = self.text.splitlines(keepends=True)
            start = sum(map(len, lines[: line - 1]))
            end = start + len(lines[line - 1])
        found = self.text.find(fragment, start, end)
        return self._table.span(self.name, max(found, start), max(found, start) + len(fragment))

    def find_reference(self, reference: Reference) -> Span:
        """Where a chain of names is, however it is spelled."""
        where = _search(str(reference), self.text) or _search(reference.root, self.text) or (0, 0)
        return self._table.span(self.name, *where)


def find_reference(place: Place | TemplatePlace, reference: Reference) -> Span:
    """Where a chain of names is in a text, however it is spelled; the whole text if it is not found."""
    if isinstance(place, TemplatePlace):
        return place.find_reference(reference)
    start, _ = place.source.range_of(place.document, place.path, place.on_key)
    found = _search(str(reference), place.raw)
    return place.source.span_of((start + found[0], start + found[1])) if found else place.find(str(reference))


def _search(chain: str, text: str) -> tuple[int, int] | None:
    """The range of ``a.b`` or ``a['b']`` in a text: inside an expression rather than beside one."""
    root, *parts = re.findall(r"\w+|'[^']*'", chain)
    pattern = rf"(?<![\w.]){re.escape(root)}"
    for part in parts:
        name = re.escape(part.strip("'"))
        # In a quoted scalar of YAML a quote can be doubled or have a backslash.
        pattern += rf"\s*(?:\.\s*{name}|\[\s*\\?['\"]{{1,2}}{name}\\?['\"]{{1,2}}\s*\])"
    found = [match.span() for match in re.finditer(pattern + r"(?!\w)", text)]
    return next((one for one in found if _in_expression(text, one[0])), found[0] if found else None)


def _in_expression(text: str, at: int) -> bool:
    opened = max(text.rfind("{{", 0, at), text.rfind("{%", 0, at))
    return opened > max(text.rfind("}}", 0, at), text.rfind("%}", 0, at))


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
        template = TemplateFile(path, place, state.expressions.template_references(text))
        if plain_parts(text) is None:
            template = _with_code(state, template, name)
    except ExpressionError as error:
        also = (Note("used by", used_by.span()), *used_by.notes)
        state.diagnostics.error("bad-template", error.message, place.find(error.fragment, error.line), notes=also)
        return None
    return template


def _with_code(state: State, template: TemplateFile, name: str) -> TemplateFile:
    """A template that Jinja2 has to render; raises ExpressionError if it cannot."""
    from jinja2 import nodes

    jinja, text = state.expressions.jinja, template.place.text
    tree = jinja.parse(text, name)
    # Only what is between these can define a name or include a file; most templates have none.
    if "{%" in text:
        own = {name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param")}
        template = replace(template, includes=tuple(_includes(tree)), own=frozenset(own))
    jinja.keep_template(tree, text, name, str(template.path))
    return template


def _includes(tree: nodes.Template) -> Iterator[tuple[str, bool]]:
    from jinja2 import meta, nodes

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

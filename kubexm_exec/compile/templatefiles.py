"""Template files as the compiler sees them: what they refer to, and which others they include."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from jinja2 import meta, nodes

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.expr import ExpressionError, Reference, find_references
from kubexm_exec.templates import TemplateFinder
from kubexm_spec.diagnostics import Note, Span, did_you_mean
from kubexm_spec.source import Place
from kubexm_spec.textlines import LineTable


class TemplatePlace:
    """A place in a template file, which is no YAML."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._table = LineTable(text)

    def find(self, fragment: str) -> Span:
        """Where a piece of text, or a chain of names in any spelling, is: inside an expression if possible."""
        root = re.match(r"\w*", fragment)
        for pattern in (_spellings(fragment), re.escape(fragment), re.escape(root[0] if root else "")):
            found = [match.span() for match in re.finditer(pattern, self.text)]
            if found:
                where = next((one for one in found if self._in_expression(one[0])), found[0])
                return self._table.span(self.name, *where)
        return self._table.span(self.name, 0, 0)

    def _in_expression(self, at: int) -> bool:
        opened = max(self.text.rfind("{{", 0, at), self.text.rfind("{%", 0, at))
        return opened > max(self.text.rfind("}}", 0, at), self.text.rfind("%}", 0, at))


def _spellings(chain: str) -> str:
    """A pattern for ``a.b`` that also finds ``a['b']``."""
    root, *parts = re.findall(r"\w+(?:-\w+)*|'[^']*'", chain) or [chain]
    pattern = rf"(?<![\w.]){re.escape(root)}"
    for part in parts:
        name = re.escape(part.strip("'"))
        pattern += rf"\s*(?:\.\s*{name}|\[\s*['\"]{name}['\"]\s*\])"
    return pattern + r"(?!\w)"


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A template that was read: its references, with their places, and the names of templates it includes."""

    path: pathlib.Path
    place: TemplatePlace
    references: tuple[Reference, ...]
    includes: tuple[tuple[str, bool], ...]
    """Names that are written out, each with whether it may be missing."""
    own: frozenset[str] = field(default_factory=frozenset)
    """Names that it defines, which what it includes sees as well."""


def read_template(state: State, path: pathlib.Path, used_by: Place, notes: tuple[Note, ...]) -> TemplateFile | None:
    """The template in a file, or None with findings; each file is read once."""
    if path not in state.templates_read:
        state.templates_read[path] = _read(state, path, used_by, notes)
    found: TemplateFile | None = state.templates_read[path]
    return found


def _read(state: State, path: pathlib.Path, used_by: Place, notes: tuple[Note, ...]) -> TemplateFile | None:
    shown = state.shown(path)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        message = f"template {shown} is not UTF-8 text: byte {error.start + 1} is wrong"
        state.diagnostics.error("bad-template", message, used_by, hint="save the file as UTF-8", notes=notes)
        return None
    except OSError as error:
        message = f"template {shown} cannot be read: {error.strerror}"
        state.diagnostics.error("bad-template", message, used_by, notes=notes)
        return None
    place = TemplatePlace(shown, text)
    try:
        tree = state.expressions.parse(text)
        state.expressions.environment.from_string(text)  # unknown filters are found only here
    except ExpressionError as error:
        also = (Note("used by", used_by.span()), *notes)
        state.diagnostics.error("bad-template", error.message, place.find(error.fragment), notes=also)
        return None
    own = frozenset(name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param"))
    return TemplateFile(path, place, find_references(tree), tuple(_includes(tree)), own)


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
    state: State, path: pathlib.Path, draft: StepDraft, key: str
) -> Iterator[tuple[TemplateFile, frozenset[str]]]:
    """A template and all that it includes, each once, with the names that the including ones define."""
    used_by = draft.place.child("with", key)
    finder = state.finder(state.scopes[draft.scope].base)
    waiting: list[tuple[pathlib.Path, frozenset[str]]] = [(path, frozenset())]
    seen: set[pathlib.Path] = set()
    while waiting:
        current, names = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        template = read_template(state, current, used_by, draft.notes)
        if template is None:
            continue
        yield template, names
        for name, optional in template.includes:
            found = _included(state, finder, template, name, optional, used_by, draft.notes)
            if found is not None:
                waiting.append((found, names | template.own))


def _included(
    state: State,
    finder: TemplateFinder,
    template: TemplateFile,
    name: str,
    optional: bool,
    used_by: Place,
    notes: tuple[Note, ...],
) -> pathlib.Path | None:
    found = finder.find(name)
    if found is None and not optional:
        state.diagnostics.error(
            "unknown-template",
            f'there is no template "{name}"',
            template.place.find(name),
            hint=did_you_mean(name, finder.names()) or "names start at a folder of templates, not at this file",
            notes=(Note("used by", used_by.span()), *notes),
        )
    return found

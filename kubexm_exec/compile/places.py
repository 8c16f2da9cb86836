"""Finds references in texts: in the scalars of a spec and in template files."""

from __future__ import annotations

import re

from kubexm_exec.values.expressions import Reference
from kubexm_spec.diagnostics import Span
from kubexm_spec.yaml.lines import LineTable
from kubexm_spec.yaml.source import Place


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
            start = sum(len(one) for one in self.text.splitlines(keepends=True)[: line - 1])
            end = start + len(self.text.splitlines(keepends=True)[line - 1])
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

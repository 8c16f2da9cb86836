"""Renders templates with the same rules as expressions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubexm_exec.values.expressions import ExpressionError, Expressions
from kubexm_exec.values.finder import TRIMMING, Trimming, is_inside, is_unchanged, read_template
from kubexm_exec.values.finder import TemplateFinder as TemplateFinder
from kubexm_exec.values.limits import LimitError
from kubexm_exec.values.names import Chain, NotPlain, budget_of, joined, plain_parts

if TYPE_CHECKING:
    from kubexm_exec.values.jinjafiles import JinjaFiles


class Templates:
    """Renders templates; one object serves a whole run."""

    def __init__(self, expressions: Expressions, finder: Callable[[str], TemplateFinder]) -> None:
        self._expressions = expressions
        self._finder = finder
        self._finders: dict[str, TemplateFinder] = {}
        self._files: dict[tuple[str, Trimming], JinjaFiles] = {}
        self._plain: dict[tuple[str, str], tuple[Path, int, list[str | Chain] | None]] = {}
        self._lock = threading.Lock()

    def render(self, name: str, base: str, context: Mapping[str, Any], trimming: Trimming = TRIMMING) -> str:
        """A template seen from the folder of a spec; raises ExpressionError that names the template and its line."""
        if not is_inside(name):
            raise ExpressionError(f"template {name!r}: a name must stay inside the templates folders")
        parts = self._parts(name, base)
        if parts is not None:
            try:
                with budget_of(context) as budget:
                    text = joined(parts, context)
                    budget.written(len(text))
                    return text
            except (NotPlain, ExpressionError, LimitError):  # the code of Jinja2 knows the line
                pass
        return self._jinja(base, trimming).render(name, context)

    def _parts(self, name: str, base: str) -> list[str | Chain] | None:
        """The parts of a template that has nothing but names between its braces."""
        known = self._plain.get((base, name))
        if known is None or not is_unchanged(known[0], known[1]):
            path = self._finder_of(base).find(name)
            if path is None:
                return None
            text, changed = read_template(name, path)
            known = self._plain[base, name] = path, changed, plain_parts(text)
        return known[2]

    def _finder_of(self, base: str) -> TemplateFinder:
        with self._lock:
            if base not in self._finders:
                self._finders[base] = self._finder(base)
            return self._finders[base]

    def _jinja(self, base: str, trimming: Trimming) -> JinjaFiles:
        from kubexm_exec.values.jinjafiles import JinjaFiles

        finder = self._finder_of(base)
        with self._lock:
            if (base, trimming) not in self._files:
                self._files[base, trimming] = JinjaFiles(self._expressions.jinja.environment, finder, trimming)
            return self._files[base, trimming]

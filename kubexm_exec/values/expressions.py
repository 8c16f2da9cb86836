"""Expressions: texts with names, operators and filters between braces, evaluated for a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from kubexm_exec.values import names
from kubexm_exec.values.names import ExpressionError as ExpressionError
from kubexm_exec.values.names import Namespace as Namespace
from kubexm_exec.values.names import Reference as Reference
from kubexm_exec.values.names import UnknownValueError as UnknownValueError
from kubexm_exec.values.names import budget_of, plain_name, plain_parts, plain_references
from kubexm_exec.values.names import is_dynamic as is_dynamic
from kubexm_exec.values.names import texts as texts
from kubexm_spec.diagnostics import shortened

if TYPE_CHECKING:
    from kubexm_exec.values.jinja import Jinja


class Compiled:
    """An expression or a text with expressions, ready to be evaluated many times."""

    __slots__ = ("_evaluate", "native", "plain", "references", "text")

    def __init__(
        self,
        text: str,
        evaluate: Callable[[Mapping[str, Any]], Any],
        references: tuple[Reference, ...],
        native: bool,
        *,
        plain: bool = False,
    ) -> None:
        self.text = text
        self.references = references
        self.native = native
        self.plain = plain
        """Whether there are only names in it, all of which are looked up."""
        self._evaluate = evaluate

    def __call__(self, context: Mapping[str, Any]) -> Any:
        """The value in that context; raises ExpressionError."""
        try:
            return self._evaluate(context)
        except ExpressionError:
            raise
        except Exception as error:
            from kubexm_exec.values.jinja import explained

            raise explained(error, self.text) from error


class Expressions:
    """Compiles expressions once and evaluates them; one object serves a whole run and may be shared by threads."""

    def __init__(self) -> None:
        # Bounded by what a spec can hold; the same text on a thousand hosts is compiled once.
        self.text = lru_cache(maxsize=65536)(self._text)
        self.expression = lru_cache(maxsize=65536)(self._expression)
        self._by_jinja = lru_cache(maxsize=65536)(lambda text, bare: self._compiled(text, bare))
        self._of_templates: dict[str, tuple[Reference, ...]] = {}

    @cached_property
    def jinja(self) -> Jinja:
        """What reads everything that is more than names; loaded when it is needed first."""
        from kubexm_exec.values.jinja import Jinja

        return Jinja()

    def _text(self, text: str) -> Compiled:
        """A text with ``{{ }}``; a text that is nothing but one expression keeps the type of its value."""
        parts = plain_parts(text)
        if parts is None:
            return self._by_jinja(text, False)
        references = plain_references(parts)
        match parts:
            case ["", tuple() as chain, ""]:
                return Compiled(
                    text, self._plainly(partial(names.found, chain), text, False), references, True, plain=True
                )
        return Compiled(text, self._plainly(partial(names.joined, parts), text, False), references, False, plain=True)

    def _expression(self, text: str) -> Compiled:
        """A bare expression as in ``when``; ``{{ }}`` around it is allowed."""
        stripped = text.strip()
        if stripped.startswith("{{") and stripped.endswith("}}"):
            return self._text(stripped)
        if not stripped:
            raise ExpressionError("the expression is empty")
        chain = plain_name(text)
        if chain is None:
            return self._by_jinja(text, True)
        return Compiled(text, self._plainly(partial(names.found, chain), text, True), plain_references([chain]), True)

    def _compiled(self, text: str, bare: bool) -> Compiled:
        if bare:
            return Compiled(text, *self.jinja.expression(text), True)
        return Compiled(text, *self.jinja.text(text))

    def _plainly(
        self, evaluate: Callable[[Mapping[str, Any]], Any], text: str, bare: bool
    ) -> Callable[[Mapping[str, Any]], Any]:
        """Evaluate a text of names, which Jinja2 does if one of them is not there."""

        def evaluated(context: Mapping[str, Any]) -> Any:
            try:
                return evaluate(context)
            except names.NotPlain:
                return self._by_jinja(text, bare)(context)

        return evaluated

    def template_references(self, text: str) -> tuple[Reference, ...]:
        """What a template refers to, found once for each text."""
        if text not in self._of_templates:
            parts = plain_parts(text)
            if parts is None:
                from kubexm_exec.values.jinja import find_references

                self._of_templates[text] = find_references(self.jinja.parse(text))
            else:
                self._of_templates[text] = plain_references(parts)
        return self._of_templates[text]

    def render(self, value: Any, context: Mapping[str, Any]) -> Any:
        """Plain data with every expression in it evaluated, all on one budget."""
        if isinstance(value, str):
            return self.text(value)(context) if is_dynamic(value) else value
        if isinstance(value, Mapping):
            with budget_of(context):
                return {self.render(key, context): self.render(item, context) for key, item in value.items()}
        if isinstance(value, list | tuple):
            with budget_of(context):
                return [self.render(item, context) for item in value]
        return value

    def condition(self, value: str | bool, context: Mapping[str, Any]) -> bool:
        """Whether a condition holds: true or false, or whether a number is not 0 and a list or mapping is not empty.

        A text must say true or false: any other ("no", "0", a typo) would silently be true.
        """
        if isinstance(value, bool):
            return value
        result = self.expression(value)(context)
        if isinstance(result, str):
            if result.strip().lower() not in ("true", "false"):
                raise ExpressionError(
                    f"a condition must be true or false, but this is the text {shortened(result, 40)!r}; compare it, "
                    "such as x == 'yes', or x != '' for any text"
                )
            return result.strip().lower() == "true"
        if result is None or isinstance(result, bool | int | float | list | tuple | Mapping):
            return bool(result)
        raise ExpressionError(f"a condition must be true or false, but this is {type(result).__name__}")

    def references(self, value: Any, *, bare: bool = False) -> list[tuple[tuple[str | int, ...], str, Reference]]:
        """Every reference in plain data: (path of the text, the text, the reference); raises ExpressionError."""
        found: list[tuple[tuple[str | int, ...], str, Reference]] = []
        for path, text in texts(value):
            if bare or is_dynamic(text):
                compiled = self.expression(text) if bare else self.text(text)
                found.extend((path, text, reference) for reference in compiled.references)
        return found

"""Expressions: sandboxed Jinja2 with strict names and native types, and the references that a text makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST_CHARACTERS = 16 << 20
"""Longest text an expression may make by repetition."""


class ExpressionError(Exception):
    """An expression that is wrong or cannot be evaluated; ``fragment`` is the part of the text to point at."""

    def __init__(self, message: str, fragment: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fragment = fragment


@dataclass(frozen=True, slots=True)
class Reference:
    """A chain of names that starts at a top-level name: ``steps.probe.outputs.stdout``."""

    root: str
    path: tuple[str, ...]
    exact: bool = True
    """False if the chain goes on with something that is computed."""
    optional: bool = False
    """True where it is allowed to be missing: under ``default`` or ``is defined``."""

    def __str__(self) -> str:
        text = self.root
        for part in self.path:
            text += f".{part}" if re.fullmatch(r"[A-Za-z_]\w*", part) else f"['{part}']"
        return text


class _Environment(ImmutableSandboxedEnvironment):
    """Looks names up as keys before attributes, and refuses to make huge values."""

    intercepted_binops = frozenset(["*", "**"])

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping):
            try:
                return obj[attribute]
            except KeyError:
                if isinstance(obj, Namespace):
                    return self.undefined(hint=obj.missing(attribute), name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Namespace) and isinstance(argument, str):
            return self.getattr(obj, argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for thing, count in ((left, right), (right, left)):
                if (
                    isinstance(thing, str | list | tuple)
                    and isinstance(count, int)
                    and len(thing) * count > _MOST_CHARACTERS
                ):
                    raise SecurityError("the result would be too large")
        elif isinstance(left, int) and isinstance(right, int) and right * max(left.bit_length(), 1) > 4096:
            raise SecurityError("the result would be too large")
        return super().call_binop(context, operator, left, right)


class Namespace(Mapping[str, Any]):
    """A mapping that makes its values when they are asked for; a value that needs itself is an error."""

    def __init__(self, label: str, names: Mapping[str, Any], value: Callable[[str], Any]) -> None:
        self._label = label
        self._names = names
        self._value = value
        self._made: dict[str, Any] = {}
        self._making: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name in self._made:
            return self._made[name]
        if name not in self._names:
            raise KeyError(name)
        if name in self._making:
            chain = " -> ".join([*self._making[self._making.index(name) :], name])
            raise ExpressionError(f"{self._label}.{name} refers to itself: {chain}", f"{self._label}.{name}")
        self._making.append(name)
        try:
            self._made[name] = self._value(name)
        finally:
            self._making.pop()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def missing(self, name: str) -> str:
        """What to say when a name is not there."""
        from kubexm_spec.diagnostics import did_you_mean

        guess = did_you_mean(name, list(self._names))
        return f"{self._label} has no {name!r}" + (f"; {guess}" if guess else "")


class Compiled:
    """An expression or a text with expressions, ready to be evaluated many times."""

    __slots__ = ("_evaluate", "native", "references", "text")

    def __init__(
        self, text: str, evaluate: Callable[[Mapping[str, Any]], Any], references: tuple[Reference, ...], native: bool
    ) -> None:
        self.text = text
        self.references = references
        self.native = native
        self._evaluate = evaluate

    def __call__(self, context: Mapping[str, Any]) -> Any:
        """The value in that context; raises ExpressionError."""
        try:
            return self._evaluate(context)
        except ExpressionError:
            raise
        except UndefinedError as error:
            raise ExpressionError(_undefined_message(error)) from error
        except SecurityError as error:
            raise ExpressionError(f"not allowed in an expression: {error}") from error
        except TemplateError as error:
            raise ExpressionError(str(error.message or error)) from error
        except (
            Exception
        ) as error:  # an operator or filter on the wrong kind of value: whatever it raises is the spec's fault
            raise ExpressionError(f"{type(error).__name__}: {error}") from error


def _undefined_message(error: UndefinedError) -> str:
    text = str(error.message or error)
    match = re.fullmatch(r"'(\w+)' is undefined", text)
    return f"there is no name {match[1]!r}" if match else text


def is_dynamic(value: Any) -> bool:
    """Whether plain data holds an expression anywhere."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, Mapping):
        return any(is_dynamic(key) or is_dynamic(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(is_dynamic(item) for item in value)
    return False


class Expressions:
    """Compiles expressions once and evaluates them; one object serves a whole run and may be shared by threads."""

    def __init__(self) -> None:
        self.environment = _make_environment()
        # Bounded by what a spec can hold; the same text on a thousand hosts is compiled once.
        self.text = lru_cache(maxsize=65536)(self._text)
        self.expression = lru_cache(maxsize=65536)(self._expression)

    def _text(self, text: str) -> Compiled:
        """A text with ``{{ }}``; a text that is nothing but one expression keeps the type of its value."""
        try:
            tree = self.environment.parse(text)
        except TemplateSyntaxError as error:
            _syntax_error(error, text)
        references = find_references(tree)
        inner = _single_expression(tree, text)
        if inner is not None:
            return Compiled(text, self._native(inner, text), references, True)
        template = self.environment.from_string(text)
        return Compiled(text, lambda context: template.render(context), references, False)

    def _expression(self, text: str) -> Compiled:
        """A bare expression as in ``when``; ``{{ }}`` around it is allowed."""
        stripped = text.strip()
        if stripped.startswith("{{") and stripped.endswith("}}"):
            return self._text(stripped)
        try:
            tree = self.environment.parse("{{" + text + "}}")
        except TemplateSyntaxError as error:
            _syntax_error(error, text)
        return Compiled(text, self._native(text, text), find_references(tree), True)

    def _native(self, source: str, text: str) -> Callable[[Mapping[str, Any]], Any]:
        try:
            compiled = self.environment.compile_expression(source, undefined_to_none=False)
        except TemplateSyntaxError as error:
            _syntax_error(error, text)

        def evaluate(context: Mapping[str, Any]) -> Any:
            value = compiled(context)
            if isinstance(value, StrictUndefined):
                value._fail_with_undefined_error()
            return value

        return evaluate

    def render(self, value: Any, context: Mapping[str, Any]) -> Any:
        """Plain data with every expression in it evaluated."""
        if isinstance(value, str):
            return self.text(value)(context) if is_dynamic(value) else value
        if isinstance(value, Mapping):
            return {self.render(key, context): self.render(item, context) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.render(item, context) for item in value]
        return value

    def condition(self, value: str | bool, context: Mapping[str, Any]) -> bool:
        """Whether a condition holds. A text must give true or false, so that a typo is not silently true."""
        if isinstance(value, bool):
            return value
        result = self.expression(value)(context)
        if isinstance(result, bool):
            return result
        if result is None or isinstance(result, int | float | str | list | tuple | Mapping):
            if isinstance(result, str) and result.strip().lower() in ("true", "false"):
                return result.strip().lower() == "true"
            return bool(result)
        raise ExpressionError(f"a condition gives true or false, this gives {type(result).__name__}")

    def references(self, value: Any, *, bare: bool = False) -> list[tuple[tuple[str | int, ...], str, Reference]]:
        """Every reference in plain data: (path of the text, the text, the reference). Raises ExpressionError on bad syntax."""
        found: list[tuple[tuple[str | int, ...], str, Reference]] = []
        for path, text in texts(value):
            if bare or is_dynamic(text):
                compiled = self.expression(text) if bare else self.text(text)
                found.extend((path, text, reference) for reference in compiled.references)
        return found


def texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every string in plain data with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))


def _syntax_error(error: TemplateSyntaxError, text: str) -> NoReturn:
    lines = text.splitlines() or [""]
    line = lines[min(max(error.lineno, 1), len(lines)) - 1].strip()
    raise ExpressionError(f"the expression cannot be read: {error.message}", line) from error


def _single_expression(tree: nodes.Template, text: str) -> str | None:
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = tree.body[0].nodes
    if len(parts) != 1 or isinstance(parts[0], nodes.TemplateData):
        return None
    stripped = text.strip()
    if stripped != text or not (stripped.startswith("{{") and stripped.endswith("}}")):
        return None
    return stripped[2:-2].strip("-+ \n\t") if stripped[2] in "-+" or stripped[-3] in "-+" else stripped[2:-2]


def find_references(tree: nodes.Node) -> tuple[Reference, ...]:
    """The chains of names that a parsed text refers to, without names it defines itself (loops, set, macros)."""
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param")}
    own |= {macro.name for macro in tree.find_all(nodes.Macro)} | {
        "loop",
        "caller",
        "varargs",
        "kwargs",
        "self",
        "super",
    }
    found: dict[Reference, None] = {}
    _walk(tree, own, found)
    return tuple(found)


def _walk(node: nodes.Node, own: set[str], found: dict[Reference, None], optional: bool = False) -> None:
    chain = _chain(node)
    if chain is not None:
        root, path, exact, rest = chain
        if root not in own:
            found.setdefault(Reference(root, path, exact, optional))
        for other in rest:
            _walk(other, own, found)
        return
    forgiving = (isinstance(node, nodes.Filter) and node.name in ("default", "d")) or (
        isinstance(node, nodes.Test) and node.name in ("defined", "undefined")
    )
    for child in node.iter_child_nodes():
        _walk(child, own, found, forgiving and child is node.node)


def _chain(node: nodes.Node) -> tuple[str, tuple[str, ...], bool, list[nodes.Node]] | None:
    """Unwind ``a.b['c'][x]`` to (a, (b, c), exact=False, [x]); None if it does not start at a name."""
    parts: list[str | None] = []
    rest: list[nodes.Node] = []
    while True:
        if isinstance(node, nodes.Getattr):
            parts.append(node.attr)
            node = node.node
        elif isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
                parts.append(str(node.arg.value))
            else:
                parts.append(None)
                rest.append(node.arg)
            node = node.node
        elif isinstance(node, nodes.Name) and node.ctx == "load":
            parts.reverse()
            known: list[str] = []
            for part in parts:
                if part is None:
                    return node.name, tuple(known), False, rest
                known.append(part)
            return node.name, tuple(known), True, rest
        else:
            return None


def _make_environment() -> _Environment:
    from kubexm_exec.exprtools import FILTERS

    environment = _Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    for name in ("lipsum", "cycler", "joiner"):
        environment.globals.pop(name, None)
    environment.filters.update(FILTERS)
    return environment


GLOBALS = frozenset({"range", "dict", "namespace"})
"""Top-level names that are always there."""


class UnknownValueError(ExpressionError):
    """A value that can only be known later (an output of a step that has not run, a fact of a host not contacted)."""

    def __init__(self, name: str, because: str = "") -> None:
        super().__init__(f"{name} is not known yet" + (f": {because}" if because else ""), name)
        self.name = name
        self.because = because

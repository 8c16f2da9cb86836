"""The Jinja2 environment of expressions: nothing but data can be reached, and no value or loop grows without end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import wraps
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST: Final = 16 << 20
"""The most characters or items a value may get by repeating, padding or adding."""
MOST_WORK: Final = 2_000_000
"""The most rounds of loops in one text, with all that it includes; a second or so."""
MAPPING_METHODS: Final = frozenset({"get", "items", "keys", "values"})
"""What can be called on any mapping, unless a key of it has that name."""
_ACCOUNT: Final = " account"  # names with a space cannot be written in a template
_LOOP: Final = " loop"
_TOO_LARGE: Final = "the result would be too large"
_PADDING: Final = frozenset({"batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill"})
_WIDE: Final = re.compile(r"\d{7}")
_WIDTH_TAKEN: Final = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")  # a width that is one of the values


class ExpressionError(Exception):
    """An expression that is wrong or cannot be evaluated; ``fragment`` is the part of the text to point at.

    ``line`` is the line of the text that it is in, if that is known.
    """

    def __init__(self, message: str, fragment: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.fragment = fragment
        self.line = line


class MissingValueError(ExpressionError):
    """An expression needs something that is not there."""


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


class Explained(dict[str, Any]):
    """A mapping that says why a name is not in it."""

    def __init__(self, values: Mapping[str, Any], why: str) -> None:
        super().__init__(values)
        self._why = why

    def _missing(self, name: str) -> str:
        """What to say when a name is not there; no expression gets at a name with an underscore."""
        there = f"; it has {', '.join(self)}" if self else ""
        return f"there is no {name!r}{there}: {self._why}"


class _Account:
    """What one rendering may still do."""

    __slots__ = ("characters", "rounds")

    def __init__(self) -> None:
        self.rounds = MOST_WORK
        self.characters = LONGEST
        """Of output."""

    def spend(self, rounds: int = 1) -> None:
        """One more round of a loop; a call counts as ten."""
        self.rounds -= rounds
        if self.rounds < 0:
            raise SecurityError("it loops, or calls itself, without end")


class _Context(Context):
    """One rendering; what it includes or imports is on the same account."""

    def __init__(self, environment: Any, parent: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(environment, parent, *args, **kwargs)
        account: _Account = parent.setdefault(_ACCOUNT, _Account())
        self.account = account


class _Generator(CodeGenerator):
    """``a ~ b`` by way of the environment, as the operators are."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Missing(StrictUndefined):
    """A name that is not there; using it says what is there instead. What is inside of it is not there either."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__":
            raise AttributeError(name)
        return self

    def __getitem__(self, *args: Any) -> Any:
        return self

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint or not isinstance(self._undefined_obj, Mapping):
            return super()._undefined_message
        if isinstance(self._undefined_obj, Explained):
            return self._undefined_obj._missing(str(self._undefined_name))
        from kubexm_spec.diagnostics import did_you_mean

        keys = [str(key) for key in self._undefined_obj]
        guess = did_you_mean(str(self._undefined_name), keys)
        there = ", ".join(keys[:8]) + (", ..." if len(keys) > 8 else "")
        return f"there is no {self._undefined_name!r} in it; " + (
            guess or (f"it has {there}" if keys else "it is empty")
        )


class Sandbox(ImmutableSandboxedEnvironment):
    """Looks names up as keys before attributes, and refuses to make huge values or to work without end."""

    context_class = _Context
    code_generator_class = _Generator
    intercepted_binops = frozenset(["*", "**", "+", "%"])

    def __init__(self, **options: Any) -> None:
        super().__init__(undefined=Missing, keep_trailing_newline=True, autoescape=False, finalize=_counted, **options)
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)
        self.filters[_LOOP] = _rounds
        for name in ("center", "indent", "batch", "slice", "replace", "format", "join"):
            self.filters[name] = _guarded(name, self.filters[name])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute``: a key of a mapping before a method of it."""
        if isinstance(obj, Mapping):
            try:
                return obj[attribute]
            except KeyError:
                if isinstance(obj, Namespace) and attribute not in MAPPING_METHODS:
                    return self.undefined(hint=obj.missing(attribute), name=attribute)
            except MissingValueError as error:
                # A value that is an expression itself: who uses it may forgive that something in it is not there.
                return self.undefined(hint=error.message, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]``."""
        if isinstance(obj, Namespace) and isinstance(argument, str):
            return self.getattr(obj, argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make a large value out of small ones."""
        if operator == "*":
            for thing, count in ((left, right), (right, left)):
                if isinstance(thing, str | list | tuple) and isinstance(count, int):
                    _refuse_above(len(thing) * count)
        elif operator == "+":
            if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                _refuse_above(len(left) + len(right))
        elif operator == "%":
            if isinstance(left, str):
                _refuse_huge("format", left, right if isinstance(right, tuple) else (right,), {})
        elif isinstance(left, int) and isinstance(right, int) and right * max(left.bit_length(), 1) > 4096:
            raise SecurityError(_TOO_LARGE)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call of a text comes by here."""
        context.account.spend(10)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _refuse_huge(getattr(obj, "__name__", ""), owner, args, kwargs)
        return super().call(context, obj, *args, **kwargs)

    def concatenated(self, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        texts = [str(part) for part in parts]
        _refuse_above(sum(map(len, texts)))
        return "".join(texts)

    def wrap_str_format(self, value: Any) -> Any:
        """``"...".format``, which is found here before it is called."""
        wrapper = super().wrap_str_format(value)
        if wrapper is None:
            return None
        template = str(value.__self__)

        def checked(*args: Any, **kwargs: Any) -> str:
            _refuse_huge("format", template, args, kwargs)
            return str(wrapper(*args, **kwargs))

        return checked

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For) if "{%" in source else ():
            if loop.recursive:
                raise TemplateSyntaxError("recursive loops are not allowed", loop.lineno, name, filename)
            loop.iter = nodes.Filter(loop.iter, _LOOP, [], [], None, None, lineno=loop.lineno)
        return tree


@pass_context
def _rounds(context: Any, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        context.account.spend()
        yield item


@pass_context
def _counted(context: Any, value: Any) -> Any:
    if isinstance(value, str):
        account = context.account
        account.characters -= len(value)
        if account.characters < 0:
            raise SecurityError(_TOO_LARGE)
    return value


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja2's that looks at its arguments first; ``wraps`` keeps its wish for the environment."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        # Some filters get the environment or the like before the value.
        value, *more = [arg for arg in args if not isinstance(arg, Environment | EvalContext | Context)]
        if name == "join":
            value, more = str([*more, *kwargs.values(), ""][0]), [value]
        _refuse_huge(name, value, more, kwargs)
        return function(*args, **kwargs)

    return guarded


def _refuse_huge(name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Look at a call of a text's method, or of a filter, that could make a huge text or list."""
    given = [*args, *kwargs.values()]
    if name in _PADDING:
        for number in given:
            if isinstance(number, int):
                _refuse_above(number * (str(value).count("\n") + 1 if name == "indent" else 1))
    elif name == "replace" and len(given) > 1:
        old, new = str(given[0]), str(given[1])
        _refuse_above((str(value).count(old) if old else len(str(value)) + 1) * len(new))
    elif name == "join" and given and isinstance(given[0], Sized):
        _refuse_above(len(value) * len(given[0]))
    elif name in ("format", "format_map"):
        taken = _WIDTH_TAKEN.search(str(value)) is not None
        if _WIDE.search(str(value)) or (taken and any(isinstance(one, int) and one > LONGEST for one in given)):
            raise SecurityError(_TOO_LARGE)


def _refuse_above(size: int) -> None:
    if size > LONGEST:
        raise SecurityError(_TOO_LARGE)

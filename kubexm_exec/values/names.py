"""Names in expressions: what they refer to, the values behind them, and texts with nothing but names in braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.values.limits import SCALARS, Budget, fit, weighed

SECRET = "secret"
"""The function that looks a secret up."""
OWN_NAMES = frozenset({"loop", "caller", "varargs", "kwargs", "self", "super"})
"""What Jinja2 itself defines in loops, macros and templates."""
GLOBALS = frozenset({"range", "dict", "namespace"})
"""Top-level names that are always there."""
MAPPING_METHODS: Final = frozenset({"get", "items", "keys", "values"})
"""What can be called on any mapping, unless a key of it has that name."""
BUDGET: Final = " budget"  # names with a space cannot be written in a template
"""The name of the budget among the names that an expression sees."""


class ExpressionError(Exception):
    """An expression that is wrong or cannot be evaluated; ``fragment`` is the part of the text to point at.

    ``line`` is the line of the text that it is in, if that is known.
    """

    evaluated = ""
    """The text whose evaluation has failed, if its place is not told."""

    def __init__(self, message: str, fragment: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.fragment = fragment
        self.line = line


class MissingValueError(ExpressionError):
    """An expression needs something that is not there."""


class UnknownValueError(ExpressionError):
    """A value that can only be known later (an output of a step that has not run, a fact of a host not contacted)."""

    def __init__(self, name: str, because: str = "") -> None:
        super().__init__(f"{name} is not known yet" + (f": {because}" if because else ""), name)
        self.name = name
        self.because = because


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


class Reference(Struct, frozen=True):
    """A chain of names that starts at a top-level name: ``steps.probe.outputs.stdout``."""

    root: str
    path: tuple[str, ...]
    exact: bool = True
    """False if the chain goes on with something that is computed."""
    optional: bool = False
    """True where it is allowed to be missing: under ``default`` or ``is defined``."""
    argument: str = ""
    """What ``secret(...)`` is called with, as far as it is written: the beginning of it if it is not ``exact``."""

    def __str__(self) -> str:
        text = self.root
        for part in self.path:
            text += f".{part}" if re.fullmatch(r"[A-Za-z_]\w*", part) else f"['{part}']"
        return text


def is_dynamic(value: Any) -> bool:
    """Whether plain data holds an expression anywhere."""
    if isinstance(value, str):
        return "{" in value and ("{{" in value or "{%" in value or "{#" in value)
    if value is None or isinstance(value, bool | int | float):  # to ask whether it is a Mapping takes longer
        return False
    if isinstance(value, dict | Mapping):
        return any(is_dynamic(key) or is_dynamic(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(is_dynamic(item) for item in value)
    return False


def texts(value: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Every string in plain data with its path."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    _add_texts(value, (), found)
    return found


def _add_texts(value: Any, path: tuple[str | int, ...], found: list[tuple[tuple[str | int, ...], str]]) -> None:
    if isinstance(value, str):
        found.append((path, value))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _add_texts(item, (*path, index), found)
    elif value is not None and isinstance(value, dict | Mapping):
        for key, item in value.items():
            _add_texts(item, (*path, key), found)


def budget_of(context: Mapping[str, Any]) -> Budget:
    """The budget of an evaluation, which goes on with that of the evaluation it is part of."""
    budget: Budget | None = context.get(BUDGET)
    return Budget() if budget is None else budget


def as_data(value: Any, budget: Budget) -> Any:
    """The value as plain data: sequences of all kinds are lists, and nothing in it is undefined."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if type(value) is str else str(value)
    if isinstance(value, Mapping):
        budget.copied(len(value))
        return {key: as_data(item, budget) for key, item in value.items()}
    if isinstance(value, Iterable):
        items = value if isinstance(value, list) else budget.listed(value)  # one that is undefined has no length
        budget.copied(len(items))
        return [as_data(item, budget) for item in items]
    raise ExpressionError(
        f"the value of the expression is a {type(value).__name__}, not data; is a ( ) or a name missing?"
    )


# Most texts have nothing but names between their braces: they are read and evaluated without Jinja2, whose import is
# an eighth of the time of a run of templates on twenty hosts. What is not there, and all that is wrong, is left to it.

_CHAIN: Final = r"""[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\['[^'\\{}]*'\]|\["[^"\\{}]*"\])*"""
_BRACES: Final = re.compile(r"\{\{\s*(" + _CHAIN + r")\s*\}\}", re.ASCII)
_BARE: Final = re.compile(_CHAIN, re.ASCII)
_PART: Final = re.compile(r"\w+|'[^']*'|\"[^\"]*\"", re.ASCII)
_NO_NAMES: Final = OWN_NAMES | frozenset(
    {"true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else", "elif"}
)
"""What is no name although it looks like one."""

Chain = tuple[str, ...]


class NotPlain(Exception):
    """Jinja2 has to evaluate it: a name is not there, or something else than a key is asked for."""


def plain_name(text: str) -> Chain | None:
    """The chain of names that a bare expression is, if it is nothing else."""
    return _chain(text.strip()) if _BARE.fullmatch(text.strip()) else None


def plain_parts(text: str) -> list[str | Chain] | None:
    """The parts of a text, and between them the chains of names in braces; None if there is anything else in it."""
    if "{%" in text or "{#" in text or "\r" in text:
        return None
    parts: list[str | Chain] = []
    for number, part in enumerate(_BRACES.split(text)):
        if number % 2:
            chain = _chain(part)
            if chain is None:
                return None
            parts.append(chain)
        elif "{{" in part or part.endswith("{"):
            return None
        else:
            parts.append(part)
    return parts


def _chain(text: str) -> Chain | None:
    root, *path = _PART.findall(text)
    return None if root in _NO_NAMES else (root, *(part.strip("'\"") for part in path))


def look_up(chain: Chain, context: Mapping[str, Any]) -> Any:
    """The value behind a chain of names; raises NotPlain if that is not a matter of keys in mappings."""
    value: Any = context
    for name in chain:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise NotPlain
        try:
            value = value[name]
        except (KeyError, MissingValueError):
            raise NotPlain from None
    return value


def found(chain: Chain, context: Mapping[str, Any]) -> Any:
    """What a chain of names stands for, as plain data."""
    value = look_up(chain, context)
    if type(value) in SCALARS:
        return value
    with budget_of(context) as budget:
        return as_data(value, budget)


def joined(parts: Iterable[str | Chain], context: Mapping[str, Any]) -> str:
    """A text with the values of its names."""
    texts: list[str] = []
    known: dict[Chain, str] = {}
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        # A file often says the same in many lines.
        text = known.get(part)
        if text is None:
            text = known[part] = str(weighed(look_up(part, context)))
        texts.append(text)
    fit(sum(map(len, texts)))
    return "".join(texts)


def plain_references(parts: Iterable[str | Chain]) -> tuple[Reference, ...]:
    """What the chains among some parts refer to."""
    return tuple(dict.fromkeys(Reference(part[0], part[1:]) for part in parts if not isinstance(part, str)))

"""Checks how large the result of an operator, method or filter would be, before it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import wraps
from string import Formatter
from typing import Any, Final

from jinja2 import pass_context
from jinja2.filters import make_attrgetter, make_multi_attrgetter
from jinja2.utils import _PassArg

from kubexm_exec.values.limits import (
    LONGEST_ATTRIBUTE,
    MOST_DECIMALS,
    MOST_ITEMS,
    SCALARS,
    SLOW_TEXT,
    Budget,
    LimitError,
    few,
    fit,
    fit_bits,
    fit_items,
    too_large,
    weighed,
    weight,
)

_FORMAT: Final = re.compile(r"%(?:\(([^()]*)\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_NUMBER: Final = re.compile(r"\d+")
_SPACES: Final = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2002\u2003\u2009\u2028\u2029\u3000"


# Sizes of operators


def multiplied(left: Any, right: Any) -> None:
    """``left * right``."""
    for thing, count in ((left, right), (right, left)):
        if isinstance(count, int):
            if isinstance(thing, str | bytes):
                fit(len(thing) * count)
            elif isinstance(thing, list | tuple):
                fit_items(len(thing) * count)
    if isinstance(left, int) and isinstance(right, int):
        fit_bits(left.bit_length() + right.bit_length())


def added(left: Any, right: Any) -> None:
    """``left + right``."""
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        fit(len(left) + len(right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        fit_items(len(left) + len(right))


def powered(left: Any, right: Any) -> None:
    """``left ** right``."""
    if isinstance(left, int) and isinstance(right, int):
        fit_bits(right * max(left.bit_length(), 1))


def divided(left: Any, right: Any) -> None:
    """``left // right`` and ``left % right`` of numbers."""
    for number in (left, right):
        if isinstance(number, int):
            fit_bits(number.bit_length())


def formatted(template: str, values: Any) -> None:
    """``template % values``."""
    size = len(template)
    sizes = [weight(value) for value in values] if isinstance(values, tuple) else []
    numbers = [value for value in (values if isinstance(values, tuple) else ()) if isinstance(value, int)]
    named: dict[str, int] = {}
    uses = 0
    for name, *widths in _FORMAT.findall(template):
        uses += 1
        for width in widths:
            size += max(numbers, default=0) if width == "*" else int(width[:12] or 0)
        if name and isinstance(values, Mapping) and name in values:
            if name not in named:
                named[name] = weight(values[name])
            size += named[name]
        fit(size)
    if not isinstance(values, tuple):
        sizes = [weight(values)]
    fit(size + sum(sizes) + 320 * uses)


# Sizes of methods


def _padded(text: Any, given: list[Any]) -> None:
    for number in given:
        if isinstance(number, int):
            fit(number)


def _expanded(text: Any, given: list[Any]) -> None:
    size = given[0] if given and isinstance(given[0], int) else 8
    fit(len(text) + text.count("\t" if isinstance(text, str) else b"\t") * size)


def _replaced(text: Any, given: list[Any]) -> None:
    if len(given) > 1 and isinstance(given[0], str | bytes) and isinstance(given[1], str | bytes):
        old, new = given[:2]
        if type(old) is type(new) is type(text):
            count = text.count(old) if old else len(text) + 1
            fit(len(text) + count * len(new))


def joined(separator: Any, items: Sequence[Any]) -> None:
    """``separator.join(items)``."""
    plain = set(map(type, items)) == {str}
    fit((sum(map(len, items)) if plain else weight(items)) + len(separator) * len(items))


def _translated(text: Any, given: list[Any]) -> None:
    table = given[0] if given else None
    if isinstance(table, Mapping | list | tuple):
        values = table.values() if isinstance(table, Mapping) else table
        fit(len(text) * max((len(value) for value in values if isinstance(value, str)), default=1))


def _mapped(text: Any, given: list[Any]) -> None:
    for one in given:
        if isinstance(one, Sized):
            fit_items(len(one))


def _stripped(text: Any, given: list[Any]) -> None:
    if given and isinstance(given[0], str | bytes):
        few(len(text) * len(given[0]))


def _split(text: Any, given: list[Any]) -> None:
    if len(text) < MOST_ITEMS or not isinstance(text, str):
        fit_items(len(text) // (1 if isinstance(text, bytes) else 2))
        return
    separators = given[0] if given and isinstance(given[0], str) and given[0] else ""
    fit_items(text.count(separators) if separators else sum(map(text.count, _SPACES)))


def _split_backwards(text: Any, given: list[Any]) -> None:
    _stripped(text, given)
    _split(text, given)


def _coded(text: Any, given: list[Any]) -> None:
    if given:  # some codecs and ways to handle errors are slow, or write much for one character
        _short(text)


def _short(value: Any) -> None:
    if weight(value) > SLOW_TEXT:
        raise LimitError(f"the value is too large: this takes at most {SLOW_TEXT:,} characters")


_METHODS: Final[dict[str, Callable[[Any, list[Any]], None]]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "to_bytes"), _padded),
    "expandtabs": _expanded,
    "replace": _replaced,
    "translate": _translated,
    **dict.fromkeys(("maketrans", "fromkeys"), _mapped),
    **dict.fromkeys(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"), _stripped),
    **dict.fromkeys(("split", "splitlines"), _split),
    "rsplit": _split_backwards,
    **dict.fromkeys(("encode", "decode", "hex"), _coded),
}
"""The methods of texts, bytes and numbers that can make much out of little, or take long."""


def foreseen(
    name: str, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], budget: Budget
) -> tuple[Any, ...]:
    """Look at a call of a built-in method before it is done; gives the arguments to do it with."""
    if name == "join" and args and isinstance(owner, str | bytes):
        items = budget.listed(args[0]) if isinstance(args[0], Iterable) else ()
        joined(owner, items)
        return (items, *args[1:]) if items else args
    given = [*args, *kwargs.values()]
    for one in given:
        if type(one) not in SCALARS:
            weight(one)
            weight(owner)  # index and count compare with each item
    look = _METHODS.get(name)
    if look is not None:
        look(owner, given)
    return args


# Filters: each guard gets the context, the value and the arguments, and gives the value to go on with.

Guard = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int, name: str, default: Any = None) -> Any:
    return args[index] if len(args) > index else kwargs.get(name, default)


def _attribute(args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int) -> Any:
    """The name of an attribute, if it is not too long to be looked up in each item of a list."""
    name = _argument(args, kwargs, index, "attribute")
    if isinstance(name, str) and len(name) > LONGEST_ATTRIBUTE:
        raise too_large("the name of an attribute", LONGEST_ATTRIBUTE)
    return name


def _attributes(context: Any, items: Sequence[Any], attribute: Any) -> Sequence[Any]:
    """The items, or what they have of that name: a list of each, since there can be several names."""
    if attribute is None:
        return items
    if isinstance(attribute, str) and attribute.isidentifier() and set(map(type, items)) == {dict}:
        return [[item.get(attribute)] for item in items]  # as it nearly always is, and twice as fast
    getter = make_multi_attrgetter(context.environment, attribute)
    return [getter(item) for item in context.budget.counted(items)]


def _slow(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for one in (value, *args, *kwargs.values()):
        _short(one)
    return value


def _method(name: str) -> Guard:
    """A filter that is a method of the value's text."""

    def guard(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        weighed(value)
        _METHODS[name](value if isinstance(value, str) else str(value), [*args, *kwargs.values()])
        return value

    return guard


def _replace(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    weighed(value)
    _replaced(value if isinstance(value, str) else str(value), [str(weighed(one)) for one in (*args, *kwargs.values())])
    return value


def _join(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attribute = _attribute(args, kwargs, 1)
    items = context.budget.listed(value)
    joined(str(weighed(_argument(args, kwargs, 0, "d", ""))), _attributes(context, items, attribute))
    return items


def _compared(index: int) -> Guard:
    """Items are compared or hashed, or one of their attributes; ``index`` is its place among the arguments."""

    def guard(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attribute = _attribute(args, kwargs, index)
        items = context.budget.listed(value)
        weight(_attributes(context, items, attribute))
        return items

    return guard


def _grouped(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attribute = _attribute(args, kwargs, 0)
    items = context.budget.listed(value)
    # A default stands for the attribute of every item that has none, and each gets a copy in lower case.
    getter = make_attrgetter(context.environment, attribute, default=_argument(args, kwargs, 1, "default"))
    weight([getter(item) for item in context.budget.counted(items)])
    return items


def _sum(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attribute = _attribute(args, kwargs, 0)
    items = context.budget.listed(value)
    values = items if attribute is None else [parts[0] for parts in _attributes(context, items, attribute)]
    lists = sum(len(one) for one in values if isinstance(one, list | tuple))
    fit_items(lists)
    few(lists * len(values))  # each is added to a copy of those before
    return items


def _lazy(index: int | None = None) -> Guard:
    """A filter that goes through its items only when they are used."""

    def guard(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _attribute(args, kwargs, 9 if index is None else index)
        if isinstance(value, Sized):
            context.budget.spend(len(value))
            return value
        return context.budget.counted(value)

    return guard


def _batch(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for number in (*args, *kwargs.values()):
        if isinstance(number, int):
            fit_items(number)
            context.budget.copied(max(number, 0))
            context.budget.spend(max(number, 0))
    return context.budget.listed(value)


def _indent(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    width = _argument(args, kwargs, 0, "width", 4)
    text = value if isinstance(value, str) else str(weighed(value))
    fit(len(text) + (len(text.splitlines()) + 2) * (len(width) if isinstance(width, str) else int(width)))
    return value


def _wordwrap(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _slow(context, value, args, kwargs)
    text = str(value)
    width = _argument(args, kwargs, 0, "width", 79)
    between = _argument(args, kwargs, 2, "wrapstring")
    fit((len(text) + 1) * len(str(between or "\n")))
    # The rest of a long word is copied for each line of it.
    longest = max(map(len, text.split()), default=0)
    few(longest * longest // max(int(width), 1))
    return value


def _format(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    formatted(str(weighed(value)), kwargs or args)
    return value


def _round(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    precision = _argument(args, kwargs, 0, "precision", 0)
    if isinstance(precision, int) and abs(precision) > MOST_DECIMALS:
        raise too_large("a rounded number", MOST_DECIMALS, "decimals")
    return value


def _pprint(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    context.budget.spend(weight(value) * 2)
    return value


def _parsed(context: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(value, str) and len(value) > SLOW_TEXT:
        # What a text says in two characters can take a hundred bytes.
        fit_items(value.count(",") + value.count("[") + value.count("{"))
    return value


_FILTERS: Final[dict[str, Guard]] = {
    **dict.fromkeys(("title", "striptags", "urlencode", "urlize", "wordcount", "xmlattr"), _slow),
    **dict.fromkeys(("max", "min", "unique"), _compared(1)),
    **dict.fromkeys(("last", "list", "random"), lambda context, value, *_: context.budget.listed(value)),
    **dict.fromkeys(("map", "select", "reject"), _lazy()),
    **dict.fromkeys(("rejectattr", "selectattr"), _lazy(0)),
    **dict.fromkeys(("batch", "slice"), _batch),
    # These look for themselves while they go through the value.
    **dict.fromkeys(("to_json", "tojson"), lambda context, value, *_: value),
    "center": _method("center"),
    "dictsort": lambda context, value, *_: weighed(value),
    "format": _format,
    "from_json": _parsed,
    "groupby": _grouped,
    "indent": _indent,
    "join": _join,
    "pprint": _pprint,
    "replace": _replace,
    "reverse": lambda context, value, *_: value if isinstance(value, str) else context.budget.listed(value),
    "round": _round,
    "sort": _compared(2),
    "split": _method("split"),
    "sum": _sum,
    "trim": _method("strip"),
    "wordwrap": _wordwrap,
}
"""How filters are looked at; any other writes its value as a text, or does something as simple."""
_HARMLESS: Final = frozenset({"abs", "attr", "count", "d", "default", "first", "float", "items", "length", "safe"})
"""Filters whose results are never larger than the value."""


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that looks at its value and arguments first, and whose result is counted."""
    if name in _HARMLESS:
        return function
    passed = _PassArg.from_obj(function)
    look = _FILTERS.get(name)

    @wraps(function)
    def simple(context: Any, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        if type(value) not in SCALARS:
            weight(value)
        _weigh_arguments(args, kwargs)
        return context.budget.made(function(value, *args, **kwargs))

    if passed is None and look is None:
        return pass_context(simple)

    @wraps(function)
    def filter_(context: Any, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        if look is not None:
            value = look(context, value, args, kwargs)
        elif type(value) not in SCALARS:
            weight(value)
        _weigh_arguments(args, kwargs)
        if passed is None:
            return context.budget.made(function(value, *args, **kwargs))
        if passed is _PassArg.context:
            return context.budget.made(function(context, value, *args, **kwargs))
        first = context.environment if passed is _PassArg.environment else context.eval_ctx
        return context.budget.made(function(first, value, *args, **kwargs))

    return pass_context(filter_)


def _weigh_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Look at what a filter may compare, hash or write as a text: tuples in tuples take for ever."""
    for one in (*args, *kwargs.values()):
        if type(one) not in SCALARS and type(one) is not str:
            weight(one)


def guarded_test(function: Callable[..., Any]) -> Callable[..., Any]:
    """A test that compares its value with another one: both are looked at first."""

    @wraps(function)
    def test(value: Any, other: Any) -> Any:
        if type(value) not in SCALARS:
            weight(value)
            weight(other)
        return function(value, other)

    return test


COMPARING: Final = frozenset(
    ("eq", "equalto", "==", "ne", "!=", "gt", "greaterthan", ">", "ge", ">=", "lt", "lessthan", "<", "le", "<=", "in")
)
"""The tests that do."""


class MeasuredFormatter(Formatter):
    """Counts what ``"...".format`` makes, field by field; it is mixed into those of the sandbox."""

    left = 0

    def vformat(self, format_string: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The whole text."""
        self.left = 0
        return super().vformat(format_string, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """``!r`` and ``!s``."""
        return super().convert_field(weighed(value), conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        """One field, whose specification may hold a width."""
        fit(max((int(number[:12]) for number in _NUMBER.findall(format_spec)), default=0))
        text = super().format_field(weighed(value), format_spec)
        self.left += len(text)
        fit(self.left)
        return text

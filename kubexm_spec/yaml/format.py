"""Formats the text of a spec and proves that nothing but its looks changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.keyorder import order_keys
from kubexm_spec.yaml.layout import lay_out
from kubexm_spec.yaml.load import load_documents
from kubexm_spec.yaml.tokens import comments

_ROUNDS: Final = 5


def format_text(text: str, name: str) -> str:
    """The text in the house style; formatting it again changes nothing.

    Raises `SpecError` if the text cannot be read, and with the code `format-unsafe` if the result would not hold the
    same data and the same comments.
    """
    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff"))
    data = load_documents(text, name)
    remarks = [comment for _, comment in comments(text)]
    for style in (_full, lay_out):  # if the order of keys is what goes wrong, do without it
        result = _settle(text, style)
        if result is not None and _holds(result, data, remarks):
            return result
    summary = f"{name} cannot be formatted without changing what it says"
    raise SpecError([Diagnostic("format-unsafe", summary, hint="it is left as it is: format it by hand")])


def _full(text: str) -> str:
    return order_keys(lay_out(text))


def _settle(text: str, style: Callable[[str], str]) -> str | None:
    """The text that the style leaves as it is, or None if there is none."""
    from ruamel.yaml.error import YAMLError

    for _ in range(_ROUNDS):
        try:
            done = style(text)
        except YAMLError:  # what came out cannot be read: not the text that is looked for
            return None
        if done == text:
            return done
        text = done
    return None


def _holds(text: str, data: list[Any], remarks: list[str]) -> bool:
    """Whether a text has this data and these comments."""
    try:
        found = load_documents(text, "")
    except SpecError:
        return False
    return [comment for _, comment in comments(text)] == remarks and _same(found, data, set())


def _same(a: Any, b: Any, seen: set[tuple[int, int]]) -> bool:
    """Equal, with types (1 is not 1.0) and with NaN equal to itself; what is shared is compared once."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (dict, list)):
        pair = (id(a), id(b))
        if pair in seen:
            return True
        seen.add(pair)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(_same(a[key], b[key], seen) for key in a)
        return len(a) == len(b) and all(_same(x, y, seen) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b))

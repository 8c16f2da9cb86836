"""The items of a loop: evaluated, counted and given the keys that they have in ids of nodes."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kubexm_exec.model.graph import Loop
from kubexm_spec.diagnostics import shortened

MOST_ITEMS: Final = 10_000

Evaluate: TypeAlias = Callable[[Any, tuple[str, ...], Mapping[str, Any]], Any]
"""Evaluates a part of a loop as written, at a path in it, with more names."""


class ItemsError(Exception):
    """Why a loop has no items that could be used, and which part of it is wrong."""

    def __init__(self, code: str, message: str, part: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.part = part
        self.hint = hint


def items_of(
    loop: Loop, evaluate: Evaluate, *, distinct: bool = False, is_secret: Callable[[str], bool] = lambda text: False
) -> list[tuple[str, Any]]:
    """The items, each with its key; raises ItemsError, and what ``evaluate`` raises.

    ``distinct``: a key that two items have is an error, instead of being numbered by the order of the items.
    ``is_secret``: whether a text holds a secret, which no key may.
    """
    found: list[Any]
    if loop.matrix is not None:
        axes = {
            name: _as_list(evaluate(values, ("matrix", name), {}), ("matrix", name))
            for name, values in loop.matrix.items()
        }
        # Not many more than are allowed: there can be billions.
        combinations = itertools.islice(itertools.product(*axes.values()), MOST_ITEMS + 1)
        found = [dict(zip(axes, combination, strict=True)) for combination in combinations]
    else:
        found = _as_list(evaluate(loop.items, ("items",), {}), ("items",))
    if len(found) > MOST_ITEMS:
        raise ItemsError("too-many-items", f"a loop has at most {MOST_ITEMS:,} items, this one has more")
    keyed: list[tuple[str, Any]] = []
    seen: dict[str, int] = {}
    texts: dict[str, str] = {}
    for item in found:
        text = _key_of(item) if loop.key is None else str(evaluate(loop.key, ("key",), {"item": item}))
        if is_secret(text):
            # Before it becomes a key: what replaces special characters would keep a secret from being recognized.
            hint = "give `forEach` a `key`, an expression over `item` without secrets"
            message = "the key of an item contains a secret, and keys are shown"
            raise ItemsError("secret-key", message, ("key",), hint)
        key = _clean(text)
        seen[key] = seen.get(key, 0) + 1
        if distinct and seen[key] > 1:
            hint = "use an expression for `key` that distinguishes them, or take each only once: `| unique`"
            if texts[key] != text:
                hint = "in a key, all but letters, digits and _ . , : @ = - becomes _: use an expression for `key`"
            raise ItemsError("ambiguous-item", f'two items of the loop have the key "{key}"', ("key",), hint)
        texts[key] = text
        keyed.append((key if seen[key] == 1 else f"{key}~{seen[key]}", item))
    return keyed


def _as_list(value: Any, part: tuple[str, ...]) -> list[Any]:
    """A list as it is; a mapping is a list of its keys and values."""
    if isinstance(value, Mapping):
        return [{"key": key, "value": item} for key, item in value.items()]
    if not isinstance(value, list):
        got = "nothing" if value is None else f"{type(value).__name__} {value!r}"
        hint = "[] is a loop without items" if value is None else ""
        raise ItemsError("not-a-list", f"a loop needs a list, but this is {shortened(got)}", part, hint)
    return value


def _key_of(item: Any) -> str:
    if isinstance(item, Mapping):
        for name in ("key", "name", "id"):
            if isinstance(item.get(name), str | int):
                return str(item[name])
        if all(isinstance(value, str | int | float | bool) for value in item.values()):
            return ",".join(_key_of(value) for value in item.values())
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str | int | float):
        return str(item)
    return hashlib.sha256(json.dumps(item, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _clean(text: str) -> str:
    """A key that can stand in an id: no separators of ids, not long."""
    key = re.sub(r"[^A-Za-z0-9_.,:@=-]+", "_", text).strip("_") or "_"
    return key if len(key) <= 64 else f"{key[:55]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

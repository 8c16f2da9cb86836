"""What one evaluation of an expression may make and do: the limits, and the budget that is counted down."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain, islice
from time import monotonic, thread_time
from typing import Any, Final

LONGEST: Final = 16 << 20
"""The most characters of a text, and of all texts in a value that is compared, sorted or written out."""
MOST_ITEMS: Final = 1 << 20
"""The most items of a list or mapping; in what is compared, sorted or written out, with the items of its items."""
DEEPEST: Final = 200
"""The most nested lists and mappings, in what is compared, sorted or written out."""
MOST_BYTES: Final = 160 << 20
"""The most memory that the values of one evaluation take at once."""
MOST_WORK: Final = 2_000_000
"""The most rounds of loops, with all that is included; a call counts as ten."""
MOST_BITS: Final = 15_000
"""The most bits of a whole number: as many digits as Python reads."""
MOST_SECONDS: Final = 3.0
"""The most seconds that one evaluation may work."""
SLOW_TEXT: Final = 1 << 20
"""The most characters for what takes much longer than to copy them: wordwrap, urlize, pprint and the like."""
MOST_STEPS: Final = 1 << 28
"""The most comparisons of characters within one search."""
MOST_DECIMALS: Final = 300
"""The most decimals to round to, before or after the point: a float has no more."""
LONGEST_ATTRIBUTE: Final = 500
"""The most characters of an attribute's name such as ``labels.zone``."""

TOO_LARGE: Final = "the result would be too large"
_SMALL: Final = 4096
SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""Types of values that nothing else is in."""
_VIEWS: Final[Any] = (type({}.keys()), type({}.values()), type({}.items()), set, frozenset)
_ITEM: Final = 72  # bytes: a place in a list or mapping, and a small value


class LimitError(Exception):
    """An expression wants to make or do too much."""


class Budget:
    """What an evaluation may still make and do; all that it evaluates on the way (vars, includes) is on the same one.

    It starts anew whenever the outermost evaluation does.
    """

    __slots__ = ("_cpu", "_depth", "_large", "_late", "characters", "room", "rounds")

    def __init__(self) -> None:
        self._depth = 0
        self.renew()

    def renew(self) -> None:
        """Start anew."""
        self.rounds = MOST_WORK
        self.characters = LONGEST
        """Of output."""
        self.room = MOST_BYTES
        self._large: dict[int, Any] | None = None
        self._late = monotonic() + MOST_SECONDS / 2
        self._cpu: float | None = None

    def __enter__(self) -> Budget:
        if not self._depth:
            self.renew()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._large = None

    def spend(self, rounds: int = 1) -> None:
        """One more round of a loop, or as much work."""
        self.rounds -= rounds
        if self.rounds < 0:
            raise LimitError(f"it loops or recurses without end: an expression has at most {MOST_WORK:,} iterations")
        if monotonic() > self._late:
            self._check_time()

    def _check_time(self) -> None:
        # The second half is measured by what this thread itself has worked: others may be busy, and facts take time.
        now = thread_time()
        if self._cpu is not None and now - self._cpu >= MOST_SECONDS / 2:
            raise LimitError(f"it takes too long: an expression has {MOST_SECONDS:g} seconds")
        if self._cpu is None:
            self._cpu = now
        self._late = monotonic() + MOST_SECONDS / 2

    def written(self, characters: int) -> None:
        """So much more of output."""
        self.characters -= characters
        if self.characters < 0:
            raise too_large()

    def made(self, value: Any) -> Any:
        """Count a value that was made; gives it back."""
        if type(value) is str and len(value) < _SMALL:
            self.room -= _ITEM + (len(value) if value.isascii() else 4 * len(value))
            if self.room < 0:
                self._sweep()
            return value
        if isinstance(value, str | bytes):
            fit(len(value))
        elif isinstance(value, list | tuple | dict):
            fit_items(len(value))
        else:
            if type(value) is int:
                fit_bits(value.bit_length())
            return value
        size = sys.getsizeof(value)
        if size > _SMALL:
            large = self._large
            if large is None:
                large = self._large = {}
            elif id(value) in large:
                return value
            large[id(value)] = value
        self.room -= size
        if self.room < 0:
            self._sweep()
        return value

    def _sweep(self) -> None:
        """Regain the memory of large values that are not in use any more; the newest first, as they hold older ones."""
        kept: dict[int, Any] = {}
        large = self._large or {}
        while large:
            key, value = large.popitem()
            if sys.getrefcount(value) > 2:
                kept[key] = value
            else:
                self.room += sys.getsizeof(value)
        large.update(reversed(kept.items()))
        # A sweep that gains little would soon be repeated.
        if self.room < MOST_BYTES // 8:
            raise too_large("all values of an expression together", MOST_BYTES, "bytes")

    def copied(self, items: int) -> None:
        """A list or mapping of so many items was copied, perhaps with small values in it."""
        self.room -= _ITEM * (items + 1)
        self.spend(items + 1)
        if self.room < 0:
            self._sweep()

    def listed(self, items: Iterable[Any]) -> Sequence[Any]:
        """The items, counted, as something that can be looked through twice."""
        found: Sequence[Any]
        if isinstance(items, list | tuple):
            found = items
        else:
            if isinstance(items, Sized):
                fit_items(len(items))
            found = list(islice(items, MOST_ITEMS + 1))
        fit_items(len(found))
        self.spend(len(found) >> 2)
        return found

    def counted(self, items: Iterable[Any], characters: int = 0) -> Iterator[Any]:
        """The items one by one, each a round that writes so many characters."""
        for item in items:
            self.rounds -= 1
            self.characters -= characters
            if not self.rounds & 7:  # the clock costs as much as a small round
                self.spend(0)
                self.written(0)
            yield item


def too_large(what: str = "a text", most: int = LONGEST, unit: str = "characters") -> LimitError:
    """What to raise for a value that is, or would be, too large."""
    have = "have" if what.startswith("all") else "has"
    return LimitError(f"{TOO_LARGE}: {what} {have} at most {most:,} {unit}")


def fit(characters: int) -> None:
    """Refuse a text of so many characters, before it is made."""
    if characters > LONGEST:
        raise too_large()


def weighed(value: Any) -> Any:
    """The value, if all that is in it can be gone through: to compare, hash, sort or write it.

    The same list may be in another one many times, and that one in a third: what is a few lists in memory can take
    for ever to go through.
    """
    if type(value) not in SCALARS:
        weight(value)
    return value


def weight(value: Any) -> int:
    """The characters of all texts in a value, with a few for everything else; raises if that is too much."""
    characters, items = 0, 0
    level = [value]
    for _ in range(DEEPEST):
        deeper: list[Any] = []
        for one in level:
            parts = one if type(one) is list else _parts(one)
            if parts is None:
                characters += len(one) if isinstance(one, str | bytes) else 8
                continue
            items += 1 if _is_namespace(one) else len(one)
            if items > MOST_ITEMS:
                raise too_large("a value", MOST_ITEMS, "items")
            for part in parts:
                kind = type(part)
                if kind is str:
                    characters += len(part) + 4
                elif kind in SCALARS:
                    characters += 8
                else:
                    deeper.append(part)
            if characters > LONGEST:
                raise too_large("a value")
        if not deeper:
            fit(characters)
            return characters
        level = deeper
    raise too_large("a value", DEEPEST, "nested lists and mappings")


def _parts(value: Any) -> Iterable[Any] | None:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, _VIEWS):
        parts: Iterable[Any] = value
        return parts
    if _is_namespace(value):
        attributes: dict[str, Any] = value._Namespace__attrs  # its text shows them all
        return attributes.values()
    return None


def _is_namespace(value: Any) -> bool:
    """Whether ``namespace()`` made a value; there is none as long as Jinja2 is not loaded."""
    utils = sys.modules.get("jinja2.utils")
    return utils is not None and isinstance(value, utils.Namespace)


def few(steps: int) -> None:
    """Refuse a search that compares so many characters."""
    if steps > MOST_STEPS:
        raise LimitError(f"it would take too long: a search compares at most {MOST_STEPS:,} characters")


def fit_items(items: int) -> None:
    """Refuse a list or mapping of so many items, before it is made."""
    if items > MOST_ITEMS:
        raise too_large("a list or mapping", MOST_ITEMS, "items")


def fit_bits(bits: int) -> None:
    """Refuse a whole number of so many bits, before it is made."""
    if bits > MOST_BITS:
        raise too_large("an integer", MOST_BITS, "bits")

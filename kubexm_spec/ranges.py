"""Many names written as one: node[01:50]."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from kubexm_spec.diagnostics import plural

MAX_NAMES: Final = 100_000
"""How many names one range may stand for."""

_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS: Final = re.compile(r"([0-9]+):([0-9]+)(?::([0-9]+))?")
_LETTERS: Final = re.compile(r"([a-z]):([a-z])(?::([0-9]+))?|([A-Z]):([A-Z])(?::([0-9]+))?")
_EXAMPLE: Final = "write for example node[01:50], rack[a:f] or node[1:9:2]"


def is_range(name: str) -> bool:
    """Whether a name stands for several."""
    return "[" in name or "]" in name


def expand_range(name: str) -> list[str]:
    """The names a range stands for, in order; both ends belong to it. ValueError says what is wrong with it."""
    pieces: list[Iterable[str]] = []
    count, at = 1, 0
    for match in _BRACKETS.finditer(name):
        between = name[at : match.start()]
        _refuse_brackets(between, name)
        start, stop, step, width = _parse(match.group(1), name)
        count *= (stop - start) // step + 1
        if count > MAX_NAMES:
            raise ValueError(f"{_shown(name)} expands to more than {MAX_NAMES:,} names")
        pieces += [between], _values(start, stop, step, width)
        at = match.end()
    _refuse_brackets(name[at:], name)
    pieces.append([name[at:]])
    return ["".join(parts) for parts in itertools.product(*pieces)]


def expand_pair(name: str, address: str) -> list[tuple[str, str]]:
    """Names and addresses expanded together, one address a name; ValueError if they are not as many."""
    names, addresses = expand_range(name), expand_range(address)
    if len(names) != len(addresses):
        raise ValueError(
            f"{_shown(name)} stands for {plural(len(names), 'name')}, "
            f"but {_shown(address)} stands for {plural(len(addresses), 'address')}; the numbers must be equal"
        )
    return list(zip(names, addresses, strict=True))


def match(pattern: str, hosts: Iterable[str]) -> list[str]:
    """The hosts that a name, a range or a glob means."""
    if any(sign in pattern for sign in "*?"):
        return [name for name in hosts if fnmatchcase(name, pattern)]
    known = hosts if isinstance(hosts, Mapping) else set(hosts)
    if "[" in pattern:
        try:
            return [name for name in expand_range(pattern) if name in known]
        except ValueError:
            return [name for name in hosts if fnmatchcase(name, pattern)]
    return [pattern] if pattern in known else []


def _parse(inside: str, name: str) -> tuple[int, int, int, int]:
    """First, last, step and width; a width of 0 means that they are letters."""
    if numbers := _NUMBERS.fullmatch(inside):
        first, last, step = numbers.groups()
        if max(map(len, (first, last, step or ""))) > 18:
            raise ValueError(f"the numbers in {_shown(name)} are too long")
        padded = first.startswith("0") and len(first) > 1
        if padded and len(last) < len(first):
            better = f"[{first}:{last.zfill(len(first))}]"
            raise ValueError(f"the ends of [{inside}] in {_shown(name)} must have the same number of digits: {better}")
        ends = int(first), int(last), int(step or 1), len(first) if padded else 1
    elif letters := _LETTERS.fullmatch(inside):
        first, last, step = letters.groups()[:3] if letters[1] else letters.groups()[3:]
        ends = ord(first), ord(last), int(step or 1), 0
    else:
        raise ValueError(f"[{_cut(inside)}] in {_shown(name)} is not a range; {_EXAMPLE}")
    start, stop, by, _ = ends
    if by < 1:
        raise ValueError(f"the step of [{inside}] in {_shown(name)} must be at least 1")
    if stop < start:
        raise ValueError(f"[{inside}] in {_shown(name)} ends before it begins; write the smaller one first")
    return ends


def _values(start: int, stop: int, step: int, width: int) -> list[str]:
    numbers = range(start, stop + 1, step)
    return [str(n).zfill(width) for n in numbers] if width else [chr(n) for n in numbers]


def _refuse_brackets(text: str, name: str) -> None:
    if "[" in text or "]" in text:
        raise ValueError(f"a bracket in {_shown(name)} has no partner; {_EXAMPLE}")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _shown(text: str) -> str:
    return repr(_cut(text))

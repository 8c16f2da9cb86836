"""Which hosts a person means on the command line: names, ranges, globs, groups, roles and labels, put together."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from kubexm_exec.model.graph import GraphHost
from kubexm_spec.diagnostics import did_you_mean, some
from kubexm_spec.ranges import expand_range, match

ALL: Final = "all"
_COLON: Final = re.compile(r":(?![^\[]*\])")
"""A colon that is not in a range."""


class PatternError(Exception):
    """A pattern that matches no host; the hint says what may be meant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def missing_of(pattern: str, hosts: Iterable[str]) -> list[str]:
    """The names of a range that no host has."""
    if "[" not in pattern or any(sign in pattern for sign in "*?"):
        return []
    try:
        return [name for name in expand_range(pattern) if name not in hosts]
    except ValueError:
        return []


def choose(hosts: Mapping[str, GraphHost], patterns: Iterable[str], control: str = "") -> list[str]:
    """The hosts that patterns mean, in the order of ``hosts``; raises PatternError.

    ``a,b`` is either, ``a&b`` both at once, ``!a`` all others; as in ansible, ``,&a`` keeps of all that is chosen
    what is also in a. ``control``: the machine itself, which only its own name means, unless it is alone.
    """
    words = [word.strip() for text in patterns for word in text.split(",") if word.strip()]
    try:
        return _choose(hosts, words, control)
    except PatternError as error:
        # Between patterns of ansible there are colons, and in ranges as well.
        meant = _COLON.sub(",", ",".join(words))
        if meant != ",".join(words):
            with contextlib.suppress(PatternError):
                _choose(hosts, meant.split(","), control)
                error.hint = f'":" does not join patterns: did you mean "{meant}"?'
        raise


def _choose(hosts: Mapping[str, GraphHost], words: Sequence[str], control: str) -> list[str]:
    chooser = _Chooser(hosts, control)
    if not words:
        # Such as a variable of a shell that is not set: it never means all.
        raise PatternError("no host is named", f"hosts: {some(chooser.own)}")
    added = [chooser.term(word) for word in words if word[0] not in "&!"]
    chosen = set().union(*added) if added else set(chooser.own)
    for word in words:
        if word[0] == "&":
            chosen &= chooser.term(word[1:])
    for word in words:
        if word[0] == "!":
            chosen -= chooser.term(word[1:])
    if not chosen:
        raise PatternError(f'"{",".join(words)}" selects no host', f"hosts: {some(chooser.own)}")
    return [name for name in hosts if name in chosen]


class _Chooser:
    def __init__(self, hosts: Mapping[str, GraphHost], control: str) -> None:
        self._hosts = hosts
        self._control = control
        self.own = [name for name in hosts if name != control] or list(hosts)

    def term(self, text: str) -> set[str]:
        """The hosts of patterns with "&" between them; "!" before one means the others."""
        found = set(self._hosts)
        for part in text.split("&"):
            pattern = part.strip()
            one = self._one(pattern.removeprefix("!").strip())
            found &= set(self.own) - one if pattern.startswith("!") else one
        return found

    def _one(self, pattern: str) -> set[str]:
        if pattern == ALL:
            return set(self.own)
        found = set(match(pattern, self._hosts))
        if pattern != self._control:
            found &= set(self.own)
        found = found or self._having(pattern)
        if not found:
            kinds = "label of a host" if "=" in pattern else "host, group or role of the inventory"
            raise PatternError(f'"{pattern}" is not a {kinds}', self._hint(pattern))
        return found

    def _having(self, pattern: str) -> set[str]:
        """The hosts with a label, or of groups or roles that are called so."""
        label, sign, value = pattern.partition("=")
        if sign:
            labels = {name: self._hosts[name].labels.get(label) for name in self.own}
            return {name for name, given in labels.items() if given is not None and fnmatchcase(str(given), value)}
        own = [self._hosts[name] for name in self.own]
        return {host.name for host in own if any(fnmatchcase(each, pattern) for each in (*host.groups, *host.roles))}

    def _hint(self, pattern: str) -> str:
        own = [self._hosts[name] for name in self.own]
        memberships = {name: None for host in own for name in (*host.groups, *host.roles)}
        labels = {f"{key}={value}": None for host in own for key, value in host.labels.items()}
        there = f"labels: {some(labels)}" if labels and "=" in pattern else f"hosts: {some(self.own)}"
        return did_you_mean(pattern, [*self.own, *memberships, *labels]) or there

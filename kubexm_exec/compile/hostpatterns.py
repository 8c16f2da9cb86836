"""Which hosts a person means on the command line: names, ranges, globs, groups, roles and labels, put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from kubexm_exec.model.graph import GraphHost
from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.ranges import expand_range

ALL: Final = "all"
_MOST: Final = 8


class PatternError(Exception):
    """A pattern that means no host; says what may be meant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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


def missing_of(pattern: str, hosts: Iterable[str]) -> list[str]:
    """The names of a range that no host has."""
    if "[" not in pattern or any(sign in pattern for sign in "*?"):
        return []
    try:
        return [name for name in expand_range(pattern) if name not in hosts]
    except ValueError:
        return []


def some(names: Iterable[str]) -> str:
    """Some of many names."""
    listed = list(names)
    return ", ".join(listed[:_MOST]) + (f" and {len(listed) - _MOST} more" if len(listed) > _MOST else "")


def choose(hosts: Mapping[str, GraphHost], patterns: Iterable[str], control: str = "") -> list[str]:
    """The hosts that patterns mean, in the order of ``hosts``; raises PatternError.

    ``a,b`` is either, ``a&b`` both at once, ``!a`` all others; as in ansible, ``,&a`` keeps of all that is chosen
    what is also in a. ``control``: the machine itself, which only its own name means, unless it is alone.
    """
    words = [word.strip() for text in patterns for word in text.split(",") if word.strip()]
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
            raise PatternError(
                f'"{pattern}" is not a {kinds}', did_you_mean(pattern, self._names()) or self._known(pattern)
            )
        return found

    def _having(self, pattern: str) -> set[str]:
        """The hosts with a label, or of groups or roles that are called so."""
        label, sign, value = pattern.partition("=")
        if sign:
            labels = {name: self._hosts[name].labels.get(label) for name in self.own}
            return {name for name, given in labels.items() if given is not None and fnmatchcase(str(given), value)}
        return {
            name for name in self.own if any(fnmatchcase(each, pattern) for each in _memberships(self._hosts[name]))
        }

    def _names(self) -> list[str]:
        memberships = {name: None for host in self.own for name in _memberships(self._hosts[host])}
        labels = {f"{key}={value}": None for host in self.own for key, value in self._hosts[host].labels.items()}
        return [*self.own, *memberships, *labels]

    def _known(self, pattern: str) -> str:
        labels = [name for name in self._names() if "=" in name] if "=" in pattern else []
        return f"labels: {some(labels)}" if labels else f"hosts: {some(self.own)}"


def _memberships(host: GraphHost) -> Iterator[str]:
    yield from host.groups
    yield from host.roles

"""Reads ansible inventories in INI form."""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any, Final

from msgspec import structs

from kubexm_spec.diagnostics import Diagnostic, Diagnostics
from kubexm_spec.inventories.ansible import UNGROUPED, Found, Var, Vars, to_body
from kubexm_spec.inventories.converted import Body
from kubexm_spec.ranges import expand_range
from kubexm_spec.source import Path
from kubexm_spec.textlines import LineTable

_SECTION: Final = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_KINDS: Final = ("hosts", "vars", "children")
_NAME: Final = re.compile(r"(?:[\w.@%~,-]|\[[^\]]*\])+|[0-9a-fA-F:.]+(?:%\w+)?")
"""What a host can be called: a name, perhaps with ranges, or an IPv6 address."""
_UNQUOTED: Final = {
    "bad-section": "this is no section of an ansible inventory",
    "bad-variable": "this is no variable of an ansible inventory",
    "bad-host": "this is no host of an ansible inventory",
    "bad-range": "this is no range of hosts",
    "group-cycle": "this group is below itself",
    "unknown-group": "this child is no group",
}
"""Findings in words that quote nothing: a file with lines that are not of an inventory may be any file."""


def looks_like_ini(text: str) -> bool:
    """Whether a text without a telling name is INI: its first line that says something is a section or a host."""
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#;":
            yaml = line.startswith(("---", "{", "%", "- ")) or re.match(r"""["']?[\w.-]+["']?:(\s|$)""", line)
            return not yaml
    return False


def read_ini(text: str, name: str, diagnostics: Diagnostics) -> Body | None:
    """The inventory in our form, or None with findings."""
    table = LineTable(text)
    findings = Diagnostics()
    found = Found(findings, lambda origin: table.span(name, int(origin[0]), int(origin[1])) if origin else None)
    _Reader(found).read(text)
    foreign = findings.has_errors
    body = to_body(found)
    diagnostics.extend(map(_unquoted, findings) if foreign else findings)
    return None if findings.has_errors else body


def _unquoted(finding: Diagnostic) -> Diagnostic:
    hint = "" if finding.code == "unknown-group" else finding.hint
    return structs.replace(finding, summary=_UNQUOTED.get(finding.code, finding.summary), hint=hint)


class _Reader:
    def __init__(self, found: Found) -> None:
        self.found = found
        self.group = UNGROUPED
        self.kind = "hosts"

    def read(self, text: str) -> None:
        offset = 0
        for raw in text.splitlines(keepends=True):
            line = raw.strip()
            start = offset + len(raw) - len(raw.lstrip())
            offset += len(raw)
            if line and line[0] not in "#;":
                self._line(line, (start, start + len(line)))

    def _line(self, line: str, origin: tuple[int, int]) -> None:
        if line.startswith("["):
            self._section(line, origin)
        elif self.kind == "vars":
            self._variable(line, origin)
        elif self.kind == "children":
            child = line.split("#")[0].split(";")[0].strip()
            self.found.group(self.group, origin).children[child] = origin
        else:
            self._host(line, origin)

    def _section(self, line: str, origin: Path) -> None:
        match = _SECTION.fullmatch(line)
        if match is None or (match[2] or "hosts") not in _KINDS:
            self.found.error(
                "bad-section", f"{line} is no section of an ansible inventory", origin,
                "write [group], [group:vars] or [group:children]",
            )  # fmt: skip
            return
        self.group, self.kind = match[1], match[2] or "hosts"
        self.found.group(self.group, origin)

    def _variable(self, line: str, origin: tuple[int, int]) -> None:
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            self.found.error("bad-variable", f'"{_cut(line)}" is no variable', origin, "write name=value")
            return
        self.found.group(self.group, origin).vars[key.strip()] = Var(_literal(value.strip()), origin)

    def _host(self, line: str, origin: tuple[int, int]) -> None:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            self.found.error("bad-host", f"the line cannot be split into words: {error}", origin,
                             "close the quotes")  # fmt: skip
            return
        if not words:
            return
        name, *settings = words
        variables: Vars = {}
        name, port = _port(name)
        if not _NAME.fullmatch(name):
            self.found.error("bad-host", f'"{_cut(name)}" is no name of a host', origin, "begin with its name")
            return
        if port:
            variables["ansible_port"] = Var(int(port), (origin[0], origin[0] + len(name) + 1 + len(port)))
        at = len(name)
        for setting in settings:
            key, sign, value = setting.partition("=")
            if not sign or not key:
                self.found.error("bad-variable", f'"{_cut(setting)}" of host {name} is no variable', origin,
                                 "write name=value")  # fmt: skip
                continue
            at = max(line.find(f"{key}=", at), 0)
            variables[key] = Var(_literal(value), (origin[0] + at, origin[0] + at + len(key)))
            at += len(key)
        try:
            names = expand_range(name)
        except ValueError as error:
            self.found.error("bad-range", str(error), origin)
            return
        where: Path = (origin[0], origin[0] + len(name))
        for one in names:
            self.found.host(self.group, one, where, variables)


def _port(name: str) -> tuple[str, str]:
    """``web1:2222`` and ``[2001:db8::1]:22``, but not the colons of ranges and of bare IPv6 addresses."""
    outside = re.sub(r"\[[^\]]*\]", "", name)
    match = re.fullmatch(r"(.+):(\d+)", name)
    return (match[1], match[2]) if match and outside.count(":") == 1 else (name, "")


def _literal(value: str) -> Any:
    """A value as ansible reads it: a Python literal if it is one, else the text."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return value
    return found if _plain(found) else value


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float | bool)


def _cut(text: str) -> str:
    """Enough to recognise it, not enough to give away what was meant to be a password."""
    return text if len(text) <= 20 else text[:17] + "..."

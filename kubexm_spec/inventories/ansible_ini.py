"""Reads ansible inventories in INI form."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from typing import Any, Final

from msgspec import structs

from kubexm_spec.diagnostics import Diagnostic, Diagnostics, shortened
from kubexm_spec.inventories.ansible import UNGROUPED, Found, Var, Vars, host_names
from kubexm_spec.yaml.source import Path

_SECTION: Final = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_ADDRESS: Final = re.compile(r"\[[^\]]*\][\w.:-]")
"""No section: a host that begins with a range, or an IPv6 address with a port."""
_KINDS: Final = ("hosts", "vars", "children")
_NAME: Final = re.compile(r"(?:[\w.@%~,-]|\[[^\]]*\])+(?::[0-9]+)?|[0-9a-fA-F:.]+(?:%\w+)?|\[[0-9a-fA-F:.]+\]:[0-9]+")
"""What a host can be called: a name, perhaps with ranges and a port, or an IPv6 address."""
_UNQUOTED: Final = {
    "bad-section": "this is not a section of an Ansible inventory",
    "bad-variable": "this is not a variable of an Ansible inventory",
    "bad-host": "this is not a host of an Ansible inventory",
    "bad-range": "this is not a range of hosts",
    "group-cycle": "this group contains itself",
    "unknown-group": "this child is not a group",
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


def read_ini(text: str, found: Found, file: int) -> bool:
    """Add what the text of a file says; whether all of it was of an inventory. Origins: number of the file, range."""
    outer, found.diagnostics = found.diagnostics, Diagnostics()
    try:
        _Reader(found, file).read(text)
        outer.extend(map(unquoted, found.diagnostics))
        return not found.diagnostics.has_errors
    finally:
        found.diagnostics = outer


def unquoted(finding: Diagnostic) -> Diagnostic:
    """The same finding without a word of the file that it is about."""
    hint = "" if finding.code == "unknown-group" else finding.hint
    return structs.replace(finding, summary=_UNQUOTED.get(finding.code, finding.summary), hint=hint)


class _Reader:
    def __init__(self, found: Found, file: int) -> None:
        self.found = found
        self.file = file
        self.group = UNGROUPED
        self.kind = "hosts"

    def read(self, text: str) -> None:
        offset = 0
        for raw in text.splitlines(keepends=True):
            line = raw.strip()
            start = offset + len(raw) - len(raw.lstrip())
            offset += len(raw)
            if line and line[0] not in "#;":
                self._line(line, (self.file, start, start + len(line)))

    def _line(self, line: str, origin: tuple[int, int, int]) -> None:
        if line.startswith("[") and not _ADDRESS.match(line):
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
            hint = "write [group], [group:vars] or [group:children]"
            self.found.error("bad-section", f"{line} is not a section of an Ansible inventory", origin, hint)
            return
        self.group, self.kind = match[1], match[2] or "hosts"
        self.found.group(self.group, origin)

    def _variable(self, line: str, origin: Path) -> None:
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            self.found.error("bad-variable", f'"{_cut(line)}" is not a variable', origin, "write name=value")
            return
        self.found.group(self.group, origin).vars[key.strip()] = Var(_literal(value.strip()), origin)

    def _host(self, line: str, origin: tuple[int, int, int]) -> None:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            summary = f"the line cannot be split into words: {error}"
            self.found.error("bad-host", summary, origin, "close the quotes")
            return
        if not words:
            return
        name, *settings = words
        start = origin[1]
        variables: Vars = {}
        if not _NAME.fullmatch(name):
            self.found.error("bad-host", f'"{_cut(name)}" is not a host name', origin, "begin with its name")
            return
        at = len(name)
        for setting in settings:
            key, sign, value = setting.partition("=")
            if not sign or not key:
                summary = f'"{_cut(setting)}" of host {name} is not a variable'
                self.found.error("bad-variable", summary, origin, "write name=value")
                continue
            at = max(line.find(f"{key}=", at), 0)
            variables[key] = Var(_literal(value), (self.file, start + at, start + at + len(key)))
            at += len(key)
        try:
            names, port = host_names(name)
        except ValueError as error:
            self.found.error("bad-range", str(error), origin)
            return
        where: Path = (self.file, start, start + len(name))
        for one in names:
            self.found.host(self.group, one, where, variables, Var(int(port), where) if port else None)


def _literal(value: str) -> Any:
    """A value as ansible reads it: a Python literal if it is one, else the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes, which the user did not write in Python
            found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return value
    try:
        return _plain(found)
    except RecursionError:
        return value


def _plain(value: Any) -> Any:
    """Data that YAML could hold too: tuples and sets are lists, and what is stranger is its text."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is ...:
        return "..."
    return str(value) if isinstance(value, complex) else value


def _cut(text: str) -> str:
    """Enough to recognise it, not enough to give away what was meant to be a password."""
    return shortened(text, 20)

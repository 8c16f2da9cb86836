"""The table of `kubexm cluster preflight`: one row a check, and below it the hosts that do not meet its demand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import to_builtins

from kubexm_exec.console.text import columns, names, one_line
from kubexm_exec.service.preflight import Finding, Level, Preflight
from kubexm_spec.diagnostics import plural
from kubexm_spec.models.cluster import PREFLIGHT_CHECKS

_WORDS: Final = {Level.FAIL: "FAILED", Level.WARN: "warning", Level.UNSEEN: "not looked at", Level.OK: "ok"}
_SKIPPED: Final = "skipped"
_LARGEST_MATRIX: Final = 12
"""Hosts of a matrix that fits a terminal; with more the lines of the check say it all."""


def preflight_lines(found: Preflight, file: str) -> Iterator[str]:
    """The table, the matrix of connections unless all is well, and a summary."""
    rows, details = [], {}
    for check in PREFLIGHT_CHECKS:
        several = found.of(check)
        bad = [each for each in several if each.level is not Level.OK]
        details[check] = bad
        rows.append([check, _word(found, check, several), _where(several, bad)])
    for check, line in zip(PREFLIGHT_CHECKS, columns(rows, frozenset({0, 1, 2})), strict=True):
        yield line.rstrip()
        for what, hosts in _grouped(details[check]):
            yield f"    {names(hosts, 8)}: {_what(what)}"
            if what.advice:
                yield f"        → {one_line(what.advice)}"
    if any(each.level is not Level.OK for each in found.of("portsReachable")):
        yield from _matrix(found)
    yield ""
    yield from _summary(found, file)


def _word(found: Preflight, check: str, several: Sequence[Finding]) -> str:
    if check in found.skipped:
        return _SKIPPED
    worst = next((level for level in Level if any(each.level is level for each in several)), None)
    if worst is None:
        return _WORDS[Level.UNSEEN] if found.lost else "-"
    return _WORDS[worst]


def _where(several: Sequence[Finding], bad: Sequence[Finding]) -> str:
    """How many hosts were looked at, and on how many something is to be told."""
    hosts = len({each.host for each in several})
    if not hosts:
        return ""
    told = len({each.host for each in bad})
    return f"{told} of {plural(hosts, 'host')}" if told else plural(hosts, "host")


def _grouped(bad: Sequence[Finding]) -> list[tuple[Finding, list[str]]]:
    """What several hosts have in common is said once."""
    found: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for each in bad:
        key = (each.level.value, each.subject, each.measured, each.demand, each.advice)
        found.setdefault(key, (each, []))[1].append(each.host)
    return list(found.values())


def _what(each: Finding) -> str:
    subject = f"{each.subject}: " if each.subject else ""
    level = f" ({_WORDS[each.level]})" if each.level is not Level.FAIL else ""
    demand = f"; wanted: {each.demand}" if each.demand else ""
    return one_line(f"{subject}{each.measured}{demand}{level}")


def _matrix(found: Preflight) -> Iterator[str]:
    cells = found.matrix()
    to = [host for host in found.hosts if any(host in row for row in cells.values())]
    if not 0 < len(to) <= _LARGEST_MATRIX:
        return
    rows = [["from \\ to", *to]]
    for host in found.hosts:
        if host in cells:
            rows.append([host, *(_cell(cells[host].get(other)) for other in to)])
    yield ""
    yield "ports from host to host (ports that cannot be reached, ? for those not looked at):"
    yield from (f"    {line}".rstrip() for line in columns(rows, frozenset(range(len(to) + 1))))


def _cell(ports: dict[str, str] | None) -> str:
    if ports is None:
        return "-"
    bad = [f"{port}{'?' if level == Level.UNSEEN else ''}" for port, level in ports.items() if level != Level.OK]
    return ",".join(bad) or "ok"


def _summary(found: Preflight, file: str) -> Iterator[str]:
    numbers = {level: len({each.check for each in found.findings if each.level is level}) for level in Level}
    parts = [plural(len(PREFLIGHT_CHECKS) - len(found.skipped), "check") + f" of {plural(len(found.hosts), 'host')}"]
    parts += [
        f"{numbers[level]} {_WORDS[level].lower()}" for level in Level if numbers[level] and level is not Level.OK
    ]
    if found.skipped:
        parts.append(f"{len(found.skipped)} {_SKIPPED}")
    if found.lost:
        parts.append(f"{names(found.lost)} could not be looked at")
    yield f"Preflight: {', '.join(parts)}. Nothing was changed."
    words = ["kubexm", "cluster", "preflight" if found.failed else "create", "-f", file]
    why = "again after the fix" if found.failed else "create the cluster"
    yield f"Next:  {shlex.join(words)}   {why}"


def preflight_json(found: Preflight) -> dict[str, Any]:
    """All findings, also those that are as they should be."""
    return {
        "ok": not found.failed,
        "hosts": found.hosts,
        "checks": {check: _word(found, check, found.of(check)) for check in PREFLIGHT_CHECKS},
        "findings": [to_builtins(each) for each in found.findings],
        "reachable": found.matrix(),
    }

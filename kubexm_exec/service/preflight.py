"""What the checks of a cluster's hosts have found: the lines that they print, and what only several hosts tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, Status
from kubexm_spec.clusters.preflight import LARGEST_SKEW
from kubexm_spec.models.cluster import PREFLIGHT_CHECKS

_SSH: Final = "ssh"
_SUDO: Final = "sudo"
_CLOCK: Final = "clock"
_REACHABLE: Final = "portsReachable"
_LISTEN: Final = "listen"
"""The step that says on which ports a host answers."""
_VALUE: Final = "value"
"""The first word of a line that is compared with those of other hosts."""


class Level(StrEnum):
    """How bad it is, the worst first."""

    FAIL = "fail"
    WARN = "warn"
    UNSEEN = "unseen"
    """It could not be looked at."""
    OK = "ok"


class Finding(Struct, frozen=True, kw_only=True):
    """What a check says about one thing of one host."""

    check: str
    host: str
    level: Level
    subject: str = ""
    """What it is about, such as a port; empty for the host itself."""
    measured: str = ""
    demand: str = ""
    advice: str = ""


class Preflight(Struct, frozen=True, kw_only=True):
    """All findings, in the order of the checks and of the hosts."""

    hosts: list[str]
    skipped: list[str]
    """Checks that the document leaves out."""
    findings: list[Finding]
    cancelled: bool = False

    @property
    def failed(self) -> bool:
        """Whether a demand is not met."""
        return any(each.level is Level.FAIL for each in self.findings)

    @property
    def lost(self) -> list[str]:
        """Hosts that could not be looked at: nobody gets in, or not as root."""
        gates = (_SSH, _SUDO)
        bad = {each.host for each in self.findings if each.check in gates and each.level is Level.FAIL}
        return [host for host in self.hosts if host in bad]

    def of(self, check: str) -> list[Finding]:
        """The findings of a check."""
        return [each for each in self.findings if each.check == check]

    def matrix(self) -> dict[str, dict[str, dict[str, str]]]:
        """By the host that connects and the host that it connects to: by port the level."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for each in self.of(_REACHABLE):
            to, colon, port = each.subject.rpartition(":")
            if colon:
                found.setdefault(each.host, {}).setdefault(to, {})[port] = each.level.value
        return found


class _Line(Struct, frozen=True):
    """A line of a check, with the result that it is from."""

    finding: Finding
    compared: bool
    result: HostResult


def findings_of(result: GraphExecutionResult, hosts: Sequence[str], skip: Sequence[str]) -> Preflight:
    """The findings in the result of the module's run."""
    by_step = {name.rpartition("/")[2]: node.host_results for name, node in result.node_results.items()}
    by_check: dict[str, dict[Finding, _Line]] = {check: {} for check in PREFLIGHT_CHECKS}
    for check in PREFLIGHT_CHECKS:
        of_hosts = by_step.get(check, {})
        for host in hosts:
            for line in _lines(check, of_hosts[host]) if host in of_hosts else ():
                by_check[line.finding.check].setdefault(line.finding, line)
    listening = {host: _ports(each) for host, each in by_step.get(_LISTEN, {}).items()}
    found: list[Finding] = []
    for check, of_findings in by_check.items():
        several = list(of_findings.values())
        if check == _REACHABLE:
            found += _reachable([each.finding for each in several], listening)
        else:
            found += _clocks([each for each in several if each.compared and each.finding.subject == _CLOCK])
            found += _unique([each.finding for each in several if each.compared and each.finding.subject != _CLOCK])
            found += [each.finding for each in several if not each.compared]
    order = {name: number for number, name in enumerate(hosts)}
    checks = {name: number for number, name in enumerate(PREFLIGHT_CHECKS)}
    found.sort(key=lambda each: (checks[each.check], order[each.host], _port_order(each.subject)))
    return Preflight(
        hosts=list(hosts),
        skipped=[check for check in PREFLIGHT_CHECKS if check in skip],
        findings=found,
        cancelled=result.status is Status.CANCELLED,
    )


def _port_order(subject: str) -> tuple[str, int]:
    """Ports by their numbers; what else a check is about keeps its order."""
    name, colon, port = subject.rpartition(":")
    return (name, int(port)) if colon and port.isdigit() else ("", 0)


def _lines(check: str, result: HostResult) -> Iterator[_Line]:
    """The lines of one check on one host; a check that did not come to its end is a finding as well."""
    if result.status is Status.SKIPPED:
        return
    if result.kind is FailureKind.UNREACHABLE:
        advice = result.hint or "see that the host is on, and check its address, port, user and key"
        finding = Finding(
            check=_SSH, host=result.host_name, level=Level.FAIL, measured=result.message, demand="a connection",
            advice=advice,
        )  # fmt: skip
        yield _Line(finding, False, result)
        return
    said = False
    for text in result.stdout.splitlines():
        words = text.split("\t")
        if len(words) != 5 or words[0] not in (_VALUE, *Level):
            continue
        said = True
        compared = words[0] == _VALUE
        finding = Finding(
            check=check, host=result.host_name, level=Level.OK if compared else Level(words[0]),
            subject=words[1], measured=words[2], demand=words[3], advice=words[4],
        )  # fmt: skip
        yield _Line(finding, compared, result)
    if result.status is not Status.SUCCESS and not said:
        finding = Finding(
            check=check, host=result.host_name, level=Level.FAIL, measured=result.message,
            demand="a check that comes to its end",
            advice=result.hint or f"leave it out with preflight.skip: [{check}]",
        )  # fmt: skip
        yield _Line(finding, False, result)


def _unique(values: Iterable[Finding]) -> Iterator[Finding]:
    by_value: dict[str, list[Finding]] = {}
    for each in values:
        by_value.setdefault(each.measured.lower(), []).append(each)
    for same in by_value.values():
        for each in same:
            others = ", ".join(other.host for other in same if other is not each)
            if others:
                yield replace(each, level=Level.FAIL, measured=f"{each.measured}, as {others}")
            else:
                yield each


def _clocks(values: Sequence[_Line]) -> Iterator[Finding]:
    """Clocks by how far each is from the most others; ours is one of them, and wins where there is no majority."""
    offsets: dict[str, tuple[float, float]] = {}
    for line in values:
        offset = _offset(line)
        if offset is None:
            yield replace(line.finding, level=Level.UNSEEN, measured="the clock cannot be read")
        else:
            offsets[line.finding.host] = offset
    middles = [0.0, *(middle for middle, _ in offsets.values())]
    right = max(middles, key=lambda one: sum(abs(one - other) <= LARGEST_SKEW for other in middles))
    for line in values:
        if line.finding.host not in offsets:
            continue
        middle, uncertain = offsets[line.finding.host]
        apart = max(0.0, abs(middle - right) - uncertain)
        if apart > LARGEST_SKEW:
            way = "ahead" if middle > right else "behind"
            yield replace(line.finding, level=Level.FAIL, measured=f"{apart:.0f} s {way}")
        else:
            yield replace(line.finding, measured="in time")


def _offset(line: _Line) -> tuple[float, float] | None:
    """Seconds by which a clock is ahead of ours, and how sure that is: it was read while the step ran."""
    whole, _, fraction = line.finding.measured.partition(".")
    start, end = line.result.start_time, line.result.end_time
    if not whole.isdigit() or start is None or end is None:
        return None
    read = float(f"{whole}.{fraction}") if fraction.isdigit() else float(whole) + 0.5
    uncertain = (end - start) / 2 + (0.0 if fraction.isdigit() else 0.5)
    return read - (start + end) / 2, uncertain


def _ports(result: HostResult) -> frozenset[str]:
    return frozenset(word for word in result.stdout.split("\n") if word.isdigit())


def _reachable(found: Iterable[Finding], listening: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """Connections; where nobody listened, nothing can be said."""
    for each in found:
        to, colon, port = each.subject.rpartition(":")
        if each.level is Level.FAIL and colon and port not in listening.get(to, frozenset()):
            why = f"nothing listened there: {to} could not be looked at, or has no systemd-socket-activate"
            yield replace(each, level=Level.UNSEEN, measured=why, advice=f"see what else is told of {to}")
        else:
            yield each

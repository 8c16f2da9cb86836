"""The tables of `kubexm cluster status` and `kubexm cluster certs`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import to_builtins

from kubexm_exec.console.text import Paint, columns, format_size, names, one_line
from kubexm_exec.service.certificates import CertificateRow, Certificates, Validity
from kubexm_exec.service.status import ClusterStatus, Level, MemberRow, NodeRow
from kubexm_spec.diagnostics import plural

_LEVELS: Final = {
    Level.FAIL: ("✘", "FAILED", "failed"),
    Level.DRIFT: ("≠", "differs", "changed"),
    Level.WARN: ("!", "warning", "warning"),
}
_VALIDITY: Final = {
    Validity.EXPIRED: "failed",
    Validity.UNREADABLE: "failed",
    Validity.SOON: "warning",
    Validity.VALID: "ok",
}
_MOST: Final = 20
"""Problems of a kind that are shown; JSON has all."""


def status_lines(found: ClusterStatus, file: str, paint: Paint) -> Iterator[str]:
    """The tables, what is wrong and what to do, and a summary."""
    asked = f"asked {found.asked}" if found.asked else paint("no control plane answers", "failed")
    head = (f"cluster {found.name}", f"Kubernetes {found.version}", f"endpoint {found.endpoint}", asked)
    yield paint(head[0], "head") + "   " + "   ".join(head[1:])
    yield from _table("nodes", "role  status  kubelet  runtime  address  age", _nodes(found, paint), paint)
    yield from _table("control plane", "state  version  where", _components(found, paint), paint)
    yield from _table("etcd", "state  version  size  in use  host", _members(found, paint), paint, (3, 4))
    yield from _table("load balancer", "state  check  sessions", _backends(found, paint), paint, (3,))
    yield from _table("in the cluster", "pods  version  namespace", _workloads(found, paint), paint)
    yield from _table(
        "certificates", "files  days left  first to expire", _hosts_certificates(found, paint), paint, (1, 2)
    )
    yield ""
    yield from _problems(found, paint)
    yield from _summary(found, file)


def _table(
    title: str, head: str, rows: Sequence[Sequence[str]], paint: Paint, right: tuple[int, ...] = ()
) -> Iterator[str]:
    """A table under an empty line; nothing if it has no rows."""
    if rows:
        first = [title.upper(), *head.split("  ")]
        left = frozenset(range(len(first))) - set(right)
        lines = columns([first, *rows], left)
        yield ""
        yield paint(lines[0], "dim")
        yield from lines[1:]


def _nodes(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    return [
        [each.name, ",".join(each.roles), _node_status(each, paint), each.kubelet or "-", each.runtime or "-",
         each.address or "-", age(each.age)]
        for each in found.nodes
    ]  # fmt: skip


def _node_status(node: NodeRow, paint: Paint) -> str:
    words = [paint(node.status, "ok" if node.ready else "failed")]
    if node.cordoned:
        words.append(paint("cordoned", "warning"))
    if not node.host:
        words.append(paint("not in the document", "changed"))
    return ", ".join([*words, *(paint(each, "warning") for each in node.conditions)])


def _components(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    rows = []
    for api in found.api_servers:
        state = paint("ready", "ok") if api.ready else paint("not ready", "failed")
        rows.append(["API server", state, "", api.host])
    seen: dict[tuple[str, str, bool], list[str]] = {}
    for each in found.components:
        seen.setdefault((each.component, each.version, each.ready), []).append(each.node)
    for (component, version, ready), where in seen.items():
        rows.append([component, paint("ready", "ok") if ready else paint("not ready", "failed"), version, names(where)])
    return rows


def _members(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    if found.etcd == "external":
        return [["yours", "not looked at", "", "", "", ""]]
    return [
        [each.name or each.id, _member_state(each, paint), each.version or "-", _size(each.size), _size(each.used),
         each.host or paint("not in the document", "changed")]
        for each in found.members
    ]  # fmt: skip


def _member_state(member: MemberRow, paint: Paint) -> str:
    state = paint(member.state, "ok" if member.answers else "failed")
    return ", ".join([state, *(paint(alarm, "failed") for alarm in member.alarms)])


def _backends(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    rows = [
        [f"{each.balancer} → {each.server}", paint(each.state, "ok" if each.up else "failed"), one_line(each.check),
         str(each.sessions)]
        for each in found.backends
    ]  # fmt: skip
    rows += [
        [each.host, paint("no answer", "failed"), each.message, ""] for each in found.balancers if not each.answers
    ]
    if found.virtual_address:
        holders = names(each.host for each in found.balancers if each.has_address)
        rows.append([found.virtual_address, f"on {holders}" if holders else paint("on no host", "failed"), "", ""])
    return rows


def _workloads(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    return [
        [each.name, paint(f"{each.ready}/{each.wanted}", "ok" if each.ready >= each.wanted else "failed"), each.version,
         each.namespace]
        for each in found.workloads
    ]  # fmt: skip


def _hosts_certificates(found: ClusterStatus, paint: Paint) -> list[list[str]]:
    """One row a host: the certificate that ends first."""
    rows = []
    for host in found.hosts:
        own = [each for each in found.certificates.certificates if each.host == host]
        if own:
            first = min(own, key=lambda each: each.days_left)
            days = paint(str(first.days_left), _VALIDITY[first.validity])
            rows.append([host, str(len(own)), days, first.path])
    for each in found.unseen:
        rows.append([each.host, "-", "-", paint("no answer", "failed")])
    return rows


def _problems(found: ClusterStatus, paint: Paint) -> Iterator[str]:
    for level, (sign, word, style) in _LEVELS.items():
        several = [each for each in found.problems if each.level is level]
        for each in several[:_MOST]:
            yield f"{paint(f'{sign} {word}', style)}  {each.where}: {one_line(each.what)}"
            if each.advice:
                yield f"    → {one_line(each.advice)}"
        if len(several) > _MOST:
            yield f"  and {len(several) - _MOST} more; --output json has all of them"
    if found.problems:
        yield ""


def _summary(found: ClusterStatus, file: str) -> Iterator[str]:
    ready = sum(each.ready for each in found.nodes)
    parts = [f"{ready} of {plural(len(found.nodes), 'node')} ready"]
    if found.etcd != "external":
        parts.append(f"{sum(each.answers for each in found.members)} of {plural(len(found.members), 'member')} of etcd")
    counts = {level: sum(each.level is level for each in found.problems) for level in Level}
    told = {
        Level.FAIL: f"{counts[Level.FAIL]} failed",
        Level.DRIFT: plural(counts[Level.DRIFT], "difference"),
        Level.WARN: plural(counts[Level.WARN], "warning"),
    }
    parts += [told[level] for level in Level if counts[level]]
    yield f"Status: {', '.join(parts)}. Nothing was changed."
    if counts[Level.FAIL]:
        yield f"Next:  {shlex.join(['kubexm', 'cluster', 'status', '-f', file])}   again after the fix"
    elif any(each.validity in (Validity.SOON, Validity.EXPIRED) and not each.ca for each in found.certificates.due):
        yield f"Next:  {shlex.join(['kubexm', 'cluster', 'renew-certs', '-f', file])}   renew certificates"
    elif counts[Level.DRIFT]:
        words = ["kubexm", "cluster", "create", "-f", file, "--executor", "check"]
        yield f"Next:  {shlex.join(words)}   see what the document would change"


def status_json(found: ClusterStatus) -> dict[str, Any]:
    """Everything, with what is wrong."""
    data: dict[str, Any] = {"ok": not found.failed, **to_builtins(found)}
    data.pop("cancelled")
    data["certificates"] = certificates_json(found.certificates)
    return data


# certificates


def certificates_lines(found: Certificates, file: str, paint: Paint) -> Iterator[str]:
    """One row a certificate, by host, and a summary."""
    head = ["HOST", "CERTIFICATE", "SUBJECT", "ISSUER", "EXPIRES", "DAYS LEFT", ""]
    rows = [_certificate(each, paint) for each in found.certificates]
    if rows:
        lines = columns([head, *rows], frozenset({0, 1, 2, 3, 4, 6}))
        yield paint(lines[0], "dim")
        yield from lines[1:]
        yield ""
    for host in found.unseen:
        yield f"{paint('✘ FAILED', 'failed')}  {host.host}: {one_line(host.message)}"
        if host.hint:
            yield f"    → {one_line(host.hint)}"
    counts = {each: sum(row.validity is each for row in found.certificates) for each in Validity}
    parts = [
        f"{plural(len(found.certificates), 'certificate')} on {plural(len(found.hosts) - len(found.unseen), 'host')}"
    ]
    parts += [f"{counts[each]} {each.value}" for each in Validity if counts[each] and each is not Validity.VALID]
    if found.unseen:
        parts.append(f"{plural(len(found.unseen), 'host')} could not be looked at")
    yield f"Certificates: {', '.join(parts)} (threshold {plural(found.threshold, 'day')}). Nothing was changed."
    if any(not each.ca and each.validity in (Validity.SOON, Validity.EXPIRED) for each in found.due):
        words = ["kubexm", "cluster", "renew-certs", "-f", file, "--days", str(found.threshold)]
        yield f"Next:  {shlex.join(words)}   renew certificates"


def _certificate(each: CertificateRow, paint: Paint) -> list[str]:
    word = "" if each.validity is Validity.VALID else paint(each.validity.value, _VALIDITY[each.validity])
    kind = "CA" if each.ca and each.validity is Validity.VALID else word
    if each.validity is Validity.UNREADABLE:
        return [each.host, each.path, "-", "-", "-", "-", kind]
    days = paint(str(each.days_left), _VALIDITY[each.validity])
    return [each.host, each.path, each.subject, each.issuer, each.not_after[:10], days, kind]


def certificates_json(found: Certificates) -> dict[str, Any]:
    """All certificates."""
    data: dict[str, Any] = {"ok": not found.due and not found.unseen, **to_builtins(found)}
    data.pop("cancelled")
    return data


def age(seconds: float | None) -> str:
    """``45s``, ``12m``, ``5h``, ``3d``: the largest unit."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def _size(size: int) -> str:
    return format_size(size) if size else "-"

"""Failures for people: what, where, why and what to do; the same failure on many hosts is one block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from kubexm_exec.console.changes import diff_lines, title
from kubexm_exec.console.text import KINDS, Paint, fit, names, one_line, text_lines
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, returned_by
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, SkipReason, Status
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

BLOCKS: Final = 10
"""So many failures are shown in full; the others in one line each."""
_LINES: Final = 10
_REFUSED: Final = 40
"""Lines that are shown of content that a program has refused."""
_WIDEST: Final = 1000
"""Cells of a line of output: one without an end need not fill the screen."""
_MESSAGE: Final = 8
_COMMAND: Final = 4
_TRACE: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
# The parameter that says what a step is about, best first; any other step is known by its first parameter.
_MAIN: Final = (
    "path",
    "dest",
    "url",
    "name",
    "argv",
    "shell",
    "command",
    "port",
    "file",
    "src",
    "question",
    "that",
    "text",
)


class Failure(Struct):
    """One failure of a node, on one host or on several in the same way."""

    node: str
    step: str
    result: HostResult
    """Of the first host."""
    hosts: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    """The hosts for people, each with the place if that is another one."""
    seconds: list[float] = field(default_factory=list)
    skipped: int = 0
    """Actions skipped because of the node."""
    skipped_hosts: set[str] = field(default_factory=set)
    skipped_nodes: dict[str, None] = field(default_factory=dict)


def find_failures(graph: ExecutionGraph, result: GraphExecutionResult, *, ignored: bool = False) -> list[Failure]:
    """All failures in graph order (those that were ignored, if asked for), with what they led to."""
    found: dict[tuple[Any, ...], Failure] = {}
    last: dict[str, Failure] = {}
    for node in result.node_results.values():
        for host, each in node.host_results.items():
            if each.status is not Status.FAILED or each.ignored != ignored:
                continue
            key = (node.node_name, each.kind, each.exit_code, _same(graph, host, each.message))
            failure = found.setdefault(key, Failure(node.node_name, node.step_name, each))
            failure.hosts.append(host)
            failure.where.append(each.where)
            if each.start_time is not None and each.end_time is not None:
                failure.seconds.append(each.end_time - each.start_time)
            last[node.node_name] = failure
    if not ignored:
        _count_skipped(result, last)
    return list(found.values())


def _same(graph: ExecutionGraph, host: str, message: str) -> str:
    """The message without what names the host in it."""
    known = graph.hosts.get(host)
    for name in (host, known.address if known else "", known.internal_address if known else ""):
        if len(name) > 2:
            message = message.replace(name, "\0")
    return message


def _count_skipped(result: GraphExecutionResult, last: Mapping[str, Failure]) -> None:
    for node in result.node_results.values():
        for host, each in node.host_results.items():
            if each.reason in (SkipReason.DEPENDENCY, SkipReason.LIMIT) and each.cause in last:
                failure = last[each.cause]
                failure.skipped += 1
                failure.skipped_hosts.add(host)
                failure.skipped_nodes[node.node_name] = None


def render_failures(graph: ExecutionGraph, failures: list[Failure], paint: Paint, width: int) -> Iterator[str]:
    """The lines of all failures: blocks, then one line for each that is too many."""
    for failure in failures[:BLOCKS]:
        yield from _block(graph, failure, paint, width)
        yield ""
    rest = failures[BLOCKS:]
    if rest:
        yield paint(f"{plural(len(rest), 'more failure')}:", "failed")
        for failure in rest[: 3 * BLOCKS]:
            text = f"  {failure.node} on {_hosts(failure)}: {one_line(failure.result.message)}"
            yield fit(text, width)
        if len(rest) > 3 * BLOCKS:
            yield f"  + {len(rest) - 3 * BLOCKS} more: --result FILE writes all of them"
        yield ""


def _block(graph: ExecutionGraph, failure: Failure, paint: Paint, width: int) -> Iterator[str]:
    node = find_node(graph, failure.node)
    each = failure.result
    facts = ", ".join(_facts(failure, node))
    what = f"{paint(one_line(failure.node), 'head')} on {_hosts(failure)}"
    yield f"{paint('FAILED', 'failed')}  {what} ({facts})" if facts else f"{paint('FAILED', 'failed')}  {what}"
    main = main_parameter(node)
    yield "  " + fit(f"{one_line(failure.step)} {main}".rstrip(), width - 2)
    yield from _folded(each.message, "  ", _MESSAGE)
    # Nothing twice: the line of a short command step is its command, and its message may be the exit code.
    if each.command and each.command != main:
        first, *more = _folded(each.command, "", _COMMAND, head=True)
        yield f"  {paint('command:', 'dim')} {first}"
        yield from (f"           {line}" for line in more)
    if each.exit_code is not None and not each.message.startswith(f"exit code {each.exit_code}"):
        yield f"  {paint('exit code:', 'dim')} {each.exit_code}"
    yield from _output(failure, paint)
    for diff in each.refused:
        yield f"  {paint('refused, and not written:', 'dim')} {title(diff)}"
        yield from (f"    {fit(line, _WIDEST)}" for line in diff_lines(diff, paint, _REFUSED, "--result FILE has it"))
    if each.kind is FailureKind.ERRORED and each.traceback:
        frames = _TRACE.findall(each.traceback)
        if frames:
            file, line, function = frames[-1]
            yield f"  {paint('raised in:', 'dim')} {function} ({file}:{line})"
    if node is not None and str(node.origin):
        yield f"  {paint('at', 'dim')} {node.origin}"
    if each.hint:
        first, *more = text_lines(each.hint) or [""]
        yield f"  {paint('→', 'changed')} {first}"
        yield from (f"    {line}" for line in more)
    if failure.skipped:
        what = f"{plural(failure.skipped, 'action')} on {plural(len(failure.skipped_hosts), 'host')}"
        verb = "was" if failure.skipped == 1 else "were"
        yield f"  {what} {verb} skipped because of it: {names(_skipped(graph, failure))}"


def _facts(failure: Failure, node: ExecutionNode | None) -> Iterator[str]:
    kind = KINDS.get((failure.result.kind or FailureKind.FAILED).value, "")
    if kind:
        yield kind
    attempts = node.policy.retry.attempts if node is not None else 1
    if attempts > 1 and failure.result.attempts:
        yield f"attempt {failure.result.attempts} of {attempts}"
    if failure.seconds:
        least, most = format_duration(min(failure.seconds)), format_duration(max(failure.seconds))
        yield least if least == most else f"{least} to {most}"


def _hosts(failure: Failure) -> str:
    if len(failure.hosts) == 1:
        return names(failure.where)
    return f"{len(failure.hosts)} hosts: {names(failure.where)}"


def _output(failure: Failure, paint: Paint) -> Iterator[str]:
    """The last lines of what the command wrote, to stdout and to stderr: nobody knows where the cause is."""
    each = failure.result
    where = f" on {failure.where[0]}" if len(failure.hosts) > 1 else ""
    for name, text in (("stdout", each.stdout), ("stderr", each.stderr)):
        lines = text_lines(text)
        if not lines or "\n".join(lines) in each.message:
            continue
        of = f", last {_LINES} of {len(lines)} lines" if len(lines) > _LINES else ""
        yield f"  {paint(f'{name}{where}{of}:', 'dim')}"
        yield from (f"    {paint('|', 'dim')} {fit(line, _WIDEST)}" for line in lines[-_LINES:])


def _folded(text: str, indent: str, most: int, *, head: bool = False) -> list[str]:
    """At most so many lines of a text: the first ones if ``head``, else the first and the last."""
    lines = text_lines(text)
    if len(lines) > most:
        left = len(lines) - most + 1
        end = [] if head else lines[-(most // 2) :]
        lines = [*lines[: most - 1 - len(end)], f"… {plural(left, 'more line')}", *end]
    return [indent + line for line in lines]


def find_node(graph: ExecutionGraph, name: str) -> ExecutionNode | None:
    """The node, or for a node of a fragment that the graph does not have the one that returned it."""
    found = next((one for one in (name, *returned_by(name)) if one in graph.nodes), None)
    return None if found is None else graph.nodes[found]


def _skipped(graph: ExecutionGraph, failure: Failure) -> list[str]:
    """The tasks that were skipped, in order; of the task that failed its single steps."""
    own = _task(graph, failure.node)
    found = {name: _task(graph, name) for name in failure.skipped_nodes}
    return list(dict.fromkeys(name if task == own else task for name, task in found.items()))


def _task(graph: ExecutionGraph, name: str) -> str:
    node = find_node(graph, name)
    return f"{node.module}/{node.task}" if node is not None and node.module and node.task else name


def main_parameter(node: ExecutionNode | None) -> str:
    """What the step is about, if it was written without expressions; nothing for a sensitive step."""
    if node is None or node.sensitive or not node.with_:
        return ""
    key = next((key for key in _MAIN if key in node.with_), next(iter(node.with_)))
    value = node.with_[key]
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    if "{{" in text or "{%" in text:
        return ""
    return one_line(text) if key in _MAIN else f"{key}: {one_line(text)}"

"""What the debugger shows: actions, parameters, forecasts and values as text, long ones folded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import SENSITIVE, ForecastState, HostResult, Status
from kubexm_exec.scheduler import Scheduler
from kubexm_exec.step import Effect, Forecast
from kubexm_exec.values.expressions import ExpressionError
from kubexm_spec.yaml.source import SourceFile

_WIDTH: Final = 100
_LONG: Final = 60
_MOST_ACTIONS: Final = 200
_MARKS: Final = {
    Status.PENDING: "○",
    Status.RUNNING: "▶",
    Status.SUCCESS: "✔",
    Status.FAILED: "✘",
    Status.SKIPPED: "⊘",
    Status.CANCELLED: "✕",
}


def header(position: str, attempt: Attempt) -> str:
    """``[7/34] etcd/configure/env on node2          file``."""
    where = f"{position} {attempt.node.id} on {attempt.node.where(attempt.host)}"
    again = f" (attempt {attempt.number} of {attempt.node.policy.retry.attempts})" if attempt.number > 1 else ""
    return f"{where + again:<60} {attempt.node.step_name}"


def parameters(node: ExecutionNode, params: Mapping[str, Any]) -> str:
    """The parameters side by side, as many on a line as fit."""
    if node.sensitive:
        return f"  {SENSITIVE}"
    lines: list[str] = []
    for name, raw in params.items():
        piece = f"{name}: {folded(raw)}"
        if lines and len(lines[-1]) + len(piece) + 3 <= _WIDTH:
            lines[-1] += f"   {piece}"
        else:
            lines.append(f"  {piece}")
    return "\n".join(lines) or "  (no parameters)"


def folded(raw: Any) -> str:
    """A value on one short line."""
    given = plain(raw)
    if isinstance(given, str):
        count = len(given.splitlines())
        if count > 1:
            return f"{count} lines"
        text = given.rstrip("\n") if _is_simple(given) else json.dumps(given, ensure_ascii=False)
    else:
        text = json.dumps(given, ensure_ascii=False)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."


def _is_simple(text: str) -> bool:
    """Whether YAML would read the text as itself."""
    return bool(text) and text[0].isalpha() | (text[0] in "/~") and text.strip() == text and ": " not in text


def forecast(node: ExecutionNode, said: Forecast[Any] | None, problem: str) -> str:
    """One line about what the action would do."""
    if said is None:
        return f"  forecast: cannot be said: {problem}"
    message = f": {said.message}" if said.message and not node.sensitive else ""
    if said.effect in (Effect.TELLS, Effect.READS):
        return f"  forecast: changes nothing{message}"
    if said.state is ForecastState.SATISFIED:
        return f"  forecast: as it should be, nothing to do{message}"
    if said.state is ForecastState.UNKNOWN:
        return f"  forecast: unknown{message}"
    if said.state is ForecastState.NOT_LOOKED_AT:
        return f"  forecast: {said.message if message.startswith(': would ') else f'would run{message}'}"
    would = said.message if message and said.message.startswith("would ") else f"would change{message}"
    return f"  forecast: {would}" + ("  (diff: d)" if said.diffs else "")


def diffs(node: ExecutionNode, said: Forecast[Any] | None) -> str:
    """What would change, as unified diffs."""
    if said is None or not said.diffs:
        return "  there is no diff"
    if node.sensitive:
        return f"  {SENSITIVE}"
    lines: list[str] = []
    for diff in said.diffs:
        lines.append(f"  {diff.path}" + (f"  ({diff.note})" if diff.note else ""))
        lines.extend(f"    {line}" for line in diff.unified().splitlines())
    return "\n".join(lines)


def failure(attempt: Attempt, result: HostResult) -> str:
    """What failed and how: command, exit code, the last lines of its output, what to do."""
    lines = [f"  ✘ FAILED {attempt.node.id} on {attempt.node.where(attempt.host)}: {result.message}"]
    if result.command:
        code = "" if result.exit_code is None else f" (exit code {result.exit_code})"
        lines.append(f"    {result.command}{code}")
    for text in (result.stdout, result.stderr):
        lines.extend(f"    | {line}" for line in text.splitlines()[-5:])
    if result.hint:
        lines.append(f"    → {result.hint}")
    return "\n".join(lines)


def actions(
    runtime: Runtime,
    scheduler: Scheduler,
    current: Attempt,
    breakpoints: Sequence[str],
    pattern: str,
    matches: Callable[[str, ExecutionNode], bool],
) -> str:
    """All actions with their state; ``>`` marks this one, ``*`` a breakpoint."""
    lines: list[str] = []
    left_out = 0
    for node in runtime.graph.steps():
        if pattern and not matches(pattern, node):
            continue
        stops = "*" if any(matches(each, node) for each in breakpoints) else " "
        for host in node.hosts:
            if len(lines) >= _MOST_ACTIONS:
                left_out += 1
                continue
            here = ">" if (node.id, host) == (current.node.id, current.host) else " "
            status = scheduler.status(node.id, host)
            lines.append(f"{here}{stops} {_MARKS[status]} {status.value:<9} {node.id}  {node.where(host)}")
    if left_out:
        lines.append(f"   ... {left_out} more: list GLOB")
    return "\n".join(lines) or f"  nothing matches {pattern!r}"


def value(given: Any) -> str:
    """Any value, readable."""
    try:
        data = plain(given)
    except ExpressionError as error:
        return f"  {error.message}"
    if isinstance(data, str):
        return "\n".join(f"  {line}" for line in data.splitlines()) or '  ""'
    return "\n".join(f"  {line}" for line in json.dumps(data, indent=2, ensure_ascii=False).splitlines())


def everything(names: Mapping[str, Any], params: Mapping[str, Any], node: ExecutionNode, runtime: Runtime) -> str:
    """All that an expression could use here; what must be asked for first (facts, secrets) is only named."""
    lines = ["with:"]
    lines += [f"  {key}: {SENSITIVE if node.sensitive else folded(raw)}" for key, raw in params.items()]
    for root in ("host", "params", "vars", "run"):
        lines.append(f"{root}:")
        lines += [f"  {line}" for line in _each(names[root])]
    if "item" in names:
        lines.append(f"item: {folded(names['item'])}")
    known = list(_known_steps(node, names, runtime))
    if known:
        lines.append("steps:")
        lines += [f"  {line}" for line in known]
    lines.append("facts: asked of the host when they are used (inspect facts)")
    return "\n".join(f"  {line}" for line in lines)


def _each(mapping: Mapping[str, Any]) -> Iterator[str]:
    for name in mapping:
        try:
            yield f"{name}: {folded(mapping[name])}"
        except ExpressionError as error:
            yield f"{name}: ({error.message})"


def _known_steps(node: ExecutionNode, names: Mapping[str, Any], runtime: Runtime) -> Iterator[str]:
    for name in runtime.evaluator.index.names(node):
        try:
            step = names["steps"][name]
            if "items" not in step:
                yield f"{name}: {step['status']}, outputs {folded(dict(step['outputs']))}"
        except (ExpressionError, KeyError):
            continue  # it has not run here


def parse(text: str) -> Any:
    """A value written as YAML; raises SpecError."""
    return SourceFile.from_text(text, "<value>").documents[0]

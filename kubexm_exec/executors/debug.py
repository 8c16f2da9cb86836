"""The executor for debugging: one action at a time, with a person or a script deciding before each."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct, field
from pydantic import ValidationError

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.control import Deadline
from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext, connector_of
from kubexm_exec.engine.failures import failed
from kubexm_exec.engine.lifecycle import diff_data, skipped
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.sensitive import shown_params
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import SENSITIVE, SYMBOLS, ForecastState, HostResult, Status
from kubexm_exec.scheduler import Scheduler
from kubexm_exec.step import AnyStep, Effect, Forecast
from kubexm_exec.values.expressions import ExpressionError
from kubexm_spec.diagnostics import SpecError, did_you_mean, plural
from kubexm_spec.yaml.source import SourceFile


class Choice(Enum):
    """What to do with an action."""

    RUN = auto()
    SKIP = auto()
    RETRY = auto()
    CHANGED = auto()
    """A parameter was set: show it again."""
    QUIT = auto()


class Stop(Struct):
    """What is known of the action that is about to run."""

    position: str
    attempt: Attempt
    params: dict[str, Any] = field(default_factory=dict)
    forecast: Forecast[Any] | None = None
    problem: str = ""


_WIDTH: Final = 100
_LONG: Final = 60
_MOST_ACTIONS: Final = 200
_ENDED: Final = (Status.SUCCESS, Status.FAILED, Status.SKIPPED, Status.CANCELLED)
_BEFORE: Final = "(n)ext (c)ontinue (s)kip (r)etry (b)reak (u)ntil (i)nspect se(t) s(h)ell (l)ist (d)iff (q)uit ? "
_AFTER: Final = "(r)etry (s)kip (n)ext (c)ontinue (i)nspect se(t) s(h)ell (l)ist (q)uit ? "
COMMANDS: Final = {
    "n": "next", "c": "continue", "s": "skip", "r": "retry", "b": "break", "u": "until", "i": "inspect", "t": "set",
    "h": "shell", "l": "list", "d": "diff", "q": "quit", "?": "help",
}  # fmt: skip
_HELP: Final = """\
  next              run this action, stop before the next one
  continue          go on to the next breakpoint or failure
  skip              do not run this action; what waits for it goes on
  retry             after a failure: run the action again
  break [GLOB]      stop at nodes that match (again: no more); alone: list
  until NODE        go on to that node (a glob, or the end of its name)
  inspect [EXPR]    the value of an expression here; alone: all that is known
  set PARAM VALUE   change a parameter of this action (VALUE is YAML)
  shell [COMMAND]   run a command on this host; alone: one after another
  list [GLOB]       all actions with their state
  diff              what would change
  quit              stop here; always hooks still run
"""


class Debugger:
    """Keeps breakpoints, and whether to stop before the next action."""

    def __init__(self, runtime: Runtime, scheduler: Scheduler) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._until = ""
        self._breaks: list[str] = list(runtime.options.breakpoints)
        self.stepping = True
        """Whether it stops before every action."""
        self.has_quit = False
        self._commands: dict[str, Callable[[Stop, str], Choice | None]] = {
            "next": lambda stop, rest: self._go(stepping=True),
            "continue": lambda stop, rest: self._go(stepping=False),
            "skip": lambda stop, rest: Choice.SKIP,
            "retry": lambda stop, rest: self._say(
                "  nothing has failed here: retry is for after a failure; next runs the action"
            ),
            "break": self._break,
            "until": self._go_until,
            "inspect": self._inspect,
            "set": self._set,
            "shell": self._shell,
            "list": self._list,
            "diff": lambda stop, rest: self._say(_diffs(stop.attempt.node, stop.forecast)),
            "quit": lambda stop, rest: self.quit(),
            "help": lambda stop, rest: self._say(_HELP.rstrip()),
        }

    def stops_at(self, node: ExecutionNode) -> bool:
        """Whether to stop before an action of that node."""
        if self._until and matches(self._until, node):
            self._until = ""
            self.stepping = True
        elif not self.stepping and any(matches(pattern, node) for pattern in self._breaks):
            self._say(f"breakpoint: {node.id}")
            self.stepping = True
        return self.stepping

    def before(self, stop: Stop) -> Choice:
        """Show an action and ask what to do with it."""
        self._say(_header(stop.position, stop.attempt))
        self._say(_parameters(stop.attempt.node, stop.params))
        self._say(f"  forecast: {_forecast(stop)}")
        return self._prompt(stop, _BEFORE, self._commands)

    def after_failure(self, attempt: Attempt, result: HostResult) -> Choice:
        """Ask what to do about a failure."""
        attempts = attempt.node.policy.retry.attempts
        if attempts > attempt.number:
            self._say(f"  attempt {attempt.number} of {attempts}; next tries again by itself")
        too_late = lambda stop, rest: self._say("  this works before an action: retry, or go on with next")  # noqa: E731
        commands = {**self._commands, "retry": lambda stop, rest: Choice.RETRY, "diff": too_late}
        known = attempt.params if attempt.params is not None else attempt.rendered
        choice = self._prompt(Stop("", attempt, dict(plain(known or {}))), _AFTER, commands)
        if choice is Choice.CHANGED:
            self._say("  set; retry runs the action with it")
        return choice

    def show_skip(self, position: str, attempt: Attempt, why: str) -> None:
        """Show that an action is not run."""
        self._say(_header(position, attempt))
        self._say(f"  skipped: {why}")

    def show_failure(self, attempt: Attempt, result: HostResult) -> None:
        """Show a failure: command, exit code, the last lines of its output, what to do."""
        symbol, node = SYMBOLS[Status.FAILED], attempt.node
        lines = [f"  {symbol} FAILED {node.id} on {node.where(attempt.host)}: {result.message}"]
        if result.command:
            code = "" if result.exit_code is None else f" (exit code {result.exit_code})"
            lines.append(f"    {result.command}{code}")
        for text in (result.stdout, result.stderr):
            lines.extend(f"    | {line}" for line in text.splitlines()[-5:])
        if result.hint:
            lines.append(f"    → {result.hint}")
        self._say("\n".join(lines))

    def quit(self) -> Choice:
        """Stop the run; from now on nothing is asked."""
        self.has_quit = True
        self._runtime.cancel.set()
        return Choice.QUIT

    # Input and output

    def _prompt(self, stop: Stop, text: str, commands: Mapping[str, Callable[[Stop, str], Choice | None]]) -> Choice:
        while True:
            line = self._read(text)
            if line is None:
                return self.quit()
            word, _, rest = line.strip().partition(" ")
            if not word:
                continue
            command = commands.get(COMMANDS.get(word, word))
            if command is None:
                guess = did_you_mean(word, commands)
                self._say(f"  there is no command {word!r}; {guess or 'type help'}")
                continue
            try:
                choice = command(stop, rest.strip())
            except CommandCancelled:
                return self.quit()
            except BaseException as error:  # noqa: BLE001  a typing error must not end the session
                self._say(f"  {failed(stop.attempt, error).message}")
                continue
            if choice is not None:
                return choice

    def _read(self, text: str) -> str | None:
        lines = self._runtime.lines
        if lines is None:
            self._say("  There is no terminal and no piped input: quit.")
            return None
        self._runtime.say(text)
        try:
            line = lines.read(Deadline(), self._runtime.cancel)
        except CommandCancelled:
            self._say("\n  Interrupted: quit.")
            return None
        if line is None:
            self._say("\n  The input has ended: quit. (Type or pipe `c` to go on to the end.)")
        elif not lines.is_terminal:
            self._say(line)
        return line

    def _say(self, text: str) -> None:
        self._runtime.say(f"{text}\n")

    # Going on

    def _go(self, *, stepping: bool) -> Choice:
        self.stepping = stepping
        return Choice.RUN

    def _go_until(self, stop: Stop, rest: str) -> Choice | None:
        if not rest:
            self._say("  until which node? For example: until etcd/start/unit")
            return None
        if not any(matches(rest, node) for node in self._to_come()):
            guess = did_you_mean(rest, [node.id for node in self._to_come()])
            self._say(f"  no action that is still to come matches {rest!r}; {guess or 'see list'}")
            return None
        self._until = rest
        return self._go(stepping=False)

    def _break(self, stop: Stop, rest: str) -> None:
        if not rest:
            self._say("  breakpoints: " + (", ".join(self._breaks) or "none"))
        elif rest in self._breaks:
            self._breaks.remove(rest)
            self._say(f"  no longer stops at {rest}")
        else:
            self._breaks.append(rest)
            count = sum(1 for node in self._to_come() if matches(rest, node))
            self._say(f"  stops at {rest} ({plural(count, 'node')} still to come)")

    def _to_come(self) -> list[ExecutionNode]:
        return [node for node in self._runtime.graph.steps() if self._scheduler.status(node.id) not in _ENDED]

    # Inspecting

    def _inspect(self, stop: Stop, rest: str) -> None:
        attempt = stop.attempt
        names = self._runtime.evaluator.context(attempt.node, attempt.host)
        if rest:
            self._say(_value(self._runtime.expressions.expression(rest)(names)))
        else:
            self._say(_everything(names, stop, self._runtime))

    def _list(self, stop: Stop, pattern: str) -> None:
        """All actions with their state; ``>`` marks this one, ``*`` a breakpoint."""
        lines: list[str] = []
        left_out = 0
        for node in self._runtime.graph.steps():
            if pattern and not matches(pattern, node):
                continue
            stops = "*" if any(matches(each, node) for each in self._breaks) else " "
            for host in node.hosts:
                if len(lines) >= _MOST_ACTIONS:
                    left_out += 1
                    continue
                here = ">" if (node.id, host) == (stop.attempt.node.id, stop.attempt.host) else " "
                status = self._scheduler.status(node.id, host)
                lines.append(f"{here}{stops} {SYMBOLS[status]} {status.value:<9} {node.id}  {node.where(host)}")
        if left_out:
            lines.append(f"   ... {left_out} more: list GLOB")
        self._say("\n".join(lines) or f"  nothing matches {pattern!r}")

    # Changing

    def _set(self, stop: Stop, rest: str) -> Choice | None:
        name, _, text = rest.partition(" ")
        if not name or not text.strip():
            self._say("  set which parameter to what? For example: set mode '0600'")
            return None
        attempt = stop.attempt
        kind: type[AnyStep] = self._runtime.steps.load(attempt.node.step_name)
        try:
            changed = {**stop.params, name: SourceFile.from_text(text, "<value>").documents[0]}
            kind.params_model.model_validate(changed)
        except SpecError as error:
            self._say(f"  not YAML: {error}")
            return None
        except ValidationError as error:
            known = [info.alias or key for key, info in kind.params_model.model_fields.items()]
            guess = "" if name in known else did_you_mean(name, known)
            self._say(f"  {failed(attempt, error).message}" + (f"; {guess}" if guess else ""))
            return None
        attempt.params = changed
        return Choice.CHANGED

    def _shell(self, stop: Stop, line: str) -> None:
        """Run one command; without one, a shell on a terminal of this machine, or one command after another."""
        runtime, host = self._runtime, stop.attempt.place
        connector = connector_of(runtime, stop.attempt, Deadline())
        lines = runtime.lines
        if line:
            self._run(connector, line)
        elif lines is None:
            self._say("  there is no input to read from; give a command: shell COMMAND")
        elif lines.is_terminal and runtime.graph.hosts[host].connector == "local":
            program = os.environ.get("SHELL") or "/bin/sh"
            self._say(f"  {program} on {host}; exit comes back to the debugger")
            subprocess.run([program], check=False)
        else:
            self._say("  one command a line, each in a shell of its own; exit comes back to the debugger")
            while True:
                self._runtime.say(f"{host}$ ")
                typed = lines.read(Deadline(), runtime.cancel)
                if typed is None or typed.strip() in ("exit", "quit"):
                    self._say("")
                    return
                if not lines.is_terminal:
                    self._say(typed)
                if typed.strip():
                    self._run(connector, typed)

    def _run(self, connector: Connector, line: str) -> None:
        result = connector.run(Command(shell=line), deadline=Deadline(), cancel=self._runtime.cancel)
        for text in (result.out, result.err):
            if text:
                self._say(text.removesuffix("\n"))
        if result.exit_code:
            self._say(f"  exit code {result.exit_code}")


def matches(pattern: str, node: ExecutionNode) -> bool:
    """Whether a glob matches a node's id, or is its name or the end of its id."""
    return fnmatch.fnmatchcase(node.id, pattern) or node.name == pattern or node.id.endswith("/" + pattern)


# What it shows: long values are folded


def _header(position: str, attempt: Attempt) -> str:
    """``[7/34] etcd/configure/env on node2          file``."""
    where = f"{position} {attempt.node.id} on {attempt.node.where(attempt.host)}"
    again = f" (attempt {attempt.number} of {attempt.node.policy.retry.attempts})" if attempt.number > 1 else ""
    return f"{where + again:<60} {attempt.node.step_name}"


def _parameters(node: ExecutionNode, params: Mapping[str, Any]) -> str:
    """The parameters side by side, as many on a line as fit."""
    if node.sensitive:
        return f"  {SENSITIVE}"
    lines: list[str] = []
    for name, raw in params.items():
        piece = f"{name}: {_folded(raw)}"
        if lines and len(lines[-1]) + len(piece) + 3 <= _WIDTH:
            lines[-1] += f"   {piece}"
        else:
            lines.append(f"  {piece}")
    return "\n".join(lines) or "  (no parameters)"


def _folded(raw: Any) -> str:
    given = plain(raw)
    if isinstance(given, str) and (count := len(given.splitlines())) > 1:
        return f"{count} lines"
    simple = isinstance(given, str) and _is_simple(given)
    text = given.rstrip("\n") if simple else json.dumps(given, ensure_ascii=False)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."


def _is_simple(text: str) -> bool:
    """Whether YAML would read the text as itself."""
    return bool(text) and text[0].isalpha() | (text[0] in "/~") and text.strip() == text and ": " not in text


def _forecast(stop: Stop) -> str:
    said = stop.forecast
    if said is None:
        return f"unknown: {stop.problem}"
    message = f": {said.message}" if said.message and not stop.attempt.node.sensitive else ""
    if said.effect in (Effect.TELLS, Effect.READS):
        return f"changes nothing{message}"
    if said.state is ForecastState.SATISFIED:
        return f"as it should be, nothing to do{message}"
    if said.state is ForecastState.UNKNOWN:
        return f"unknown{message}"
    would = "would run" if said.state is ForecastState.NOT_LOOKED_AT else "would change"
    text = said.message if message.startswith(": would ") else f"{would}{message}"
    return f"{text}  (diff: d)" if said.diffs else text


def _diffs(node: ExecutionNode, said: Forecast[Any] | None) -> str:
    if said is None or not said.diffs:
        return "  there is no diff"
    if node.sensitive:
        return f"  {SENSITIVE}"
    lines: list[str] = []
    for diff in said.diffs:
        lines.append(f"  {diff.path}" + (f"  ({diff.note})" if diff.note else ""))
        lines.extend(f"    {line}" for line in diff.unified().splitlines())
    return "\n".join(lines)


def _value(given: Any) -> str:
    try:
        data = plain(given)
    except ExpressionError as error:
        return f"  {error.message}"
    text = data if isinstance(data, str) else json.dumps(data, indent=2, ensure_ascii=False)
    return "\n".join(f"  {line}" for line in text.splitlines()) or '  ""'


def _everything(names: Mapping[str, Any], stop: Stop, runtime: Runtime) -> str:
    """All that an expression could use here; facts and secrets are only named, since they must be fetched first."""
    node = stop.attempt.node
    lines = ["with:"]
    lines += [f"  {key}: {SENSITIVE if node.sensitive else _folded(raw)}" for key, raw in stop.params.items()]
    for root in ("host", "params", "vars", "run"):
        lines.append(f"{root}:")
        lines += [f"  {line}" for line in _each(names[root])]
    if "item" in names:
        lines.append(f"item: {_folded(names['item'])}")
    known = [f"  {line}" for line in _known_steps(node, names, runtime)]
    lines += ["steps:", *known] if known else []
    lines.append("facts: asked of the host when they are used (inspect facts)")
    return "\n".join(f"  {line}" for line in lines)


def _each(mapping: Mapping[str, Any]) -> Iterator[str]:
    for name in mapping:
        try:
            yield f"{name}: {_folded(mapping[name])}"
        except ExpressionError as error:
            yield f"{name}: ({error.message})"


def _known_steps(node: ExecutionNode, names: Mapping[str, Any], runtime: Runtime) -> Iterator[str]:
    for name in runtime.evaluator.index.names(node):
        try:
            step = names["steps"][name]
            if "items" not in step:
                yield f"{name}: {step['status']}, outputs {_folded(dict(step['outputs']))}"
        except (ExpressionError, KeyError):
            continue  # it has not run here


class DebugExecutor(Executor):
    """Runs the graph one action at a time and asks before each."""

    name = "debug"
    one_by_one = True
    at_a_terminal = True

    def begin(self) -> None:
        """The debugger's commands come from the runtime's input."""
        self._changed: dict[tuple[str, str], dict[str, object]] = {}
        """Parameters that were set at the prompt: they apply to later attempts, too."""
        self._count = 0
        self.debugger = Debugger(self.runtime, self.driver.scheduler)

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Perform it as the prompt says."""
        if attempt.number == 1:
            self._count += 1
        debugger = self.debugger
        changed = self._changed.get((attempt.node.id, attempt.host))
        if changed is not None:
            attempt.params = changed
        if debugger.has_quit or not debugger.stops_at(attempt.node):
            outcome = self._run(attempt)
        else:
            outcome = self._asked(attempt)
        while not debugger.has_quit and self._wants_answer(attempt, outcome):
            choice = debugger.after_failure(attempt, outcome.result)
            if choice is Choice.SKIP:
                return self._skipped(attempt, f"skipped by hand after a failure: {outcome.result.message}")
            if choice is Choice.CHANGED:
                self._changed[attempt.node.id, attempt.host] = dict(attempt.params or {})
                continue
            if choice is not Choice.RETRY:
                break
            outcome = self._run(attempt)
        return outcome

    def _run(self, attempt: Attempt) -> ActionOutcome:
        attempt.begin()
        outcome = self.lifecycle.perform(attempt)
        # Events report a success; a failure only when it is settled what becomes of it.
        if not self.debugger.has_quit and outcome.result.status is Status.FAILED:
            self.debugger.show_failure(attempt, outcome.result)
        return outcome

    def _wants_answer(self, attempt: Attempt, outcome: ActionOutcome) -> bool:
        """When stepping every failure is asked about; otherwise only the last attempt's."""
        if outcome.result.status is not Status.FAILED:
            return False
        retry = attempt.node.policy.retry
        kind = outcome.result.kind
        is_tried_again = attempt.number < retry.attempts and kind is not None and kind.value in retry.on
        return self.debugger.stepping or not is_tried_again

    def _asked(self, attempt: Attempt) -> ActionOutcome:
        try:
            unmet = self.lifecycle.unmet(attempt)
            if unmet is not None:
                outcome = self.lifecycle.done(attempt, unmet)
                self.debugger.show_skip(self._position(), attempt, outcome.result.message)
                return outcome
        except BaseException as error:  # noqa: BLE001  a condition that cannot be evaluated is the action's failure
            outcome = self.lifecycle.done(attempt, self.lifecycle.broke(attempt, error, None))
            self.debugger.show_failure(attempt, outcome.result)
            return outcome
        while True:
            stop = self._look(attempt)
            choice = self.debugger.before(stop)
            if choice is Choice.CHANGED:
                self._changed[attempt.node.id, attempt.host] = dict(attempt.params or {})
                continue
            if choice is Choice.SKIP:
                return self._skipped(attempt, "skipped by hand")
            if choice is Choice.QUIT:
                result = HostResult(
                    host_name=attempt.host, status=Status.CANCELLED, message="not run: the debugger was quit"
                )
                return self.lifecycle.done(attempt, ActionOutcome(result))
            return self._run(attempt)

    def _look(self, attempt: Attempt) -> Stop:
        """Render the parameters and call the precheck, without changing anything."""
        attempt.begin()
        stop = Stop(self._position(), attempt)
        ctx: ActionContext | None = None
        try:
            stop.params = self._params(attempt)
            step = self.lifecycle.step(attempt)
            ctx = ActionContext(self.runtime, attempt)
            stop.forecast = self.lifecycle.forecast(step, ctx)
        except BaseException as error:  # noqa: BLE001  it is shown, and the person decides
            stop.problem = failed(attempt, error).message
        if ctx is not None:
            ctx.close()
        forecast = stop.forecast or Forecast.unknown(stop.problem)
        diffs = [] if attempt.node.sensitive else diff_data(forecast.diffs)
        self.tell(attempt, forecast.state, forecast.message, diffs, params=shown_params(attempt.node, stop.params))
        return stop

    def _params(self, attempt: Attempt) -> dict[str, Any]:
        if attempt.params is not None:
            return dict(attempt.params)
        kind: type[AnyStep] = self.runtime.steps.load(attempt.node.step_name)
        skip = self.lifecycle.raw_keys(kind)
        return self.runtime.evaluator.params(attempt.node, attempt.host, skip=skip)

    def _position(self) -> str:
        return f"[{self._count}/{self.runtime.graph.actions()}]"

    def _skipped(self, attempt: Attempt, why: str) -> ActionOutcome:
        return self.lifecycle.done(attempt, skipped(attempt, why))

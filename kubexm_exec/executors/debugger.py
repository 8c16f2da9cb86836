"""The debugger's prompt: reads commands, shows what is asked for, and says what is to be done with an action."""

from __future__ import annotations

import fnmatch
import os
import subprocess
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct, field
from pydantic import ValidationError

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.control import Deadline
from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.context import connector_of
from kubexm_exec.engine.failures import failed
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.executors import debugview
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import HostResult, Status
from kubexm_exec.scheduler import Scheduler
from kubexm_exec.step import AnyStep, Forecast
from kubexm_spec.diagnostics import SpecError, did_you_mean


def shell(runtime: Runtime, attempt: Attempt, line: str, say: Callable[[str], None]) -> None:
    """Run one command; without one, a shell on a terminal of this machine, or one command after another."""
    host = attempt.place
    connector = connector_of(runtime, attempt, Deadline())
    if line:
        _run(runtime, connector, line, say)
        return
    lines = runtime.lines
    if lines is None:
        say("  nobody can type here; give a command: shell COMMAND")
        return
    if lines.is_terminal and runtime.graph.hosts[host].connector == "local":
        program = os.environ.get("SHELL") or "/bin/sh"
        say(f"  {program} on {host}; exit comes back to the debugger")
        subprocess.run([program], check=False)
        return
    say("  one command a line, each in a shell of its own; exit comes back to the debugger")
    while True:
        runtime.options.output.write(f"{host}$ ")
        runtime.options.output.flush()
        typed = lines.read(Deadline(), runtime.cancel)
        if typed is None or typed.strip() in ("exit", "quit"):
            say("")
            return
        if not lines.is_terminal:
            say(typed)
        if typed.strip():
            _run(runtime, connector, typed, say)


def _run(runtime: Runtime, connector: Connector, line: str, say: Callable[[str], None]) -> None:
    result = connector.run(Command(shell=line), deadline=Deadline(), cancel=runtime.cancel)
    for text in (result.out, result.err):
        if text:
            say(text.removesuffix("\n"))
    if result.exit_code:
        say(f"  exit code {result.exit_code}")


class Choice(Enum):
    """What is to be done."""

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


_BEFORE: Final = "(n)ext (c)ontinue (s)kip (r)etry (b)reak (u)ntil (i)nspect se(t) s(h)ell (l)ist (d)iff (q)uit ? "
_AFTER: Final = "(r)etry (s)kip (n)ext (c)ontinue (i)nspect s(h)ell (l)ist (q)uit ? "
COMMANDS: Final = {
    "n": "next",
    "c": "continue",
    "s": "skip",
    "r": "retry",
    "b": "break",
    "u": "until",
    "i": "inspect",
    "t": "set",
    "h": "shell",
    "l": "list",
    "d": "diff",
    "q": "quit",
    "?": "help",
}
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
    """Keeps breakpoints and the way of walking between two actions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stepping = True
        self._until = ""
        self._breaks: list[str] = list(runtime.options.breakpoints)
        self.has_quit = False
        self.scheduler: Scheduler | None = None
        self._commands: dict[str, Callable[[Stop, str], Choice | None]] = {
            "next": self._next,
            "continue": self._continue,
            "skip": lambda stop, rest: Choice.SKIP,
            "retry": self._retry_too_early,
            "break": self._break,
            "until": self._go_until,
            "inspect": self._inspect,
            "set": self._set,
            "shell": self._shell,
            "list": self._list,
            "diff": self._diff,
            "quit": lambda stop, rest: self.quit(),
            "help": self._help,
        }

    @property
    def is_stepping(self) -> bool:
        """Whether it stops before every action."""
        return self._stepping

    def stops_at(self, node: ExecutionNode) -> bool:
        """Whether to stop before an action of that node."""
        if self._until and matches(self._until, node):
            self._until = ""
            self._stepping = True
        elif not self._stepping and any(matches(pattern, node) for pattern in self._breaks):
            self._say(f"breakpoint: {node.id}")
            self._stepping = True
        return self._stepping

    def before(self, stop: Stop) -> Choice:
        """Show an action and ask what to do with it."""
        self._say(debugview.header(stop.position, stop.attempt))
        self._say(debugview.parameters(stop.attempt.node, stop.params))
        self._say(debugview.forecast(stop.attempt.node, stop.forecast, stop.problem))
        return self._prompt(stop, _BEFORE, self._commands)

    def after_failure(self, attempt: Attempt, result: HostResult) -> Choice:
        """Ask what to do about a failure."""
        attempts = attempt.node.policy.retry.attempts
        if attempts > attempt.number:
            self._say(f"  attempt {attempt.number} of {attempts}; next tries again by itself")
        commands = {**self._commands, "retry": lambda stop, rest: Choice.RETRY}
        for name in ("set", "diff"):
            commands[name] = self._only_before
        stop = Stop("", attempt, dict(attempt.params or {}))
        return self._prompt(stop, _AFTER, commands)

    def show_skip(self, position: str, attempt: Attempt, why: str) -> None:
        """Tell that an action is not run."""
        self._say(debugview.header(position, attempt))
        self._say(f"  skipped: {why}")

    def show_failure(self, attempt: Attempt, result: HostResult) -> None:
        """Tell that an action failed, and how."""
        self._say(debugview.failure(attempt, result))

    def quit(self) -> Choice:
        """Stop the run; from now on nothing is asked."""
        self.has_quit = True
        self._runtime.cancel.set()
        return Choice.QUIT

    # Reading

    def _prompt(self, stop: Stop, text: str, commands: Mapping[str, Callable[[Stop, str], Choice | None]]) -> Choice:
        while True:
            line = self._read(text)
            if line is None:
                return self.quit()
            word, _, rest = line.strip().partition(" ")
            if not word:
                continue
            name = COMMANDS.get(word, word)
            command = commands.get(name)
            if command is None:
                guess = did_you_mean(word, commands)
                self._say(f"  there is no command {word!r}; {guess or 'type help'}")
                continue
            try:
                choice = command(stop, rest.strip())
            except CommandCancelled:
                return self.quit()
            except BaseException as error:  # noqa: BLE001  a slip at the prompt must not end the session
                self._say(f"  {failed(stop.attempt, error).message}")
                continue
            if choice is not None:
                return choice

    def _read(self, text: str) -> str | None:
        lines = self._runtime.lines
        if lines is None:
            self._say("  There is nobody to ask and nothing is piped in: quit.")
            return None
        self._runtime.options.output.write(text)
        self._runtime.options.output.flush()
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
        output = self._runtime.options.output
        output.write(self._runtime.redactor.mask(text) + "\n")
        output.flush()

    # Walking

    def _next(self, stop: Stop, rest: str) -> Choice:
        self._stepping = True
        return Choice.RUN

    def _continue(self, stop: Stop, rest: str) -> Choice:
        self._stepping = False
        return Choice.RUN

    def _retry_too_early(self, stop: Stop, rest: str) -> None:
        self._say("  nothing has failed here: retry is for after a failure; next runs the action")

    def _only_before(self, stop: Stop, rest: str) -> None:
        self._say("  this works before an action: retry, or go on with next")

    def _go_until(self, stop: Stop, rest: str) -> Choice | None:
        if not rest:
            self._say("  until which node? For example: until etcd/start/unit")
            return None
        if not any(matches(rest, node) for node in self._to_come()):
            guess = did_you_mean(rest, [node.id for node in self._to_come()])
            self._say(f"  no action that is still to come matches {rest!r}; {guess or 'see list'}")
            return None
        self._until, self._stepping = rest, False
        return Choice.RUN

    def _break(self, stop: Stop, rest: str) -> None:
        if not rest:
            self._say("  breakpoints: " + (", ".join(self._breaks) or "none"))
        elif rest in self._breaks:
            self._breaks.remove(rest)
            self._say(f"  no longer stops at {rest}")
        else:
            self._breaks.append(rest)
            count = sum(1 for node in self._to_come() if matches(rest, node))
            self._say(f"  stops at {rest} ({count} {'node' if count == 1 else 'nodes'} still to come)")

    def _to_come(self) -> list[ExecutionNode]:
        assert self.scheduler is not None
        ended = (Status.SUCCESS, Status.FAILED, Status.SKIPPED, Status.CANCELLED)
        return [node for node in self._runtime.graph.steps() if self.scheduler.status(node.id) not in ended]

    # Looking

    def _inspect(self, stop: Stop, rest: str) -> None:
        attempt = stop.attempt
        names = self._runtime.evaluator.context(attempt.node, attempt.host)
        if rest:
            self._say(debugview.value(self._runtime.expressions.expression(rest)(names)))
        else:
            self._say(debugview.everything(names, stop.params, attempt.node, self._runtime))

    def _list(self, stop: Stop, rest: str) -> None:
        assert self.scheduler is not None
        shown = debugview.actions(self._runtime, self.scheduler, stop.attempt, self._breaks, rest, matches)
        self._say(shown)

    def _diff(self, stop: Stop, rest: str) -> None:
        self._say(debugview.diffs(stop.attempt.node, stop.forecast))

    def _help(self, stop: Stop, rest: str) -> None:
        self._say(_HELP.rstrip())

    # Changing

    def _set(self, stop: Stop, rest: str) -> Choice | None:
        name, _, text = rest.partition(" ")
        if not name or not text.strip():
            self._say("  set which parameter to what? For example: set mode '0600'")
            return None
        attempt = stop.attempt
        kind: type[AnyStep] = self._runtime.steps.load(attempt.node.step_name)
        try:
            changed = {**stop.params, name: debugview.parse(text)}
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

    def _shell(self, stop: Stop, rest: str) -> None:

        shell(self._runtime, stop.attempt, rest, self._say)


def matches(pattern: str, node: ExecutionNode) -> bool:
    """Whether a node is meant by a glob over ids, its name, or the end of its id."""
    return fnmatch.fnmatchcase(node.id, pattern) or node.name == pattern or node.id.endswith("/" + pattern)

"""Commands on a host: run to their end, with a clear failure if they exit with an error."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from kubexm_exec.connectors.base import Command, Readable
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, OutcomeUnknown, StepFailed
from kubexm_exec.model.result import HIDDEN
from kubexm_exec.runner.errors import exit_text
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

TOOLS: Final = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"
"""A piece of shell that finds the tools of the system, which a plain user's PATH may leave out."""
Hints: TypeAlias = Sequence[tuple[str, str]]
"""Patterns of a tool's message, which ends with ``(exit code N)``, and the hint for each; the first match counts."""
_LONGEST: Final = 200
_HINTS: Final = {
    126: "the program exists but cannot be run: check its mode, its `#!` line and the folder given as `cwd`",
    127: "the program was not found on the host: install it first, or give its full path",
}


def execute(
    session: Session,
    command: Command,
    *,
    check: bool = True,
    expect: Collection[int] = (0,),
    live: bool = True,
    timeout: float | None = None,
) -> CommandResult:
    """Run a command; an exit code not in ``expect`` is a StepFailed if ``check``; ``live`` passes its output on."""
    listener = session.on_output if live and not session.sensitive else None
    try:
        result = session.run(command, deadline=session.deadline.earlier(timeout), on_output=listener)
    except CommandTimedOut as error:
        if timeout is not None and not session.deadline.passed():
            raise StepFailed(
                f"no answer within {timeout:g}s", command=display(session, command), hint="give it more time"
            ) from error
        raise CommandTimedOut(f"while running {display(session, command)}") from error
    except CommandCancelled as error:
        raise CommandCancelled(f"while running {display(session, command)}") from error
    except OutcomeUnknown as error:
        error.command = error.command or display(session, command)
        raise
    if check and result.exit_code not in expect:
        raise failure(session, command, result, expect=expect)
    return result


def ask(
    session: Session,
    body: str,
    *arguments: str,
    stdin: bytes | Readable | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int = 1 << 20,
    question: bool = False,
) -> CommandResult:
    """Run a ``script`` whose output only the step is interested in; any exit code is an answer."""
    command = script(body, *arguments, stdin=stdin, env=env, max_output=max_output, question=question)
    return execute(session, command, check=False, live=False)


def failure(
    session: Session, command: Command, result: CommandResult, *, expect: Collection[int] = (0,), message: str = ""
) -> StepFailed:
    """The failure of a command with an unexpected exit code."""
    text = message or exit_text(result.exit_code)
    if not message and tuple(expect) != (0,):
        text += f", expected {' or '.join(str(code) for code in sorted(expect))}"
    hint = _HINTS.get(result.exit_code, "")
    if session.sensitive:
        error = StepFailed(f"{text} {HIDDEN}", command=HIDDEN, exit_code=result.exit_code, hint=hint)
    else:
        last = last_line(result.err) or last_line(result.out)
        error = StepFailed(
            f"{text}: {last}" if last else text,
            command=shorten(command.display()),
            exit_code=result.exit_code,
            stdout=result.out,
            stderr=result.err,
            hint=hint,
        )
    error.result = result
    return error


def refused(session: Session, what: str, result: CommandResult, said: str = "", *, hints: Hints = ()) -> StepFailed:
    """The failure of a tool: what it was for, and its message unless that must not be shown."""
    said = said or told(result)
    text = f"{said} (exit code {result.exit_code})"
    hint = next((hint for pattern, hint in hints if re.search(pattern, text)), "")
    if session.sensitive:
        return StepFailed(f"{what}: exit code {result.exit_code} {HIDDEN}", exit_code=result.exit_code, hint=hint)
    return StepFailed(
        f"{what}: {said}", exit_code=result.exit_code, stdout=result.out, stderr=result.err, hint=hint
    )  # fmt: skip


def told(result: CommandResult) -> str:
    """The last message of a tool."""
    lines = [line.strip() for line in (result.err or result.out).splitlines() if line.strip()]
    # mount's advice comes after its message.
    lines = [line for line in lines if not line.startswith("dmesg(1)")]
    return lines[-1] if lines else f"exit code {result.exit_code}"


class Operations:
    """One kind of operation on a host, over the session of an action."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _ask(self, body: str, *arguments: str, stdin: bytes | None = None, max_output: int = 1 << 20) -> CommandResult:
        """Run a script that has the tools of the system; any exit code is an answer."""
        return ask(self._session, TOOLS + body, *arguments, stdin=stdin, max_output=max_output)

    def _do(self, what: str, body: str, *arguments: str, stdin: bytes | None = None, hints: Hints = ()) -> None:
        """Run a script that has the tools of the system; an exit code other than 0 is a StepFailed."""
        self._session.changes(what)
        result = self._ask(body, *arguments, stdin=stdin)
        if result.exit_code != 0:
            raise refused(self._session, what, result, hints=hints)


def display(session: Session, command: Command) -> str:
    """The command for a message: short, and hidden if the step is sensitive."""
    return HIDDEN if session.sensitive else shorten(command.display())


def last_line(text: str) -> str:
    """The last line that is not blank, short enough for a message."""
    for line in reversed(text.splitlines()):
        if line.strip():
            return shorten(line.strip())
    return ""


def shorten(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, cut off where it is too long."""
    line = " ".join(text.split("\n")) if "\n" in text else text
    return line if len(line) <= longest else line[: longest - 3] + "..."

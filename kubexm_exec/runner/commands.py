"""Commands on a host: run to their end, and a clear failure if they say no."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kubexm_exec.connectors.base import Command
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, OutcomeUnknown, StepFailed
from kubexm_exec.model.result import HIDDEN
from kubexm_exec.runner.errors import exit_text
from kubexm_exec.runner.session import Session

_LONGEST: Final = 200
_HINTS: Final = {
    126: "the program is there but cannot be run: look at its mode, its `#!` line and the folder given as cwd",
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
    """Run a command; with ``check`` an exit code that is not in ``expect`` is a StepFailed.

    ``live`` hands its output on while it runs; leave it off for questions that only the step is interested in.
    """
    listener = session.on_output if live and not session.sensitive else None
    try:
        result = session.connector.run(
            command, deadline=session.deadline.earlier(timeout), cancel=session.cancel, on_output=listener
        )
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


def failure(
    session: Session, command: Command, result: CommandResult, *, expect: Collection[int] = (0,), message: str = ""
) -> StepFailed:
    """The failure that a command's exit code is."""
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


def display(session: Session, command: Command) -> str:
    """The command for a message: short, and nothing of a sensitive one."""
    return HIDDEN if session.sensitive else shorten(command.display())


def last_line(text: str) -> str:
    """The last line that says something, short enough for a message."""
    for line in reversed(text.splitlines()):
        if line.strip():
            return shorten(line.strip())
    return ""


def shorten(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, cut in the middle of nowhere if it must be."""
    line = " ".join(text.split("\n")) if "\n" in text else text
    return line if len(line) <= longest else line[: longest - 3] + "..."

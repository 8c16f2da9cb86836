"""What ``command`` and ``script`` have in common: guards, outputs, and what counts as a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator

from kubexm_exec.step import CommandResult, Expression, Forecast, Outputs, Params, Result, StepContext, StepFailed, Undo
from kubexm_exec.step.host import Command
from kubexm_steps.lib.types import HostPath, Text


def _not_empty(line: str | list[str]) -> str | list[str]:
    if not line or not line[0]:
        raise ValueError("the command is empty")
    return line


CommandLine = Annotated[str | list[str], AfterValidator(_not_empty)]
"""A line of POSIX shell, or an argument vector."""

RESULT_NAMES = ("stdout", "stderr", "exitCode")


class RunParams(Params):
    """The parameters of everything that runs a program on the host."""

    cwd: HostPath | None = Field(None, description="Folder on the host to run in.")
    env: dict[str, Text] = Field(default_factory=dict, description="Variables to add to the usual environment.")
    stdin: Text | None = Field(None, description="Text for its standard input; empty by default.")
    expect: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="Exit codes that mean success; any other is a failure."
    )
    creates: HostPath | None = Field(None, description="Do nothing if this path exists on the host.")
    removes: HostPath | None = Field(None, description="Do nothing if this path does not exist on the host.")
    unless: CommandLine | None = Field(
        None,
        description="Do nothing if this command succeeds (exit code 0): a shell line, or a list of arguments. "
        "`check` runs it too, so it must change nothing.",
    )
    only_if: CommandLine | None = Field(
        None, description="Do nothing unless this command succeeds; written and run like `unless`."
    )
    read_only: bool = Field(
        False,
        description="It only reads: it changes nothing, as with `changedWhen: false`, and `check` and `drift` run it "
        "too, so that its outputs are known.",
    )
    changed_when: Annotated[str | bool | None, Expression(names=RESULT_NAMES)] = Field(
        None,
        description="Expression over `stdout`, `stderr` and `exitCode` that tells whether something changed. By "
        "default every run counts as a change.",
    )

    @model_validator(mode="after")
    def _changes_nothing(self) -> Self:
        if self.read_only and self.changed_when is not None and not only_asks(self.changed_when):
            raise ValueError("readOnly already means that nothing changes; remove changedWhen")
        return self


class RunOutputs(Outputs):
    """What later steps can know of a command."""

    stdout: str = Field(description="Standard output as text, without trailing line breaks (its last 1 MiB).")
    stderr: str = Field(description="Standard error, likewise.")
    exit_code: int | None = Field(description="Exit code; null if a guard prevented the run.")


GUARDS: Final = (
    "with `creates`, `removes`, `unless` or `onlyIf` (or `readOnly: true` if it only reads) kubexm can check the "
    "outcome and retry by itself; with `repeatable: true` it simply runs it again"
)
NOT_RUN: Mapping[str, Any] = {"stdout": "", "stderr": "", "exitCode": None}
"""The outputs of a command that a guard kept from running."""


def guarded(ctx: StepContext, params: RunParams) -> Forecast | None:
    """Why it need not run; None if it must."""
    paths = [path for path in (params.creates, params.removes) if path is not None]
    there = {state.path: state.exists for state in ctx.runner.inspect_all(paths, digest=False)} if paths else {}
    if params.creates is not None and there[params.creates]:
        return Forecast.needless(f"{params.creates} exists", NOT_RUN)
    if params.removes is not None and not there[params.removes]:
        return Forecast.needless(f"{params.removes} does not exist", NOT_RUN)
    if params.unless is not None and _succeeds(ctx, params, params.unless):
        return Forecast.needless("the command in `unless` succeeded", NOT_RUN)
    if params.only_if is not None and not _succeeds(ctx, params, params.only_if):
        return Forecast.needless("the command in `onlyIf` did not succeed", NOT_RUN)
    return None


def only_asks(changed_when: object) -> bool:
    """Whether the spec says that a command never changes anything."""
    return changed_when is False or (isinstance(changed_when, str) and changed_when.strip().lower() == "false")


def undo_of(params: Mapping[str, Any], otherwise: Undo) -> Undo:
    """What there is to undo of a command, whose parameters may say that it never changes anything."""
    return Undo.NEEDLESS if params.get("readOnly") is True or only_asks(params.get("changedWhen")) else otherwise


def would_run(params: RunParams, shown: str) -> Forecast:
    """The forecast of a command that must run: a change if a guard says so, else only running it tells."""
    if params.read_only:
        return Forecast.reads(f"only asks: {shown}")
    if only_asks(params.changed_when):
        return Forecast.harmless(f"would run, and change nothing: {shown}")
    if any(guard is not None for guard in (params.creates, params.removes, params.unless, params.only_if)):
        return Forecast.change(f"would run: {shown}")
    return Forecast.always(f"would run: {shown}")


def _succeeds(ctx: StepContext, params: RunParams, line: CommandLine) -> bool:
    command = make_command(line, params.cwd, params.env)
    return ctx.runner.run(command, check=False, live=False).exit_code == 0


def make_command(
    line: CommandLine,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    *,
    pty: bool = False,
) -> Command:
    """A shell line or an argument vector as a Command."""
    data = None if stdin is None else stdin.encode("utf-8", "surrogateescape")
    if isinstance(line, str):
        return Command(shell=line, cwd=cwd, env=env or {}, stdin=data, pty=pty)
    return Command(argv=tuple(line), cwd=cwd, env=env or {}, stdin=data, pty=pty)


def run_command(ctx: StepContext, params: RunParams, command: Command) -> CommandResult:
    """Run it; what it gave is known to later steps also if it fails."""
    try:
        return ctx.runner.run(command, expect=params.expect, check=not ctx.judged)
    except StepFailed as error:
        if error.result is not None:
            error.outputs = outputs_of(error.result)
            error.changed = _changed_by_failure(ctx, params, error.outputs)
        raise


def _changed_by_failure(ctx: StepContext, params: RunParams, outputs: Mapping[str, Any]) -> bool | None:
    """Whether a command that failed says that it changed something; None if it does not say."""
    if params.read_only or only_asks(params.changed_when):
        return False
    if not isinstance(params.changed_when, str):
        return params.changed_when
    try:
        answer = ctx.evaluate(params.changed_when, outputs)
    except Exception:  # noqa: BLE001  whatever is wrong with it, the failure of the command is what people have to see
        return None
    return answer if isinstance(answer, bool) else None


def outputs_of(done: CommandResult) -> dict[str, Any]:
    """What later steps can know of a command that has ended."""
    return {"stdout": done.out.rstrip("\r\n"), "stderr": done.err.rstrip("\r\n"), "exitCode": done.exit_code}


def result_of(ctx: StepContext, params: RunParams, done: CommandResult, shown: str) -> Result:
    """The result of a command that succeeded, or that `failedWhen` judges."""
    outputs = outputs_of(done)
    changed = not params.read_only
    if params.changed_when is not None:
        answer = params.changed_when
        if isinstance(answer, str):
            answer = ctx.evaluate(answer, outputs)
        if not isinstance(answer, bool):
            raise StepFailed(
                f"changedWhen gave {answer!r}, which is neither true nor false" if not ctx.sensitive
                else "changedWhen gave neither true nor false",
                command=shown,
                exit_code=done.exit_code,
                hint="use a comparison, such as `'created' in stdout`",
                outputs=outputs,
            )  # fmt: skip
        changed = answer
    message = ""
    if done.exit_code != 0:
        message = f"exit code {done.exit_code}" + (", as expected" if done.exit_code in params.expect else "")
    return Result(
        changed=changed,
        message=message,
        outputs=outputs,
        stdout="" if ctx.sensitive else done.out,
        stderr="" if ctx.sensitive else done.err,
        command=shown,
        exit_code=done.exit_code,
    )

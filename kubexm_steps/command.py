"""The step type ``command``: a program, or a line of shell, run on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, StepFailed, Undo
from kubexm_exec.step.host import Command
from kubexm_steps.lib.commands import (
    GUARDS,
    RunOutputs,
    RunParams,
    guarded,
    make_command,
    result_of,
    run_command,
    undo_of,
    would_run,
)
from kubexm_steps.lib.types import Text


def _one_of(argv: list[str] | None, shell: str | None, what: str) -> None:
    if (argv is None) == (shell is None):
        raise ValueError(f"{what} takes either argv (a list) or shell (a text), and exactly one of them")
    if argv is not None and (not argv or not argv[0]):
        raise ValueError(f"{what}: argv names no program")
    if shell is not None and not shell.strip():
        raise ValueError(f"{what}: shell is empty")


class UndoParams(Params):
    """How to undo a command: argv or shell, as for the command itself."""

    argv: list[Text] | None = Field(None, description="Program and arguments, without a shell.")
    shell: str | None = Field(None, description="One or more lines of POSIX shell.")

    def model_post_init(self, context: object) -> None:
        _one_of(self.argv, self.shell, "undo")


class CommandParams(RunParams):
    """Parameters of ``command``."""

    argv: list[Text] | None = Field(
        None, description="Program and arguments. No shell interprets them: nothing needs quoting."
    )
    shell: str | None = Field(
        None,
        description="One or more lines of POSIX shell (`sh`), for pipes and the like. Quote values: `{{ value | "
        "quote }}`.",
    )
    pty: bool = Field(
        False,
        description="Run it in a terminal, for programs that need one. There is no input, no `stdin`, and stderr is "
        "part of `stdout`.",
    )
    undo: UndoParams | None = Field(
        None, description="Command that undoes this one, run in the same folder and environment during a rollback."
    )

    def model_post_init(self, context: object) -> None:
        _one_of(self.argv, self.shell, "command")
        if self.pty and self.stdin is not None:
            raise ValueError("command has either a terminal (pty) or input (stdin), not both")
        if self.read_only and self.undo is not None:
            raise ValueError("readOnly means that nothing changes, so there is nothing to undo")


class CommandStep(Step[CommandParams]):
    """A program, or a line of shell, run on the host.

    Use it if no other step type fits. By default a command runs every time and counts as a change every time. To
    be more precise:

    - `creates`, `removes`, `unless`, `onlyIf`: when it need not run. These also make `check` exact.
    - `changedWhen`: whether a run changed anything; `changedWhen: false` for commands that never do.
    - `failedWhen` of the step, over `result.exitCode`, `result.stdout` and `result.stderr`, instead of `expect`: which
      results are failures.
    - `readOnly: true`: it only reads. `check` and `drift` then run it too and know its outputs. Commands that they do
      not run are "not checked".

    Its outputs are `stdout`, `stderr` (both without trailing line breaks) and `exitCode`. Output is
    shown while it runs. After a timeout or a cancel it is killed with all its children; background processes
    survive if the command ended by itself.

    A command can be undone only if `undo` says how.
    """

    outputs_model = RunOutputs
    unknown_hint = GUARDS
    undo = Undo.ONCE
    example = """\
- name: member
  type: command
  with:
    argv: [etcdctl, member, add, "{{ host.name }}"]
    unless: etcdctl member list | grep -q {{ host.name | quote }}
    undo: {argv: [etcdctl, member, remove, "{{ host.name }}"]}
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return undo_of(params, cls.undo if "undo" in params else Undo.IMPOSSIBLE)

    def precheck(self, ctx: StepContext) -> Forecast:
        return guarded(ctx, self.params) or would_run(self.params, ctx.runner.display(self._command()))

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        command = self._command()
        if self.params.undo is not None:
            # The parameters say how; recorded here as well, a secret among them would keep the undo out of the journal.
            ctx.save_undo({})
        done = run_command(ctx, self.params, command)
        return result_of(ctx, self.params, done, ctx.runner.display(command))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        how = self.params.undo
        if how is None:
            raise StepFailed("the spec no longer says how to undo it", hint="undo it by hand")
        ctx.runner.run(make_command(how.shell or how.argv or "", self.params.cwd, self.params.env))

    def _command(self) -> Command:
        params = self.params
        return make_command(params.shell or params.argv or "", params.cwd, params.env, params.stdin, pty=params.pty)

"""The step type ``command``: a program, or a line of shell, run on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, Undo
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
        raise ValueError(f"{what} takes either argv (a list) or shell (a text), not both and not none")
    if argv is not None and (not argv or not argv[0]):
        raise ValueError(f"{what}: argv names no program")
    if shell is not None and not shell.strip():
        raise ValueError(f"{what}: shell is empty")


class UndoParams(Params):
    """How to undo a command: argv or shell, as for the command itself."""

    argv: list[Text] | None = Field(None, description="Program and arguments, without a shell.")
    shell: str | None = Field(None, description="A line or more of POSIX shell.")

    @model_validator(mode="after")
    def _one(self) -> UndoParams:
        _one_of(self.argv, self.shell, "undo")
        return self


class CommandParams(RunParams):
    """Parameters of ``command``."""

    argv: list[Text] | None = Field(
        None, description="Program and arguments. No shell reads them: nothing needs to be quoted."
    )
    shell: str | None = Field(
        None,
        description="A line or more of POSIX shell (`sh`), for pipes and the like. Values in it must be quoted: "
        "`{{ value | quote }}`.",
    )
    pty: bool = Field(
        False,
        description="Run it in a terminal, for programs that want one. Nobody types there, it takes no `stdin`, and "
        "what it writes as errors is part of `stdout`.",
    )
    undo: UndoParams | None = Field(
        None, description="Command that undoes this one, run in the same folder and environment if the run rolls back."
    )

    @model_validator(mode="after")
    def _one(self) -> CommandParams:
        _one_of(self.argv, self.shell, "command")
        if self.pty and self.stdin is not None:
            raise ValueError("command has either a terminal (pty) or input (stdin), not both")
        if self.read_only and self.undo is not None:
            raise ValueError("readOnly says that it changes nothing, so that there is nothing to undo")
        return self


class CommandStep(Step[CommandParams]):
    """A program, or a line of shell, run on the host.

    Use it where no other step type fits. By itself a command runs every time and counts as a change every time; say
    how to know better:

    - `creates`, `removes`, `unless`, `onlyIf`: when it need not run. These also make `check` exact.
    - `changedWhen`: whether a run that took place changed anything; `changedWhen: false` for commands that never do.
    - `readOnly: true`: it only asks. Then `check` and `drift` run it as well, and what depends on its outputs is known
      to them. A command that they do not run is "not looked at".

    Its outputs are `stdout`, `stderr` (both without line breaks at the end) and `exitCode`, for later steps. Output is
    shown while it runs. When its time is over or the run is cancelled, it is killed with all its children; what it has
    started in the background lives on once it has ended by itself.

    A command can be undone only if you say how, with `undo`.
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
        """Only if the spec says how, or says that it changes nothing."""
        return undo_of(params, cls.undo if "undo" in params else Undo.IMPOSSIBLE)

    def precheck(self, ctx: StepContext) -> Forecast:
        """Ask the guards."""
        return guarded(ctx, self.params) or would_run(self.params, ctx.runner.display(self._command()))

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        """Run it."""
        command = self._command()
        undo = self.params.undo
        if undo is not None:
            ctx.save_undo({"line": undo.shell or undo.argv, "cwd": self.params.cwd, "env": dict(self.params.env)})
        done = run_command(ctx, self.params, command)
        return result_of(ctx, self.params, done, ctx.runner.display(command))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Run the command that undoes it."""
        ctx.runner.run(make_command(undo["line"], undo["cwd"], undo["env"]))

    def _command(self) -> Command:
        params = self.params
        return make_command(params.shell or params.argv or "", params.cwd, params.env, params.stdin, pty=params.pty)

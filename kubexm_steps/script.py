"""The step type ``script``: a script of the control node, or from the spec, run on the host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from kubexm_exec.step import Forecast, LocalFile, Result, Step, StepContext, Undo
from kubexm_exec.step.host import Command
from kubexm_spec.models.common import no_items
from kubexm_steps.lib.commands import GUARDS, RunOutputs, RunParams, guarded, result_of, run_command, undo_of, would_run
from kubexm_steps.lib.files import read_local
from kubexm_steps.lib.types import Text


class ScriptParams(RunParams):
    """Parameters of ``script``."""

    src: Annotated[str | None, LocalFile()] = Field(
        None, description="Script on the control node, relative to the file that contains this step."
    )
    content: str | None = Field(None, description="The script itself, instead of `src`.")
    interpreter: str | None = Field(
        None,
        min_length=1,
        description="Interpreter on the host, such as `bash -eu` or `python3`. By default its `#!` line, else `sh`.",
    )
    args: list[Text] = Field(default_factory=no_items, description="Arguments for the script.")

    def model_post_init(self, context: object) -> None:
        if (self.src is None) == (self.content is None):
            raise ValueError("script takes either src (a file) or content (a text), and exactly one of them")
        if self.interpreter is not None:
            try:
                words = shlex.split(self.interpreter)
            except ValueError as error:
                raise ValueError(f"interpreter cannot be read: {error}") from error
            if not words:
                raise ValueError("interpreter is empty")


class ScriptStep(Step[ScriptParams]):
    """A script from the control node, or from the spec itself, run on the host.

    It is sent to a folder that only its user can enter, run, and always removed. Guards, exit codes,
    `changedWhen`, `readOnly` and outputs are those of `command`.

    - Pass values as `args` or `env`: in `content`, a text with expressions, they need quoting.
    - With `readOnly`, `check` sends and removes it too.
    - A script cannot be undone; use `command` with `undo`, or other step types, for what must be undoable.
    """

    outputs_model = RunOutputs
    unknown_hint = GUARDS
    example = """\
- name: tune
  type: script
  with:
    src: ./files/tune.sh
    args: ["{{ host.name }}", --fast]
    interpreter: bash -eu
    creates: /var/lib/tuned
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return undo_of(params, cls.undo)

    def precheck(self, ctx: StepContext) -> Forecast:
        return guarded(ctx, self.params) or would_run(self.params, self._shown(ctx))

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        params = self.params
        body = self._body(ctx)
        with ctx.runner.temporary_folder() as folder:
            path = f"{folder}/{Path(params.src).name if params.src else 'script'}"
            ctx.runner.write(path, body, mode=0o700)
            command = Command(
                argv=(*self._interpreter(body), path, *params.args),
                cwd=params.cwd,
                env=params.env,
                stdin=None if params.stdin is None else params.stdin.encode("utf-8", "surrogateescape"),
            )
            done = run_command(ctx, params, command)
        return result_of(ctx, params, done, self._shown(ctx))

    def _body(self, ctx: StepContext) -> bytes:
        if self.params.src is None:
            return (self.params.content or "").encode("utf-8", "surrogateescape")
        return read_local(ctx.local_path(self.params.src))

    def _interpreter(self, body: bytes) -> list[str]:
        """Named rather than left to the kernel, so that it works where temporary folders are mounted noexec."""
        if self.params.interpreter is not None:
            return shlex.split(self.params.interpreter)
        first = body.partition(b"\n")[0].decode("utf-8", "replace").strip()
        # As the kernel does it: a program and at most one argument.
        return first[2:].split(None, 1) if first.startswith("#!") and first[2:].strip() else ["/bin/sh"]

    def _shown(self, ctx: StepContext) -> str:
        name = self.params.src or "(inline script)"
        return ctx.runner.display(Command(argv=(name, *self.params.args)))

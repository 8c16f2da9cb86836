"""The step type ``copy``: a file or a folder from the control node to the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from kubexm_exec.step import RESOURCE, Forecast, LocalFile, Outputs, Result, StepContext, StepFailed
from kubexm_steps.lib.files import NEW_FILE, Change, Wanted, apply_file, forecast_file, new_content
from kubexm_steps.lib.trees import (
    Plan,
    Tree,
    TreeParams,
    TreeStep,
    apply_plan,
    copied,
    forecast_plan,
    local_file,
    make_plan,
    nothing,
    permissions,
    read_tree,
)
from kubexm_steps.lib.types import InspectedPath, WholeFileParams, located


class CopyParams(TreeParams, WholeFileParams):
    """Parameters of ``copy``."""

    src: Annotated[str, LocalFile()] = Field(
        description="File or folder on the control node, relative to the file that contains this step."
    )
    path: InspectedPath = Field(description="Destination on the host, as an absolute path.")


class CopyOutputs(Outputs):
    path: str = Field(description="The file or folder on the host.")
    files: int = Field(description="Number of files and links.")
    sha256: str = Field("", description="Digest of a single file; empty for a folder, or if the step is sensitive.")
    backup: str = Field("", description="Path of the backup of a single file; empty if none was made.")


class CopyStep(TreeStep[CopyParams, Change | Plan]):
    """A file, or a folder with all its content, copied from the control node to the host.

    Files that are already the same on the host (by sha256) are not sent. Each file is replaced atomically.

    - A folder: its content goes to `path`; links in it stay links. Other content of `path` is kept;
      use `sync` to remove it.
    - Many small files are sent as one stream; an interrupted upload of a file of 8 MiB or more continues the next time.
    - Without `mode`, an existing file keeps its mode, and a new one has that of the source (without setuid, setgid
      and sticky bits); files of a `sensitive` step are `0600`, and a fetched resource is `0644`. New folders
      have the mode of the source too.
    - `validate`, `backup` and `createOnly` are for single files, and are as in `file`.
    - Undo restores what was replaced (up to 64 MiB), and removes what was created.
    """

    outputs_model = CopyOutputs
    example = """\
- name: scripts
  type: copy
  with: {src: ./files/scripts, path: /opt/app/scripts, createParents: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Change | Plan]:
        local = self._local(ctx)
        params = self.params = located(ctx, self.params, last=local.is_dir())
        if not local.is_dir():
            forecast = forecast_file(ctx, self._wanted(ctx, local))
            return replace(forecast, outputs=_one(forecast.outputs)) if forecast.outputs else forecast
        if params.validate_ is not None or params.backup or params.create_only:
            raise StepFailed(
                f"copy {params.src}: it is a folder, and `validate`, `backup` and `createOnly` are for single files",
                hint="leave them out, or copy the files one by one",
            )
        tree = read_tree(local, params.path, nothing)
        return forecast_plan(
            ctx, params, make_plan(ctx, params, tree, delete=False, left_out=nothing),
            same=f"{params.path} is up to date", outputs=self._outputs(tree),
        )  # fmt: skip

    def run(self, ctx: StepContext, forecast: Forecast[Change | Plan]) -> Result:
        seen = forecast.seen
        if isinstance(seen, Change):
            result = apply_file(ctx, seen)
            return replace(result, outputs=_one(result.outputs))
        apply_plan(ctx, self.params, seen)
        return Result(message=copied(seen, "copied", "removed"), outputs=self._outputs(seen.tree))

    def _local(self, ctx: StepContext) -> Path:
        path = ctx.local_path(self.params.src)
        if not path.exists():
            raise StepFailed(f"copy {self.params.src}: it does not exist on the control node ({path})")
        return path

    def _wanted(self, ctx: StepContext, local: Path) -> Wanted:
        src = self.params.src
        # What was fetched has no permissions of its own: those of the cache say nothing about it.
        fetched = src.startswith(RESOURCE) and ctx.resource(src.removeprefix(RESOURCE)).kind != "path"
        new_mode = NEW_FILE if fetched else permissions(local)
        return new_content(self.params, local_file(ctx, self.params, local, self.params.path, new_mode))

    def _outputs(self, tree: Tree) -> dict[str, Any]:
        return {"path": self.params.path, "files": tree.count, "sha256": ""}


def _one(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a single file."""
    return {"files": 1, **{name: value for name, value in outputs.items() if name != "size"}}

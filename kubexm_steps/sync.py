"""The step type ``sync``: a folder of the host holds what a folder of the control node holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from kubexm_exec.step import Forecast, LocalFile, Outputs, Result, Standing, Step, StepContext, StepFailed, Undo
from kubexm_spec.models.common import no_items
from kubexm_steps.lib.localtrees import Tree, read_tree
from kubexm_steps.lib.patterns import Excluded, checked_pattern
from kubexm_steps.lib.trees import (
    Plan,
    TreeParams,
    apply_plan,
    copied,
    forecast_plan,
    make_plan,
    merge_trees,
    restore_tree,
    tree_standing,
)
from kubexm_steps.lib.types import located


class SyncParams(TreeParams):
    """Parameters of ``sync``."""

    src: Annotated[str, LocalFile()] = Field(
        description="Folder on the control node, relative to the file that contains this step."
    )
    delete: bool = Field(False, description="Remove content of `path` that is not in `src`.")
    exclude: list[Annotated[str, AfterValidator(checked_pattern)]] = Field(
        default_factory=no_items,
        description="Patterns as in a .gitignore; matching files are neither sent nor removed.",
    )

    @model_validator(mode="after")
    def _not_all_of_it(self) -> SyncParams:
        if self.delete and self.path == "/":
            raise ValueError("delete on the root folder would remove everything; name a folder below it")
        return self


class SyncOutputs(Outputs):
    """What later steps can know of the folder."""

    path: str = Field(description="The folder on the host.")
    files: int = Field(description="Number of files and links in the source, without excluded ones.")


class SyncStep(Step[SyncParams, Plan]):
    """A folder on the host with the same content as a folder on the control node.

    The two are compared in one round trip, by sha256. What differs is sent as one stream, written to disk next to its
    destination, and then each file is replaced atomically.

    - `delete: true` removes what is not in the source or is of another kind there: a link where the source
      has a folder becomes a folder, and its target is not changed. Without `delete`, `sync` is a `copy` with
      `exclude`, and a link to a folder counts as that folder.
    - `exclude` takes patterns as in a `.gitignore`: `*.log` at any depth, `/cache` at the top, `build/` for folders
      only, `**` for any number of folders, and `!keep.log` for an exception. Excluded files are neither sent nor
      removed. Folders with excluded content are kept, and so are other file systems mounted inside.
    - Without `mode`, an existing file keeps its mode, and a new one has that of the source (without setuid, setgid
      and sticky bits); files of a `sensitive` step are `0600`. New folders have the mode of the source too.
    - `check` shows what would be added, changed and removed.
    - Undo restores what was replaced and removed (up to 64 MiB), and removes what was created.
    """

    outputs_model = SyncOutputs
    undo = Undo.REPEATABLE
    example = """\
- name: site
  type: sync
  with:
    src: ./files/site
    path: /srv/site
    delete: true
    exclude: ["*.swp", /uploads]
"""

    def precheck(self, ctx: StepContext) -> Forecast[Plan]:
        """Compare by digest."""
        params = self.params = located(ctx, self.params, last=True)
        plan = self._plan(ctx)
        return forecast_plan(ctx, params, plan, same=f"{params.path} is the same", outputs=self._outputs(plan.tree))

    def run(self, ctx: StepContext, forecast: Forecast[Plan]) -> Result:
        """Send what differs, and remove what is too much."""
        plan = forecast.seen
        apply_plan(ctx, self.params, plan)
        return Result(message=copied(plan, "copied", "removed"), outputs=self._outputs(plan.tree))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare with what was left."""
        return tree_standing(ctx, undo)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        restore_tree(ctx, undo)

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of each file what was there before the first attempt."""
        return merge_trees(first, later)

    def _plan(self, ctx: StepContext) -> Plan:
        params = self.params
        local = ctx.local_path(params.src)
        if not local.is_dir():
            missing = "it is not a folder" if local.exists() else "it is not there"
            raise StepFailed(
                f"sync {params.src}: {missing} on the control node ({local})", hint="use `copy` for a single file"
            )
        left_out = Excluded(params.exclude)
        tree = read_tree(local, params.path, left_out)
        return make_plan(ctx, params, tree, delete=params.delete, left_out=left_out)

    def _outputs(self, tree: Tree) -> dict[str, Any]:
        return {"path": self.params.path, "files": tree.count}

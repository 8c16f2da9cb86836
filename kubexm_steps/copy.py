"""The step type ``copy``: a file or a folder from the control node to the host."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from kubexm_exec.runner import FileState
from kubexm_exec.step import Diff, Forecast, LocalFile, Outputs, Result, Step, StepContext, StepFailed
from kubexm_steps._files import (
    Change,
    Content,
    Wanted,
    apply_change,
    compare,
    file_diff,
    forecast_file,
    local_failure,
    remember,
    restore,
    write_file,
)
from kubexm_steps._types import Mode, OneFileParams

_MOST_DIFFS: Final = 50


class CopyParams(OneFileParams):
    """Parameters of ``copy``."""

    src: Annotated[str, LocalFile()] = Field(
        description="File or folder on the control node, relative to the file that this step is written in."
    )
    dir_mode: Mode | None = Field(
        None, description='Permissions of folders that are made, such as `"0750"`; else 0755.'
    )


class CopyOutputs(Outputs):
    """What later steps can know of the copy."""

    path: str = Field(description="The file or folder on the host.")
    files: int = Field(description="How many files and links it has.")
    sha256: str = Field("", description="Digest of a single file; empty for a folder, or if the step is sensitive.")


@dataclass(frozen=True, slots=True)
class _Tree:
    """What is in a local folder, by its path on the host."""

    folders: list[str]
    links: dict[str, str]
    files: dict[str, Path]

    @property
    def count(self) -> int:
        return len(self.files) + len(self.links)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is missing or different on the host."""

    folders: list[str]
    links: list[Change]
    files: list[Change]

    @property
    def any(self) -> bool:
        return bool(self.folders or self.links or self.files)


class CopyStep(Step[CopyParams]):
    """A file, or a folder with all that is in it, copied from the control node to the host.

    What is the same on the host already (compared by sha256) is not sent. Each file is replaced in one go.

    - A folder: its content lands in `path`; links in it stay links. What else is in `path` on the host is left alone.
    - Without `mode`, files that are executable here are `0755`, others `0644`; those of a `sensitive` step are `0600`.
    - Undo brings back what was replaced, and removes what was made.
    """

    outputs_model = CopyOutputs
    reversible = True
    example = """\
- name: scripts
  type: copy
  with: {src: ./files/scripts, path: /opt/app/scripts, createParents: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Compare by digest."""
        local = self._local(ctx)
        if not local.is_dir():
            forecast = forecast_file(ctx, self._wanted(ctx, local, self.params.path))
            outputs = {**forecast.outputs, "files": 1} if forecast.outputs else {}
            outputs.pop("size", None)
            return Forecast(forecast.state, forecast.message, forecast.diffs, outputs)
        tree = _read_tree(local, self.params.path)
        if not self.params.create_parents:
            above = posixpath.dirname(self.params.path)
            if not ctx.runner.inspect(above, digest=False).exists:
                return Forecast.unknown(f"the folder {above} is not there yet")
        plan = self._plan(ctx, tree)
        if not plan.any:
            return Forecast.satisfied(f"{self.params.path} holds all of it", self._outputs(tree))
        return Forecast.change(f"would copy {_count(plan)} to {self.params.path}", self._diffs(ctx, plan))

    def run(self, ctx: StepContext) -> Result:
        """Send what differs."""
        local = self._local(ctx)
        if not local.is_dir():
            result = write_file(ctx, self._wanted(ctx, local, self.params.path))
            outputs = {**result.outputs, "files": 1}
            outputs.pop("size", None)
            return Result(changed=result.changed, message=result.message, outputs=outputs)
        tree = _read_tree(local, self.params.path)
        plan = self._plan(ctx, tree)
        if not plan.any:
            return Result(changed=False, message=f"{self.params.path} holds all of it", outputs=self._outputs(tree))
        folders = plan.folders
        if folders and folders[0] == self.params.path:
            # Those above it are made too, or there is a clear failure.
            above = ctx.runner.missing_folders(posixpath.dirname(self.params.path))
            folders = [*above, *folders] if self.params.create_parents else folders
        remember(ctx, [*plan.links, *plan.files], folders)
        for folder in plan.folders:
            ctx.runner.mkdir(
                folder,
                mode=self._folder_mode(ctx),
                owner=self.params.owner,
                group=self.params.group,
                parents=self.params.create_parents,
            )
        for change in plan.links:
            ctx.runner.symlink(tree.links[change.wanted.path], change.wanted.path)
        for number, change in enumerate(plan.files):
            ctx.progress(f"copy {change.wanted.path}", number, len(plan.files))
            apply_change(ctx, change)
        return Result(message=f"copied {_count(plan)} to {self.params.path}", outputs=self._outputs(tree))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        restore(ctx, undo)

    def _local(self, ctx: StepContext) -> Path:
        path = ctx.local_path(self.params.src)
        if not path.exists():
            raise StepFailed(f"copy {self.params.src}: it is not there on the control node ({path})")
        return path

    def _wanted(self, ctx: StepContext, local: Path, path: str) -> Wanted:
        params = self.params
        mode = params.mode
        if mode is None and not ctx.sensitive:
            mode = _usual_mode(local)
        return Wanted(path, Content.of_file(ctx, local), mode, params.owner, params.group, params.create_parents)

    def _plan(self, ctx: StepContext, tree: _Tree) -> _Plan:
        states = {state.path: state for state in ctx.runner.inspect_all([*tree.folders, *tree.links, *tree.files])}
        folders = [path for path in tree.folders if _is_missing_folder(states[path])]
        links = [
            Change(Wanted(path, None), _replaceable(states[path]), 0, True, False, False)
            for path, target in tree.links.items()
            if (states[path].kind, states[path].target) != ("link", target)
        ]
        files = []
        for path, local in tree.files.items():
            change = compare(ctx, self._wanted(ctx, local, path), states[path])
            if change.any:
                files.append(change)
        return _Plan(folders, links, files)

    def _diffs(self, ctx: StepContext, plan: _Plan) -> list[Diff]:
        diffs = [Diff(path, note="folder created") for path in plan.folders]
        diffs += [Diff(change.wanted.path, note="link") for change in plan.links]
        left = max(0, _MOST_DIFFS - len(diffs))
        diffs = [*diffs[:_MOST_DIFFS], *(file_diff(ctx, change) for change in plan.files[:left])]
        rest = len(plan.folders) + len(plan.links) + len(plan.files) - len(diffs)
        return [*diffs, Diff(self.params.path, note=f"and {rest} more")] if rest else diffs

    def _folder_mode(self, ctx: StepContext) -> int | None:
        if self.params.dir_mode is not None:
            return self.params.dir_mode
        return 0o700 if ctx.sensitive else None

    def _outputs(self, tree: _Tree) -> dict[str, Any]:
        return {"path": self.params.path, "files": tree.count, "sha256": ""}


def _read_tree(local: Path, path: str) -> _Tree:
    tree = _Tree([path], {}, {})
    for entry in _walk(local):
        target = posixpath.join(path, entry.relative_to(local).as_posix())
        if entry.is_symlink():
            tree.links[target] = str(entry.readlink())
        elif entry.is_dir():
            tree.folders.append(target)
        elif entry.is_file():
            tree.files[target] = entry
        else:
            raise StepFailed(f"copy {entry}: it is a device, pipe or socket", hint="keep such things out of the folder")
    return tree


def _walk(folder: Path) -> Iterator[Path]:
    """Everything below, each folder before what is in it, in the same order everywhere."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise local_failure("read", folder, error) from error
    for entry in entries:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)


def _usual_mode(local: Path) -> int:
    """As git does it: what counts is whether it can be run, not the umask of whoever checked it out."""
    return 0o755 if local.stat().st_mode & stat.S_IXUSR else 0o644


def _is_missing_folder(state: FileState) -> bool:
    if state.kind in ("file", "other"):
        raise StepFailed(
            f"copy to {state.path}: a folder is wanted, and it is none", hint="remove it first, or choose another path"
        )
    return state.kind == "absent"


def _replaceable(state: FileState) -> FileState:
    if state.kind in ("directory", "other"):
        raise StepFailed(
            f"link {state.path}: it is there and neither a link nor a file",
            hint="remove it first with a step that says so",
        )
    return state


def _count(plan: _Plan) -> str:
    parts = [(len(plan.files), "file"), (len(plan.links), "link"), (len(plan.folders), "folder")]
    return ", ".join(f"{number} {noun}{'s' if number > 1 else ''}" for number, noun in parts if number)

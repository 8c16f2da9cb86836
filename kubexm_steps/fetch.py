"""The step type ``fetch``: a file from the host to the control node."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import posixpath
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from kubexm_exec.runner import FileState
from kubexm_exec.step import Diff, Forecast, Outputs, Result, Standing, StepContext, StepFailed
from kubexm_steps._files import HIDDEN, KEEP_LIMIT, NEW_FILE, SECRET_FILE, SHOWN_LIMIT, as_text, shown_text
from kubexm_steps._standing import OLDER, LookingStep, digest, is_digest
from kubexm_steps._types import FollowParams, HostPath, located


class FetchParams(FollowParams):
    """Parameters of ``fetch``."""

    path: HostPath = Field(description="The file on the host, as an absolute path.")
    to: str = Field(
        min_length=1,
        description="Folder on the control node, relative to the file that this step is written in. It is made.",
    )
    name: str | None = Field(
        None, description="Name of the file in the host's folder, such as `etc/app.conf`; else the whole path it has."
    )
    required: bool = Field(True, description="Fail if the file is not there; else it is left out.")

    @field_validator("name")
    @classmethod
    def _stays_inside(cls, name: str | None) -> str | None:
        if name is not None:
            parts = name.split("/")
            if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"{name!r} is not a name inside a folder")
        return name


class FetchOutputs(Outputs):
    """What later steps can know of the file."""

    path: str = Field(description="The file on the control node.")
    found: bool = Field(True, description="Whether it was there.")
    sha256: str = Field("", description="Digest of its content; empty if it was not there or the step is sensitive.")
    size: int = Field(0, description="Its size in bytes.")


class FetchStep(LookingStep[FetchParams]):
    """A file brought from the host to the control node, into a folder of its own for each host.

    `/etc/hosts` of `web1` lands in `TO/web1/etc/hosts`. A file that is the same there already (compared by sha256) is
    not sent. It is written beside its place and then renamed, however large it is.

    - Nothing is ever written outside `to`: not through a link in it, nor by a path with `..`.
    - A file that changes while it is read is read again, three times at most.
    - The copy is `0644`. Of a file that not everybody on the host may read, and in a `sensitive` step, it is `0600`,
      and `check` does not show what is in it. For a folder, pack it first with `archive`.
    - Undo brings back the copy that was replaced (up to 64 MiB), or removes the new one.
    """

    outputs_model = FetchOutputs
    example = """\
- name: certificate
  type: fetch
  with: {path: /etc/etcd/pki/ca.crt, to: ./fetched, name: ca.crt}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Compare the digests."""
        local = self._local(ctx)
        self.params = located(ctx, self.params, last=True)
        state = self._look(ctx)
        if state.kind == "absent":
            if self.params.required:
                return Forecast.unknown(f"{self.params.path} is not there yet")
            return Forecast.satisfied(f"{self.params.path} is not there", self._outputs(ctx, local, None))
        if self._same(ctx, state, local):
            return Forecast.satisfied(f"{local} is the same", self._outputs(ctx, local, state))
        return Forecast.change(f"would fetch {self.params.path} to {local}", [self._diff(ctx, state, local)])

    def run(self, ctx: StepContext) -> Result:
        """Bring it."""
        local = self._local(ctx)
        self.params = located(ctx, self.params, last=True)
        state = self._look(ctx)
        if state.kind == "absent":
            if self.params.required:
                raise StepFailed(
                    f"fetch {self.params.path}: it is not there on the host",
                    hint="look at the path, or set `required: false` if it may be missing",
                )
            outputs = self._outputs(ctx, local, None)
            return Result(changed=False, message=f"{self.params.path} is not there", outputs=outputs)
        if self._same(ctx, state, local):
            return Result(changed=False, message=f"{local} is the same", outputs=self._outputs(ctx, local, state))
        made = _missing(local.parent)
        self._remember(ctx, local, made, state)
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failure("make folder", local.parent, error) from error
        got = ctx.runner.fetch(state, local, mode=SECRET_FILE if _private(ctx, state) else NEW_FILE)
        return Result(message=f"fetched {self.params.path} to {local}", outputs=self._outputs(ctx, local, got))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare the copy with what was left."""
        local = self._local(ctx)
        if "left" not in undo:
            return Standing(unknown=OLDER)
        if local.is_symlink():
            as_before = undo["was"] == "link" and str(local.readlink()) == undo["link"]
            as_left = False
        elif local.is_file():
            found, mode = hashlib.sha256(local.read_bytes()).hexdigest(), local.stat().st_mode & 0o7777
            as_left = is_digest(undo["left"], found) and mode == undo["leftMode"]
            as_before = undo["was"] == "file" and mode == undo["mode"]
            as_before = as_before and hashlib.sha256(ctx.kept(undo["content"])).hexdigest() == found
        else:
            as_before, as_left = undo["was"] == "absent", False
        if as_before or as_left:
            return Standing(before=as_before)
        return Standing(changed=(f"{local} on the control node",))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back the copy that was there, or remove the new one."""
        local = self._local(ctx)
        was = undo.get("was") or ("file" if "content" in undo else "link" if "link" in undo else "absent")
        try:
            temporary = local.with_name(f".kx-{secrets.token_hex(8)}.tmp")
            if "content" in undo and was == "file":
                with temporary.open("xb") as file:
                    os.fchmod(file.fileno(), undo["mode"])
                    file.write(ctx.kept(undo["content"]))
                    for name, value in undo.get("attributes", {}).items():
                        os.setxattr(file.fileno(), name, base64.b64decode(value))
                temporary.rename(local)
            elif "link" in undo and was == "link":
                temporary.symlink_to(undo["link"])
                temporary.rename(local)
            else:
                local.unlink(missing_ok=True)
            for folder in reversed(undo.get("made", ())):
                if Path(folder).is_dir() and not any(Path(folder).iterdir()):
                    Path(folder).rmdir()
        except OSError as error:
            raise _failure("restore", local, error) from error

    def _look(self, ctx: StepContext) -> FileState:
        path = self.params.path
        state = ctx.runner.inspect(path)
        if state.kind == "link":
            state = ctx.runner.inspect(ctx.runner.resolve(path))
        if state.kind == "directory":
            raise StepFailed(f"fetch {path}: it is a folder", hint="pack it first with an archive step")
        if state.kind == "other":
            raise StepFailed(f"fetch {path}: it is a device, pipe or socket")
        if state.kind == "file" and not state.sha256:
            raise StepFailed(f"fetch {path}: it may not be read", hint="work as a user who may, with `become`")
        return state

    def _local(self, ctx: StepContext) -> Path:
        """Where it goes; refuses to leave the folder that was named."""
        # Not resolved by its name alone: what is there decides.
        top = ctx.local_path(self.params.to).resolve()
        name = self.params.name or posixpath.normpath(self.params.path).lstrip("/")
        local = top / ctx.host.name / name
        inside = local.parent.resolve()
        if ".." in name.split("/") or not inside.is_relative_to(top) or inside == top:
            raise StepFailed(
                f"fetch {self.params.path}: {local} leads outside {top}",
                hint="something in that folder is a link to elsewhere: remove it, or choose another `to`",
            )
        if local.is_dir() and not local.is_symlink():
            raise StepFailed(
                f"fetch {self.params.path}: {local} is a folder", hint="remove it, or choose another `name`"
            )
        return local

    def _same(self, ctx: StepContext, state: FileState, local: Path) -> bool:
        if local.is_symlink() or not local.is_file():
            return False
        info = local.stat()
        closed = not _private(ctx, state) or info.st_mode & 0o7777 == SECRET_FILE
        return closed and info.st_size == state.size and ctx.runner.source(local).sha256 == state.sha256

    def _diff(self, ctx: StepContext, state: FileState, local: Path) -> Diff:
        there = local.is_file() and not local.is_symlink()
        notes = [] if there else ["created"]
        if _private(ctx, state):
            return Diff(str(local), note=", ".join([*notes, HIDDEN]))
        after = shown_text(ctx, state)
        small = there and local.stat().st_size <= SHOWN_LIMIT
        before = as_text(local.read_bytes()) if small else None if there else ""
        if before is None or after is None:
            return Diff(str(local), note=", ".join([*notes, f"not shown: {state.size} bytes"]))
        return Diff(str(local), before if there else None, after, ", ".join(notes))

    def _remember(self, ctx: StepContext, local: Path, made: list[str], state: FileState) -> None:
        undo: dict[str, Any] = {"made": made, "was": "absent"}
        undo["left"] = digest(ctx, state.sha256, secret=ctx.sensitive)
        undo["leftMode"] = SECRET_FILE if _private(ctx, state) else NEW_FILE
        if local.is_symlink():
            undo |= {"was": "link", "link": str(local.readlink())}
        elif local.is_file():
            undo["was"] = "file"
            info = local.stat()
            if info.st_size > KEEP_LIMIT:
                ctx.log.warning("cannot be undone: too much content is replaced", bytes=info.st_size, limit=KEEP_LIMIT)
                return
            try:
                undo |= {"content": ctx.keep(local.read_bytes()), "mode": info.st_mode & 0o7777}
                undo["attributes"] = _attributes(local)
            except OSError as error:
                raise _failure("read", local, error) from error
        ctx.save_undo(undo)

    def _outputs(self, ctx: StepContext, local: Path, state: FileState | None) -> dict[str, Any]:
        if state is None:
            return {"path": str(local), "found": False, "sha256": "", "size": 0}
        return {
            "path": str(local),
            "found": True,
            "sha256": "" if ctx.sensitive else state.sha256,
            "size": state.size,
        }


def _attributes(path: Path) -> dict[str, str]:
    """The extended attributes of a file here; those that only the system may set come by themselves."""
    with contextlib.suppress(OSError):
        names = [name for name in os.listxattr(path) if not name.startswith("security.")]
        return {name: base64.b64encode(os.getxattr(path, name)).decode() for name in names}
    return {}


def _private(ctx: StepContext, state: FileState) -> bool:
    """What is closed on the host is not opened here."""
    return ctx.sensitive or not state.mode & 0o004


def _missing(folder: Path) -> list[str]:
    """The folder and those above it that do not exist, topmost first."""
    missing: list[str] = []
    while not folder.exists():
        missing.append(str(folder))
        folder = folder.parent
    return missing[::-1]


def _failure(what: str, path: Path, error: OSError) -> StepFailed:
    reason = (error.strerror or str(error)).lower()
    return StepFailed(f"{what} {path} on the control node: {reason}", hint="look at the folder given as `to`")

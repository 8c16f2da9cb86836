"""The step type ``fetch``: a file from the host to the control node."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import io
import os
import posixpath
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import Field, field_validator

from kubexm_exec.step import Diff, Forecast, Outputs, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.host import FileState, at, real
from kubexm_steps.lib.files import (
    HIDDEN,
    KEEP_LIMIT,
    NEW_FILE,
    SECRET_FILE,
    SHOWN_LIMIT,
    as_text,
    local_failure,
    shown_text,
)
from kubexm_steps.lib.standing import OLDER, LookingStep, digest, is_digest
from kubexm_steps.lib.types import FollowParams, HostPath, located

_NOTHING: Final = contextlib.suppress(FileNotFoundError, NotADirectoryError)
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class FetchParams(FollowParams):
    """Parameters of ``fetch``."""

    path: HostPath = Field(description="The file on the host, as an absolute path.")
    to: str = Field(
        min_length=1,
        description="Folder on the control node, relative to the file that contains this step. It is created if "
        "missing.",
    )
    name: str | None = Field(
        None, description="Name of the file in the host's folder, such as `etc/app.conf`; by default its full path."
    )
    required: bool = Field(True, description="Fail if the file does not exist; otherwise it is ignored.")

    @field_validator("name")
    @classmethod
    def _stays_inside(cls, name: str | None) -> str | None:
        if name is not None:
            parts = name.split("/")
            if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"{name!r} is not a name inside a folder")
        return name


class FetchOutputs(Outputs):
    path: str = Field(description="The file on the control node.")
    found: bool = Field(True, description="Whether it exists on the host.")
    sha256: str = Field("", description="Digest of its content; empty if it does not exist or the step is sensitive.")
    size: int = Field(0, description="Its size in bytes.")


class Seen(NamedTuple):
    """Where the copy goes, and the file on the host."""

    local: Path
    state: FileState


class FetchStep(LookingStep[FetchParams, Seen]):
    """A file copied from the host to the control node, into one folder per host.

    `/etc/hosts` of `web1` is written to `TO/web1/etc/hosts`. A file that is already the same there (by sha256) is
    not sent. It is written next to its destination and renamed, whatever its size.

    - Nothing is ever written outside `to`: neither through a link in it, nor by a path with `..`.
    - A file that changes while it is read is read again, three times at most.
    - The copy is `0644`. If not everybody on the host can read the file, and in a `sensitive` step, it is `0600`,
      and `check` does not show its content. To fetch a folder, pack it first with `archive`.
    - Undo restores the replaced copy (up to 64 MiB), or removes the new one.
    """

    outputs_model = FetchOutputs
    example = """\
- name: certificate
  type: fetch
  with: {path: /etc/etcd/pki/ca.crt, to: ./fetched, name: ca.crt}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        local = self._local(ctx)
        self.params = located(ctx, self.params, last=True)
        seen = local, state = Seen(local, self._look(ctx))
        if state.kind == "absent":
            if self.params.required:
                return Forecast.unknown(f"{self.params.path} does not exist yet", seen=seen)
            return Forecast.satisfied(f"{self.params.path} does not exist", self._outputs(ctx, local, None))
        if self._same(ctx, state, local):
            return Forecast.satisfied(f"{local} is the same", self._outputs(ctx, local, state))
        return Forecast.change(f"would fetch {self.params.path} to {local}", [self._diff(ctx, state, local)], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        local, state = forecast.seen
        if state.kind == "absent":
            raise StepFailed(
                f"fetch {self.params.path}: it does not exist on the host",
                hint="check the path, or set `required: false` if it may be missing",
            )
        made = _missing(local.parent)
        self._remember(ctx, local, made, state)
        for folder in made:
            with (
                _failing("make folder", local.parent),
                at(folder) as (above, name),
                contextlib.suppress(FileExistsError),
            ):
                os.mkdir(name, dir_fd=above)
        got = ctx.runner.fetch(state, local, mode=SECRET_FILE if _private(ctx, state) else NEW_FILE)
        return Result(message=f"fetched {self.params.path} to {local}", outputs=self._outputs(ctx, local, got))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        local = self._local(ctx)
        if "left" not in undo:
            return Standing(unknown=OLDER)
        there = _there(local)
        if there is not None and stat.S_ISLNK(there.st_mode):
            as_before = undo["was"] == "link" and _link(local) == undo["link"]
            as_left = False
        elif there is not None and stat.S_ISREG(there.st_mode):
            with _opened(local) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
                mode = os.fstat(file.fileno()).st_mode & 0o7777
            as_left = is_digest(undo["left"], found) and mode == undo["leftMode"]
            as_before = undo["was"] == "file" and mode == undo["mode"]
            as_before = as_before and hashlib.sha256(ctx.kept(undo["content"])).hexdigest() == found
        else:
            as_before, as_left = undo["was"] == "absent", False
        if as_before or as_left:
            return Standing(before=as_before)
        return Standing(changed=(f"{local} on the control node",))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        local = self._local(ctx)
        was = undo.get("was") or ("file" if "content" in undo else "link" if "link" in undo else "absent")
        with _failing("restore", local):
            if was == "absent" or not {"content", "link"} & undo.keys():
                with contextlib.suppress(FileNotFoundError), at(str(local)) as (folder, name):
                    os.unlink(name, dir_fd=folder)
            else:
                self._put_back(ctx, undo, local)
            for made in reversed(undo.get("made", ())):
                # What holds something else by now stays.
                with _NOTHING, at(made) as (folder, name):
                    _remove_empty(folder, name)

    def _put_back(self, ctx: StepContext, undo: Mapping[str, Any], local: Path) -> None:
        temporary = f".kx-{secrets.token_hex(8)}.tmp"
        with at(str(local)) as (folder, name):
            if "content" in undo:
                content = ctx.kept(undo["content"])
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
                with os.fdopen(fd, "wb") as file:
                    os.fchmod(fd, undo["mode"])
                    file.write(content)
                    for key, value in undo.get("attributes", {}).items():
                        os.setxattr(fd, key, base64.b64decode(value))
            else:
                os.symlink(undo["link"], temporary, dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _look(self, ctx: StepContext) -> FileState:
        path = self.params.path
        state = ctx.runner.inspect(path)
        if state.kind == "link":
            state = ctx.runner.inspect(ctx.runner.resolve(path))
        if state.kind == "directory":
            raise StepFailed(f"fetch {path}: it is a folder", hint="pack it first with an `archive` step")
        if state.kind == "other":
            raise StepFailed(f"fetch {path}: it is a device, pipe or socket")
        if state.kind == "file" and not state.sha256:
            raise StepFailed(
                f"fetch {path}: it cannot be read", hint="use a user who can read it, such as with `become: true`"
            )
        return state

    def _local(self, ctx: StepContext) -> Path:
        """Where it goes; refuses to leave the folder that was named."""
        # Not resolved by its name alone: what is there decides.
        top = self._real(ctx.local_path(self.params.to))
        name = self.params.name or posixpath.normpath(self.params.path).lstrip("/")
        local = top / ctx.host.name / name
        inside = self._real(local.parent)
        if ".." in name.split("/") or not inside.is_relative_to(top) or inside == top:
            raise StepFailed(
                f"fetch {self.params.path}: {local} leads outside {top}",
                hint="something in that folder is a link to elsewhere: remove it, or choose another `to`",
            )
        there = _there(local)
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise StepFailed(
                f"fetch {self.params.path}: {local} is a folder", hint="remove it, or choose another `name`"
            )
        return local

    def _real(self, path: Path) -> Path:
        """The path without links; a link that another user may have created is refused."""
        try:
            return Path(real(str(path)))
        except OSError as error:
            raise StepFailed(
                f"fetch {self.params.path}: {path} on the control node: {error.strerror}",
                hint="remove what is in the way, or choose a `to` that only you may write",
            ) from error

    def _same(self, ctx: StepContext, state: FileState, local: Path) -> bool:
        there = _there(local)
        if there is None or not stat.S_ISREG(there.st_mode):
            return False
        with _opened(local) as file:
            info = os.fstat(file.fileno())
            closed = not _private(ctx, state) or info.st_mode & 0o7777 == SECRET_FILE
            same_size = info.st_size == state.size
            return closed and same_size and hashlib.file_digest(file, "sha256").hexdigest() == state.sha256

    def _diff(self, ctx: StepContext, state: FileState, local: Path) -> Diff:
        info = _there(local)
        there = info is not None and stat.S_ISREG(info.st_mode)
        notes = [] if there else ["created"]
        if _private(ctx, state):
            return Diff(str(local), note=", ".join([*notes, HIDDEN]))
        after = shown_text(ctx, state)
        before: str | None = None if there else ""
        if info is not None and there and info.st_size <= SHOWN_LIMIT:
            with _opened(local) as file:
                before = as_text(file.read())
        if before is None or after is None:
            return Diff(str(local), note=", ".join([*notes, f"not shown: {state.size} bytes"]))
        return Diff(str(local), before if there else None, after, ", ".join(notes))

    def _remember(self, ctx: StepContext, local: Path, made: list[str], state: FileState) -> None:
        undo: dict[str, Any] = {"made": made, "was": "absent"}
        undo["left"] = digest(ctx, state.sha256, secret=ctx.sensitive)
        undo["leftMode"] = SECRET_FILE if _private(ctx, state) else NEW_FILE
        info = _there(local)
        if info is not None and stat.S_ISLNK(info.st_mode):
            undo |= {"was": "link", "link": _link(local)}
        elif info is not None and stat.S_ISREG(info.st_mode):
            undo["was"] = "file"
            if info.st_size > KEEP_LIMIT:
                ctx.log.warning(
                    "cannot be undone: the replaced content is too large to be kept",
                    bytes=info.st_size,
                    limit=KEEP_LIMIT,
                )
                return
            with _opened(local) as file:
                undo |= {"content": ctx.keep(file.read()), "mode": os.fstat(file.fileno()).st_mode & 0o7777}
                undo["attributes"] = _attributes(file.fileno())
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


def _there(local: Path) -> os.stat_result | None:
    """What is at a place here, itself and not what a link leads to; None if there is nothing."""
    with _failing("look at", local), _NOTHING, at(str(local)) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _link(local: Path) -> str:
    with _failing("read", local), at(str(local)) as (folder, name):
        return os.readlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(local: Path) -> Iterator[io.BufferedReader]:
    """A file here, to be read; what goes wrong with it is a failure of the step."""
    with _failing("read", local):
        with at(str(local)) as (folder, name):
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=folder)
        with os.fdopen(fd, "rb") as file:
            yield file


def _remove_empty(folder: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise


def _attributes(fd: int) -> dict[str, str]:
    """The extended attributes of a file here; those that only the system may set come by themselves."""
    with contextlib.suppress(OSError):
        names = [name for name in os.listxattr(fd) if not name.startswith("security.")]
        return {name: base64.b64encode(os.getxattr(fd, name)).decode() for name in names}
    return {}


def _private(ctx: StepContext, state: FileState) -> bool:
    """What is closed on the host is not opened here."""
    return ctx.sensitive or not state.mode & 0o004


def _missing(folder: Path) -> list[str]:
    """The folder and those above it that do not exist, topmost first."""
    missing: list[str] = []
    while not _exists(folder):
        missing.append(str(folder))
        folder = folder.parent
    return missing[::-1]


def _exists(folder: Path) -> bool:
    with _failing("look at", folder), _NOTHING, at(str(folder), last=True) as (above, name):
        os.stat(name, dir_fd=above, follow_symlinks=False)
        return True
    return False


@contextlib.contextmanager
def _failing(what: str, path: Path) -> Iterator[None]:
    """What goes wrong here is a failure of the step: others may be at work in the folder."""
    try:
        yield
    except OSError as error:
        raise local_failure(what, path, error, hint="check the folder given as `to`") from error

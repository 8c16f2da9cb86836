"""Brings a file of a host to the control node: streamed, checked by its digest, and put in place in one go."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import secrets
from pathlib import Path
from typing import Final

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.files.transfer import LARGE
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import at

_TRIES: Final = 3


def fetch(session: Session, state: FileState, local: Path, *, mode: int) -> FileState:
    """Write what a host's file holds to a local file; gives the file as it was when that was read.

    The folder must be there. A file that changes while it is read is read again.
    """
    for _ in range(_TRIES):
        digest = _fetch(session, state, local, mode)
        if digest == state.sha256:
            return state
        state = inspect(session, [state.path])[0]
        if state.kind == "file" and state.sha256 == digest:
            # It had changed before it was read, and not while it was.
            return state
        if state.kind != "file":
            raise StepFailed(f"fetch {state.path}: it has gone while it was read")
    raise StepFailed(
        f"fetch {state.path}: it changes all the time",
        hint="stop what writes to it, or fetch a copy that you make first",
    )


def _fetch(session: Session, state: FileState, local: Path, mode: int) -> str:
    name = posixpath.basename(state.path)
    temporary = f".kx-{secrets.token_hex(8)}.tmp"
    digest = hashlib.sha256()
    done = 0
    with contextlib.ExitStack() as stack:
        try:
            folder, last = stack.enter_context(at(str(local)))
            # Closed to others until all of it is there.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=folder)
        except OSError as error:
            raise local_failure(local, error) from error

        def take(data: bytes) -> None:
            nonlocal done
            digest.update(data)
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as error:
                raise local_failure(local, error) from error
            done += len(data)
            if state.size >= LARGE:
                session.progress(f"fetch {name}", min(done, state.size), state.size)

        try:
            try:
                session.connector.stream(state.path, take, deadline=session.deadline, cancel=session.cancel)
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.filename == state.path:
                raise file_failure(session, "fetch", state.path, error) from error
            raise local_failure(local, error) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
    return digest.hexdigest()


def local_failure(local: Path, error: OSError) -> StepFailed:
    """The failure of writing on the control node."""
    reason = error.strerror or str(error)
    reason = reason[:1].lower() + reason[1:]
    return StepFailed(f"write {local} on the control node: {reason}", hint="look at the folder that is fetched to")

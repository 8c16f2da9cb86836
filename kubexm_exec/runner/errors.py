"""Turns the errors of a host into failures that say what, where and what to do next."""

from __future__ import annotations

import errno
import posixpath
import re
from typing import Final

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import ConnectorError, StepFailed
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import other_names, refusal

_HINTS: Final = {
    errno.ENOENT: "its folder {folder} does not exist: make it first with a directory step (or `createParents: true`)",
    errno.ENOTDIR: "a part of {folder} is not a folder: check it with `ls -ld {folder}`",
    errno.EISDIR: "{path} is a folder: choose another path, or remove it first with a directory step",
    errno.ENOTEMPTY: "{path} is not empty: empty it first, or use `recursive: true` where the step has it",
    errno.EROFS: "{folder} is mounted read-only",
    errno.ENOSPC: "free some space on the file system of {folder}: `df -h {folder}`",
    errno.EDQUOT: "the user's quota on the file system of {folder} is used up",
    errno.ETXTBSY: "a program of that name is running: stop it first",
    errno.EBUSY: "{path} is in use, perhaps as a mount point",
    errno.ELOOP: "links on the way to {path} form a loop",
}

_UNTRUSTED: Final = (
    "another user could have made it to have another file read or changed: give the real path, or set "
    "`follow: true` for the step if you trust everybody who may write there"
)
_NOBODY: Final = re.compile(r"there is no (user|group) ")


def file_failure(
    session: Session, what: str, path: str, error: OSError | CommandResult, *, hint: str = "", code: int | None = None
) -> StepFailed:
    """The failure of an operation on a path: ``write /etc/x: permission denied (user deploy, no become)``."""
    if isinstance(error, OSError):
        reason, number = (error.strerror or str(error)), error.errno
        command, exit_code, stderr = "", None, ""
    else:
        reason, number = reason_of(error.err)
        command, exit_code, stderr = error.command, error.exit_code, error.err
        reason = reason or exit_text(error.exit_code)
    number = code if code is not None else number
    reason = reason[:1].lower() + reason[1:]
    if number in (errno.EACCES, errno.EPERM):
        user = user_of(session)
        become = f"become {session.become}" if session.become else "no become"
        reason += f" (user {user}, {become})" if user else f" ({become})"
        way = "work as another user" if session.become or user == "root" else "give the step `become: true`"
        hint = hint or f"{user or 'the user'} may not do this: use a path of that user, or {way}"
    elif number == errno.ENOSPC:
        reason += " (the file system is full)"
    elif refusal(reason):
        hint = _UNTRUSTED
    elif other_names(reason):
        hint = "another user could have made it a second name of another file: remove it, or close its folder to others"
    elif missing := _NOBODY.match(reason):
        hint = hint or f"check the name, or make it first with a {missing[1]} step"
    if not hint and number in _HINTS:
        hint = _HINTS[number].format(path=path, folder=posixpath.dirname(path) or ".")
    if refusal(reason) or other_names(reason):
        # The message says it all; our own script is of no use to people.
        command, exit_code, stderr = "", None, ""
    if session.sensitive:
        command = stderr = ""
    return StepFailed(
        f"{what} {path}".rstrip() + f": {reason}", command=command, exit_code=exit_code, stderr=stderr, hint=hint
    )


def exit_text(code: int) -> str:
    """An exit code in words."""
    import signal

    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def user_of(session: Session) -> str:
    """Our user on the host, for a message."""
    command = Command(argv=("id", "-un"))
    try:
        answer = session.run(command, deadline=session.deadline.earlier(10))
    except ConnectorError:
        return ""
    return answer.out.strip() if answer.exit_code == 0 else ""

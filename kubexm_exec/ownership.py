"""Folders and files that the program keeps on the control node: nobody else than root and we ourselves may write them.

Whoever may write the journal decides what a rollback writes as root, and whoever may read it has what files held that
only root could read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

from kubexm_exec import safepaths

_LOOK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotOursError(OSError):
    """Somebody else may write what is to be kept: whose it is, its mode, and what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(errno.EPERM, what)
        self.hint = hint


def own_folder(path: Path) -> None:
    """Make a folder for us alone, and those above it, if it is missing; raises NotOursError if others may write it."""
    missing, there = [path], {Path("/")}
    try:
        while missing:
            try:
                _own_folder(missing[-1], last=len(missing) == 1)
                there.add(missing.pop())
            except FileNotFoundError:
                # In /proc and the like nothing can be made, though the folder is there.
                if missing[-1].parent in (missing[-1], *there):
                    raise
                missing.append(missing[-1].parent)
    except OSError as error:
        raise _led_astray(error) from error


def _own_folder(path: Path, *, last: bool) -> None:
    with safepaths.at(str(path), last=True) as (above, name):
        try:
            fd = os.open(name, _LOOK, dir_fd=above)
        except FileNotFoundError:
            # Another process of ours may be as far.
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            fd = os.open(name, _LOOK, dir_fd=above)
        try:
            who = safepaths.others(fd)
            if who and last:
                raise _not_ours(path, os.fstat(fd), who)
        finally:
            os.close(fd)


def open_own(path: Path, flags: int) -> int:
    """Open a file in a folder of ours, made for its owner alone if ``flags`` say so, and closed to others if it is
    ours; raises NotOursError if it is somebody else's.
    """
    try:
        with safepaths.at(str(path), last=True) as (above, name):
            who = safepaths.others(above)
            if who:
                raise _not_ours(path.parent, os.fstat(above), who)
            fd = os.open(name, flags | _OPEN, 0o600, dir_fd=above)
    except OSError as error:
        raise _led_astray(error) from error
    try:
        info = os.fstat(fd)
        mine = info.st_uid == os.geteuid()
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if not (mine or info.st_uid == 0) or (not mine and info.st_mode & 0o022):
            raise _not_ours(path, info, f"user {safepaths.user_name(info.st_uid)}" if info.st_uid else "somebody else")
        if mine and info.st_mode & 0o077:
            # As older versions left it.
            os.fchmod(fd, info.st_mode & 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd


def remove_folder(path: Path) -> None:
    """Remove a folder with all in it, however deep, through no link; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Folders in folders come up to the top first: no path is long, and nothing calls itself.
            while names := os.listdir(top):  # noqa: PTH208 - of a descriptor
                for name in names:
                    _empty(top, name)
        finally:
            os.close(top)
        path.rmdir()


def _empty(top: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=top)
    except IsADirectoryError:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        try:
            for each in os.listdir(folder):  # noqa: PTH208
                try:
                    os.unlink(each, dir_fd=folder)
                except IsADirectoryError:
                    os.rename(each, os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)


def _led_astray(error: OSError) -> OSError:
    if error.errno == errno.ELOOP and safepaths.refusal(error.strerror or ""):
        return NotOursError(error.strerror or "", "name the folder itself, or choose another one")
    return error


def _not_ours(path: Path, info: os.stat_result, who: str) -> NotOursError:
    mode, owner = stat.S_IMODE(info.st_mode), safepaths.user_name(info.st_uid)
    us = safepaths.user_name(os.geteuid())
    mend = f"chmod go-w {path}" if info.st_uid in (0, os.geteuid()) else f"chown {us} {path} && chmod go-w {path}"
    if mode & stat.S_ISVTX and stat.S_ISDIR(info.st_mode):
        hint = "choose a folder of your own in it"
    else:
        hint = f"look at what is in it, then `{mend}`, or choose another folder"
    return NotOursError(f"{path} belongs to {owner} and has mode {mode:04o}: {who} may write it", hint)

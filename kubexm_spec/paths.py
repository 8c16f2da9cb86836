"""What is at a path that somebody wrote: a name that cannot be, or a folder that is closed to us, raises nothing."""

from __future__ import annotations

import errno
import os


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether something is there, as far as we may know."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises OSError for names that are too long


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is there."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is there."""
    return os.path.isdir(path)  # noqa: PTH112


def why_missing(path: str | os.PathLike[str]) -> str:
    """The end of a sentence about a file that was not found."""
    try:
        os.stat(path)  # noqa: PTH116
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return f"cannot be read: {error.strerror}"
    except ValueError:  # a NUL character in the name
        pass
    return "does not exist"

"""What is in a folder of the control node, for steps that write whole folders."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from kubexm_exec.step import StepFailed
from kubexm_steps.lib.files import local_failure

LeftOut = Callable[[str, bool], bool]
"""Says whether a name below the folder (and whether it is a folder) is left alone."""


def nothing(name: str, folder: bool) -> bool:
    """Leaves nothing out."""
    return False


class Tree(Struct, frozen=True):
    """What is in a local folder, by its path on the host."""

    path: str
    folders: dict[str, Path]
    links: dict[str, str]
    files: dict[str, Path]

    @property
    def count(self) -> int:
        """How many files and links there are."""
        return len(self.files) + len(self.links)


def read_tree(local: Path, path: str, left_out: LeftOut) -> Tree:
    """What is in a folder of the control node."""
    tree = Tree(path, {path: local}, {}, {})
    for entry in _walk(local, local, left_out):
        target = posixpath.join(path, entry.relative_to(local).as_posix())
        if entry.is_symlink():
            tree.links[target] = str(entry.readlink())
        elif entry.is_dir():
            tree.folders[target] = entry
        elif entry.is_file():
            tree.files[target] = entry
        else:
            raise StepFailed(f"copy {entry}: it is a device, pipe or socket", hint="remove it from the folder")
    return tree


def _walk(top: Path, folder: Path, left_out: LeftOut) -> Iterator[Path]:
    """Everything below, each folder before what is in it, in the same order everywhere."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise local_failure("read", folder, error) from error
    for entry in entries:
        is_folder = entry.is_dir() and not entry.is_symlink()
        if left_out(entry.relative_to(top).as_posix(), is_folder):
            continue
        yield entry
        if is_folder:
            yield from _walk(top, entry, left_out)


def permissions(local: Path) -> int:
    """Its mode without set-user-id, set-group-id and sticky bits, which are never sent to a host."""
    return stat.S_IMODE(local.stat().st_mode) & 0o777

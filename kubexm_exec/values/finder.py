"""Finds templates: the user's folders come first, then the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from kubexm_exec.values.names import ExpressionError
from kubexm_spec.paths import is_file
from kubexm_spec.shipped import shipped_root

VARIABLE = "KUBEXM_TEMPLATES"
"""Environment variable with more folders of templates, separated as in PATH."""
_MOST_NAMES = 5000
"""A spec in a home folder must not make a suggestion walk the whole disk."""


class Trimming(Struct, frozen=True):
    """What is removed around the blocks of a template, as Jinja2 calls it; the defaults are those of Ansible."""

    trim_blocks: bool = True
    """The line break after a block (``{% %}``) or a comment."""
    lstrip_blocks: bool = False
    """White space before a block at the beginning of its line."""


TRIMMING: Final = Trimming()
"""What is removed unless a step says otherwise."""


class TemplateFinder:
    """Looks a template's name up in some folders; the first one that has it wins."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders: tuple[Path, ...] = tuple(dict.fromkeys(folders))

    @classmethod
    def for_spec(cls, base: str | Path, extra: Iterable[str | Path] = ()) -> TemplateFinder:
        """The folders for a spec that lies in ``base``: its own, given ones, the environment's, the shipped ones."""
        folder = Path(base)
        from_environment = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
        more = [Path(part).expanduser() for part in (*extra, *from_environment)]
        return cls([folder / "templates", folder, *more, shipped_root("templates")])

    def find(self, name: str) -> Path | None:
        """The file behind a name, or None; a name that climbs out of the folders is never found."""
        if not is_inside(name):
            return None
        for folder in self.folders:
            path = folder / name
            if is_file(path):
                return path
        return None

    def names(self) -> list[str]:
        """Names that exist, for suggestions; of very large folders only some."""
        found: set[str] = set()
        for folder in self.folders:
            for path in _files(folder):
                if len(found) >= _MOST_NAMES:
                    break
                found.add(path.relative_to(folder).as_posix())
        return sorted(found)


def is_inside(name: str) -> bool:
    """Whether a name stays below the folder it is looked up in."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root, name) for name in sorted(files) if not name.startswith("."))


def read_template(name: str, path: Path) -> tuple[str, int]:
    """The text of a template, and when it was changed; raises ExpressionError."""
    try:
        changed = path.stat().st_mtime_ns
        return path.read_text(encoding="utf-8"), changed
    except UnicodeDecodeError as error:
        raise ExpressionError(f"template {name}: {path} is not UTF-8 text") from error
    except OSError as error:
        raise ExpressionError(f"template {name}: {error.strerror or error}") from error


def is_unchanged(path: Path, since: int) -> bool:
    """Whether a template is still the one that was read."""
    try:
        return path.stat().st_mtime_ns == since
    except OSError:
        return False

"""SSH configuration files with `Include`, which paramiko does not know: one text with all that is included."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kubexm_exec.model.errors import ConnectorError

_DEEPEST: Final = 16
"""As deep as ssh goes; a file that includes itself ends there."""
_SETTING: Final = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")

Block = tuple[str, ...]
"""Conditions of `Match` that all hold for the lines below; none of them: they are for all hosts."""


def config_text(path: Path) -> str:
    """A file's text, with what it includes in the place of each `Include`; OSError if it cannot be read.

    Names that are not absolute are looked for beside the file, also those in files that it includes.
    """
    return "\n".join(_lines(path, (), path.parent, 0))


def _lines(path: Path, within: Block, base: Path, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ConnectorError(f"{path} is included by files that include each other; correct `Include` in {base}")
    block = within
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read()
    for line in text.split("\n"):
        setting = _SETTING.match(line.strip())
        keyword, value = (setting[1].lower(), setting[2]) if setting else ("", "")
        if keyword == "include":
            for each in _included(value, path, base):
                yield from _lines(each, block, base, depth + 1)
                # The last block of what was included ends with it.
                yield _header(block)
        elif keyword in ("host", "match"):
            block = (*within, *_conditions(keyword, value))
            yield _header(block) if within else line
        else:
            yield line


def _included(value: str, path: Path, base: Path) -> Iterator[Path]:
    """The files that are meant and are there, in the order in which ssh reads them."""
    try:
        patterns = shlex.split(value, comments=True)
    except ValueError as error:
        raise ConnectorError(f"{path}: Include {value} cannot be read: {str(error).lower()}; correct it") from error
    for pattern in patterns:
        # pathlib's own glob would also find what begins with a dot, such as what an editor leaves behind.
        found = glob.glob(str(Path(pattern).expanduser()), root_dir=base)  # noqa: PTH207
        yield from (base / name for name in sorted(found) if (base / name).is_file())


def _conditions(keyword: str, value: str) -> Block:
    """A block's head as conditions of `Match`: several of those can hold at once, of `Host` there is one."""
    if keyword == "host":
        return (f"originalhost {','.join(value.split())}",)
    words = value.lower().split()
    if words[-1] == "all" and {"canonical", "final"}.issuperset(words[:-1]):
        # It has to stand alone, and says nothing.
        return tuple(words[:-1])
    return (value,)


def _header(block: Block) -> str:
    return f"Match {' '.join(block)}" if block else "Host *"

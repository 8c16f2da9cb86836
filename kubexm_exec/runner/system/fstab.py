"""The text of /etc/fstab: changed line by line, so that comments and all other lines stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

FSTAB: Final = "/etc/fstab"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_ODD: Final = re.compile(r"[\s\\]")


class FstabLine(Struct, frozen=True):
    """An entry."""

    src: str
    path: str
    fstype: str
    options: str = "defaults"
    dump: int = 0
    passno: int = 0

    def text(self) -> str:
        """The line of the entry."""
        fields = (escape(self.src), escape(self.path), self.fstype, escape(self.options))
        return f"{' '.join(fields)} {self.dump} {self.passno}"

    @property
    def is_swap(self) -> bool:
        """Whether it is swap space, which has no mount point."""
        return self.fstype == "swap"


def escape(field: str) -> str:
    """A field as it is in the file, with octal escapes for blanks and backslashes."""
    return _ODD.sub(lambda found: f"\\{ord(found[0]):03o}", field)


def unescape(field: str) -> str:
    """The value of a field of fstab or mountinfo."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def parse_line(line: str) -> FstabLine | None:
    """The entry of a line; None for comments, empty and invalid lines."""
    fields = line.split()
    if len(fields) < 3 or fields[0].startswith("#"):
        return None
    numbers = [int(field) if field.isdigit() else 0 for field in fields[4:6]] + [0, 0]
    options = unescape(fields[3]) if len(fields) > 3 else "defaults"
    return FstabLine(unescape(fields[0]), unescape(fields[1]), fields[2], options, numbers[0], numbers[1])


def fstab_lines(text: str) -> Iterator[FstabLine]:
    """All entries."""
    for line in text.splitlines():
        said = parse_line(line)
        if said is not None:
            yield said


def mounts_at(text: str, path: str) -> list[FstabLine]:
    """The entries of a mount point."""
    return [line for line in fstab_lines(text) if is_at(line, path)]


def is_at(line: FstabLine, path: str) -> bool:
    """Whether an entry is that of a mount point."""
    return not line.is_swap and line.path.rstrip("/") == path.rstrip("/")


def edited(text: str, change: Callable[[FstabLine], FstabLine | str | None]) -> str:
    """The text with each entry changed: to another entry, to a literal text, or removed by None.

    An entry that is equal afterwards keeps its line, to the last blank.
    """
    new: list[str] = []
    for raw in text.splitlines(keepends=True):
        said = parse_line(raw)
        made = said if said is None else change(said)
        if said is None or made == said:
            new.append(raw)
        elif made is not None:
            new.append(f"{made.text() if isinstance(made, FstabLine) else made}\n")
    return "".join(new)


def appended(text: str, line: FstabLine) -> str:
    """The text with one more entry at its end."""
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line.text()}\n"

"""The text of /etc/fstab: read and changed line by line, so that comments and other people's lines stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

FSTAB: Final = "/etc/fstab"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_ODD: Final = re.compile(r"[\s\\]")


class FstabLine(Struct, frozen=True):
    """What one line says."""

    src: str
    path: str
    fstype: str
    options: str = "defaults"
    dump: int = 0
    passno: int = 0

    def text(self) -> str:
        """The line."""
        fields = (escape(self.src), escape(self.path), self.fstype, escape(self.options))
        return f"{' '.join(fields)} {self.dump} {self.passno}"

    @property
    def is_swap(self) -> bool:
        """Whether it is about swap space, which has no mount point."""
        return self.fstype == "swap"


def escape(field: str) -> str:
    """A field as it stands in the file: blanks and backslashes by their octal numbers."""
    return _ODD.sub(lambda found: f"\\{ord(found[0]):03o}", field)


def unescape(field: str) -> str:
    """What a field of fstab or of mountinfo means."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def parse_line(line: str) -> FstabLine | None:
    """What a line says; None for comments, empty lines and what is none."""
    fields = line.split()
    if len(fields) < 3 or fields[0].startswith("#"):
        return None
    numbers = [int(field) if field.isdigit() else 0 for field in fields[4:6]] + [0, 0]
    options = unescape(fields[3]) if len(fields) > 3 else "defaults"
    return FstabLine(unescape(fields[0]), unescape(fields[1]), fields[2], options, numbers[0], numbers[1])


def fstab_lines(text: str) -> Iterator[FstabLine]:
    """What all lines say."""
    for line in text.splitlines():
        said = parse_line(line)
        if said is not None:
            yield said


def mounts_at(text: str, path: str) -> list[FstabLine]:
    """The lines about a mount point."""
    return [line for line in fstab_lines(text) if is_at(line, path)]


def is_at(line: FstabLine, path: str) -> bool:
    """Whether a line is about a mount point."""
    return not line.is_swap and line.path.rstrip("/") == path.rstrip("/")


def edited(text: str, change: Callable[[FstabLine], FstabLine | str | None]) -> str:
    """The text with each line that says something changed: another line, a literal text, or None to take it out.

    A line that says the same as before is left as it is, to the last blank.
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
    """The text with one more line at its end."""
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line.text()}\n"

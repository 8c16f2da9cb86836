"""Reads pages of documentation: their fenced blocks, and what the marks on a block ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = (
    "spec-reference.md",
    "cluster-reference.md",
    "versions-reference.md",
    "step-reference.md",
    "step-kit.md",
    "cli.md",
)
ANSIBLE = "ansible"
"""The mark of a block that is Ansible's: ``plays``, or ``tasks`` of one."""

_FENCE = re.compile(r"^(\s*)(`{3,})\s*(.*)$")
_REASON = re.compile(r"<!--\s*not run:\s*(.*?)\s*-->")


class PageError(Exception):
    """A block that nobody would run and nobody excused."""


@dataclass(slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    marks: dict[str, str]
    text: str
    reason: str = ""
    """Why it is not run, if it is not."""

    @property
    def where(self) -> str:
        """Page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(slots=True)
class Command:
    """A command of a console block, with the output that the page shows."""

    text: str
    expected: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """All pages that people read."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text("utf-8").splitlines()
    number, reason = 0, ""
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            excuse = _REASON.search(lines[number])
            if excuse is not None or lines[number].strip():
                reason = excuse[1] if excuse is not None else ""
            number += 1
            continue
        indent, fence, info = opened.groups()
        end = number + 1
        while lines[end].strip() != fence:
            end += 1
        text = "".join(f"{line.removeprefix(indent)}\n" for line in lines[number + 1 : end])
        words = info.split()
        marks = dict(word.partition("=")[::2] for word in words[1:])
        yield Block(page, number + 1, words[0] if words else "", marks, text, reason)
        number, reason = end + 1, ""


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends with a backslash goes on in the next one."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if found and found[-1].text.endswith("\\\n") and line.startswith("> "):
            found[-1].text += line[2:] + ("\n" if line.endswith("\\") else "")
        elif line.startswith("$ "):
            found.append(Command(line[2:] + ("\n" if line.endswith("\\") else "")))
        elif found:
            found[-1].expected.append(line)
        else:
            raise PageError(f"{block.where}: output without a command")
    return found


def rewrite(page: Path, changed: dict[int, str]) -> None:
    """Put new texts into blocks, found by their lines."""
    lines = page.read_text("utf-8").splitlines()
    for line, text in sorted(changed.items(), reverse=True):
        fence = _FENCE.match(lines[line - 1])
        assert fence is not None
        end = line
        while lines[end].strip() != fence[2]:
            end += 1
        lines[line:end] = [f"{fence[1]}{each}".rstrip() for each in text.splitlines()]
    page.write_text("\n".join(lines) + "\n", "utf-8")

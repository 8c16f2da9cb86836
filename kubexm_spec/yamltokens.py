"""The tokens of a YAML text with their offsets, and the comments between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_SILENT: Final = frozenset({"StreamStart", "BlockMappingStart", "BlockSequenceStart", "BlockEnd"})


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind (the library's class name without "Token"), where it is, and a scalar's style."""

    kind: str
    start: int
    end: int
    style: str = ""

    @property
    def visible(self) -> bool:
        """Whether it is there in the text: the marks of block structure and of implicit keys are not."""
        return self.end > self.start and self.kind not in _SILENT


def scan(text: str) -> Iterator[Token]:
    """The tokens of a text that can be loaded, up to and with the end of the stream."""
    for token in _raw_tokens(text):
        kind = type(token).__name__.removesuffix("Token")
        yield Token(kind, token.start_mark.index, token.end_mark.index, getattr(token, "style", None) or "")


def comments(text: str) -> list[tuple[int, str]]:
    """The comments of a text with their offsets; not those after the mark of a block scalar."""
    found = list[tuple[int, str]]()
    at = 0
    for token in scan(text):
        if token.visible or token.kind == "StreamEnd":
            offset = at
            for piece in text[at : token.start if token.visible else len(text)].split("\n"):
                if piece.strip().startswith("#"):
                    found.append((offset + piece.index("#"), piece.strip()))
                offset += len(piece) + 1
            at = token.end
    return found


def _raw_tokens(text: str) -> Iterator[Any]:
    try:
        from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # no compiled parser for this Python
        from ruamel.yaml import YAML

        yield from YAML(typ="safe", pure=True).scan(text)
        return
    parser = CParser(text)
    while (token := parser.get_token()) is not None:
        yield token
        if type(token).__name__ == "StreamEndToken":
            return

"""The tokens of a YAML text with their offsets, and the comments between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_SILENT: Final = frozenset({"StreamStart", "BlockMappingStart", "BlockSequenceStart", "BlockEnd"})


class Token(NamedTuple):
    """A token: its kind (the library's class name without "Token"), its range, and the style of a scalar."""

    kind: str
    start: int
    end: int
    style: str
    visible: bool  # whether it is there in the text: the marks of block structure and of implicit keys are not


def scan(text: str) -> Iterator[Token]:
    """The tokens of a text that can be loaded, up to and with the end of the stream."""
    for token in _raw_tokens(text):
        kind = type(token).__name__[:-5]
        start, end = token.start_mark.index, token.end_mark.index
        style = (token.style or "") if kind == "Scalar" else ""
        yield Token(kind, start, end, style, end > start and kind not in _SILENT)


def comments(text: str) -> list[tuple[int, str]]:
    """The comments of a text with their offsets; not those after the mark of a block scalar."""
    found = list[tuple[int, str]]()
    at = 0
    for token in scan(text):
        if not token.visible and token.kind != "StreamEnd":
            continue
        end = token.start if token.visible else len(text)
        while (mark := text.find("#", at, end)) >= 0:  # between tokens there is nothing but comments and space
            stop = text.find("\n", mark, end)
            at = end if stop < 0 else stop
            found.append((mark, text[mark:at].rstrip()))
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

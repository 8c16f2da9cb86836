"""Text in pictures: how wide it is, how it is cut, and how it is escaped."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from kubexm_spec.diagnostics import plural

# Widths of printable ASCII in thousandths of an em, of DejaVu Sans: the widest of the common sans-serif fonts, so that
# what fits by this table fits in every other one.
_ASCII = (
    "318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 "
    "636 636 636 636 636 636 636 636 636 636 337 337 838 838 838 531 "
    "1000 684 686 698 770 632 575 775 752 295 295 656 557 863 748 787 603 787 695 635 611 "
    "732 684 989 685 611 685 390 337 390 838 500 "
    "500 613 635 550 635 615 352 635 634 278 278 579 278 974 634 612 635 635 411 521 392 "
    "634 592 818 592 592 525 636 337 636 838"
)
_WIDTHS = tuple(int(width) for width in _ASCII.split())
_BOLD = 1.16
_OTHER = 700  # Latin with accents, Greek, Cyrillic: a little wider than the mean
_WIDE = 1050  # CJK and emoji

# What XML 1.0 does not allow, lone surrogates too, and the marks that would reorder what is written after them.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_ESCAPED = re.compile("[&<>\"']")


def clean(text: str) -> str:
    """The text without characters that no document may hold; each becomes U+FFFD."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def escape(value: object) -> str:
    """Any value as text that is safe in XML and HTML, between tags and in quoted attributes."""
    return _ESCAPED.sub(lambda found: _ENTITIES[found[0]], clean(str(value)))


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(clean(text).split())


@lru_cache(maxsize=4096)
def _advance(character: str) -> int:
    code = ord(character)
    if 32 <= code < 127:
        return _WIDTHS[code - 32]
    if unicodedata.combining(character) or code in (0x200B, 0x200C, 0x200D, 0xFE0E, 0xFE0F):
        return 0
    if unicodedata.east_asian_width(character) in "WF" or code >= 0x1F000:
        return _WIDE
    if unicodedata.category(character).startswith(("S", "P")):
        return 1000 if character in "…—" else 840
    return _OTHER if code < 0x2000 else _WIDE


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """How many pixels wide the text is, at most, in a sans-serif font of that size."""
    return sum(map(_advance, text)) * size * (_BOLD if bold else 1.0) / 1000


def fit(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """The text on one line, cut in the middle if it is too wide: long names mostly differ at their end."""
    text = one_line(text)
    if text_width(text, size, bold=bold) <= width:
        return text
    room = width - text_width("…", size, bold=bold)
    tail = _prefix(text[::-1], room * 0.4, size, bold)[::-1]
    head = _prefix(text, room - text_width(tail, size, bold=bold), size, bold)
    return f"{head.rstrip()}…{tail.lstrip()}"


def _prefix(text: str, room: float, size: float, bold: bool) -> str:
    used = 0.0
    for index, character in enumerate(text):
        used += text_width(character, size, bold=bold)
        if used > room:
            return text[:index]
    return text


def hosts_text(hosts: tuple[str, ...]) -> str:
    """``3 hosts``, or the name if there is one."""
    return hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")

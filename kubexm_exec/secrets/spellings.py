"""Finds secrets that were encoded as a whole (hex, base32, UTF-16, quotes in quotes, one encoding of another).

A pattern of all these spellings would be many times as large as the one of ``_forms``. Each spelling is a plain byte
string here, known by its first bytes: a text is looked at in steps of ``_STRIDE``, so that its length alone decides how
long that takes, however many secrets there are and however long they are.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import urllib.parse
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

_GRAM: Final = 8
_STRIDE: Final = 8
SURE: Final = _GRAM + _STRIDE - 1
"""A spelling that is not shorter is found wherever it stands, and so much of one that was cut off; others are for a
pattern."""
_DEEP: Final = 512
"""Longer values are looked for in one encoding only, not in one inside another."""
_BLOCK: Final = 1024
"""Pieces of long spellings are found if they hold the beginning of such a block."""
_BITS: Final = 28
_OFFSET: Final = (1 << _BITS) - 1
_ALIKE: Final = 64
"""More spellings that have the same bytes are not told apart."""
_APART: Final = 16 * 1024
_BLANK: Final = re.compile(rb"(?:\s|\\{1,8}[nrt]){1,40}")
"""What may stand inside a spelling where it was wrapped."""
_WRAPPED: Final = re.compile(rb"(?:\s|\\{1,8}[nrt]){0,40}\\{0,8}")
_SAFE: Final = re.compile(rb"([^A-Za-z0-9_])")

Encoder = Callable[[bytes], Iterable[bytes]]


def _html(text: str) -> str:
    import html

    return html.escape(text)


def _text(encode: Callable[[str], str]) -> Encoder:
    def encoder(data: bytes) -> Iterable[bytes]:
        return (encode(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"),)

    return encoder


def _each(before: str, *, upper: bool = False) -> Encoder:
    """The digits of every byte, each behind the same."""

    def encoder(data: bytes) -> Iterable[bytes]:
        digits = data.hex("%").upper() if upper else data.hex("%")
        return (f"%{digits}".replace("%", before).encode(),)

    return encoder


def _base64(data: bytes) -> Iterator[bytes]:
    """What is the same in base64 whatever stands before and after the data, for each of the three alignments."""
    for offset, unsure in ((0, 0), (1, 2), (2, 3)):
        over = (offset + len(data)) % 3
        text = base64.b64encode(bytes(offset) + data)
        core = text[unsure : len(text) - (4 if over else 0) + over]
        yield core
        if b"+" in core or b"/" in core:
            yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _base32(data: bytes) -> Iterator[bytes]:
    # The library takes half a second for a megabyte: of such values only the one that begins a text.
    return _base32_behind(data, 5 if len(data) <= _DEEP else 1)


def _base32_behind(data: bytes, offsets: int = 1) -> Iterator[bytes]:
    for offset, unsure in enumerate((0, 2, 4, 5, 7)[:offsets]):
        text = base64.b32encode(bytes(offset) + data)
        yield text[unsure : (offset + len(data)) * 8 // 5]


def _utf16(data: bytes) -> Iterator[bytes]:
    text = data.decode("utf-8", "surrogateescape")
    if text.isascii():
        # But for the NUL in front or behind the bytes are the same in both orders.
        yield text.encode("utf-16-le")[:-1]
        return
    for order in ("utf-16-le", "utf-16-be"):
        yield text.encode(order, "surrogatepass")


def _cases(data: bytes) -> tuple[bytes, ...]:
    if data.isascii():
        return data.upper(), data.lower()
    text = data.decode("utf-8", "surrogateescape")
    return tuple(case.encode("utf-8", "surrogateescape") for case in (text.upper(), text.lower()))


def _json(data: bytes) -> Iterator[bytes]:
    text = data.decode("utf-8", "surrogateescape")
    yield json.dumps(text)[1:-1].encode()
    if not data.isascii():
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")


def _url(text: str) -> str:
    return urllib.parse.quote(text, safe="", errors="surrogateescape")


_QUOTED: Final[dict[str, Encoder]] = {
    "json": _json,
    "url": _text(_url),
    "url path": _text(lambda text: _url(text).replace("%2F", "/")),
    "url form": _text(lambda text: _url(text).replace("%20", "+")),
    "shell": _text(lambda text: shlex.quote(text).strip("'") if text else text),
    "backslashes": lambda data: (_SAFE.sub(rb"\\\1", data),),
    "html": _text(_html),
}
"""What changes nothing but special characters."""
_WHOLE: Final[dict[str, Encoder]] = {
    "hex": lambda data: (data.hex().encode(),),
    "base64": _base64,
    "base32": _base32_behind,
    "utf-16": _utf16,
    "cases": _cases,
}
"""What changes all of it."""
_ONCE: Final[dict[str, Encoder]] = {
    **_WHOLE,
    "base32": _base32,
    "base32 in small letters": lambda data: (text.lower() for text in _base32(data)),
    "PERCENT": _each("%", upper=True),
    "HEX": lambda data: (data.hex().upper().encode(),),
    "hex with blanks": lambda data: (data.hex(":").encode(), data.hex(" ").encode()),
    "bytes": _each("\\x"),
    "code points": _each("\\u00"),
}
"""What is looked for neither inside another encoding nor around one."""


def spellings(value: bytes) -> set[bytes]:
    """A value in every encoding, and if it is not long, in an encoding of an encoding, and in JSON three deep."""
    quoted = _encoded([value], _QUOTED)
    percent = _each("%")(value)
    found = _encoded([value], _ONCE).union(quoted, percent)
    if len(value) <= _DEEP:
        inner = _encoded([value], _WHOLE).union(quoted, percent) - {value}
        found |= _encoded(inner, _WHOLE)
        found |= _encoded([once for once in inner if not once.isalnum()], _QUOTED)
        # Quotes stand before what is quoted; other encodings begin the text that is encoded once more.
        found |= _encoded(quoted, {"base32": _base32})
        deep = value
        for _ in range(3):
            deep, *_ = _json(deep)
        found.add(deep)
    return found


def _encoded(texts: Iterable[bytes], encoders: Mapping[str, Encoder]) -> set[bytes]:
    return {encoded for text in texts for encode in encoders.values() for encoded in encode(text)}


_Seen: TypeAlias = dict[tuple[int, int], tuple[int, int, tuple[int, int]]]
"""By the number of a text and how far it is shifted in the data: its lines that were found, and its whole extent."""


class Spelled:
    """All spellings of all secrets; find them in a text, and what the end of a text may cut off."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._seen: set[bytes] = set()
        # Plain numbers, and lists only where several spellings have the same bytes: that is much quicker to learn.
        self._grams: dict[bytes, int] = {}
        self._alike: dict[bytes, list[int]] = {}
        self._begun: list[bytes] = []
        self._apart: set[int] = set()
        self._sorted = True

    def add(self, text: bytes, *, apart: bool = False) -> None:
        """Look for this byte string from now on; it must have ``SURE`` bytes.

        ``apart``: also for what begins in the middle of it, since other lines may be between its pieces.
        """
        if text in self._seen:
            return
        self._seen.add(text)
        number = len(self._texts) << _BITS
        self._texts.append(text)
        apart = apart and len(text) <= _APART
        if apart:
            self._apart.add(len(self._texts) - 1)
        # Of what is apart also its last bytes, which may stand alone.
        end = len(text) - (_GRAM if apart else SURE) + 1
        for start in range(0, end, _STRIDE if apart else max(_BLOCK, len(text) // 64)):
            if not self._know(text, number, start) and len(text) >= start + _STRIDE + SURE:
                self._know(text, number, start + _STRIDE)  # too many begin like this
        self._begun += [text[at : at + SURE - 1] for at in range(len(text))] if apart else (text[: SURE - 1],)
        self._sorted = False

    def _know(self, text: bytes, number: int, start: int) -> bool:
        """Know the text by its bytes from ``start`` on; False if too many others have the same there."""
        grams, known = self._grams, True
        for at in range(start, start + _STRIDE):
            gram = text[at : at + _GRAM]
            if grams.setdefault(gram, number | at) != number | at:
                alike = self._alike.setdefault(gram, [])
                known = len(alike) < _ALIKE
                if known:
                    alike.append(number | at)
        return known

    def regions(self, data: bytes) -> list[tuple[int, int]]:
        """Where spellings are, or long pieces of them, from left to right."""
        grams, found = self._grams, list[tuple[int, int]]()
        seen: _Seen = {}
        for at in range(0, len(data) - _GRAM + 1, _STRIDE):
            gram = data[at : at + _GRAM]
            if gram not in grams:
                continue
            known = (grams[gram], *self._alike.get(gram, ()))
            extents = (self._extent(data, at, one >> _BITS, one & _OFFSET, seen) for one in known)
            start, stop = min(extents, key=lambda one: one[0] - one[1])
            if stop - start < SURE:
                continue
            # Two spellings are alike where nothing had to be escaped: what one has found of the other is a piece only.
            while found and start < found[-1][1]:
                before = found.pop()
                start, stop = min(start, before[0]), max(stop, before[1])
            found.append((start, stop))
        return found

    def _extent(self, data: bytes, at: int, number: int, offset: int, seen: _Seen) -> tuple[int, int]:
        """How far a text goes on around a place; what another place of the same run has found is not sought again."""
        line = seen.get((number, at - offset))
        if line is not None and line[0] <= at < line[1]:
            return line[2]
        text = self._texts[number]
        size = _common(data[max(0, at - offset) : at][::-1], text[max(0, offset - at) : offset][::-1])
        start, stop = at - size, at
        if size < offset and len(text) <= _BLOCK and number not in self._apart:
            return at, at  # what looks like its middle is of another form, and masked with that
        lines: list[tuple[int, int, int]] = []
        while True:
            rest = len(text) - offset
            size = _common(data[stop : stop + rest], text[offset:])
            lines.append((stop - offset, stop if lines else start, stop + size))
            stop, offset = stop + size, offset + size
            blank = _BLANK.match(data, stop) if size and offset < len(text) else None
            if blank is None or not data.startswith(text[offset : offset + 1], blank.end()):
                break
            stop = blank.end()
        for shift, first, last in lines:
            seen[number, shift] = first, last, (start, stop)
        return start, stop

    def held(self, data: bytes, regions: list[tuple[int, int]]) -> int:
        """From where on the end of the data may be the beginning of a spelling; its length if nothing may."""
        if regions and regions[-1][1] == len(data):
            return regions[-1][0]
        if regions and _WRAPPED.fullmatch(data, regions[-1][1]):
            return regions[-1][0]  # wrapped just here
        first = max(0, len(data) - SURE + 1, regions[-1][1] if regions else 0)
        return next((at for at in range(first, len(data)) if self._begins(data[at:])), len(data))

    def _begins(self, tail: bytes) -> bool:
        if not self._sorted:
            self._begun.sort()
            self._sorted = True
        at = bisect_left(self._begun, tail)
        return at < len(self._begun) and self._begun[at].startswith(tail)


def _common(one: bytes, other: bytes) -> int:
    """How many bytes at the beginning are the same."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    low, high = 0, size
    while low < high:  # how much is the same up to there
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low

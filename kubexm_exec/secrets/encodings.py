"""The forms of a secret in output (raw, escaped, quoted, encoded), as byte patterns that detect truncation."""

from __future__ import annotations

import base64
import json
import re
import shlex
import urllib.parse
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from msgspec import Struct

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


def _as_base64(data: bytes) -> Iterator[bytes]:
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
    "base64": _as_base64,
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


def likely_spellings(value: bytes) -> set[bytes]:
    """A long value in those encodings that files with keys are put into: a twentieth of the work of ``spellings``."""
    return _encoded([value], {"base64": _as_base64, "url": _QUOTED["url"], "json": _json})


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
        """Look for this byte string of at least ``SURE`` bytes; ``apart``: also for its parts, between other lines."""
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


SHORTEST_LINE: Final = 8
"""Lines of a multi-line secret that are shorter are only masked together with the rest of it."""
SHORTEST_PIECE: Final = 6
"""Pieces of a secret that are shorter are only masked together with the rest of it."""
_PLAIN: Final = re.compile(r"[\w.~-]+", re.ASCII)
"""Nothing of this is ever escaped."""
_WORD: Final = re.compile(r"[^\W\d_]+|[\d.:-]+|[A-Za-z.-]+")
_TOKEN: Final = 64
"""A value of so many characters without blanks is likely to be folded, or cut off, by whatever shows it."""
COMPARED: Final = 48
"""So many characters of base64 are compared; as many as the rest has are masked after them, whatever they are."""
_HEAD: Final = 4
_INDENT: Final = 40
_PEM_BORDER: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
_ENTITIES: Final = {
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
    '"': ("&quot;", "&#34;"),
    "'": ("&#39;", "&#x27;", "&apos;"),
}
_SHELL: Final = {"'": ("'\\''", "'\"'\"'", "''")}
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\0": "0"}
_SURE: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_ALPHABET: Final = _SURE + b"+/"


class Texts(Struct, frozen=True):
    """One of these byte strings, the longest that fits first."""

    texts: tuple[bytes, ...]

    @property
    def regex(self) -> bytes:
        """The pattern of it."""
        if len(self.texts) == 1:
            return re.escape(self.texts[0])
        return b"(?:" + b"|".join(map(re.escape, self.texts)) + b")"

    @property
    def most(self) -> int:
        """The longest it can be."""
        return max(map(len, self.texts))

    def ends(self, data: bytes, at: int) -> Iterator[int]:
        """Where it can end if it starts at ``at``; -1 if the data ends before it does."""
        for text in self.texts:
            if data.startswith(text, at):
                yield at + len(text)
            elif len(data) - at < len(text) and text.startswith(data[at:]):
                yield -1


class Run(Struct, frozen=True):
    """As many bytes of a set as there are, up to a limit; blanks between them do not count if ``spaced``."""

    members: bytes
    limit: int
    spaced: bool = False

    @property
    def regex(self) -> bytes:
        """The pattern of it; possessive, so that it never tries again with less."""
        each = b"[" + re.escape(self.members) + b"]"
        if self.spaced:
            return b"(?:[ \\t\\r\\n]{0,%d}+%s){0,%d}+" % (_INDENT, each, self.limit)
        return b"%s{0,%d}+" % (each, self.limit)

    @property
    def most(self) -> int:
        """The longest it can be."""
        return self.limit * (1 + _INDENT) if self.spaced else self.limit

    def ends(self, data: bytes, at: int) -> Iterator[int]:
        """Where it ends if it starts at ``at``; -1 if the data ends before it does."""
        end, spaces = at, 0
        taken = 0
        while taken < self.limit:
            here = end + spaces
            if here >= len(data):
                yield -1
                return
            if data[here] in self.members:
                end, spaces, taken = here + 1, 0, taken + 1
            elif self.spaced and data[here] in b" \t\r\n" and spaces < _INDENT:
                spaces += 1
            else:
                break
        yield end


Element: TypeAlias = Texts | Run
Form: TypeAlias = tuple[Element, ...]


def forms(value: str) -> list[Form]:
    """All forms of a secret value, its own and those of its lines, also in capitals and in small letters.

    What is written in one way only, or is looked for in pieces, has its spellings for the latter.
    """
    found = list(_base64(b"".join(map(_raw, value))))
    for case in [value] if _PLAIN.fullmatch(value) or unfolded(value) else cases(value):
        found.append(_escaped(case))
        lines = [line.strip() for line in case.splitlines()]
        if len(lines) > 1:
            found += [
                _escaped(line) for line in lines if len(line) >= SHORTEST_LINE and not _PEM_BORDER.fullmatch(line)
            ]
    return list(dict.fromkeys(found))


def cases(text: str) -> list[str]:
    """The text as it is, in capitals and in small letters."""
    return list(dict.fromkeys((text, text.upper(), text.lower())))


def literal(text: bytes) -> Form:
    """A form that is spelled in one way only."""
    return (Texts((text,)),)


def inside(value: str) -> str:
    """A key without the lines that all keys have; any other value as it is."""
    lines = value.splitlines()
    if len(lines) > 2 and _PEM_BORDER.fullmatch(lines[0].strip()):
        return "\n".join(line for line in lines if not _PEM_BORDER.fullmatch(line.strip()))
    return value


def unfolded(value: str) -> bytes:
    """The text of a key or of a long token in one line, however it is folded anew; nothing of any other value."""
    within = inside(value)
    text = "".join(within.split())
    is_token = len(text) >= _TOKEN and all(len(line.split()) == 1 for line in within.splitlines())
    return text.encode("utf-8", "surrogateescape") if within != value or is_token else b""


def pieces(value: str) -> Iterator[bytes]:
    """What libraries show of a value that they took apart (the port of an address, the name of a folder).

    A plain word is no piece: it would mask every text that has the word. Nor has a key any: what stands between its
    slashes says nothing, and would break up what is found of it where it is folded.
    """
    if inside(value) != value:
        return
    for border in (r"[/?#]", r"\s", r"[/?#@:&=,;\s]"):
        for piece in re.split(border, value) if len(value) <= 1024 else ():
            piece = piece.strip()
            if len(piece) >= SHORTEST_PIECE and piece != value and not _WORD.fullmatch(piece):
                yield from (case.encode("utf-8", "surrogateescape") for case in cases(piece))


def could_go_on(form: Form, data: bytes, at: int) -> bool:
    """Whether the end of the data cuts off a form that begins at ``at``."""
    places = {at}
    for element in form:
        ends = {end for place in places for end in element.ends(data, place)}
        if -1 in ends:
            return True
        if not ends:
            return False
        places = ends
    return False


def longest(form: Form) -> int:
    """The most bytes a form can take."""
    return sum(element.most for element in form)


def heads(form: Form) -> Iterator[tuple[bytes, bytes]]:
    """The literal beginnings of a form, one for each first byte, and the pattern of what follows each."""
    first, *rest = form
    assert isinstance(first, Texts)
    by_byte: dict[int, list[bytes]] = {}
    for text in first.texts:
        by_byte.setdefault(text[0], []).append(text)
    for byte, texts in by_byte.items():
        if len(texts) > 1:
            yield bytes([byte]), b"".join(element.regex for element in (Texts(tuple(t[1:] for t in texts)), *rest))
        elif rest and isinstance(rest[0], Texts) and len(rest[0].texts) == 1:
            yield texts[0] + rest[0].texts[0], b"".join(element.regex for element in rest[1:])
        else:
            yield texts[0], b"".join(element.regex for element in rest)


def beginnings(form: Form, size: int) -> set[bytes]:
    """The first bytes a form can have: of the given size, or less where what follows is not fixed."""
    found, open_ends = set[bytes](), {b""}
    for element in form:
        if isinstance(element, Run) or len(open_ends) * len(element.texts) > 256:
            break
        longer = {(head + text)[:size] for head in open_ends for text in element.texts}
        found |= {head for head in longer if len(head) == size}
        open_ends = longer - found
        if not open_ends:
            break
    return found | open_ends


def tree(branches: Sequence[tuple[bytes, bytes]], depth: int = 4) -> bytes:
    """One pattern of (head, rest) branches, best first; forked by first bytes, much quicker than a flat list."""
    if depth == 0 or len(branches) == 1 or not all(head for head, _ in branches):
        return b"|".join(re.escape(head) + rest for head, rest in branches)
    forks: dict[int, list[tuple[bytes, bytes]]] = {}
    for head, rest in branches:
        forks.setdefault(head[0], []).append((head[1:], rest))
    return b"|".join(re.escape(bytes([byte])) + b"(?:" + tree(fork, depth - 1) + b")" for byte, fork in forks.items())


def _raw(char: str) -> bytes:
    """The bytes of a character; those that were not UTF-8 come back as they were."""
    return bytes([ord(char) - 0xDC00]) if ("\udc80" <= char <= "\udcff") else char.encode("utf-8", "surrogatepass")


def _escaped(value: str) -> Form:
    elements: list[Element] = []
    plain = b""
    for char, group in groupby(value.replace("\r\n", "\n")):
        count = len(list(group))
        if char in " \t" and elements and isinstance(elements[-1], Run) and not plain:
            elements.pop()  # the line has an indentation of its own
        if char.isascii() and char.isalnum():
            plain += char.encode() * count
            continue
        if plain:
            elements.append(Texts((plain,)))
            plain = b""
        if char == "\n":
            elements += [_LINE_END, Run(b" \t", _INDENT)] * count
        else:
            elements.append(_one_of(encoding * count for encoding in _encodings(char)))
    if plain:
        elements.append(Texts((plain,)))
    return tuple(elements)


def _one_of(texts: Iterable[bytes]) -> Texts:
    return Texts(tuple(sorted(set(texts), key=lambda text: (-len(text), text))))


def _encodings(char: str) -> Iterator[bytes]:
    """How one character that is not a plain letter or digit can be written."""
    raw = char.encode("utf-8", "surrogatepass")
    shown = char.isascii() and char.isprintable()
    for spelling in dict.fromkeys((raw, _raw(char))):
        yield spelling
        for hexes in dict.fromkeys((spelling.hex(" "), spelling.hex(" ").upper())):
            yield b"".join(b"%" + each for each in hexes.encode().split())
            if not shown:
                yield b"".join(b"\\x" + each for each in hexes.encode().split())
                yield b"".join(b"\\\\x" + each for each in hexes.encode().split())
    utf16 = char.encode("utf-16-be", "surrogatepass").hex()
    for hexes in dict.fromkeys((utf16, utf16.upper())):
        for slashes in ("\\", "\\\\"):
            yield "".join(f"{slashes}u{hexes[i : i + 4]}" for i in range(0, len(hexes), 4)).encode()
    if not shown and ord(char) < 256:
        yield from (f"\\x{ord(char):02x}".encode(), f"\\\\x{ord(char):02x}".encode())
    if len(utf16) > 4:
        yield from (f"\\U{ord(char):08x}".encode(), f"\\U{ord(char):08X}".encode())
    if char in _SHORT:
        yield from (f"\\{_SHORT[char]}".encode(), f"\\\\{_SHORT[char]}".encode())
    if char == "\\":
        yield from (b"\\" * 2, b"\\" * 4)
    elif shown:
        yield from (b"\\" + raw, b"\\\\" + raw, b"\\\\\\" + raw)
    if char == " ":
        yield b"+"
    yield from (text.encode() for text in (*_ENTITIES.get(char, ()), *_SHELL.get(char, ())))


def _base64(data: bytes) -> Iterator[Form]:
    """For each of the three alignments: what is the same in base64 whatever stands before and after the data."""
    for offset, unsure in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(bytes(offset) + data)
        over = (offset + len(data)) % 3
        core = text[unsure : len(text) - (4 if over else 0) + over]
        last = text[len(text) - 4 + over] if over else None
        head = len(core[:_HEAD]) - len(core[:_HEAD].lstrip(_SURE))
        elements: list[Element] = [Texts(_broken(core[:head]))] if head else []
        for byte in core[head:COMPARED]:
            if elements:
                elements.append(Run(b" \t\r\n", _INDENT))
            elements.append(Texts(_base64_char(byte)))
        if len(core) > COMPARED:
            elements.append(Run(_ALPHABET + b"-_", len(core) - COMPARED + bool(over), spaced=True))
        elif last is not None:
            # The last character holds bits of the data and bits of what follows it.
            start = _ALPHABET.index(last)
            ends = _ALPHABET[start : start + (16 if over == 1 else 4)]
            elements.append(Run(b" \t\r\n", _INDENT))
            elements.append(Texts(tuple(text for byte in ends for text in _base64_char(byte))))
        yield tuple(elements)


def _broken(head: bytes) -> tuple[bytes, ...]:
    """The first characters, also with a line end among them: whole beginnings are what makes the search quick."""
    return (*(head[:i] + b"\n" + head[i:] for i in range(1, len(head))), head)


def _base64_char(byte: int) -> tuple[bytes, ...]:
    if byte == ord("+"):
        return (b"\\u002B", b"\\u002b", b"%2B", b"%2b", b"+", b"-")
    if byte == ord("/"):
        return (b"%2F", b"%2f", b"\\/", b"/", b"_")
    return (bytes([byte]),)


# A line end can have become two characters, both spelled alike.
_LINE_END: Final = _one_of([*_encodings("\n"), *map(bytes.__add__, _encodings("\r"), _encodings("\n"))])

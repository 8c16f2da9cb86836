"""Masks secret values wherever they occur: in text, bytes, nested data and streams that arrive in pieces."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from kubexm_exec.secrets.encodings import (
    SHORTEST_LINE,
    SURE,
    Form,
    Spelled,
    beginnings,
    cases,
    could_go_on,
    forms,
    heads,
    inside,
    likely_spellings,
    literal,
    longest,
    pieces,
    spellings,
    tree,
    unfolded,
)

MASK: Final = "***"
"""What is shown in place of a secret."""
SHORTEST: Final = 4
"""A shorter value would mask half of every text; it is refused."""
_CUT: Final = 8
"""So much of a secret that the end of a stream cut off is masked too."""
_LONG: Final = 4096
"""A longer value is looked for as it is and in whole encodings, not with each character escaped by itself."""
_HEAD: Final = 4
_NOTHING: Final = rb"(?!)"
_CUT_HERE: Final = re.compile("\\.{3,}|…".encode())
"""Marks of a shortened text."""

T = TypeVar("T")


class _Compiled(Struct, frozen=True):
    spelled: Spelled
    pattern: re.Pattern[bytes]
    starts: re.Pattern[bytes]
    by_head: Mapping[bytes, list[Form]]
    cut: frozenset[bytes]
    longest: int
    values: frozenset[str]


class Redactor:
    """Knows the secret values of a run and masks them in everything that goes out.

    Besides the value itself its forms in URLs, JSON, YAML, HTML, shell words and base64 are masked, and in whole
    encodings such as hex, base32 and UTF-16, also one inside another; of a value with several lines each line of 8 or
    more characters too, and of one with blanks or slashes its pieces, unless they are plain words; all of that also in
    capitals and in small letters. A key or a long token is masked also where it is folded anew or cut off. With nothing
    registered ``mask`` costs next to nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: dict[str, list[Form]] = {}
        self._spelled = Spelled()
        self._compiled: _Compiled | None = None
        self._stale = False
        self.refused = 0
        """How many values were too short to be masked, for a warning."""

    def __len__(self) -> int:
        return len(self._forms)

    def add(self, value: object) -> bool:
        """Mask this value (or all in this list or mapping) from now on; False if it is too short."""
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            items = value.values() if isinstance(value, Mapping) else value
            return not [item for item in items if not self.add(item)]
        if value is None or isinstance(value, bool):
            return True
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        text = text.strip()
        with self._lock:
            if text in self._forms:
                return True
            if len(text) < SHORTEST:
                self.refused += 1
                return False
            self._forms[text] = self._learn(text)
            self._stale = True
        return True

    def add_token(self, text: str) -> None:
        """Mask a long text without blanks, such as the private part of a key, also where it is folded or cut off.

        It has no pattern of its own, and few spellings, so that many of them cost little: it is looked for as it is, in
        base64, in URLs and in JSON.
        """
        if len(text) < SURE:
            self.add(text)
            return
        with self._lock:
            if text in self._forms:
                return
            self._forms[text] = []
            raw = text.encode("utf-8", "surrogateescape")
            self._spelled.add(raw, apart=True)
            for spelling in likely_spellings(raw):
                if len(spelling) >= SURE:
                    self._spelled.add(spelling)
            self._stale = self._stale or self._compiled is None

    def _learn(self, value: str) -> list[Form]:
        """The forms of a value for the pattern; its longer spellings are looked for by themselves."""
        found = forms(value) if len(value) <= _LONG else []
        whole = inside(value).encode("utf-8", "surrogateescape")
        folded = unfolded(value)
        if len(folded) >= SURE:
            for case in cases(folded.decode("utf-8", "surrogateescape")):
                self._spelled.add(case.encode("utf-8", "surrogateescape"), apart=True)
        spelled = spellings(whole) | set(pieces(value))
        if len(value) > _LONG:
            text = whole.decode("utf-8", "surrogateescape")
            lines = (line.strip() for case in cases(text) for line in case.splitlines())
            spelled.update(line.encode("utf-8", "surrogateescape") for line in lines)
            spelled.add(whole)
        else:
            spelled.discard(whole)
        for spelling in spelled:
            if len(spelling) >= SURE:
                self._spelled.add(spelling)
            elif len(spelling) >= SHORTEST_LINE or (len(spelling) >= SHORTEST and len(value) <= _LONG):
                found.append(literal(spelling))
        return list(dict.fromkeys(found))

    def mask(self, data: T) -> T:
        """The same data (text, bytes, lists and mappings of them) without any secret; itself if there is none in it."""
        if not self._forms:
            return data
        compiled = self._patterns()
        return data if compiled is None else _mask(data, compiled)

    def _patterns(self) -> _Compiled | None:
        if self._stale:
            with self._lock:
                self._compiled = _compile(self._forms, self._spelled)
                self._stale = False
        return self._compiled


class StreamMask:
    """Masks output that arrives in chunks: what could be the beginning of a secret is held back until it is clear."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""
        """What could become a form of a secret."""
        self._begun = b""
        """What could not, but a spelling of one; it comes before what is held."""

    def feed(self, data: bytes) -> bytes:
        """Take the next chunk and give what is safe to show."""
        compiled = self._redactor._patterns() if len(self._redactor) else None
        if compiled is None:
            data = self._begun + self._held + data
            self._held = self._begun = b""
            return data
        data = self._begun + self._without_forms(data, compiled)
        regions = compiled.spelled.regions(data)
        held = compiled.spelled.held(data, regions)
        data, self._begun = data[:held], data[held:]
        return _cut_out(data, [each for each in regions if each[1] <= held])

    def _without_forms(self, data: bytes, compiled: _Compiled) -> bytes:
        data = self._held + data
        shown: list[bytes] = []
        at = 0
        while True:
            match = compiled.pattern.search(data, at)
            held = _beginning(compiled, data, at, match.start() if match else len(data))
            if held is not None:
                shown.append(data[at:held])
                self._held = data[held:]
                return b"".join(shown)
            if match is None:
                shown.append(data[at:])
                self._held = b""
                return b"".join(shown)
            shown += (data[at : match.start()], MASK.encode())
            at = match.end()

    def flush(self) -> bytes:
        """The rest at the end of the stream; a secret that was cut off there is masked as far as it came."""
        data, begun = self._held, self._begun
        self._held = self._begun = b""
        compiled = self._redactor._patterns() if len(self._redactor) else None
        if compiled is None:
            return begun + data
        data = compiled.pattern.sub(MASK.encode(), data)
        # Masked text is no secret, so whatever could go on now is a beginning of one that never came to its end.
        held = _beginning(compiled, data, 0, len(data))
        if held is not None and len(data) - held >= _CUT:
            data = data[:held] + MASK.encode()
        data = begun + data
        return _cut_out(data, compiled.spelled.regions(data))


def _beginning(compiled: _Compiled, data: bytes, at: int, end: int) -> int | None:
    """The first place from ``at`` up to ``end`` (included) where a form begins that the end of the data cuts off."""
    place = max(at, len(data) - compiled.longest)
    while place <= end and place < len(data):
        if len(data) - place >= _HEAD:
            start = compiled.starts.search(data, place)
            edge = len(data) - _HEAD + 1  # from there on a beginning can be cut off itself
            place = min(start.start(), edge) if start else edge
            if place > end:
                break
        if data[place:] in compiled.cut:
            return place
        for size in range(1, _HEAD + 1):
            if any(could_go_on(form, data, place) for form in compiled.by_head.get(data[place : place + size], ())):
                return place
        place += 1
    return None


def _compile(known: Mapping[str, list[Form]], spelled: Spelled) -> _Compiled:
    ordered: dict[Form, None] = {}
    for value in sorted(known, key=lambda value: (-len(value), value)):
        ordered.update(dict.fromkeys(known[value]))
    # Longest first over all forms: a line of one secret may be the beginning of another.
    all_forms = sorted(ordered, key=lambda form: -longest(form))
    by_head: dict[bytes, list[Form]] = {}
    for form in all_forms:
        for head in beginnings(form, _HEAD):
            by_head.setdefault(head, []).append(form)
    return _Compiled(
        spelled,
        re.compile(tree([branch for form in all_forms for branch in heads(form)]) or _NOTHING),
        re.compile(tree([(head, b"") for head in sorted(by_head)]) or _NOTHING),
        by_head,
        frozenset(head[:size] for head in by_head for size in range(1, len(head))),
        max(map(longest, all_forms), default=0),
        frozenset(known),
    )


def _cut_out(data: bytes, regions: list[tuple[int, int]]) -> bytes:
    """The data with a mask in place of some regions."""
    if not regions:
        return data
    out: list[bytes] = []
    at = 0
    for start, stop in regions:
        out += (data[at:start], MASK.encode() if start > at or not at else b"")
        at = stop
    return b"".join([*out, data[at:]])


def _mask_bytes(data: bytes | bytearray, compiled: _Compiled) -> bytes:
    """Without secrets, and without the beginning of one that was cut off where the text was shortened."""
    masked = compiled.pattern.sub(MASK.encode(), data)
    pieces: list[bytes] = []
    at = 0
    for cut in _CUT_HERE.finditer(masked):
        before = masked[max(at, cut.start() - compiled.longest) : cut.start()]
        held = _beginning(compiled, before, 0, len(before))
        if held is not None and len(before) - held >= _CUT:
            pieces += (masked[at : cut.start() - len(before) + held], MASK.encode())
            at = cut.start()
    masked = b"".join([*pieces, masked[at:]]) if pieces else bytes(masked)
    return _cut_out(masked, compiled.spelled.regions(masked))


def _mask(data: Any, compiled: _Compiled) -> Any:
    if isinstance(data, str):
        raw = data.encode("utf-8", "surrogatepass")
        masked = _mask_bytes(raw, compiled)
        if masked == raw:
            return data
        try:
            return masked.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a secret that is not UTF-8 ended inside a character
            return masked.decode("utf-8", "replace")
    if isinstance(data, (bytes, bytearray)):
        masked = _mask_bytes(data, compiled)
        return data if masked == data else masked
    if isinstance(data, Mapping):
        pairs = {_mask(key, compiled): _mask(value, compiled) for key, value in data.items()}
        same = all(key in data and data[key] is value for key, value in pairs.items())
        return data if same and len(pairs) == len(data) else pairs
    if isinstance(data, (list, tuple, set, frozenset)):
        items = [_mask(item, compiled) for item in data]
        if all(new is old for new, old in zip(items, data, strict=True)):
            return data
        # A named tuple takes its fields one by one.
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    if isinstance(data, (int, float)) and not isinstance(data, bool) and str(data) in compiled.values:
        return MASK
    return data

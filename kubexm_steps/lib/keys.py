"""Lines of a file of authorized keys: read, checked and put together again."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_TYPES: Final = re.compile(
    r"(ssh-(rsa|ed25519|ed448)|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com|[a-z0-9-]+-cert-v01@openssh\.com)"
)
# Quotes keep blanks together; a quote inside is escaped.
_WORD: Final = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^\s"])+)(?:\s+|$)')
_OPTION: Final = re.compile(r'[A-Za-z0-9-]+(="(?:[^"\\]|\\.)*")?')


class Key(Struct, frozen=True):
    """A key that lets somebody in."""

    kind: str
    body: str
    comment: str = ""
    options: str = ""

    @property
    def line(self) -> str:
        """The line of the file."""
        return " ".join(part for part in (self.options, self.kind, self.body, self.comment) if part)

    def same(self, other: Key) -> bool:
        """Whether it is the same key, whatever stands around it."""
        return (self.kind, self.body) == (other.kind, other.body)


def read(line: str) -> Key | None:
    """The key in a line of a file; None for comments, blank lines and what is none."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    words: list[str] = []
    while text and len(words) < 3:
        found = _WORD.match(text)
        if found is None:
            return None
        words.append(found[1])
        text = text[found.end() :]
        if _TYPES.fullmatch(words[0]):
            if len(words) == 2:
                return Key(words[0], words[1], text)
        elif len(words) == 2 and not _TYPES.fullmatch(words[1]):
            return None
    return Key(words[1], words[2], text, words[0]) if len(words) == 3 else None


def parse(text: str, number: int = 1) -> list[Key]:
    """The keys in a text, one a line; ValueError, which repeats none of it, if one is no key."""
    if "PRIVATE KEY" in text:
        raise ValueError("this is a private key: take the one line of its public half, from the file that ends in .pub")
    keys = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = read(line)
        if key is None:
            raise ValueError(f"key {number} is not a public key: write its type, its text and a comment, on one line")
        _check(key, number)
        check_options(key.options)
        keys.append(key)
        number += 1
    return keys


def _check(key: Key, number: int) -> None:
    try:
        raw = base64.b64decode(key.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"key {number} ({key.kind}) is damaged: its text is not base64") from error
    length = int.from_bytes(raw[:4], "big")
    if len(raw) < 4 + length or raw[4 : 4 + length].decode("ascii", "replace") != key.kind:
        raise ValueError(f"key {number} is damaged: its text is not that of a key of type {key.kind}")


def check_options(text: str) -> str:
    """Options as they stand before a key, separated by commas; ValueError if they cannot."""
    rest = text
    while rest:
        found = _OPTION.match(rest)
        if found is None or (found.end() < len(rest) and rest[found.end()] != ","):
            raise ValueError(f'{text!r} are no options of a key: write them as in no-pty,from="10.0.0.0/8"')
        rest = rest[found.end() + 1 :]
    return text


def with_keys(text: str, wanted: Sequence[Key], *, exclusive: bool) -> str:
    """The text of a file with these keys in it, each once; with ``exclusive`` with no others."""
    missing = list(wanted)
    lines: list[str] = []
    for line in text.splitlines():
        key = read(line)
        if key is None:
            if not exclusive or not line.strip() or line.lstrip().startswith("#"):
                lines.append(line)
            continue
        want = next((one for one in wanted if one.same(key)), None)
        if want is None:
            if not exclusive:
                lines.append(line)
        elif want in missing:
            missing.remove(want)
            # A key without a comment keeps the one that it has.
            new = want if want.comment else replace(want, comment=key.comment)
            lines.append(line if new == key else new.line)
    lines += [key.line for key in missing]
    if lines == text.splitlines():
        return text
    return "\n".join(lines) + "\n" if lines else ""


def without_keys(text: str, unwanted: Sequence[Key]) -> str:
    """The text of a file without these keys."""
    lines = text.splitlines()
    kept = [line for line in lines if (key := read(line)) is None or not any(key.same(one) for one in unwanted)]
    if len(kept) == len(lines):
        return text
    return "\n".join(kept) + "\n" if kept else ""

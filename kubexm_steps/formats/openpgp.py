"""OpenPGP keys as repositories publish them: armoured or binary, and their fingerprints, without gpg anywhere."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import Final

_BLOCK: Final = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\s*\n(?:[^\n:]+:[^\n]*\n)*\s*\n?(.*?)-----END PGP PUBLIC KEY BLOCK-----",
    re.DOTALL,
)
_PUBLIC_KEY: Final = 6
_CRC_START: Final = 0xB704CE
_CRC_POLYNOMIAL: Final = 0x1864CFB


class NotAKey(ValueError):
    """The bytes are no OpenPGP public key."""


def dearmor(data: bytes) -> bytes:
    """The binary form of a key, or of several in one file."""
    blocks = _BLOCK.findall(data.replace(b"\r\n", b"\n"))
    if not blocks:
        if b"-----BEGIN" in data:
            raise NotAKey("it contains no public key block")
        return data
    return b"".join(_decoded(block) for block in blocks)


def armor(data: bytes) -> bytes:
    """The text form of a binary key."""
    body = base64.b64encode(data).decode("ascii")
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    check = base64.b64encode(_crc24(data).to_bytes(3, "big")).decode("ascii")
    begin, end = (f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, "", *lines, f"={check}", end, ""]).encode("ascii")


def fingerprints(data: bytes) -> list[str]:
    """The fingerprints of the keys (not of their subkeys) in binary form, in capitals; NotAKey if there is none."""
    found = []
    for tag, body in _packets(data):
        if tag != _PUBLIC_KEY or not body:
            continue
        version, size = body[0], len(body)
        if version == 4:
            # Its fingerprint is defined as a SHA-1, whatever one thinks of it.
            digest = hashlib.sha1(b"\x99" + size.to_bytes(2, "big") + body, usedforsecurity=False)
            found.append(digest.hexdigest().upper())
        elif version in (5, 6):
            lead = b"\x9a" if version == 5 else b"\x9b"
            found.append(hashlib.sha256(lead + size.to_bytes(4, "big") + body).hexdigest().upper())
    if not found:
        raise NotAKey("it contains no OpenPGP public key")
    return found


def rpm_id(fingerprint: str) -> str:
    """What rpm calls a key: the last eight digits."""
    return fingerprint[-8:].lower()


def _decoded(block: bytes) -> bytes:
    text, _, check = block.strip().rpartition(b"\n=")
    if not text:
        text, check = block, b""
    try:
        data = base64.b64decode(b"".join(text.split()), validate=True)
        expected = base64.b64decode(check, validate=True) if check else b""
    except binascii.Error as error:
        raise NotAKey(f"its text is damaged: {error}") from error
    if expected and int.from_bytes(expected, "big") != _crc24(data):
        raise NotAKey("its text is damaged: the checksum does not match")
    return data


def _crc24(data: bytes) -> int:
    crc = _CRC_START
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= _CRC_POLYNOMIAL
    return crc & 0xFFFFFF


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise NotAKey("it is not in OpenPGP format")
        tag, at, size = _length(data, at, head)
        if size < 0 or at + size > len(data):
            raise NotAKey("it is truncated")
        yield tag, data[at : at + size]
        at += size


def _length(data: bytes, at: int, head: int) -> tuple[int, int, int]:
    """Tag, where the body begins, and its size; -1 if that is not said."""

    def number(start: int, width: int) -> int:
        return int.from_bytes(data[start : start + width], "big") if start + width <= len(data) else -1

    if head & 0x40:
        tag, first = head & 0x3F, number(at + 1, 1)
        if first < 192:
            return tag, at + 2, first
        if first < 224:
            second = number(at + 2, 1)
            return tag, at + 3, (first - 192 << 8) + second + 192 if second >= 0 else -1
        return tag, at + 6, number(at + 2, 4) if first == 255 else -1
    kind = head & 3
    if kind == 3:
        return head >> 2 & 15, at + 1, -1
    width = 1 << kind
    return head >> 2 & 15, at + 1 + width, number(at + 1, width)

"""Whether an answer continues what has been received: the same version, from the right byte (RFC 9110, 13, 14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_RANGE: Final = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")


class RestartError(Exception):
    """What has been received does not match the answer: start again."""


class Piece(Struct, frozen=True):
    """The body of an answer: its first byte, and the size of the whole."""

    start: int
    total: int | None
    validator: str
    """Identifies the version, if it tells versions apart byte by byte."""
    complete: bool = False
    """Whether nothing is missing."""


def range_headers(start: int, validator: str) -> dict[str, str]:
    """The headers that ask for the rest after ``start`` bytes of a version."""
    asked = {"Range": f"bytes={start}-"} if start else {}
    return {**asked, "If-Range": validator} if start and validator else asked


def is_tag(validator: str) -> bool:
    """Whether it is an entity tag, not a date."""
    return validator.startswith(('"', "W/"))


def validator_of(headers: Mapping[str, str]) -> str:
    """A strong entity tag, or the time of the last change if it is older than the second of the answer."""
    tag = headers.get("etag", "")
    if tag and not tag.startswith("W/"):
        return tag
    changed = headers.get("last-modified", "")
    if not changed:
        return ""
    from email.utils import parsedate_to_datetime  # 20 ms

    try:
        age = parsedate_to_datetime(headers.get("date", "")) - parsedate_to_datetime(changed)
    except (TypeError, ValueError):
        return ""
    return changed if age.total_seconds() >= 1 else ""


def piece_of(
    status: int, headers: Mapping[str, str], start: int, validator: str, total: int | None, *, verified: bool
) -> Piece | None:
    """What a 200, 206 or 416 adds to ``start`` received bytes of ``total`` of a version; None for any other status.

    ``verified`` means that a digest will tell whether the pieces match. Raises RestartError.
    """
    if status == 200:
        length = headers.get("content-length", "")
        return Piece(0, int(length) if length.isdecimal() and len(length) < 19 else None, validator_of(headers))
    if status not in (206, 416) or not start:
        return None
    shown = _RANGE.fullmatch(headers.get("content-range", ""))
    whole = None if shown is None or shown[3] == "*" else int(shown[3])
    if shown is None or (total is not None and whole is not None and whole != total):
        raise RestartError
    same = bool(validator) and headers.get("etag" if is_tag(validator) else "last-modified", "") == validator
    if status == 416:
        # Everything has been received, if the whole has that size.
        if whole != start or not (verified or same):
            raise RestartError
        return Piece(start, start, validator, complete=True)
    if shown[1] is None or int(shown[1]) != start or (whole is not None and int(shown[2]) != whole - 1):
        raise RestartError
    if not same and (validator or not verified):
        raise RestartError
    return Piece(start, whole, validator)

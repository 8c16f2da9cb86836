"""Versions of programs: their order, their minors, and ranges of them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

VERSION_PATTERN: Final = r"^v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$"
_MINOR: Final = re.compile(r"[0-9]+\.[0-9]+")
_CLAUSE: Final = re.compile(r"(>=|<=|>|<|=)\s*v?([0-9]+(?:\.[0-9]+){0,2}(?:-[0-9A-Za-z.-]+)?)")
_SPAN: Final = re.compile(r"(\S+) - (\S+)")


def parse_version(text: object) -> str:
    """A version without its "v"; ValueError says what is wrong."""
    if not isinstance(text, str) or re.fullmatch(VERSION_PATTERN, text.strip()) is None:
        raise ValueError("should be a version with three numbers, such as 1.36.4")
    return text.strip().removeprefix("v")


def version_key(text: str) -> tuple[Any, ...]:
    """What versions are sorted by: a pre-release comes before its release; numbers that are left out are 0."""
    numbers, _, pre = text.removeprefix("v").partition("-")
    parts = [int(part) for part in numbers.split(".")]
    parts += [0] * (3 - len(parts))
    names = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")) if pre else ()
    return (*parts, 0 if pre else 1, names)


def minor_of(version: str) -> str:
    """``1.36`` of ``1.36.4``."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def newest_first(versions: list[str]) -> list[str]:
    """The same versions in the order in which data files have them."""
    return sorted(dict.fromkeys(versions), key=version_key, reverse=True)


def parse_range(text: object) -> str:
    """A range of versions such as ``>=1.7.28 <2``; ValueError says what is wrong."""
    if not isinstance(text, str) or not _clauses(text):
        raise ValueError('should be a range of versions, such as ">=2.2.0" or ">=1.7.28 <2"')
    return text


def in_range(version: str, text: str) -> bool:
    """Whether a version fits all clauses of a range."""
    key = version_key(version)
    tests = {">=": key.__ge__, "<=": key.__le__, ">": key.__gt__, "<": key.__lt__, "=": key.__eq__}
    return all(tests[sign](version_key(bound)) for sign, bound in _clauses(text))


def is_span(text: str) -> bool:
    """Whether it is one version, or the first and the last of several with " - " between them."""
    match = _SPAN.fullmatch(text)
    return all(re.fullmatch(VERSION_PATTERN, part) for part in (match.groups() if match else (text,)))


def in_span(version: str, text: str) -> bool:
    """Whether a version is the one, or between the two, of ``1.35.0 - 1.35.4``; both ends belong to it."""
    match = _SPAN.fullmatch(text)
    first, last = match.groups() if match else (text, text)
    return version_key(first) <= version_key(version) <= version_key(last)


def _clauses(text: str) -> list[tuple[str, str]]:
    found = _CLAUSE.findall(text)
    left = _CLAUSE.sub("", text).strip(" ,")
    return found if not left else []


def _minor(text: str) -> str:
    if _MINOR.fullmatch(text) is None:
        raise ValueError("should be a minor version in quotes, such as '1.36'")
    return text


def _version(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("should be a version with three numbers, such as 1.36.4")
    return parse_version(value) if isinstance(value, str) else value


Version = Annotated[
    str,
    BeforeValidator(_version, json_schema_input_type=str),
    WithJsonSchema({"type": "string", "pattern": VERSION_PATTERN, "examples": ["1.36.4"]}),
]
"""A version with three numbers; a leading "v" is dropped."""
Minor = Annotated[str, AfterValidator(_minor)]
"""A minor version such as 1.36."""
VersionRange = Annotated[str, AfterValidator(parse_range)]
"""Versions from and to somewhere: ``>=1.7.28 <2``."""

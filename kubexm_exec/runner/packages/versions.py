"""Versions of packages: which ones match a pattern, and which of two is newer for dpkg, rpm and apk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cmp_to_key
from typing import Final, TypeAlias

Compare: TypeAlias = Callable[[str, str], int]
"""Negative if the first version is older than the second, 0 if they are equal, else positive."""

_APK: Final = re.compile(r"(\d+(?:\.\d+)*)([a-z]?)((?:_[a-z]+\d*)*)(?:~[0-9a-f]+)?(?:-r(\d+))?")
_APK_SUFFIXES: Final = ("alpha", "beta", "pre", "rc", "", "cvs", "svn", "git", "hg", "p")


def matches(pattern: str, version: str) -> bool:
    """Whether a version matches a pattern.

    ``*`` matches anything. An epoch counts only if the pattern has one, and so does the release (after the last ``-``):
    ``1.24.0`` matches any release of 1.24.0.
    """
    if ":" not in pattern:
        version = version.partition(":")[2] or version
    if fnmatchcase(version, pattern):
        return True
    upstream, dash, _ = version.rpartition("-")
    return bool(dash) and "-" not in pattern and fnmatchcase(upstream, pattern)


def newest(versions: Iterable[str], compare: Compare) -> str:
    """The newest of the versions; empty if there is none."""
    return max(versions, key=cmp_to_key(compare), default="")


def compare_deb(one: str, two: str) -> int:
    """Compare like ``dpkg --compare-versions``."""
    (epoch, upstream, revision), (epoch2, upstream2, revision2) = _deb_parts(one), _deb_parts(two)
    return (epoch > epoch2) - (epoch < epoch2) or _deb_part(upstream, upstream2) or _deb_part(revision, revision2)


def compare_rpm(one: str, two: str) -> int:
    """Compare ``epoch:version-release`` like rpm; a missing release is equal to any."""
    (epoch, version, release), (epoch2, version2, release2) = _rpm_parts(one), _rpm_parts(two)
    result = (epoch > epoch2) - (epoch < epoch2) or _rpm_part(version, version2)
    return result or (_rpm_part(release, release2) if release and release2 else 0)


def compare_apk(one: str, two: str) -> int:
    """Compare like ``apk version -t`` if both follow Alpine's rules, else as text."""
    first, second = _apk_key(one), _apk_key(two)
    if first is None or second is None:
        return (one > two) - (one < two)
    return (first > second) - (first < second)


def _epoch(version: str) -> tuple[int, str]:
    head, colon, rest = version.partition(":")
    return (int(head), rest) if colon and head.isdecimal() else (0, version)


def _deb_parts(version: str) -> tuple[int, str, str]:
    epoch, rest = _epoch(version)
    upstream, dash, revision = rest.rpartition("-")
    return epoch, upstream if dash else rest, revision if dash else ""


def _deb_part(one: str, two: str) -> int:
    """Compare non-digits by their order and digits by their value, in turn."""
    while one or two:
        text, text2 = re.match(r"\D*", one), re.match(r"\D*", two)
        letters, letters2 = text[0] if text else "", text2[0] if text2 else ""
        keys, keys2 = [_deb_order(char) for char in letters], [_deb_order(char) for char in letters2]
        # The end sorts before everything but the tilde.
        keys, keys2 = [*keys, 0], [*keys2, 0]
        if keys != keys2:
            return 1 if keys > keys2 else -1
        one, two = one[len(letters) :], two[len(letters2) :]
        number, number2 = re.match(r"\d*", one), re.match(r"\d*", two)
        digits, digits2 = number[0] if number else "", number2[0] if number2 else ""
        if int(digits or 0) != int(digits2 or 0):
            return 1 if int(digits or 0) > int(digits2 or 0) else -1
        one, two = one[len(digits) :], two[len(digits2) :]
    return 0


def _deb_order(char: str) -> int:
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256


def _rpm_parts(version: str) -> tuple[int, str, str]:
    epoch, rest = _epoch(version)
    version, _, release = rest.partition("-")
    return epoch, version, release


def _rpm_part(one: str, two: str) -> int:
    words, words2 = (re.findall(r"\d+|[A-Za-z]+|~|\^", text) for text in (one, two))
    for word, word2 in zip(words, words2, strict=False):
        if word == word2:
            continue
        # A tilde is older than anything else and than the end, a caret only newer than the end.
        for mark in "~^":
            if mark in (word, word2):
                return -1 if word == mark else 1
        if word.isdecimal() != word2.isdecimal():
            return 1 if word.isdecimal() else -1
        if word.isdecimal() and int(word) == int(word2):
            continue
        later = int(word) > int(word2) if word.isdecimal() else word > word2
        return 1 if later else -1
    if len(words) == len(words2):
        return 0
    rest = (words if len(words) > len(words2) else words2)[min(len(words), len(words2))]
    longer = -1 if rest == "~" else 1
    return longer if len(words) > len(words2) else -longer


def _apk_key(version: str) -> tuple[list[int], str, list[tuple[int, int]], int] | None:
    found = _APK.fullmatch(version)
    if found is None:
        return None
    numbers, letter, suffixes, release = found.groups()
    ranks: list[tuple[int, int]] = []
    for word, number in re.findall(r"_([a-z]+)(\d*)", suffixes):
        if word not in _APK_SUFFIXES:
            return None
        ranks.append((_APK_SUFFIXES.index(word), int(number or 0)))
    ranks.append((_APK_SUFFIXES.index(""), 0))
    return [int(number) for number in numbers.split(".")], letter, ranks, int(release or 0)

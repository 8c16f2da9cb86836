"""Times as cron takes them: five fields, or a word such as ``@daily``."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

WORDS: Final = ("@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART: Final = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")


def cron_schedule(text: str) -> str:
    """The schedule with single blanks; ValueError says which field is wrong."""
    fields = text.split()
    if len(fields) == 1 and fields[0].startswith("@"):
        if fields[0].lower() not in WORDS:
            raise ValueError(f"{text!r} is not one of {', '.join(WORDS)}")
        return fields[0].lower()
    if len(fields) != 5:
        raise ValueError(
            f"{text!r} is not a time of cron: write minute, hour, day of the month, month and day of the week, "
            "such as `0 3 * * *`, or a word such as `@daily`"
        )
    for field, (name, lowest, highest, names) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            _check(part, name, lowest, highest, names)
    return " ".join(fields)


def _check(part: str, name: str, lowest: int, highest: int, names: tuple[str, ...]) -> None:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is not a {name}: write `*`, a number, a range such as `1-5`, or `*/5`")
    star, first, last, every = found.groups()
    if every is not None and (int(every) == 0 or (star is None and last is None)):
        raise ValueError(f"{part!r} is not a {name}: `/` goes after `*` or a range, with a number above 0")
    numbers = [_number(word, name, lowest, highest, names) for word in (first, last) if word is not None]
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        raise ValueError(f"{part!r} is not a {name}: the range runs backwards")


def _number(word: str, name: str, lowest: int, highest: int, names: tuple[str, ...]) -> int:
    if word.isascii() and word.isdecimal():
        number = int(word)
        if not lowest <= number <= highest:
            raise ValueError(f"{word} is not a {name}: it goes from {lowest} to {highest}")
        return number
    if word.lower() in names:
        return names.index(word.lower()) + lowest
    known = f", or one of {', '.join(names)}" if names else ""
    raise ValueError(f"{word!r} is not a {name}: write a number from {lowest} to {highest}{known}")


CronSchedule = Annotated[str, AfterValidator(cron_schedule)]
"""When cron runs something."""

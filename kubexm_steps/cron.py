"""The step type ``cron``: a command that cron runs at given times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.host import quote
from kubexm_exec.step.system import CronLook
from kubexm_steps.lib import edits
from kubexm_steps.lib.edits import Edit
from kubexm_steps.lib.files import HIDDEN, RestoringStep, restore
from kubexm_steps.lib.standing import differing
from kubexm_steps.lib.types import AccountName, Line, Text, Variable, refuse, shaped
from kubexm_steps.lib.units import new_mode

FOLDER: Final = "/etc/cron.d"
_MARK: Final = "# kubexm: "
_OF_CRON: Final = ("MAILTO", "MAILFROM", "SHELL", "CRON_TZ", "RANDOM_DELAY")


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


class CronParams(Params):
    """Parameters of ``cron``."""

    name: Line = Field(description="Name of the entry; a comment with it above the entry identifies it.")
    schedule: CronSchedule | None = Field(
        None,
        description="Schedule: minute, hour, day of the month, month and day of the week, such as `*/15 * * * *`; or "
        "`@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, `@reboot`.",
    )
    command: Line | None = Field(None, description="A line of shell. `%` is escaped automatically.")
    user: AccountName = Field("root", description="User to run as.")
    # Files with a dot in their name are not read by cron.
    file: (
        Annotated[
            str, shaped(r"[A-Za-z0-9_-]{1,200}", f"a name that cron reads in {FOLDER}: letters, digits, `_` and `-`")
        ]
        | None
    ) = Field(
        None,
        description=f"Name of a file in {FOLDER} of its own for this entry. Without it, it goes into the user's "
        "crontab.",
    )
    env: dict[Variable, Text] = Field(
        default_factory=dict, description=f"Variables. {', '.join(_OF_CRON)} are cron's own and go with `file` only."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the entry, or its file.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("schedule", "command", "env"), "`state: absent`")
            return
        if self.schedule is None or self.command is None:
            raise ValueError("say when and what: `schedule` and `command`")
        for name, value in self.env.items():
            if any(char in value for char in "\n\r\0") or ("'" in value and '"' in value and self.file):
                raise ValueError(f"cron cannot take the value of {name}: it is one line with one kind of quotes")
            if name in _OF_CRON and self.file is None:
                raise ValueError(f"{name} would hold for all that follows in the crontab; give the entry a `file`")


class CronOutputs(Outputs):
    name: str = Field(description="Name of the entry.")
    path: str = Field("", description="Its own file, if it has one.")


class CronStep(RestoringStep[CronParams, CronLook]):
    """A command that cron runs on a schedule: in a user's crontab, or in its own file in `/etc/cron.d`.

    An entry in a crontab is identified by its name in a comment above it; everything else in
    the table is kept. On hosts with systemd, `timer` adds logs and catches up on missed runs.

    - The schedule is checked before anything runs, and again by crontab itself.
    - A `%` in the command is escaped, so that it means the same as in a shell.
    - A host without cron is `unknown` in a check, and a failure in a run: install it first.
    - Undo restores the old entry, or removes the new one, and keeps changes that others have made to the table since.
    """

    outputs_model = CronOutputs
    example = """\
- name: backup
  type: cron
  with:
    name: etcd backup
    schedule: 0 3 * * *
    command: /usr/local/bin/etcd-backup --keep 7
    user: root
"""

    def precheck(self, ctx: StepContext) -> Forecast[CronLook]:
        seen = self._look(ctx)
        if why := self._cannot(seen):
            if self.params.state == "absent":
                return Forecast.satisfied(why, self._outputs())
            return Forecast.unknown(why, seen=seen)
        if seen.held is not None:
            edit = self._edit(ctx, seen)
            if not edit.any:
                return Forecast.satisfied(f"{seen.held.path} is as it should be", self._outputs())
            return Forecast.change(
                f"would {self._verb(seen.held.exists)} {seen.held.path}", [edit.diff(ctx)], seen=seen
            )
        before, after = seen.table, self._table(seen.table)
        if (before or "") == after:
            return Forecast.satisfied(f"{self._what} is as it should be", self._outputs())
        there = entry(before or "", self.params.name) is not None
        diff = Diff(f"crontab of {self.params.user}", before, after or None)
        if ctx.sensitive or ctx.holds_secret(before or "") or ctx.holds_secret(after):
            diff = Diff(diff.path, note=HIDDEN)
        return Forecast.change(f"would {self._verb(there)} {self._what}", [diff], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[CronLook]) -> Result:
        params, seen = self.params, forecast.seen
        if why := self._cannot(seen):
            hint = (
                "create the user first with a `user` step"
                if not seen.user
                else "install it first: package cron or cronie"
            )
            raise StepFailed(f"{self._what}: {why}", hint=hint)
        if seen.held is not None:
            edit = self._edit(ctx, seen)
            edits.save(ctx, [edit])
            edits.apply(ctx, [edit])
            return Result(message=f"{self._done(edit.held.exists)} {edit.held.path}", outputs=self._outputs())
        before, after = seen.table, self._table(seen.table)
        kept = None if before is None else ctx.keep(before.encode("utf-8", "surrogateescape"))
        ctx.save_undo({"before": kept, "after": ctx.keep(after.encode("utf-8", "surrogateescape"))})
        _write(ctx, params.user, before, after)
        there = entry(before or "", params.name) is not None
        return Result(message=f"{self._done(there)} {self._what}", outputs=self._outputs())

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare the file with what was left; in the table of a user, only the entry itself."""
        if self.params.file is not None:
            return super().standing(ctx, undo)
        name = self.params.name
        before, left = (
            entry(ctx.kept(undo[when]).decode("utf-8", "surrogateescape"), name) if undo[when] is not None else None
            for when in ("before", "after")
        )
        return differing(self._what, before, left, entry(self._look(ctx).table or "", name))

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        if "after" in first and "after" in later:
            return {"before": first["before"], "after": later["after"]}
        return super().merge_undo(first, later)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        params = self.params
        if params.file is not None:
            restore(ctx, undo)
            return
        before = None if undo["before"] is None else ctx.kept(undo["before"]).decode("utf-8", "surrogateescape")
        now = self._look(ctx).table
        wanted = before or ""
        if (now or "") != ctx.kept(undo["after"]).decode("utf-8", "surrogateescape"):
            # The table was changed since: only the entry itself is restored.
            wanted = with_entry(now or "", params.name, entry(before or "", params.name))
        if wanted != (now or "") or (now is not None and not wanted and before is None):
            _write(ctx, params.user, now, wanted, keep_empty=before is not None)

    @property
    def _what(self) -> str:
        return f"entry {self.params.name!r} in the crontab of {self.params.user}"

    @property
    def _path(self) -> str:
        return f"{FOLDER}/{self.params.file}" if self.params.file else ""

    def _look(self, ctx: StepContext) -> CronLook:
        return ctx.runner.crontabs.look(self.params.user, self._path)

    def _cannot(self, seen: CronLook) -> str:
        if seen.held is not None:
            return (
                ""
                if seen.held.folder or self.params.state == "absent"
                else f"there is no folder {FOLDER}: cron is not installed"
            )
        if not seen.user:
            return f"there is no user {self.params.user}"
        return "" if seen.crontab else "there is no cron on the host"

    def _entry(self) -> str | None:
        params = self.params
        if params.state == "absent" or params.command is None:
            return None
        command = params.command
        if params.env:
            command = f"export {' '.join(f'{name}={quote(value)}' for name, value in params.env.items())}; {command}"
        return f"{params.schedule} {_escaped(command)}"

    def _table(self, table: str | None) -> str:
        return with_entry(table or "", self.params.name, self._entry())

    def _edit(self, ctx: StepContext, seen: CronLook) -> Edit:
        params = self.params
        assert seen.held is not None
        if params.state == "absent" or params.command is None:
            return Edit(seen.held, None)
        lines = [f"{_MARK}{params.name}", *(f"{name}={_value(value)}" for name, value in params.env.items())]
        lines.append(f"{params.schedule} {params.user} {_escaped(params.command)}")
        text = "\n".join(lines) + "\n"
        return Edit(seen.held, text, new_mode(ctx, text))

    def _verb(self, there: bool) -> str:
        return "remove" if self.params.state == "absent" else "change" if there else "create"

    def _done(self, there: bool) -> str:
        return f"{self._verb(there).removesuffix('e')}ed"

    def _outputs(self) -> dict[str, Any]:
        return {"name": self.params.name, "path": "" if self.params.state == "absent" else self._path}


def entry(table: str, name: str) -> str | None:
    """The line below the comment with the name; None if there is none."""
    lines = table.split("\n")
    for number, line in enumerate(lines[:-1]):
        if line.rstrip() == f"{_MARK}{name}":
            return lines[number + 1]
    return None


def with_entry(table: str, name: str, line: str | None) -> str:
    """The table with this line below the comment with the name, or with neither."""
    lines = table.split("\n")
    if lines[-1] == "":
        lines.pop()
    kept: list[str] = []
    place = None
    number = 0
    while number < len(lines):
        if lines[number].rstrip() == f"{_MARK}{name}":
            # The comment and its line; of several only the first place counts.
            place = len(kept) if place is None else place
            number += 2
            continue
        kept.append(lines[number])
        number += 1
    if line is not None:
        where = len(kept) if place is None else place
        kept[where:where] = [f"{_MARK}{name}", line]
    return "\n".join(kept) + "\n" if kept else ""


def _write(ctx: StepContext, user: str, before: str | None, after: str, *, keep_empty: bool = False) -> None:
    if after or keep_empty:
        ctx.runner.crontabs.write(user, after)
    elif before is not None:
        ctx.runner.crontabs.remove(user)


def _escaped(command: str) -> str:
    """The command for a table of cron, where a bare ``%`` ends the line."""
    return command.replace("%", "\\%")


def _value(text: str) -> str:
    if re.fullmatch(r"[^\s'\"#]+(?: [^\s'\"#]+)*", text):
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'

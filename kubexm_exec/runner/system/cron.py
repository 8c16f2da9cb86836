"""Tables of cron: those of users, and files in the system folder."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, look

# `-u` needs a privilege, which the own table does not.
_LOOK: Final = r"""
if id -- "$1" >/dev/null 2>&1; then part user; fi
have crontab || exit 0
part crontab
[ "$2" = yes ] || exit 0
if [ "$(id -un)" = "$1" ]; then set --; else set -- -u "$1"; fi
if said=$(crontab "$@" -l 2>&1; c=$?; echo x; exit $c); then part table; printf %s "${said%x}"
else part problem; printf %s "${said%x}"; fi
"""
_CRONTAB: Final = 'if [ "$(id -un)" = "$1" ]; then shift; else set -- -u "$@"; fi; crontab "$@"'


class CronLook(Struct, frozen=True):
    """The table of a user, or a file in the system folder."""

    user: bool
    """Whether the user exists."""
    crontab: bool
    """Whether the host has the program ``crontab``."""
    table: str | None = None
    """The user's table; None if it has none."""
    held: Held | None = None


class Crontabs(Operations):
    """The tables of cron of one host; made by ``Runner.crontabs``."""

    def look(self, user: str, file: str = "") -> CronLook:
        """The table of a user, or else a file."""
        files, table = ([file], "no") if file else ([], "yes")
        seen = look(self._session, files, _LOOK, user, table, what=f"look at the crontab of {user}")
        problem = seen.text("problem").strip()
        # A missing table is an error that each implementation words in its own way.
        if problem and "user" in seen.parts and not re.search("no crontab|can't open", problem):
            raise StepFailed(
                f"read the crontab of {user}: {problem.splitlines()[-1]}",
                hint="use `become: true` for this host, or connect as that user",
            )
        text = seen.text("table") if "table" in seen.parts else None
        return CronLook("user" in seen.parts, "crontab" in seen.parts, text, seen.files.get(file))

    def write(self, user: str, table: str) -> None:
        """Replace the table of a user; cron uses it at once."""
        self._run("write", user, "-", table.encode("utf-8", "surrogateescape"))

    def remove(self, user: str) -> None:
        """Remove the table of a user."""
        self._run("remove", user, "-r")

    def _run(self, what: str, user: str, option: str, stdin: bytes | None = None) -> None:
        result = self._ask(_CRONTAB, user, option, stdin=stdin)
        if result.exit_code == 0:
            return
        lines = [line for line in result.err.splitlines() if line.strip()]
        reason = lines[0] if lines and len(lines) > 1 else reason_of(result.err)[0]
        raise StepFailed(
            f"{what} the crontab of {user}: {reason or f'exit code {result.exit_code}'}",
            exit_code=result.exit_code,
            stderr="" if self._session.sensitive else result.err,
            hint="the old table was not changed",
        )

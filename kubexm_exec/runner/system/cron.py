"""Tables of cron: those of users, and files of the system's own folder."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.errors import reason_of
from kubexm_exec.runner.files.probe import TOOLS, Held, look
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

# For one's own table no right to name a user is needed.
_LOOK: Final = r"""
if id -- "$1" >/dev/null 2>&1; then part user; fi
have crontab || exit 0
part crontab
[ "$2" = yes ] || exit 0
if [ "$(id -un)" = "$1" ]; then set --; else set -- -u "$1"; fi
if said=$(crontab "$@" -l 2>&1; c=$?; echo x; exit $c); then part table; printf %s "${said%x}"
else part problem; printf %s "${said%x}"; fi
"""
_WRITE: Final = TOOLS + 'if [ "$(id -un)" = "$1" ]; then shift; else set -- -u "$1"; fi; crontab "$@" -'
_REMOVE: Final = TOOLS + 'if [ "$(id -un)" = "$1" ]; then shift; else set -- -u "$1"; fi; crontab "$@" -r'


class CronLook(Struct, frozen=True):
    """What was seen of a user's table, or of a file of the system's folder."""

    user: bool
    """Whether there is such a user."""
    crontab: bool
    """Whether the host has the program that changes tables."""
    table: str | None = None
    """The user's table; None if it has none."""
    held: Held | None = None


class Crontabs:
    """The tables of cron of one host; made by ``Runner.crontabs``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, user: str, file: str = "") -> CronLook:
        """The table of a user, or else a file."""
        files, table = ([file], "no") if file else ([], "yes")
        seen = look(self._session, files, _LOOK, user, table, what=f"look at the crontab of {user}")
        problem = seen.text("problem").strip()
        # busybox cannot open what is not there; the others say what it is.
        if problem and "user" in seen.parts and not re.search("no crontab|can't open", problem):
            raise StepFailed(
                f"read the crontab of {user}: {problem.splitlines()[-1]}",
                hint="work as a user who may: `become: true` for this host, or the user itself",
            )
        text = seen.text("table") if "table" in seen.parts else None
        return CronLook("user" in seen.parts, "crontab" in seen.parts, text, seen.files.get(file))

    def write(self, user: str, table: str) -> None:
        """Replace the table of a user; cron takes it up at once."""
        self._run(f"write the crontab of {user}", _WRITE, user, table.encode("utf-8", "surrogateescape"))

    def remove(self, user: str) -> None:
        """Remove the table of a user."""
        self._run(f"remove the crontab of {user}", _REMOVE, user, None)

    def _run(self, what: str, body: str, user: str, stdin: bytes | None) -> None:
        result = execute(self._session, script(body, user, stdin=stdin), check=False, live=False)
        if result.exit_code == 0:
            return
        lines = [line for line in result.err.splitlines() if line.strip()]
        reason = lines[0] if lines and len(lines) > 1 else reason_of(result.err)[0]
        raise StepFailed(
            f"{what}: {reason or f'exit code {result.exit_code}'}",
            exit_code=result.exit_code,
            stderr="" if self._session.sensitive else result.err,
            hint="the old table is still there",
        )

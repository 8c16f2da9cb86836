"""Reboots of a host: started so that they outlive the connection, and recognized by the boot id."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.base import Command
from kubexm_exec.control import raise_if_over
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, StepFailed
from kubexm_exec.runner.commands import Operations, execute
from kubexm_exec.runner.errors import exit_text
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_TRY: Final = 20.0
"""Seconds for one question to a host that is booting."""
_STATE: Final = f"""
IFS= read -r b <{_BOOT_ID} || exit
echo "$b"; id -u
if [ -n "$1" ] && [ -e "$1" ]; then echo there; else echo missing; fi
"""
# Outside the connection's session, which ends first and which systemd may kill. If it fails, its message is in the file
# whose name is printed.
_RESTART: Final = """
log=$(mktemp /run/kubexm-reboot.XXXXXX 2>/dev/null) || log=$(mktemp) || exit
body='
sleep "$1"
said=$(if command -v shutdown >/dev/null 2>&1; then shutdown -r now "$2"; else reboot; fi 2>&1) ||
  printf "%s (exit code %s)\\n" "$said" "$?" >"$3"
'
set -- /bin/sh -c "$body" sh "$1" "$2" "$log"
if ! [ -d /run/systemd/system ] || ! systemd-run --quiet --collect --no-block "$@" 2>/dev/null; then
  s=setsid; command -v setsid >/dev/null 2>&1 || s=nohup
  $s "$@" </dev/null >/dev/null 2>&1 &
fi
echo "$log"
"""
_LOOK: Final = f"""
IFS= read -r b <{_BOOT_ID} || exit
echo "$b"
if [ "$b" = "$1" ]; then cat -- "$2"; else rm -f -- "$2"; fi 2>/dev/null
:
"""


class BootState(Struct, frozen=True):
    """The state of a host before a reboot."""

    id: str
    """Different after each boot."""
    is_root: bool
    """Whether we are root."""
    is_here: bool
    """Whether the host is the machine that this program runs on."""
    has_file: bool
    """Whether the file that was asked for exists."""


class Boot(Operations):
    """Reboots of a host."""

    def state(self, file: str | None = None) -> BootState:
        """The state that decides whether to reboot, in one round trip."""
        result = execute(self._session, script(_STATE, file or ""), live=False)
        boot, user, found = result.out.split()
        return BootState(boot, user == "0", boot == _own_id(), found == "there")

    def restart(self, message: str, delay: float) -> str:
        """Reboot the host after so many seconds; returns the file that has the message if it fails."""
        # At once would be before the answer.
        seconds = str(max(1, round(delay)))
        return execute(self._session, script(_RESTART, seconds, message), live=False).out.strip()

    def look(self, before: str, log: str, timeout: float) -> str:
        """Reconnect and check whether the host has rebooted; empty if so, else what was found instead."""
        session = self._session
        seen = reconnect(session, min(timeout, _TRY))
        if seen:
            return seen
        result = self._try(script(_LOOK, before, log), timeout)
        if isinstance(result, str):
            return result
        now, _, said = result.out.partition("\n")
        if now == before and said.strip():
            raise StepFailed(f"the host refuses to reboot: {' '.join(said.split())}", stderr=said)
        return "it has not gone down yet" if now == before else ""

    def fails(self, command: Command, timeout: float) -> str:
        """How a command still fails on a host that is booting; empty if it succeeds."""
        result = self._try(command, timeout)
        return result if isinstance(result, str) else exit_text(result.exit_code) if result.exit_code else ""

    def _try(self, command: Command, timeout: float) -> CommandResult | str:
        """The result of a command, or why it could not be run."""
        session = self._session
        deadline = session.deadline.earlier(min(timeout, _TRY))
        try:
            return session.run(command, deadline=deadline)
        except (ConnectorError, CommandTimedOut) as error:
            if session.deadline.passed():
                raise
            return str(error)


def reconnect(session: Session, timeout: float | None = None) -> str:
    """Drop the connection and the cached facts, and reconnect; returns why that failed, or nothing."""
    session.connector.close()
    if session.forget is not None:
        session.forget()
    remove = session.cancel.on_set(session.connector.close)
    try:
        session.connector.open(session.deadline.earlier(timeout))
    except ConnectorError as error:
        raise_if_over(session.deadline, session.cancel)
        return str(error)
    finally:
        remove()
    return ""


def _own_id() -> str:
    try:
        return Path(_BOOT_ID).read_text("ascii").strip()
    except OSError:
        return ""

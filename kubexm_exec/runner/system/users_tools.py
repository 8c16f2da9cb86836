"""The programs that change users and groups: those of the shadow suite, and busybox's where they are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubexm_exec.connectors.base import Command
from kubexm_exec.model.command import CommandResult
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.files.probe import TOOLS
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.users import Accounts, Group, UserChange, days_of

_TOOL: Final = TOOLS + 'exec "$@"'


class ShadowTools:
    """useradd, usermod and the others: what almost every distribution has."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_user(self, name: str, change: UserChange) -> CommandResult:
        """Make a user."""
        argv = ["useradd", *_options(change), "-m" if change.create_home else "-M"]
        if change.system:
            argv.append("-r")
        return self._run([*argv, "--", name])

    def change_user(self, accounts: Accounts, name: str, change: UserChange) -> CommandResult:
        """Change a user; with another number its home's files go along."""
        return self._run(["usermod", *_options(change), "--", name])

    def remove_user(self, name: str) -> CommandResult:
        """Remove a user, but none of its files."""
        return self._run(["userdel", "--", name])

    def add_group(self, name: str, gid: int | None, system: bool) -> CommandResult:
        """Make a group."""
        return self._run(["groupadd", *_pair("-g", gid), *(["-r"] if system else []), "--", name])

    def renumber_group(self, group: Group, gid: int) -> CommandResult:
        """Give a group another number; the users whose first group it is go along."""
        return self._run(["groupmod", "-g", str(gid), "--", group.name])

    def set_members(self, group: Group, members: Sequence[str]) -> CommandResult:
        """Put just these users into a group."""
        return self._run(["gpasswd", "-M", ",".join(members), "--", group.name])

    def remove_group(self, name: str) -> CommandResult:
        """Remove a group."""
        return self._run(["groupdel", "--", name])

    def _run(self, argv: Sequence[str]) -> CommandResult:
        return execute(self._session, script(_TOOL, *argv), check=False, live=False)


def _options(change: UserChange) -> list[str]:
    groups = None if change.groups is None else ",".join(change.groups)
    return [
        *_pair("-u", change.uid),
        *_pair("-g", change.group),
        *_pair("-G", groups),
        *_pair("-d", change.home),
        *_pair("-s", change.shell),
        *_pair("-c", change.comment),
        *_pair("-e", change.expires),
    ]


def _pair(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


# busybox has no usermod: a field of a table is changed in a copy, which is renamed over the old one.
_EDIT: Final = (
    TOOLS
    + r"""
edit() {
  t=$1.kx-$$
  cp -p -- "$1" "$t" || return
  n=$n i=$2 v=$3 awk -F: 'BEGIN { OFS = ":" } $1 == ENVIRON["n"] { $(ENVIRON["i"]) = ENVIRON["v"] } { print }' \
    "$1" >"$t" && mv -f -- "$t" "$1" || { c=$?; rm -f -- "$t"; return $c; }
}
"""
)
_CHANGE_USER: Final = (
    _EDIT
    + r"""
n=$1; shift
while [ $# -gt 2 ]; do edit "$1" "$2" "$3" || exit; shift 3; done
"""
)
# Triples: what to do, the user, the group.
_MEMBERS: Final = (
    TOOLS
    + r"""
while [ $# -gt 2 ]; do
  "$1" "$2" "$3" >/dev/null || exit
  shift 3
done
"""
)
_RENUMBER: Final = (
    _EDIT
    + r"""
n=$1; edit /etc/group 3 "$3" || exit
t=/etc/passwd.kx-$$
cp -p /etc/passwd "$t" || exit
o=$2 v=$3 awk -F: 'BEGIN { OFS = ":" } $4 == ENVIRON["o"] { $4 = ENVIRON["v"] } { print }' /etc/passwd >"$t" &&
  mv -f -- "$t" /etc/passwd || { c=$?; rm -f -- "$t"; exit $c; }
"""
)


class BusyboxTools:
    """adduser, addgroup and the others of busybox (Alpine without its package ``shadow``)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_user(self, name: str, change: UserChange) -> CommandResult:
        """Make a user, and then set what adduser cannot."""
        argv = ["adduser", "-D", *_pair("-u", change.uid), *_pair("-G", change.group), *_pair("-h", change.home)]
        argv += [*_pair("-s", change.shell), *_pair("-g", change.comment)]
        argv += [*([] if change.create_home else ["-H"]), *(["-S"] if change.system else []), name]
        made = self._run(script(_TOOL, *argv))
        if made.exit_code != 0:
            return made
        if change.groups:
            made = self._run(script(_MEMBERS, *(word for one in change.groups for word in ("addgroup", name, one))))
        if made.exit_code == 0 and change.expires:
            made = self._run(script(_CHANGE_USER, name, "/etc/shadow", "8", days_of(change.expires)))
        return made

    def change_user(self, accounts: Accounts, name: str, change: UserChange) -> CommandResult:
        """Change the lines of a user; its files keep their owner's number."""
        edits: list[str] = []
        group = None if change.group is None else accounts.find_group(change.group)
        fields = ((3, change.uid), (4, group and group.gid), (5, change.comment), (6, change.home), (7, change.shell))
        for number, value in fields:
            if value is not None:
                edits += ["/etc/passwd", str(number), str(value)]
        if change.expires is not None:
            edits += ["/etc/shadow", "8", days_of(change.expires)]
        result = self._run(script(_CHANGE_USER, name, *edits))
        if result.exit_code != 0 or change.groups is None:
            return result
        before, after = accounts.groups_of(name), change.groups
        joined = [word for one in after if one not in before for word in ("addgroup", name, one)]
        left = [word for one in before if one not in after for word in ("delgroup", name, one)]
        return self._run(script(_MEMBERS, *joined, *left))

    def remove_user(self, name: str) -> CommandResult:
        """Remove a user, but none of its files."""
        return self._run(script(_TOOL, "deluser", name))

    def add_group(self, name: str, gid: int | None, system: bool) -> CommandResult:
        """Make a group."""
        argv = ["addgroup", *_pair("-g", gid), *(["-S"] if system else []), name]
        return self._run(script(_TOOL, *argv))

    def renumber_group(self, group: Group, gid: int) -> CommandResult:
        """Give a group another number; the users whose first group it is go along."""
        return self._run(script(_RENUMBER, group.name, str(group.gid), str(gid)))

    def set_members(self, group: Group, members: Sequence[str]) -> CommandResult:
        """Put just these users into a group."""
        joined = [word for one in members if one not in group.members for word in ("addgroup", one, group.name)]
        left = [word for one in group.members if one not in members for word in ("delgroup", one, group.name)]
        return self._run(script(_MEMBERS, *joined, *left))

    def remove_group(self, name: str) -> CommandResult:
        """Remove a group."""
        return self._run(script(_TOOL, "delgroup", name))

    def _run(self, command: Command) -> CommandResult:
        return execute(self._session, command, check=False, live=False)

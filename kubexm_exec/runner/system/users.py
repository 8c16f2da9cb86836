"""Users and groups of a host: listed, made, changed and removed."""

from __future__ import annotations

import datetime
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.attributes import TAR
from kubexm_exec.safepaths import WAY

Tools = Literal["shadow", "busybox", "none"]

_EPOCH: Final = datetime.date(1970, 1, 1)
# The two tables, then the entries of directories (LDAP and such) for the names that are asked for. Of the password's
# hash only its digest leaves the host.
_LOOK: Final = r"""
n=$1 h=$2; shift 2
if command -v usermod >/dev/null 2>&1; then echo tools:shadow
elif command -v adduser >/dev/null 2>&1; then echo tools:busybox; fi
sed 's/^/user:/' /etc/passwd || exit
sed 's/^/group:/' /etc/group || exit
if command -v getent >/dev/null 2>&1; then
  [ -z "$n" ] || getent passwd "$n" 2>/dev/null | sed 's/^/elsewhere:/'
  [ $# -eq 0 ] || getent group "$@" 2>/dev/null | sed 's/^/group-elsewhere:/'
fi
[ -n "$n" ] || exit 0
if [ -z "$h" ]; then
  h=$(n=$n awk -F: '$1 == ENVIRON["n"] { print $6; exit }' /etc/passwd)
  if [ -z "$h" ]; then
    b=$(useradd -D 2>/dev/null | sed -n 's/^HOME=//p')
    h=${b:-/home}/$n
  fi
fi
if [ -d "$h" ]; then printf 'home:yes:%s\n' "$h"; else printf 'home:no:%s\n' "$h"; fi
if [ -r /etc/shadow ]; then
  s=$(n=$n awk -F: '$1 == ENVIRON["n"] { print $8 ":" $2; exit }' /etc/shadow)
  e=${s%%:*} s=${s#*:} l=no
  case $s in '!'*) l=yes; while [ "${s#!}" != "$s" ]; do s=${s#!}; done ;; '*'*) l=yes s= ;; esac
  d=; [ -z "$s" ] || d=$(printf %s "$s" | sha256sum)
  printf 'shadow:%s:%s:%s\n' "$l" "$e" "${d%% *}"
fi
"""
# Exits with 3 rather than open an account without a password.
_PASSWORD: Final = r"""
n=$1 s=
[ "$2" != yes ] || IFS= read -r s || [ -n "$s" ] || exit 4
if [ "$2" = no ]; then
  s=$(n=$n awk -F: '$1 == ENVIRON["n"] { print $2; exit }' /etc/shadow) || exit
fi
case $3 in
  yes) case $s in '!'* | '*'*) ;; *) s=!$s ;; esac ;;
  no) while [ "${s#!}" != "$s" ]; do s=${s#!}; done; case $s in '' | '*'*) exit 3 ;; esac ;;
esac
printf '%s:%s\n' "$n" "$s" | chpasswd -e
"""
_FIELD: Final = r"""n=$1 awk -F: '$1 == ENVIRON["n"] { printf "%s", $2; exit }' /etc/shadow"""
# It is put in place only when all of it belongs to the user.
_HOME: Final = r"""
[ -d "$1" ] && exit 0
at "$1" || [ -z "$why" ] || stop
umask 022; mkdir -p -- "${1%/*}/" || exit
go "$1"
private "$4" && umask 077 && mkdir -- "./$name" || exit
fill() {
  if [ -d /etc/skel ]; then cp -pR /etc/skel/. "./$name/" || return; fi
  m=$(awk '$1 == "HOME_MODE" { print $2; exit }' /etc/login.defs 2>/dev/null)
  chmod -- "${m:-0700}" "./$name" && chown -hR -- "$1" "./$name" && mv -T -- "./$name" "../$name"
}
fill "$2:$3"
code=$?
leave "$4"
exit $code
"""
# A home is removed only while it has nothing but the skeleton.
_UNMAKE_HOME: Final = r"""
at "$1" || { [ -z "$why" ] || stop; exit 0; }
[ -d "./$name" ] && ! [ -L "./$name" ] || exit 0
home=${PWD%/}/$name
cd -P -- "./$name" && [ "$PWD" = "$home" ] || exit
more='for f do cmp -s "$f" "/etc/skel/$f" || { echo more; break; }; done'
if find . ! -type d -exec sh -c "$more" kx {} + | grep -q more; then exit 3; fi
go "$1"
rm -rf -- "./$name"
"""
_REMOVE_HOME: Final = r"""
for p do
  at "$p" || { [ -z "$why" ] || stop; continue; }
  [ -e "./$name" ] || continue
  rm -rf -- "./$name" || exit
done
"""
# Relative to the root, so that one archive has the home and the mail; missing parts are left out.
_PACK: Final = r"""
for p do at "$p" || [ -z "$why" ] || stop; done
cd / || exit
for p do shift; p=${p#/}; if [ -e "$p" ]; then set -- "$@" "./$p"; fi; done
[ $# -eq 0 ] || archive -czf - -- "$@"
"""
_HINTS: Final = (
    (r"cannot lock|permission denied|only root", "use `become: true` for this host"),
    (r"is currently (used|logged)", "its processes are still running: stop them first"),
    (r"uid .*(not unique|already exists|in use)", "another user has this number: see `getent passwd`"),
    (r"gid .*(already exists|in use|not unique)", "another group has this number: see `getent group`"),
    (r"invalid (user|group) name", "this host rejects the name: use lowercase letters, digits, `_` and `-`"),
    (r"primary group", "give its users another group first, or remove them"),
)


class User(Struct, frozen=True):
    """An entry of the table of users."""

    name: str
    uid: int
    gid: int
    comment: str = ""
    home: str = ""
    shell: str = ""
    local: bool = True
    """False if it comes from a directory such as LDAP, which this host cannot change."""


class Group(Struct, frozen=True):
    """An entry of the table of groups."""

    name: str
    gid: int
    members: tuple[str, ...] = ()
    local: bool = True


class Accounts(Struct, frozen=True):
    """The users and groups of a host, and more about the user that was asked for."""

    users: Mapping[str, User]
    groups: Mapping[str, Group]
    tools: Tools = "none"
    home: str = ""
    """The home of the user that was asked for; for a user that does not exist, the home it would get."""
    home_exists: bool = False
    locked: bool = False
    expires: str = ""
    """The day as ``YYYY-MM-DD``; empty: never."""
    password: str = ""
    """The sha256 of the hash of the password; empty if there is none."""
    shadow: bool = False
    """Whether /etc/shadow could be read."""

    def group_name(self, gid: int) -> str:
        """The name of a group, or its number if it has none."""
        return next((group.name for group in self.groups.values() if group.gid == gid), str(gid))

    def find_group(self, name: str) -> Group | None:
        """A group by name or number."""
        if name in self.groups:
            return self.groups[name]
        return next((group for group in self.groups.values() if name == str(group.gid)), None)

    def groups_of(self, name: str) -> tuple[str, ...]:
        """The groups of a user besides the primary one, sorted."""
        return tuple(sorted(group.name for group in self.groups.values() if name in group.members))

    def first_group_of(self, group: Group) -> tuple[str, ...]:
        """The users whose primary group it is, sorted."""
        return tuple(sorted(user.name for user in self.users.values() if user.gid == group.gid))


class UserChange(Struct, frozen=True, kw_only=True):
    """What to set of a user; None is left as it is, or for a new user to the host."""

    uid: int | None = None
    group: str | None = None
    groups: tuple[str, ...] | None = None
    """All groups besides the primary one."""
    home: str | None = None
    shell: str | None = None
    comment: str | None = None
    expires: str | None = None
    """A day, or an empty text for never."""
    system: bool = False
    create_home: bool = False

    def __bool__(self) -> bool:
        wanted = (self.uid, self.group, self.groups, self.home, self.shell, self.comment, self.expires)
        return any(value is not None for value in wanted)


class Users(Operations):
    """Users and groups of one host; made by ``Runner.users``."""

    # what is there

    def look(self, name: str = "", *, home: str = "", groups: Sequence[str] = ()) -> Accounts:
        """All users and groups, and more about one user; ``groups`` may come from a directory."""
        result = self._ask(_LOOK, name, home, *groups, max_output=16 << 20)
        if result.exit_code != 0:
            what = f"look for user {name}" if name else "look at users and groups"
            raise StepFailed(
                f"{what}: {reason_of(result.err)[0] or 'no answer'}",
                exit_code=result.exit_code,
                hint="the host needs /etc/passwd and /etc/group, and sh, sed and awk",
            )
        return parse(result.stdout.decode("utf-8", "surrogateescape"))

    def password_field(self, name: str) -> bytes:
        """The hash of a password as the host stores it, for an undo; never show it."""
        result = self._ask(_FIELD, name)
        if result.exit_code != 0:
            raise StepFailed(f"user {name}: {reason_of(result.err)[0]}", hint="only root may read /etc/shadow")
        return result.stdout

    # users

    def add(self, accounts: Accounts, name: str, change: UserChange) -> None:
        """Make a user."""
        self._done(f"make user {name}", self._tools(accounts).add_user(name, change))

    def change(self, accounts: Accounts, name: str, change: UserChange) -> None:
        """Change a user."""
        if change:
            self._done(f"change user {name}", self._tools(accounts).change_user(accounts, name, change))

    def remove(self, accounts: Accounts, name: str) -> None:
        """Remove a user, but none of its files."""
        self._done(f"remove user {name}", self._tools(accounts).remove_user(name))

    def set_password(self, name: str, field: bytes | None, locked: bool | None = None) -> None:
        """Set the stored hash, which only goes by standard input, or lock or unlock the password."""
        lock = "" if locked is None else "yes" if locked else "no"
        stdin = None if field is None else field + b"\n"
        result = self._ask(_PASSWORD, name, "no" if field is None else "yes", lock, stdin=stdin)
        if result.exit_code == 3:
            raise StepFailed(
                f"unlock user {name}: it has no password to unlock",
                exit_code=3,
                hint="without one anybody could log in: give a `passwordHash` too",
            )
        self._done(f"set the password of user {name}", result)

    def make_home(self, home: str, uid: int, gid: int) -> None:
        """Make a home from the skeleton, if there is none; 0700 unless the host has a HOME_MODE."""
        stage = f".kx-{secrets.token_hex(8)}.tree"
        self._done(f"make {home}", self._ask(WAY + _HOME, home, str(uid), str(gid), stage))

    def unmake_home(self, home: str) -> bool:
        """Remove a home that has nothing but the skeleton; False if it has more, and stays."""
        result = self._ask(WAY + _UNMAKE_HOME, home)
        if result.exit_code != 3:
            self._done(f"remove {home}", result)
        return result.exit_code == 0

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove folders and files of a user."""
        self._done(f"remove {' and '.join(paths)}", self._ask(WAY + _REMOVE_HOME, *paths))

    def pack(self, paths: Sequence[str], limit: int) -> bytes | None:
        """Folders and files as one archive; None if it would be larger than the limit."""
        result = self._ask(WAY + TAR + _PACK, *paths, max_output=limit)
        if result.exit_code != 0:
            self._fail(f"keep {' and '.join(paths)}", result)
        return None if result.dropped else result.stdout

    def unpack(self, packed: bytes) -> None:
        """Restore what was packed."""
        self._done("restore files", self._ask(TAR + "cd / && archive -xzpf -", stdin=packed))

    # groups

    def add_group(self, accounts: Accounts, name: str, gid: int | None = None, *, system: bool = False) -> None:
        """Make a group."""
        self._done(f"make group {name}", self._tools(accounts).add_group(name, gid, system))

    def renumber_group(self, accounts: Accounts, name: str, gid: int) -> None:
        """Change the number of a group; files keep the old one."""
        self._done(f"change group {name}", self._tools(accounts).renumber_group(accounts.groups[name], gid))

    def set_members(self, accounts: Accounts, name: str, members: Sequence[str]) -> None:
        """Set the members of a group."""
        group = accounts.groups.get(name, Group(name, -1))
        self._done(f"change group {name}", self._tools(accounts).set_members(group, members))

    def remove_group(self, accounts: Accounts, name: str) -> None:
        """Remove a group."""
        self._done(f"remove group {name}", self._tools(accounts).remove_group(name))

    def _tools(self, accounts: Accounts) -> ShadowTools | BusyboxTools:
        if accounts.tools == "shadow":
            return ShadowTools(self._session)
        if accounts.tools == "busybox":
            return BusyboxTools(self._session)
        raise StepFailed(
            "change users or groups: the host has neither usermod nor adduser",
            hint="install them: the package passwd on Debian, shadow-utils or shadow elsewhere",
        )

    def _done(self, what: str, result: CommandResult) -> None:
        if result.exit_code != 0:
            self._fail(what, result)

    def _fail(self, what: str, result: CommandResult) -> NoReturn:
        reason = reason_of(result.err)[0] or f"exit code {result.exit_code}"
        said = result.err.lower()
        hint = next((hint for pattern, hint in _HINTS if re.search(pattern, said)), "")
        stderr = "" if self._session.sensitive else result.err
        raise StepFailed(f"{what}: {reason}", exit_code=result.exit_code, stderr=stderr, hint=hint)


def parse(text: str) -> Accounts:
    """The users and groups in the answer of a host."""
    users: dict[str, User] = {}
    groups: dict[str, Group] = {}
    more: dict[str, Any] = {}
    for line in text.split("\n"):
        kind, _, rest = line.partition(":")
        cells = rest.split(":")
        match kind:
            case "user" | "elsewhere" if len(cells) == 7 and cells[2].isdecimal() and cells[3].isdecimal():
                name, _, uid, gid, comment, home, shell = cells
                users.setdefault(name, User(name, int(uid), int(gid), comment, home, shell, kind == "user"))
            case "group" | "group-elsewhere" if len(cells) == 4 and cells[2].isdecimal():
                members = tuple(member for member in cells[3].split(",") if member)
                groups.setdefault(cells[0], Group(cells[0], int(cells[2]), members, kind == "group"))
            case "tools":
                more["tools"] = rest
            case "home":
                more |= {"home_exists": cells[0] == "yes", "home": rest.partition(":")[2]}
            case "shadow" if len(cells) == 3:
                more |= {"locked": cells[0] == "yes", "expires": day_of(cells[1]), "password": cells[2], "shadow": True}
    return Accounts(users, groups, **more)


def day_of(days: str) -> str:
    """The date of a number of days since 1970; empty for none."""
    if not days.isdecimal():
        return ""
    return (_EPOCH + datetime.timedelta(int(days))).isoformat()


def days_of(day: str) -> str:
    """The number of days since 1970 of ``YYYY-MM-DD``; empty for none."""
    return str((datetime.date.fromisoformat(day) - _EPOCH).days) if day else ""


class ShadowTools(Operations):
    """useradd, usermod and the others of the shadow suite, which almost every distribution has."""

    def add_user(self, name: str, change: UserChange) -> CommandResult:
        """Make a user."""
        argv = ["useradd", *_options(change), "-m" if change.create_home else "-M"]
        if change.system:
            argv.append("-r")
        return self._run([*argv, "--", name])

    def change_user(self, accounts: Accounts, name: str, change: UserChange) -> CommandResult:
        """Change a user; a new number applies to the files in its home too."""
        return self._run(["usermod", *_options(change), "--", name])

    def remove_user(self, name: str) -> CommandResult:
        """Remove a user, but none of its files."""
        return self._run(["userdel", "--", name])

    def add_group(self, name: str, gid: int | None, system: bool) -> CommandResult:
        """Make a group."""
        return self._run(["groupadd", *_pair("-g", gid), *(["-r"] if system else []), "--", name])

    def renumber_group(self, group: Group, gid: int) -> CommandResult:
        """Change the number of a group, also for the users whose primary group it is."""
        return self._run(["groupmod", "-g", str(gid), "--", group.name])

    def set_members(self, group: Group, members: Sequence[str]) -> CommandResult:
        """Set the members of a group."""
        return self._run(["gpasswd", "-M", ",".join(members), "--", group.name])

    def remove_group(self, name: str) -> CommandResult:
        """Remove a group."""
        return self._run(["groupdel", "--", name])

    def _run(self, argv: Sequence[str]) -> CommandResult:
        return self._ask('exec "$@"', *argv)


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


# busybox has no usermod: a field is changed in a copy of the table, which then replaces the table.
_EDIT: Final = r"""
edit() {
  t=$1.kx-$$
  cp -p -- "$1" "$t" || return
  n=$n i=$2 v=$3 awk -F: 'BEGIN { OFS = ":" } $1 == ENVIRON["n"] { $(ENVIRON["i"]) = ENVIRON["v"] } { print }' \
    "$1" >"$t" && mv -f -- "$t" "$1" || { c=$?; rm -f -- "$t"; return $c; }
}
"""
_CHANGE_USER: Final = r"""
n=$1; shift
while [ $# -gt 2 ]; do edit "$1" "$2" "$3" || exit; shift 3; done
"""
# Triples of a command, a user and a group.
_MEMBERS: Final = r"""
while [ $# -gt 2 ]; do
  "$1" "$2" "$3" >/dev/null || exit
  shift 3
done
"""
_RENUMBER: Final = r"""
n=$1; edit /etc/group 3 "$3" || exit
t=/etc/passwd.kx-$$
cp -p /etc/passwd "$t" || exit
o=$2 v=$3 awk -F: 'BEGIN { OFS = ":" } $4 == ENVIRON["o"] { $4 = ENVIRON["v"] } { print }' /etc/passwd >"$t" &&
  mv -f -- "$t" /etc/passwd || { c=$?; rm -f -- "$t"; exit $c; }
"""


class BusyboxTools(Operations):
    """adduser, addgroup and the others of busybox (Alpine without its package ``shadow``)."""

    def add_user(self, name: str, change: UserChange) -> CommandResult:
        """Make a user, then set what adduser cannot."""
        argv = ["adduser", "-D", *_pair("-u", change.uid), *_pair("-G", change.group), *_pair("-h", change.home)]
        argv += [*_pair("-s", change.shell), *_pair("-g", change.comment)]
        argv += [*([] if change.create_home else ["-H"]), *(["-S"] if change.system else []), name]
        made = self._ask('exec "$@"', *argv)
        if made.exit_code != 0:
            return made
        if change.groups:
            made = self._ask(_MEMBERS, *(word for one in change.groups for word in ("addgroup", name, one)))
        if made.exit_code == 0 and change.expires:
            made = self._ask(_EDIT + _CHANGE_USER, name, "/etc/shadow", "8", days_of(change.expires))
        return made

    def change_user(self, accounts: Accounts, name: str, change: UserChange) -> CommandResult:
        """Change the entries of a user; its files keep the old number."""
        edits: list[str] = []
        group = None if change.group is None else accounts.find_group(change.group)
        fields = ((3, change.uid), (4, group and group.gid), (5, change.comment), (6, change.home), (7, change.shell))
        for number, value in fields:
            if value is not None:
                edits += ["/etc/passwd", str(number), str(value)]
        if change.expires is not None:
            edits += ["/etc/shadow", "8", days_of(change.expires)]
        result = self._ask(_EDIT + _CHANGE_USER, name, *edits)
        if result.exit_code != 0 or change.groups is None:
            return result
        before, after = accounts.groups_of(name), change.groups
        joined = [word for one in after if one not in before for word in ("addgroup", name, one)]
        left = [word for one in before if one not in after for word in ("delgroup", name, one)]
        return self._ask(_MEMBERS, *joined, *left)

    def remove_user(self, name: str) -> CommandResult:
        """Remove a user, but none of its files."""
        return self._ask('deluser "$1"', name)

    def add_group(self, name: str, gid: int | None, system: bool) -> CommandResult:
        """Make a group."""
        return self._ask('addgroup "$@"', *_pair("-g", gid), *(["-S"] if system else []), name)

    def renumber_group(self, group: Group, gid: int) -> CommandResult:
        """Change the number of a group, also for the users whose primary group it is."""
        return self._ask(_EDIT + _RENUMBER, group.name, str(group.gid), str(gid))

    def set_members(self, group: Group, members: Sequence[str]) -> CommandResult:
        """Set the members of a group."""
        joined = [word for one in members if one not in group.members for word in ("addgroup", one, group.name)]
        left = [word for one in group.members if one not in members for word in ("delgroup", one, group.name)]
        return self._ask(_MEMBERS, *joined, *left)

    def remove_group(self, name: str) -> CommandResult:
        """Remove a group."""
        return self._ask('delgroup "$1"', name)

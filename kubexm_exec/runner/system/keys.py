"""The authorized keys of users of a host: file, folder, owner and content, in one round trip."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.probe import Held, look

# The user can make a link on the way that leads a write of root anywhere: it is reported, not followed.
_LOOK: Final = r"""
e=$(n=$1 awk -F: '$1 == ENVIRON["n"] { print; exit }' /etc/passwd)
[ -n "$e" ] || e=$(getent passwd "$1" 2>/dev/null)
[ -n "$e" ] || exit 0
part user; printf '%s\n' "$e"
f=$2
if [ -z "$f" ]; then
  h=$(printf '%s\n' "$e" | cut -d: -f6)
  f=${h%/}/.ssh/authorized_keys
fi
d=${f%/*}
part path; printf %s "$f"
part folder
if [ -L "$d" ]; then echo link; exit 0
elif [ -d "$d" ]; then stat -c '%a/%u/%g/%U/%G' -- "$d"
elif [ -e "$d" ]; then echo other
elif [ -d "${d%/*}/" ]; then echo absent
else echo nohome; fi
if [ -L "$f" ]; then part link; exit 0; fi
file "$f"
"""


class KeyFile(Struct, frozen=True):
    """The file with the keys of a user, and its folder."""

    user: str
    uid: int
    gid: int
    folder: FileState
    held: Held


class Keys(Operations):
    """The authorized keys of users of one host; made by ``Runner.keys``."""

    def look(self, user: str, path: str = "") -> KeyFile | None:
        """The file with the keys of a user, whether it exists or not; None if there is no such user."""
        seen = look(self._session, [], _LOOK, user, path, what=f"look at the keys of {user}", more=True)
        cells = seen.text("user").rstrip("\n").split(":")
        if len(cells) != 7:
            return None
        found = seen.text("path")
        folder = _folder(user, found.rpartition("/")[0], seen.text("folder").strip())
        if "link" in seen.parts:
            raise _is_link(user, found)
        if (real := seen.files[found].path) != found:
            raise StepFailed(
                f"keys of {user}: {found} leads to {real}",
                hint="links on the way are not followed: give the real file as `path`",
            )
        return KeyFile(user, int(cells[2]), int(cells[3]), folder, seen.files[found])


def _is_link(user: str, path: str) -> StepFailed:
    return StepFailed(
        f"keys of {user}: {path} is a link",
        hint="it could lead anywhere, so it is not followed: give the real file as `path`",
    )


def _folder(user: str, path: str, said: str) -> FileState:
    match said:
        case "link":
            raise _is_link(user, path)
        case "other":
            raise StepFailed(f"keys of {user}: {path} is not a folder", hint="remove it first")
        case "nohome":
            raise StepFailed(
                f"keys of {user}: its home {path.rpartition('/')[0]} does not exist",
                hint="make it first, with a user step and `createHome: true`",
            )
        case "absent":
            return FileState(path)
        case _:
            mode, uid, gid, owner, group = said.split("/")
            return FileState(path, "directory", int(mode, 8), owner, group, int(uid), int(gid))

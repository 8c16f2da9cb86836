"""The pieces of shell that write a file on a host, beside its place and then renamed; and reasons of failures."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from kubexm_exec.safepaths import WAY

BLOCK: Final = 131_072
"""Bytes per write."""
CHANGED: Final = 93
"""The exit code of a script that was to replace a file that has changed."""
_REASONS: Final = {
    os.strerror(code).lower(): code
    for code in (
        errno.EACCES, errno.EPERM, errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY,
        errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBUSY, errno.ETXTBSY, errno.ENAMETOOLONG,
        errno.ELOOP, errno.EXDEV, errno.EIO,
    )
}  # fmt: skip

# Goes to the folder of the file. `tmp` is a name of two random words that nobody can guess; where others may write too,
# it is a private folder, in which nobody can replace the file. Until the folder is checked, an empty file has a name
# with the first word only, which does not reveal the other.
BEGIN: Final = f"""{WAY}
clean() {{ if [ $up = . ]; then rm -f -- "$file"; else leave "$tmp"; fi; }}
path=$1 tmp=$2 mode=$3 owner=$4 size=$5 seen=any file=./$2 new= settled= up=.
go "$path"
if [ -d "./$name" ] && ! [ -L "./$name" ]; then echo "$path: Is a directory" >&2; exit 1; fi
umask 077
"""
# An empty file, made with the right mode if possible: one process less.
CREATE: Final = """
file=./${tmp%.*.tmp}.tmp new=$file
trap clean EXIT
case $mode in 0???)
  o=${mode#??} u=${mode#?}
  umask $((7 - ${u%??}))$((7 - ${o%?}))$((7 - ${o#?})) ;;
esac
set -C
exec 8>"$file"
set +C
umask 077
"""
AGAIN: Final = """
file=./${tmp%.*.tmp}.tmp
if [ -f "$file" ] && ! [ -L "$file" ]; then new=$file; fi
"""
# Inspects the folder, the new file if there is one, and the one that it replaces; `settle` corrects owner and mode.
LOOK: Final = """
settle() {
  if [ -n "$owner" ]; then chown -- "$owner" "$file" || return; fi
  if [ -z "$got" ] || [ $((0${got%%/*})) -ne $((0$mode)) ]; then chmod -- "$mode" "$file"; fi
}
rows=$(stat -c %a/%u/%g/%U/%G -- . ${new:+"$new"} "./$name" 2>/dev/null) here=${rows%%
*}
old=${rows#"$here"} got=
old=${old#
}
if [ -n "$new" ]; then
  got=${old%%
*}
  old=${old#"$got"}
  old=${old#
}
fi
if ! [ -f "./$name" ] || [ -L "./$name" ]; then old=; fi
if judge "$here"; then
  if [ -n "$new" ]; then rm -f -- "$new"; fi
  up=.. file=./$name got=
  # A file of another user may be there to receive what is written, unless the whole folder is that user's.
  u=${old#*/}
  case ${u%%/*} in
    ''|0|"$owner_of_here") ;;
    *)
      if [ -z "${owner%%:*}" ] && [ "${u%%/*}" != "$(id -u)" ]; then
        u=${old%/*}
        why="it is a file of user ${u##*/}, and $who may put files there: give it an owner, or remove it first"
        stop
      fi ;;
  esac
fi
u=${owner%%:*} g=
case $owner in *:*) g=${owner#*:} ;; esac
if [ -n "$old" ]; then
  [ -n "$mode" ] || mode=${old%%/*}
  old=${old#*/} u=${u:-${old%%/*}} old=${old#*/} g=${g:-${old%%/*}}
fi
case $got in */"$u"/*/*/*|*/*/*/"$u"/*) u= ;; esac
case $got in */*/"$g"/*/*|*/*/*/*/"$g") g= ;; esac
mode=${mode:-0644} owner=$u${g:+:$g}
"""
# The file has its owner before its content; writing clears set-user-id bits again.
MAKE: Final = """
if [ $up != . ]; then
  private "$tmp" || exit
  exec 8>"$file"
elif [ $((0$mode)) -lt 512 ]; then
  settle || exit
  settled=y
fi
"""
ENTER: Final = """
[ $up = . ] || enter "$tmp" || exit
trap clean EXIT
"""
# dd syncs the file, which is cheaper and more common than `sync FILE`.
WRITE: Final = f"""
said=$(dd bs={BLOCK} conv=fsync 2>&1 >&8) || {{ printf '%s\\n' "$said" >&2; exit 1; }}
"""
# ``seen`` is the digest of the file that may be replaced, empty if there may be none.
FINISH: Final = f"""
[ -n "$settled" ] || settle || exit
case $seen in
  any) ;;
  '') if [ -e "$up/$name" ] || [ -L "$up/$name" ]; then exit {CHANGED}; fi ;;
  *)
    now=
    if [ -f "$up/$name" ] && ! [ -L "$up/$name" ]; then now=$(sha256sum <"$up/$name"); fi
    [ "${{now%% *}}" = "$seen" ] || exit {CHANGED} ;;
esac
mv -fT -- "$file" "$up/$name" || exit
trap - EXIT
[ $up = . ] || {{ cd -P .. && rmdir -- "./$tmp"; }} || :
"""
# Removes only what our own user has made.
DROP: Final = f"""{WAY}
go "$1"; shift
for e do if [ -O "./$e" ] && ! [ -L "./$e" ]; then rm -rf -- "./$e"; fi; done
"""


def mode_argument(mode: int | None) -> str:
    """The mode as an argument of these scripts."""
    return "" if mode is None else f"{mode:04o}"


def seen_argument(seen: str | None) -> str:
    """The digest that is compared, as an argument of these scripts."""
    return "any" if seen is None else seen


def owner_argument(owner: str | None, group: str | None) -> str:
    """Owner and group as an argument of these scripts, and of chown."""
    return f"{owner or ''}:{group}" if group else owner or ""


def reason_of(stderr: str) -> tuple[str, int | None]:
    """The reason, and its code, in the last message of a tool: ``mkdir: cannot create 'x': Permission denied``.

    A message without a known reason is returned without the name of the tool.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in reversed(lines):
        tail = line.rpartition(": ")[2].lower()
        if tail in _REASONS:
            return tail, _REASONS[tail]
    return (re.sub(r"^[\w./-]+: ", "", lines[-1]) if lines else ""), None

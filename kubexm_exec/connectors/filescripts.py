"""The pieces of shell that write a file on a host: beside its place first, then renamed."""

from __future__ import annotations

from typing import Final

from kubexm_exec.safepaths import WAY

BLOCK: Final = 131_072
"""Bytes that are written at once."""

# Goes to the folder of the file. `tmp` is a name that nobody can guess, of two random words; where others may write
# too, it is that of a folder which only we can enter: what is in there, nobody can put anything else in the place of.
# Nobody learns it from the name with the first word alone, which an empty file has until the folder was looked at.
BEGIN: Final = f"""{WAY}
clean() {{ if [ $up = . ]; then rm -f -- "$file"; else leave "$tmp"; fi; }}
path=$1 tmp=$2 mode=$3 owner=$4 size=$5 file=./$2 new= settled= up=.
go "$path"
if [ -d "./$name" ] && ! [ -L "./$name" ]; then echo "$path: Is a directory" >&2; exit 1; fi
umask 077
"""
# An empty file, with the right mode if the system makes such ones: a process less, and nothing to be waited for.
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
# Looks at the folder, at the new file if there is one, and at the one whose place it takes; `settle` gives it the owner
# and the mode that it should have, and has not.
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
  # A file of somebody else's may wait for what others write into it, unless the whole folder is his.
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
# A file that belongs to whom it should before anything is in it; what is written takes set-user-id bits off again.
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
# dd syncs the file itself, which is cheaper and more common than `sync FILE`.
WRITE: Final = f"""
said=$(dd bs={BLOCK} conv=fsync 2>&1 >&8) || {{ printf '%s\\n' "$said" >&2; exit 1; }}
"""
FINISH: Final = """
[ -n "$settled" ] || settle || exit
mv -fT -- "$file" "$up/$name" || exit
trap - EXIT
[ $up = . ] || { cd -P .. && rmdir -- "./$tmp"; } || :
"""
# What only this user has put there is removed, and nothing else of that name.
DROP: Final = f"""{WAY}
go "$1"; shift
for e do if [ -O "./$e" ] && ! [ -L "./$e" ]; then rm -rf -- "./$e"; fi; done
"""


def mode_argument(mode: int | None) -> str:
    """The mode as these scripts take it."""
    return "" if mode is None else f"{mode:04o}"


def owner_argument(owner: str | None, group: str | None) -> str:
    """Owner and group as these scripts, and chown, take them."""
    return f"{owner or ''}:{group}" if group else owner or ""

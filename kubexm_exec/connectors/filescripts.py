"""The pieces of shell that write a file on a host: beside its place first, then renamed."""

from __future__ import annotations

from typing import Final

from kubexm_exec.safepaths import WAY

BLOCK: Final = 131_072
"""Bytes that are written at once."""

# Goes to the folder of the file, and looks at both. `tmp` is a name that nobody can guess; where others may write too,
# it is that of a folder which only we can enter: what is in there, nobody can put anything else in the place of.
BEGIN: Final = f"""{WAY}
clean() {{ if [ $up = . ]; then rm -f -- "$file"; else leave "$tmp"; fi; }}
path=$1 tmp=$2 mode=$3 owner=$4 size=$5
go "$path"
if [ -d "./$name" ] && ! [ -L "./$name" ]; then echo "$path: Is a directory" >&2; exit 1; fi
umask 077
both=$(stat -c %a/%u/%g/%U/%G -- . "./$name" 2>/dev/null) here=${{both%%
*}} old= plain=n file=./$tmp up=.
if [ "$here" != "$both" ] && [ -f "./$name" ] && ! [ -L "./$name" ]; then
  old=${{both#*
}}
  if [ -O "./$name" ] && [ -G "./$name" ]; then case $here in [2367]???/*) ;; *) plain=y ;; esac; fi
fi
if judge "$here"; then
  up=.. file=./$name
  # A file of somebody else's may wait for what others write into it, unless the whole folder is his.
  u=${{old#*/}}
  case ${{u%%/*}} in
    ''|0|"$owner_of_here") ;;
    *)
      if [ -z "${{owner%%:*}}" ] && [ "${{u%%/*}}" != "$(id -u)" ]; then
        u=${{old%/*}}
        why="it is a file of user ${{u##*/}}, and $who may put files there: give it an owner, or remove it first"
        stop
      fi ;;
  esac
fi
"""
MAKE: Final = """
[ $up = . ] || private "$tmp" || exit
"""
AGAIN: Final = """
[ $up = . ] || enter "$tmp" || exit
"""
CLEAN: Final = """
trap clean EXIT
"""
# dd syncs the file itself, which is cheaper and more common than `sync FILE`.
WRITE: Final = f"""
said=$(dd of="$file" bs={BLOCK} conv=fsync 2>&1) || {{ printf '%s\\n' "$said" >&2; exit 1; }}
"""
FINISH: Final = """
if [ -n "$old" ]; then
  [ -n "$mode" ] || mode=${old%%/*}
  was=${old#*/} u=${owner%%:*} g=
  gid=${was#*/} was=${was%%/*}
  case $owner in *:*) g=${owner#*:} ;; esac
  if [ $plain = n ] || [ -n "$owner" ]; then owner=${u:-$was}:${g:-${gid%%/*}}; fi
fi
if [ -n "$owner" ]; then chown -- "$owner" "$file" || exit; fi
chmod -- "${mode:-0644}" "$file" || exit
mv -fT -- "$file" "$up/$name" || exit
trap - EXIT
[ $up = . ] || { cd -P .. && rmdir -- "./$tmp"; } || :
"""
# What only this user has put there is removed, and nothing else of that name.
DROP: Final = f"""{WAY}
go "$1"
if [ -O "./$2" ] && ! [ -L "./$2" ]; then rm -rf -- "./$2"; fi
"""


def mode_argument(mode: int | None) -> str:
    """The mode as these scripts take it."""
    return "" if mode is None else f"{mode:04o}"


def owner_argument(owner: str | None, group: str | None) -> str:
    """Owner and group as these scripts, and chown, take them."""
    return f"{owner or ''}:{group}" if group else owner or ""

"""The pieces of shell that write a file on a host: beside its place first, then renamed."""

from __future__ import annotations

from typing import Final

BLOCK: Final = 131_072
"""Bytes that are written at once."""

BEGIN: Final = """
path=$1 tmp=$2 mode=$3 owner=$4 size=$5
if [ -d "$path" ] && ! [ -L "$path" ]; then echo "$path: Is a directory" >&2; exit 1; fi
umask 077
"""
CLEAN: Final = "trap 'rm -f -- \"$tmp\"' EXIT\n"
# dd syncs the file itself, which is cheaper and more common than `sync FILE`.
WRITE: Final = f"""
said=$(dd of="$tmp" bs={BLOCK} conv=fsync 2>&1) || {{ printf '%s\\n' "$said" >&2; exit 1; }}
"""
FINISH: Final = """
if [ -f "$path" ] && ! [ -L "$path" ]; then
  old=$(stat -c '%a %u %g' -- "$path") || exit
  mine=$(stat -c '%u %g' -- "$tmp") || exit
  m=${old%% *} was=${old#* }
  [ -n "$mode" ] || mode=$m
  u=${owner%%:*} g=
  case $owner in *:*) g=${owner#*:} ;; esac
  if [ "$was" != "$mine" ] || [ -n "$owner" ]; then owner=${u:-${was% *}}:${g:-${was#* }}; fi
fi
if [ -n "$owner" ]; then chown -- "$owner" "$tmp" || exit; fi
chmod -- "${mode:-0644}" "$tmp" || exit
mv -fT -- "$tmp" "$path" || exit
trap - EXIT
"""


def mode_argument(mode: int | None) -> str:
    """The mode as these scripts take it."""
    return "" if mode is None else f"{mode:04o}"


def owner_argument(owner: str | None, group: str | None) -> str:
    """Owner and group as these scripts, and chown, take them."""
    return f"{owner or ''}:{group}" if group else owner or ""

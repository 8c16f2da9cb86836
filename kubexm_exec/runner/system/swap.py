"""Swap space of a host: what is in use, and turning it on and off."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.files.probe import TOOLS, Held, look, refused, told
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.fstab import FSTAB, unescape
from kubexm_exec.safepaths import WAY

# A swap space says so at the end of its first page.
_LOOK: Final = r"""
part swaps; [ ! -r /proc/swaps ] || sed 1d /proc/swaps
[ -n "$1" ] || exit 0
place "$1"; set -- "$real"
part real; printf '%s\n' "$1"
if [ -b "$1" ]; then part device
elif [ -f "$1" ]; then part size; stat -c %s -- "$1"
elif [ -e "$1" ]; then part other
fi
if [ -r "$1" ] && { [ -b "$1" ] || [ -f "$1" ]; }; then
  page=$(getconf PAGESIZE 2>/dev/null || echo 4096)
  case $(dd if="$1" bs=1 skip=$((page - 10)) count=10 2>/dev/null | tr -d '\0') in
    SWAPSPACE2|SWAP-SPACE) part signed ;;
  esac
fi
folder=${1%/*}
part free; df -Pk -- "${folder:-/}" 2>/dev/null | awk 'NR == 2 { print $4 }'
:
"""
# Whoever could put another file in the place of a swap file, would read and write the memory of the host.
_SAFE: Final = r"""
alone() {
  go "$1"
  shared || return 0
  case $mode_of_here in [1357]???) if [ "$owner_of_here" = 0 ] || [ -O . ]; then return; fi ;; esac
  echo "$who may write its folder, and put another file in its place" >&2
  exit 1
}
"""
# fallocate is quick; where a file system makes holes of it, or has none, the zeros are written.
_MAKE: Final = (
    TOOLS
    + WAY
    + _SAFE
    + r"""
size=$2
umask 077
alone "$1"
path=./$name
fill() {
  rm -f -- "$path" && (set -C; : >"$path") || return
  ! command -v chattr >/dev/null 2>&1 || chattr +C -- "$path" 2>/dev/null
  if [ "$1" = quick ] && command -v fallocate >/dev/null 2>&1 && fallocate -l "$size" "$path" 2>/dev/null; then :
  else dd if=/dev/zero of="$path" bs=1048576 count=$((size / 1048576)) 2>/dev/null || { echo "no space left" >&2; return 1; }
  fi
  mkswap "$path" >/dev/null
}
if fill quick && swapon "${PWD%/}/$name" 2>/dev/null; then exit 0; fi
if fill slow && swapon "${PWD%/}/$name"; then exit 0; fi
code=$?
rm -f -- "$path"
exit $code
"""  # noqa: E501
)
_ON: Final = TOOLS + WAY + _SAFE + 'for p do alone "$p"; swapon "${PWD%/}/$name" || exit; done'
_OFF: Final = TOOLS + 'for p do swapoff "$p" || exit; done'


class Swaps(Struct, frozen=True):
    """The swap space in use, with what was asked about one place."""

    active: tuple[str, ...]
    path: str
    """The place, with links followed."""
    kind: str
    """``device``, ``file``, ``other`` or empty."""
    size: int
    signed: bool
    """Whether it was made a swap space."""
    free: int | None
    """Bytes that are free in its folder."""
    fstab: Held


class SwapSpace:
    """Swap space of a host."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, path: str = "") -> Swaps:
        """What is in use, and what is known of a file or device."""
        seen = look(self._session, [FSTAB], _LOOK, path, what="look at swap space")
        kinds = {"device": "device", "size": "file", "other": "other"}
        free = seen.text("free").strip()
        return Swaps(
            active=tuple(unescape(line.split()[0]) for line in seen.lines("swaps")),
            path=seen.text("real").removesuffix("\n"),
            kind=next((kind for part, kind in kinds.items() if part in seen.parts), ""),
            size=int(seen.text("size") or 0),
            signed="signed" in seen.parts,
            free=int(free) << 10 if free.isdigit() else None,
            fstab=seen.files[FSTAB],
        )

    def make(self, path: str, size: int) -> None:
        """Make a swap file of that many bytes (whole mebibytes) in place of one that is there, and use it."""
        self._do("make swap space", path, _MAKE, path, str(size))

    def on(self, *paths: str) -> None:
        """Use swap spaces."""
        if paths:
            self._do("turn on swap space", ", ".join(paths), _ON, *paths)

    def off(self, *paths: str) -> None:
        """Stop using swap spaces; what is in them goes back to memory, which can take a while."""
        if paths:
            self._do("turn off swap space", ", ".join(paths), _OFF, *paths)

    def _do(self, what: str, path: str, body: str, *arguments: str) -> None:
        result = execute(self._session, script(body, *arguments), check=False, live=False)
        if result.exit_code == 0:
            return
        said = told(result)
        hint = ""
        if "Cannot allocate memory" in said:
            hint = "what is in the swap space does not fit into memory: stop something first"
        elif "not permitted" in said or "ermission denied" in said:
            hint = "only root may do this (use `become`), and never in a container"
        elif result.exit_code == 127:
            hint = "the tools for swap space come with the package util-linux"
        raise refused(self._session, f"{what} {path}", result, hint=hint)

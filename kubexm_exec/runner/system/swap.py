"""Swap space of a host: listed, made, turned on and off."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, look
from kubexm_exec.runner.system.mounts import FSTAB, unescape
from kubexm_exec.safepaths import WAY

# The signature of a swap space is at the end of its first page.
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
# A user who can replace the swap file can read and write the memory of the host.
_SAFE: Final = r"""
alone() {
  go "$1"
  shared || return 0
  case $mode_of_here in [1357]???) if [ "$owner_of_here" = 0 ] || [ -O . ]; then return; fi ;; esac
  echo "$who may write its folder, and put another file in its place" >&2
  exit 1
}
"""
# fallocate is quick; where the file system makes holes of it, or has none, zeros are written.
_MAKE: Final = r"""
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
_HINTS: Final = (
    ("Cannot allocate memory", "its content does not fit into memory: stop something first"),
    ("not permitted|ermission denied", "only root may do this (use `become`), and never in a container"),
    ("exit code 127", "install the package util-linux, which has the tools for swap space"),
)


class Swaps(Struct, frozen=True):
    """The swap space in use, and what is known of one file or device."""

    active: tuple[str, ...]
    path: str
    """The file or device, with links followed."""
    kind: str
    """``device``, ``file``, ``other`` or empty."""
    size: int
    signed: bool
    """Whether it has the signature of a swap space."""
    free: int | None
    """Free bytes in its folder."""
    fstab: Held


class SwapSpace(Operations):
    """Swap space of a host."""

    def look(self, path: str = "") -> Swaps:
        """The swap space in use, and what is known of a file or device."""
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
        """Make a swap file of that many bytes (whole mebibytes), in place of an existing one, and use it."""
        self._do(f"make swap space {path}", WAY + _SAFE + _MAKE, path, str(size), hints=_HINTS)

    def on(self, *paths: str) -> None:
        """Use swap spaces."""
        if paths:
            body = WAY + _SAFE + 'for p do alone "$p"; swapon "${PWD%/}/$name" || exit; done'
            self._do(f"turn on swap space {', '.join(paths)}", body, *paths, hints=_HINTS)

    def off(self, *paths: str) -> None:
        """Stop using swap spaces; their content goes back to memory, which can take a while."""
        if paths:
            body = 'for p do swapoff "$p" || exit; done'
            self._do(f"turn off swap space {', '.join(paths)}", body, *paths, hints=_HINTS)

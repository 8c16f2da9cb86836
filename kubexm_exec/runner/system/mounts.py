"""What is mounted on a host, and mounting, remounting and unmounting it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.model.command import CommandResult
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.files.probe import TOOLS, Held, look, refused, told
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.fstab import FSTAB, unescape
from kubexm_exec.safepaths import WAY

_LOOK: Final = r"""
part mountinfo; cat /proc/self/mountinfo || exit
place "$2"
part real; printf '%s\n' "$real"
if [ -d "$2" ]; then part folder; elif [ -e "$2" ]; then part nofolder; fi
part source
case $1 in
  '') ;;
  UUID=*|LABEL=*|PARTUUID=*|PARTLABEL=*) ! have findfs || findfs "$1" 2>/dev/null ;;
  /*)
    place "$1"; printf '%s\n' "$real"
    if [ -e "$1" ]; then
      part there
      [ -d "$1" ] || [ -b "$1" ] || part sourcefile
      ! [ "$1" -ef "$2" ] || part same
    fi ;;
esac
:
"""
_MOUNT: Final = (
    TOOLS
    + WAY
    + r"""
type=$1 options=$2 again=$3 src=$4
whole() { reach "$1"; if [ "$name" = . ]; then whole=$PWD; else whole=${PWD%/}/$name; fi; }
point=$5
case $src in /*) if [ -e "$src" ]; then whole "$src"; src=$whole; fi ;; esac
if [ -e "$point" ]; then whole "$point"; point=$whole; fi
case $type in auto|none|bind) mount -o "$options" "$src" "$point" || exit ;; *) mount -t "$type" -o "$options" "$src" "$point" || exit ;; esac
[ -z "$again" ] || mount -o "$again" "$src" "$point"
"""  # noqa: E501
)
_REMOUNT: Final = TOOLS + 'mount -o "$1" "$2" "$3"'
# All that is mounted there, the last one first; nothing mounted there is fine.
_UNMOUNT: Final = (
    TOOLS
    + r"""
n=$2
while [ "$n" -gt 0 ]; do umount "$1" || exit; n=$((n - 1)); done
"""
)
_RELOAD: Final = TOOLS + "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"


class Mounted(Struct, frozen=True):
    """One mount, as the kernel tells it."""

    path: str
    device: str
    """Its numbers, such as ``8:1``."""
    root: str
    """The folder of the file system that is mounted; not ``/`` for most bind mounts."""
    options: tuple[str, ...]
    """Of this mount."""
    fstype: str
    source: str
    super_options: tuple[str, ...]
    """Of the file system."""


class Mounts(Struct, frozen=True):
    """What is mounted, with what was asked about a mount point and a source."""

    all: tuple[Mounted, ...]
    path: str
    """The mount point with links followed."""
    kind: str
    """``folder``, ``file`` or empty."""
    source: str
    """The source with links, labels and ids followed; empty if it leads nowhere."""
    source_there: bool
    source_is_file: bool
    same: bool
    """Whether the mount point is the very folder that the source is: then it is bound there."""
    fstab: Held

    def here(self) -> list[Mounted]:
        """What is mounted at the mount point, the topmost last."""
        return [mount for mount in self.all if mount.path == self.path]

    def origin(self, mount: Mounted) -> str:
        """What to give to ``mount`` to have it again: its source, or the folder that is bound."""
        if mount.root in ("/", ""):
            return mount.source
        others = [other for other in self.all if other.device == mount.device and other.path != mount.path]
        for other in sorted(others, key=lambda other: len(other.root), reverse=True):
            below = mount.root.removeprefix(other.root.rstrip("/"))
            if below != mount.root or other.root == "/":
                return other.path.rstrip("/") + below
        return mount.source


class MountTable:
    """Mounts of a host."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, path: str, source: str = "") -> Mounts:
        """What is mounted, and what is known of a mount point and of a source."""
        seen = look(self._session, [FSTAB], _LOOK, source, path, what=f"look at mount point {path}")
        return Mounts(
            all=tuple(mount for line in seen.lines("mountinfo") if (mount := parse_mount(line)) is not None),
            path=seen.text("real").removesuffix("\n"),
            kind="folder" if "folder" in seen.parts else "file" if "nofolder" in seen.parts else "",
            source=seen.text("source").removesuffix("\n"),
            source_there="there" in seen.parts,
            source_is_file="sourcefile" in seen.parts,
            same="same" in seen.parts,
            fstab=seen.files[FSTAB],
        )

    def mount(self, source: str, path: str, fstype: str, options: str, again: str = "") -> None:
        """Mount; ``again`` are options for a remount after it (what a bind mount takes only then)."""
        command = script(_MOUNT, fstype, options, again, source, path)
        result = execute(self._session, command, check=False, live=False)
        if result.exit_code != 0:
            said = _said(result, path)
            raise refused(self._session, f"mount {source} at {path}", result, said, hint=_why(said, fstype))

    def remount(self, source: str, path: str, options: str) -> None:
        """Change the options of a mount."""
        result = execute(self._session, script(_REMOUNT, options, source, path), check=False, live=False)
        if result.exit_code != 0:
            said = _said(result, path)
            hint = "some options count only for a new mount: unmount it first, or change them at a reboot"
            raise refused(self._session, f"remount {path}", result, said, hint=hint)

    def unmount(self, path: str, layers: int = 1) -> None:
        """Unmount what is mounted there, as many times as there are layers."""
        result = execute(self._session, script(_UNMOUNT, path, str(layers)), check=False, live=False)
        if result.exit_code != 0:
            said = _said(result, path)
            hint = f"find out what uses it with `fuser -vm {path}`, and stop that first" if "busy" in said else ""
            raise refused(self._session, f"unmount {path}", result, said, hint=hint)

    def reload(self) -> None:
        """Let systemd, where it rules, read fstab again: it would go on with what it read before."""
        execute(self._session, script(_RELOAD), live=False)


def parse_mount(line: str) -> Mounted | None:
    """One line of mountinfo."""
    head, found, tail = line.partition(" - ")
    fields, rest = head.split(" "), tail.split(" ")
    if not found or len(fields) < 6 or len(rest) < 3:
        return None
    return Mounted(
        path=unescape(fields[4]),
        device=fields[2],
        root=unescape(fields[3]),
        options=tuple(fields[5].split(",")),
        fstype=rest[0],
        source=unescape(rest[1]),
        super_options=tuple(unescape(rest[2]).split(",")),
    )


def _said(result: CommandResult, path: str) -> str:
    """What the tool said, without its name and the place, which stand before it anyway."""
    said = told(result)
    for start in (f"mount: {path}: ", f"umount: {path}: ", "mount: ", "umount: "):
        said = said.removeprefix(start)
    return said


def _why(said: str, fstype: str) -> str:
    if "unknown filesystem type" in said:
        return f"the host's kernel has no {fstype}, or the package with mount.{fstype} is not installed"
    if "permission denied" in said.lower() or "must be superuser" in said:
        return "only root may mount: use `become`"
    if "wrong fs type" in said or "Invalid argument" in said:
        return "look at `fstype` and `options`; the kernel's own reason is at the end of `dmesg`"
    if "special device" in said or "can't find" in said:
        return "there is no such device: `lsblk -f` on the host shows those that there are, with label and UUID"
    return ""

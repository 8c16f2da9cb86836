"""The mounts of a host: listed, made, changed and removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import Hints, Operations, refused, told
from kubexm_exec.runner.files.probe import Held, look
from kubexm_exec.safepaths import WAY

FSTAB: Final = "/etc/fstab"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_ODD: Final = re.compile(r"[\s\\]")


class FstabLine(Struct, frozen=True):
    """An entry."""

    src: str
    path: str
    fstype: str
    options: str = "defaults"
    dump: int = 0
    passno: int = 0

    def text(self) -> str:
        """The line of the entry."""
        fields = (escape(self.src), escape(self.path), self.fstype, escape(self.options))
        return f"{' '.join(fields)} {self.dump} {self.passno}"

    @property
    def is_swap(self) -> bool:
        """Whether it is swap space, which has no mount point."""
        return self.fstype == "swap"


def escape(field: str) -> str:
    """A field as it is in the file, with octal escapes for blanks and backslashes."""
    return _ODD.sub(lambda found: f"\\{ord(found[0]):03o}", field)


def unescape(field: str) -> str:
    """The value of a field of fstab or mountinfo."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def parse_line(line: str) -> FstabLine | None:
    """The entry of a line; None for comments, empty and invalid lines."""
    fields = line.split()
    if len(fields) < 3 or fields[0].startswith("#"):
        return None
    numbers = [int(field) if field.isdigit() else 0 for field in fields[4:6]] + [0, 0]
    options = unescape(fields[3]) if len(fields) > 3 else "defaults"
    return FstabLine(unescape(fields[0]), unescape(fields[1]), fields[2], options, numbers[0], numbers[1])


def fstab_lines(text: str) -> Iterator[FstabLine]:
    """All entries."""
    for line in text.splitlines():
        said = parse_line(line)
        if said is not None:
            yield said


def mounts_at(text: str, path: str) -> list[FstabLine]:
    """The entries of a mount point."""
    return [line for line in fstab_lines(text) if is_at(line, path)]


def is_at(line: FstabLine, path: str) -> bool:
    """Whether an entry is that of a mount point."""
    return not line.is_swap and line.path.rstrip("/") == path.rstrip("/")


def edited(text: str, change: Callable[[FstabLine], FstabLine | str | None]) -> str:
    """The text with each entry replaced by another, by a literal text, or removed (None)."""
    new: list[str] = []
    for raw in text.splitlines(keepends=True):
        said = parse_line(raw)
        made = said if said is None else change(said)
        if said is None or made == said:
            new.append(raw)
        elif made is not None:
            new.append(f"{made.text() if isinstance(made, FstabLine) else made}\n")
    return "".join(new)


def appended(text: str, line: FstabLine) -> str:
    """The text with one more entry at its end."""
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line.text()}\n"


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
_MOUNT: Final = r"""
type=$1 options=$2 again=$3 src=$4
whole() { reach "$1"; if [ "$name" = . ]; then whole=$PWD; else whole=${PWD%/}/$name; fi; }
point=$5
case $src in /*) if [ -e "$src" ]; then whole "$src"; src=$whole; fi ;; esac
if [ -e "$point" ]; then whole "$point"; point=$whole; fi
case $type in auto|none|bind) mount -o "$options" "$src" "$point" || exit ;; *) mount -t "$type" -o "$options" "$src" "$point" || exit ;; esac
[ -z "$again" ] || mount -o "$again" "$src" "$point"
"""  # noqa: E501
_UNMOUNT: Final = 'n=$2; while [ "$n" -gt 0 ]; do umount "$1" || exit; n=$((n - 1)); done'
_HINTS: Final = (
    (r"(?i:permission denied)|must be superuser", "only root may mount: use `become`"),
    ("wrong fs type|Invalid argument", "check `fstype` and `options`; the end of `dmesg` has the kernel's reason"),
    ("special device|can't find", "the device does not exist: `lsblk -f` on the host lists all, with label and UUID"),
)


class Mounted(Struct, frozen=True):
    """One mount, as the kernel lists it."""

    path: str
    device: str
    """Its number, such as ``8:1``."""
    root: str
    """The folder of the file system that is mounted; not ``/`` for most bind mounts."""
    options: tuple[str, ...]
    """Of this mount."""
    fstype: str
    source: str
    super_options: tuple[str, ...]
    """Of the file system."""


class Mounts(Struct, frozen=True):
    """All mounts, and what is known of one mount point and one source."""

    all: tuple[Mounted, ...]
    path: str
    """The mount point, with links followed."""
    kind: str
    """``folder``, ``file`` or empty."""
    source: str
    """The source, with links, labels and ids resolved; empty if it does not exist."""
    source_there: bool
    source_is_file: bool
    same: bool
    """Whether mount point and source are the same folder: then it is bound there."""
    fstab: Held

    def here(self) -> list[Mounted]:
        """What is mounted at the mount point, the topmost last."""
        return [mount for mount in self.all if mount.path == self.path]

    def origin(self, mount: Mounted) -> str:
        """The source that makes the same mount again: its device, or the folder that is bound."""
        if mount.root in ("/", ""):
            return mount.source
        others = [other for other in self.all if other.device == mount.device and other.path != mount.path]
        for other in sorted(others, key=lambda other: len(other.root), reverse=True):
            below = mount.root.removeprefix(other.root.rstrip("/"))
            if below != mount.root or other.root == "/":
                return other.path.rstrip("/") + below
        return mount.source


class MountTable(Operations):
    """Mounts of a host."""

    def look(self, path: str, source: str = "") -> Mounts:
        """All mounts, and what is known of a mount point and of a source."""
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
        """Mount; ``again`` are options for a remount after it, as a bind mount needs."""
        unknown = f"the host's kernel has no {fstype}, or the package with mount.{fstype} is not installed"
        hints = (("unknown filesystem type", unknown), *_HINTS)
        self._at(path, f"mount {source} at {path}", WAY + _MOUNT, fstype, options, again, source, path, hints=hints)

    def remount(self, source: str, path: str, options: str) -> None:
        """Change the options of a mount."""
        hints = (("", "some options apply only to a new mount: unmount it first, or change them with a reboot"),)
        self._at(path, f"remount {path}", 'mount -o "$1" "$2" "$3"', options, source, path, hints=hints)

    def unmount(self, path: str, layers: int = 1) -> None:
        """Remove as many mounts from a mount point as there are layers."""
        hints = (("busy", f"find what uses it with `fuser -vm {path}`, and stop that first"),)
        self._at(path, f"unmount {path}", _UNMOUNT, path, str(layers), hints=hints)

    def reload(self) -> None:
        """Have systemd, if it runs, read fstab again: it would use what it read before."""
        self._do("reload systemd", "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi")

    def _at(self, path: str, what: str, body: str, *arguments: str, hints: Hints) -> None:
        result = self._ask(body, *arguments)
        if result.exit_code != 0:
            said = told(result)
            # Without the tool's name and the mount point, which the message has already.
            for start in (f"mount: {path}: ", f"umount: {path}: ", "mount: ", "umount: "):
                said = said.removeprefix(start)
            raise refused(self._session, what, result, said, hints=hints)


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

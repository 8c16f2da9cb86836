"""Options of mounts: which can be seen on a mount, which a remount takes, and how to have those of a mount again."""

from __future__ import annotations

from typing import Final

from kubexm_exec.step.storage import Mounted

_OPPOSITES: Final = {
    "ro": "rw",
    "nosuid": "suid",
    "nodev": "dev",
    "noexec": "exec",
    "sync": "async",
}
_SEEN: Final = {*_OPPOSITES, "noatime", "nodiratime", "relatime"}
_DEFAULTS: Final = ("rw", "suid", "dev", "exec")
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def is_bind(options: str) -> bool:
    """Whether a folder is bound, rather than a file system mounted."""
    return bool({"bind", "rbind"} & set(options.split(",")))


def kernel_options(options: str) -> tuple[str, str]:
    """What is given to mount, and to a remount after it: a bind mount takes its other options only then."""
    words = [word for word in options.split(",") if word and not word.startswith(("x-", "comment="))]
    if not is_bind(options):
        return ",".join(words) or "defaults", ""
    kind = "rbind" if "rbind" in words else "bind"
    more = [word for word in words if word not in ("bind", "rbind", "defaults", "nofail", "noauto", "auto", "_netdev")]
    return kind, f"remount,bind,{','.join(more)}" if more else ""


def remount_options(options: str) -> str:
    """What is given to a remount: also the defaults, because tools disagree on what is not said."""
    words = [word for word in options.split(",") if word and not word.startswith(("x-", "comment="))]
    kept = [word for word in words if word not in ("bind", "rbind", "defaults")]
    return ",".join(["remount", *(["bind"] if is_bind(options) else []), *_DEFAULTS, *kept])


def undo_options(mount: Mounted) -> tuple[str, str, str]:
    """Options to mount something again as it is: for the mount, for a remount after it, and for a remount alone."""
    own = [*(word for word in _DEFAULTS if word not in ("rw",) and f"no{word}" not in mount.options), *mount.options]
    if mount.root not in ("/", ""):
        return "bind", f"remount,bind,{','.join(own)}", f"remount,bind,{','.join(own)}"
    settings = [word for word in mount.super_options if word not in ("rw", "ro", *own)]
    whole = ",".join([*own, *settings])
    return whole, "", f"remount,{whole}"


def differ(options: str, mount: Mounted) -> str:
    """The first of the wanted options that the mount does not have, as far as that can be seen; empty if none."""
    words = options.split(",")
    expanded = [one for word in words for one in (_DEFAULTS if word == "defaults" else (word,))]
    wanted: dict[str, bool] = {}
    for word in expanded:
        for name, opposite in _OPPOSITES.items():
            if word in (name, opposite):
                wanted[name] = word == name
        if word in _SEEN - _OPPOSITES.keys():
            wanted[word] = True
    # A file system may be read-only as a whole.
    seen = {*mount.options, *(word for word in mount.super_options if word in ("ro", "sync"))}
    for name, on in wanted.items():
        if on != (name in seen):
            return name if on else _OPPOSITES[name]
    if mount.fstype == "tmpfs" and not is_bind(options):
        return _tmpfs_differs(words, mount)
    return ""


def _tmpfs_differs(words: list[str], mount: Mounted) -> str:
    live = dict(word.partition("=")[::2] for word in mount.super_options)
    for word in words:
        key, _, value = word.partition("=")
        wrong = False
        match key:
            case "size" | "nr_inodes":
                there, asked = _size(live.get(key, "")), _size(value)
                wrong = there is not None and asked is not None and there != _rounded(asked, key)
            case "mode" if value.isdigit():
                wrong = live.get("mode", "1777").lstrip("0") != value.lstrip("0")
            case "uid" | "gid" if value.isdigit():
                wrong = live.get(key, "0") != value
        if wrong:
            return word
    return ""


def _size(text: str) -> int | None:
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdigit() or (unit and unit not in _SIZES):
        return None
    return int(number) * _SIZES.get(unit, 1)


def _rounded(size: int, key: str) -> int:
    """The kernel counts in pages."""
    return size if key != "size" else -(-size // 4096) * 4096

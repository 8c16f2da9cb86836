"""Folders as data: made from it, and compared with it."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubexm_exec.testing import snapshot


def make(root: Path, tree: Mapping[str, Any]) -> None:
    """Make what it says: a text, ``{content, mode}``, ``{link}``, ``{archive, files}``, or ``name/`` for a folder."""
    for name, what in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        what = {"content": what} if isinstance(what, str) else what or {}
        if "link" in what:
            path.symlink_to(what["link"])
            continue
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        elif "archive" in what:
            path.write_bytes(archive(what["archive"], what["files"]))
        else:
            path.write_bytes(_bytes(what))
            _mark(path)
        path.chmod(int(what.get("mode", "0755" if name.endswith("/") else "0644"), 8))


def _mark(path: Path) -> None:
    """Give a file an extended attribute, which an undo has to bring back, where the file system knows them."""
    with contextlib.suppress(OSError):
        os.setxattr(path, "user.kubexm.mark", path.name.encode("utf-8", "surrogateescape") + b"\0\xff")


def _bytes(what: Mapping[str, Any]) -> bytes:
    if "hex" in what:
        return bytes.fromhex(what["hex"])
    return str(what.get("content", "")).encode() * int(what.get("times", 1))


def archive(fmt: str, files: Mapping[str, str | None]) -> bytes:
    """An archive of texts; None stands for a folder, ``-> x`` for a link."""
    data = io.BytesIO()
    if fmt == "zip":
        with zipfile.ZipFile(data, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text or "")
        return data.getvalue()
    mode: Any = f"w:{fmt.removeprefix('tar').removeprefix('.')}"
    with tarfile.open(fileobj=data, mode=mode) as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if text is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif text.startswith("-> "):
                info.type, info.linkname = tarfile.SYMTYPE, text[3:]
                tar.addfile(info)
            else:
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def differences(root: Path, tree: Mapping[str, Any]) -> list[str]:
    """What is not as the data says; folders on the way to something need not be named."""
    problems: list[str] = []
    actual = snapshot(root)
    named = {name.rstrip("/") for name in tree}
    implied = {str(parent) for name in named for parent in Path(name).parents} - {"."}
    problems += [f"{name} is there and should not be" for name in actual if name not in named | implied]
    for name, what in tree.items():
        entry = actual.get(name.rstrip("/"))
        if entry is None:
            problems.append(f"{name} is missing")
            continue
        what = {"content": what} if isinstance(what, str) else what or {}
        kind = "link" if "link" in what else "directory" if name.endswith("/") else "file"
        if entry[0] != kind:
            problems.append(f"{name} is a {entry[0]}, not a {kind}")
        elif kind == "link" and entry[1] != what["link"]:
            problems.append(f"{name} points to {entry[1]}")
        elif "mode" in what and entry[1] != what["mode"]:
            problems.append(f"{name} has the mode {entry[1]}, not {what['mode']}")
        elif kind == "file" and ("content" in what or "hex" in what) and entry[2] != _bytes(what):
            problems.append(f"{name} holds {entry[2]!r}")
    return problems


def meddle(root: Path, before: Mapping[str, tuple[Any, ...]]) -> bool:
    """Change what has changed since ``before``, as somebody else would: rather a file than a folder."""
    now = snapshot(root)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in sorted(changed, key=lambda name: (now.get(name, before.get(name, ("",)))[0] == "directory", name)):
        path, was, entry = root / name, before.get(name, ("",)), now.get(name)
        if entry is None:
            if not path.parent.is_dir():
                continue
            path.write_text("somebody else's\n")
        elif entry[0] == "link":
            path.unlink()
            path.symlink_to("somebody-elses")
        elif entry[0] == "file" and (was[0] != "file" or was[2] != entry[2]):
            path.write_bytes(entry[2] + b"somebody else's\n")
        else:
            path.chmod(next(mode for mode in (0o711, 0o733, 0o717) if f"{mode:04o}" not in (*was[1:2], entry[1])))
        return True
    return False

"""A removed folder that was kept as an archive: what was in it, for a comparison with what is there again."""

from __future__ import annotations

import hashlib
import io
import posixpath
from typing import IO, Any

from kubexm_exec.step import Standing, StepContext, StepFailed
from kubexm_steps.lib.standing import files_standing, together


def packed_standing(ctx: StepContext, path: str, packed: bytes) -> Standing:
    """What an undo finds of a folder that was removed, where there is one again.

    What is as it was may be what could not be removed, or what an undo has brought back; all else is somebody's.
    """
    records = _records(path, packed)
    known = {record["path"] for record in records}
    below = ctx.runner.trees.look(path, [path], below=True).below
    # Of a folder that was not in it, only the topmost.
    guests = [state.path for state in below if state.path not in known and posixpath.dirname(state.path) in known]
    found = files_standing(ctx, records, root=path)
    # Beside all that was there they are in nobody's way.
    theirs = [] if found.before else [Standing(changed=(f"{guest} (it was not there)",)) for guest in guests]
    return together(found, *theirs)


def refuse_mounted(ctx: StepContext, path: str) -> None:
    """Fail if another file system is mounted somewhere below: what is on it would be removed with the folder."""
    look = ctx.runner.trees.look(path, [path], below=True)
    for state in look.below:
        if state.kind == "directory" and state.device != look.device:
            raise StepFailed(
                f"replace {path}: another file system is mounted at {state.path}", hint="unmount it, and try once more"
            )


def _records(path: str, packed: bytes) -> list[dict[str, Any]]:
    """All that is in the archive, the folder itself first, as records of files that may be missing."""
    import tarfile

    above, found = posixpath.dirname(path), dict[str, dict[str, Any]]()
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r|gz") as tar:
            for info in tar:
                name = posixpath.normpath(posixpath.join(above, info.name))
                record: dict[str, Any] = {"path": name, "kind": "other", "left": [{"kind": "absent"}]}
                record |= {"owner": str(info.uid), "group": str(info.gid)}
                if info.issym():
                    found[name] = record | {"kind": "link", "target": info.linkname}
                    continue
                record["mode"] = info.mode & 0o7777
                if info.isdir():
                    record["kind"] = "directory"
                elif info.islnk():
                    first = found.get(posixpath.normpath(posixpath.join(above, info.linkname)), record)
                    record = {**first, "path": name}
                elif info.isfile() and (content := tar.extractfile(info)) is not None:
                    record |= {"kind": "file", "sha256": _digest(content)}
                found[name] = record
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StepFailed(f"look at {path}: what was kept of it cannot be read: {error}") from error
    return list(found.values())


def _digest(content: IO[bytes]) -> str:
    found = hashlib.sha256()
    while block := content.read(1 << 20):
        found.update(block)
    return found.hexdigest()

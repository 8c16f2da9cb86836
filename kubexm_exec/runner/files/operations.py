"""Files, folders and links on a host: read, written and changed with clear failures."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from kubexm_exec.connectors.base import Marks
from kubexm_exec.connectors.filescripts import owner_argument
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files import attributes
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.files.probe import look
from kubexm_exec.runner.files.transfer import Target, path_of, put, send, source_of
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY

READ_LIMIT: Final = 16 << 20
"""Bytes that ``read`` takes unless it is told otherwise."""
_FOLDER_MODE: Final = 0o755
_MOST_SEEN: Final = 1 << 20
_MANY_SEEN: Final = 16

# The folder is closed to others until its owner and mode are right. Where others may write too, it is made in a folder
# of our own first: nobody can put anything else in its place meanwhile.
_MKDIR: Final = f"""{WAY}
last_mode=$1 last_owner=$2 tmp=$3; shift 3
n=$#
umask 077
there() {{ [ -d "./$name" ] && ! [ -L "./$name" ]; }}
# Somebody else may have made it meanwhile: another host of the inventory can be the same machine.
meanwhile() {{ there || {{ printf '%s\n' "$said" >&2; exit 1; }}; change "$name" "$owner" "$mode" || exit; }}
for d do
  mode=0755 owner= n=$((n - 1))
  if [ $n = 0 ]; then mode=$last_mode owner=$last_owner; fi
  go "$d"
  if there; then change "$name" "$owner" "$mode" || exit
  elif shared; then
    private "$tmp" || exit
    # Without -n it would take the place of an empty folder of that name, in which somebody may work already.
    said=$({{ mkdir -- "./$name" && set_both "./$name" "$owner" "$mode" && mv -nT -- "./$name" "../$name"; }} 2>&1) &&
      ! there
    code=$?
    leave "$tmp" || exit
    [ $code = 0 ] || meanwhile
  elif said=$(mkdir -- "./$name" 2>&1); then set_both "./$name" "$owner" "$mode" || exit
  else meanwhile; fi
done
"""
_REMOVE: Final = f"""{WAY}
# Where a folder on the way is not there, nothing is.
at "$1" || {{ [ -z "$why" ] && ! [ -d "$lost" ] && exit 0; stop; }}
if [ -d "./$name" ] && ! [ -L "./$name" ]; then
  if [ "$2" = yes ]; then rm -rf -- "./$name"; else rmdir -- "./$name"; fi
else rm -f -- "./$name"; fi
"""
_REMOVE_EMPTY: Final = f"""{WAY}
for d do
  if at "$d"; then
    if [ -d "./$name" ] && ! [ -L "./$name" ]; then rmdir -- "./$name" 2>/dev/null || printf '%s\\0' "$d"; fi
  elif [ -n "$why" ]; then printf '%s\\0' "$d"; fi
done
"""
# A new link beside the old one, then renamed over it: there is no moment without a link.
# A link to the very file whose place it takes is that file to `mv`, which does nothing then.
_SYMLINK: Final = f"""{WAY}
put() {{
  if [ -f "$2" ] && ! [ -L "$2" ] && [ "$1" -ef "$2" ]; then rm -f -- "$2" || return; fi
  mv -fT -- "$1" "$2"
}}
tmp=$3
go "$2"
if shared; then
  private "$tmp" || exit
  ln -s -- "$1" "./$name" && put "./$name" "../$name" || {{ code=$?; leave "$tmp"; exit $code; }}
  leave "$tmp"
else
  ln -s -- "$1" "./$tmp" || exit
  put "./$tmp" "./$name" || {{ code=$?; rm -f -- "./$tmp"; exit $code; }}
fi
"""
_CHANGE: Final = f'{WAY}go "$1"; change "$name" "$2" "$3"'
_RENAME: Final = f"""{WAY}
go "$1"; old=$name
hold || exit
go "$2"; mv -fT -- "$stage/$old" "./$name"
"""
_RESOLVE: Final = f"""{WAY}
reach "$1"
if [ "$name" = . ]; then printf '%s\\nx' "$PWD"; else printf '%s\\nx' "${{PWD%/}}/$name"; fi
"""
# Where everybody may write, but nobody may rename what is not his own.
# The mark of the session ($1) is in the name: whoever goes on with a run that was killed finds the folder so.
_TEMPORARY: Final = f"""{WAY}
for t in "${{TMPDIR:-/tmp}}" /tmp /var/tmp; do
  cd -P -- "$t" 2>/dev/null || continue
  if shared; then
    case $mode_of_here in [1357]???) [ "$owner_of_here" = 0 ] || [ -O . ] || continue ;; *) continue ;; esac
  fi
  made=$(mktemp -d "./kx.$1.XXXXXXXXXX") && printf '%s\\n' "${{PWD%/}}/${{made#./}}" && exit
done
exit 1
"""


def read_bytes(session: Session, path: str, *, limit: int = READ_LIMIT) -> bytes:
    """The bytes of a file; a larger one than the limit is a failure, never cut."""
    try:
        data = session.connector.get(path, deadline=session.deadline, cancel=session.cancel, limit=limit + 1)
    except OSError as error:
        hint = "there is no such file on the host" if isinstance(error, FileNotFoundError) else ""
        raise file_failure(session, "read", path, error, hint=hint) from error
    return _within(path, data, limit)


def read_to_edit(session: Session, path: str) -> bytes:
    """The bytes of a file that is to be written again, changed; one with other names is refused where others make them.

    It could be a file of root's, which would be given away with the mode or the owner that the step asks for.
    """
    held = look(session, [path], what=f"read {path}").files[path]
    if not held.exists:
        raise file_failure(session, "read", path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    return _within(path, held.data, READ_LIMIT)


def _within(path: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise StepFailed(f"read {path}: it is larger than {limit} bytes", hint="this step is meant for small files")
    return data


def content(session: Session, state: FileState, *, limit: int = READ_LIMIT) -> bytes:
    """The bytes of a file whose digest is known; a small one that was read already is not read again."""
    data = session.seen.get(state.sha256) if state.sha256 else None
    if data is None or len(data) > limit:
        data = _with_attributes(session, state) if state.size <= min(limit, _MOST_SEEN) else None
        if data is None:
            data = read_bytes(session, state.path, limit=limit)
        if len(data) <= _MOST_SEEN and len(session.seen) < _MANY_SEEN:
            # Under its own digest: it may have changed since it was looked at.
            session.seen[hashlib.sha256(data).hexdigest()] = data
    return data


def _with_attributes(session: Session, state: FileState) -> bytes | None:
    """The bytes of a small file; what an undo needs to know besides is asked for with them."""
    found = attributes.read(session, state.path, content=True, limit=_MOST_SEEN)
    session.attributes[state.path] = None if found is None else found[0]
    return None if found is None else found[1]


def attributes_of(session: Session, state: FileState, *, ask: bool = True) -> Mapping[str, str] | None:
    """The extended attributes of a file; those that were asked for with its content are not asked for again."""
    if state.path not in session.attributes:
        if not ask:
            return {}
        found = attributes.read(session, state.path, content=False, limit=0)
        session.attributes[state.path] = None if found is None else found[0]
    return session.attributes[state.path]


def read_text(session: Session, path: str, *, limit: int = READ_LIMIT) -> str:
    """The text of a file in UTF-8."""
    data = read_bytes(session, path, limit=limit)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StepFailed(
            f"read {path}: it is not UTF-8 text (byte {error.start})", hint="this step is meant for text files"
        ) from error


def write(
    session: Session,
    path: str,
    data: bytes | str | BinaryIO,
    *,
    mode: int | None = None,
    owner: str | None = None,
    group: str | None = None,
) -> None:
    """Write a file atomically; mode and owner of a file that is replaced are kept unless given."""
    source = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    local = None if isinstance(source, bytes) else path_of(source)
    if local is not None:
        send(session, source_of(session, local), Target(path, mode, owner, group))
        return
    put(session, source, Target(path, mode, owner, group))


def bring(session: Session, local: Path, target: Target, known: FileState | None) -> bool:
    """Make a file hold what a local one holds; one that does already is not sent. Whether anything was changed."""
    source = source_of(session, local)
    state = known or inspect(session, [target.path])[0]
    if state.kind != "file" or state.sha256 != source.sha256:
        send(session, source, target)
        return True
    changed = False
    if not state.owned_by(target.owner, target.group):
        chown(session, target.path, target.owner, target.group)
        changed = True
    # Giving a file away takes its set-user-id bits off, so the mode comes last.
    mode = state.mode if target.mode is None else target.mode
    if mode != state.mode or (changed and mode & 0o6000):
        chmod(session, target.path, mode)
        changed = True
    return changed


def missing_folders(session: Session, path: str, seen: FileState | None = None) -> list[str]:
    """The path and the folders above it that do not exist, topmost first; something else in the way is a failure.

    ``seen``: what was seen there, or right below, if that is known.
    """
    chain = ancestors(path)
    if seen is not None and seen.above is not None:
        return chain[len(chain) - seen.above - (seen.path == path and not seen.exists) :]
    missing: list[str] = []
    for state in inspect(session, chain, digest=False):
        if state.kind == "absent":
            missing.append(state.path)
        elif state.kind in ("file", "other"):
            raise StepFailed(
                f"make folder {path}: {state.path} is not a folder",
                hint="remove or rename it first, or choose another path",
            )
    return missing


def ancestors(path: str) -> list[str]:
    """The path and all folders above it but the root, topmost first."""
    chain: list[str] = []
    while path not in ("", "/", "//", "."):
        chain.append(path)
        path = posixpath.dirname(path.rstrip("/"))
    return chain[::-1]


def mkdir(
    session: Session,
    path: str,
    *,
    mode: int | None = None,
    owner: str | None = None,
    group: str | None = None,
    parents: bool = True,
    exact: bool = False,
    missing: Sequence[str] | None = None,
) -> list[str]:
    """Make a folder, and those above it that are missing (0755, our own); returns what was made, topmost first.

    With ``exact`` it does not have the set-group-id bit from the one above.
    """
    missing = missing_folders(session, path) if missing is None else list(missing)
    if not missing:
        return []
    if len(missing) > 1 and not parents:
        raise file_failure(
            session, "make folder", path, FileNotFoundError(errno.ENOENT, f"{missing[-2]} does not exist"),
            hint="make it first, or let this step do it: `createParents: true` (in a directory step `parents: true`)",
        )  # fmt: skip
    wanted = _FOLDER_MODE if mode is None else mode
    text = _exactly(wanted) if exact else f"{wanted:04o}"
    _on_path(session, "make folder", path, _MKDIR, text, owner_argument(owner, group), _new_name(), *missing)
    return missing


def _exactly(mode: int) -> str:
    """The mode for chmod, which takes set-user-id and set-group-id off a folder only if it has five digits."""
    return f"{mode:05o}"


def remove(session: Session, path: str, *, recursive: bool = False) -> None:
    """Remove a file, a link or an empty folder; with ``recursive`` a folder with all that is in it. Absent is fine."""
    if posixpath.normpath(path) in ("/", "//", ".", ".."):
        raise StepFailed(f"remove {path}: refused", hint="name the very file or folder that is to be removed")
    _on_path(session, "remove", path, _REMOVE, path, "yes" if recursive else "no")


def remove_empty(session: Session, folders: Sequence[str]) -> list[str]:
    """Remove those of the folders that are empty, the last one first; gives those that stay, in that order."""
    if not folders:
        return []
    done = execute(session, script(_REMOVE_EMPTY, *reversed(folders), question=True), live=False)
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def symlink(session: Session, target: str, path: str) -> None:
    """Make a link, atomically in place of another link or file."""
    _on_path(session, "link", path, _SYMLINK, target, path, _new_name())


def chmod(session: Session, path: str, mode: int) -> None:
    """Change the mode."""
    _on_path(session, "change the mode of", path, _CHANGE, path, "", _exactly(mode))


def chown(session: Session, path: str, owner: str | None, group: str | None) -> None:
    """Change the owner, the group or both; a link itself, not what it points to."""
    _on_path(session, "change the owner of", path, _CHANGE, path, owner_argument(owner, group), "")


def rename(session: Session, source: str, target: str) -> None:
    """Rename, in place of a file of the new name."""
    _on_path(session, f"rename {source} to", target, _RENAME, source, target)


def resolve(session: Session, path: str) -> str:
    """The path with all links in it followed, as far as they can be trusted; the last part may be missing."""
    result = execute(session, script(_RESOLVE, path, question=True), check=False, live=False)
    if result.exit_code != 0:
        raise file_failure(session, "follow", path, result, hint="a link on the way leads nowhere")
    return result.stdout.decode("utf-8", "surrogateescape").removesuffix("\nx")


def follow(session: Session, path: str) -> str:
    """The path with all links in it followed, whoever made them; itself if it leads to nothing yet."""
    result = execute(session, script('readlink -f -- "$1" && printf x', path, question=True), check=False, live=False)
    return os.fsdecode(result.stdout).removesuffix("\nx") if result.exit_code == 0 else path


@contextlib.contextmanager
def temporary_folder(session: Session) -> Iterator[str]:
    """A folder on the host that only we can enter; it is removed with all that is in it, whatever happens."""
    connector = session.connector
    mark = connector.own_mark if isinstance(connector, Marks) else ""
    result = execute(session, script(_TEMPORARY, mark), check=False, live=False)
    folder = result.out.rstrip("\n")
    if result.exit_code != 0 or "/kx." not in folder:
        raise file_failure(session, "make a temporary folder in", "/tmp", result)
    try:
        yield folder
    finally:
        execute(session.for_cleanup(), script('rm -rf -- "$1"', folder), check=False, live=False)


def _new_name() -> str:
    """A name in a folder that nobody can guess, for a moment."""
    return f".kx-{secrets.token_hex(8)}.tmp"


def _on_path(session: Session, what: str, path: str, body: str, *arguments: str) -> CommandResult:
    command = script(body, *arguments, question=True)
    result = execute(session, command, check=False, live=False)
    if result.exit_code in (126, 127):
        raise failure(session, command, result)
    if result.exit_code != 0:
        raise file_failure(session, what, path, result)
    return result

"""Files, folders and links on a host: read, written and changed with clear failures."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from kubexm_exec.connectors.filescripts import owner_argument
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations, ask, execute, failure
from kubexm_exec.runner.errors import file_failure, user_of
from kubexm_exec.runner.files import attributes as extended
from kubexm_exec.runner.files import temporary
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.files.probe import look
from kubexm_exec.runner.files.stat import PathFacts, stat
from kubexm_exec.runner.files.transfer import Target, fetch, path_of, put, send, source_of
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.transfers import Source
from kubexm_exec.safepaths import REFUSED, WAY

READ_LIMIT: Final = 16 << 20
"""The most bytes that are read unless a limit is given."""
_FOLDER_MODE: Final = 0o755
_MOST_SEEN: Final = 1 << 20
_MANY_SEEN: Final = 16

# The folder is closed to others until its owner and mode are right. Where others may write too, it is first made in a
# private folder: nobody can replace it meanwhile.
_MKDIR: Final = f"""{WAY}
last_mode=$1 last_owner=$2 tmp=$3; shift 3
n=$#
umask 077
there() {{ [ -d "./$name" ] && ! [ -L "./$name" ]; }}
# Somebody else may have made it meanwhile: two hosts of an inventory can be the same machine.
meanwhile() {{ there || {{ printf '%s\n' "$said" >&2; exit 1; }}; change "$name" "$owner" "$mode" || exit; }}
for d do
  mode=0755 owner= n=$((n - 1))
  if [ $n = 0 ]; then mode=$last_mode owner=$last_owner; fi
  go "$d"
  if there; then change "$name" "$owner" "$mode" || exit
  elif shared; then
    private "$tmp" || exit
    # Without -n it would replace an empty folder of that name, which somebody may use already.
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
# Where a folder on the way is missing, there is nothing to remove.
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
# A new link is made beside the old one and renamed over it: there is no moment without a link. For `mv`, a link to the
# file that it replaces is that file, and it would do nothing.
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
_STRANGER: Final = f"""{WAY}
go "$1"
of=$(stat -c %u/%U -- "./$name") || exit 0
if shared && [ "${{of%%/*}}" != "$(id -u)" ]; then
  case ${{of%%/*}} in
    0|"$owner_of_here") ;;
    *)
      why="it is a file of user ${{of#*/}}, and $who may put files there: give it an owner, or remove it first"
      stop ;;
  esac
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


class Files(Operations):
    """Operations on files, folders and links."""

    # questions

    def inspect(self, path: str, *, digest: bool = True) -> FileState:
        """What is at a path, with the sha256 of a file's content unless ``digest`` is off."""
        return self.inspect_all([path], digest=digest)[0]

    def inspect_all(self, paths: Sequence[str], *, digest: bool = True) -> list[FileState]:
        """What is at each of many paths, in one round trip."""
        look_at = partial(inspect, self._session)
        ahead = self._session.ahead
        return look_at(paths, digest=digest) if ahead is None else ahead.inspect(paths, look_at, digest=digest)

    def stat(self, path: str, *, digest: bool = False, follow: bool = False) -> PathFacts:
        """All that there is to know of one path; ``follow``: of what a link at its end leads to."""
        return stat(self._session, path, digest=digest, follow=follow)

    def missing_folders(self, path: str, seen: FileState | None = None) -> list[str]:
        """The folder and those above it that do not exist, topmost first; a file in the way is a failure.

        ``seen`` is what ``inspect`` has returned for it, or for something in it: the host is not asked again.
        """
        chain = ancestors(path)
        if seen is not None and seen.above is not None:
            return chain[len(chain) - seen.above - (seen.path == path and not seen.exists) :]
        missing: list[str] = []
        for state in inspect(self._session, chain, digest=False):
            if state.kind == "absent":
                missing.append(state.path)
            elif state.kind in ("file", "other"):
                raise StepFailed(
                    f"make folder {path}: {state.path} is not a folder",
                    hint="remove or rename it first, or choose another path",
                )
        return missing

    def resolve(self, path: str) -> str:
        """The path without links; one that another user could have made is a failure. The last part may be missing."""
        result = ask(self._session, _RESOLVE, path, question=True)
        if result.exit_code != 0:
            raise file_failure(self._session, "follow", path, result, hint="a link on the way leads nowhere")
        return os.fsdecode(result.stdout).removesuffix("\nx")

    def follow(self, path: str) -> str:
        """The path with all links followed, whoever made them; one that leads nowhere yet is returned as it is."""
        result = ask(self._session, 'readlink -f -- "$1" && printf x', path, question=True)
        return os.fsdecode(result.stdout).removesuffix("\nx") if result.exit_code == 0 else path

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """The bytes of a file; a file larger than the limit is a failure."""
        session = self._session
        try:
            data = session.connector.get(path, deadline=session.deadline, cancel=session.cancel, limit=limit + 1)
        except OSError as error:
            hint = "there is no such file on the host" if isinstance(error, FileNotFoundError) else ""
            raise file_failure(session, "read", path, error, hint=hint) from error
        return _within(path, data, limit)

    def read_text(self, path: str, *, limit: int = READ_LIMIT) -> str:
        """The text (UTF-8) of a file; a file larger than the limit is a failure."""
        data = self.read_bytes(path, limit=limit)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise StepFailed(
                f"read {path}: it is not UTF-8 text (byte {error.start})", hint="this step is meant for text files"
            ) from error

    def read_to_edit(self, path: str) -> bytes:
        """The bytes of a file that will be written again; refused if another user could have led that name to it.

        It could be a file of root, which would get the mode or the owner that the step asks for.
        """
        held = look(self._session, [path], what=f"read {path}").files[path]
        if not held.exists:
            raise file_failure(self._session, "read", path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        return _within(path, held.data, READ_LIMIT)

    def content(self, state: FileState, *, limit: int = READ_LIMIT) -> bytes:
        """The bytes of a file that ``inspect`` has seen; a small one is read once per action."""
        seen = self._session.seen
        data = seen.get(state.sha256) if state.sha256 else None
        if data is None or len(data) > limit:
            data = None
            if state.size <= min(limit, _MOST_SEEN):
                # An undo needs the attributes besides: they come with the content.
                found = extended.read(self._session, state.path, content=True, limit=_MOST_SEEN)
                self._session.attributes[state.path], data = found or (None, None)
            if data is None:
                data = self.read_bytes(state.path, limit=limit)
            if len(data) <= _MOST_SEEN and len(seen) < _MANY_SEEN:
                # Under its own digest: it may have changed since it was inspected.
                seen[hashlib.sha256(data).hexdigest()] = data
        return data

    def attributes(self, state: FileState, *, ask: bool = True) -> Mapping[str, str] | None:
        """The extended attributes of a file (ACL, capabilities, label), for ``write_with``; None: the host cannot tell.

        They come with the content if that was read before; without ``ask`` only then.
        """
        known = self._session.attributes
        if state.path not in known:
            if not ask:
                return {}
            found = extended.read(self._session, state.path, content=False, limit=0)
            known[state.path] = None if found is None else found[0]
        return known[state.path]

    # changes

    def write_with(
        self, path: str, data: bytes, *, mode: int, owner: str, group: str, attributes: Mapping[str, str]
    ) -> None:
        """Write a file with its former extended attributes; owner and group are numbers."""
        self._session.changes("write", path)
        extended.write(self._session, path, data, mode, int(owner), int(group), attributes)

    def write(
        self,
        path: str,
        data: bytes | str | BinaryIO,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        seen: FileState | None = None,
    ) -> None:
        """Write a file atomically; an existing file keeps its mode and owner unless given, a new one is 0644.

        ``seen`` is what ``inspect`` has returned for it: if something else is there by now, FileChanged is raised.
        """
        source = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        local = None if isinstance(source, bytes) else path_of(source)
        target = Target(path, mode, owner, group, None if seen is None else seen.seen)
        if local is None:
            put(self._session, source, target)
        else:
            send(self._session, self.source(local), target)

    def source(self, local: Path) -> Source:
        """A file on the control node with its size and sha256, which is computed once per run."""
        return source_of(self._session, local)

    def send(
        self,
        local: Path,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        known: FileState | None = None,
    ) -> bool:
        """Make a file equal to a file of the control node; returns whether anything was changed.

        Equal content is not sent again; mode and owner are then changed only if they are given. A large file waits for
        a free slot, shows its progress, and resumes an interrupted upload. ``known`` is what ``inspect`` has returned
        for the path: if it has changed since, FileChanged is raised.
        """
        source = self.source(local)
        state = known or inspect(self._session, [path])[0]
        if state.kind != "file" or state.sha256 != source.sha256:
            send(self._session, source, Target(path, mode, owner, group, state.seen))
            return True
        given = not state.owned_by(owner, group)
        if given:
            self.chown(path, owner, group)
        # A change of owner clears the set-user-id bits, so the mode comes last.
        wanted = state.mode if mode is None else mode
        if changed := wanted != state.mode or (given and bool(wanted & 0o6000)):
            self.chmod(path, wanted)
        return given or changed

    def fetch(self, state: FileState, local: Path, *, mode: int = 0o644) -> FileState:
        """Copy a file that ``inspect`` has seen to the control node; returns its state when it was read."""
        return fetch(self._session, state, local, mode=mode)

    def mkdir(
        self,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        parents: bool = True,
        exact: bool = False,
        missing: Sequence[str] | None = None,
    ) -> list[str]:
        """Make a folder (0755 unless given) and those above it (0755, our own); returns the new ones, topmost first.

        With ``exact`` it does not inherit the set-group-id bit from the one above. ``missing`` is what
        ``missing_folders`` has returned for the path, if it was asked before.
        """
        self._session.changes("make folder", path)
        missing = self.missing_folders(path) if missing is None else list(missing)
        if not missing:
            return []
        if len(missing) > 1 and not parents:
            raise file_failure(
                self._session, "make folder", path, FileNotFoundError(errno.ENOENT, f"{missing[-2]} does not exist"),
                hint="make it first, or use `createParents: true` (in a directory step `parents: true`)",
            )  # fmt: skip
        wanted = _FOLDER_MODE if mode is None else mode
        text = _exactly(wanted) if exact else f"{wanted:04o}"
        self._on_path("make folder", path, _MKDIR, text, owner_argument(owner, group), _new_name(), *missing)
        return missing

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, link or empty folder, or with ``recursive`` a folder with its content, if it exists."""
        if posixpath.normpath(path) in ("/", "//", ".", ".."):
            raise StepFailed(f"remove {path}: refused", hint="give the path of the file or folder to remove")
        self._on_path("remove", path, _REMOVE, path, "yes" if recursive else "no")

    def remove_empty(self, folders: Sequence[str]) -> list[str]:
        """Remove those of the folders that are empty, the last one first; returns the others, in that order."""
        if not folders:
            return []
        self._session.changes("remove", folders[0])
        done = execute(self._session, script(_REMOVE_EMPTY, *reversed(folders), question=True), live=False)
        return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]

    def symlink(self, target: str, path: str) -> None:
        """Make a link, which atomically replaces another link or file."""
        self._on_path("link", path, _SYMLINK, target, path, _new_name())

    def check_replaceable(self, state: FileState) -> None:
        """Fail as a write would that gives a file no owner, if it is of another user, where others may put files."""
        if state.kind != "file" or state.uid <= 0 or state.owner == user_of(self._session):
            return
        result = ask(self._session, _STRANGER, state.path, question=True)
        if result.exit_code == REFUSED:
            raise file_failure(self._session, "write", state.path, result)

    def chmod(self, path: str, mode: int) -> None:
        """Change the mode."""
        self._on_path("change the mode of", path, _CHANGE, path, "", _exactly(mode))

    def chown(self, path: str, owner: str | None = None, group: str | None = None) -> None:
        """Change the owner, the group or both; of a link, not of its target."""
        self._on_path("change the owner of", path, _CHANGE, path, owner_argument(owner, group), "")

    def rename(self, source: str, target: str) -> None:
        """Rename; an existing file of the new name is replaced."""
        self._on_path(f"rename {source} to", target, _RENAME, source, target)

    def temporary_folder(self) -> AbstractContextManager[str]:
        """A private folder on the host, which is removed at the end of the ``with``, whatever happens."""
        return temporary.folder(self._session)

    def validate(self, path: str, content: bytes | Path, command: Sequence[str], *, executable: bool = False) -> None:
        """Have a program of the host judge the content that a file is to have; an exit code other than 0 is a failure.

        ``%s`` in the command is the path of the content: a file that only our user can read, in a private folder, and
        of the same name. It is removed in any case; the file itself is not touched.
        """
        source = content if isinstance(content, bytes) else self.source(content)
        temporary.validate(self._session, path, source, command, executable=executable)

    def _on_path(self, what: str, path: str, body: str, *arguments: str) -> None:
        self._session.changes(what, path)
        command = script(body, *arguments, question=True)
        result = execute(self._session, command, check=False, live=False)
        if result.exit_code in (126, 127):
            raise failure(self._session, command, result)
        if result.exit_code != 0:
            raise file_failure(self._session, what, path, result)


def ancestors(path: str) -> list[str]:
    """The path and all folders above it but the root, topmost first."""
    chain: list[str] = []
    while path not in ("", "/", "//", "."):
        chain.append(path)
        path = posixpath.dirname(path.rstrip("/"))
    return chain[::-1]


def _within(path: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise StepFailed(f"read {path}: it is larger than {limit} bytes", hint="this step is meant for small files")
    return data


def _exactly(mode: int) -> str:
    """The mode for chmod, which clears set-user-id and set-group-id of a folder only if it has five digits."""
    return f"{mode:05o}"


def _new_name() -> str:
    """A temporary name that nobody can guess."""
    return f".kx-{secrets.token_hex(8)}.tmp"

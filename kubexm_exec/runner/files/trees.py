"""Folders with all their content: compared in one round trip, and changed by one stream, each file atomically."""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.connectors.filescripts import DROP
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, StepFailed
from kubexm_exec.runner.commands import Operations, ask, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.attributes import have_any
from kubexm_exec.runner.files.filestate import FileState, Kind
from kubexm_exec.runner.files.inspect import (
    MANY,
    SCRIPT,
    Answer,
    ChangedMeanwhile,
    asked,
    by_folder,
    parse,
    path_list,
)
from kubexm_exec.runner.files.transfer import LARGE, Outgoing, Target, put, send, upload_slot
from kubexm_exec.runner.quote import EACH, script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.transfers import Source
from kubexm_exec.safepaths import WAY

_LONGEST_ANSWER: Final = 256 << 20
_BLOCK: Final = 512
_CHUNK: Final = 1 << 18
_FEW: Final = 3
"""Up to so many files are sent faster one by one, over the shell that is open."""
_OURS: Final = re.compile(r"\.kx-[0-9a-f.]+\.(?:tmp|part|tree)")
"""Temporary names of transfers."""
_TYPES: Final[Mapping[int, Kind]] = {0x8: "file", 0x4: "directory", 0xA: "link"}

# Who we are; then everything below the folder, with a mark after each name (which may have line breaks); then the
# answers for the paths in the input.
_LOOK: Final = (
    WAY
    + r"""
id -u && id -g || exit
if [ "$3" = yes ] && [ -d "$4" ]; then
  ( reach "$4/." && find . -xdev -name '.kx-*.tree' -prune -o -exec stat -c "%f/%u/%g/%s/%d/%U/%G/%n/$5" {} + ) || exit
fi
printf '=%s\n' "$5"
"""
    + MANY
)
_LISTED: Final = re.compile(r"([0-9a-f]+)/(\d+)/(\d+)/(\d+)/(\d+)/([^/]*)/([^/]*)/(.*)", re.DOTALL)
# Runs a command on the names of paths in their folders, one folder after the other: the way to each is checked.
IN_FOLDERS: Final = (
    WAY
    + r"""
# Where nobody else may write, all at once.
changed() {
  if shared; then
    for e do change "${e#./}" "$owner" "$mode" || return; done
    return
  fi
  [ -z "$owner" ] || chown -h -- "$owner" "$@" || return
  [ -n "$mode" ] || return 0
  for e do if [ -L "$e" ]; then change "${e#./}" "" "$mode"; return; fi; done
  chmod -- "$mode" "$@"
}
act() {
  case $what in
    read) cat -- "$@" ;;
    remove) rm -f -- "$@" ;;
    empty) rmdir -- "$@" ;;
    make) mkdir -m "$mode" -- "$@" ;;
    change) changed "$@" ;;
  esac
}
what=$1 owner=$2 mode=$3 folder= names= i=0; shift 3
for p do
  i=$((i + 1))
  if [ "${p%/*}" != "$folder" ]; then
    [ -z "$names" ] || eval "act $names" || exit
    folder=${p%/*} names=
    go "$p"
  fi
  names="$names \"./\${$i##*/}\""
done
[ -z "$names" ] || eval "act $names"
"""
)
_READ: Final = EACH + 'each 500 sh -c "$1" kx read "" ""'
# `tidy`, called in the folder, removes stages of killed runs there: nobody uses one for a day. `place FOLDER`, called
# in the folder to fill, moves the content of FOLDER in a stage into it, with one mv per folder. A link in the way is
# replaced. With `fill`, missing folders are made.
PLACE: Final = r"""
tidy() {
  find . -maxdepth 1 -type d -name '.kx-*.tree' \( -perm 700 -o -perm 2700 \) -mtime +0 -user "$(id -u)" \
    -exec rm -rf -- {} + 2>/dev/null
}
move() {
  d=$1 n=$(($# - 1)); shift
  if [ $n -gt 300 ]; then
    find "$d/." -maxdepth 1 ! -type d -exec sh -c 'exec mv -f -- "$@" ./' kx {} +
    return
  fi
  while [ $n -gt 0 ]; do
    e=$1 n=$((n - 1)); shift
    if [ -L "$e" ] || { [ -e "$e" ] && ! [ -d "$e" ]; }; then set -- "$@" "$e"; fi
  done
  [ $# -eq 0 ] || mv -f -- "$@" ./
}
into() {
  name=${1##*/} hops=0
  if [ -z "$fill" ]; then :
  elif [ -L "./$name" ] && [ "$fill" != follow ]; then
    echo "kx: ${PWD%/}/$name is a link to $(readlink -- "./$name"), and a folder is to be filled there" >&2
    return 1
  elif ! [ -d "./$name" ]; then
    m=$(stat -c %a -- "$1") && (umask 077; mkdir -- "./$name") || return
    change "$name" "$owner" "${m#"${m%???}"}" || return
  fi
  walk "$name/" || stop
}
place() {
  d=$1
  set -- "$d"/* "$d"/.[!.]* "$d"/..?*
  move "$d" "$@" || return
  for e do
    if [ -d "$e" ] && ! [ -L "$e" ]; then ( into "$e" && place "$e" ) || return; fi
  done
}
"""
# Everything is on disk before the first change, in a folder inside: that is on the same file system even if the folder
# is a mount point. Then each file is renamed into its place.
_CHANGE: Final = (
    EACH
    + WAY
    + PLACE
    + r"""
root=$1 new=$2 owner=$3 mode=$4 flags=$5 in=$6
umask 077
reach "$root/."
tidy
private "$new" || exit
fill=
trap 'leave "$new"' EXIT
hold || exit
mkdir t && tar -"$flags"f - || exit
[ -f end ] || { echo "its end did not arrive" >&2; exit 1; }
if [ -n "$owner" ]; then chown -hR -- "$owner" t || exit; fi
for f in again-*; do if [ -s "$f" ]; then each 500 chmod -- "${f#again-}" <"$f" || exit; fi; done
if [ -s links ]; then
  each 2 sh -c 'd=t/$2; mkdir -p -- "${d%/*}" && exec ln -s -- "$1" "$d"' kx <links || exit
fi
sync -f . 2>/dev/null || sync
if [ -s gone ]; then each 500 sh -c "$in" kx remove "" "" <gone || exit; fi
if [ -s emptied ]; then each 500 sh -c "$in" kx empty "" "" <emptied || exit; fi
if [ -s folders ]; then
  each 500 sh -c "$in" kx make "" "$mode" <folders || exit
  if [ -n "$owner" ]; then each 500 sh -c "$in" kx change "$owner" "" <folders || exit; fi
fi
( cd -P .. && place "$stage/t" ) || exit
for f in own-*; do if [ -s "$f" ]; then each 500 sh -c "$in" kx change "${f#own-}" "" <"$f" || exit; fi; done
for f in mode-*; do if [ -s "$f" ]; then each 500 sh -c "$in" kx change "" "${f#mode-}" <"$f" || exit; fi; done
:
"""
)


class TreeLook(Struct, frozen=True):
    """The state of a folder."""

    states: Mapping[str, FileState]
    """The paths that were asked for."""
    below: tuple[FileState, ...]
    """The content of the folder, without digests and targets; empty unless it was asked for.

    Of another file system that is mounted in it, only the mount point.
    """
    uid: int
    gid: int
    """Who we are on the host."""
    device: int
    """The file system that the folder is on."""


class NewFile(Struct, frozen=True):
    """A file to be put in place; numbers of owner and group as it should have them if nothing else is said."""

    path: str
    content: bytes | Source
    mode: int
    uid: int
    gid: int

    @property
    def size(self) -> int:
        """Bytes of content."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.size


class TreeChange(Struct):
    """What is to be changed below a folder, all of it named by full paths."""

    gone: list[str] = field(default_factory=list)
    """Files and links to be removed."""
    emptied: list[str] = field(default_factory=list)
    """Folders to be removed, those inside others first."""
    folders: list[str] = field(default_factory=list)
    """Folders to be made, those above others first."""
    folder_mode: int = 0o755
    files: list[NewFile] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    """Targets by path."""
    owner: str = ""
    """``user``, ``:group`` or ``user:group`` of all that is made and put in place; empty: the numbers of each."""
    owners: dict[str, list[str]] = field(default_factory=dict)
    """Paths that are there, by the owner they are to have."""
    modes: dict[int, list[str]] = field(default_factory=dict)
    """Paths that are there, by the mode they are to have."""
    exact: bool = False
    """Whether folders lose the set-group-id bit, too, that they have from the one above."""

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.files or self.links or self.more)

    @property
    def more(self) -> bool:
        """Whether there is anything to do beside putting files and links in place."""
        return bool(self.gone or self.emptied or self.folders or self.owners or self.modes)


class Member(Struct, frozen=True):
    """A file in a tar archive."""

    name: str
    content: bytes | Source
    mode: int = 0o600
    uid: int = 0
    gid: int = 0


class TarStream:
    """A tar archive that exists only while it is read; ``on_read`` is told how much content of sources was read."""

    def __init__(
        self, session: Session, members: Iterable[Member], on_read: Callable[[int], object] | None = None
    ) -> None:
        self._session = session
        self._pieces = self._made(members)
        self._held = b""
        self._on_read = on_read
        self._now = int(time.time())
        self._done = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""
        parts, have = [self._held], len(self._held)
        while have < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        self._held = data[size:]
        if self._on_read is not None:
            self._on_read(self._done)
        return data[:size]

    def _made(self, members: Iterable[Member]) -> Iterator[bytes]:
        for member in members:
            info, content = tarfile.TarInfo(member.name), member.content
            info.mode, info.uid, info.gid, info.mtime = member.mode, member.uid, member.gid, self._now
            info.size = len(content) if isinstance(content, bytes) else content.size
            # As GNU tar writes it, which busybox reads too.
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            if isinstance(content, bytes):
                yield content
            else:
                with Outgoing(self._session, content) as file:
                    while data := file.read(min(_CHUNK, content.size - file.done) or 1):
                        self._done += len(data)
                        yield data
            yield b"\0" * (-info.size % _BLOCK)
        yield b"\0" * (2 * _BLOCK)


class Trees(Operations):
    """Operations on folders with all their content."""

    def look(self, root: str, paths: Sequence[str], *, below: bool = False) -> TreeLook:
        """The state of many paths, with digests; with ``below`` also of the content of the folder."""
        mark = f"kx{secrets.token_hex(12)}"
        command = script(
            _LOOK,
            SCRIPT,
            "yes",
            "yes" if below else "no",
            root,
            mark,
            stdin=path_list(paths),
            max_output=_LONGEST_ANSWER,
        )
        return asked(self._session, command, root, lambda result: self._read_look(root, paths, result, mark))

    def _read_look(self, root: str, paths: Sequence[str], result: CommandResult, mark: str) -> TreeLook:
        if result.dropped:
            raise StepFailed(f"look at {root}: it has too many files", hint="use one step for each folder in it")
        answer = Answer.of(result)
        uid, gid = int(answer.until("\n")), int(answer.until("\n"))
        listed = _below(root, answer.until(f"={mark}\n").split(f"/{mark}\n")[:-1])
        states = {
            state.path: state
            for state in parse(self._session, paths, answer, result, digest=True, own=len(paths), loops=True)
        }
        # The folder itself comes first; the path may be a link to it.
        itself = listed[0] if listed else states.get(root, FileState(root))
        return TreeLook(states, tuple(listed[1:]), uid, gid, itself.device)

    def preload(self, states: Sequence[FileState]) -> None:
        """Read the content of many small files now, in one round trip, for later calls of ``content``."""
        seen = self._session.seen
        some = [state for state in states if state.kind == "file" and state.sha256 and state.sha256 not in seen]
        if len(some) > 1:
            for state, data in zip(some, self.read(some), strict=True):
                seen[state.sha256] = data

    def read(self, states: Sequence[FileState]) -> list[bytes]:
        """The content of many files, in one round trip; one that has changed since is a failure."""
        if not states:
            return []
        total = sum(state.size for state in states)
        known = {state.path: state for state in states}
        paths = by_folder(known)
        result = ask(self._session, _READ, IN_FOLDERS, stdin=path_list(paths), max_output=total + 1)
        if result.exit_code != 0:
            raise file_failure(self._session, "read", states[0].path, result)
        contents, at = {}, 0
        for state in map(known.__getitem__, paths):
            data = result.stdout[at : at + state.size]
            if result.dropped or len(result.stdout) != total or not state.holds(data):
                raise StepFailed(
                    f"read {state.path}: it keeps changing", hint="stop what writes to it, and run it again"
                )
            contents[state.path] = data
            at += state.size
        return [contents[state.path] for state in states]

    def have_attributes(self, root: str, states: Sequence[FileState]) -> bool | None:
        """Whether any of many files below a folder has extended attributes; None if the host cannot tell."""
        return have_any(self._session, root, [state.path for state in states]) if states else False

    def change(self, root: str, change: TreeChange, look: TreeLook) -> None:
        """Make the changes: everything is sent before the first of them, and each file is replaced atomically."""
        self._session.changes("write to", root)
        self._session.progress(f"upload {posixpath.basename(root) or root}", None, None)
        alone = [file for file in change.files if self._goes_alone(file, change, look)]
        lone = {file.path for file in alone}
        together = [file for file in change.files if file.path not in lone]
        for home, files, links in _by_file_system(root, together, change, look):
            first = home == root
            if files or links or (first and change.more):
                self._change(home, _part(change, links, first=first), files, links, look)
        for file in alone:
            self._send(file, change.owner, look)

    @staticmethod
    def _goes_alone(file: NewFile, change: TreeChange, look: TreeLook) -> bool:
        """Whether it is too large for the stream, or needs an owner that only root can set."""
        foreign = look.uid != 0 and (file.uid, file.gid) != (look.uid, look.gid)
        few = len(change.files) <= _FEW and not change.more and not change.links
        return file.size >= LARGE or foreign or few

    def _send(self, file: NewFile, owner: str, look: TreeLook) -> None:
        user, _, group = owner.partition(":")
        if (file.uid, file.gid) != (look.uid, look.gid):
            user, group = user or str(file.uid), group or str(file.gid)
        target = Target(file.path, file.mode, user or None, group or None)
        if isinstance(file.content, Source):
            send(self._session, file.content, target)
        else:
            put(self._session, file.content, target)

    def _change(
        self, root: str, change: TreeChange, files: Sequence[NewFile], links: Mapping[str, str], look: TreeLook
    ) -> None:
        session = self._session
        stage = f".kx-{secrets.token_hex(8)}.tree"
        flags = "xpm" if look.uid == 0 else "xpmo"
        total = sum(file.size for file in files)
        name = posixpath.basename(root) or root
        large = total >= LARGE

        def progress(done: int) -> None:
            session.progress(f"upload {name}", done, total)

        stream = TarStream(session, _members(root, change, files, links), progress if large else None)
        arguments = (root, stage, change.owner, f"{change.folder_mode:04o}", flags, IN_FOLDERS)
        try:
            with upload_slot(session, name) if large else contextlib.nullcontext():
                result = ask(session, _CHANGE, *arguments, stdin=stream)
        except (CommandTimedOut, CommandCancelled, StepFailed) as error:
            ask(session.for_cleanup(), DROP, f"{root.rstrip('/')}/x", stage)
            if isinstance(error, StepFailed):
                raise
            raise type(error)(f"while writing to {root}") from error
        if result.exit_code in (126, 127):
            raise failure(session, script("tar"), result)
        if result.exit_code != 0:
            raise file_failure(session, "write to", root, result)


def is_transient(path: str) -> bool:
    """Whether a path is a temporary file or folder of a transfer."""
    return _OURS.fullmatch(posixpath.basename(path)) is not None


def _below(root: str, records: Sequence[str]) -> list[FileState]:
    states: list[FileState] = []
    for record in records:
        found = _LISTED.fullmatch(record)
        if found is None:
            raise ChangedMeanwhile
        raw, uid, gid, size, device, owner, group, name = found.groups()
        states.append(
            FileState(
                root if name == "." else posixpath.join(root, name.removeprefix("./")),
                kind=_TYPES.get(int(raw, 16) >> 12, "other"),
                mode=int(raw, 16) & 0o7777,
                owner=owner if owner != "UNKNOWN" else uid,
                group=group if group != "UNKNOWN" else gid,
                uid=int(uid),
                gid=int(gid),
                size=int(size),
                device=int(device),
            )
        )
    return states


def _by_file_system(
    root: str, files: Sequence[NewFile], change: TreeChange, look: TreeLook
) -> Iterator[tuple[str, list[NewFile], dict[str, str]]]:
    """The files and links by the topmost folder on their file system, the root first: a rename cannot cross two."""
    homes: dict[str, str] = {root: root}
    new = set(change.folders)
    groups: dict[str, tuple[list[NewFile], dict[str, str]]] = {root: ([], {})}

    def home(folder: str) -> str:
        if folder not in homes:
            above = posixpath.dirname(folder)
            there = look.states.get(folder)
            over = look.states.get(above)
            homes[folder] = home(above)
            if there is not None and there.exists and folder not in new:
                mounted = over is not None and there.device != over.device
                if mounted or there.kind == "link":
                    homes[folder] = folder
        return homes[folder]

    for file in files:
        groups.setdefault(home(posixpath.dirname(file.path)), ([], {}))[0].append(file)
    for path, target in change.links.items():
        groups.setdefault(home(posixpath.dirname(path)), ([], {}))[1][path] = target
    for folder, (some, links) in groups.items():
        yield folder, some, links


def _part(change: TreeChange, links: Mapping[str, str], *, first: bool) -> TreeChange:
    """The change for one file system: it sets the owners of its links; all else goes with the root."""
    elsewhere = change.links.keys() - links.keys()
    owners = {
        owner: mine
        for owner, paths in change.owners.items()
        if (mine := [path for path in paths if (path not in elsewhere if first else path in links)])
    }
    return replace(change, owners=owners) if first else TreeChange(owner=change.owner, owners=owners)


def _members(root: str, change: TreeChange, files: Sequence[NewFile], links: Mapping[str, str]) -> Iterator[Member]:
    """The lists for the script, the files under their names in the folder, and an end mark."""
    below = root.rstrip("/") + "/"
    yield Member("gone", path_list(by_folder(change.gone)))
    yield Member("emptied", path_list(change.emptied))
    yield Member("folders", path_list(change.folders))
    pairs = [word for path, target in links.items() for word in (target, path.removeprefix(below))]
    yield Member("links", path_list(pairs))
    for owner, paths in change.owners.items():
        yield Member(f"own-{owner}", path_list(by_folder(paths)))
    for mode, paths in change.modes.items():
        # With five digits, chmod clears such bits of folders.
        yield Member(f"mode-{mode:05o}" if change.exact else f"mode-{mode:04o}", path_list(by_folder(paths)))
    again: dict[int, list[str]] = {}
    for file in files:
        name = f"t/{file.path.removeprefix(below)}"
        if change.owner and file.mode & 0o6000:
            # A change of owner clears these bits.
            again.setdefault(file.mode, []).append(name)
        yield Member(name, file.content, file.mode, file.uid, file.gid)
    for mode, names in again.items():
        yield Member(f"again-{mode:04o}", path_list(names))
    yield Member("end", b"")

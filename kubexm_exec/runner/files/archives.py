"""Archives on a host: listed, compared with a folder, unpacked and packed."""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.filescripts import mode_argument, reason_of
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import ask, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.inspect import by_folder, path_list
from kubexm_exec.runner.files.operations import Files
from kubexm_exec.runner.files.trees import IN_FOLDERS, PLACE
from kubexm_exec.runner.quote import EACH, script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY, refusal

Format = Literal["tar", "tar.gz", "tar.xz", "tar.bz2", "zip"]
EntryKind = Literal["file", "directory", "link", "hardlink", "other"]

_SUFFIXES: Final[dict[str, Format]] = {
    ".tar": "tar",
    ".tar.gz": "tar.gz",
    ".tgz": "tar.gz",
    ".tar.xz": "tar.xz",
    ".txz": "tar.xz",
    ".tar.bz2": "tar.bz2",
    ".tbz2": "tar.bz2",
    ".zip": "zip",
}
_FLAGS: Final[dict[Format, str]] = {"tar": "", "tar.gz": "z", "tar.xz": "J", "tar.bz2": "j"}
_KINDS: Final[dict[str, EntryKind]] = {"-": "file", "d": "directory", "l": "link", "h": "hardlink"}
_LISTING: Final = 64 << 20
_SPECIAL, _OUTSIDE, _OPEN, _UNLISTED = 96, 97, 95, 94

# Archives are read from standard input: GNU tar would take "a:b" for a file on the host a.
_LIST_TAR: Final = (
    WAY
    + r"""
reach "$2"
case $(tar --version 2>/dev/null) in *GNU*) echo escaped; o=--numeric-owner ;; *) echo plain; o= ;; esac
tar -t"$1"f - <"./$name" || exit
printf '\0'
tar -tv"$1"f - $o <"./$name"
"""
)
# Whether nobody else can change or replace a file, neither in its folder nor in those above.
_CLOSED: Final = (
    WAY
    + rf"""
reach "$1"
is=$(stat -c %u/%a -- "./$name") || exit
case $is in *[2367]|*[2367]?) exit {_OPEN} ;; 0/*) ;; *) [ -O "./$name" ] || exit {_OPEN} ;; esac
! shared || exit {_OPEN}
while [ "$PWD" != / ]; do
  is=$(stat -c %u .) && cd -P .. || exit
  ! shared || case $mode_of_here/$is in
    [1357]???/0|[1357]???/$(id -u)) [ "$owner_of_here" = 0 ] || [ -O . ] ;;
    *) false ;;
  esac || exit {_OPEN}
done
"""
)
_COPY: Final = WAY + 'reach "$1"; umask 077; cat <"./$name" >"$2"'
# Only Info-ZIP's unzip tells links apart, with `-Z`; that of busybox has no such option.
_LIST_ZIP: Final = (
    WAY
    + r"""
reach "$1"
unzip -l "./$name"
code=$?
printf '\0'
unzip -Z "./$name" 2>/dev/null | cut -c 1-10
exit $code
"""
)
# It is unpacked into a private folder, checked, and only then put in place: nothing that exists there can lead it
# elsewhere, and forbidden entries never get there. The input tells of each name except folders whether to put it in
# place (+) or to keep the existing one (-): a name that is not listed is a failure.
_UNPACK: Final = (
    EACH
    + WAY
    + PLACE
    + rf"""
src=$1 root=$2 flags=$3 strip=$4 new=$5 owner=$6 special=$7 fill=$8 count=$9
reach "$root/."
tidy
private "$new" || exit
trap 'cd -P "$stage" && leave "$new"' EXIT
hold && mkdir t || exit
reach "$src"
exec 8<"./$name"
cd -P "$stage" || exit
if [ "$flags" = zip ]; then
  [ -n "$special" ] && set -- -K || set --
  unzip -q -o "$@" /proc/self/fd/8 -d t </dev/null
  code=$?
  # 1 of unzip is a warning: everything was unpacked.
  [ $code -le 1 ] || exit $code
else tar -x"$flags"of - --strip-components="$strip" -C t <&8 || exit; fi
find t -type f -exec stat -c '%h %i' {{}} + |
  awk '$1 > 1 {{ n[$2]++; h[$2] = $1 }} END {{ for (i in n) if (n[i] != h[i]) exit 1 }}' || exit {_OUTSIDE}
odd=$(find t \( -type f \( -perm -4000 -o -perm -2000 \) \) -o ! -type f ! -type d ! -type l)
if [ -n "$odd" ] && [ -z "$special" ]; then printf '%s\n' "${{odd#t/}}"; exit {_SPECIAL}; fi
if [ -n "$count" ]; then
  each 500 sh -c '
    for w do
      shift
      f=t/${{w#?}}
      case $w in -*) set -- "$@" "$f" ;; *) [ -e "$f" ] || [ -L "$f" ] || exit ;; esac
    done
    [ $# -eq 0 ] || rm -f -- "$@"' kx &&
    [ "$(find t ! -type d -exec stat -c %h {{}} + | wc -l)" -eq "$count" ] || exit {_UNLISTED}
fi
if [ -n "$owner" ] && [ -n "$odd" ]; then
  # A change of owner clears these bits.
  find t -exec sh -c '
    o=$1; shift
    for f do
      m=; if [ -f "$f" ] && ! [ -L "$f" ]; then m=$(stat -c %a -- "$f"); fi
      chown -h -- "$o" "$f" && {{ [ -z "$m" ] || chmod -- "$m" "$f"; }} || exit
    done' kx "$owner" {{}} + || exit
elif [ -n "$owner" ]; then chown -hR -- "$owner" t || exit; fi
sync -f . 2>/dev/null || sync
( cd -P .. && place "$stage/t" )
"""
)
# The content of the files of an archive, one after the other.
_CONTENT: Final = (
    WAY
    + r"""
content() {
  reach "$1"
  if [ "$2" = zip ]; then unzip -p "./$name" </dev/null; else tar -x"$2"Of - --strip-components="$3" <"./$name"; fi
}
"""
)
_SAME: Final = (
    EACH
    + _CONTENT
    + r"""
inside=$( (content "$1" "$2" "$3") | sha256sum) && outside=$(each 500 sh -c "$4" kx read "" "" | sha256sum) &&
  [ "$inside" = "$outside" ]
"""
)
# Each line of the input is how many bytes to skip, and how many to compute a digest of. dd reads exactly so many: a
# tool that reads ahead would take some of the next ones.
_DIGESTS: Final = (
    _CONTENT
    + r"""
take() {
  [ "$1" -lt 65536 ] || dd bs=65536 count=$(($1 / 65536)) iflag=fullblock 2>/dev/null || return
  [ $(($1 % 65536)) -eq 0 ] || dd bs=$(($1 % 65536)) count=1 iflag=fullblock 2>/dev/null
}
exec 9<&0
(content "$1" "$2" "$3") | {
  while read -r skipped size <&9; do
    take "$skipped" >/dev/null && take "$size" | sha256sum || exit
  done
  cat >/dev/null
}
"""
)
_GIVE: Final = EACH + 'each 500 sh -c "$1" kx change "$2" ""'
_PACK: Final = (
    WAY
    + r"""
mode=$5
go "$3"
umask 077
if [ -z "$mode" ] && [ -f "./$name" ] && ! [ -L "./$name" ] && [ -O "./$name" ]; then
  mode=$(stat -c %a -- "./$name")
fi
private "$4" || exit
( reach "$2/."; tar -c"$1"f - . >&8 ) 8>"./$name" && chmod -- "${mode:-0600}" "./$name" &&
  mv -fT -- "./$name" "../$name"
code=$?
leave "$4"
exit $code
"""
)
_ROW: Final = re.compile(r"\s*(\d+)\s+\d{2,4}-\d\d-\d{2,4}\s+\d\d:\d\d   ?(.*)")
_TAR_ROW: Final = re.compile(r"\S{10} .{1,64}? +(\d+) \d+-\d\d-\d\d \d\d:\d\d(?::\d\d)? (.*)", re.DOTALL)
_HIDDEN: Final = re.compile(r"\^[@-_?]")
_ESCAPE: Final = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Entry(Struct, frozen=True):
    """An entry of an archive, under its name in the folder that it is unpacked to."""

    name: str
    kind: EntryKind
    sha256: str = ""
    """Of a file, if it is known; of a link whose target is not known, the digest of the target."""
    target: str = ""
    """Of a link, if it is known; of a hard link, a name in the archive."""
    special: str = ""
    """Why it is dangerous: it would run as another user, or is not a file."""
    size: int = -1
    """Bytes of its content in the archive; -1: unknown."""
    start: int = -1
    """Bytes of content before it in the archive; -1: unknown, or it has no content."""


def format_of(path: str, given: Format | None = None) -> Format:
    """The given format, or that of the name."""
    if given is not None:
        return given
    name = posixpath.basename(path).lower()
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return _SUFFIXES[suffix]
    raise StepFailed(
        f"{path}: its name does not tell the format of the archive",
        hint=f"set `format` to one of {', '.join(dict.fromkeys(_SUFFIXES.values()))}",
    )


def checked(entries: Sequence[Entry], archive: str, strip: int, *, special: bool = False) -> list[Entry]:
    """The entries under their final names; refuses an archive that would write outside its folder.

    So is one with programs that run as another user, or entries that are not files, unless ``special`` allows them.
    """
    result: list[Entry] = []
    links: set[str] = set()
    for entry in entries:
        below = _below(archive, entry.name, links)
        target = entry.target
        if entry.kind == "hardlink" and target:
            target = "/".join(_below(archive, target, links)[strip:])
        if entry.kind == "link":
            links.add("/".join(below))
        if entry.special and not special:
            raise _is_special(archive, f"{entry.name!r} is {entry.special}")
        kept = below[strip:]
        if kept:
            result.append(replace(entry, name="/".join(kept), target=target))
    if not result:
        raise StepFailed(
            f"{archive}: nothing is left to unpack" if strip else f"{archive}: it is empty",
            hint=f"`stripComponents: {strip}` removes all of its names" if strip else "",
        )
    return result


def unpacked(entries: Iterable[Entry]) -> dict[str, Entry]:
    """What will be unpacked, by name: the last entry of each, and for a hard link its target."""
    result: dict[str, Entry] = {}
    for entry in entries:
        known = result.get(entry.target) if entry.kind == "hardlink" else None
        result[entry.name] = entry if known is None else replace(known, name=entry.name)
    return result


def _below(archive: str, name: str, links: Collection[str]) -> list[str]:
    """The parts of a name; refuses one that leads out of the folder, also through a link in the archive."""
    parts = name.split("/")
    below = [part for part in parts if part not in ("", ".")]
    through = any("/".join(below[:count]) in links for count in range(1, len(below)))
    if name.startswith("/") or ".." in parts or through:
        raise _climbs_out(archive, name)
    return below


def special_bits(mode: int) -> str:
    """Why the mode of a file makes it dangerous, in words; empty if it does not."""
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return "a pipe or socket"
    runs = [word for bit, word in ((0o4000, "owner"), (0o2000, "group")) if mode & bit]
    return f"a program that runs as its {' and '.join(runs)}" if runs and not stat.S_ISDIR(mode) else ""


def _is_special(archive: str, what: str) -> StepFailed:
    return StepFailed(
        f"{archive}: refused, because in it {what}",
        hint="nothing was unpacked; if you trust this archive, set `allowSpecial: true`",
    )


def _climbs_out(archive: str, name: str) -> StepFailed:
    return StepFailed(
        f"{archive}: refused, because its entry {name!r} would be written outside the folder",
        hint="nothing was unpacked; do not trust this archive",
    )


@contextlib.contextmanager
def steady(session: Session, path: str) -> Iterator[str]:
    """The path to read an archive from that is read several times: a private copy, if others may change it."""
    found = ask(session, _CLOSED, path, question=True)
    if found.exit_code == 0:
        yield path
        return
    if found.exit_code != _OPEN:
        raise file_failure(session, "list", path, found)
    with Files(session).temporary_folder() as folder:
        copy = f"{folder}/archive"
        copied = ask(session, _COPY, path, copy)
        if copied.exit_code != 0:
            raise file_failure(session, "copy", path, copied)
        try:
            yield copy
        except StepFailed as error:
            error.message = error.message.replace(copy, path)
            raise


def entries_on_host(session: Session, path: str, fmt: Format) -> list[Entry]:
    """The entries of an archive on the host, under their own names."""
    if fmt == "zip":
        result = ask(session, _LIST_ZIP, path, env={"LC_ALL": "C.UTF-8"}, max_output=_LISTING)
    else:
        result = ask(session, _LIST_TAR, _FLAGS[fmt], path, max_output=_LISTING)
    _check(session, "list", path, fmt, result)
    text = result.stdout.decode("utf-8", "surrogateescape")
    entries = _zip_entries(text, path) if fmt == "zip" else _tar_entries(text, path)
    return list(_with_starts(entries, fmt))


def _with_starts(entries: Iterable[Entry], fmt: Format) -> Iterator[Entry]:
    # In a zip archive, the target of a link is its content.
    held = ("file", "link") if fmt == "zip" else ("file",)
    start = 0
    for entry in entries:
        if entry.kind not in held or start < 0:
            yield entry
            continue
        yield replace(entry, start=start)
        start = start + entry.size if entry.size >= 0 else -1


def _tar_entries(text: str, path: str) -> list[Entry]:
    style, _, rest = text.partition("\n")
    listing, _, details = rest.partition("\0")
    names = listing.removesuffix("\n").split("\n") if listing else []
    rows = details.removesuffix("\n").split("\n") if details else []
    escaped = style == "escaped"
    found = [_tar_entry(name, row, escaped=escaped) for name, row in zip(names, rows, strict=False)]
    # A line break that is not escaped splits a row.
    if len(names) != len(rows) or (not escaped and any(entry.size < 0 for entry in found)):
        raise StepFailed(f"list {path}: it holds names with line breaks, which this host's tar cannot list safely")
    return found


def _tar_entry(name: str, row: str, *, escaped: bool) -> Entry:
    kind = _KINDS.get(row[:1], "other")
    parsed = _TAR_ROW.fullmatch(row)
    size, rest = (int(parsed[1]), parsed[2]) if parsed else (-1, "")
    target = ""
    for mark in (" -> ", " link to "):
        if rest.startswith(name + mark):
            target = rest[len(name + mark) :]
            # busybox shows a hard link as a file with a target.
            kind = "link" if kind == "link" else "hardlink"
    if escaped:
        name, target = _unescaped(name), _unescaped(target)
    return Entry(name, kind, "", target, _special(row[:10]), size)


def _special(mode: str) -> str:
    """The same for a mode as printed by `tar`, such as ``-rwsr-xr-x``."""
    kinds = {"b": stat.S_IFBLK, "c": stat.S_IFCHR, "p": stat.S_IFIFO, "s": stat.S_IFSOCK, "d": stat.S_IFDIR}
    bits = (0o4000 if mode[3:4] in ("s", "S") else 0) | (0o2000 if mode[6:7] in ("s", "S") else 0)
    return special_bits(kinds.get(mode[:1], stat.S_IFREG) | bits)


def _unescaped(name: str) -> str:
    if "\\" not in name:
        return name

    def byte(found: re.Match[str]) -> str:
        code = found[1]
        # Octal escapes are bytes: restore them, and decode all as UTF-8 afterwards.
        return chr(int(code, 8)) if len(code) == 3 else _ESCAPES.get(code, code)

    # Latin-1 has one character per byte, for escaped and plain bytes alike.
    raw = name.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ESCAPE.sub(byte, raw).encode("latin-1").decode("utf-8", "surrogateescape")


def _zip_entries(text: str, path: str) -> list[Entry]:
    listing, _, details = text.partition("\0")
    found = [(int(row[1]), row[2]) for line in listing.splitlines() if (row := _ROW.fullmatch(line))]
    # There are two lines above the rows, and one below.
    letters = [line[:1] for line in details.splitlines()[2:-1]]
    told = len(letters) == len(found)
    if any(_HIDDEN.search(name) or (not told and "?" in name) for _, name in found):
        raise StepFailed(f"list {path}: it holds names with control characters, which unzip cannot list safely")
    kinds = [_KINDS.get(letter, "file") for letter in letters] if told else ["file"] * len(found)
    return [
        Entry(name, "directory" if name.endswith("/") else "link" if kind == "link" else "file", size=size)
        for (size, name), kind in zip(found, kinds, strict=True)
    ]


def same_content(session: Session, path: str, fmt: Format, strip: int, folder: str, files: Sequence[str]) -> bool:
    """Whether the files in a folder, in this order, have the content of those in the archive; nothing is written."""
    if not files:
        return True
    names = path_list(posixpath.join(folder, name) for name in files)
    return ask(session, _SAME, path, _flags(fmt), str(strip), IN_FOLDERS, stdin=names).exit_code == 0


def with_digests(
    session: Session, path: str, fmt: Format, entries: Sequence[Entry], names: Collection[str]
) -> list[Entry]:
    """The entries, those with these names with their digests if the host can compute them; nothing is written."""
    asked = [entry for entry in entries if entry.name in names and entry.start >= 0]
    digests: list[str] = []
    if asked:
        ends = [0, *(entry.start + entry.size for entry in asked)]
        lines = [f"{entry.start - end} {entry.size}\n" for entry, end in zip(asked, ends[:-1], strict=True)]
        listing = "".join(lines).encode()
        result = ask(session, _DIGESTS, path, _flags(fmt), "0", stdin=listing, max_output=_LISTING)
        digests = [line[:64] for line in result.out.splitlines()]
    if len(digests) != len(asked):
        return list(entries)
    known = {id(entry): digest for entry, digest in zip(asked, digests, strict=True)}
    return [replace(entry, sha256=known.get(id(entry), "")) for entry in entries]


def _flags(fmt: Format) -> str:
    return "zip" if fmt == "zip" else _FLAGS[fmt]


class Unpacking(Struct, frozen=True):
    """How an archive is unpacked."""

    strip: int = 0
    owner: str = ""
    """``user``, ``:group`` or ``user:group`` of what is unpacked; empty: our own user."""
    special: bool = False
    """Whether programs that run as another user, devices, pipes and sockets are allowed."""
    follow: bool = False
    """Whether an existing link in the place of a folder is followed."""
    names: Mapping[str, bool] | None = None
    """For each name except folders, whether to put it in place or to keep the existing one; None: put all."""


def unpack(session: Session, path: str, folder: str, fmt: Format, how: Unpacking) -> None:
    """Unpack an archive on the host into an existing folder; owners in the archive are ignored."""
    session.changes("unpack", path)
    names = how.names or {}
    result = ask(
        session,
        _UNPACK,
        path,
        folder,
        _flags(fmt),
        str(how.strip),
        f".kx-{secrets.token_hex(8)}.tree",
        how.owner,
        "yes" if how.special else "",
        "follow" if how.follow else "yes",
        "" if how.names is None else str(sum(names.values())),
        stdin=path_list(f"{'+' if put else '-'}{name}" for name, put in names.items()),
        env={"LC_ALL": "C.UTF-8"} if fmt == "zip" else None,
    )
    if result.exit_code == _SPECIAL:
        raise _is_special(path, f"{result.out.splitlines()[0]!r} is a program that runs as another user, or not a file")
    if result.exit_code == _OUTSIDE:
        raise _climbs_out(path, "(a hard link)")
    if result.exit_code == _UNLISTED:
        raise StepFailed(
            f"{path}: refused, because its entries are not those that were listed",
            hint="nothing was unpacked; it has unusual names, or the tar or unzip of the host is unusual",
        )
    _check(session, "unpack", path, fmt, result)


def give_away(session: Session, paths: Iterable[str], owner: str) -> None:
    """Change the owner of many files, links and folders."""
    session.changes("change the owner of files")
    result = ask(session, _GIVE, IN_FOLDERS, owner, stdin=path_list(by_folder(paths)))
    if result.exit_code != 0:
        raise file_failure(session, "change the owner of", "what was unpacked", result)


def pack(session: Session, folder: str, path: str, fmt: Format, mode: int | None = None) -> None:
    """Pack the content of a folder into an archive, which atomically replaces an old one.

    Without a mode, that of an old one of ours is kept, and a new one is private, as its content may be.
    """
    session.changes("write", path)
    result = ask(session, _PACK, _FLAGS[fmt], folder, path, f".kx-{secrets.token_hex(8)}.tmp", mode_argument(mode))
    _check(session, "pack", path, fmt, result)


def is_packed(session: Session, folder: str, path: str, fmt: Format) -> bool:
    """Whether an archive has exactly the current content of a folder: names, modes, owners, times and bytes."""
    body = (
        WAY
        + r"""
list() { tar -tv"$1"f -; }
reach "$3"
a=$(list "$1" <"./$name") && b=$( (reach "$2/."; tar -cf - .) | list "") && [ "$a" = "$b" ] || exit 1
a=$(tar -x"$1"Of - <"./$name" | sha256sum) && b=$( (reach "$2/."; tar -cf - .) | tar -xOf - | sha256sum) && [ "$a" = "$b" ]
"""  # noqa: E501
    )
    result = ask(session, body, _FLAGS[fmt], folder, path)
    if refusal(reason_of(result.err)[0]):
        raise file_failure(session, "look at", path, result)
    return result.exit_code == 0


def _check(session: Session, what: str, path: str, fmt: Format, result: CommandResult) -> None:
    if result.exit_code == 127:
        tool = "unzip" if fmt == "zip" else "tar"
        error = failure(session, script(tool), result)
        error.hint = f"the host needs {tool} for this archive: install it first"
        raise error
    # 1 of unzip is a warning: everything was unpacked.
    if result.exit_code != 0 and not (fmt == "zip" and result.exit_code == 1):
        hint = "" if "ermission" in result.err or "No such" in result.err else f"is it really a {fmt} archive?"
        raise file_failure(session, what, path, result, hint=hint)

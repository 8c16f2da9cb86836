"""Archives: what is in them, whether a folder already holds it, unpacking and packing on a host."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from kubexm_exec.connectors.base import CommandResult
from kubexm_exec.runner.commands import execute, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.quote import EACH, script
from kubexm_exec.runner.session import Session
from kubexm_exec.step import StepFailed

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

# Archives are read from standard input: GNU tar would take "a:b" for a file on the host a.
_LIST_TAR: Final = r"""
case $(tar --version 2>/dev/null) in *GNU*) echo escaped;; *) echo plain;; esac
tar -t"$1"f - <"$2" || exit
printf '\0'
tar -tv"$1"f - <"$2" | cut -c 1
"""
_LIST_ZIP: Final = 'unzip -l "$1"'
_UNPACK_TAR: Final = 'tar -x"$1"of - --strip-components="$3" -C "$4" <"$2"'
_UNPACK_ZIP: Final = 'unzip -q -o "$1" -d "$2"'
_CONTENT_TAR: Final = 'tar -x"$1"Of - --strip-components="$3" <"$2" | sha256sum'
_CONTENT_ZIP: Final = 'unzip -p "$1" | sha256sum'
_CONTENT_FOLDER: Final = EACH + "each 500 cat -- | sha256sum"
_PACK: Final = r"""
umask 077
new=$3/.kx-pack-$$
tar -c"$1"f "$new" -C "$2" . || { code=$?; rm -f -- "$new"; exit $code; }
printf %s "$new"
"""
_ROW: Final = re.compile(r"\s*\d+\s+\d{2,4}-\d\d-\d{2,4}\s+\d\d:\d\d   ?(.*)")
_ESCAPE: Final = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Entry(Struct, frozen=True):
    """One thing in an archive, under the name that it will have in the folder it is unpacked to."""

    name: str
    kind: EntryKind
    sha256: str = ""
    """Of a file, where it is known."""
    target: str = ""
    """Of a link, where it is known."""


def format_of(path: str, given: Format | None = None) -> Format:
    """The format that was given, or that the name tells."""
    if given is not None:
        return given
    name = posixpath.basename(path).lower()
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix):
            return _SUFFIXES[suffix]
    raise StepFailed(
        f"{path}: its name does not tell what kind of archive it is",
        hint=f"set `format` to one of {', '.join(dict.fromkeys(_SUFFIXES.values()))}",
    )


def checked(entries: Sequence[Entry], archive: str, strip: int) -> list[Entry]:
    """The entries under their final names; refuses an archive that would write outside its folder."""
    result: list[Entry] = []
    links: set[str] = set()
    for entry in entries:
        parts = entry.name.split("/")
        if entry.name.startswith("/") or ".." in parts:
            raise _climbs_out(archive, entry.name)
        below = [part for part in parts if part not in ("", ".")]
        if any("/".join(below[:count]) in links for count in range(1, len(below))):
            raise _climbs_out(archive, entry.name)
        if entry.kind == "link":
            links.add("/".join(below))
        kept = below[strip:]
        if kept:
            result.append(Entry("/".join(kept), entry.kind, entry.sha256, entry.target))
    if not result:
        raise StepFailed(
            f"{archive}: nothing is left of it" if strip else f"{archive}: it is empty",
            hint=f"stripComponents: {strip} takes away all of its names" if strip else "",
        )
    return result


def _climbs_out(archive: str, name: str) -> StepFailed:
    return StepFailed(
        f"{archive}: refused, because its entry {name!r} would be written outside the folder",
        hint="nothing was unpacked; do not trust this archive",
    )


def entries_on_host(session: Session, path: str, fmt: Format) -> list[Entry]:
    """What is in an archive on the host, under the names it has in there."""
    if fmt == "zip":
        command = script(_LIST_ZIP, path, env={"LC_ALL": "C.UTF-8"}, max_output=_LISTING)
    else:
        command = script(_LIST_TAR, _FLAGS[fmt], path, max_output=_LISTING)
    result = execute(session, command, check=False, live=False)
    _check(session, "list", path, fmt, result)
    text = result.stdout.decode("utf-8", "surrogateescape")
    return _zip_entries(text) if fmt == "zip" else _tar_entries(text, path)


def _tar_entries(text: str, path: str) -> list[Entry]:
    style, _, rest = text.partition("\n")
    listing, _, letters = rest.partition("\0")
    names = listing.removesuffix("\n").split("\n") if listing else []
    kinds = letters.removesuffix("\n").split("\n") if letters else []
    if len(names) != len(kinds):
        raise StepFailed(f"list {path}: it holds names with line breaks, which this host's tar cannot list safely")
    if style == "escaped":
        names = [_unescaped(name) for name in names]
    return [Entry(name, _KINDS.get(kind, "other")) for name, kind in zip(names, kinds, strict=True)]


def _unescaped(name: str) -> str:
    if "\\" not in name:
        return name

    def byte(found: re.Match[str]) -> str:
        code = found[1]
        # Octal escapes are bytes: put them back as such, and read the whole as UTF-8 afterwards.
        return chr(int(code, 8)) if len(code) == 3 else _ESCAPES.get(code, code)

    # Latin-1 is one character a byte, so that escaped and plain bytes meet.
    raw = name.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ESCAPE.sub(byte, raw).encode("latin-1").decode("utf-8", "surrogateescape")


def _zip_entries(text: str) -> list[Entry]:
    names = [row[1] for line in text.splitlines() if (row := _ROW.fullmatch(line))]
    return [Entry(name, "directory" if name.endswith("/") else "file") for name in names]


def same_content(session: Session, path: str, fmt: Format, strip: int, folder: str, files: Sequence[str]) -> bool:
    """Whether the files in a folder hold, in this order, what the archive's files hold; nothing is written."""
    if not files:
        return True
    command = script(_CONTENT_ZIP, path) if fmt == "zip" else script(_CONTENT_TAR, _FLAGS[fmt], path, str(strip))
    inside = execute(session, command, check=False, live=False)
    names = "".join(f"./{name}\0" for name in files).encode("utf-8", "surrogateescape")
    outside = execute(session, script(_CONTENT_FOLDER, stdin=names, cwd=folder), check=False, live=False)
    return inside.exit_code == outside.exit_code == 0 and inside.stdout == outside.stdout


def unpack(session: Session, path: str, folder: str, fmt: Format, strip: int = 0) -> None:
    """Unpack an archive on the host into an existing folder; everything belongs to the user we are."""
    if fmt == "zip":
        command = script(_UNPACK_ZIP, path, folder, env={"LC_ALL": "C.UTF-8"})
    else:
        command = script(_UNPACK_TAR, _FLAGS[fmt], path, str(strip), folder)
    result = execute(session, command, check=False, live=False)
    _check(session, "unpack", path, fmt, result)


def pack(session: Session, folder: str, path: str, fmt: Format) -> None:
    """Pack all that is in a folder into an archive beside which it is written first; an old one is replaced."""
    command = script(_PACK, _FLAGS[fmt], folder, posixpath.dirname(path))
    result = execute(session, command, check=False, live=False)
    _check(session, "pack", path, fmt, result)
    new = result.out
    renamed = execute(session, script('chmod 0644 "$1" && mv -fT -- "$1" "$2"', new, path), check=False, live=False)
    if renamed.exit_code != 0:
        execute(session.for_cleanup(), script('rm -f -- "$1"', new), check=False, live=False)
        raise file_failure(session, "pack", path, renamed)


def is_packed(session: Session, folder: str, path: str, fmt: Format) -> bool:
    """Whether an archive holds just what is in a folder now: names, modes, owners, times and content."""
    body = r"""
list() { tar -tv"$1"f -; }
a=$(list "$1" <"$3") && b=$(tar -cf - -C "$2" . | list "") && [ "$a" = "$b" ] || exit 1
a=$(tar -x"$1"Of - <"$3" | sha256sum) && b=$(tar -cf - -C "$2" . | tar -xOf - | sha256sum) && [ "$a" = "$b" ]
"""
    result = execute(session, script(body, _FLAGS[fmt], folder, path), check=False, live=False)
    return result.exit_code == 0


def _check(session: Session, what: str, path: str, fmt: Format, result: CommandResult) -> None:
    if result.exit_code == 127:
        command = script("unzip" if fmt == "zip" else "tar")
        error = failure(session, command, result)
        error.hint = f"the host needs {'unzip' if fmt == 'zip' else 'tar'} for this archive: install it first"
        raise error
    # unzip's 1 is a warning: all was done.
    if result.exit_code != 0 and not (fmt == "zip" and result.exit_code == 1):
        hint = "" if "ermission" in result.err or "No such" in result.err else f"is it really a {fmt} archive?"
        raise file_failure(session, what, path, result, hint=hint)

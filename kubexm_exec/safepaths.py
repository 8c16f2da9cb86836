"""The way to a file: through no link that somebody else than root and we ourselves may have put there.

A link in a folder that only root and our own user may write (``/var/run``, ``/etc/alternatives``) is followed, as
everywhere. One in any other folder could lead root to a file of its own that another user wants read or changed: it is
refused. In a sticky folder such as ``/tmp`` links of root and of our own are followed.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO, Final

REFUSED: Final = 98
"""The exit code of a script that was to go through such a link."""
_MOST_LINKS: Final = 40
_SHARED: Final = re.compile(r", in a folder that .+ may write$")
_NAMES: Final = re.compile(r" has \d+ names \(hard links\), and .+ may make such names there$")

# Written for dash, bash and busybox. `at PATH` goes to the folder that a path is in, and `name` is what it is called
# there; `to PATH` goes on as long as that is a link. Whoever works on "./$name" from then on is not led astray by
# folders that are renamed or replaced meanwhile. Both cost no process if there is no link on the way. They give 98 with
# the reason in `why`, or another code if there is no such folder; `go` and `reach` end the script then.
# `shared` tells whether anybody else may write here; `private NAME` makes a folder here that only we can enter, and
# goes there, and `leave NAME`, called in there, empties and removes it. No way leads back there by its path, nor by a
# plain `cd ..`, which a shell takes for a path too: whoever has to come back calls `hold` in there, and `stage` leads
# to that very folder then, whatever has been put in its place. `is_this NUMBER NAME` tells whether an open file is the
# one of that name, and no link. `change NAME OWNER MODE` changes what is here (of a link, its owner only); where others
# may write too, not if it has a second name.
WAY: Final = rf"""
at() {{
  why=
  case $1 in /*) way=$1 ;; *) way=$PWD/$1 ;; esac
  name=${{way##*/}} way=${{way%/*}}
  case $name in ''|.|..) way=$way/$name name=. ;; esac
  [ -n "$way" ] || way=/
  if cd -P -- "$way" 2>/dev/null && [ "$PWD" = "$way" ]; then return; fi
  hops=0
  cd / && walk "$way/"
}}
walk() {{
  rest=$1
  while [ -n "$rest" ]; do
    piece=${{rest%%/*}} rest=${{rest#*/}}
    case $piece in ''|.) continue ;; ..) cd -P .. || return; continue ;; esac
    if [ -L "./$piece" ]; then
      pass "$piece" || return
      rest=$leads/$rest
      continue
    fi
    from=${{PWD%/}}/$piece
    cd -P -- "./$piece" 2>/dev/null || {{ lost=$from; return 1; }}
    if [ "$PWD" != "$from" ]; then why="$from was replaced while it was looked at"; return {REFUSED}; fi
  done
}}
pass() {{
  lost=${{PWD%/}}/$1 hops=$((hops + 1))
  [ $hops -le {_MOST_LINKS} ] || return 1
  leads=$(readlink -- "./$1"; echo x) leads=${{leads%??}}
  if shared; then
    case $mode_of_here/$(stat -c %u/%h -- "./$1") in
      [1357]???/0/1|[1357]???/$(id -u)/1) [ "$owner_of_here" = 0 ] || [ -O . ] ;;
      *) false ;;
    esac || {{ why="$lost is a link to $leads, in a folder that $who may write"; return {REFUSED}; }}
  fi
  case $leads in /*) cd / ;; esac
}}
to() {{
  at "$1" || return
  while [ -L "./$name" ]; do
    pass "$name" || return
    name=${{leads##*/}}
    case $leads in */*) leads=${{leads%/*}}/ ;; *) leads= ;; esac
    case $name in ''|.|..) leads=$leads$name/ name=. ;; esac
    walk "$leads" || return
  done
}}
stop() {{
  if [ -n "$why" ]; then printf 'kx: %s' "$why" | tr '\n' ' ' >&2; echo >&2; exit {REFUSED}; fi
  stat -- "${{lost:-.}}/." >/dev/null && echo "$lost: Permission denied" >&2
  exit 1
}}
go() {{ at "$1" || stop; }}
reach() {{ to "$1" || stop; }}
shared() {{ judge "$(stat -c %a/%u/%g/%U/%G .)"; }}
judge() {{
  who=somebody mode_of_here=${{1%%/*}} owner_of_here=${{1#*/}}
  group_of_here=${{owner_of_here#*/}} owner_of_here=${{owner_of_here%%/*}}
  [ -n "$owner_of_here" ] || return 0
  names_of_here=${{group_of_here#*/}} group_of_here=${{group_of_here%%/*}}
  if [ "$owner_of_here" != 0 ] && ! [ -O . ]; then who="user ${{names_of_here%%/*}}"; return; fi
  case $mode_of_here in
    *[2367]) who=everybody ;;
    *[2367]?)
      who="group ${{names_of_here#*/}}"
      # A group of that user's own, unless there are further rights.
      if [ "$owner_of_here" = "$group_of_here" ] && [ -O . ] && [ -G . ]; then
        case $(ls -ld .) in ??????????+*) ;; *) return 1 ;; esac
      fi ;;
    *) return 1 ;;
  esac
}}
private() {{
  from=${{PWD%/}}/$1
  (umask 077; mkdir -- "./$1") && enter "$1" || return
  [ -z "$(ls -A .)" ] || foreign
}}
enter() {{
  from=${{PWD%/}}/$1
  if cd -P -- "./$1" && [ "$PWD" = "$from" ] && [ -O . ]; then
    inside=$(stat -c %a/%d/%i .)
    case $inside in 700/*|2700/*) return ;; esac
  fi
  foreign
}}
foreign() {{ inside=; echo "kx: $from is not the folder that was made" >&2; return 1; }}
leave() {{
  [ -n "$inside" ] && [ "$inside" = "$(stat -c %a/%d/%i .)" ] || return
  rm -rf -- ./* ./.[!.]* ./..?*
  cd -P .. && rmdir -- "./$1"
}}
hold() {{
  exec 7<. && stage=/proc/self/fd/7
  [ -d "$stage/." ] || {{ echo "kx: there is no /proc/self/fd here" >&2; return 1; }}
}}
is_this() {{
  is=$(stat -L -c %d/%i/%h/%f "/proc/self/fd/$1") && [ "$is" = "$(stat -c %d/%i/%h/%f -- "./$2")" ]
}}
set_both() {{ {{ [ -z "$2" ] || chown -h -- "$2" "$1"; }} && {{ [ -z "$3" ] || chmod -- "$3" "$1"; }}; }}
change() {{
  if [ -L "./$1" ]; then
    [ -z "$3" ] || {{ echo "kx: it is a link by now" >&2; return 1; }}
    [ -z "$2" ] || chown -h -- "$2" "./$1"
  elif [ -d "./$1" ]; then
    from=$PWD
    [ "$1" = . ] || from=${{PWD%/}}/$1
    ( cd -P -- "./$1" && [ "$PWD" = "$from" ] && set_both . "$2" "$3" )
  elif ! shared; then set_both "./$1" "$2" "$3"
  elif ! [ -r "./$1" ] || ! [ -f "./$1" ] || ! [ -e /proc/self/fd ]; then
    is=$(stat -c %h -- "./$1") && only_name "$is" "$1" && set_both "./$1" "$2" "$3"
  else
    {{
      if ! is_this 9 "$1"; then echo "kx: it was replaced while it was looked at" >&2; return 1; fi
      is=${{is%/*}}
      only_name "${{is##*/}}" "$1" || return
      if [ -n "$2" ]; then chown -- "$2" /proc/self/fd/9 || return; fi
      [ -z "$3" ] || chmod -- "$3" /proc/self/fd/9
    }} 9<"./$1"
  fi
}}
only_name() {{
  [ "$1" = 1 ] && return
  echo "kx: ${{PWD%/}}/$2 has $1 names (hard links), and $who may make such names there" >&2
  return {REFUSED}
}}
"""


def refusal(reason: str) -> bool:
    """Whether something was refused because of a link that somebody else may have made."""
    return _SHARED.search(reason) is not None


def other_names(reason: str) -> bool:
    """Whether something was refused because it has other names, which somebody else may have made."""
    return _NAMES.search(reason) is not None


@contextlib.contextmanager
def at(path: str, *, last: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that a path of this machine is in, as a descriptor, and the name there; ``last``: links followed.

    Raises OSError with ELOOP and the reason if a link on the way is not to be trusted.
    """
    pieces = [piece for piece in os.path.join(os.getcwd(), path).split("/")[::-1] if piece not in ("", ".")]  # noqa: PTH109, PTH118
    fd, above, hops = os.open("/", _FOLDER), "", 0
    try:
        while pieces:
            piece = pieces.pop()
            final = not pieces and piece != ".."
            try:
                link = stat.S_ISLNK(os.lstat(piece, dir_fd=fd).st_mode) if final else False
            except FileNotFoundError:
                link = False
            if final and not (link and last):
                yield fd, piece
                return
            if not link:
                try:
                    inner = os.open(piece, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                except NotADirectoryError:
                    if not stat.S_ISLNK(os.lstat(piece, dir_fd=fd).st_mode):
                        raise
                    link = True
                else:
                    os.close(fd)
                    fd, above = inner, os.path.normpath(f"{above}/{piece}")
                    continue
            target = os.readlink(piece, dir_fd=fd)
            hops += 1
            if hops > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            _pass(fd, piece, f"{above.rstrip('/')}/{piece}", target)
            if target.startswith("/"):
                os.close(fd)
                fd, above = os.open("/", _FOLDER), ""
            pieces += [each for each in target.split("/")[::-1] if each not in ("", ".")]
        yield fd, "."
    finally:
        os.close(fd)


@contextlib.contextmanager
def replacing(folder: int, name: str, mode: int = 0o600, kept: int | None = None) -> Iterator[BinaryIO]:
    """A new file that replaces another when it is complete and durable, or never; ``kept``: its mode then."""
    # A name that nobody can guess: in a folder that others may write, one that waits there could be theirs.
    temporary = f".{name[:100]}.{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
            if kept is not None:
                os.fchmod(descriptor, kept)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def real(path: str) -> str:
    """A path without the links that lead there, as far as it exists; raises OSError as ``at`` does."""
    try:
        with at(path, last=True) as (fd, name):
            try:
                above = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
            except FileNotFoundError:  # a system without it
                above = os.path.realpath(os.path.dirname(path))  # noqa: PTH120
            return os.path.normpath(f"{above}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        above, name = os.path.split(path.rstrip("/"))
        if not name or name == "..":
            raise
        return os.path.join(real(above or "."), name)  # noqa: PTH118


_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def _pass(fd: int, name: str, link: str, target: str) -> None:
    who = others(fd)
    if not who:
        return
    folder, itself, trusted = os.fstat(fd), os.lstat(name, dir_fd=fd), (0, os.geteuid())
    sticky = folder.st_mode & stat.S_ISVTX and folder.st_uid in trusted
    if not (sticky and itself.st_uid in trusted and itself.st_nlink == 1):
        raise OSError(errno.ELOOP, f"{link} is a link to {target}, in a folder that {who} may write")


def others(fd: int) -> str:
    """Who else than root and we ourselves may write an open folder; empty if nobody."""
    info = os.fstat(fd)
    if info.st_uid not in (0, os.geteuid()):
        return f"user {user_name(info.st_uid)}"
    if info.st_mode & stat.S_IWOTH:
        return "everybody"
    if not info.st_mode & stat.S_IWGRP:
        return ""
    private = info.st_uid == info.st_gid == os.geteuid() and info.st_gid == os.getegid() and not _has_acl(fd)
    return "" if private else f"group {_group(info.st_gid)}"


def _has_acl(fd: int) -> bool:
    try:
        return bool(os.getxattr(f"/proc/self/fd/{fd}", "system.posix_acl_access"))
    except (OSError, AttributeError):
        return False


def user_name(uid: int) -> str:
    """The name of a user, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

"""Downloads that a host makes for itself, by its curl or wget: resumed, verified, and only then put in place."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.base import CommandResult
from kubexm_exec.runner.commands import execute, last_line, shorten
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.step import StepFailed

OnSize = Callable[[int], None]
"""Called with how many bytes have arrived."""

_NO_TOOL, _NO_TLS, _NO_HEADERS, _NO_ANSWER, _MISMATCH = 71, 72, 73, 74, 75
_NO_REDIRECT: Final = frozenset({"authorization", "cookie"})
"""Headers that curl itself keeps from other hosts."""

# What the tool says goes to standard error; how much has arrived, and what it came to, to standard output.
# The part is named after the address and the digest, so that only the same download goes on with it. Headers come in
# by standard input and are read from a file of our own: arguments can be seen by everybody on the host.
_SCRIPT: Final = rf"""
url=$1 path=$2 part=$3 want=$4 mode=$5 owner=$6 idle=$7 tries=$8 ca=$9; shift 9; follow=$1
rc=$part.rc
umask 077
trap 'rm -f -- "$rc"' EXIT
if command -v curl >/dev/null 2>&1; then tool=curl
elif command -v wget >/dev/null 2>&1; then
  if wget --version 2>/dev/null | grep -q '^GNU Wget'; then tool=wget; else tool=busybox; fi
else exit {_NO_TOOL}; fi
case $tool in
  curl) sed -n 's/^c //p' >"$rc" ;;
  *) sed -n 's/^w //p' >"$rc" ;;
esac || exit
secure=no; case $url in [hH][tT][tT][pP][sS]:*) secure=yes ;; esac
if [ $tool = busybox ] && [ $secure = yes ]; then exit {_NO_TLS}; fi
if [ $tool = busybox ] && [ -s "$rc" ]; then exit {_NO_HEADERS}; fi
get() {{
  case $tool in
    curl)
      set -- --silent --show-error --fail --max-redirs 5 --connect-timeout "$idle" --speed-limit 1 \
        --speed-time "$idle" --proto =http,https --config "$rc" --output "$part" --continue-at -
      [ "$follow" = no ] || set -- "$@" --location
      if [ $secure = yes ]; then set -- "$@" --proto-redir =https; else set -- "$@" --proto-redir =http,https; fi
      [ -z "$ca" ] || set -- "$@" --cacert "$ca"
      curl "$@" -- "$url" ;;
    wget)
      set -- --no-verbose --continue --tries=1 --timeout="$idle" --config="$rc" --output-document="$part"
      if [ -s "$rc" ]; then set -- "$@" --max-redirect=0; else set -- "$@" --max-redirect=5; fi
      if [ $secure = yes ]; then set -- "$@" --https-only; fi
      [ -z "$ca" ] || set -- "$@" --ca-certificate="$ca"
      wget "$@" -- "$url" ;;
    busybox) wget -q -c -O "$part" "$url" ;; # not -T: some versions crash with it
  esac
}}
# Exit codes of curl and wget (4) for what may pass; all else is a no. Busybox has but one code.
passing() {{
  case $tool$1 in
    curl5|curl6|curl7|curl18|curl28|curl35|curl52|curl55|curl56|curl92|wget4) return 0 ;;
    busybox*) case $said in *'server returned error'*) return 1 ;; *) return 0 ;; esac ;;
    *) case $said in *' 408'*|*' 429'*|*' 500'*|*' 502'*|*' 503'*|*' 504'*) return 0 ;; *) return 1 ;; esac ;;
  esac
}}
size() {{ if [ -f "$part" ]; then stat -c %s -- "$part"; else echo 0; fi; }}
digest() {{ sha256sum <"$part" | cut -d' ' -f1; }}
fetch() {{
  left=$tries pause=1
  while :; do
    before=$(size)
    ( while sleep 1 >/dev/null 2>&1; do printf 'size %s\n' "$(size)"; done ) & teller=$!
    said=$(get 2>&1 </dev/null); code=$?
    kill $teller; wait $teller 2>/dev/null
    [ $code -ne 0 ] || return 0
    printf '%s\n' "$said" >&2
    [ -s "$part" ] || rm -f -- "$part"
    if [ "$before" -gt 0 ] && [ "$(size)" -eq "$before" ] && ! passing $code; then
      # What is here may be all there is, or too much: from the beginning.
      if [ -n "$want" ] && [ "$(digest)" = "$want" ]; then return 0; fi
      mv -f -- "$part" "$part.rejected" || return
      continue
    fi
    passing $code && [ "$left" -gt 0 ] || return {_NO_ANSWER}
    left=$((left - 1))
    sleep $pause; [ $pause -ge 8 ] || pause=$((pause * 2))
  done
}}
resumed=no
if [ -z "$want" ]; then rm -f -- "$part"; elif [ -s "$part" ]; then resumed=yes; fi
if [ $resumed = no ] || [ "$(digest)" != "$want" ]; then fetch || exit; fi
got=$(digest)
if [ -n "$want" ] && [ "$got" != "$want" ] && [ $resumed = yes ]; then
  mv -f -- "$part" "$part.rejected" && fetch || exit
  got=$(digest)
fi
if [ -n "$want" ] && [ "$got" != "$want" ]; then
  mv -f -- "$part" "$part.rejected"; printf 'got %s\n' "$got"; exit {_MISMATCH}
fi
dd if=/dev/null of="$part" conv=notrunc,fsync 2>/dev/null
if [ -n "$owner" ]; then chown -- "$owner" "$part" || exit; fi
chmod -- "$mode" "$part" || exit
printf 'done %s %s\n' "$got" "$(size)"
mv -fT -- "$part" "$path" || exit
rm -f -- "$part.rejected"
"""
_DONE: Final = re.compile(r"^done ([0-9a-f]{64}) (\d+)$", re.MULTILINE)
_GOT: Final = re.compile(r"^got ([0-9a-f]{64})$", re.MULTILINE)
_TELLING: Final = re.compile(r"^curl: \(|ERROR|^wget: |failed: ")
_STAMP: Final = re.compile(r"^[0-9]{4}-[0-9-]+ [0-9:]+ ")
_SIZE: Final = re.compile(rb"size (\d+)\n")


class Download(Struct, frozen=True):
    """What a host is to fetch."""

    url: str
    shown: str
    """The address for people."""
    path: str
    sha256: str = ""
    mode: int = 0o644
    owner: str = ""
    """``user:group``, or either; empty for whoever we work as."""
    headers: Mapping[str, str] | None = None
    timeout: float = 30.0
    retries: int = 5
    ca_file: str = ""
    """On the host."""


class Downloaded(Struct, frozen=True):
    """What it came to."""

    sha256: str
    size: int


class Downloads:
    """Files that the host fetches itself."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def fetch(self, wanted: Download, on_size: OnSize | None = None) -> Downloaded:
        """Fetch a file; what was there is replaced in one go, and only by what has the right digest."""
        session = self._session
        if on_size is not None:
            session = replace(session, on_output=_Sizes(on_size))
        headers = wanted.headers or {}
        follow = all(name.lower() in _NO_REDIRECT for name in headers)
        command = script(
            _SCRIPT,
            wanted.url,
            wanted.path,
            part_of(wanted),
            wanted.sha256,
            f"{wanted.mode:04o}",
            wanted.owner,
            str(max(1, round(wanted.timeout))),
            str(wanted.retries),
            wanted.ca_file,
            "yes" if follow else "no",
            stdin=_configuration(headers),
        )
        result = execute(session, command, check=False)
        if result.exit_code != 0:
            raise self._failure(wanted, result)
        found = _DONE.search(result.out)
        if found is None:
            raise StepFailed(f"download {wanted.shown}: the host said nothing about it", stdout=result.out)
        return Downloaded(found[1], int(found[2]))

    def _failure(self, wanted: Download, result: CommandResult) -> StepFailed:
        what = f"download {wanted.shown} on the host"
        on_control = "or let the control node fetch it: leave out `fetchOn: host`"
        if result.exit_code == _NO_TOOL:
            return StepFailed(f"{what}: it has neither curl nor wget", hint=f"install curl there first, {on_control}")
        if result.exit_code == _NO_TLS:
            return StepFailed(
                f"{what}: its only tool is busybox's wget, which checks no certificates",
                hint=f"install curl there first, {on_control}",
            )
        if result.exit_code == _NO_HEADERS:
            return StepFailed(
                f"{what}: its only tool is busybox's wget, which would show the headers to everybody on the host",
                hint=f"install curl there first, {on_control}",
            )
        if result.exit_code == _MISMATCH:
            got = _GOT.search(result.out)
            return StepFailed(
                f"{what}: it has another sha256 than it must: expected {wanted.sha256}, "
                f"got {got[1] if got else 'nothing'}; what arrived is kept as {part_of(wanted)}.rejected",
                hint="the source was changed or is damaged, or `sha256` is of another version: compare it with what "
                "its makers publish",
            )
        if result.exit_code == _NO_ANSWER:
            said = _said(result.err).replace(wanted.url, wanted.shown)
            return StepFailed(
                f"{what}: {said or 'no answer'}",
                stderr=result.err.replace(wanted.url, wanted.shown),
                hint=f"look at the address and whether the host can get there, {on_control}",
            )
        return file_failure(self._session, "download to", wanted.path, result)


def part_of(wanted: Download) -> str:
    """Where a download grows: beside its place, and named after what it is."""
    tag = hashlib.sha256(f"{wanted.url}\0{wanted.sha256}\0{wanted.path}".encode()).hexdigest()[:16]
    return posixpath.join(posixpath.dirname(wanted.path), f".kx-{tag}.part")


def _said(text: str) -> str:
    """What a tool said last that tells why: some of them go on with advice."""
    telling = [line.strip() for line in text.splitlines() if _TELLING.search(line)]
    return shorten(_STAMP.sub("", telling[-1])) if telling else last_line(text)


def _configuration(headers: Mapping[str, str]) -> bytes:
    """The headers as configuration files of curl (``c``) and of wget (``w``)."""
    lines = ["c user-agent = kubexm", "w user_agent = kubexm"] if headers else []
    for name, value in headers.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        lines += [f'c header = "{name}: {escaped}"', f"w header = {name}: {value}"]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


class _Sizes:
    """Picks out of what the script prints how much has arrived."""

    def __init__(self, on_size: OnSize) -> None:
        self._on_size = on_size
        self._held = b""

    def __call__(self, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self._held = (self._held + data)[-4096:]
            sizes = _SIZE.findall(self._held)
            if sizes:
                self._held = self._held.rpartition(b"\n")[2]
                self._on_size(int(sizes[-1]))

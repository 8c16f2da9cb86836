"""Downloads by curl or wget on a host: resumed, verified, and only then put in place."""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command
from kubexm_exec.http import attempts
from kubexm_exec.http.messages import PASSING, HttpError, Request, plain_url
from kubexm_exec.http.ranges import RestartError, piece_of, range_headers
from kubexm_exec.http.redirects import redirected
from kubexm_exec.http.tools import curl_lines, head_of, shown_texts, wget_lines
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, StepFailed
from kubexm_exec.runner.commands import Operations, execute, last_line, shorten
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY

OnSize = Callable[[int], None]
"""Called with how many bytes have arrived."""

_NO_TOOL, _NO_TLS, _NO_HEADERS, _ANSWERED, _MISMATCH, _FOREIGN = 71, 72, 73, 74, 75, 76

# One exchange: the tool follows no redirect and interprets no answer. The head of the answer goes to standard output,
# and the control node decides by its own rules; only the plain case, a whole file at once, is put in place right away.
# The download grows in a private folder beside its place, which is named after the address and the digest, so that only
# the same download resumes it. After the `cd` nobody can replace that folder. Address and headers come by standard
# input, and never are arguments, which everybody on the host can see; only busybox has no other way for an address.
_SCRIPT: Final = rf"""{WAY}
do=$1 dir=$2 start=$3 notes=$4 idle=$5 most=$6 ca=$7 secret=$8 path=$9; shift 9
want=$1 mode=$2 owner=$3
umask 077
IFS= read -r url || exit
config=$(cat)
go "$path"
dir=${{dir##*/}}
[ -d "./$dir" ] || mkdir -- "./$dir" || exit
enter "$dir" || exit {_FOREIGN}
trap 'rm -f rc' EXIT
tool=none code=0
size() {{ if [ -f data ]; then stat -c %s data; else echo 0; fi; }}
status() {{ sed -n '/^ *HTTP\/[0-9.]* \([0-9][0-9][0-9]\).*/{{s//\1/;h;}};${{x;p;}}' head 2>/dev/null; }}
clear() {{ rm -f data rc head said notes slow; [ -e rejected ] || rmdir -- "../$dir" 2>/dev/null; }}
place() {{
  got=$(sha256sum <data | cut -d' ' -f1)
  if [ -n "$want" ] && [ "$got" != "$want" ]; then
    mv -f data rejected; clear; printf 'got %s\n' "$got"; exit {_MISMATCH}
  fi
  dd if=/dev/null of=data conv=notrunc,fsync 2>/dev/null
  if [ -n "$owner" ]; then chown -- "$owner" data || exit; fi
  chmod -- "$mode" data || exit
  printf 'done %s %s\n' "$got" "$(size)"
  mv -fT -- data "../$name" || exit
  rm -f rejected; clear
  exit 0
}}
tell() {{
  printf 'told %s %s %s %s\n' $tool $code "$(size)" "$(if [ -e slow ]; then echo slow; else echo ok; fi)"
  dd if=notes bs=4096 count=1 2>/dev/null
  dd if=head bs=65536 count=1 2>/dev/null
}}
if [ $do = place ]; then place; fi
if [ $do = look ] && [ -s data ]; then tell; exit {_ANSWERED}; fi
if command -v curl >/dev/null 2>&1; then tool=curl
elif command -v wget >/dev/null 2>&1; then
  if wget --version 2>/dev/null | grep -q '^GNU Wget'; then tool=wget; else tool=busybox; fi
else clear; exit {_NO_TOOL}; fi
secure=no; case $url in [hH][tT][tT][pP][sS]:*) secure=yes ;; esac
if [ $tool = busybox ] && [ $secure = yes ]; then clear; exit {_NO_TLS}; fi
if [ $tool = busybox ] && [ $secret = yes ]; then clear; exit {_NO_HEADERS}; fi
rm -f head said slow
# Cuts off what may be of another version.
dd if=/dev/null of=data bs=1 seek="$start" 2>/dev/null && printf '%s\n' "$notes" >notes || exit
ulimit -f $((most / 512 + 1)) 2>/dev/null
case $tool in
  curl)
    set -- -q --silent --show-error --fail --globoff --connect-timeout "$idle" --max-filesize "$most" --dump-header head
    if [ $secure = yes ]; then set -- "$@" --proto =https; else set -- "$@" --proto =http; fi
    [ -z "$ca" ] || set -- "$@" --cacert "$ca"
    printf '%s\n' "$config" | sed -n 's/^c //p' | curl "$@" --config - >>data 2>said & ;;
  wget)
    set -- --no-verbose --server-response --continue --tries=1 --timeout="$idle" --max-redirect=0 --config=rc
    [ -z "$ca" ] || set -- "$@" --ca-certificate="$ca"
    printf '%s\n' "$config" | sed -n 's/^w //p' >rc || exit
    printf '%s\n' "$url" | wget "$@" --output-document=data --input-file=- 2>head & ;;
  busybox) wget -q -c -O data "$url" 2>said </dev/null & ;; # not -T: some versions crash with it
esac
pid=$!
(
  last=$start silent=0
  while sleep 1 >/dev/null 2>&1; do
    rm -f rc # it was read long ago
    now=$(size) silent=$((silent + 1))
    printf 'size %s\n' "$now"
    if [ $((now - last)) -ge {attempts.LEAST_SPEED} ]; then last=$now silent=0; fi
    if [ $silent -gt $((now > start ? idle : idle * 2)) ]; then : >slow; kill $pid; fi
    case $(status) in ''|1*|2*) ;; *) kill $pid ;; esac
  done
) & teller=$!
wait $pid; code=$?
kill $teller; wait $teller 2>/dev/null
# Complete at once, as far as the tool can tell: without a length, wget takes a truncated file for the whole.
if [ $code -eq 0 ] && [ "$start" -eq 0 ]; then
  case $tool in
    curl) [ "$(status)" != 200 ] || [ -n "$(sed -n '$s/[^[:cntrl:]].*/x/p' head)" ] || place ;;
    wget)
      said=$(sed -n 's/^  [cC][oO][nN][tT][eE][nN][tT]-[lL][eE][nN][gG][tT][hH]: *//p' head)
      [ "$(status)" != 200 ] || {{ [ -z "$want" ] && [ "$said" != "$(size)" ]; }} || place ;;
    busybox) place ;;
  esac
fi
tell
if [ $tool = wget ]; then sed '/^  /d' head >&2; else cat said >&2; fi
if [ "$start" -eq 0 ] && [ $tool != busybox ] && [ "$(status)" != 200 ]; then rm -f data; fi
[ -s data ] || clear
exit {_ANSWERED}
"""
_DONE: Final = re.compile(r"^done ([0-9a-f]{64}) (\d+)$", re.MULTILINE)
_GOT: Final = re.compile(r"^got ([0-9a-f]{64})$", re.MULTILINE)
_TOLD: Final = re.compile(r"^told (\w+) (\d+) (\d+) (slow|ok)\n(?:(\d+) (\d*) (.*)\n)?", re.MULTILINE)
_TELLING: Final = re.compile(r"^curl: \(|ERROR|^wget: |failed: ")
_STAMP: Final = re.compile(r"^[0-9]{4}-[0-9-]+ [0-9:]+ ")
_SIZE: Final = re.compile(rb"size (\d+)\n")
_PASSING_CODES: Final = {
    "curl": frozenset({5, 6, 7, 18, 28, 35, 52, 55, 56, 92}),
    "wget": frozenset({4}),
}
"""Exit codes of transient errors; others are final. busybox has only one code."""


class Download(Struct, frozen=True):
    """A file that a host is to download."""

    url: str
    shown: str
    """The address for messages."""
    path: str
    sha256: str = ""
    mode: int = 0o644
    owner: str = ""
    """``user:group``, or either; empty for our own user."""
    headers: Mapping[str, str] | None = None
    timeout: float = 30.0
    retries: int = 5
    ca_file: str = ""
    """On the host."""


class Downloaded(Struct, frozen=True):
    """A completed download."""

    sha256: str
    size: int


class _Part(Struct, frozen=True):
    """The part of a download that a host has: its bytes, their version, and the size of the whole."""

    size: int = 0
    validator: str = ""
    total: int | None = None

    def notes(self) -> str:
        return f"{self.size} {'' if self.total is None else self.total} {self.validator}"


class _Told(Struct, frozen=True):
    """What a host tells of an exchange, or of an earlier one that was interrupted."""

    tool: str
    code: int
    size: int
    slow: bool
    before: _Part
    status: int
    """0 if there was no answer."""
    headers: Mapping[str, str]
    said: str

    @classmethod
    def read(cls, result: CommandResult) -> _Told | None:
        found = _TOLD.search(result.out)
        if found is None:
            return None
        before = _Part(int(found[5] or 0), found[7] or "", int(found[6]) if found[6] else None)
        status, headers = head_of(result.out[found.end() :], ends=found[1] == "curl")
        return cls(found[1], int(found[2]), int(found[3]), found[4] == "slow", before, status, headers, said=result.err)

    def part(self, *, verified: bool) -> _Part:
        """The part that the host has now, as far as it is known to be of one version."""
        before = self.before
        try:
            piece = piece_of(self.status, self.headers, before.size, before.validator, before.total, verified=verified)
        except RestartError:
            return _Part()
        if piece is None:
            # Only busybox tells nothing of the answer; then the digest decides whether the pieces match.
            return _Part(self.size) if self.tool == "busybox" and verified else before
        part = _Part(self.size, piece.validator, piece.total)
        mixed = piece.start != before.size or (piece.total is not None and self.size > piece.total)
        return part if not mixed and (piece.validator or verified or self.code == 0) else _Part()

    @property
    def declared(self) -> int:
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 19 else 0

    def is_whole(self, part: _Part, *, verified: bool) -> bool:
        if self.status == 416:
            return part.size > 0 and part == self.before
        if self.code != 0 or part.size != self.size:
            return False
        if self.tool == "busybox":
            return True
        return self.status in (200, 206) and (
            part.size == part.total if part.total is not None else verified or not self.is_unsure()
        )

    def is_unsure(self) -> bool:
        """Whether it may be truncated: without a length, wget takes a truncated file for the whole."""
        return self.tool == "wget" and self.code == 0 and self.status == 200 and "content-length" not in self.headers

    def is_passing(self) -> bool:
        if self.status and not 200 <= self.status < 300:
            return self.status in PASSING
        if self.slow:
            return True
        if self.code == 0:
            return self.status != 206 and not self.is_unsure()
        if self.tool == "busybox":
            return "server returned error" not in self.said
        return self.code in _PASSING_CODES.get(self.tool, ())

    def why(self) -> str:
        if self.is_unsure():
            return "the server does not announce its size, so wget cannot tell whether it is complete: give its sha256"
        if self.slow:
            return "no answer in time"
        if self.code == 0:
            return f"the server answered {self.status}, and the file is not complete"
        return _said(self.said) or f"the transfer was interrupted ({self.tool}: exit code {self.code})"


class Downloads(Operations):
    """Downloads by the host itself."""

    def fetch(self, wanted: Download, on_size: OnSize | None = None) -> Downloaded:
        """Download a file, which atomically replaces an old one, and only if it has the right digest."""
        session = self._session
        session.changes("download", wanted.path)
        if on_size is not None:
            session = replace(session, on_output=_Sizes(on_size))
        verified = bool(wanted.sha256)
        tries = attempts.Attempts(wanted.retries)
        part, do, ranges = _Part(), "look", True
        while True:
            result = self._exchange(session, wanted, do, part)
            if result.exit_code == _MISMATCH and part.size:
                # The pieces may be of two versions: start again.
                part, do, ranges = _Part(), "get", False
                continue
            told = _Told.read(result) if result.exit_code == _ANSWERED else None
            if told is None:
                return self._done(wanted, result)
            before, part = part, told.part(verified=verified)
            if do == "look" and told.tool == "none":
                do = "get"
                continue
            do = "get"
            if told.is_whole(part, verified=verified):
                do = "place"
                continue
            if before.size and not part.size and told.status in (200, 206, 416):
                # It is another version now, or the server has no ranges: start again, at once.
                ranges = ranges and told.status != 200
                continue
            if told.declared > attempts.LARGEST:
                raise StepFailed(
                    f"download {wanted.shown} on the host: it has {told.declared} bytes, "
                    f"more than the limit of {attempts.LARGEST}",
                    hint="check its address",
                )
            pause = tries.broke(told.size, part.total) if told.is_passing() else None
            if pause is None:
                raise self._no(wanted, told, tries.made)
            part = part if ranges else _Part()
            if session.cancel.wait(pause):
                raise CommandCancelled(f"while waiting to try {wanted.shown} again")

    def _exchange(self, session: Session, wanted: Download, do: str, part: _Part) -> CommandResult:
        """Request the file, or the rest of it, and follow redirects."""
        own = range_headers(part.size, part.validator)
        request = Request("GET", plain_url(wanted.url), wanted.headers or {}, own)
        for seen in itertools.count():
            try:
                command = _command(wanted, do, part, request)
                result = execute(session, command, check=False, live=session.on_output is not self._session.on_output)
                told = _Told.read(result) if result.exit_code == _ANSWERED else None
                if told is None or told.tool == "none":
                    return result
                further = redirected(request, told.status, told.headers.get("location", ""), seen)
            except HttpError as error:
                raise StepFailed(f"download {wanted.shown} on the host: {error.reason}", hint=error.hint) from error
            if further is None:
                return result
            request, do = further, "get"
        raise AssertionError("redirects end")

    def _done(self, wanted: Download, result: CommandResult) -> Downloaded:
        if result.exit_code != 0:
            raise self._failure(wanted, result)
        found = _DONE.search(result.out)
        if found is None:
            raise StepFailed(f"download {wanted.shown}: the host gave no answer")
        return Downloaded(found[1], int(found[2]))

    def _no(self, wanted: Download, told: _Told, made: int) -> StepFailed:
        tried = f" ({made} attempts)" if made > 1 else ""
        return StepFailed(
            f"download {wanted.shown} on the host: {told.why()}{tried}",
            stderr=shown_texts(told.said),
            hint=f"check the address and whether the host can reach it, {_ON_CONTROL}",
        )

    def _failure(self, wanted: Download, result: CommandResult) -> StepFailed:
        what = f"download {wanted.shown} on the host"
        if result.exit_code == _NO_TOOL:
            return StepFailed(f"{what}: it has neither curl nor wget", hint=f"install curl there first, {_ON_CONTROL}")
        if result.exit_code == _NO_TLS:
            return StepFailed(
                f"{what}: its only tool is the wget of busybox, which checks no certificates",
                hint=f"install curl there first, {_ON_CONTROL}",
            )
        if result.exit_code == _NO_HEADERS:
            return StepFailed(
                f"{what}: its only tool is the wget of busybox, which would show the headers to everybody on the host",
                hint=f"install curl there first, {_ON_CONTROL}",
            )
        if result.exit_code == _MISMATCH:
            got = _GOT.search(result.out)
            return StepFailed(
                f"{what}: wrong sha256: expected {wanted.sha256}, "
                f"got {got[1] if got else 'nothing'}; it is kept as {part_of(wanted)}/rejected",
                hint="the source was changed or is damaged, or `sha256` is of another version: compare it with what "
                "its makers publish",
            )
        if result.exit_code == _FOREIGN:
            return StepFailed(
                f"{what}: {part_of(wanted)} exists, and is not a private folder of ours",
                hint="find out who put it there, and remove it",
            )
        return file_failure(self._session, "download to", wanted.path, result)


_ON_CONTROL: Final = "or let the control node fetch it: leave out `fetchOn: host`"


def _command(wanted: Download, do: str, part: _Part, request: Request) -> Command:
    return script(
        _SCRIPT,
        do,
        part_of(wanted),
        str(part.size),
        part.notes(),
        str(max(1, round(wanted.timeout))),
        str(attempts.LARGEST),
        wanted.ca_file,
        "yes" if request.headers else "no",
        wanted.path,
        wanted.sha256,
        f"{wanted.mode:04o}",
        wanted.owner,
        stdin=_configuration(request),
    )


def part_of(wanted: Download) -> str:
    """The folder in which a download grows: beside its place, and named after the download."""
    tag = hashlib.sha256(f"{wanted.url}\0{wanted.sha256}\0{wanted.path}".encode()).hexdigest()[:16]
    return posixpath.join(posixpath.dirname(wanted.path), f".kx-{tag}.part")


def _said(text: str) -> str:
    """The last error message of a tool, which may be followed by advice."""
    shown = shown_texts(text)
    telling = [line.strip() for line in shown.splitlines() if _TELLING.search(line)]
    return shorten(_STAMP.sub("", telling[-1])) if telling else last_line(shown)


def _configuration(request: Request) -> bytes:
    """The address, then configuration for curl (``c``) and wget (``w``); wget requests the range itself."""
    headers = request.lines()
    lines = [request.url, *(f"c {line}" for line in curl_lines(request.url, headers))]
    lines += [f"w {line}" for line in wget_lines(headers, without=("Range",))]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


class _Sizes:
    """Finds the size of the download in the output of the script."""

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

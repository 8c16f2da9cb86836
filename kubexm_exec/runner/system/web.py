"""Requests that a host sends itself, by curl, python3 or wget, and whether it reaches a port."""

from __future__ import annotations

import itertools
import json
import re
from typing import Final

from kubexm_exec.connectors.base import Command
from kubexm_exec.control import Deadline
from kubexm_exec.http.messages import AGENT, BODY_LIMIT, HttpError, Reply, Request, plain_url
from kubexm_exec.http.redirects import redirected
from kubexm_exec.http.tools import curl_lines, head_of, shown_texts
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations, execute, last_line, shorten
from kubexm_exec.runner.quote import script

_NO_TOOL, _NO_PIPE = 71, 72
_HEADS: Final = 256 << 10
"""Bytes of heads, besides those of the body."""
_GRACE: Final = 5.0
"""Seconds that the host has to say how it ended, besides those of the answer."""

# One exchange, as in downloads: no tool follows a redirect, and the answer is passed on as it is, head and body.
# Address and headers come by standard input before the body, and reach the tool as configuration by pipes: they never
# are arguments, which everybody on the host can see, and nothing is written to a file; of wget, which takes both from
# files only, nothing but an address is asked. python3 answers with curl's codes.
_PYTHON: Final = r"""
import http.client, json, os, signal, socket, ssl, sys, urllib.parse, urllib.request
def end(code, said=""):
    sys.stderr.write(str(said)[:300])
    sys.stderr.flush()
    os._exit(code)
q = json.loads(os.fdopen(5, "rb").readline().decode())
signal.signal(signal.SIGALRM, lambda *_: end(28))
signal.setitimer(signal.ITIMER_REAL, q["timeout"])
body = sys.stdin.buffer.read() if q["body"] else None
try:
    trust = ssl.create_default_context(cafile=q["ca"] or None)
except (OSError, ValueError) as error:
    end(77, error)
if q["insecure"]:
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
to = urllib.parse.urlsplit(q["url"])
target = urllib.parse.urlunsplit(("", "", to.path or "/", to.query, ""))
port = to.port or (443 if to.scheme == "https" else 80)
proxies = urllib.request.getproxies()
proxy = "" if urllib.request.proxy_bypass(to.hostname) else proxies.get(to.scheme) or proxies.get("all") or ""
via = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy) if proxy else None
kind = http.client.HTTPSConnection if to.scheme == "https" else http.client.HTTPConnection
more = {"context": trust} if to.scheme == "https" else {}
try:
    line = kind(via.hostname if via else to.hostname, (via.port or 80) if via else port, timeout=q["timeout"], **more)
    if via and to.scheme == "https":
        line.set_tunnel(to.hostname, port)
    elif via:
        target = q["url"]
    headers = {name: value.encode("utf-8", "surrogateescape") for name, value in q["headers"].items()}
    line.request(q["method"], target, body, headers)
    got = line.getresponse()
    out = sys.stdout.buffer
    out.write(("HTTP/1.1 %d x\r\n" % got.status).encode())
    for name, value in got.getheaders():
        out.write(("%s: %s\r\n" % (name, " ".join(value.split()))).encode("latin-1", "replace"))
    out.write(b"\r\n")
    out.write(got.read(q["limit"]))
    out.flush()
except Exception as error:
    if isinstance(error, ssl.SSLCertVerificationError): end(60, error.verify_message)
    if isinstance(error, ssl.SSLError): end(35, error.reason)
    if isinstance(error, socket.gaierror): end(6, error.strerror)
    if isinstance(error, socket.timeout): end(28)
    if isinstance(error, ConnectionRefusedError): end(7, "connection refused")
    if isinstance(error, (http.client.RemoteDisconnected, http.client.IncompleteRead, ConnectionResetError)): end(52)
    if isinstance(error, OSError): end(7, error.strerror or error)
    end(1, "the answer is not HTTP (%s)" % type(error).__name__)
end(0)
"""
_SCRIPT: Final = rf"""
method=$1 seconds=$2 ca=$3 insecure=$4 body=$5 limit=$6 python=$7 secret=$8 agent=$9
curl= json= url=
while IFS= read -r line && [ -n "$line" ]; do
  case $line in
    'c '*) curl=$curl${{line#??}}'
' ;;
    'j '*) json=${{line#??}} ;;
    'u '*) url=${{line#??}} ;;
  esac
done
exec 4<&0
# Never for the host itself.
no_proxy=${{no_proxy:-$NO_PROXY}},localhost,127.0.0.1,::1
export no_proxy
have() {{ command -v "$1" >/dev/null 2>&1; }}
# Its head is passed on with its body, and its code by the other stream: the limit may end it before it is through.
told() {{ "$@"; printf '\nkx code %s' $? >&2; }}
if have curl; then
  set -- -q --silent --show-error --globoff --include --http1.1 --max-time "$seconds"
  case $url in [hH][tT][tT][pP][sS]:*) set -- "$@" --proto =https ;; *) set -- "$@" --proto =http ;; esac
  [ -z "$ca" ] || set -- "$@" --cacert "$ca"
  [ -z "$insecure" ] || set -- "$@" --insecure
  if [ "$method" = HEAD ]; then set -- "$@" --head; else set -- "$@" --request "$method"; fi
  if [ -n "$body" ]; then set -- "$@" --data-binary @-; fi
  printf %s "$curl" | {{ cat <&4 | told curl "$@" --config /dev/fd/5; }} 5<&0 | head -c "$limit"
elif have python3; then
  printf '%s\n' "$json" | {{ cat <&4 | told python3 -c "$python"; }} 5<&0 | head -c "$limit"
elif have wget && wget --version 2>/dev/null | grep -q '^GNU Wget'; then
  [ -z "$body$secret" ] || exit {_NO_PIPE}
  set -- --no-verbose --server-response --save-headers --content-on-error --tries=1 --timeout="$seconds"
  set -- "$@" --max-redirect=0 --method="$method" --output-document=- --no-config --no-netrc --user-agent="$agent"
  [ -z "$ca" ] || set -- "$@" --ca-certificate="$ca"
  [ -z "$insecure" ] || set -- "$@" --no-check-certificate
  printf '%s\n' "$url" | told wget "$@" --input-file=- | head -c "$limit"
else exit {_NO_TOOL}; fi
exit 0
"""
_PORT: Final = rf"""
have() {{ command -v "$1" >/dev/null 2>&1; }}
if have python3; then
  exec python3 -c '
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except (socket.timeout, TimeoutError):
    sys.exit("no answer")
except OSError as error:
    sys.exit(error.strerror or str(error))
' "$1" "$2" "$3"
elif have bash && have timeout; then
  timeout "$3" bash -c ': <"/dev/tcp/$1/$2"' kx "$1" "$2" 2>/dev/null
  case $? in 0) exit 0 ;; 124|143) echo 'no answer' >&2 ;; *) echo 'connection refused' >&2 ;; esac
  exit 1
elif have nc && nc -h 2>&1 | grep -q -e ' -z' -e '[[-][a-y0-9]*z'; then
  nc -z -w "$4" "$1" "$2" </dev/null >/dev/null 2>&1 || {{ echo 'no connection' >&2; exit 1; }}
else exit {_NO_TOOL}; fi
"""
_CODE: Final = re.compile(r"\nkx code (\d+)$")
_STATUS: Final = re.compile(rb"HTTP/[0-9.]+ (\d{3})([^\r\n]*)")
_LATE: Final = "use a longer `timeout`, or find out what delays it"
_WORDS: Final[dict[int, tuple[str, str, bool]]] = {
    6: ("the name does not resolve", "check the host in the address", True),
    7: ("connection refused", "nothing listens there: is the address right, is the service up?", True),
    28: ("no answer in time", _LATE, True),
    35: ("TLS failed", "does the server speak https on this port?", True),
    52: ("the connection ended in the middle", "", True),
    56: ("the connection ended in the middle", "", True),
    60: ("its certificate is not trusted", "give the CA that signed it as `hostCaFile`", False),
    77: ("hostCaFile: it is not a file of CA certificates", "check `hostCaFile`, a file on the host", False),
}
"""What curl's exit codes mean, with hints, and whether it may pass."""
_WGET: Final = {4: 7, 5: 60}
"""Exit codes of wget."""
_REFUSED: Final = re.compile(r"refused", re.IGNORECASE)


class HostWeb(Operations):
    """Requests and connections of the host itself."""

    def request(
        self, asked: Request, *, timeout: float, ca_file: str = "", insecure: bool = False, follow: bool = True
    ) -> Reply:
        """One answer, all of it within ``timeout``; redirects are followed by the rules of the control node.

        Raises HttpError, or StepFailed if the host has no tool for it. ``ca_file`` is on the host.
        """
        until = Deadline.after(timeout)
        for seen in itertools.count():
            left = max(0.1, until.left() or 0.0)
            reply = self._exchange(asked, left, ca_file, insecure)
            further = redirected(asked, reply.status, reply.headers.get("location", ""), seen) if follow else None
            if further is None:
                return reply
            if until.passed():
                raise HttpError("no answer in time", _LATE, passing=True)
            asked = further
        raise AssertionError("redirects end")

    def try_port(self, address: str, port: int, timeout: float) -> str:
        """What is in the way of a connection to a port; empty if nothing is."""
        seconds, whole = f"{max(0.1, timeout):.3f}", str(max(1, round(timeout)))
        result = self._run(script(_PORT, address, str(port), seconds, whole, question=True), timeout)
        if result is None:
            return "no answer"
        if result.exit_code == _NO_TOOL:
            raise StepFailed(
                "wait for a port from the host: it has neither python3 nor bash nor nc with -z",
                hint="install one of them there first, or leave out `from: host`",
            )
        return "" if result.exit_code == 0 else last_line(result.err).lower() or f"exit code {result.exit_code}"

    def _run(self, command: Command, timeout: float) -> CommandResult | None:
        """Run a command of which only the answer matters; None if it took too long."""
        try:
            return execute(self._session, command, check=False, live=False, timeout=timeout + _GRACE)
        except StepFailed:
            return None

    def _exchange(self, asked: Request, timeout: float, ca_file: str, insecure: bool) -> Reply:
        url, headers = plain_url(asked.url), asked.lines()
        question = {
            "url": url, "method": asked.method, "headers": headers, "timeout": timeout, "ca": ca_file,
            "insecure": insecure, "body": asked.body is not None, "limit": BODY_LIMIT,
        }  # fmt: skip
        # What curl would add by itself.
        bare = {"Expect": "", **({} if "content-type" in map(str.lower, headers) else {"Content-Type": ""})}
        lines = [f"u {url}", *(f"c {line}" for line in curl_lines(url, {**headers, **bare}))]
        lines += [f"j {json.dumps(question)}", ""]
        said = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        command = script(
            _SCRIPT, asked.method, f"{timeout:.3f}", ca_file, "y" if insecure else "",
            "y" if asked.body is not None else "", str(BODY_LIMIT + _HEADS), _PYTHON,
            "y" if headers.keys() - {"User-Agent"} else "", AGENT,
            stdin=said + (asked.body or b""), max_output=2 * (BODY_LIMIT + _HEADS),
        )  # fmt: skip
        result = self._run(command, timeout)
        if result is None:
            raise HttpError("no answer in time", _LATE, passing=True)
        if result.exit_code == _NO_TOOL:
            raise StepFailed(
                "a request from the host: it has neither curl nor python3 nor GNU wget",
                hint="install curl there first, or leave out `from: host`",
            )
        if result.exit_code == _NO_PIPE:
            raise StepFailed(
                "a request from the host: its only tool is wget, which takes headers and a body from files only",
                hint="install curl or python3 there first, or leave out `from: host`",
            )
        return _read(asked, result)


def _read(asked: Request, result: CommandResult) -> Reply:
    """The answer in what a tool printed; raises HttpError."""
    found = _CODE.search(result.err)
    code, said = (int(found[1]), result.err[: found.start()]) if found else (-1, result.err)
    data, secure = result.stdout, asked.url.lower().startswith("https:")
    if not data:
        # wget says in its messages what it does not save: answers without a body, and redirects.
        logged, headers = head_of(said, ends=False)
        if logged:
            return Reply(logged, headers, b"", asked.url)
    while True:
        head, ends, rest = data.partition(b"\r\n\r\n")
        status = _STATUS.match(head)
        if status is None or not ends:
            raise _failure(code, said)
        # Heads that come before: of a proxy, and of answers that are not the last one.
        passing = status[1].startswith(b"1") or (secure and b"established" in status[2].lower())
        if not (passing and rest.startswith(b"HTTP/")):
            break
        data = rest
    headers = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "")
    whole = len(rest) >= BODY_LIMIT or asked.method == "HEAD" or not length.isdecimal() or len(rest) >= int(length)
    if not whole or (code not in (0, 8, 23, 22) and len(rest) < BODY_LIMIT):
        raise _failure(code or 52, said)
    return Reply(int(status[1]), headers, rest[:BODY_LIMIT], asked.url)


def _failure(code: int, said: str) -> HttpError:
    """Why there is no answer, in the same words as on the control node."""
    message = shorten(last_line(shown_texts(said)))
    code = _WGET.get(code, code)
    if code in _WORDS:
        words, hint, passing = _WORDS[code]
        if code == 7 and "connect to server" in message:
            words = "connection refused, or no way there"  # curl does not tell
        elif code == 7 and "timed out" in message:
            words, hint, _ = _WORDS[28]
        elif code == 7 and message and not _REFUSED.search(message):
            words = message.lower()
        elif code in (35, 60, 77) and message:
            words = f"{words}: {message}"
        return HttpError(words, hint, passing=passing)
    return HttpError(message or f"no answer (exit code {code})", passing=code in (18, 55, 92))

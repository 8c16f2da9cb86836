"""Channels with a shell on the host, as a given user."""

from __future__ import annotations

import re
import shlex
import struct
from typing import TYPE_CHECKING, Final, Literal

from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.connectors.ssh.link import Link
from kubexm_exec.connectors.ssh.options import Become
from kubexm_exec.connectors.ssh.shell import CHUNK, Watch, any_shell, encode, nonce, setup, spelt
from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

# Messages (in English) with which sudo, su and doas refuse, and what to do then.
_REFUSALS: Final = (
    (r"must have a tty|a terminal is required|must be run from a terminal|a tty is required",
     "the host requires a terminal: set `become: {pty: true}`, or remove `requiretty` from its sudoers file"),
    (r"not in the sudoers|not allowed to (run|execute)|may not run|Operation not permitted|doas\.conf",
     "allow the user in the host's sudoers file (or doas.conf)"),
    (r"a password is required|no password was provided|Auth[a-z]+ (failed|required)|incorrect password",
     "give the password with `become: {password: \"env:NAME\"}`, or allow the user without one (NOPASSWD)"),
    (r"unknown user|does not exist|no passwd entry", "give a user in `become` that exists on the host"),
    (r"not found|No such file", "install it on the host, or choose another `become.method`"),
)  # fmt: skip


def become_line(become: Become, prompt: str, *argv: str) -> str:
    """The command line that runs ``argv`` as the other user; sudo asks for a password with this prompt, on stdin."""
    match become.method:
        case "sudo":
            asking = ("-n",) if become.password is None else ("-S", "-p", prompt)
            words: tuple[str, ...] = ("sudo", "-H", *asking, "-u", become.user, "--", *argv)
        case "su":
            words = ("su", "-s", "/bin/sh", "-c", shlex.join(argv), "--", become.user)
        case "doas":
            words = ("doas", *(("-n",) if become.password is None else ()), "-u", become.user, *argv)
    return f"exec env LC_ALL=C {shlex.join(words)}"


def asks(become: Become, prompt: str, said: bytes) -> int:
    """How often a password has been asked for."""
    if become.method == "sudo":
        return said.count(prompt.encode())
    return len(re.findall(rb"[Pp]assword: ?", said))


def refusal(become: Become, user: str, said: str, prompt: str, *, asked: int) -> str:
    """Why becoming the other user failed, and what to do."""
    text = " ".join(said.replace(prompt, " ").split())
    text = re.sub(r"^((doas \([^)]*\) p|P)assword: ?)+", "", text)
    # Without the script that it refuses to run.
    text = re.sub(r"(not allowed to execute) '.*' as", r"\1 /bin/sh as", text)
    head = f"{user} cannot become {become.user} by {become.method}"
    wrong = r"try again|incorrect password|Authentication failure"
    # doas says the same if none was given.
    wrong += "|Authentication failed" if asked and become.password is not None else ""
    if asked > 1 or re.search(wrong, text):
        return f"{head}: the password is wrong; check `become.password`"
    if asked and become.password is None:
        return f'{head}: a password is asked for; give it with `become: {{password: "env:NAME"}}`'
    for pattern, hint in _REFUSALS:
        if re.search(pattern, text):
            return f"{head}: {text}; {hint}"
    return f"{head}: {text or 'it ended without a message'}"


_COLUMNS: Final = 200
_LINES: Final = 50
# Numbers of RFC 4254: ECHO, OPOST, ONLCR off; raw: ISTRIP, INLCR, IGNCR, ICRNL, IXON, IXOFF, ISIG, ICANON, IEXTEN too.
_QUIET: Final = (53, 70, 72)
_RAW: Final = (33, 34, 35, 36, 38, 40, 50, 51, 59)
_PROMPT_TIME: Final = 20.0
"""Seconds for sudo to answer; it may ask a directory server first."""
_ENTERED: Final = "unset LC_ALL; cd . 2>/dev/null || cd /; unset OLDPWD"
"""The first commands as the other user, who may not be allowed into the folder of the login user."""


class Shell:
    """A shell that runs one command after the other."""

    def __init__(self, link: Link, channel: paramiko.Channel, sync: str, word: str) -> None:
        """``word``: is in its command line, and in no other."""
        self.channel = channel
        self.word = word
        self.watch = Watch(channel)
        self.group: tuple[str, ...] = ()
        """The process group of its commands, and its own number, if they share one that is known."""
        self.questions: dict[str, str] = {}
        """Its functions by their text: each is parsed once, which takes bash 2 ms."""
        self._link = link
        self._sync = sync
        self._pending = encode(setup(sync) + "\n")

    @property
    def usable(self) -> bool:
        """Whether its channel is still open."""
        return not (self.channel.closed or self.channel.eof_received)

    def send(self, frame: bytes, deadline: Deadline) -> str:
        """Send a command; returns the word after which its output begins, if any. After an OSError it was not run."""
        sync, pending = self._sync, self._pending
        self._sync, self._pending = "", b""
        # Output of background children of earlier commands is dropped.
        while not sync and self.channel.recv_ready():
            self.channel.recv(CHUNK)
        self.channel.settimeout(deadline.left())
        self.channel.sendall(pending + frame)
        return sync

    def learn(self, group: tuple[str, ...]) -> None:
        """Remember the group that a command has told, unless it is that of the command alone."""
        self.group = group if len(group) == 2 else ()

    def close(self) -> None:
        """Close it, and release its channel."""
        self.channel.close()
        self._link.release()


def open_shell(link: Link, become: Become | None, mark: str, deadline: Deadline, cancel: Cancel) -> Shell:
    """A new shell, which occupies a channel of the connection until it is closed; its word begins with the mark."""
    channel = link.channel(deadline, cancel)
    sync, word = nonce(), mark + nonce()
    try:
        if become is None:
            _request_exec(channel, encode(f"exec /bin/sh -s {word}"))
            return Shell(link, channel, sync, word)
        greet = f"{_ENTERED}; echo {spelt(sync)}; echo {spelt(sync)} >&2; exec /bin/sh -s {word}"
        _become(channel, become, link.user, greet, sync, deadline, cancel)
        return Shell(link, channel, nonce(), word)
    except BaseException:
        channel.close()
        link.release()
        raise


def open_script(
    link: Link,
    become: Become | None,
    script: str,
    sync: str,
    deadline: Deadline,
    cancel: Cancel,
    *,
    counted: bool = True,
    pty: Literal["", "raw", "cooked"] = "",
) -> paramiko.Channel:
    """A channel whose shell runs a script, which prints the sync word on both streams first."""
    channel = link.channel(deadline, cancel, counted=counted)
    try:
        if pty:
            _request_pty(channel, raw=pty == "raw")
        if become is None:
            _request_exec(channel, encode(f"exec {shlex.join(any_shell(script))}"))
        else:
            _become(channel, become, link.user, f"{_ENTERED}\n{script}", sync, deadline, cancel, merged=bool(pty))
    except BaseException:
        channel.close()
        if counted:
            link.release()
        raise
    return channel


def _become(
    channel: paramiko.Channel,
    become: Become,
    user: str,
    script: str,
    sync: str,
    deadline: Deadline,
    cancel: Cancel,
    *,
    merged: bool = False,
) -> None:
    """Start a script as the other user; the password is sent once, and only if it is asked for."""
    prompt = f"{nonce()}:"
    _request_exec(channel, encode(become_line(become, prompt, *any_shell(script))))
    ready, receive = (channel.recv_ready, channel.recv) if merged else (channel.recv_stderr_ready, channel.recv_stderr)
    said = b""
    given = 0
    limit = deadline.earlier(_PROMPT_TIME)
    watch = Watch(channel)
    with watch.until(cancel):
        while sync.encode() not in said:
            watch.clear()
            while ready():
                said += receive(CHUNK)
            asked = asks(become, prompt, said)
            if sync.encode() in said:
                break
            if asked > given and (given or become.password is None):
                raise _refused(become, user, said, prompt, asked)
            if asked > given:
                given = asked
                channel.settimeout(limit.left())
                try:
                    channel.sendall(encode(f"{become.password}\n"))
                except OSError as error:
                    raise ConnectorError(f"the connection broke while {become.method} asked for a password") from error
                continue
            if (channel.closed or channel.eof_received) and not ready():
                raise _refused(become, user, said, prompt, asked)
            _raise_if_silent(limit, deadline, cancel, become)
            watch.wait(limit.left())


def _raise_if_silent(limit: Deadline, deadline: Deadline, cancel: Cancel, become: Become) -> None:
    try:
        raise_if_over(limit, cancel)
    except CommandTimedOut:
        if deadline.passed():
            raise
        raise ConnectorError(
            f"{become.method} did not answer for {_PROMPT_TIME:g}s; try it on the host by hand"
        ) from None


def _refused(become: Become, user: str, said: bytes, prompt: str, asked: int) -> ConnectorError:
    return ConnectorError(refusal(become, user, said.decode("utf-8", "replace"), prompt, asked=asked))


def _request_exec(channel: paramiko.Channel, line: bytes) -> None:
    """Have the login shell of the host run a line.

    Without waiting for the answer, which would cost a round trip, and for ever if the host hangs. A refusal closes the
    channel, which its reader notices.
    """
    _send(channel, "exec", line)


def _request_pty(channel: paramiko.Channel, *, raw: bool) -> None:
    """A terminal that does not change output, and if it is raw not input either."""
    modes = b"".join(struct.pack(">BI", number, 0) for number in (*_QUIET, *(_RAW if raw else ()))) + b"\0"
    _send(channel, "pty-req", b"dumb", _COLUMNS, _LINES, 0, 0, modes)


def _send(channel: paramiko.Channel, kind: str, *arguments: bytes | int) -> None:
    transport: HostTransport = channel.get_transport()  # type: ignore[assignment]
    try:
        transport.send_request(channel, kind, *arguments)
    except OSError as error:
        raise NotBegun(f"the host does not start a shell: {error}") from error

"""Channels with a shell on the host, as a given user."""

from __future__ import annotations

import shlex
import struct
from typing import TYPE_CHECKING, Final, Literal

from kubexm_exec.connectors.become import asks, become_line, refusal
from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.connectors.ssh.link import Link
from kubexm_exec.connectors.ssh.options import Become
from kubexm_exec.connectors.ssh.shell import CHUNK, any_shell, encode, nonce, setup, spelt
from kubexm_exec.connectors.ssh.watch import Watch
from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_COLUMNS: Final = 200
_LINES: Final = 50
# Numbers of RFC 4254: ECHO, OPOST, ONLCR off; raw: ISTRIP, INLCR, IGNCR, ICRNL, IXON, IXOFF, ISIG, ICANON, IEXTEN too.
_QUIET: Final = (53, 70, 72)
_RAW: Final = (33, 34, 35, 36, 38, 40, 50, 51, 59)
_PROMPT_TIME: Final = 20.0
"""Seconds for sudo to answer; it may ask a directory server first."""


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
        greet = f"unset LC_ALL; echo {spelt(sync)}; echo {spelt(sync)} >&2; exec /bin/sh -s {word}"
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
            _become(channel, become, link.user, f"unset LC_ALL\n{script}", sync, deadline, cancel, merged=bool(pty))
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
    import paramiko

    transport: HostTransport = channel.get_transport()  # type: ignore[assignment]
    try:
        transport.send_request(channel, kind, *arguments)
    except OSError as error:
        raise NotBegun(f"the host does not start a shell: {error}") from error
    except paramiko.SSHException as error:
        raise ConnectorError(f"the host does not start a shell: {error}") from error

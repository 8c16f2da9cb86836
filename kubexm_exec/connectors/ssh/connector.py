"""The connector for hosts that are reached by SSH."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, ConnectorFactory, OnOutput, Sink, User
from kubexm_exec.connectors.ssh.channels import Shell, open_script, open_shell
from kubexm_exec.connectors.ssh.config import SSH_PORT, is_redirecting
from kubexm_exec.connectors.ssh.connection import Connection
from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.connectors.ssh.feed import Feed, feed_bytes, feed_stream
from kubexm_exec.connectors.ssh.filescripts import (
    CANNOT_DECODE,
    SMALL,
    Writing,
    check_path,
    file_error,
    is_lines,
    reading,
)
from kubexm_exec.connectors.ssh.gateways import Gateways
from kubexm_exec.connectors.ssh.link import Link, NoChannel, load_libraries
from kubexm_exec.connectors.ssh.options import Become
from kubexm_exec.connectors.ssh.orphans import Leftovers, Way
from kubexm_exec.connectors.ssh.scripts import KILL
from kubexm_exec.connectors.ssh.shell import (
    LONGEST_LINE,
    Ending,
    Exchange,
    Job,
    Lost,
    any_shell,
    encode,
    nonce,
)
from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, OutcomeUnknown
from kubexm_exec.model.graph import GraphHost

_START_TIME: Final = 5.0
_CLEAN_UP_TIME: Final = 10.0
"""Seconds to stop or remove something on the host when nobody waits for it any more."""
_MOST_ERRORS: Final = 1 << 16
"""Bytes of error messages that are kept of our own scripts."""
_ALL: Final = 1 << 62
_NO_STREAM: Final = (
    "a stream cannot be sent through a terminal, which `become` needs here (`pty: true`, or doas with a password); "
    "allow it without a password and without `requiretty`"
)
_MOST_SHELLS: Final = 3
"""Other users of a host for whom a shell is kept open."""


class _TooLong(Exception):
    """The command line is longer than sshd can pass to a shell."""


class _Work(Struct, frozen=True):
    """A job with its input, and what becomes of its output."""

    job: Job
    deadline: Deadline
    cancel: Cancel
    feed: Feed | None = None
    size: int | None = None
    """How many bytes the feed will give, if that is known."""
    document: bytes | None = None
    """Its input instead of a feed, for a shell that is open."""
    max_output: int = _MOST_ERRORS
    on_output: OnOutput | None = None


class SshConnector:
    """Runs commands and writes files on a host over one SSH connection, which is opened again if it drops."""

    compares: Final = True

    def __init__(
        self,
        host: GraphHost,
        secrets: Callable[[str], str],
        gateways: Gateways | None = None,
        *,
        of: SshConnector | None = None,
        user: User = None,
    ) -> None:
        """``gateways``: shared with other hosts. ``of``, ``user``: see ``as_user``."""
        self._host = host
        self._secrets = secrets
        self._main: SshConnector = of or self
        self._user = user
        self._others: dict[str, SshConnector] = {}
        """The same host as other users, over the same connection."""
        self._connection: Connection = of._connection if of else Connection(host, secrets, gateways or Gateways())
        self._shell: Shell | None = None
        self._shell_in_use = False
        self._keeps_shell = True
        """Whether its shell stays open: there are only a few channels for all users of the host."""
        self._mark: str = of._mark if of else ""
        self._left: Leftovers = of._left if of else Leftovers()
        self._lock = threading.Lock()

    @classmethod
    def for_run(cls) -> ConnectorFactory:
        """Make connectors that share their gateways."""
        # This takes longest before the first login; meanwhile the journal waits for its disk.
        threading.Thread(target=load_libraries, name="kubexm-ssh", daemon=True).start()
        return _OfRun(cls)

    def start_in(self, folder: str) -> None:
        """Resolve relative paths of keys, and run a ProxyCommand, in a folder."""
        self._connection.folder = folder

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Mark the shells on the host; end first what shells with one of the marks ``left`` have started."""
        self._mark = own
        self._left.expect(left)

    @property
    def own_mark(self) -> str:
        """The mark in the names of temporary folders."""
        return self._mark

    def open(self, deadline: Deadline) -> None:
        """Connect and log in, unless it is open; a close by another thread ends it."""
        self._connection.reopen()
        self._connection.link(deadline, Cancel())

    def as_user(self, user: bool | str) -> SshConnector:
        """The same host as another user, over the same connection."""
        wanted = self._connection.options.as_user(user)
        if wanted == self._become:
            return self
        name = "" if wanted is None else wanted.user
        with self._lock:
            other = self._others.get(name)
            if other is None:
                other = SshConnector(self._host, self._secrets, of=self, user=name or False)
                other._keeps_shell = len(self._others) < _MOST_SHELLS
                self._others[name] = other
            return other

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command in a session of its own on the host; timeout and cancel kill its whole process group.

        If the connection drops meanwhile, OutcomeUnknown is raised; the command is never run again.
        """
        began = time.monotonic()
        job = Job.of(command)
        raise_if_over(deadline, cancel)
        fault = job.fault()
        if fault:
            return CommandResult(command=command.display(), exit_code=126, stderr=f"{fault}\n".encode())
        feed, size = None, None
        if command.stdin is not None:
            stdin = command.stdin
            size = len(stdin) if isinstance(stdin, bytes) else None
            feed = feed_bytes(stdin) if isinstance(stdin, bytes) else feed_stream(stdin, deadline, cancel)
        try:
            work = _Work(job, deadline, cancel, feed, size, max_output=command.max_output, on_output=on_output)
            exchange, ending = self._do(work)
        except _TooLong:
            said = f"{job.argv[0]}: argument list too long\n"
            return CommandResult(command=command.display(), exit_code=126, stderr=said.encode())
        return CommandResult(
            command=command.display(),
            exit_code=ending.exit_code,
            stdout=exchange.stdout.kept(),
            stderr=exchange.stderr.kept(),
            seconds=time.monotonic() - began,
            dropped=exchange.stdout.dropped + exchange.stderr.dropped,
        )

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        seen: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file atomically; a link is replaced by the file, not followed."""
        check_path(path)
        raise_if_over(deadline, cancel)
        writing = Writing(path, mode, owner, group, seen)
        if isinstance(source, bytes) and len(source) <= SMALL:
            lines = is_lines(source)
            job = writing.whole() if lines else writing.decoded(len(source))
            document = source if lines else base64.encodebytes(source)
            done = self._on_file(_Work(job, deadline, cancel, document=document), path, (0, CANNOT_DECODE))[1]
            if done.exit_code == 0:
                return
        feed = feed_stream(source, deadline, cancel)
        try:
            if isinstance(source, bytes):
                self._on_file(_Work(writing.sized(len(source)), deadline, cancel, feed, len(source)), path)
            else:
                self._on_file(_Work(writing.fill(), deadline, cancel, feed), path)
                self._on_file(_Work(writing.finish(), deadline, cancel), path)
        except BaseException:
            # Also after a cancel: nobody needs half a file.
            with contextlib.suppress(ConnectorError, CommandTimedOut):
                self._do(_Work(writing.remove(), Deadline.after(_CLEAN_UP_TIME), Cancel()))
            raise

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a regular file, at most ``limit`` of them."""
        check_path(path)
        raise_if_over(deadline, cancel)
        return self._on_file(_Work(reading(path, limit), deadline, cancel, max_output=_ALL), path)[0].stdout.kept()

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Pass the bytes of a regular file on, piece by piece."""
        check_path(path)
        raise_if_over(deadline, cancel)

        def take(name: str, data: bytes) -> None:
            if name == "stdout":
                sink(data)

        self._on_file(_Work(reading(path, None), deadline, cancel, on_output=take), path)

    def _on_file(self, work: _Work, path: str, expect: Sequence[int] = (0,)) -> tuple[Exchange, Ending]:
        """Run a job that is about a file; an exit code that is not expected is an OSError."""
        exchange, ending = self._do(work)
        if ending.exit_code not in expect:
            said = exchange.complaints[-_MOST_ERRORS:].decode("utf-8", "replace")
            raise file_error(ending.exit_code, said, path)
        return exchange, ending

    def hang_up(self) -> None:
        """Begin to close the connection, without waiting for its threads to end."""
        self._connection.hang_up()

    def close(self) -> None:
        """Close the connection; a running command loses its channel."""
        for each in (self, *self._others.values()):
            with each._lock:
                each._shell = None
        self._connection.close()

    def _do(self, work: _Work) -> tuple[Exchange, Ending]:
        """Run a job to its end, in the open shell if that is free and suitable."""

        def attempt() -> tuple[Exchange, Ending]:
            link = self._ready(work.deadline, work.cancel)
            if work.feed is None and self._keeps_shell and not self._on_terminal(work.job):
                done = self._in_shell(link, work)
                if done is not None:
                    return done
                link = self._ready(work.deadline, work.cancel)
            if work.document is None:
                return self._in_channel(link, work)
            return self._in_channel(link, replace(work, feed=feed_bytes(work.document), size=len(work.document)))

        try:
            try:
                return attempt()
            except NotBegun:
                # Only now it was found that the connection had dropped.
                return attempt()
        except ConnectorError as error:
            name = f"host {self._host.name}"
            if str(error).startswith(name):
                raise
            raise type(error)(f"{name}: {error}") from error

    def _ready(self, deadline: Deadline, cancel: Cancel) -> Link:
        """The open connection, once commands of a lost connection or of a killed run have been ended."""
        link = self._connection.link(deadline, cancel)
        link.make_room = self._main._make_room
        if self._left:
            self._left.end(functools.partial(self._main._way, link), deadline, cancel)
        return link

    def _way(self, link: Link, user: User) -> Way:
        connector = self if user is None else self.as_user(user)

        def run(job: Job, deadline: Deadline, cancel: Cancel) -> tuple[Exchange, Ending]:
            return connector._in_channel(link, _Work(job, deadline, cancel), counted=False)

        return Way(run, connector._sign)

    @property
    def _sign(self) -> str:
        """What follows the mark in the words of its shells: the same for the same user in every session."""
        user = "" if self._become is None else self._become.user
        return f"u{hashlib.sha256(user.encode()).hexdigest()[:8]}"

    @property
    def _marked(self) -> str:
        """The beginning of the words of its shells."""
        return f"{self._mark}{self._sign}" if self._mark else ""

    def _make_room(self) -> None:
        """Close idle shells, since the host allows no more channels; they are opened again when needed."""
        for each in (self, *self._others.values()):
            with each._lock:
                shell, each._shell = each._shell, None
            if shell is not None:
                shell.close()

    def _in_shell(self, link: Link, work: _Work) -> tuple[Exchange, Ending] | None:
        """Run a job in the shell that stays open; None, and nothing was run, if that is busy or gone."""
        job, deadline, cancel = work.job, work.deadline, work.cancel
        with self._lock:
            if self._shell_in_use:
                return None
            self._shell_in_use = True
            shell, self._shell = self._shell, None
        keep = False
        try:
            if shell is not None and not shell.usable:
                shell.close()
                shell = None
            if shell is None:
                shell = open_shell(link, self._become, self._marked, deadline, cancel)
            try:
                sync = shell.send(job.frame(work.document, shell.questions if shell.group else None), deadline)
            except OSError:
                raise_if_over(deadline, cancel)
                # Half a frame is never run, so nothing is run twice.
                return None
            exchange = Exchange(
                shell.channel, job, sync, work.max_output, work.on_output,
                group=shell.group, watch=shell.watch, word=shell.word,
            )  # fmt: skip
            ending = self._finish(link, exchange, deadline, cancel)
            shell.learn(exchange.group)
            # A background child could write into the output of the next command.
            keep = not ending.left_children
            return exchange, ending
        finally:
            with self._lock:
                self._shell_in_use = False
                if keep:
                    self._shell = shell
            if shell is not None and not keep:
                shell.close()

    def _in_channel(self, link: Link, work: _Work, *, counted: bool = True) -> tuple[Exchange, Ending]:
        """Run a job in a channel of its own; one that is not counted ends something, and may be lost."""
        try:
            return self._in_channel_of(link, work, counted=counted)
        except NoChannel:
            if counted:
                raise
        # What is to be ended may have the only channel that the host allows.
        other = self._connection.another(work.deadline)
        try:
            return self._in_channel_of(other, work, counted=counted)
        finally:
            other.close()

    def _in_channel_of(self, link: Link, work: _Work, *, counted: bool) -> tuple[Exchange, Ending]:
        job, deadline, cancel, feed = work.job, work.deadline, work.cancel, work.feed
        sync = nonce()
        pty = self._on_terminal(job)
        if pty and feed is not None and work.size is None:
            raise ConnectorError(_NO_STREAM)
        mark = self._marked if counted else ""
        script = job.line(sync, reads=feed is not None, size=work.size if pty else None, mark=mark)
        if len(encode("".join(any_shell(script)))) > LONGEST_LINE:
            raise _TooLong
        kind: Literal["", "raw", "cooked"] = "" if not pty else "raw" if feed is not None else "cooked"
        channel = open_script(link, self._become, script, sync, deadline, cancel, counted=counted, pty=kind)
        word = job.start if counted else ""
        exchange = Exchange(channel, job, sync, work.max_output, work.on_output, merged=pty, word=word)
        try:
            channel.settimeout(deadline.left())
            try:
                channel.sendall(job.hidden())
            except OSError as error:
                raise self._lost(link, exchange) from error
            return exchange, self._finish(link, exchange, deadline, cancel, feed)
        finally:
            channel.close()
            if counted:
                link.release()

    def _finish(
        self, link: Link, exchange: Exchange, deadline: Deadline, cancel: Cancel, feed: Feed | None = None
    ) -> Ending:
        try:
            if feed is not None:
                feed(exchange)
            exchange.wait(deadline, cancel)
            return exchange.ending()
        except Lost:
            raise self._lost(link, exchange) from None
        except BaseException:
            self._stop(link, exchange)
            raise

    def _stop(self, link: Link, exchange: Exchange) -> None:
        """Kill the command on the host; raises OutcomeUnknown if nobody can know whether that worked."""
        exchange.unheard()
        try:
            exchange.wait(Deadline.after(_START_TIME), Cancel(), until=lambda: bool(exchange.group) or exchange.over)
            if exchange.over:
                return
            self._kill(link, exchange)
        except (Lost, CommandTimedOut, ConnectorError) as error:
            self._left.add(self._user, exchange)
            raise OutcomeUnknown(
                f"host {self._host.name}: a command had to be stopped, but the host is silent: it may still run there"
            ) from error

    def _kill(self, link: Link, exchange: Exchange) -> None:
        job = Job(("/bin/sh", "-c", KILL, "kx", *exchange.group))
        self._in_channel(link, _Work(job, Deadline.after(_CLEAN_UP_TIME), Cancel()), counted=False)

    def _lost(self, link: Link, exchange: Exchange) -> ConnectorError:
        name = f"host {self._host.name}"
        if link.alive and not exchange.err.started:
            said = bytes(exchange.out.noise + exchange.err.noise).decode("utf-8", "replace").strip()
            said = said[-500:] or "without a message"
            return ConnectorError(f"{name}: its shell ended at once: {said}; does the user have a login shell?")
        try:
            if not (link.alive and exchange.group):
                raise Lost
            # Later it could not be found: its shell is gone.
            self._kill(link, exchange)
        except (Lost, CommandTimedOut, ConnectorError):
            self._left.add(self._user, exchange)
        what = "the shell on the host ended" if link.alive else link.loss
        return OutcomeUnknown(
            f"{name}: {what} during a command; whether it completed is unknown: check before you run it again"
        )

    def _on_terminal(self, job: Job) -> bool:
        return job.pty or (self._become is not None and self._become.needs_pty)

    @property
    def _become(self) -> Become | None:
        options = self._connection.options
        return options.become if self._user is None else options.as_user(self._user)


class _OfRun:
    """Makes the connectors of a run."""

    def __init__(self, kind: type[SshConnector]) -> None:
        self._kind = kind
        self._gateways = Gateways()

    def __call__(self, host: GraphHost, secrets: Callable[[str], str]) -> SshConnector:
        return self._kind(host, secrets, self._gateways)

    def expect(self, hosts: Sequence[GraphHost]) -> None:
        """Dial those that are reached at the address and port that the inventory says; nobody logs in yet."""
        if not is_redirecting():
            direct = [host for host in hosts if not {"proxyJump", "proxyCommand"} & host.options.keys()]
            self._gateways.dialled.begin((host.address, host.port or SSH_PORT) for host in direct)

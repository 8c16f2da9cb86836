"""The connector for hosts that are reached by SSH."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from kubexm_exec.connectors.base import Command, ConnectorFactory, OnOutput, User
from kubexm_exec.connectors.ssh.channels import Shell, open_script, open_shell
from kubexm_exec.connectors.ssh.config import SSH_PORT, is_redirecting
from kubexm_exec.connectors.ssh.connection import Connection
from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.connectors.ssh.feed import Feed, feed_bytes, feed_stream
from kubexm_exec.connectors.ssh.files import CLEAN_UP_TIME, MOST_ERRORS, FileWork
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
_NO_STREAM: Final = (
    "what is read piece by piece cannot be sent through a terminal, and `become` needs one here (`pty: true`, or doas "
    "with a password); allow it without a password and without `requiretty`"
)
_MOST_SHELLS: Final = 3
"""Users of a host, besides its own, for whom a shell is kept."""


class _TooLong(Exception):
    """sshd could not hand the command on to a shell."""


class SshConnector(FileWork):
    """Runs commands and writes files on a host over one SSH connection, opened on first use and again if it dropped."""

    def __init__(
        self,
        host: GraphHost,
        secrets: Callable[[str], str],
        gateways: Gateways | None = None,
        *,
        of: SshConnector | None = None,
        user: User = None,
    ) -> None:
        """``gateways``: those that it shares with other hosts. ``of``, ``user``: see ``as_user``."""
        self._host = host
        self._secrets = secrets
        self._main: SshConnector = of or self
        self._user = user
        self._others: dict[str, SshConnector] = {}
        """The same host as other users; all share its connection."""
        self._connection: Connection = of._connection if of else Connection(host, secrets, gateways or Gateways())
        self._shell: Shell | None = None
        self._shell_in_use = False
        self._keeps_shell = True
        """Whether a channel may be held for it all the time: there are only a few for all users of the host."""
        self._mark: str = of._mark if of else ""
        self._left: Leftovers = of._left if of else Leftovers()
        self._lock = threading.Lock()

    @classmethod
    def for_run(cls) -> ConnectorFactory:
        """Makes connectors that go through the same gateways."""
        # It takes longer than anything else before the first login; meanwhile the journal waits for its disk.
        threading.Thread(target=load_libraries, name="kubexm-ssh", daemon=True).start()
        return _OfRun()

    def start_in(self, folder: str) -> None:
        """Let relative paths of keys, and a ProxyCommand, begin in a folder."""
        self._connection.folder = folder

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Let the shells on the host carry a mark; end first what shells with one of the others have left."""
        self._mark = own
        self._left.expect(left)

    @property
    def own_mark(self) -> str:
        """What the names of temporary folders hold."""
        return self._mark

    def open(self, deadline: Deadline) -> None:
        """Connect and log in, unless that is done already; a close by another thread ends it."""
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

        If the connection drops meanwhile, ConnectorError says that the outcome is not known; it is never run again.
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
            exchange, ending = self._do(
                job, deadline, cancel, feed=feed, size=size, max_output=command.max_output, on_output=on_output
            )
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

    def hang_up(self) -> None:
        """Let go of the host without waiting until all that served it here has ended."""
        self._connection.hang_up()

    def close(self) -> None:
        """Close the connection; a command that still runs on it loses its channel."""
        for each in (self, *self._others.values()):
            with each._lock:
                each._shell = None
        self._connection.close()

    def _do(
        self,
        job: Job,
        deadline: Deadline,
        cancel: Cancel,
        *,
        feed: Feed | None = None,
        size: int | None = None,
        document: bytes | None = None,
        max_output: int = 1 << 20,
        on_output: OnOutput | None = None,
    ) -> tuple[Exchange, Ending]:
        """Run a job to its end, in the shell that is there if it is free and will do.

        The size is how much the feed will give, if that is known.
        """

        def attempt() -> tuple[Exchange, Ending]:
            link = self._ready(deadline, cancel)
            if feed is None and self._keeps_shell and not self._on_terminal(job):
                done = self._in_shell(link, job, deadline, cancel, document, max_output, on_output)
                if done is not None:
                    return done
                link = self._ready(deadline, cancel)
            given = (feed, size) if document is None else (feed_bytes(document), len(document))
            return self._in_channel(link, job, deadline, cancel, *given, max_output, on_output)

        try:
            try:
                return attempt()
            except NotBegun:
                # It was found out only now that the connection had dropped.
                return attempt()
        except ConnectorError as error:
            name = f"host {self._host.name}"
            if str(error).startswith(name):
                raise
            raise type(error)(f"{name}: {error}") from error

    def _ready(self, deadline: Deadline, cancel: Cancel) -> Link:
        """The open connection, once nothing runs any more of what was lost with an earlier one, or in a killed run."""
        link = self._connection.link(deadline, cancel)
        link.make_room = self._main._make_room
        if self._left:
            self._left.end(functools.partial(self._main._way, link), deadline, cancel)
        return link

    def _way(self, link: Link, user: User) -> Way:
        connector = self if user is None else self.as_user(user)
        return Way(functools.partial(connector._in_channel, link, counted=False), connector._sign)

    @property
    def _sign(self) -> str:
        """What follows the mark in the words of its shells: the same for the same user, whoever says so."""
        user = "" if self._become is None else self._become.user
        return f"u{hashlib.sha256(user.encode()).hexdigest()[:8]}"

    @property
    def _marked(self) -> str:
        """What the words of its shells begin with."""
        return f"{self._mark}{self._sign}" if self._mark else ""

    def _make_room(self) -> None:
        """Close the shells that wait, since the host allows no more channels; they are opened again when needed."""
        for each in (self, *self._others.values()):
            with each._lock:
                shell, each._shell = each._shell, None
            if shell is not None:
                shell.close()

    def _in_shell(
        self,
        link: Link,
        job: Job,
        deadline: Deadline,
        cancel: Cancel,
        document: bytes | None,
        max_output: int,
        on_output: OnOutput | None,
    ) -> tuple[Exchange, Ending] | None:
        """In the long-lived shell; None, and nothing was run, if it is busy or gone."""
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
                sync = shell.send(job.frame(document, shell.questions if shell.group else None), deadline)
            except OSError:
                raise_if_over(deadline, cancel)
                # Half a frame is never run, so this is no second try of anything.
                return None
            exchange = Exchange(
                shell.channel, job, sync, max_output, on_output, group=shell.group, watch=shell.watch, word=shell.word
            )
            ending = self._finish(link, exchange, deadline, cancel)
            shell.learn(exchange.group)
            # A child that was left behind may write into the next command's output.
            keep = not ending.left_children
            return exchange, ending
        finally:
            with self._lock:
                self._shell_in_use = False
                if keep:
                    self._shell = shell
            if shell is not None and not keep:
                shell.close()

    def _in_channel(
        self,
        link: Link,
        job: Job,
        deadline: Deadline,
        cancel: Cancel,
        feed: Feed | None = None,
        size: int | None = None,
        max_output: int = MOST_ERRORS,
        on_output: OnOutput | None = None,
        *,
        counted: bool = True,
    ) -> tuple[Exchange, Ending]:
        """In a channel of its own; one that is not counted is there to end something, and can be lost without harm."""
        work = functools.partial(
            self._in_channel_of, job=job, deadline=deadline, cancel=cancel, feed=feed, size=size,
            max_output=max_output, on_output=on_output, counted=counted,
        )  # fmt: skip
        try:
            return work(link)
        except NoChannel:
            if counted:
                raise
        # What is to be ended may have the only channel that the host allows.
        other = self._connection.another(deadline)
        try:
            return work(other)
        finally:
            other.close()

    def _in_channel_of(
        self,
        link: Link,
        job: Job,
        deadline: Deadline,
        cancel: Cancel,
        feed: Feed | None,
        size: int | None,
        max_output: int,
        on_output: OnOutput | None,
        *,
        counted: bool,
    ) -> tuple[Exchange, Ending]:
        sync = nonce()
        pty = self._on_terminal(job)
        if pty and feed is not None and size is None:
            raise ConnectorError(_NO_STREAM)
        mark = self._marked if counted else ""
        script = job.line(sync, reads=feed is not None, size=size if pty else None, mark=mark)
        if len(encode("".join(any_shell(script)))) > LONGEST_LINE:
            raise _TooLong
        kind: Literal["", "raw", "cooked"] = "" if not pty else "raw" if feed is not None else "cooked"
        channel = open_script(link, self._become, script, sync, deadline, cancel, counted=counted, pty=kind)
        word = job.start if counted else ""
        exchange = Exchange(channel, job, sync, max_output, on_output, merged=pty, word=word)
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
        """Kill what runs, on the host; raises if nobody can know whether it worked."""
        exchange.unheard()
        try:
            exchange.wait(Deadline.after(_START_TIME), Cancel(), until=lambda: bool(exchange.group) or exchange.over)
            if exchange.over:
                return
            self._kill(link, exchange)
        except (Lost, CommandTimedOut, ConnectorError) as error:
            self._left.add(self._user, exchange)
            raise OutcomeUnknown(
                f"host {self._host.name}: a command had to be stopped and the host is silent: it may still run there"
            ) from error

    def _kill(self, link: Link, exchange: Exchange) -> None:
        job = Job(("/bin/sh", "-c", KILL, "kx", *exchange.group))
        self._in_channel(link, job, Deadline.after(CLEAN_UP_TIME), Cancel(), counted=False)

    def _lost(self, link: Link, exchange: Exchange) -> ConnectorError:
        name = f"host {self._host.name}"
        if link.alive and not exchange.err.started:
            said = bytes(exchange.out.noise + exchange.err.noise).decode("utf-8", "replace").strip()
            said = said[-500:] or "without a word"
            return ConnectorError(f"{name}: its shell ended at once: {said}; does the user have a login shell there?")
        try:
            if not (link.alive and exchange.group):
                raise Lost
            # Its shell is gone, by which it would be found later.
            self._kill(link, exchange)
        except (Lost, CommandTimedOut, ConnectorError):
            self._left.add(self._user, exchange)
        what = "the shell on the host ended" if link.alive else link.loss
        return OutcomeUnknown(
            f"{name}: {what} during a command; whether that ran to its end is unknown: look before it is run again"
        )

    def _on_terminal(self, job: Job) -> bool:
        return job.pty or (self._become is not None and self._become.needs_pty)

    @property
    def _become(self) -> Become | None:
        options = self._connection.options
        return options.become if self._user is None else options.as_user(self._user)


class _OfRun:
    """Makes the connectors of a run."""

    def __init__(self) -> None:
        self._gateways = Gateways()

    def __call__(self, host: GraphHost, secrets: Callable[[str], str]) -> SshConnector:
        return SshConnector(host, secrets, self._gateways)

    def expect(self, hosts: Sequence[GraphHost]) -> None:
        """Dial those that are reached at the address and port that the inventory says; nobody logs in yet."""
        if not is_redirecting():
            direct = [host for host in hosts if not {"proxyJump", "proxyCommand"} & host.options.keys()]
            self._gateways.dialled.begin((host.address, host.port or SSH_PORT) for host in direct)

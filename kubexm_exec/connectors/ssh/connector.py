"""The connector for hosts that are reached by SSH."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, ConnectorFactory, OnOutput, Readable, Sink, User, chunks
from kubexm_exec.connectors.ssh.channels import Shell, open_script, open_shell
from kubexm_exec.connectors.ssh.config import SSH_PORT, is_redirecting
from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.connectors.ssh.filescripts import (
    CANNOT_DECODE,
    SMALL,
    Writing,
    check_path,
    file_error,
    is_lines,
    reading,
)
from kubexm_exec.connectors.ssh.link import Gateways, Link, NoChannel, load_libraries, open_link
from kubexm_exec.connectors.ssh.options import Become, SshOptions, read_options
from kubexm_exec.connectors.ssh.scripts import CLEAR_LEFT, END_LEFT, KILL
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
from kubexm_exec.control import Cancel, Deadline, Semaphore, raise_if_over
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, ConnectorError, OutcomeUnknown
from kubexm_exec.model.graph import GraphHost

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_LOST: Final = "a command of an earlier connection, which was lost, may still run there"
_BROKE_OFF: Final = "a command of an earlier session of the run, which was killed, may still run there"

_PROCESS: Final = re.compile(r"\b\d+:\d+\b")
_TIME: Final = 30.0
"""Seconds to end one; on a busy host, a few of them are for the search of its processes."""


class Way(Struct, frozen=True):
    """How to work as a user of the host."""

    run: Callable[[Job, Deadline, Cancel], tuple[Exchange, Ending]]
    """Runs one of our scripts."""
    sign: str
    """What follows the mark in the words of that user's shells."""


class _Left(Struct, eq=False):
    """A command, or all commands of one user in an earlier session, that may still run."""

    user: User
    """Its user: others may not be allowed to end it."""
    word: str
    """A word in the command line of its shell; or the mark that such words begin with."""
    processes: set[str]
    """Its known processes, each as its number and its start time."""
    marked: bool = False

    @property
    def before(self) -> str:
        return _BROKE_OFF if self.marked else _LOST

    def job(self, what: str, sign: str) -> Job:
        """The job that looks for it, or ends it. The word is a pattern there, so that the job does not find itself."""
        word = f"{self.word}{sign}" if self.marked else self.word
        pattern = f"[{word[0]}]{word[1:]}"
        return Job(("/bin/sh", "-c", END_LEFT, "kx", pattern, " ".join(sorted(self.processes)), what))


class Leftovers:
    """The lost commands of one host; several threads may use it at once."""

    def __init__(self) -> None:
        self._all: list[_Left] = []
        self._lock = threading.Lock()
        self._turn = Semaphore(1)

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, user: User, exchange: Exchange) -> None:
        """Remember a command of a user whose channel was lost."""
        if exchange.word:
            with self._lock:
                self._all.append(_Left(user, exchange.word, set(exchange.process.split())))

    def expect(self, left: Sequence[tuple[str, User]]) -> None:
        """Remember that earlier sessions, with these marks, may have left commands of users."""
        with self._lock:
            self._all.extend(_Left(user, mark, set(), marked=True) for mark, user in left)

    def end(self, way: Callable[[User], Way], deadline: Deadline, cancel: Cancel) -> None:
        """End them all, by one thread at a time; raises ConnectorError if one of them cannot be ended."""
        if not self._turn.take(deadline, cancel):
            raise CommandTimedOut
        try:
            while self._all:
                _end(self._all[0], way(self._all[0].user), deadline, cancel)
                with self._lock:
                    del self._all[0]
        finally:
            self._turn.give_back()


def _end(left: _Left, way: Way, deadline: Deadline, cancel: Cancel) -> None:
    said = ""
    # First all are found, then they are ended: if that is interrupted, the rest must still be known.
    for what in ("look", "end"):
        try:
            exchange, ending = way.run(left.job(what, way.sign), deadline.earlier(_TIME), cancel)
        except CommandTimedOut:
            if deadline.passed():
                raise
            raise ConnectorError(f"{left.before}, and the host is too slow to tell") from None
        except OutcomeUnknown as error:
            # The next command has not begun.
            raise ConnectorError(
                f"{left.before}, and the connection was lost again during the search for it"
            ) from error
        if ending.exit_code == 0:
            if left.marked:
                way.run(Job(("/bin/sh", "-c", CLEAR_LEFT, "kx", left.word)), deadline.earlier(_TIME), cancel)
            return
        said = (exchange.stdout.kept() + exchange.stderr.kept()).decode("utf-8", "replace")
        left.processes.update(_PROCESS.findall(said))
    why = " ".join(re.sub(_PROCESS, lambda found: found[0].partition(":")[0], said).split())
    raise ConnectorError(f"{left.before} and cannot be ended ({why}): nothing else is started; end it on the host")


_LEAST: Final = 1 << 15
_MOST: Final = 1 << 19
"""Bytes per send: more is less work, less notices a stop sooner on a slow line."""
_QUICK, _SLOW = 0.05, 0.2
"""Seconds below, or above, which the next send has more bytes, or fewer."""
_STUCK: Final = 0.2
"""Seconds after which the output of a command that accepts no input is read: perhaps it waits for that."""

Feed = Callable[[Exchange], None]
"""Writes a command's input to its channel."""


def feed_bytes(data: bytes) -> Feed:
    """A feed of bytes; many are written while the output is read."""

    def feed(exchange: Exchange) -> None:
        channel = exchange.channel

        def write() -> None:
            # The command may end without reading all of it, as in a pipeline.
            with contextlib.suppress(OSError):
                channel.sendall(data)
                channel.shutdown_write()

        channel.settimeout(None)
        if len(data) < channel.out_window_size:
            write()
        else:
            # Ends with the channel at the latest.
            threading.Thread(target=write, name="kubexm-stdin", daemon=True).start()

    return feed


def feed_stream(source: bytes | Readable, deadline: Deadline, cancel: Cancel) -> Feed:
    """A feed of a stream; the output is read in between."""

    def feed(exchange: Exchange) -> None:
        exchange.channel.settimeout(_STUCK)
        pace = _Pace()
        for chunk in chunks(source, _MOST, deadline, cancel):
            if not _send(exchange, chunk, pace, deadline, cancel):
                return
        # A command that has ended does not wait for it.
        with contextlib.suppress(OSError):
            exchange.channel.shutdown_write()

    return feed


class _Pace:
    def __init__(self) -> None:
        self.size = _LEAST

    def took(self, seconds: float) -> None:
        """Adapt to the time that the last send has taken."""
        if seconds < _QUICK:
            self.size = min(2 * self.size, _MOST)
        elif seconds > _SLOW:
            self.size = max(self.size // 2, _LEAST)


def _send(exchange: Exchange, data: bytes, pace: _Pace, deadline: Deadline, cancel: Cancel) -> bool:
    """Send everything; False if the other side has ended."""
    channel: paramiko.Channel = exchange.channel
    transport = cast("HostTransport", channel.transport)
    left = memoryview(data)
    while left:
        begun = time.monotonic()
        try:
            sent = transport.send_some(channel, left[: pace.size])
        except TimeoutError:
            raise_if_over(deadline, cancel)
            if channel.closed or channel.eof_received:
                return False
            sent = -1
        except OSError:
            return False
        if sent == 0:
            return False
        left = left[max(sent, 0) :]
        pace.took(time.monotonic() - begun)
        if exchange.read() and exchange.over:
            return False
    return True


class Connection:
    """Gives the open link of a host; several threads may ask at once."""

    def __init__(self, host: GraphHost, secrets: Callable[[str], str], gateways: Gateways) -> None:
        self._host = host
        self._secrets = secrets
        self._gateways = gateways
        self.folder = ""
        """Where relative names begin; the working directory if it is empty."""
        self._options: SshOptions | None = None
        self._link: Link | None = None
        self._turn = Semaphore(1)
        self._lock = threading.Lock()
        self._closed = False
        self._was_open = False
        self._opening: Cancel | None = None
        """Ends the opening that is going on."""

    @property
    def options(self) -> SshOptions:
        """How the host is reached; secrets are looked up when it is asked for first."""
        if self._options is None:
            self._options = read_options(self._host, self._secrets, self.folder)
        return self._options

    def reopen(self) -> None:
        """Allow links again after a close, unless it came before the first link."""
        with self._lock:
            self._closed = self._closed and not self._was_open

    def link(self, deadline: Deadline, cancel: Cancel) -> Link:
        """The open connection; raises ConnectorError, or CommandCancelled."""
        link = self._link
        if link is not None and link.alive:
            return link
        if not self._turn.take(deadline, cancel):
            raise ConnectorError(f"host {self._host.name} is still being connected to by another step")
        try:
            link = self._link
            if link is not None and link.alive:
                return link
            return self._open(link, deadline, cancel)
        finally:
            self._turn.give_back()

    def another(self, deadline: Deadline) -> Link:
        """A second connection, for a host that allows no more channels on the first; the caller closes it."""
        with self._lock:
            if self._closed:
                raise ConnectorError("the run is over")
        return open_link(self.options, deadline, Cancel(), self._gateways)

    def _open(self, old: Link | None, deadline: Deadline, cancel: Cancel) -> Link:
        stop = Cancel()
        with self._lock:
            if self._closed:
                raise ConnectorError("the run is over")
            self._opening, self._link = stop, None
        remove = cancel.on_set(stop.set)
        try:
            if old is not None:
                old.close()
            link = open_link(self.options, deadline, stop, self._gateways)
        except CommandCancelled as error:
            if cancel.is_set():
                raise
            raise ConnectorError(f"host {self._host.name}: the connection was closed while it was opened") from error
        finally:
            remove()
            self._opening = None
        with self._lock:
            wanted = self._keep(link)
        if not wanted:
            link.close()
            raise ConnectorError("the run is over")
        return link

    def _keep(self, link: Link) -> bool:
        if not self._closed:
            self._link = link
            self._was_open = True
        return not self._closed

    def hang_up(self) -> None:
        """Begin to close it; ``close`` does the rest."""
        with self._lock:
            self._closed = True
            link = self._link
        if link is not None:
            link.hang_up()

    def close(self) -> None:
        """Close it; an opening that is going on ends at once."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
            opening = self._opening
        if opening is not None:
            opening.set()
        if link is not None:
            link.close()


_START_TIME: Final = 5.0
_CLEAN_UP_TIME: Final = 10.0
"""Seconds to stop or remove something on the host after the caller has given up."""
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
    """A job with its input and the handling of its output."""

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
        connection: Connection | None = None,
    ) -> None:
        """``gateways``: shared with other hosts. ``of``, ``user``: see ``as_user``. ``connection``: not by SSH."""
        self._host = host
        self._secrets = secrets
        self._main: SshConnector = of or self
        self._user = user
        self._others: dict[str, SshConnector] = {}
        """The same host as other users, over the same connection."""
        self._connection: Connection = (
            of._connection if of else connection or Connection(host, secrets, gateways or Gateways())
        )
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

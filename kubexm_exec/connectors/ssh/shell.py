"""The shell on the host: how a command and its environment are sent to it, and how its answer is recognized."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct, field

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.process import Tail
from kubexm_exec.connectors.ssh.scripts import BUILTIN, COMMAND, LAUNCH, LAUNCH_TTY, QUESTION, SETUP, TELL
from kubexm_exec.control import Cancel, Deadline, raise_if_over

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_LAST_OUTPUT: Final = 1.0
_PATIENCE: Final = 0.02


class Watch:
    """Wakes the reader of a channel when data arrives, when it closes, and on a cancel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self.patient = False
        """Whether output does not wake the reader at once: a short command soon ends, and its end does.

        After it is cleared, read once more before the next wait.
        """
        self._event = threading.Event()
        channel.in_buffer.set_event(_OutputBell(self._event, self))  # type: ignore[arg-type]
        channel.in_stderr_buffer.set_event(_Bell(self._event))  # type: ignore[arg-type]
        self._exit = cast("HostTransport", channel.transport).exit_of(channel)
        self._exit.wake = self._event.set

    @contextlib.contextmanager
    def until(self, cancel: Cancel) -> Iterator[None]:
        """Inside, a cancel wakes the reader too."""
        remove = cancel.on_set(self._event.set)
        try:
            yield
        finally:
            remove()

    def left(self) -> float | None:
        """Seconds in which the last output of an ended process may still arrive; None while it runs."""
        seen = self._exit.seen
        return None if seen is None else max(0.0, seen + _LAST_OUTPUT - time.monotonic())

    def clear(self) -> None:
        """Clear the event, before reading."""
        self._event.clear()

    def wait(self, seconds: float | None) -> None:
        """Wait until something happens, or that long."""
        if not self.patient:
            self._event.wait(seconds)
        elif not self._event.wait(_PATIENCE if seconds is None else min(seconds, _PATIENCE)):
            self.patient = False


class _Bell:
    """The event of a buffer of paramiko; an empty buffer must not clear what the other one has set."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def set(self) -> None:
        # Setting it takes a lock, and most often it is set already.
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        """Only the reader clears it."""


class _OutputBell(_Bell):
    """The event for output, which a patient watch ignores."""

    def __init__(self, event: threading.Event, watch: Watch) -> None:
        super().__init__(event)
        self._watch = watch

    def set(self) -> None:
        if not self._watch.patient:
            super().set()


LONGEST_LINE: Final = 120_000
"""Bytes of a command line that sshd can pass to a shell: an argument has at most 128 KiB on Linux."""
CHUNK: Final = 1 << 16
END_OF_INPUT: Final = b"\x04"
"""Ctrl-D on a terminal."""
_SHELLS: Final = ("sh", "/bin/sh")
_OWN_SHELL: Final = ("/bin/sh", "-c")
"""The shell that runs a command line."""
_PLAIN: Final = re.compile(r"[\w/.-]+( [\w/.,:=@%+-]+)*", re.ASCII)
_BUILTINS: Final = frozenset({"echo", "false", "printf", "pwd", "test", "true"})
"""Builtins of every shell that change nothing in it."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE: Final = 200
"""Bytes of a line: some terminals accept no more than 255."""
_UNSAFE: Final = re.compile(rb"[^ -\[\]-~]")
"""Bytes that a terminal may act upon or that end a line, and the backslash."""

_USE: Final = 'eval "unset kx_v; $kx_v"; '
"""Sets the environment of a command from ``kx_v``, the text of ``_setting``.

It never is part of a command line: a new shell has it in its own environment, which only its user can read.
"""
_READ: Final = """kx_v=
while IFS= read -r kx_x || exit; [ "$kx_x" != "$e" ]; do kx_v=$kx_v$kx_x; done
kx_v=$(printf '%b;' "$kx_v")
"""
"""Reads the lines of ``_lines`` up to the word in ``e``, byte by byte: the rest is for the command."""
_FOR_ANY_SHELL: Final = {ord(char): f"\\0{ord(char):03o}" for char in "\n\\'!"}
_PIECE: Final = 4000
_NONCE: Final = 12
_AT_ONCE: Final = 64
_unused: Final[deque[str]] = deque()


class Lost(Exception):
    """The channel ended before the command did."""


def nonce() -> str:
    """A word that occurs nowhere else."""
    try:
        return _unused.pop()
    except IndexError:
        # Many at once: each system call lets another thread run first.
        drawn = secrets.token_hex(_NONCE * _AT_ONCE)
        _unused.extend("kx" + drawn[at : at + 2 * _NONCE] for at in range(2 * _NONCE, len(drawn), 2 * _NONCE))
        return "kx" + drawn[: 2 * _NONCE]


class Job(Struct, frozen=True):
    """A command for the shell on the host."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    pty: bool = False
    """Whether the terminal of the channel is that of the command."""
    question: bool = False
    """Whether it is one of our scripts, with name and arguments, that leaves nothing running."""
    start: str = field(default_factory=nonce)
    end: str = field(default_factory=nonce)

    @classmethod
    def of(cls, command: Command) -> Job:
        """The job of a command."""
        argv = (*_OWN_SHELL, command.shell) if command.shell else command.argv
        if not argv:
            raise ValueError("a command needs argv or shell")
        return cls(argv, command.cwd, dict(command.env), command.pty, command.question)

    def fault(self) -> str:
        """Why no host can run it; empty if one can."""
        words = [*self.argv, self.cwd or "", *self.env, *self.env.values()]
        if any("\0" in word for word in words):
            return f"{self.argv[0]!r} cannot be run: embedded null byte"
        if any(not name or "=" in name for name in self.env):
            return f"{self.argv[0]!r} cannot be run: illegal environment variable name"
        return ""

    def _words(self, *, tell: bool = True, known: str = "") -> list[str]:
        argv = self.argv
        told = TELL.format(start=self.start) if tell else ""
        script = LAUNCH_TTY.format(start=self.start) if self.pty else told + LAUNCH
        plain = plain_words(argv[2]) if argv[:2] == _OWN_SHELL and len(argv) == 3 and not self.pty else ()
        if plain and "/" not in plain[0] and self.cwd is None and not self.env:
            return ["b", told + BUILTIN, *plain]
        if self.cwd is not None:
            folder = shlex.quote(self.cwd if self.cwd.startswith("/") else f"./{self.cwd}")
            said = shlex.quote(f"cannot change to folder {self.cwd}")
            script += f"cd {folder} 2>/dev/null || {{ echo {said} >&2; exit 126; }}; "
        if self.env:
            script += _USE
        if any(not _IDENTIFIER.fullmatch(name) for name in self.env) or argv[0] not in _SHELLS or argv[1:2] != ("-c",):
            return ["c", script + COMMAND, *argv]
        if self.question:
            return ["q", f'{script}{known} "$@"', *argv[4:]] if known else ["q", script + QUESTION, argv[2], *argv[4:]]
        return ["c", script + COMMAND, *(plain if plain and "/" in plain[0] else argv)]

    def frame(self, document: bytes | None = None, known: dict[str, str] | None = None) -> bytes:
        """The text for a shell that waits for commands, which runs nothing but a whole frame.

        A document is the input of the command: text of whole lines without NUL. ``known`` are the functions that the
        shell has for questions, and will have for this one; None if its process group is not known yet.
        """
        name, define = "", ""
        if known is not None and self.question:
            name = known.get(self.argv[2], "")
            if not name:
                name = known[self.argv[2]] = f"kx_{len(known)}"
                define = f"{name}() {{\n{self.argv[2]}\n}}\n"
        words = encode(f"kx {self.end} {shlex.join(self._words(tell=known is None, known=name))}")
        before, after = encode(f"{{ {define}"), b"}\n"
        if self.env:
            before, after = before + encode(f"kx_v={shlex.quote(_setting(self.env))}\n"), b"unset kx_v\n}\n"
        if document is None:
            return before + words + b" </dev/null\n" + after
        mark = nonce().encode()
        return before + words + b" <<'" + mark + b"'\n" + document + mark + b"\n" + after

    def line(self, sync: str, *, reads: bool, size: int | None = None, mark: str = "") -> str:
        """The script of a shell that runs only this job; it first reads what `ps` must not show.

        With a size the command reads so many bytes, since a terminal has no end of file. The mark is in the command
        line to be found there.
        """
        marked = f": {mark}\n" if mark else ""
        run = f'kx "$e" {shlex.join(self._words())}'
        if size is not None:
            run = f"head -c {size} | {run}"
        elif not reads and not self.pty:
            run += " </dev/null"
        # In a new session it would have no terminal.
        return f"{marked}{setup(sync, tty=self.pty)}\nIFS= read -r e || exit\n{_READ if self.env else ''}{run}"

    def hidden(self) -> bytes:
        """The first input of that shell: the end word, then the environment up to the same word."""
        end = encode(f"{self.end}\n")
        said = end + _lines(encode(_setting(self.env))) + end if self.env else end
        # Nobody types: a command that reads from its terminal gets an end of file.
        return said + END_OF_INPUT if self.pty else said


def _setting(env: Mapping[str, str]) -> str:
    """Shell text that sets an environment for the command in ``"$@"``; odd names need `env`."""
    odd = [f"{name}={value}" for name, value in env.items() if not _IDENTIFIER.fullmatch(name)]
    said = [f"export {name}={shlex.quote(value)}" for name, value in env.items() if _IDENTIFIER.fullmatch(name)]
    if odd:
        said.append(f'set -- env {shlex.join(odd)} "$@"')
    return "; ".join(said)


def _lines(text: bytes) -> bytes:
    """A text as short lines that any terminal passes on unchanged and that `printf %b` decodes."""
    plain = _UNSAFE.sub(lambda found: b"\\0%03o" % found[0][0], text)
    return b"".join(plain[at : at + _LINE] + b"\n" for at in range(0, len(plain), _LINE))


def plain_words(script: str) -> tuple[str, ...]:
    """The words of a script that is one program or harmless builtin, and needs no shell of its own; else ()."""
    words = tuple(script.split(" ")) if _PLAIN.fullmatch(script) else ()
    return words if words and ("/" in words[0] or words[0] in _BUILTINS) else ()


def setup(sync: str, *, tty: bool = False) -> str:
    """The first script of a shell, printing the sync word on both streams; ``tty``: its terminal is the command's."""
    return f"kx_y={'y' if tty else ''}{SETUP}echo {spelt(sync)}; echo {spelt(sync)} >&4"


def spelt(word: str) -> str:
    """A word in two pieces for a script: sudo quotes a script that it refuses, which must not look like an answer."""
    return f"{word[:2]}''{word[2:]}"


def any_shell(script: str) -> tuple[str, ...]:
    """The command that runs a script, in words that every login shell passes on unchanged if they are quoted.

    In quoted words, csh allows no line ends, "!" or more than 8 KB, and fish interprets backslashes. The script is cut
    only before blanks, so that the words by which a shell is found stay whole.
    """
    text = script.translate(_FOR_ANY_SHELL)
    pieces = []
    while len(text) > _PIECE:
        at = text.rfind(" ", 1, _PIECE)
        at = _PIECE if at < 0 else at
        pieces.append(text[:at])
        text = text[at:]
    return ("/bin/sh", "-c", 'eval "$(IFS=; printf %b "$*")"', "/bin/sh", *pieces, text)


def encode(text: str) -> bytes:
    """The bytes of a text; names that are not UTF-8 stay as the host has them."""
    return text.encode("utf-8", "surrogateescape")


class Framed:
    """A stream of which only the part between two words counts."""

    def __init__(self, start: str, end: str, deliver: Callable[[bytes], None]) -> None:
        self.started = not start
        self.ended = False
        self.noise = bytearray()
        """What came before the start word."""
        self.head = b""
        """The rest of the line with the start word."""
        self.rest = bytearray()
        """What came after the end word."""
        self._start = start.encode()
        self._end = end.encode()
        self._deliver = deliver
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Take some more of the stream."""
        if not self.started:
            self.noise += data
            at = self.noise.find(self._start)
            line_end = -1 if at < 0 else self.noise.find(b"\n", at)
            never = self.noise.find(self._end)
            if line_end < 0 and never >= 0:
                # The command could not be started.
                self.started = True
                data = bytes(self.noise[never:])
                del self.noise[never:]
                self.feed(data)
                return
            if line_end < 0:
                del self.noise[: max(0, len(self.noise) - CHUNK)]
                return
            self.started = True
            self.head = bytes(self.noise[at + len(self._start) : line_end]).strip()
            data = bytes(self.noise[line_end + 1 :])
            del self.noise[at:]
        if self.ended:
            self.rest += data
            return
        data = self._held + data
        at = data.find(self._end)
        if at >= 0:
            self.ended = True
            self._held = b""
            self.rest += data[at + len(self._end) :]
            data = data[:at]
        else:
            # The network may split the end word.
            keep = _overlap(data, self._end)
            data, self._held = data[: len(data) - keep], data[len(data) - keep :]
        if data:
            self._deliver(data)


def _overlap(data: bytes, word: bytes) -> int:
    """How many of the last bytes may be the beginning of the word."""
    for size in range(min(len(word) - 1, len(data)), 0, -1):
        if data.endswith(word[:size]):
            return size
    return 0


class Ending(Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    left_children: bool


class Exchange:
    """One command on one channel, read until both streams have ended."""

    def __init__(
        self,
        channel: paramiko.Channel,
        job: Job,
        sync: str,
        max_output: int,
        on_output: OnOutput | None,
        *,
        merged: bool = False,
        group: tuple[str, ...] = (),
        watch: Watch | None = None,
        word: str = "",
    ) -> None:
        """``merged``: there is one stream, as from a terminal. ``group``: is known, so the command does not tell it.

        ``watch``: that of the channel, if there is one. ``word``: in the command line of the shell on the host, by
        which that is found if the channel is lost.
        """
        self.word = word
        self._watch = watch or Watch(channel)
        self._group = group
        self._merged = merged
        self.stdout = Tail(max_output)
        self.stderr = Tail(max_output)
        self._on_output = on_output
        self.channel = channel
        self._job = job
        self.out = Framed(sync, job.end, self._to_stdout)
        deliver = self._to_stderr if not merged else WithoutReturns(self._to_stdout) if job.pty else self._to_stdout
        self.err = Framed("" if group else job.start, job.end, deliver)

    @property
    def group(self) -> tuple[str, ...]:
        """The process group of the started command, and the shell in it that is not part of the command."""
        if self._group:
            return self._group
        numbers = self.err.head.split() if self.err.started else []
        return tuple(number.decode() for number in numbers if number.isdigit())

    @property
    def process(self) -> str:
        """The number and start time of the command (``NUMBER:TIME``), if known."""
        said = self.err.head.partition(b"=")[2] if self.err.started else b""
        return said.decode("ascii", "replace")

    @property
    def complaints(self) -> bytes:
        """Its standard error, or all of its output if the streams are merged."""
        return self.stdout.kept() if self._merged else self.stderr.kept()

    @property
    def over(self) -> bool:
        """Whether the command has ended and its output is complete."""
        return (self.out.ended or self._merged) and self.err.ended and self._job.end.encode() in self.err.rest

    def wait(self, deadline: Deadline, cancel: Cancel, until: Callable[[], bool] | None = None) -> None:
        """Read until it is over, or until a condition holds."""
        done = until or (lambda: self.over)
        watch = self._watch
        with watch.until(cancel):
            watch.patient = not self._merged
            while not done():
                if watch.patient and self.err.ended:
                    # Only the end of the output is missing.
                    watch.patient = False
                watch.clear()
                if self.read():
                    if deadline.passed() or cancel.is_set():
                        raise_if_over(deadline, cancel)
                    continue
                if self.channel.closed or self.channel.eof_received:
                    if self.read():
                        continue
                    raise Lost
                raise_if_over(deadline, cancel)
                # Only the shell tells how a command ended, though others may keep the channel open after it.
                last = watch.left()
                if last == 0.0:
                    raise Lost
                watch.wait(deadline.left() if last is None else deadline.earlier(last).left())

    def ending(self) -> Ending:
        """The exit code, negative if a signal ended it."""
        text = bytes(self.err.rest).partition(self._job.end.encode())[0].decode("utf-8", "replace")
        lines = text.split("\n")
        background, code = lines[-1], lines[-2] if len(lines) > 1 else ""
        if not code.isdigit():
            raise Lost
        number = int(code)
        if not lines[0].isdigit():
            self._to_stderr("\n".join([*lines[:-2], ""]).encode())
            return Ending(number, False)
        # A shell prints something about a child only if a signal ended it.
        signalled = number > 128 and any(line.strip() for line in lines[1:-2])
        return Ending(128 - number if signalled else number, background == "1")

    def unheard(self) -> None:
        """Stop calling the listener."""
        self._on_output = None

    def read(self) -> bool:
        """Read what has arrived; False if nothing has."""
        some = False
        while self.channel.recv_stderr_ready():
            self.err.feed(self.channel.recv_stderr(CHUNK))
            some = True
        if self.channel.recv_ready():
            (self.err if self._merged else self.out).feed(self.channel.recv(CHUNK))
            some = True
        return some

    def _to_stdout(self, data: bytes) -> None:
        self.stdout.add(data)
        if self._on_output is not None:
            self._on_output("stdout", data)

    def _to_stderr(self, data: bytes) -> None:
        self.stderr.add(data)
        if self._on_output is not None:
            self._on_output("stderr", data)


class WithoutReturns:
    """Passes on the output of a terminal with plain line ends, wherever it is split."""

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._held = b""

    def __call__(self, data: bytes) -> None:
        """Take some more."""
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        data = data[: len(data) - len(self._held)].replace(b"\r\n", b"\n")
        if data:
            self._deliver(data)

"""The shell on the far side: how a command is written for it, and how its answer is told from everything else."""

from __future__ import annotations

import re
import secrets
import shlex
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.process import Tail
from kubexm_exec.connectors.ssh.environment import READ, USE, has_odd, lines, setting
from kubexm_exec.connectors.ssh.scripts import BUILTIN, COMMAND, LAUNCH, LAUNCH_TTY, QUESTION, SETUP, TELL
from kubexm_exec.connectors.ssh.watch import Watch
from kubexm_exec.control import Cancel, Deadline, raise_if_over

if TYPE_CHECKING:
    import paramiko

LONGEST_LINE: Final = 120_000
"""Bytes of a command line that sshd can hand to a shell: Linux takes 128 KiB an argument."""
CHUNK: Final = 1 << 16
END_OF_INPUT: Final = b"\x04"
"""What Ctrl-D types on a terminal."""
_SHELLS: Final = ("sh", "/bin/sh")
_OWN_SHELL: Final = ("/bin/sh", "-c")
"""How a command that is shell is run."""
_PLAIN: Final = re.compile(r"[\w/.-]+( [\w/.,:=@%+-]+)*", re.ASCII)
_BUILTINS: Final = frozenset({"echo", "false", "printf", "pwd", "test", "true"})
"""What every shell has built in, and what leaves nothing behind in it."""

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
        # Many at once: each time that the system is asked, another thread gets its turn before this one goes on.
        drawn = secrets.token_hex(_NONCE * _AT_ONCE)
        _unused.extend("kx" + drawn[at : at + 2 * _NONCE] for at in range(2 * _NONCE, len(drawn), 2 * _NONCE))
        return "kx" + drawn[: 2 * _NONCE]


class Job(Struct, frozen=True):
    """A command as the far shell is asked to run it."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    pty: bool = False
    """Whether the channel's terminal is the command's own."""
    question: bool = False
    """A script of ours, with its name and its arguments, that leaves nothing running behind."""
    start: str = field(default_factory=nonce)
    end: str = field(default_factory=nonce)

    @classmethod
    def of(cls, command: Command) -> Job:
        """The job that a command is."""
        argv = (*_OWN_SHELL, command.shell) if command.shell else command.argv
        if not argv:
            raise ValueError("a command needs argv or shell")
        return cls(argv, command.cwd, dict(command.env), command.pty, command.question)

    def fault(self) -> str:
        """Why it can be run nowhere, or nothing."""
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
            script += USE
        if has_odd(self.env) or argv[0] not in _SHELLS or argv[1:2] != ("-c",):
            return ["c", script + COMMAND, *argv]
        if self.question:
            return ["q", f'{script}{known} "$@"', *argv[4:]] if known else ["q", script + QUESTION, argv[2], *argv[4:]]
        return ["c", script + COMMAND, *(plain if plain and "/" in plain[0] else argv)]

    def frame(self, document: bytes | None = None, known: dict[str, str] | None = None) -> bytes:
        """What is written to a shell that waits for commands; only a whole frame is ever run.

        A document is the command's input: text of whole lines without NUL. ``known``: the functions by which the shell
        knows questions already, and will know this one; None if its group is not known yet.
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
            before, after = before + encode(f"kx_v={shlex.quote(setting(self.env))}\n"), b"unset kx_v\n}\n"
        if document is None:
            return before + words + b" </dev/null\n" + after
        mark = nonce().encode()
        return before + words + b" <<'" + mark + b"'\n" + document + mark + b"\n" + after

    def line(self, sync: str, *, reads: bool, size: int | None = None, mark: str = "") -> str:
        """The script of a shell that runs just this; it reads first what no `ps` is to show.

        With a size the command reads so many bytes: a terminal has no end of file among them. The mark is there to be
        found in its command line.
        """
        marked = f": {mark}\n" if mark else ""
        run = f'kx "$e" {shlex.join(self._words())}'
        if size is not None:
            run = f"head -c {size} | {run}"
        elif not reads and not self.pty:
            run += " </dev/null"
        # In another session it would have no terminal.
        return f"{marked}{setup(sync, tty=self.pty)}\nIFS= read -r e || exit\n{READ if self.env else ''}{run}"

    def hidden(self) -> bytes:
        """What that shell reads first: the word for the end, and the environment up to the same word."""
        end = encode(f"{self.end}\n")
        said = end + lines(encode(setting(self.env))) + end if self.env else end
        # Nobody types anything: a command that reads from its own terminal is told so.
        return said + END_OF_INPUT if self.pty else said


def plain_words(script: str) -> tuple[str, ...]:
    """The words of a script that is one program or one harmless builtin with literal arguments; () if it is more.

    The shell that is there runs such a one as well as a shell of its own would.
    """
    words = tuple(script.split(" ")) if _PLAIN.fullmatch(script) else ()
    return words if words and ("/" in words[0] or words[0] in _BUILTINS) else ()


def setup(sync: str, *, tty: bool = False) -> str:
    """What a shell is told first; it answers with the sync word on both streams.

    ``tty``: its terminal is the command's own.
    """
    return f"kx_y={'y' if tty else ''}{SETUP}echo {spelt(sync)}; echo {spelt(sync)} >&4"


def spelt(word: str) -> str:
    """A word as a script says it, in two pieces: sudo repeats a script that it refuses to run, which is no answer."""
    return f"{word[:2]}''{word[2:]}"


def any_shell(script: str) -> tuple[str, ...]:
    """The command that runs a script, in words that every login shell takes as they are once they are quoted.

    csh ends a quoted word at a line end, looks for "!" in it and takes none of more than 8 KB; fish knows backslashes
    there. It is cut only before blanks: the words by which a shell is found are whole.
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
    """Names on a host are bytes; what was not UTF-8 goes back as it came."""
    return text.encode("utf-8", "surrogateescape")


class Framed:
    """One stream, of which only what lies between two words counts."""

    def __init__(self, start: str, end: str, deliver: Callable[[bytes], None]) -> None:
        self.started = not start
        self.ended = False
        self.noise = bytearray()
        """What came before the start."""
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
                # It could not even be started.
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
            # The end word may be cut in two by the network.
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
    """One command on one channel: reads until both streams have said that it is over."""

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
        """``merged``: all comes on one stream, as from a terminal. ``group``: is known already, and not told.

        ``watch``: the channel's, if it has one already. ``word``: in the command line of the shell on the far side, by
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
        """The process group of the command, and the shell in it that is none of it, once it has started."""
        if self._group:
            return self._group
        numbers = self.err.head.split() if self.err.started else []
        return tuple(number.decode() for number in numbers if number.isdigit())

    @property
    def process(self) -> str:
        """The number of the command and when it began (``NUMBER:MOMENT``), if it has said so."""
        said = self.err.head.partition(b"=")[2] if self.err.started else b""
        return said.decode("ascii", "replace")

    @property
    def complaints(self) -> bytes:
        """What it wrote as errors; if that cannot be told from the rest, all that it wrote."""
        return self.stdout.kept() if self._merged else self.stderr.kept()

    @property
    def over(self) -> bool:
        """Whether the command has ended and all is read."""
        return (self.out.ended or self._merged) and self.err.ended and self._job.end.encode() in self.err.rest

    def wait(self, deadline: Deadline, cancel: Cancel, until: Callable[[], bool] | None = None) -> None:
        """Read until it is over (or until something else holds)."""
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
                # The shell says how a command ended. Without it nobody will, though what it ran may hold the channel.
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
        # A shell has something to say of a child only if a signal ended it.
        signalled = number > 128 and any(line.strip() for line in lines[1:-2])
        return Ending(128 - number if signalled else number, background == "1")

    def unheard(self) -> None:
        """Let the listener be."""
        self._on_output = None

    def read(self) -> bool:
        """Take what has come; False if that is nothing."""
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
    """Hands on what comes from a terminal with plain line ends, wherever it is cut."""

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

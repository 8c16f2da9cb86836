"""What all package managers have in common: their interface, locks, live output, and the list of changes."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.control import Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.model.result import HIDDEN
from kubexm_exec.runner.commands import execute, last_line, shorten
from kubexm_exec.runner.errors import exit_text
from kubexm_exec.runner.packages.data import Ask, Change, Found, Lookup, Move, Outcome, Survey, Target, pair
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

_HOLDER: Final = re.compile(
    r"held by process (?P<pid>\d+) \((?P<program>[^)]*)\)"
    r"|with pid (?P<pid2>\d+)(?: \((?P<program2>[^)]*)\)| is: (?P<program3>\S+))?",
    re.IGNORECASE,
)
_ERROR_LINE: Final = re.compile(
    r"^(?:E|Error|ERROR|W|error|fatal): *(.+)$|^(?:dpkg|rpm|apk): error[: ]+(.+)$", re.MULTILINE
)


class _Sign(Struct, frozen=True):
    words: re.Pattern[str]
    reason: str
    """``{0}``, ``{1}`` are groups of the pattern; empty: the tool's own line."""
    hint: str


def _sign(words: str, reason: str, hint: str) -> _Sign:
    return _Sign(re.compile(words, re.IGNORECASE), reason, hint)


_SIGNS: Final = (
    _sign(
        r"are you root\?|superuser privileges|root privileges are required|Permission denied.*(?:lock|database)"
        r"|need to be (?:root|run with)|Unable to (?:open|lock) database: Permission denied",
        "only root may do this",
        "use `become: true` for this host in the inventory",
    ),
    _sign(
        r"dpkg was interrupted|dpkg --configure -a",
        "an earlier run of dpkg was interrupted",
        "run `dpkg --configure -a` on the host, then run this again",
    ),
    _sign(
        r"Unmet dependencies\. Try 'apt(?:-get)? --fix-broken install'",
        "packages on the host are half installed",
        "repair them on the host with `apt-get --fix-broken install`, then run this again",
    ),
    _sign(
        r"NO_PUBKEY ([0-9A-F]{8,40})",
        "the index is signed with the key {0}, which the host does not know",
        "give the repository its key with a repository step (`key`, `keyFile` or `keyUrl`)",
    ),
    _sign(
        r"(?:EXPKEYSIG|KEYEXPIRED) ?(\S*)",
        "the key {0}, which signs the index, has expired",
        "get the repository's new key, and install it with a repository step",
    ),
    _sign(
        r"is not signed|GPG check FAILED|BADSIG|signature verification failed|Signature verification .*failed"
        r"|UNTRUSTED signature|repomd\.xml GPG signature|is not available from .* keyring|invalid.*signature"
        r"|bad signature|Public key for (\S+) is not installed|signatures couldn't be verified",
        "a signature is missing or wrong",
        "give the repository its key with a repository step (`key`, `keyFile` or `keyUrl`); "
        "only if nobody can tamper with it, use `trusted: true` there instead",
    ),
    _sign(
        r"Hash Sum mismatch|checksum (?:doesn't|does not) match|wrong digest|BAD archive",
        "a download does not match the index",
        "the mirror may be changing right now: refresh the index (`update: always`) and try again",
    ),
    _sign(
        r"Temporary failure resolving|Could not resolve|Couldn't resolve host|Could not connect|Connection refused"
        r"|Connection timed out|Failed to download metadata|Cannot download|Failed to fetch|Network is unreachable"
        r"|Curl error|DNS lookup error|download failed|does not have a Release file|temporary error"
        r"|Cannot retrieve repository metadata|Repository '.*' is invalid|Valid metadata not found",
        "",
        "can the host reach the repository (network, proxy, address)? Try `kubexm exec HOST -- curl -I URL`",
    ),
    _sign(
        r"No space left on device|not enough (?:free )?(?:disk )?space|You don't have enough free space",
        "no space left",
        "free some space on the host: `df -h`",
    ),
    _sign(
        r"Unable to correct problems|unmet dependencies|nothing provides|conflicting requests|Problem: "
        r"|unsatisfiable constraints|unable to select packages|conflicts with",
        "",
        "the dependencies conflict: the output above says which package needs what",
    ),
    _sign(
        r"No such command: versionlock",
        "this dnf cannot hold packages: its versionlock plugin is missing",
        "install it first: `python3-dnf-plugin-versionlock` (dnf-plugins-core)",
    ),
    _sign(
        r"post-installation script subprocess returned error|pre-installation script subprocess|scriptlet failed"
        r"|script exited with error|%(?:pre|post)\w*\(.*\) failed",
        "",
        "a script of the package failed: its messages are in the output",
    ),
)


def explain(
    session: Session, manager: str, what: str, result: CommandResult, *, locked: re.Pattern[str], waited: float
) -> StepFailed:
    """The failure of a package manager: what it was to do, the reason, and what to do next."""
    text = result.err + "\n" + result.out
    if result.exit_code == 127:
        return _failed(session, result, f"{what}: there is no {manager} on the host",
                       "choose another `manager`; `kubexm facts HOST` shows which one the host has")  # fmt: skip
    if is_locked(locked, text):
        holder = _HOLDER.search(text)
        who = "another package manager"
        if holder:
            program = holder["program"] or holder["program2"] or holder["program3"]
            who = f"process {holder['pid'] or holder['pid2']}" + (f" ({program})" if program else "")
        return _failed(session, result, f"{what}: {who} still has the lock after {waited:g}s",
                       "wait for it to end, or give it more time with `lockTimeout`")  # fmt: skip
    own = exit_text(result.exit_code)
    for sign in _SIGNS:
        if found := sign.words.search(text):
            if not session.sensitive:
                own = _line_at(text, found.start())
            reason = sign.reason.format(*(group or "" for group in found.groups())) or own
            return _failed(session, result, f"{what}: {reason}", sign.hint)
    if not session.sensitive:
        own = own_words(text) or own
    return _failed(session, result, f"{what}: {own}", "see its output")


def is_locked(locked: re.Pattern[str], text: str) -> bool:
    """Whether another process has the lock; a missing permission has similar messages."""
    return bool(locked.search(text)) and not re.search(r"permission denied|are you root", text, re.IGNORECASE)


def own_words(text: str) -> str:
    """The first line that is marked as an error, else the last one that is not blank."""
    if found := _ERROR_LINE.search(text):
        return shorten(found[1] or found[2])
    return last_line(text)


def _line_at(text: str, at: int) -> str:
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return shorten(re.sub(r"^(?:E|W|Error|ERROR): *", "", text[start : end if end >= 0 else None].strip()))


def _failed(session: Session, result: CommandResult, message: str, hint: str) -> StepFailed:
    if session.sensitive:
        return StepFailed(message, command=HIDDEN, exit_code=result.exit_code, hint=hint)
    # Without the script, which is our own and of no use to people.
    return StepFailed(message, exit_code=result.exit_code, stdout=result.out, stderr=result.err, hint=hint)


# Compares two lists of all installed packages, and prints the lines that are in one of them only.
DIFFERENCE: Final = r"""
difference() {
  { printf '%s\n' "$1" | sed 's/^/-/'; printf '%s\n' "$2" | sed 's/^/+/'; } | awk '
    { mark = substr($0, 1, 1); line = substr($0, 2); if (mark == "-") old[line] = 1; else new[line] = 1 }
    END { for (line in old) if (!(line in new)) print "-" line; for (line in new) if (!(line in old)) print "+" line }'
}
"""
_BETWEEN_LOOKS: Final = 1.0
_OUTPUT: Final = 4 << 20


class Manager(ABC):
    """One package manager on a host; it has no state of its own."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    """The suffix of its package files."""
    locked: ClassVar[re.Pattern[str]]
    """Its messages when another process has the lock."""
    equals: ClassVar[str] = "="
    """What it expects between the name and the version of a package."""
    scripts: ClassVar[tuple[str, str, str]]
    """How to survey packages, to refresh the index, and to refresh that of one repository."""

    def __init__(self, session: Session, *, wait: float = 0.0) -> None:
        self.session = session
        self.wait = wait
        """Seconds to wait while another process has the lock."""

    @abstractmethod
    def compare(self, one: str, two: str) -> int:
        """Negative if the first version is older than the second, 0 if they are equal, else positive."""

    @abstractmethod
    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What the host knows of packages; without ``holds``, the holds may be missing where they take time."""

    @abstractmethod
    def simulate(self, change: Change) -> tuple[Move, ...]:
        """All moves of a transaction, also of packages that were not named."""

    @abstractmethod
    def apply(self, change: Change) -> Outcome:
        """Perform a transaction."""

    @abstractmethod
    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""

    def refresh(self) -> None:
        """Refresh the index; a repository that cannot be reached is a failure."""
        self._refresh("refresh the index", script(self.scripts[1]))

    def refresh_repository(self, name: str, path: str, *, trusted: bool = False) -> None:
        """Refresh the index of one configured repository; unreachable or wrongly signed is a failure."""
        command = script(self.scripts[2], name, path, "yes" if trusted else "no")
        self._refresh(f"fetch the index of {name}", command)

    def _refresh(self, what: str, command: Command) -> None:
        result = self.patiently(command)
        if result.exit_code != 0:
            raise self.failure(what, result)

    def asked(self, asks: Sequence[Ask], *options: str, expect: Collection[int] = (0,)) -> dict[str, list[str]]:
        """The answer to a survey: lines by the word before their first bar."""
        files = [ask.file for ask in asks if ask.file]
        names = [ask.name for ask in asks if not ask.file]
        command = script(self.scripts[0], *options, str(len(files)), *files, *names)
        said: dict[str, list[str]] = {}
        for line in self.ask(command, expect=expect).out.splitlines():
            key, bar, value = line.partition("|")
            if bar:
                said.setdefault(key, []).append(value)
        return said

    def specs(self, targets: Sequence[Target]) -> list[str]:
        """Packages to install, as the manager takes them."""
        return [
            each.file or (f"{each.name}{self.equals}{each.version}" if each.version else each.name) for each in targets
        ]

    def ask(self, command: Command, *, expect: Collection[int] = (0,)) -> CommandResult:
        """Run a command whose output only the step is interested in."""
        result = self.patiently(command, live=False)
        if result.exit_code not in expect:
            raise self.failure("ask for packages", result)
        return result

    def patiently(self, command: Command, *, live: bool = True) -> CommandResult:
        """Run a command, waiting up to ``wait`` seconds for the lock; its standard error is shown to people."""
        session = self.session
        if live and session.on_output is not None:
            session = replace(session, on_output=_errors_only(session.on_output))
        until: Deadline | None = None
        while True:
            result = execute(session, dataclasses.replace(command, max_output=_OUTPUT), check=False, live=live)
            if result.exit_code == 0 or not is_locked(self.locked, result.err + result.out):
                return result
            if until is None:
                until = Deadline.after(self.wait)
                self._tell(f"waiting up to {self.wait:g}s: {self._lock_line(result)}\n")
            if until.passed():
                return result
            # If the action is cancelled or out of time, the next command raises.
            session.cancel.wait(min(_BETWEEN_LOOKS, until.left() or 0.0, self._left()))

    def failure(self, what: str, result: CommandResult) -> StepFailed:
        """The failure of a command."""
        return explain(self.session, self.name, what, result, locked=self.locked, waited=self.wait)

    def outcome(self, what: str, result: CommandResult, parse: Callable[[str], tuple[str, str] | None]) -> Outcome:
        """What a transaction has done, as its script says."""
        moves = self.moves(result.out, parse)
        return Outcome(moves, None if result.exit_code == 0 else self.failure(what, result))

    def moves(self, text: str, parse: Callable[[str], tuple[str, str] | None]) -> tuple[Move, ...]:
        """The lines of ``difference`` as moves; ``parse`` gives name and version of a line, or None for neither."""
        sides: dict[str, list[tuple[str, str]]] = {"-": [], "+": []}
        for line in text.splitlines():
            if line[:1] in sides and (found := parse(line[1:])):
                sides[line[0]].append(found)
        return pair(sides["-"], sides["+"])

    def _left(self) -> float:
        left = self.session.deadline.left()
        return _BETWEEN_LOOKS if left is None else left

    def _lock_line(self, result: CommandResult) -> str:
        for line in (result.err + "\n" + result.out).splitlines():
            if self.locked.search(line):
                return line.strip()
        return "another process has the lock"

    def _tell(self, text: str) -> None:
        if self.session.on_output is not None and not self.session.sensitive:
            self.session.on_output("stdout", text.encode("utf-8", "replace"))


def _errors_only(listener: OnOutput) -> OnOutput:
    def listen(stream: str, data: bytes) -> None:
        if stream == "stderr":
            listener("stdout", data)

    return listen


def surveyed(found: Sequence[Found], said: Mapping[str, Sequence[str]]) -> Survey:
    """What was found, with the age of the index: seconds from its newest stamp to the time of the host."""
    times = [int(stamp) for stamp in said.get("stamp", ()) if stamp.isdecimal()]
    now = next(iter(said.get("now", ())), "")
    return Survey(tuple(found), float(max(0, int(now) - max(times))) if times and now.isdecimal() else None)

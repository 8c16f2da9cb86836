"""Turns the errors of package managers into failures that say what to do next."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.model.result import HIDDEN
from kubexm_exec.runner.commands import last_line, shorten
from kubexm_exec.runner.errors import exit_text
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
    """A pattern of error messages."""

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

"""Becoming another user: the command line, the prompt for a password, and the reason of a refusal."""

from __future__ import annotations

import re
import shlex
from typing import Final

from kubexm_exec.connectors.ssh.options import Become

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

"""Programs on a host that speak to a cluster (etcdctl, kubectl, ctr, helm): called, and their answers read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from kubexm_exec.step import CommandResult, StepContext, StepFailed
from kubexm_exec.step.host import Command, join

_FIND: Final = 'PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin\nexport PATH\nexec "$@"\n'
_LARGEST: Final = 64 << 20
"""Bytes of an answer: all pods of a large cluster."""
_NOT_FOUND: Final = 127

Hints = Sequence[tuple[str, str]]
"""Patterns of a program's message, and the hint for each; the first match counts."""


class Unavailable(StepFailed):
    """The program is not installed, or what it speaks to does not answer: in a check, the effect is not known yet."""


class Program:
    """One program on the host, with the options that each call of it has."""

    def __init__(
        self, ctx: StepContext, name: str, *options: str, env: Mapping[str, str] | None = None, hints: Hints = ()
    ) -> None:
        self._ctx = ctx
        self._name = name
        self._options = options
        self._env = [f"{key}={value}" for key, value in (env or {}).items()]
        self._hints = hints

    def ask(self, *arguments: str, stdin: bytes | BinaryIO | None = None, live: bool = False) -> CommandResult:
        """Run it; any exit code is an answer, but it must be there."""
        words = [*(["env", *self._env] if self._env else []), self._name, *self._options, *arguments]
        command = Command(argv=("/bin/sh", "-c", _FIND, "sh", *words), stdin=stdin, max_output=_LARGEST)
        done = self._ctx.runner.run(command, check=False, live=live)
        if done.exit_code == _NOT_FOUND:
            raise Unavailable(
                f"{self._name} is not installed on the host",
                exit_code=done.exit_code,
                hint="install it first, or give its path in `program`",
            )
        return done

    def do(
        self, what: str, *arguments: str, stdin: bytes | BinaryIO | None = None, live: bool = False
    ) -> CommandResult:
        """Run it; an exit code other than 0 is a failure of ``what``."""
        done = self.ask(*arguments, stdin=stdin, live=live)
        if done.exit_code != 0:
            raise self.failure(what, arguments, done)
        return done

    def look(self, what: str, *arguments: str) -> Any:
        """Its answer as data (it must print JSON); none at all is Unavailable."""
        done = self.ask(*arguments)
        if done.exit_code != 0:
            raise self.failure(what, arguments, done, kind=Unavailable)
        return self.decoded(what, done)

    def decoded(self, what: str, done: CommandResult) -> Any:
        """The JSON that it printed."""
        try:
            return msgspec.json.decode(done.stdout)
        except msgspec.DecodeError as error:
            raise StepFailed(
                f"{what}: {self._name} printed no JSON ({error})", hint="see which version it is"
            ) from None

    def failure(
        self, what: str, arguments: Sequence[str], done: CommandResult, *, kind: type[StepFailed] = StepFailed
    ) -> StepFailed:
        """The failure of a call: what it was for, and the program's own message unless that must not be shown."""
        said = message_of(done).removeprefix(f"{self._name.rpartition('/')[2]}: ")
        hint = next((hint for pattern, hint in self._hints if re.search(pattern, said)), "")
        if self._ctx.sensitive:
            return kind(f"{what}: exit code {done.exit_code}", exit_code=done.exit_code, hint=hint)
        return kind(
            f"{what}: {said}",
            command=join([self._name, *self._options, *arguments]),
            exit_code=done.exit_code,
            stdout=done.out,
            stderr=done.err,
            hint=hint,
        )


def message_of(done: CommandResult) -> str:
    """The last message of a program, without its logs."""
    lines = [line.strip() for line in (done.err.strip() or done.out).splitlines()]
    said = [line for line in lines if line and not line.startswith("{")]
    text = re.sub(r"^(?i:error|fatal)[: ]+", "", said[-1]) if said else f"exit code {done.exit_code}"
    return text if len(text) <= 300 else text[:297] + "..."

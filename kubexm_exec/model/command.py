"""The result of a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Exit code and output of a command. The code is negative if a signal ended it."""

    command: str
    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    dropped: int = 0
    """Bytes of output that were not kept."""

    @property
    def out(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced, never raised."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")

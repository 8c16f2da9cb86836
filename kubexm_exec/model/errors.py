"""Errors of work on a host: it failed, the host was unreachable, it timed out, or the run was cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.result import FailureKind


class ConnectorError(Exception):
    """The host could not be reached or the transport broke: the action is ``unreachable``, not ``failed``."""


class OutcomeUnknown(ConnectorError):
    """The transport broke during a command: it ran to its end, in part or not at all. Look before it is run again."""

    command = ""
    """The interrupted command, for messages; set where it is known how much of it may be shown."""


class CommandTimedOut(Exception):
    """A command ran into its deadline; its whole process group has been killed."""

    def __init__(self, doing: str = "") -> None:
        super().__init__(doing or "its time was over")
        self.doing = doing


class CommandCancelled(Exception):
    """The run was cancelled while the command ran; its whole process group has been killed."""

    def __init__(self, doing: str = "") -> None:
        super().__init__(doing or "it was cancelled")


class StepFailed(Exception):
    """Raise this when the work fails. Say what and where in ``message``, and in ``hint`` what to do.

    ``outputs`` are for later steps, if the failure is ignored, and for hooks; they need not be all that are declared.
    ``file``: the one file on the host that is the reason, so that nothing which leaves it as it is would help.
    ``changed``: whether the work changed anything before it failed, if that is known; a later attempt counts it.
    """

    def __init__(
        self,
        message: str,
        *,
        command: str = "",
        exit_code: int | None = None,
        stdout: str = "",
        stderr: str = "",
        hint: str = "",
        kind: FailureKind = FailureKind.FAILED,
        outputs: Mapping[str, Any] | None = None,
        file: str = "",
        changed: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.changed = changed
        self.command = command
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.hint = hint
        self.kind = kind
        self.outputs = outputs or {}
        self.refused = False
        """What the step was to write was refused, before anything was changed: it is shown with the reason."""
        self.result: CommandResult | None = None
        """The command whose exit code this is, as it ended, if it was one."""


class NotYet(StepFailed):
    """The work was done, but what the spec waits for by ``retry.until`` does not hold: the attempt is repeated."""


class FileChanged(StepFailed):
    """A file was not replaced, because it is not what the step saw any more: the engine has the step look again."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"write {path}: others have changed it since the step looked at it",
            hint="nothing of theirs was overwritten; run it again when nobody else writes to this file",
        )
        self.path = path

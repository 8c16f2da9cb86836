"""The step type ``wait``: until a port, a file, a URL or a command is as it should be."""

from __future__ import annotations

import socket
import time
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import (
    Duration,
    Forecast,
    HttpError,
    Outputs,
    Params,
    Result,
    Step,
    StepContext,
    StepFailed,
    Undo,
    check_url,
)
from kubexm_spec.duration import format_duration
from kubexm_steps.lib.commands import CommandLine, make_command
from kubexm_steps.lib.http import patiently, request
from kubexm_steps.lib.types import HostPath

_LONGEST_TRY: Final = 5.0


class WaitParams(Params):
    """Parameters of ``wait``."""

    port: int | None = Field(None, ge=1, le=65535, description="TCP port that must accept connections.")
    host: str | None = Field(
        None,
        min_length=1,
        description="Address of the port; by default that of the host, with `from: host` 127.0.0.1.",
    )
    file: HostPath | None = Field(None, description="File, folder or link that must exist on the host.")
    url: Annotated[str, AfterValidator(check_url)] | None = Field(
        None, description="Address that must respond with one of `status`."
    )
    command: CommandLine | None = Field(
        None, description="Command on the host that must succeed: a shell line, or a list of arguments."
    )
    from_: Literal["control", "host"] = Field(
        "control",
        alias="from",
        description="With `port` or `url`: who tries it, the control node or the host itself.",
    )
    state: Literal["present", "absent"] = Field(
        "present", description="With `port` or `file`: `absent` waits until it is gone."
    )
    status: list[int] = Field(
        default_factory=lambda: [200], min_length=1, description="With `url`: accepted status codes."
    )
    deadline: Duration = Field(60.0, description="Maximum time to wait.")
    interval: Duration = Field(1.0, description="Pause between two checks.")

    def model_post_init(self, context: object) -> None:
        given = [name for name in ("port", "file", "url", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"not {' and '.join(given)}" if given else "and none is given"
            raise ValueError(f"wait for exactly one of port, file, url and command, {said}")
        if self.from_ == "host" and self.port is None and self.url is None:
            raise ValueError("from goes with port and url only: files and commands are always those of the host")
        if self.host is not None and self.port is None:
            raise ValueError("host goes with port only")
        if self.state == "absent" and self.port is None and self.file is None:
            raise ValueError("`state: absent` goes with port and file only")


class WaitOutputs(Outputs):
    seconds: float = Field(description="Time it took.")


class WaitStep(Step[WaitParams, str]):
    """Waits until a port accepts connections, a file exists, a URL responds, or a command succeeds.

    It checks at once, then again after each `interval`, until the condition is met or the `deadline` expires; then it
    fails with the last observation. Waiting never counts as a change.

    - `port` and `url` are checked from the control node, or with `from: host` from the host itself, by `python3`,
      `bash` or `nc` there (`url`: `curl`, `python3` or GNU `wget`). `file` and `command` are always the host's.
    - `state: absent` waits until a port is closed or a file is gone.
    """

    undo = Undo.NEEDLESS
    outputs_model = WaitOutputs
    example = """\
- name: api
  type: wait
  with: {port: 6443, host: "{{ host.address }}", deadline: 2m, interval: 2s}
"""

    def precheck(self, ctx: StepContext) -> Forecast[str]:
        seen = self._look(ctx, min(self.params.deadline, _LONGEST_TRY))
        if not seen:
            return Forecast.satisfied(f"{self._what(ctx)}: the condition is met", {"seconds": 0.0})
        return Forecast.unknown(f"waits for {self._what(ctx)}: {seen}", seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[str]) -> Result:
        seen, took, started = forecast.seen, 0.0, time.monotonic()
        while seen:
            left = self.params.deadline - took
            if left <= 0:
                raise StepFailed(
                    f"waited {format_duration(self.params.deadline)} for {self._what(ctx)}; last seen: {seen}",
                    hint="find out why it is not ready, or set a longer `deadline`",
                )
            ctx.progress(f"waiting for {self._what(ctx)}: {seen}", took, self.params.deadline)
            ctx.sleep(min(self.params.interval, left))
            left = self.params.deadline - (time.monotonic() - started)
            seen = self._look(ctx, max(0.1, min(left, _LONGEST_TRY)))
            took = time.monotonic() - started
        message = f"{self._what(ctx)} after {format_duration(took)}"
        return Result(changed=False, message=message, outputs={"seconds": round(took, 3)})

    def _look(self, ctx: StepContext, timeout: float) -> str:
        """What is still missing; empty if it is as it should be."""
        params = self.params
        if params.port is not None:
            address, port = self._address(ctx), params.port
            if params.from_ == "host":
                seen = ctx.runner.web.try_port(address, port, timeout)
            else:
                seen = patiently(ctx, lambda _: _try_port(address, port, timeout))
            return seen if params.state == "present" else "" if seen else "it still accepts connections"
        if params.file is not None:
            there = ctx.runner.inspect(params.file, digest=False).exists
            if params.state == "present":
                return "" if there else "it does not exist"
            return "it still exists" if there else ""
        if params.url is not None:
            return self._try_url(ctx, params.url, timeout)
        done = ctx.runner.run(make_command(params.command or ""), check=False, live=False)
        if done.exit_code == 0:
            return ""
        words = "" if ctx.sensitive else (done.err.strip() or done.out.strip()).rpartition("\n")[2]
        return f"exit code {done.exit_code}" + (f": {words[:200]}" if words else "")

    def _try_url(self, ctx: StepContext, url: str, timeout: float) -> str:
        try:
            reply = request(ctx, "GET", url, timeout=timeout, on_host=self.params.from_ == "host")
        except HttpError as error:
            return error.reason
        return "" if reply.status in self.params.status else f"status {reply.status}"

    def _address(self, ctx: StepContext) -> str:
        own = "" if self.params.from_ == "host" else ctx.host.address
        return self.params.host or own or "127.0.0.1"

    def _what(self, ctx: StepContext) -> str:
        params = self.params
        gone = " to be gone" if params.state == "absent" else ""
        place = " from the host" if params.from_ == "host" else ""
        if params.port is not None:
            return f"port {self._address(ctx)}:{params.port}{place}{gone}"
        if params.file is not None:
            return f"file {params.file}{gone}"
        if ctx.sensitive:
            return "url" if params.url is not None else "command"
        if params.url is not None:
            return f"url {params.url}{place}"
        return f"command {ctx.runner.display(make_command(params.command or ''))}"


def _try_port(address: str, port: int, timeout: float) -> str:
    try:
        with socket.create_connection((address, port), timeout=timeout):
            return ""
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()

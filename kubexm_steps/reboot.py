"""The step type ``reboot``: the host booted anew, and waited for."""

from __future__ import annotations

import time
from typing import Final

from pydantic import Field

from kubexm_exec.step import Diff, Duration, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed
from kubexm_exec.step.system import BootState
from kubexm_spec.duration import format_duration
from kubexm_steps.lib.commands import CommandLine, make_command
from kubexm_steps.lib.types import HostPath

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 5.0
_AGAIN: Final = 1.5


class RebootParams(Params):
    """Parameters of ``reboot``."""

    if_file: HostPath | None = Field(
        None, description="Reboot only if this path exists on the host, such as `/run/reboot-required`."
    )
    only_if: CommandLine | None = Field(
        None,
        description="Reboot only if this command succeeds: a shell line, or a list of arguments. `check` runs it "
        "too, so it must change nothing.",
    )
    message: str = Field("kubexm reboots this host", max_length=200, description="Message to users on the host.")
    delay: Duration = Field(0.0, description="Time between the message and the reboot.")
    timeout: Duration = Field(600.0, description="Time limit for the host to come back.")
    ready_when: CommandLine | None = Field(
        None,
        description="Command on the host that must succeed before it counts as back: a shell line, or a list of "
        "arguments. By default it is enough that commands can run.",
    )


class RebootOutputs(Outputs):
    rebooted: bool = Field(description="Whether it rebooted.")
    boot_id: str = Field(description="Id of the current boot.")
    seconds: float = Field(description="Time until the host was back.")


class RebootStep(Step[RebootParams, BootState]):
    """Reboots the host and waits until commands can run on it again.

    A reboot is detected by the boot id, never by a broken connection. Facts are gathered again afterwards.

    - Without `ifFile` or `onlyIf` it reboots every time. Usually it depends on something: `ifFile:
      /run/reboot-required` on Debian and Ubuntu, `onlyIf: "! needs-restarting -r"` on RHEL and derivatives, or
      `when: steps.kernel.changed`.
    - It needs root on the host. The control node is refused.
    - `strategy` and `batch` of the task decide how many hosts are down at once.
    - A reboot cannot be undone.
    """

    outputs_model = RebootOutputs
    example = """\
- name: reboot
  type: reboot
  with: {ifFile: /run/reboot-required, message: new kernel, timeout: 5m}
"""

    def precheck(self, ctx: StepContext) -> Forecast[BootState]:
        state = self._state(ctx)
        needless = self._needless(ctx, state)
        if needless:
            return Forecast.satisfied(needless, _outputs(state.id))
        return Forecast.change("would reboot", [Diff(ctx.host.name, note="rebooted")], seen=state)

    def run(self, ctx: StepContext, forecast: Forecast[BootState]) -> Result:
        state = forecast.seen
        # An earlier attempt may have begun it and not seen its end: that one counts, there is no second reboot.
        memory = ctx.cache("host")
        key = f"reboot {ctx.node}"
        before = memory.get(key)
        if before is not None and before != state.id:
            return self._back(ctx, state.id, 0.0)
        memory[key] = state.id
        log = ctx.runner.boot.restart(self.params.message, self.params.delay)
        took = self._wait(ctx, state.id, log)
        return self._back(ctx, ctx.runner.boot.state().id, took)

    def _state(self, ctx: StepContext) -> BootState:
        state = ctx.runner.boot.state(self.params.if_file)
        if state.is_here:
            raise StepFailed(
                f"{ctx.host.name} is the machine that kubexm itself runs on: a reboot would end this run",
                hint="reboot it by hand, or run kubexm on another machine",
            )
        if not state.is_root:
            raise StepFailed("only root can reboot the host", hint="log in as root, or set `become: true` for the host")
        return state

    def _needless(self, ctx: StepContext, state: BootState) -> str:
        """Why it is not needed, or nothing."""
        if self.params.if_file is not None and not state.has_file:
            return f"{self.params.if_file} does not exist"
        only_if = self.params.only_if
        if only_if is not None and ctx.runner.run(make_command(only_if), check=False, live=False).exit_code != 0:
            return "the command in `onlyIf` did not succeed"
        return ""

    def _wait(self, ctx: StepContext, before: str, log: str) -> float:
        """Until it is up again, connecting anew each time; gives the seconds it took."""
        started = time.monotonic()
        if self.params.delay > 0:
            ctx.sleep(self.params.delay)
        pause = _FIRST_PAUSE
        while True:
            left = self.params.timeout + self.params.delay - (time.monotonic() - started)
            seen = ctx.runner.boot.look(before, log, max(1.0, left)) or self._not_ready(ctx, max(1.0, left))
            took = time.monotonic() - started
            if not seen:
                return took
            if took >= self.params.timeout + self.params.delay:
                raise StepFailed(
                    f"the host is not back {format_duration(self.params.timeout)} after its reboot; last seen: {seen}",
                    hint="check its console, or set a longer `timeout`",
                )
            ctx.progress(f"waiting for the reboot: {seen}", took, self.params.timeout)
            ctx.sleep(pause)
            pause = min(pause * _AGAIN, _LONGEST_PAUSE)

    def _not_ready(self, ctx: StepContext, timeout: float) -> str:
        if self.params.ready_when is None:
            return ""
        seen = ctx.runner.boot.fails(make_command(self.params.ready_when), timeout)
        return f"the command in `readyWhen` does not succeed yet: {seen}" if seen else ""

    def _back(self, ctx: StepContext, boot: str, took: float) -> Result:
        message = f"rebooted in {format_duration(took)}" if took else "it has already rebooted"
        return Result(message=message, outputs=_outputs(boot, rebooted=True, seconds=round(took, 3)))


def _outputs(boot: str, *, rebooted: bool = False, seconds: float = 0.0) -> dict[str, object]:
    return {"rebooted": rebooted, "bootId": boot, "seconds": seconds}

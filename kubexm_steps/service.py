"""The step type ``service``: a service that runs or does not, now and after a boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from kubexm_exec.step import Duration, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.services import ServiceState, Verb
from kubexm_steps.lib.attributes import attribute_diff
from kubexm_steps.lib.services import (
    after,
    at_boot,
    do,
    done,
    left_as,
    must_exist,
    put_back,
    record,
    service_standing,
    word,
)
from kubexm_steps.lib.standing import LookingStep
from kubexm_steps.lib.types import shaped

_AGAIN: Final = ("restarted", "reloaded")


ServiceName = Annotated[
    str,
    shaped(
        r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,254}", r"the name of a service: letters, digits and any of `:-_.\@`"
    ),
]


class ServiceParams(Params):
    """Parameters of ``service``."""

    name: ServiceName = Field(
        description="Name of the service: `nginx`, or with the type of another systemd unit: `docker.socket`."
    )
    state: Literal["started", "stopped", "restarted", "reloaded"] | None = Field(
        None,
        description="Desired state. `restarted` and `reloaded` happen every time, and start a stopped service. By "
        "default it is not changed.",
    )
    enabled: bool | None = Field(None, description="Whether it starts at boot. By default not changed.")
    masked: bool | None = Field(
        None, description="Whether it is masked, so that nothing can start it (systemd only). By default not changed."
    )
    runlevel: str = Field("default", pattern=r"^[A-Za-z0-9_-]+$", description="Runlevel that enables it (openrc only).")
    wait: Duration = Field(90.0, description="Time limit for starting or stopping.")
    settle: Duration = Field(
        0.5, description="Check again this long after a start: a service that fails at once is a failure."
    )

    def model_post_init(self, context: object) -> None:
        if self.state is None and self.enabled is None and self.masked is None:
            raise ValueError("say what should be true of the service: `state`, `enabled` or `masked`")
        if self.masked and (self.enabled or self.state in ("started", "restarted", "reloaded")):
            raise ValueError("a masked service can be neither started nor enabled")


class ServiceOutputs(Outputs):
    name: str = Field(description="Name of the service, as the host knows it.")
    active: bool = Field(description="Whether it runs.")
    enabled: bool = Field(description="Whether it starts at boot.")


class ServiceStep(LookingStep[ServiceParams, ServiceState]):
    """A service that runs or not, and starts at boot or not; with systemd or openrc.

    The step waits until the service really runs. If it does not, the failure shows its status and the last
    lines of its log.

    A restart is a change every time. To restart only after a change of a file, make the step a handler that the step
    which writes the file notifies; or make it depend on that one: `when: steps.config.changed`.

    - `reloaded` needs a service that can reload its configuration; `restarted` works for all.
    - A unit without an `[Install]` section (`static`) counts as enabled: its dependents start it.
    - A service that does not exist yet is `unknown` in a check, and a failure in a run.
    - Undo starts or stops, enables or disables, masks or unmasks it as before. A restart is not undone, and
      files restored after it are not reread: a warning names the services to restart.
    """

    outputs_model = ServiceOutputs
    example = """\
- name: restart
  type: service
  when: steps.config.changed
  with: {name: nginx, state: restarted, enabled: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast[ServiceState]:
        params = self.params
        state = self._look(ctx)
        if not state.exists and params.masked is None:
            return Forecast.unknown(f"there is no service {params.name} yet", seen=state)
        verbs = self._verbs(state)
        if not verbs:
            return Forecast.satisfied(f"service {params.name} is {self._is(state)}", self._outputs(state))
        before = {"now": word(state), "at boot": at_boot(state)}
        diff = attribute_diff(ctx, f"service {state.name}", before, before | after(verbs))
        return Forecast.change(f"would {' and '.join(verbs)} {params.name}", [diff], seen=state)

    def run(self, ctx: StepContext, forecast: Forecast[ServiceState]) -> Result:
        params, state = self.params, forecast.seen
        if params.masked is None:
            must_exist(ctx, params.name, state)
        verbs = self._verbs(state)
        undo = record(state)
        ctx.save_undo(undo)
        for verb in verbs:
            do(ctx, verb, state, params.wait, params.settle, params.runlevel)
        now = ctx.runner.services.look(params.name)
        ctx.save_undo({**undo, "left": left_as(now)})
        return Result(message=f"{done(verbs)} {params.name}", outputs=self._outputs(now))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        standing = service_standing(ctx, undo)
        # It runs as before, but with what it read meanwhile: that is said.
        return replace(standing, before=False) if self.params.state in _AGAIN else standing

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        put_back(ctx, undo)
        if undo["active"] and self.params.state in _AGAIN:
            # What it read is put back after this, if it is undone too: a restart now would read it once more.
            ctx.log.warning(
                f"{undo['service']} keeps running with the files that it read when this run {self.params.state} it:"
                " restart it if they were restored"
            )

    def _look(self, ctx: StepContext) -> ServiceState:
        params = self.params
        services = ctx.runner.services
        if params.masked is not None and not services.can_mask:
            raise StepFailed(
                f"service {params.name}: {services.manager} cannot mask a service",
                hint="use `enabled: false` and `state: stopped` there",
            )
        state = services.look(params.name)
        if params.enabled is False and state.fixed and state.enabled and state.exists:
            raise StepFailed(
                f"disable {params.name}: it cannot be, {state.fixed}", hint="`masked: true` keeps it from starting"
            )
        if params.state == "reloaded" and state.exists and not state.can_reload and not state.masked:
            raise StepFailed(
                f"reload {params.name}: it cannot reload its configuration",
                hint="use `state: restarted`",
            )
        return state

    def _verbs(self, state: ServiceState) -> list[Verb]:
        params = self.params
        verbs: list[Verb] = []
        runs = state.active == "active"
        if params.masked is False and state.masked:
            verbs.append("unmask")
        # What a mask hides is not known, so it is said once more.
        if params.enabled is not None and not state.fixed and (state.enabled is not params.enabled or verbs):
            verbs.append("enable" if params.enabled else "disable")
        match params.state:
            case "started" if not runs:
                verbs.append("start")
            case "stopped" if runs or state.active == "changing":
                verbs.append("stop")
            case "restarted":
                verbs.append("restart" if runs else "start")
            case "reloaded":
                verbs.append("reload" if runs else "start")
        if params.masked and not state.masked:
            verbs.append("mask")
        return verbs

    def _is(self, state: ServiceState) -> str:
        parts = [word(state)] if self.params.state else []
        if self.params.enabled is not None or self.params.masked is not None:
            parts.append(at_boot(state))
        return ", ".join(parts)

    def _outputs(self, state: ServiceState) -> dict[str, Any]:
        return {"name": state.name, "active": state.active == "active", "enabled": state.enabled and not state.masked}

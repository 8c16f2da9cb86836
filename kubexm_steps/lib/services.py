"""What the steps that start and stop services have in common: doing it, waiting until it holds, and clear failures."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubexm_exec.step import CommandResult, Standing, StepContext, StepFailed
from kubexm_exec.step.services import ServiceState, Verb
from kubexm_steps.lib.standing import BROKE_OFF

_LAST_LINES: Final = 40
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_AFTER: Final[Mapping[Verb, tuple[str, str]]] = {
    "start": ("now", "active"),
    "restart": ("now", "active, after a restart"),
    "reload": ("now", "active, after a reload"),
    "stop": ("now", "inactive"),
    "enable": ("at boot", "enabled"),
    "disable": ("at boot", "disabled"),
    "mask": ("at boot", "masked"),
    "unmask": ("at boot", "not masked"),
}
_SHOWN: Final = ("active", "enabled", "masked")
"""What tells how a service is."""


def word(state: ServiceState) -> str:
    """How a service is, for people: ``active (running)``."""
    name = {"changing": "starting or stopping"}.get(state.active, state.active)
    return f"{name} ({state.detail})" if state.detail and state.detail not in ("dead", name) else name


def at_boot(state: ServiceState) -> str:
    """Whether a service starts at boot, for people."""
    return "masked" if state.masked else "enabled" if state.enabled else "disabled"


def after(verbs: Sequence[Verb]) -> dict[str, str]:
    """How a service is once that is done, as far as it changes: ``now``, and ``at boot``."""
    return dict(_AFTER[verb] for verb in verbs if verb in _AFTER)


def done(verbs: Sequence[Verb]) -> str:
    """What was done, for people: ``enabled and started``."""
    past = {"stop": "stopped", "start": "started", "reload": "reloaded", "restart": "restarted", "reenable": "enabled"}
    return " and ".join(past.get(verb, verb.removesuffix("e") + "ed") for verb in verbs)


def must_exist(ctx: StepContext, name: str, state: ServiceState) -> None:
    """A service that is not there is a failure that names those that sound alike."""
    if state.error:
        raise StepFailed(
            f"service {name}: its definition cannot be used: {state.error}",
            stderr=ctx.runner.services.told(name),
            hint=f"check {state.path or 'its file'}: `systemd-analyze verify {state.name}`",
        )
    if state.exists:
        return
    alike = difflib.get_close_matches(name, ctx.runner.services.names(), n=3)
    hint = (
        f"did you mean {' or '.join(alike)}?"
        if alike
        else "install the package that provides it first, or create it with a `systemd-unit` step"
    )
    raise StepFailed(f"service {name}: there is no such service on the host", hint=hint)


def do(
    ctx: StepContext,
    verb: Verb,
    state: ServiceState,
    wait: float = 0.0,
    settle: float = 0.0,
    runlevel: str = "default",
) -> ServiceState:
    """Have it done, and wait until it is so; whatever keeps it from that is a failure with the service's own words."""
    done = ctx.runner.services.do(verb, state.name, runlevel=runlevel)
    if done.exit_code != 0:
        raise _failure(ctx, verb, state.name, done)
    if verb in ("start", "restart", "reload"):
        return wait_until_active(ctx, verb, state.name, wait, settle)
    if verb == "stop":
        return _wait(ctx, verb, state.name, wait, ("inactive", "failed"))
    return state


def wait_until_active(ctx: StepContext, verb: str, name: str, wait: float, settle: float) -> ServiceState:
    """Wait until a service runs, and look again after a moment: many that fail do so right after their start."""
    state = _wait(ctx, verb, name, wait, ("active",))
    # What was started to do something and end is not watched: it may have ended well.
    if settle <= 0 or state.detail not in ("running", "started"):
        return state
    ctx.sleep(settle)
    later = ctx.runner.services.look(name)
    if later.active != "active" and not _ended_well(later):
        raise _failure(ctx, verb, name, None, later)
    if later.restarts > state.restarts:
        raise _failure(ctx, verb, name, None, later)
    return later


def _wait(ctx: StepContext, verb: str, name: str, wait: float, until: tuple[str, ...]) -> ServiceState:
    end = time.monotonic() + wait
    pause = _FIRST_PAUSE
    while True:
        state = ctx.runner.services.look(name)
        if state.active in until or _ended_well(state):
            return state
        if state.active != "changing" or time.monotonic() >= end or state.detail == "auto-restart":
            raise _failure(ctx, verb, name, None, state)
        ctx.progress(f"{name} is {word(state)}")
        ctx.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _ended_well(state: ServiceState) -> bool:
    """Whether it did its work and ended, as those do that only run once."""
    return state.active == "inactive" and state.result == "success" and state.pid == 0


def _failure(
    ctx: StepContext, verb: str, name: str, done: CommandResult | None, state: ServiceState | None = None
) -> StepFailed:
    lines = [line.strip() for line in (done.err if done else "").splitlines() if line.strip()]
    said = lines[0] if lines else ""
    if state is not None:
        said = f"it is {word(state)}"
        if state.result not in ("", "success"):
            said += f", result {state.result}"
    told = "" if ctx.sensitive else "\n".join(ctx.runner.services.told(name).splitlines()[-_LAST_LINES:])
    hint = _hint(ctx, verb, name, " ".join(lines).lower())
    return StepFailed(
        f"{verb} {name}: {said or 'the service manager refused'}",
        exit_code=done.exit_code if done is not None and done.exit_code else None,
        stderr=told or "\n".join(lines),
        hint=hint,
    )


def _hint(ctx: StepContext, verb: str, name: str, said: str) -> str:
    if "access denied" in said or "authentication" in said or "permission denied" in said or "superuser" in said:
        return "the user lacks the permission: set `become: true` for the host"
    if "file exists" in said or "already exists" in said:
        return f"a file is in the place of the mask: remove the unit {name} first"
    if "masked" in said:
        return "it is masked: set `masked: false` too"
    if "no installation config" in said or "not meant to be enabled" in said:
        return "it has no [Install] section: other units start it, so remove `enabled`"
    if ctx.runner.services.manager == "openrc":
        return f"see `rc-service {name} status` and its log on the host"
    if verb in ("enable", "disable", "mask", "unmask"):
        return f"see `systemctl status {name}` on the host"
    return f"see `journalctl -u {name}` on the host"


def record(state: ServiceState) -> dict[str, Any]:
    """What is to be put back of a service."""
    return {
        "service": state.name,
        "active": state.active == "active" or state.active == "changing",
        "enabled": None if state.fixed else state.enabled,
        "masked": state.masked,
        "runlevels": list(state.runlevels) or ["default"],
    }


def service_standing(ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
    """What an undo finds of a service."""
    name, left = undo["service"], undo.get("left")
    state = ctx.runner.services.look(name)
    now = record(state)
    there = {**undo, "exists": undo.get("existed", True)}
    as_before = state.exists == there["exists"] and all(now[key] == there[key] for key in _SHOWN if state.exists)
    if left is None:
        return Standing(before=as_before, unknown=BROKE_OFF)
    alike = [each for each in (there, left) if each["exists"] == state.exists]
    if not alike:
        return Standing(changed=(f"service {name} ({'it is there again' if state.exists else 'it is gone'})",))
    differs = [key for key in _SHOWN if state.exists and now[key] not in [each[key] for each in alike]]
    return Standing(changed=tuple(f"service {name} ({key})" for key in differs), before=as_before)


def left_as(state: ServiceState) -> dict[str, Any]:
    """A service as a step has left it."""
    return {**record(state), "exists": state.exists}


def put_back(ctx: StepContext, undo: Mapping[str, Any], *, restart: bool = False) -> None:
    """Bring a service back to how it was, with ``restart`` so that it reads its old files again."""
    name = undo["service"]
    state = ctx.runner.services.look(name)
    if not state.exists:
        return
    if state.masked and not undo["masked"]:
        do(ctx, "unmask", state)
        state = ctx.runner.services.look(name)
    if undo["enabled"] is not None and not state.fixed and state.enabled != undo["enabled"]:
        for runlevel in undo["runlevels"] if undo["enabled"] else ["default"]:
            do(ctx, "enable" if undo["enabled"] else "disable", state, runlevel=runlevel)
    if undo["active"] and not state.masked:
        if restart or state.active != "active":
            do(ctx, "restart" if restart else "start", state, wait=60.0)
    elif state.active in ("active", "changing"):
        do(ctx, "stop", state, wait=60.0)
    if undo["masked"] and not state.masked:
        do(ctx, "mask", state)

"""The step type ``timer``: a command that systemd runs at given times."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import Duration, Forecast, Outputs, Params, Result, StepContext
from kubexm_exec.step.services import ServiceState, UnitLook, Verb
from kubexm_spec.models.common import no_items
from kubexm_steps.lib import units as _units
from kubexm_steps.lib.attributes import attribute_diff
from kubexm_steps.lib.edits import Edit, apply, diffs
from kubexm_steps.lib.services import do
from kubexm_steps.lib.types import ONE_OR_MANY, AccountName, HostPath, Line, Text, Variable, refuse, shaped
from kubexm_steps.lib.units import FOLDER

_WAIT: Final = 30.0
_NO_SYSTEMD: Final = "use a cron step for hosts without systemd: `when: facts.init != 'systemd'`"


class TimerParams(Params):
    """Parameters of ``timer``."""

    name: Annotated[
        str,
        AfterValidator(lambda name: name.removesuffix(".timer")),
        shaped(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}", "a name for a timer: letters, digits and any of `-_.`"),
    ] = Field(description="Name of the timer; creates NAME.timer and NAME.service.")
    schedule: Annotated[list[Line], ONE_OR_MANY] = Field(
        default_factory=no_items,
        description="Schedule, as in systemd's `OnCalendar=`: `daily`, `Mon..Fri 03:00`, `*:0/15`; one or several.",
    )
    command: str | list[str] | None = Field(None, description="A line of POSIX shell, or a list of arguments.")
    user: AccountName | None = Field(None, description="User to run as; root by default.")
    cwd: HostPath | None = Field(None, description="Folder to run in.")
    env: dict[Variable, Text] = Field(default_factory=dict, description="Environment variables.")
    persistent: bool = Field(True, description="If the host was off at the time, run at the next start.")
    random_delay: Duration = Field(
        0.0, description="Random delay up to this time, so that many hosts do not run at once."
    )
    description: Line | None = Field(None, description="Description.")
    enabled: bool = Field(True, description="Whether the timer is active, now and after a reboot.")
    state: Literal["present", "absent"] = Field("present", description="`absent` stops and removes both units.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("schedule", "command"), "`state: absent`")
            return
        if not self.schedule:
            raise ValueError("say when it runs: `schedule`")
        if not self.command or not self.command[0].strip():
            raise ValueError("say what it runs: `command`")
        if any("\0" in word for word in self.command):
            raise ValueError("a command cannot contain a NUL character")
        if isinstance(self.command, list) and (self.command[0][0] in "@-:+!" or "$" in self.command[0]):
            raise ValueError(f"systemd cannot start a program called {self.command[0]!r}; use a line of shell")


class TimerOutputs(Outputs):
    name: str = Field(description="Name of the timer's unit.")
    active: bool = Field(False, description="Whether it is active.")


class TimerStep(_units.UnitStep[TimerParams]):
    """A command that systemd runs on a schedule: a timer and the service that it starts.

    Its output is in the systemd journal: `journalctl -u NAME.service`; `systemctl list-timers` shows the next run. On a
    host without systemd use `cron`.

    - The schedule is checked on the host (`systemd-analyze calendar`) before anything is changed.
    - Arguments of a command in a list are passed unchanged; neither a shell nor systemd interprets them.
    - A new command needs no restart; a new schedule restarts the timer.
    - Undo restores the old units and their state, or removes the new ones.
    """

    outputs_model = TimerOutputs
    example = """\
- name: backup
  type: timer
  with:
    name: etcd-backup
    schedule: "*-*-* 03:00"
    command: [/usr/local/bin/etcd-backup, --keep, "7"]
    user: etcd
    randomDelay: 10m
"""

    def precheck(self, ctx: StepContext) -> Forecast[_units.Seen]:
        params = self.params
        look = self._look(ctx)
        state = look.states[self._timer]
        edits = self._edits(ctx, look)
        seen = _units.Seen(look, edits)
        if params.state == "absent":
            if not any(edit.any for edit in edits):
                return Forecast.satisfied(f"there is no timer {params.name}", self._outputs(state, gone=True))
            return Forecast.change(f"would remove timer {params.name}", diffs(ctx, edits), seen=seen)
        if edits[1].any:
            seen = _units.Seen(look, edits, self._soonest(ctx))
        verbs = self._verbs(state, edits)
        shown = diffs(ctx, edits)
        if not shown and not verbs and not _stale(look):
            return Forecast.satisfied(f"timer {params.name} is as it should be", self._outputs(state))
        before, after = self._words(state), {"active": "yes" if params.enabled else "no"}
        if before != after:
            shown.append(attribute_diff(ctx, f"timer {params.name}", before, after))
        return Forecast.change(f"would {'change' if state.exists else 'create'} timer {params.name}", shown, seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[_units.Seen]) -> Result:
        params = self.params
        look, edits, soonest = forecast.seen
        state = look.states[self._timer]
        written = any(edit.any for edit in edits)
        if params.state == "absent":
            _units.remove(ctx, state, edits, _WAIT, name=self._timer)
            return Result(message=f"removed timer {params.name}", outputs=self._outputs(state, gone=True))
        verbs = self._verbs(state, edits)
        soonest = self._soonest(ctx) if soonest is None else soonest
        warned = _units.verify(ctx, [self._service, self._timer], self._texts()) if written else ""
        restarts = "restart" in verbs
        _units.save(ctx, edits, state, restarts=restarts)
        apply(ctx, edits)
        if written or _stale(look):
            ctx.runner.units.reload()
        for verb in verbs:
            do(ctx, verb, state, wait=_WAIT)
        after = ctx.runner.services.look(self._timer)
        _units.save(ctx, edits, state, restarts=restarts, left=after)
        more = [f"next: {soonest}"] if soonest and params.enabled else []
        more += filter(None, [warned])
        done = "changed" if state.exists else "created"
        return Result(
            message=f"{done} timer {params.name}" + (f" ({', '.join(more)})" if more else ""),
            outputs=self._outputs(after),
        )

    @property
    def _timer(self) -> str:
        return f"{self.params.name}.timer"

    @property
    def _service(self) -> str:
        return f"{self.params.name}.service"

    def _soonest(self, ctx: StepContext) -> str:
        """When it runs next; a schedule that the host does not understand is a failure."""
        return next(iter(ctx.runner.units.calendar(self.params.schedule)), "")

    def _look(self, ctx: StepContext) -> UnitLook:
        ctx.runner.units.needed(f"timer {self.params.name}", _NO_SYSTEMD)
        files = [f"{FOLDER}/{self._service}", f"{FOLDER}/{self._timer}"]
        return ctx.runner.units.look([self._timer, self._service], files)

    def _edits(self, ctx: StepContext, seen: UnitLook) -> list[Edit]:
        if self.params.state == "absent":
            return [Edit(held, None) for held in seen.files.values()]
        return [
            Edit(seen.files[f"{FOLDER}/{name}"], text, _units.new_mode(ctx, text))
            for name, text in self._texts().items()
        ]

    def _verbs(self, state: ServiceState, edits: list[Edit]) -> list[Verb]:
        verbs: list[Verb] = []
        if state.enabled is not self.params.enabled:
            verbs.append("enable" if self.params.enabled else "disable")
        runs = state.active == "active"
        if self.params.enabled:
            if not runs:
                verbs.append("start")
            elif edits[1].any:
                verbs.append("restart")
        elif runs:
            verbs.append("stop")
        return verbs

    def _words(self, state: ServiceState) -> dict[str, str]:
        if state.enabled and state.active == "active":
            return {"active": "yes"}
        if not state.enabled and state.active != "active":
            return {"active": "no"}
        return {"active": "only after a boot" if state.enabled else "only until a boot"}

    def _outputs(self, state: ServiceState, *, gone: bool = False) -> dict[str, Any]:
        return {"name": self._timer, "active": not gone and state.active == "active"}

    def _texts(self) -> dict[str, str]:
        params = self.params
        about = _escape(params.description or params.name)
        command = params.command or ""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        service = [f"Type=oneshot\nExecStart={' '.join(map(unit_word, argv))}"]
        service += [f"User={params.user}"] if params.user else []
        service += [f"WorkingDirectory={_escape(params.cwd)}"] if params.cwd else []
        service += [f"Environment={_quoted(f'{name}={value}', dollar=False)}" for name, value in params.env.items()]
        timer = [f"OnCalendar={one}" for one in params.schedule]
        timer += [f"Persistent={'true' if params.persistent else 'false'}"]
        timer += [f"RandomizedDelaySec={params.random_delay:g}"] if params.random_delay else []
        lines = "\n".join
        return {
            self._service: f"# Written by kubexm.\n[Unit]\nDescription={about}\n\n[Service]\n{lines(service)}\n",
            self._timer: f"# Written by kubexm.\n[Unit]\nDescription={about}\n\n[Timer]\n{lines(timer)}\n\n"
            "[Install]\nWantedBy=timers.target\n",
        }


def _stale(seen: UnitLook) -> bool:
    return any(state.stale for state in seen.states.values())


def unit_word(word: str) -> str:
    """An argument for ExecStart= that reaches the program as it is: neither specifiers nor variables are replaced."""
    return word if re.fullmatch(r"[A-Za-z0-9_/.,:=@+-]+", word) else _quoted(word)


def _quoted(text: str, *, dollar: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    text = _escape(text)
    return '"' + (text.replace("$", "$$") if dollar else text) + '"'


def _escape(text: str) -> str:
    return text.replace("%", "%%")


__all__ = ["TimerOutputs", "TimerParams", "TimerStep", "unit_word"]

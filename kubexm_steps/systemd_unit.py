"""The step type ``systemd-unit``: a unit of systemd by its files, and whether it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Duration, Forecast, Outputs, Params, Result, StepContext, TemplateName, WrittenFile
from kubexm_exec.step.services import ServiceState, UnitLook, Verb
from kubexm_steps.lib import units as _units
from kubexm_steps.lib.attributes import attribute_diff
from kubexm_steps.lib.edits import Edit, apply, diffs
from kubexm_steps.lib.services import after, at_boot, do, done, must_exist, word
from kubexm_steps.lib.types import HostPath, Text, refuse, shaped
from kubexm_steps.lib.units import FOLDER, UnitName

DropIn = Annotated[
    str,
    shaped(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}", "the name of a drop-in: letters, digits and any of `-_.`"),
    AfterValidator(lambda name: name if name.endswith(".conf") else f"{name}.conf"),
]


class SystemdUnitParams(Params):
    """Parameters of ``systemd-unit``."""

    name: UnitName = Field(description="Name of the unit, such as `etcd.service`; a service by default.")
    content: Text | None = Field(None, description="Whole content of the unit file.")
    template: Annotated[str, TemplateName()] | None = Field(
        None, description="Template for the content of the unit file, instead of `content`."
    )
    vars: dict[str, Any] = Field(default_factory=dict, description="Additional variables for the template.")
    drop_ins: dict[DropIn, Text] = Field(
        default_factory=dict,
        description="Content of drop-ins by name, such as `limits`, for a unit that exists or is created here. Other "
        "drop-ins are kept.",
    )
    folder: HostPath = Field(FOLDER, description="Folder of unit files.")
    enabled: bool | None = Field(None, description="Whether it starts at boot. By default not changed.")
    started: bool | None = Field(None, description="Whether it runs now. By default not changed.")
    restart: bool = Field(True, description="With `started: true`: restart a running unit after a change of its files.")
    wait: Duration = Field(90.0, description="Time limit for starting or stopping.")
    settle: Duration = Field(
        0.5, description="Check again this long after a start: a unit that fails at once is a failure."
    )
    state: Literal["present", "absent"] = Field(
        "present",
        description="`absent` stops and disables the unit and removes its file and drop-ins; with `dropIns`, only "
        "those are removed.",
    )

    def model_post_init(self, context: object) -> None:
        if self.content is not None and self.template is not None:
            raise ValueError("content and template exclude each other")
        if self.vars and self.template is None:
            raise ValueError("vars go with `template`")
        if self.state == "absent":
            refuse(self, ("content", "template", "enabled", "started"), "`state: absent`")
        elif self.content is None and self.template is None and not self.drop_ins:
            raise ValueError("say what the unit is: `content`, `template` or `dropIns`; `service` starts and stops it")
        if self.enabled and self.content is not None and "[Install]" not in self.content:
            raise ValueError("content has no [Install] section, so that the unit cannot be enabled")


class SystemdUnitOutputs(Outputs):
    name: str = Field(description="Name of the unit.")
    path: str = Field("", description="Its file; empty if it has none in `folder`.")
    active: bool = Field(False, description="Whether it runs.")
    enabled: bool = Field(False, description="Whether it starts at boot.")


class SystemdUnitStep(_units.UnitStep[SystemdUnitParams]):
    """A systemd unit: its file, its drop-ins, and whether it runs and starts at boot.

    The files are checked by `systemd-analyze verify` before they are used: a unit that systemd would not load is a
    failure and changes nothing; warnings are shown. systemd reloads its files only if they changed.

    For a unit that comes with a package, give only `dropIns`; to start and stop one, use `service`.

    - With `started: true` a running unit is restarted after a change of its files, unless `restart: false`.
    - A file that contains a secret is `0600`, and its diff is hidden. Prefer `EnvironmentFile=` or `LoadCredential=`.
    - `state: absent` does not touch a unit without a file in `folder`: it belongs to a package.
    - Undo restores the old files, and starts or stops, enables or disables the unit as before.
    """

    outputs_model = SystemdUnitOutputs
    example = """\
- name: agent
  type: systemd-unit
  with:
    name: agent
    content: |
      [Service]
      ExecStart=/usr/local/bin/agent --config /etc/agent.yaml
      Restart=on-failure
      [Install]
      WantedBy=multi-user.target
    enabled: true
    started: true
"""

    @staticmethod
    def writes(params: Mapping[str, Any]) -> WrittenFile | None:
        content, template = params.get("content"), params.get("template")
        if content is None and template is None:
            return None
        name = str(params["name"])
        path = f"{FOLDER}/{name if '.' in name else f'{name}.service'}"
        return WrittenFile(path, str(content or ""), str(template or ""), params.get("vars", {}))

    def precheck(self, ctx: StepContext) -> Forecast[_units.Seen]:
        params = self.params
        look = self._look(ctx)
        state = look.states[params.name]
        if params.state == "absent":
            return self._forecast_absence(ctx, look)
        edits = [Edit(look.files[path], text, _units.new_mode(ctx, text)) for path, text in self._wanted(ctx).items()]
        seen = _units.Seen(look, edits)
        if not self._has_file and not state.exists:
            return Forecast.unknown(f"there is no unit {params.name} yet", seen=seen)
        verbs = self._verbs(state, edits)
        shown = diffs(ctx, edits)
        if not shown and not verbs and not state.stale:
            return Forecast.satisfied(f"unit {params.name} is as it should be", self._outputs(state))
        if state.stale and not shown:
            shown.append(Diff(f"unit {params.name}", note="systemd has not read its files yet"))
        before = {"now": word(state), "at boot": at_boot(state)}
        if (will := before | after(verbs)) != before:
            shown.append(attribute_diff(ctx, f"unit {params.name}", before, will))
        verb = "change" if state.exists else "create"
        then = f" and {' and '.join(verbs)} it" if verbs else ""
        return Forecast.change(f"would {verb} unit {params.name}{then}", shown, seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[_units.Seen]) -> Result:
        params = self.params
        look, edits, _ = forecast.seen
        state = look.states[params.name]
        if params.state == "absent":
            return self._remove(ctx, look, edits)
        if not self._has_file:
            must_exist(ctx, params.name, state)
        verbs = self._verbs(state, edits)
        written = any(edit.any for edit in edits)
        # By their names below the folder of units.
        texts = {edit.held.path.removeprefix(f"{params.folder}/"): edit.after or "" for edit in edits}
        warned = _units.verify(ctx, [params.name], texts) if written else ""
        restarts = "restart" in verbs
        _units.save(ctx, edits, state, restarts=restarts)
        apply(ctx, edits)
        if written or state.stale:
            ctx.runner.units.reload()
        now = ctx.runner.services.look(params.name)
        must_exist(ctx, params.name, now)
        verbs = self._verbs(now, edits)
        for verb in verbs:
            do(ctx, verb, now, params.wait, params.settle)
        now = ctx.runner.services.look(params.name)
        _units.save(ctx, edits, state, restarts=restarts, left=now)
        message = f"{'changed' if state.exists else 'created'} unit {params.name}"
        message += (f", {done(verbs)} it" if verbs else "") + (f" ({warned})" if warned else "")
        return Result(message=message, outputs=self._outputs(now))

    # what is, and what should be

    @property
    def _path(self) -> str:
        return f"{self.params.folder}/{self.params.name}"

    @property
    def _has_file(self) -> bool:
        return self.params.content is not None or self.params.template is not None

    def _text(self, ctx: StepContext) -> str | None:
        params = self.params
        text = params.content
        if params.template is not None:
            text = ctx.render_template(params.template, params.vars)
        return text if text is None or text.endswith("\n") else text + "\n"

    def _look(self, ctx: StepContext) -> UnitLook:
        params = self.params
        ctx.runner.units.needed(f"unit {params.name}")
        files = [f"{self._path}.d/{name}" for name in params.drop_ins]
        if self._has_file or (params.state == "absent" and not params.drop_ins):
            files.insert(0, self._path)
        return ctx.runner.units.look([params.name], files, f"{self._path}.d")

    def _wanted(self, ctx: StepContext) -> dict[str, str]:
        wanted = {f"{self._path}.d/{name}": text for name, text in self.params.drop_ins.items()}
        text = self._text(ctx)
        return wanted if text is None else {self._path: text, **wanted}

    def _verbs(self, state: ServiceState, edits: list[Edit]) -> list[Verb]:
        params = self.params
        verbs: list[Verb] = []
        if params.enabled is not None and state.enabled is not params.enabled and not (state.fixed and state.enabled):
            verbs.append("enable" if params.enabled else "disable")
        elif params.enabled and any(_installs_otherwise(edit) for edit in edits):
            verbs.append("reenable")
        runs = state.active == "active"
        if params.started and not runs:
            verbs.append("start")
        elif params.started and params.restart and any(edit.any for edit in edits):
            verbs.append("restart")
        elif params.started is False and state.active in ("active", "changing"):
            verbs.append("stop")
        return verbs

    def _outputs(self, state: ServiceState) -> dict[str, Any]:
        path = self._path if self._has_file else ""
        active = state.active == "active"
        return {"name": self.params.name, "path": path, "active": active, "enabled": state.enabled}

    # absence

    def _gone(self, ctx: StepContext, seen: UnitLook) -> list[Edit]:
        """What is to be removed: the drop-ins that are named, or the unit's file and all its drop-ins."""
        edits = [Edit(held, None) for held in seen.files.values()]
        if self.params.drop_ins or not edits[0].any or not seen.dropins:
            return edits
        more = ctx.runner.units.look([self.params.name], list(seen.dropins))
        return [*edits, *(Edit(held, None) for held in more.files.values())]

    def _forecast_absence(self, ctx: StepContext, look: UnitLook) -> Forecast[_units.Seen]:
        name = self.params.name
        edits = self._gone(ctx, look)
        if not any(edit.any for edit in edits):
            return Forecast.satisfied(f"there is nothing of unit {name}", self._left(look))
        return Forecast.change(f"would remove {self._what} {name}", diffs(ctx, edits), seen=_units.Seen(look, edits))

    def _remove(self, ctx: StepContext, look: UnitLook, edits: list[Edit]) -> Result:
        name, only = self.params.name, bool(self.params.drop_ins)
        dropins = f"{self._path}.d"
        _units.remove(ctx, look.states[name], edits, self.params.wait, name=name, dropins=dropins, stop=not only)
        return Result(message=f"removed {self._what} {name}", outputs=self._left(look))

    @property
    def _what(self) -> str:
        return "drop-ins of unit" if self.params.drop_ins else "unit"

    def _left(self, seen: UnitLook) -> dict[str, Any]:
        """The outputs when it is gone; without its drop-ins a unit is still what it was."""
        if self.params.drop_ins:
            return self._outputs(seen.states[self.params.name])
        return {"name": self.params.name, "path": "", "active": False, "enabled": False}


def _installs_otherwise(edit: Edit) -> bool:
    """Whether a unit that is there says something else about being enabled now."""
    if not edit.any or not edit.held.exists or edit.after is None or edit.held.path.endswith(".conf"):
        return False
    return _units.install_section(edit.held.text) != _units.install_section(edit.after)

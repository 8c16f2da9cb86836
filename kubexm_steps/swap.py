"""The step type ``swap``: swap space that is on, off, or gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.storage import FstabLine, Swaps, appended, edited, fstab_lines
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep, restore
from kubexm_steps.lib.standing import differing, together
from kubexm_steps.lib.types import HostPath, refuse

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MEBIBYTE: Final = 1 << 20
_OFF: Final = "# turned off by kubexm: "


def _size(value: Any) -> Any:
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        if found is None:
            raise ValueError(f"{value!r} is not a size such as 512M or 2G")
        value = int(found[1]) * _UNITS[found[2].upper()]
    if isinstance(value, int) and not isinstance(value, bool) and (value < _MEBIBYTE or value % _MEBIBYTE):
        raise ValueError("the size of swap space is a number of whole mebibytes, such as 512M or 2G")
    return value


def _switch(value: Any) -> Any:
    """YAML 1.1 takes on and off for yes and no."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class SwapParams(Params):
    """Parameters of ``swap``."""

    state: Annotated[
        Literal["on", "off", "absent"],
        BeforeValidator(_switch, json_schema_input_type=Literal["on", "off", "absent"] | bool),
    ] = Field(
        "on",
        description="`on`: used now and at every boot; `off`: not used, and its lines in fstab are commented out; "
        "`absent`: not used, and its line and file are removed.",
    )
    path: HostPath | None = Field(
        None,
        description="The file, or a device that is already a swap space. `off` without it means all swap spaces.",
    )
    size: (
        Annotated[
            int,
            BeforeValidator(_size),
            WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}], "examples": ["2G"]}),
        ]
        | None
    ) = Field(None, description="With `on`: size of the file, such as `2G`. Not for a device.")

    def model_post_init(self, context: object) -> None:
        if self.state != "off" and self.path is None:
            raise ValueError("say which file or device: `path`")
        if self.state != "on":
            refuse(self, ["size"], f"`state: {self.state}`")


class SwapOutputs(Outputs):
    active: list[str] = Field(description="All swap spaces in use.")


class SwapStep(RestoringStep[SwapParams, Swaps]):
    """Swap space: a file or device that is in use, or no swap space at all.

    `state: off` without a path is what Kubernetes requires: swap is turned off, and all swap lines of `/etc/fstab` are
    commented out. Only these lines are changed.

    - With `on` and a `size`, the file is created (0600) if it is missing or has another size. A device is used only if
      it is already a swap space: nothing is ever overwritten.
    - Swap space in use but not in fstab (zram, a systemd unit) is turned off too; the message warns that
      something else may turn it on again at the next boot.
    - Undo restores fstab, and turns swap spaces on and off as before.
    """

    outputs_model = SwapOutputs
    example = """\
- name: no-swap
  type: swap
  with: {state: "off"}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Swaps]:
        now = self._look(ctx)
        edit, shown = self._edit(now), self._changes(now)
        if not edit.any and not shown:
            word = "on" if self.params.state == "on" else "not in use"
            message = f"{self.params.path} is {word}" if self.params.path else "no swap space is in use"
            return Forecast.satisfied(message, {"active": list(now.active)})
        if self.params.state == "on" and not now.kind and self.params.size is None:
            return Forecast.unknown(f"{self.params.path} does not exist yet", seen=now)
        verb = {"on": "turn on", "off": "turn off", "absent": "remove"}[self.params.state]
        message = f"would {verb} {self.params.path or 'all swap space'}{self._strangers(now)}"
        return Forecast.change(message, [*shown, *diffs(ctx, [edit])], seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Swaps]) -> Result:
        now = forecast.seen
        edit = self._edit(now)
        if self.params.state == "on":
            self._turn_on(ctx, now, edit)
        else:
            gone = self._ours(now)
            removed = now.size if self.params.state == "absent" and now.kind == "file" else 0
            save(ctx, [edit], off=gone, on="", made=0, removed=removed)
            ctx.runner.swap.off(*gone)
            if removed:
                ctx.runner.remove(now.path)
        if edit.any:
            apply(ctx, [edit])
            ctx.runner.mounts.reload()
        active = [path for path in now.active if path not in self._ours(now)]
        if self.params.state == "on":
            active.append(now.path)
        verb = {"on": "turned on", "off": "turned off", "absent": "removed"}[self.params.state]
        message = f"{verb} {self.params.path or 'all swap space'}{self._strangers(now)}"
        return Result(message=message, outputs={"active": active})

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare fstab and the size of the swap file with what was left; on or off is as it was, or as it was left."""
        files = super().standing(ctx, undo)
        now = ctx.runner.swap.look(self.params.path or "")
        active = [path for path in (*undo["off"], undo["on"]) if path in now.active]
        as_before = sorted(active) == sorted(undo["off"])
        if not undo["made"] and not undo["removed"]:
            return together(files, Standing(before=as_before))
        size = differing(now.path, undo["removed"], undo["made"], now.size if now.kind else 0, "its size")
        return together(files, size, Standing(before=as_before))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        if undo["files"]:
            ctx.runner.mounts.reload()
        now = ctx.runner.swap.look(self.params.path or "")
        made = undo["on"]
        if made and made in now.active and made not in undo["off"]:
            ctx.runner.swap.off(made)
        if undo["made"] and not undo["removed"]:
            ctx.runner.remove(made)
        if undo["removed"] and (not now.kind or now.size != undo["removed"]):
            ctx.runner.swap.off(*(path for path in (now.path,) if path in now.active))
            ctx.runner.swap.make(now.path, undo["removed"])
            if now.path not in undo["off"]:
                ctx.runner.swap.off(now.path)
            now = ctx.runner.swap.look()
        ctx.runner.swap.on(*(path for path in undo["off"] if path not in now.active))

    def _turn_on(self, ctx: StepContext, now: Swaps, edit: Edit) -> None:
        """Make the file if that is needed, and use it."""
        params = self.params
        if not self._is_to_be_made(now):
            if not now.kind:
                raise StepFailed(f"turn on {params.path}: there is no such file", hint="set `size` to create it")
            if now.path not in now.active and not now.signed:
                raise StepFailed(
                    f"turn on {params.path}: it is not a swap space, and may contain data",
                    hint="run `mkswap` on it yourself if it is the right one; with `size`, a file is created",
                )
            idle = [path for path in (now.path,) if path not in now.active]
            save(ctx, [edit], off=[], on="".join(idle), made=0, removed=0)
            ctx.runner.swap.on(*idle)
            return
        size = params.size or 0
        if now.free is not None and size > now.free + now.size:
            raise StepFailed(
                f"create swap space {params.path}: it needs {size >> 20} MiB, and {now.free >> 20} MiB are free",
                hint="choose a smaller size, or a place with more room",
            )
        used = [now.path] if now.path in now.active else []
        save(ctx, [edit], off=used, on=now.path, made=size, removed=now.size)
        ctx.runner.swap.off(*used)
        ctx.runner.swap.make(now.path, size)

    def _look(self, ctx: StepContext) -> Swaps:
        params = self.params
        now = ctx.runner.swap.look(params.path or "")
        if now.kind == "other":
            raise StepFailed(f"{params.path} is neither a file nor a block device", hint="choose another path")
        if now.kind == "device" and params.size is not None:
            raise StepFailed(f"{params.path} is a device: its size cannot be set", hint="remove `size`")
        if self._is_to_be_made(now) and now.kind == "file" and not now.signed and now.size:
            raise StepFailed(
                f"{params.path} exists and is not a swap space", hint="choose another path, or remove the file first"
            )
        return now

    def _is_to_be_made(self, now: Swaps) -> bool:
        params = self.params
        if params.state != "on" or params.size is None or now.kind == "device":
            return False
        return not now.kind or now.size != params.size or (now.path not in now.active and not now.signed)

    def _ours(self, now: Swaps) -> list[str]:
        if self.params.path is None:
            return list(now.active)
        return [path for path in now.active if path == now.path]

    def _changes(self, now: Swaps) -> list[Diff]:
        if self.params.state == "on":
            if self._is_to_be_made(now):
                size = (self.params.size or 0) >> 20
                was = f"{now.size >> 20} -> " if now.kind else ""
                return [Diff(now.path, note=f"swap file of {was}{size} MiB made and turned on")]
            return [] if now.path in now.active else [Diff(self.params.path or "", note="turned on")]
        found = [Diff(path, note="turned off") for path in self._ours(now)]
        if self.params.state == "absent" and now.kind == "file":
            found.append(Diff(now.path, note="removed"))
        return found

    def _edit(self, now: Swaps) -> Edit:
        text = now.fstab.text
        mine = {self.params.path, now.path}

        def is_ours(line: FstabLine) -> bool:
            return line.is_swap and (self.params.path is None or line.src in mine)

        match self.params.state:
            case "on":
                wanted = FstabLine(self.params.path or "", "none", "swap", "sw")
                if not any(is_ours(line) for line in fstab_lines(text)):
                    text = appended(text, wanted)
            case "off":
                text = edited(text, lambda line: f"{_OFF}{line.text()}" if is_ours(line) else line)
            case "absent":
                text = edited(text, lambda line: None if is_ours(line) else line)
        return Edit(now.fstab, text if text or now.fstab.exists else None)

    def _strangers(self, now: Swaps) -> str:
        """A note on swap space that something else than fstab turned on."""
        if self.params.state == "on":
            return ""
        known = {line.src for line in fstab_lines(now.fstab.text) if line.is_swap}
        # Labels and ids cannot be told apart from here.
        if any("=" in source for source in known):
            return ""
        odd = [path for path in self._ours(now) if path not in known]
        if not odd:
            return ""
        return f"; {', '.join(odd)} is not in fstab: something else may turn it on again at the next boot"

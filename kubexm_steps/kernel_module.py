"""The step type ``kernel-module``: a module of the kernel that is loaded, not loaded, or kept from being loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, StepContext, StepFailed
from kubexm_exec.step.system import Module
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep, restore
from kubexm_steps.lib.types import refuse, shaped


def _options(text: str) -> str:
    if not text.strip() or any(char in text for char in "\r\n\0\\"):
        raise ValueError("options are one line such as `hashsize=131072`, without backslashes")
    return " ".join(text.split())


class KernelModuleParams(Params):
    """Parameters of ``kernel-module``."""

    # Both spellings mean the same; the kernel itself has no dashes.
    name: Annotated[
        str,
        shaped(r"[A-Za-z0-9][A-Za-z0-9_-]*", "the name of a kernel module, such as br_netfilter"),
        AfterValidator(lambda name: name.replace("-", "_")),
    ] = Field(description="The module, such as `br_netfilter`.")
    state: Literal["loaded", "absent", "blacklisted"] = Field(
        "loaded",
        description="`loaded`; `absent`: unloaded, and not loaded at boot by kubexm; `blacklisted`: unloaded, and "
        "not loaded automatically.",
    )
    persist: bool = Field(True, description="With `loaded`: also load it at every boot.")
    options: Annotated[str, AfterValidator(_options)] | None = Field(
        None, description="With `loaded`: its options, such as `hashsize=131072`. They take effect when it is loaded."
    )

    def model_post_init(self, context: object) -> None:
        if self.state != "loaded":
            refuse(self, ["options"], f"`state: {self.state}`")


class KernelModuleOutputs(Outputs):
    name: str = Field(description="The module, as the kernel spells it.")
    builtin: bool = Field(description="Whether it is built into the kernel.")


class KernelModuleStep(RestoringStep[KernelModuleParams, Module]):
    """A kernel module: loaded now and at every boot, not loaded, or blacklisted.

    It is loaded with modprobe and listed in `/etc/modules-load.d/kubexm-NAME.conf`; its options or blacklisting are
    in `/etc/modprobe.d/kubexm-NAME.conf`. Other files are not changed.

    - A module built into the kernel counts as loaded; it cannot be absent or blacklisted.
    - New options of a loaded module take effect when it is loaded again; the message says so.
    - `-` and `_` in a name are equivalent.
    - Undo restores the files, and loads or unloads the module as before.
    """

    outputs_model = KernelModuleOutputs
    example = """\
- name: bridge
  type: kernel-module
  with: {name: br_netfilter}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Module]:
        now = self._look(ctx)
        edits, moves = self._edits(now), self._moves(now)
        if not moves and not any(edit.any for edit in edits):
            word = "built into the kernel" if now.builtin else "loaded" if self._wants_it else "not loaded"
            return Forecast.satisfied(f"{self.params.name} is {word}", self._outputs(now))
        if moves and not now.modprobe:
            return Forecast.unknown("modprobe is not installed yet", seen=now)
        if moves and self._wants_it and not now.found:
            return Forecast.unknown(f"the kernel {now.kernel} has no module {self.params.name} yet", seen=now)
        shown = diffs(ctx, edits)
        if moves:
            note = "loaded" if self._wants_it else "unloaded"
            shown.insert(0, Diff(f"kernel module {self.params.name}", note=note))
        verb = "change the files of" if not moves else "load" if self._wants_it else "unload"
        return Forecast.change(f"would {verb} {self.params.name}{self._late(now)}", shown, seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Module]) -> Result:
        """Write its options, because they count when it is loaded; load or unload it; then see to the next boot."""
        name, now = self.params.name, forecast.seen
        edits, moves = self._edits(now), self._moves(now)
        save(ctx, edits, moved=moves, loaded=now.loaded)
        settings, boot = edits
        if moves and self._wants_it:
            # What cannot be loaded never gets in the way of a boot.
            apply(ctx, [settings])
            ctx.runner.kernel.load(name)
            apply(ctx, [boot])
            after = ctx.runner.kernel.module(name, ())
            if not after.loaded and not after.builtin:
                raise StepFailed(
                    f"load kernel module {name}: modprobe succeeded, but the kernel does not list it",
                    hint=f"it may be an alias: use the name that `modprobe -R {name}` shows",
                )
            return Result(message=f"loaded {name}", outputs=self._outputs(after))
        apply(ctx, edits)
        if moves:
            ctx.runner.kernel.unload(name)
            return Result(message=f"unloaded {name}", outputs=self._outputs(now))
        return Result(message=f"changed the files of {name}{self._late(now)}", outputs=self._outputs(now))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        if not undo["moved"]:
            return
        now = ctx.runner.kernel.module(self.params.name, ())
        if undo["loaded"] and not now.loaded:
            ctx.runner.kernel.load(self.params.name)
        elif not undo["loaded"] and now.loaded:
            ctx.runner.kernel.unload(self.params.name)

    @property
    def _wants_it(self) -> bool:
        return self.params.state == "loaded"

    @property
    def _files(self) -> tuple[str, str]:
        name = self.params.name
        return f"/etc/modules-load.d/kubexm-{name}.conf", f"/etc/modprobe.d/kubexm-{name}.conf"

    def _look(self, ctx: StepContext) -> Module:
        now = ctx.runner.kernel.module(self.params.name, self._files)
        if now.builtin and not self._wants_it:
            raise StepFailed(
                f"kernel module {self.params.name} is built into the kernel {now.kernel}: it cannot be unloaded",
                hint="some can be turned off on the kernel's command line (initcall_blacklist=)",
            )
        return now

    def _moves(self, now: Module) -> bool:
        return not (now.loaded or now.builtin) if self._wants_it else now.loaded

    def _edits(self, now: Module) -> list[Edit]:
        params = self.params
        at_boot, settings = (now.files[path] for path in self._files)
        lines = f"options {params.name} {params.options}\n" if params.options is not None else None
        if params.state == "blacklisted":
            lines = f"blacklist {params.name}\n"
        boot = f"{params.name}\n" if self._wants_it and params.persist else None
        return [Edit(settings, lines), Edit(at_boot, boot)]

    def _late(self, now: Module) -> str:
        """A note, if options come too late."""
        settings = self._edits(now)[0]
        if self.params.options is None or not settings.any or not (now.loaded or now.builtin):
            return ""
        return "; it is already loaded: its options take effect when it is loaded again"

    def _outputs(self, now: Module) -> dict[str, Any]:
        return {"name": self.params.name, "builtin": now.builtin}

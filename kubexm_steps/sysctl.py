"""The step type ``sysctl``: kernel settings, now and at every boot."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.system import Settings
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import HIDDEN, RestoringStep, restore
from kubexm_steps.lib.lines import split
from kubexm_steps.lib.standing import mapped, together
from kubexm_steps.lib.types import Setting, shaped

_FOLDER: Final = "/etc/sysctl.d"
_HEADER: Final = "# Written by kubexm; each of its sysctl steps changes only its own keys.\n"
# Settings that come with a module.
_MODULES: Final = {"net/bridge/": "br_netfilter", "net/netfilter/nf_conntrack": "nf_conntrack"}


def _plain_value(value: str) -> str:
    if not value.strip():
        raise ValueError("the value of a kernel setting is not empty")
    return plain(value)


class SysctlParams(Params):
    """Parameters of ``sysctl``."""

    values: dict[
        Annotated[
            str,
            shaped(
                r"[A-Za-z0-9_:@-]+([./][A-Za-z0-9_:@-]+)+", "the name of a kernel setting, such as net.ipv4.ip_forward"
            ),
        ],
        Annotated[Setting, AfterValidator(_plain_value)],
    ] = Field(min_length=1, description="Settings by name, as in `sysctl`: `net.ipv4.ip_forward: 1`.")
    file: Annotated[
        str,
        shaped(
            r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.conf",
            f"a name for a file in {_FOLDER}; it ends with .conf and has no folder",
        ),
    ] = Field("90-kubexm.conf", description=f"Name of the file in `{_FOLDER}` that sets them at boot.")
    live: bool = Field(True, description="Also set them in the running kernel; `false` waits for the next boot.")


class SysctlOutputs(Outputs):
    file: str = Field(description="The file that sets them at boot.")


class SysctlStep(RestoringStep[SysctlParams, Settings]):
    """Kernel settings, in the running kernel and at every boot.

    They are written to kubexm's own file in `/etc/sysctl.d` and applied at once. Several steps can use the same file:
    each changes only its own keys.

    - An unknown key is a failure with a suggestion. Some keys belong to a module: load it first with a
      `kernel-module` step.
    - A value that the kernel refuses or changes is a failure; then nothing is changed.
    - If a file that is read later sets another value, the message says so: that value would win at boot.
    - Undo restores the file and the former values of the running kernel.
    """

    outputs_model = SysctlOutputs
    example = """\
- name: forwarding
  type: sysctl
  with:
    values:
      net.ipv4.ip_forward: 1
      net.bridge.bridge-nf-call-iptables: 1
"""

    def precheck(self, ctx: StepContext) -> Forecast[Settings]:
        now = self._look(ctx)
        if self.params.live and now.missing:
            return Forecast.unknown(f"the kernel has no {', '.join(self._names(now.missing))} yet", seen=now)
        edit, live = self._edit(now), self._live(now)
        if not edit.any and not live:
            return Forecast.satisfied(self._message("as they should be", now), self._outputs())
        shown = diffs(ctx, [edit])
        for path, value in live.items():
            note = HIDDEN if ctx.sensitive else f"{plain(now.live[path])} -> {value}"
            shown.append(Diff(f"/proc/sys/{path}", note=note))
        names = self._names(live) if live else list(self.params.values)
        return Forecast.change(self._message(f"would set {', '.join(names)}", now, names=False), shown, seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Settings]) -> Result:
        """Set them, then write the file: a value that the kernel refuses is not kept for the next boot."""
        now = forecast.seen
        if self.params.live and now.missing:
            raise self._unknown(now)
        edit, live = self._edit(now), self._live(now)
        former = {path: plain(now.live[path]) for path in live}
        save(ctx, [edit], live=former, left=live)
        if live:
            self._set(ctx, live, former)
        apply(ctx, [edit])
        names = self._names(live) if live else list(self.params.values)
        return Result(message=self._message(f"set {', '.join(names)}", now, names=False), outputs=self._outputs())

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        live = Standing(before=True)
        if undo["live"]:
            now = ctx.runner.kernel.settings(list(undo["live"]), self._path).live
            left = undo.get("left", now)
            live = mapped(
                {key_of(path): value for path, value in undo["live"].items()},
                {key_of(path): plain(left.get(path, "")) for path in undo["live"]},
                {key_of(path): plain(now.get(path, "")) for path in undo["live"]},
            )
        return together(super().standing(ctx, undo), live)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        if undo["live"]:
            ctx.runner.kernel.set(undo["live"])
        restore(ctx, undo)

    def _look(self, ctx: StepContext) -> Settings:
        now = ctx.runner.kernel.settings([path_of(key) for key in self.params.values], self._path)
        if self.params.live and now.closed:
            raise StepFailed(
                f"{', '.join(self._names(now.closed))} cannot be read",
                hint="it is an action rather than a setting, or only root can read it: set `become`, or use `command`",
            )
        return now

    def _set(self, ctx: StepContext, live: Mapping[str, str], former: Mapping[str, str]) -> None:
        for path, made in ctx.runner.kernel.set(live, former).items():
            if plain(made) != live[path]:
                ctx.runner.kernel.set(former)
                shown = "something else" if ctx.sensitive else repr(plain(made))
                raise StepFailed(
                    f"set {self._names([path])[0]}: the kernel changed it to {shown}",
                    hint="write the whole value, as the kernel shows it",
                )

    def _live(self, now: Settings) -> dict[str, str]:
        if not self.params.live:
            return {}
        wanted = {path_of(key): value for key, value in self.params.values.items()}
        return {path: value for path, value in wanted.items() if plain(now.live[path]) != value}

    def _edit(self, now: Settings) -> Edit:
        return Edit(now.file, with_values(now.file.text, self.params.values))

    def _unknown(self, now: Settings) -> StepFailed:
        path, beside = next(iter(now.missing.items()))
        key = self._names([path])[0]
        module = next((name for start, name in _MODULES.items() if path.startswith(start)), "")
        close = difflib.get_close_matches(path.rpartition("/")[2], beside, n=1)
        if module:
            hint = f"it belongs to the module {module}: load it first with a `kernel-module` step"
        elif close:
            hint = f"did you mean {key_of(path.rpartition('/')[0] + '/' + close[0])}?"
        else:
            hint = "check its name with `sysctl -a`; the kernel module that provides it may not be loaded yet"
        return StepFailed(f"the kernel has no setting {key}", hint=hint)

    def _names(self, paths: Any) -> list[str]:
        """The names for paths, as the user wrote them."""
        return [key for key in self.params.values if path_of(key) in paths]

    def _message(self, what: str, now: Settings, *, names: bool = True) -> str:
        head = f"{', '.join(self.params.values)}: {what}" if names else what
        later = [
            f"{file} sets {key_of(path)} to something else and takes precedence at boot"
            for file, path in overridden(now.others, self._path, self.params.values)
        ]
        return "; ".join([head, *later])

    @property
    def _path(self) -> str:
        return f"{_FOLDER}/{self.params.file}"

    def _outputs(self) -> dict[str, Any]:
        return {"file": self._path}


def plain(value: str) -> str:
    """A value with single blanks: the kernel shows tabs where people write blanks."""
    return " ".join(value.split())


def path_of(key: str) -> str:
    """The path of a setting below /proc/sys: the first of `.` and `/` in it separates, the other one is literal."""
    first = re.search(r"[./]", key)
    return key if first is None or first[0] == "/" else key.translate({ord("."): "/", ord("/"): "."})


def key_of(path: str) -> str:
    """The name of a setting, from its path."""
    return path.translate({ord("."): "/", ord("/"): "."})


def _setting(line: str) -> tuple[str, str] | None:
    """The key and the value that a line sets; a dash before the key says that it may fail."""
    key, equals, value = line.partition("=")
    key = key.strip().removeprefix("-").lstrip()
    return (key, value.strip()) if equals and key and key[0] not in "#;" else None


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text of a sysctl file with these values, and all else as it is."""
    wanted = {path_of(key): (key, value) for key, value in values.items()}
    lines, _ = split(text or _HEADER)
    new: list[str] = []
    done: set[str] = set()
    for line in lines:
        found = _setting(line)
        path = path_of(found[0]) if found else ""
        if found is None or path not in wanted:
            new.append(line)
        elif path not in done:
            done.add(path)
            key, value = wanted[path]
            new.append(line if plain(found[1]) == value else f"{key} = {value}")
    new += [f"{key} = {value}" for path, (key, value) in wanted.items() if path not in done]
    return "\n".join(new) + "\n"


def overridden(others: Any, ours: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Files that are read after ours and set one of the keys to something else."""
    wanted = {path_of(key): value for key, value in values.items()}
    found: list[tuple[str, str]] = []
    for file, line in others:
        name = file.rpartition("/")[2]
        later = file == "/etc/sysctl.conf" or name > ours.rpartition("/")[2]
        said = _setting(line)
        if later and said and wanted.get(path_of(said[0]), plain(said[1])) != plain(said[1]):
            found.append((file, path_of(said[0])))
    return list(dict.fromkeys(found))

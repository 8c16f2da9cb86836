"""The step type ``hostname``: the name of the host itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext
from kubexm_exec.step.system import Names
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep, restore
from kubexm_steps.lib.hosts import HostsLine, check_name, parse_line
from kubexm_steps.lib.lines import joined, split
from kubexm_steps.lib.standing import differing, together


def _host(name: str) -> str:
    if len(name) > 64:
        raise ValueError("the kernel takes names of up to 64 characters")
    if name.endswith(".") or name == "localhost":
        raise ValueError(f"{name!r} cannot be the name of a host")
    return check_name(name)


class HostnameParams(Params):
    """Parameters of ``hostname``."""

    name: Annotated[str, AfterValidator(_host)] = Field(
        description="The name: short (`node1`) or with a domain (`node1.example`)."
    )
    hosts_file: bool = Field(
        False,
        description="Make the name resolvable: if `/etc/hosts` lacks it, it is added to the line of 127.0.1.1.",
    )


class HostnameOutputs(Outputs):
    name: str = Field(description="The name of the host.")


class HostnameStep(RestoringStep[HostnameParams, Names]):
    """The name of the host, now and after every boot.

    The name is set with `hostnamectl` on hosts with systemd, otherwise with `hostname`; `/etc/hostname` keeps it
    for the next boot.

    - Running programs keep the old name until they are restarted.
    - With `hostsFile: true` the host can also resolve its own name, as sudo and others expect.
    - Undo restores the former name and files.
    """

    outputs_model = HostnameOutputs
    example = """\
- name: name
  type: hostname
  with: {name: node1.example, hostsFile: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Names]:
        now = ctx.runner.system.names()
        edits = self._edits(now)
        if now.live == self.params.name and not any(edit.any for edit in edits):
            return Forecast.satisfied(f"the host is named {now.live}", self._outputs())
        shown = diffs(ctx, edits)
        if now.live != self.params.name:
            shown.insert(0, Diff("hostname", note=f"{now.live} -> {self.params.name}"))
        return Forecast.change(f"would name the host {self.params.name}", shown, seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Names]) -> Result:
        name, now = self.params.name, forecast.seen
        edits = self._edits(now)
        save(ctx, edits, live=now.live, left=name)
        apply(ctx, edits)
        if now.live == name:
            return Result(message=f"the host keeps the name {name} after a boot", outputs=self._outputs())
        ctx.runner.system.rename(name)
        return Result(message=f"named the host {name} (it was {now.live})", outputs=self._outputs())

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        now = ctx.runner.system.names().live
        name = differing("the name of the host", undo["live"], undo.get("left", now), now, now)
        return together(super().standing(ctx, undo), name)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        if ctx.runner.system.names().live != undo["live"]:
            ctx.runner.system.rename(undo["live"])

    def _edits(self, now: Names) -> list[Edit]:
        name = self.params.name
        # Some systems have comments in there.
        said = [line.strip() for line in now.hostname.text.splitlines() if line.strip() and not line.startswith("#")]
        edits = [Edit(now.hostname, now.hostname.text if said == [name] else f"{name}\n")]
        if self.params.hosts_file:
            edits.append(Edit(now.hosts, with_own_name(now.hosts.text, name)))
        return edits

    def _outputs(self) -> dict[str, Any]:
        return {"name": self.params.name}


def with_own_name(text: str, name: str) -> str:
    """The text of a hosts file in which the host finds its own name."""
    lines, end = split(text)
    said = [parse_line(line) for line in lines]
    if any(line is not None and name in line.names for line in said):
        return text
    short = name.partition(".")[0]
    own = HostsLine("127.0.1.1", (name,) if short == name else (name, short))
    for number, line in enumerate(said):
        if line is not None and line.address == own.address:
            lines[number] = HostsLine(own.address, own.names, line.comment).text()
            return joined(lines, end, text)
    first = next((number for number, line in enumerate(said) if line is not None and line.address == "127.0.0.1"), -1)
    lines.insert(first + 1, own.text())
    return end.join(lines) + end

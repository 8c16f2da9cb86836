"""The step type ``host-entry``: names of hosts in the hosts file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kubexm_exec.step import Forecast, Outputs, Params, Result, StepContext
from kubexm_spec.diagnostics import plural
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep
from kubexm_steps.lib.hosts import HostsLine, check_address, check_name, with_entries, without_entries
from kubexm_steps.lib.lines import with_block
from kubexm_steps.lib.types import refuse, shaped


def _words(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


class HostEntryParams(Params):
    """Parameters of ``host-entry``."""

    entries: dict[
        Annotated[str, AfterValidator(check_address)],
        Annotated[
            list[Annotated[str, AfterValidator(check_name)]],
            Field(min_length=1),
            BeforeValidator(_words, json_schema_input_type=str | list[str]),
        ],
    ] = Field(
        default_factory=dict,
        description="Names by address: a list, or a text with spaces. The first name is the canonical one.",
    )
    block: Annotated[str, shaped(r"\S+( \S+)*", "the name of a block: words on one line")] | None = Field(
        None,
        description="Name of a block with exactly these entries: entries no longer listed are removed. Without it, "
        "each address has its own line.",
    )
    state: Literal["present", "absent"] = Field(
        "present", description="`absent` removes these names from these addresses, or the whole block."
    )

    def model_post_init(self, context: object) -> None:
        if self.block is None and not self.entries:
            raise ValueError("say which names belong to which addresses: `entries`")
        if self.block is not None and self.state == "absent":
            refuse(self, ["entries"], "`state: absent` of a block")


class HostEntryOutputs(Outputs):
    path: str = Field(description="The hosts file.")


class HostEntryStep(RestoringStep[HostEntryParams, Edit]):
    """Names of hosts in `/etc/hosts`, any number at once.

    Without `block`, each address has one line with exactly its names, and a name listed for
    another address of the same family (IPv4 or IPv6) is removed there. With `block`, all entries are between two
    markers, and entries that are no longer listed are removed: use it for the hosts of a cluster.

    - Lines of the host itself (127.x, ::1, localhost) never lose a name.
    - Comments and all other lines are kept.
    - Undo restores the file.
    """

    outputs_model = HostEntryOutputs
    example = """\
- name: cluster
  type: host-entry
  with:
    block: cluster
    entries:
      10.0.0.11: node1.example node1
      10.0.0.12: [node2.example, node2]
"""

    def precheck(self, ctx: StepContext) -> Forecast[Edit]:
        edit = self._edit(ctx)
        if not edit.any:
            return Forecast.satisfied(f"{edit.held.path} is as it should be", {"path": edit.held.path})
        return Forecast.change(f"would change {edit.held.path} ({self._count()})", diffs(ctx, [edit]), seen=edit)

    def run(self, ctx: StepContext, forecast: Forecast[Edit]) -> Result:
        path = forecast.seen.held.path
        save(ctx, [forecast.seen])
        apply(ctx, [forecast.seen])
        return Result(message=f"changed {path} ({self._count()})", outputs={"path": path})

    def _edit(self, ctx: StepContext) -> Edit:
        params = self.params
        held = ctx.runner.system.hosts()
        text = held.text
        if params.block is not None:
            lines = [HostsLine(address, tuple(names)).text() for address, names in params.entries.items()]
            new = with_block(
                text,
                f"# BEGIN kubexm {params.block}",
                f"# END kubexm {params.block}",
                None if params.state == "absent" else lines,
                where=held.path,
            )
        elif params.state == "absent":
            new = without_entries(text, params.entries)
        else:
            new = with_entries(text, params.entries)
        return Edit(held, new if new or held.exists else None)

    def _count(self) -> str:
        if self.params.block is not None and self.params.state == "absent":
            return f"block {self.params.block} removed"
        return plural(len(self.params.entries), "address")

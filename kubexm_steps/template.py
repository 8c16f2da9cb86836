"""The step type ``template``: a file rendered from a template for each host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from kubexm_exec.step import Forecast, StepContext, TemplateName, WrittenFile
from kubexm_steps.lib.files import Change, Content, OneFileStep, forecast_file, new_content, wanted_file
from kubexm_steps.lib.types import WholeFileParams, located


class TemplateParams(WholeFileParams):
    """Parameters of ``template``."""

    src: Annotated[str, TemplateName()] = Field(
        description="Name of the template, such as `etcd/etcd.env.j2`; your own folders are searched before the "
        "shipped ones."
    )
    vars: dict[str, Any] = Field(
        default_factory=dict, description="Additional variables for the template, besides those of every expression."
    )
    trim_blocks: bool = Field(
        default=True, description="Remove the line break after a block (`{% ... %}`) or a comment, as Ansible does."
    )
    lstrip_blocks: bool = Field(
        default=False, description="Remove white space before a block that is the first on its line."
    )


class TemplateStep(OneFileStep[TemplateParams]):
    """A file rendered from a Jinja2 template, for each host with its own values.

    The template can use all names of expressions (`host`, `facts`, `params`, `vars`, `steps`, ...) and those in `vars`
    directly. An unknown name is an error before anything runs.

    - A line with nothing but a block leaves nothing behind: the line break after a block is removed (`trimBlocks`).
      Indented blocks leave their indentation, unless `lstripBlocks: true`. Both are as in Ansible, and hold for
      included templates too.
    - Writing, mode, owner, `validate`, `backup` and undo are as in `file`.
    - `check` shows what would change in the rendered text.
    """

    example = """\
- name: env
  type: template
  with:
    src: etcd/etcd.env.j2
    path: /etc/etcd.env
    vars: {clusterState: new}
    mode: "0600"
"""

    @staticmethod
    def writes(params: Mapping[str, Any]) -> WrittenFile:
        return WrittenFile(str(params["path"]), template=str(params["src"]), names=params.get("vars", {}))

    def precheck(self, ctx: StepContext) -> Forecast[Change]:
        params = located(ctx, self.params)
        text = ctx.render_template(
            params.src, params.vars, trim_blocks=params.trim_blocks, lstrip_blocks=params.lstrip_blocks
        )
        content = Content.of(text)
        return forecast_file(ctx, new_content(params, wanted_file(params, content)))

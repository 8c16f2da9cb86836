"""The step type ``template``: a file rendered from a template for each host."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from kubexm_exec.step import Forecast, StepContext, TemplateName
from kubexm_steps.lib.files import Change, Content, OneFileStep, forecast_file, wanted_file
from kubexm_steps.lib.types import OneFileParams, located


class TemplateParams(OneFileParams):
    """Parameters of ``template``."""

    src: Annotated[str, TemplateName()] = Field(
        description="Name of the template, such as `etcd/etcd.env.j2`; your own folders are searched before the "
        "shipped ones."
    )
    vars: dict[str, Any] = Field(
        default_factory=dict, description="Additional variables for the template, besides those of every expression."
    )


class TemplateStep(OneFileStep[TemplateParams]):
    """A file rendered from a Jinja2 template, for each host with its own values.

    The template can use all names of expressions (`host`, `facts`, `params`, `vars`, `steps`, ...) and those in `vars`
    directly. An unknown name is an error before anything runs.

    - Writing, mode, owner and undo are as in `file`.
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

    def precheck(self, ctx: StepContext) -> Forecast[Change]:
        params = located(ctx, self.params)
        content = Content.of(ctx.render_template(params.src, params.vars))
        return forecast_file(ctx, wanted_file(params, content))

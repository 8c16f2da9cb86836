"""The step type ``file``: a file with given content, or no file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kubexm_exec.step import Forecast, StepContext
from kubexm_steps.lib.files import Change, Content, OneFileStep, forecast_absence, forecast_file, wanted_file
from kubexm_steps.lib.types import OneFileParams, Text, located, refuse


class FileParams(OneFileParams):
    """Parameters of ``file``."""

    content: Text | None = Field(
        None, description="Whole content of the file. Without it the file only has to exist; a new one is empty."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the file or link.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("content", "mode", "owner", "group"), "`state: absent`")


class FileStep(OneFileStep[FileParams]):
    """A file with given content, permissions and owner; or its absence.

    Use it for short texts in the spec itself. For longer ones with expressions use `template`, for
    files next to the spec use `copy`, for one line of a shared file use `line-in-file`.

    - The file is replaced atomically: nobody reads an incomplete file, and a failure leaves the old one.
    - An existing file keeps its mode and owner unless they are given; a new file is `0644`.
    - A file of a `sensitive` step, or with a secret in it, is `0600` unless `mode` is set; its diff is hidden.
    - A link at `path` is replaced by a file; its target is not changed. A link elsewhere in the path is a failure
      where other users can write (`follow`).
    - Undo restores the old content, mode, owner and extended attributes (ACL, capabilities, label), or removes the file
      and the folders created for it. Extended attributes need GNU tar on the host; a message says if it is missing.
    """

    example = """\
- name: motd
  type: file
  with:
    path: /etc/motd
    content: |
      Managed by kubexm.
    mode: "0644"
"""

    def precheck(self, ctx: StepContext) -> Forecast[Change]:
        params = located(ctx, self.params)
        if params.state == "absent":
            return forecast_absence(ctx, params.path)
        content = None if params.content is None else Content.of(params.content)
        return forecast_file(ctx, wanted_file(params, content))

"""The step type ``file``: a file with given content, or no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from kubexm_exec.step import Forecast, StepContext, WrittenFile
from kubexm_steps.lib.files import (
    Change,
    Content,
    OneFileStep,
    forecast_absence,
    forecast_file,
    new_content,
    wanted_file,
)
from kubexm_steps.lib.types import Text, WholeFileParams, located, refuse


class FileParams(WholeFileParams):
    """Parameters of ``file``."""

    content: Text | None = Field(
        None, description="Whole content of the file. Without it the file only has to exist; a new one is empty."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the file or link.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("content", "mode", "owner", "group", "validate_", "create_only"), "`state: absent`")
        if self.validate_ is not None and self.content is None:
            raise ValueError("validate needs `content`: there is nothing to validate without it")


class FileStep(OneFileStep[FileParams]):
    """A file with given content, permissions and owner; or its absence.

    Use it for short texts in the spec itself. For longer ones with expressions use `template`, for
    files next to the spec use `copy`, for one line of a shared file use `line-in-file`.

    - The file is replaced atomically: nobody reads an incomplete file, and a failure leaves the old one.
    - An existing file keeps its mode and owner unless they are given; a new file is `0644`.
    - A file of a `sensitive` step, or with a secret in it, is `0600` unless `mode` is set; its diff is hidden.
    - A link at `path` is replaced by a file; its target is not changed. A link elsewhere in the path is a failure
      where other users can write (`follow`).
    - `validate` is run on the host, as the step's user, before anything is changed. For that the new content is also
      sent to a file of the same name in a private folder, which only this user can enter; it is removed in any case.
      A check does not run it, because it would have to write that file.
    - A backup has the owner and group of the old file, and a mode that allows no more than that of the old and of the
      new file; setuid bits and extended attributes are not kept. A file of more than 64 MiB cannot be backed up.
    - Undo removes the backup, and restores the old content, mode, owner and extended attributes (ACL, capabilities,
      label), or removes the file and the folders created for it. Extended attributes need GNU tar on the host; a
      message says if it is missing.
    """

    example = """\
- name: admins
  type: file
  with:
    path: /etc/sudoers.d/admins
    content: |
      %admins ALL=(ALL) ALL
    mode: "0440"
    validate: [visudo, -cf, "%s"]
    backup: true
"""

    @staticmethod
    def writes(params: Mapping[str, Any]) -> WrittenFile | None:
        if params.get("content") is None:
            return None
        return WrittenFile(str(params["path"]), str(params["content"]))

    def precheck(self, ctx: StepContext) -> Forecast[Change]:
        params = located(ctx, self.params)
        if params.state == "absent":
            return forecast_absence(ctx, params.path, backup=params.backup)
        content = None if params.content is None else Content.of(params.content)
        return forecast_file(ctx, new_content(params, wanted_file(params, content)))

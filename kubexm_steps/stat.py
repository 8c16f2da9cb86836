"""The step type ``stat``: what is at a path of the host."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kubexm_exec.step import Forecast, Outputs, Result, Step, StepContext, Undo
from kubexm_steps.lib.types import FollowParams, HostPath, located, show_mode


class StatParams(FollowParams):
    """Parameters of ``stat``."""

    path: HostPath = Field(description="The path on the host, as an absolute path.")
    follow_links: bool = Field(
        False, description="If there is a link at `path`, describe what it leads to; by default the link itself."
    )
    sha256: bool = Field(False, description="Also compute the digest of a file, for which all of it is read.")


class StatOutputs(Outputs):
    path: str = Field(description="The path, without links in it; with `followLinks` what the link leads to.")
    exists: bool = Field(description="Whether there is anything.")
    type: Literal["absent", "file", "directory", "link", "pipe", "socket", "block-device", "char-device"] = Field(
        description="What there is."
    )
    size: int = Field(0, description="Size in bytes; 0 if it does not exist.")
    mode: str = Field("", description='Mode as in `file`: `"0644"`. Empty if it does not exist.')
    owner: str = Field("", description="Name of the owner, or its number if it has none.")
    group: str = Field("", description="Name of the group, or its number if it has none.")
    uid: int | None = Field(None, description="Number of the owner.")
    gid: int | None = Field(None, description="Number of the group.")
    mtime: int | None = Field(None, description="When its content was changed last, in seconds since 1970.")
    target: str = Field("", description="Target of a link, as it is written there.")
    sha256: str = Field("", description="Digest of a file, if asked for; empty if the step is sensitive.")


class StatStep(Step[StatParams]):
    """What is at a path of the host, for conditions of later steps: type, size, mode, owner, time, digest.

    Something that does not exist is no failure: then `exists` is false. `check` and `drift` ask the host too, so that
    conditions with the outputs are known.

    - A folder on the way that may not be entered is a failure, because nobody knows what is behind it.
    - A link elsewhere in the path is a failure where other users can write (`follow`); so is one at the end with
      `followLinks`. A link that leads nowhere does not exist with `followLinks`.
    """

    outputs_model = StatOutputs
    undo = Undo.NEEDLESS
    example = """\
- name: data
  type: stat
  with: {path: /var/lib/etcd/member, followLinks: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.reads(f"only asks: {self.params.path}")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        params = located(ctx, self.params, last=self.params.follow_links)
        digest = params.sha256 and not ctx.sensitive
        found = ctx.runner.stat(params.path, digest=digest, follow=params.follow_links)
        if found.kind == "absent":
            outputs: dict[str, Any] = {"path": found.path, "exists": False, "type": "absent"}
            return Result(changed=False, message=f"{found.path} does not exist", outputs=outputs)
        outputs = {
            "path": found.path,
            "exists": True,
            "type": found.kind,
            "size": found.size,
            "mode": show_mode(found.mode),
            "owner": found.owner,
            "group": found.group,
            "uid": found.uid,
            "gid": found.gid,
            "mtime": found.mtime,
            "target": found.target,
            "sha256": found.sha256,
        }
        to = f" to {found.target}" if found.kind == "link" else ""
        message = f"{found.path}: {found.kind}{to}, {outputs['mode']}, {found.owner}:{found.group}, {found.size} bytes"
        return Result(changed=False, message=message, outputs=outputs)

"""The step type ``download``: a file from the web, an object store or a bundle on the host, with the right digest."""

from __future__ import annotations

import posixpath
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import structs
from pydantic import Field

from kubexm_exec.step import (
    Diff,
    Duration,
    Forecast,
    Resource,
    ResourceError,
    ResourceName,
    ResourceUrl,
    Result,
    StepContext,
    StepFailed,
)
from kubexm_exec.step.downloads import Download
from kubexm_exec.step.host import FileState
from kubexm_steps.lib.files import (
    Change,
    Content,
    FileOutputs,
    RestoringStep,
    apply_change,
    compare,
    lacks_folder,
    read_local,
    remember,
    remember_left,
    wanted_file,
)
from kubexm_steps.lib.types import OneFileParams, located, refuse, show_owner


class DownloadParams(OneFileParams):
    """Parameters of ``download``."""

    resource: Annotated[str | None, ResourceName()] = Field(
        None, description="Name of one of the spec's `resources`; or use `url`."
    )
    url: Annotated[str | None, ResourceUrl()] = Field(
        None, description="Address of the file: http://, https:// or s3://BUCKET/KEY."
    )
    sha256: str | None = Field(
        None, pattern="^[0-9a-fA-F]{64}$", description="Expected digest. Without it there is a warning."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers of the request, with `url`; secrets as `{{ secret('env:NAME') }}`."
    )
    ca_file: str | None = Field(
        None, description="CA file on the control node for the server's certificate, with `url`."
    )
    timeout: Duration | None = Field(
        None, gt=0, description="Maximum silence of the server, with `url`; 30s by default."
    )
    retries: int | None = Field(
        None, ge=0, le=100, description="How often an interrupted transfer is retried, with `url`; 5 by default."
    )
    fetch_on: Literal["control", "host"] | None = Field(
        None, description="Who fetches it: the control node once for all hosts (default), or each host itself."
    )

    def model_post_init(self, context: object) -> None:
        if (self.resource is None) == (self.url is None):
            raise ValueError("download takes either resource (a name) or url")
        if self.resource is not None:
            names = ("sha256", "ca_file", "timeout", "retries", "headers")
            refuse(self, names, "`resource`: write them where the resource is defined")


class Seen(NamedTuple):
    """What is to be fetched, the digest that it must have (empty: any), and the change of the file."""

    resource: Resource
    digest: str
    change: Change


class DownloadStep(RestoringStep[DownloadParams, Seen]):
    """A file from elsewhere on the host, verified by its digest.

    A file that already has the digest is kept, and nothing is fetched.

    - The control node fetches it once, however many hosts need it, caches it, and sends it. With
      `fetchOn: host` each host fetches it with its own `curl` or `wget`.
    - The content is verified by `sha256` before it is used. Other content is refused, and kept aside.
    - An interrupted download continues where it stopped, even in a later run.
    - Without `sha256` every run asks the source for a newer version. With `fetchOn: host` an existing file
      is considered correct.
    - Undo restores the replaced file (up to 64 MiB), or removes the new one.
    """

    outputs_model = FileOutputs
    example = """\
- name: etcd
  type: download
  with:
    url: https://example.com/etcd-v3.5.16-linux-amd64.tar.gz
    sha256: b414b27a5ad05f7cb01395c447c85d3227e3fb1c176e51757a283b817f645ccc
    path: /var/cache/etcd-v3.5.16-linux-amd64.tar.gz
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        """Compare by digest, without fetching anything if the digest is known."""
        self.params = located(ctx, self.params)
        resource = self._resource(ctx)
        digest = self._digest(ctx, resource)
        path = self.params.path
        before = ctx.runner.inspect(path)
        change = self._change(ctx, digest, before)
        if not change.any:
            return Forecast.satisfied(self._fine(digest), self._outputs(ctx, before))
        seen = Seen(resource, digest, change)
        if before.above and not self.params.create_parents:
            return lacks_folder(path, seen)
        if not change.content:
            return Forecast.change(
                f"would change {path} ({change.summary()})", [Diff(path, note=", ".join(change.notes()))], seen=seen
            )
        if not before.folder and self.params.create_parents:
            folders = ctx.runner.missing_folders(posixpath.dirname(path), before)
            seen = Seen(resource, digest, structs.replace(change, folders=folders))
        notes = [*change.notes(), f"content of {resource.shown}"]
        diff = Diff(path, note=", ".join(notes))
        return Forecast.change(f"would download {resource.shown} to {path}", [diff], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        resource, digest, change = forecast.seen
        path, before = self.params.path, change.before
        if not change.content:
            remember(ctx, [change], [])
            apply_change(ctx, change)
            return Result(message=f"changed {path} ({change.summary()})", outputs=self._outputs(ctx, before))
        local = None if resource.fetch_on == "host" else ctx.fetch(resource)
        undo = remember(ctx, [change], change.folders)
        if change.folders:
            ctx.runner.mkdir(change.folders[-1], missing=change.folders)
        if local is not None:
            wanted = wanted_file(self.params, Content(local.sha256, local.size, None, local.path))
            apply_change(ctx, Change(wanted, before, change.mode, True, change.permissions, change.ownership))
            got, size = local.sha256, local.size
        else:
            got, size = self._on_host(ctx, resource, change)
            if not digest:
                remember_left(ctx, undo)
        missing = "" if resource.sha256 else f"; add sha256: {got}"
        bundled = local is not None and local.where == "bundle"
        done = f"copied {resource.label} from the bundle" if bundled else f"downloaded {resource.shown}"
        return Result(
            message=f"{done} to {path}{missing}",
            outputs={"path": path, "sha256": "" if ctx.sensitive else got, "size": size},
        )

    def _resource(self, ctx: StepContext) -> Resource:
        params = self.params
        if params.resource is not None:
            found = ctx.resource(params.resource)
            if params.fetch_on is None:
                return found
            if params.fetch_on == "host" and found.kind != "http":
                raise StepFailed(
                    f"resource {found.name}: a host can fetch only http:// and https:// addresses, "
                    f"and it comes from {found.shown}",
                    hint="remove `fetchOn: host`",
                )
            return ctx.resource(found.fetched_on(params.fetch_on))
        base = ctx.local_path(".")
        try:
            own = Resource.of_url(
                ctx.node.rpartition("/")[2],
                params.url or "",
                sha256=params.sha256 or "",
                headers=params.headers,
                ca_file=str(base / params.ca_file) if params.ca_file is not None else "",
                fetch_on=params.fetch_on or "control",
                **{key: value for key in ("timeout", "retries") if (value := getattr(params, key)) is not None},
            )
        except ResourceError as error:
            raise StepFailed(error.message, hint=error.hint) from error
        return ctx.resource(own)

    def _digest(self, ctx: StepContext, resource: Resource) -> str:
        if resource.sha256 or resource.fetch_on == "host":
            return resource.sha256
        return ctx.fetch(resource).sha256

    def _change(self, ctx: StepContext, digest: str, before: FileState) -> Change:
        change = compare(ctx, wanted_file(self.params, Content(digest, 0) if digest else None), before)
        # Without a digest its content is not known before.
        return change if digest or not change.content else structs.replace(change, becomes="")

    def _fine(self, digest: str) -> str:
        if digest:
            return f"{self.params.path} has the right sha256"
        return f"{self.params.path} exists; without `sha256` its content is not verified"

    def _outputs(self, ctx: StepContext, before: FileState) -> dict[str, Any]:
        return {"path": self.params.path, "sha256": "" if ctx.sensitive else before.sha256, "size": before.size}

    def _on_host(self, ctx: StepContext, resource: Resource, change: Change) -> tuple[str, int]:
        # Without `owner` and `group`, those of the replaced file are kept.
        before = change.before
        kept = (before.uid, before.gid) if before.kind == "file" else (None, None)
        with ExitStack() as stack:
            authority = ""
            if resource.ca_file:
                authority = f"{stack.enter_context(ctx.runner.temporary_folder())}/ca.pem"
                ctx.runner.write(authority, read_local(Path(resource.ca_file)), mode=0o600)
            wanted = Download(
                url=resource.location,
                shown=resource.shown,
                path=self.params.path,
                sha256=resource.sha256,
                mode=change.mode,
                owner=show_owner(self.params.owner or kept[0], self.params.group or kept[1]),
                headers=resource.headers,
                timeout=resource.timeout,
                retries=resource.retries,
                ca_file=authority,
            )
            ctx.progress(f"fetch {resource.filename}")
            done = ctx.runner.downloads.fetch(wanted, lambda size: ctx.progress(f"fetch {resource.filename}", size))
        return done.sha256, done.size

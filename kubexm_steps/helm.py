"""The step type ``helm``: a release of a chart in a cluster, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import Field

from kubexm_exec.step import Diff, Duration, Forecast, Outputs, Result, Standing, StepContext, StepFailed, Undo
from kubexm_steps.lib.attributes import HIDDEN
from kubexm_steps.lib.kube import OBJECT_NAME, KubeParams
from kubexm_steps.lib.programs import Program, Unavailable
from kubexm_steps.lib.standing import LookingStep
from kubexm_steps.lib.types import ONE_OR_MANY, HostPath, Line, refuse, shaped

_RELEASE: Final = shaped(
    r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", "the name of a release: lower-case letters, digits, `-`"
)
_HINTS: Final = (
    ("cluster unreachable|connection refused|no such file", "check `kubeconfig`, and that the API server answers"),
    ("failed to download|not found in|path .* not found", "check `chart`, `repo` and `version`"),
    ("another operation .* is in progress", "an earlier run was interrupted: `helm rollback` or `helm uninstall` it"),
    ("values don't meet the specifications", "check `values`"),
)


class HelmParams(KubeParams):
    """Parameters of ``helm``."""

    name: Annotated[str, _RELEASE] = Field(description="Name of the release.")
    namespace: Annotated[str, OBJECT_NAME] = Field("default", description="Namespace of the release.")
    state: Literal["present", "absent"] = Field("present", description="`absent` uninstalls the release.")
    chart: Line | None = Field(
        None, description="Folder or archive on the host, `oci://...`, or with `repo` the name of a chart there."
    )
    repo: Line | None = Field(None, description="Address of a repository of charts.")
    version: Line | None = Field(None, description="Version of the chart; by default the newest.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values, which win over those of files.")
    values_files: Annotated[list[HostPath], ONE_OR_MANY] = Field(
        default_factory=list, description="Files of values on the host; later ones win."
    )
    create_namespace: bool = Field(False, description="Create the namespace if it is missing.")
    wait: bool = Field(True, description="Wait until everything that was installed is ready.")
    deadline: Duration = Field(300.0, gt=0, description="How long that may take.")
    program: Line = Field("helm", description="Name or path of helm on the host.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("chart", "repo", "version", "values", "values_files", "create_namespace"), "`state: absent`")
        elif self.chart is None:
            raise ValueError("a release needs a `chart`")


class HelmOutputs(Outputs):
    name: str = Field(description="Name of the release.")
    revision: int = Field(description="Its revision; 0 if there is none.")
    status: str = Field(description="Its status, such as `deployed`; empty if there is none.")


class Seen(Struct, frozen=True):
    """The release when precheck looked."""

    revision: int = 0
    status: str = ""
    before: str = ""
    """The manifest that is installed."""
    after: str = ""
    """The manifest as it would be."""


class HelmStep(LookingStep[HelmParams, Seen | None]):
    """A release of a chart: installed, upgraded or uninstalled by the `helm` of the host.

    - Nothing is done if the release is deployed, and its manifest is the one that the chart gives with these values.
      `check` renders the chart with the cluster's help and shows the difference; Secrets are never shown.
    - A chart that makes up passwords while it is rendered differs every time: give them as values.
    - Values go to helm on standard input: they appear in no process list and in no file of the host.
    - A release whose last operation failed is upgraded again.
    - Undo rolls the release back to the revision before, or uninstalls a new one. An uninstalled one cannot be
      brought back, nor what its hooks have done.
    """

    outputs_model = HelmOutputs
    example = """\
- name: metrics
  type: helm
  with:
    name: metrics-server
    namespace: kube-system
    chart: /opt/charts/metrics-server-3.13.0.tgz
    values: {replicas: 2}
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return Undo.IMPOSSIBLE if params.get("state") == "absent" else cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Seen | None]:
        params = self.params
        try:
            seen = self._look(ctx)
        except Unavailable as error:
            return Forecast.unknown(error.message)
        place = f"release {params.namespace}/{params.name}"
        if params.state == "absent":
            if not seen.revision:
                return Forecast.satisfied(f"there is no {place}", self._outputs(seen))
            return Forecast.change(f"would uninstall {place}", [self._diff(ctx, place, seen)], seen=seen)
        if seen.status == "deployed" and seen.before == seen.after:
            return Forecast.satisfied(f"{place} is as it should be", self._outputs(seen))
        verb = "upgrade" if seen.revision else "install"
        return Forecast.change(f"would {verb} {place}", [self._diff(ctx, place, seen)], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen | None]) -> Result:
        params, seen = self.params, forecast.seen or self._look(ctx)
        place, helm = f"release {params.namespace}/{params.name}", self._helm(ctx)
        ready = ["--wait", f"--timeout={max(1, round(params.deadline))}s"] if params.wait else []
        if params.state == "absent":
            helm.do(f"uninstall {place}", "uninstall", params.name, "--ignore-not-found", *ready)
            return Result(message=f"uninstalled {place}", outputs=self._outputs(Seen()))
        ctx.save_undo({"revision": seen.revision, "left": seen.revision + 1})
        verb = "upgrade" if seen.revision else "install"
        helm.do(f"{verb} {place}", *self._words, *ready, stdin=self._values)
        now = self._status(ctx)
        ctx.save_undo({"revision": seen.revision, "left": now.revision})
        done = "upgraded" if seen.revision else "installed"
        return Result(message=f"{done} {place}, revision {now.revision}", outputs=self._outputs(now))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        now = self._status(ctx)
        if now.revision in (0, undo["left"]):
            return Standing(before=now.revision == undo["revision"])
        # A rollback is a revision of its own.
        if undo["revision"] and now.before == self._manifest(ctx, undo["revision"]):
            return Standing(before=True)
        return Standing(changed=(f"release {self.params.name} (it has revision {now.revision})",))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        name, helm, now = self.params.name, self._helm(ctx), self._status(ctx)
        if not undo["revision"]:
            helm.do(f"uninstall release {name}", "uninstall", name, "--ignore-not-found")
        elif not now.revision:
            raise StepFailed(f"release {name} is gone, and cannot be rolled back", hint="install it again")
        elif now.before != self._manifest(ctx, undo["revision"]):
            helm.do(f"roll back release {name}", "rollback", name, str(undo["revision"]))

    # what there is

    def _helm(self, ctx: StepContext) -> Program:
        params = self.params
        options = (f"--kubeconfig={params.kubeconfig}", f"--namespace={params.namespace}")
        return Program(ctx, params.program, *options, hints=_HINTS)

    def _status(self, ctx: StepContext) -> Seen:
        helm, words = self._helm(ctx), ("status", self.params.name, "-o", "json")
        done = helm.ask(*words)
        if done.exit_code != 0:
            if "release: not found" in done.err:
                return Seen()
            raise helm.failure(f"look at release {self.params.name}", words, done, kind=Unavailable)
        data = helm.decoded("look at the release", done)
        return Seen(data["version"], data["info"]["status"], self._manifest(ctx, data["version"]))

    def _manifest(self, ctx: StepContext, revision: int) -> str:
        words = ("get", "manifest", self.params.name, f"--revision={revision}")
        return self._helm(ctx).do(f"look at release {self.params.name}", *words).out.strip()

    def _look(self, ctx: StepContext) -> Seen:
        now = self._status(ctx)
        if self.params.state == "absent":
            return now
        what = f"render chart {self.params.chart}"
        helm = self._helm(ctx)
        done = helm.do(what, *self._words, "--dry-run=server", "-o", "json", stdin=self._values)
        return Seen(now.revision, now.status, now.before, helm.decoded(what, done)["manifest"].strip())

    # what changes

    @property
    def _words(self) -> list[str]:
        params = self.params
        return [
            "upgrade",
            "--install",
            params.name,
            params.chart or "",
            *([f"--repo={params.repo}"] if params.repo else []),
            *([f"--version={params.version}"] if params.version else []),
            *(f"--values={path}" for path in params.values_files),
            "--values=-",
            *(["--create-namespace"] if params.create_namespace else []),
        ]

    @property
    def _values(self) -> bytes:
        return msgspec.json.encode(self.params.values)

    def _diff(self, ctx: StepContext, place: str, seen: Seen) -> Diff:
        note = "created" if not seen.revision else "removed" if self.params.state == "absent" else ""
        if ctx.sensitive:
            return Diff(place, note=", ".join(filter(None, [note, HIDDEN])))
        before = _shown(seen.before) if seen.revision else None
        return Diff(place, before, _shown(seen.after) if self.params.state == "present" else None, note)

    def _outputs(self, seen: Seen) -> dict[str, Any]:
        return {"name": self.params.name, "revision": seen.revision, "status": seen.status}


def _shown(manifest: str) -> str:
    """A manifest for people: without what is in Secrets."""
    parts = re.split(r"(?m)^---$", manifest)
    secret = re.compile(r"(?m)^kind:\s*[\"']?Secret\b")
    return "---".join(f"\nkind: Secret  # {HIDDEN}\n" if secret.search(part) else part for part in parts).strip() + "\n"

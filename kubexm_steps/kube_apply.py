"""The step type ``kube-apply``: objects of Kubernetes as a manifest says, applied by the server."""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import Field

from kubexm_exec.step import (
    Diff,
    Duration,
    Forecast,
    LocalFile,
    Outputs,
    Result,
    Standing,
    StepContext,
    StepFailed,
    Undo,
)
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration
from kubexm_steps.lib.attributes import HIDDEN, listed
from kubexm_steps.lib.files import read_local
from kubexm_steps.lib.kube import LABEL_KEY, LABEL_VALUE, OBJECT_NAME, KubeParams, kubectl
from kubexm_steps.lib.programs import Program, Unavailable
from kubexm_steps.lib.standing import LookingStep
from kubexm_steps.lib.types import ONE_OR_MANY, HostPath, Line, Text, refuse

_FIRST: Final = ("CustomResourceDefinition", "Namespace")
"""Kinds without which the others cannot be applied."""
_LATER: Final = re.compile(r"no matches for kind|resource mapping not found|namespaces \"[^\"]*\" not found")
"""What the server says of objects whose kind or namespace is made by the same manifest."""
_OWN: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
"""What the server itself writes into the metadata of an object."""
_PAUSE: Final = 2.0
_MOST: Final = 50
"""Objects that a forecast shows."""

Object = Mapping[str, Any]


class KubeApplyParams(KubeParams):
    """Parameters of ``kube-apply``."""

    content: Text | None = Field(None, description="The manifest itself: YAML or JSON, one or several documents.")
    objects: list[dict[str, Any]] = Field(default_factory=list, description="The objects themselves, as data.")
    src: HostPath | None = Field(None, description="Manifest on the host.")
    local_src: Annotated[str | None, LocalFile()] = Field(
        None, description="Manifest on the control node, or `resource:NAME`."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` deletes the objects.")
    namespace: Annotated[str, OBJECT_NAME] | None = Field(
        None, description="Namespace of objects that name none; by default that of the kubeconfig."
    )
    field_manager: Line = Field("kubexm", description="Name under which the server remembers whose fields these are.")
    force: bool = Field(False, description="Take over fields that another manager has set; by default a failure.")
    wait: bool = Field(
        True,
        description="Wait until workloads are rolled out, Jobs complete, and definitions and API services available.",
    )
    deadline: Duration = Field(300.0, gt=0, description="How long that, or a deletion, may take.")
    prune: dict[Annotated[str, LABEL_KEY], Annotated[Text, LABEL_VALUE]] = Field(
        default_factory=dict,
        description="Delete objects with all of these labels that are not in the manifest: of the kinds in it and "
        "of `pruneKinds`; with `namespace` only there, otherwise everywhere.",
    )
    prune_kinds: Annotated[list[Line], ONE_OR_MANY] = Field(
        default_factory=list, description="More kinds to prune, such as `ConfigMap` or `Deployment.v1.apps`."
    )

    def model_post_init(self, context: object) -> None:
        given = [name for name in ("content", "objects", "src", "local_src") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("give the manifest by exactly one of content, objects, src and localSrc")
        if self.state == "absent":
            refuse(self, ("prune", "force"), "`state: absent`")
        if not self.prune:
            refuse(self, ("prune_kinds",), "no `prune`")


class KubeApplyOutputs(Outputs):
    objects: list[str] = Field(description="The objects of the manifest, such as `Deployment default/web`.")


class Seen(Struct, frozen=True):
    """What is there, and what the server would make of the manifest."""

    before: dict[str, Object]
    after: dict[str, Object]
    pruned: dict[str, Object]

    @property
    def changed(self) -> list[str]:
        """Objects that differ, by name."""
        return [name for name, new in self.after.items() if _plain(self.before.get(name)) != _plain(new)]

    @property
    def unready(self) -> list[str]:
        """What objects are still on the way to, one text each."""
        return [f"{name}: {missing}" for name, now in self.before.items() if (missing := _missing(now))]


class KubeApplyStep(LookingStep[KubeApplyParams, Seen | None]):
    """Objects of Kubernetes as a manifest says: applied by the server, waited for, and pruned.

    The step runs `kubectl apply --server-side` on its host. Fields that the manifest does not name are left to others.

    - `check` asks the server what it would do (a dry run on the server, with its defaults and admission), and shows
      the difference of each object. Values of Secrets are never shown.
    - Namespaces and CustomResourceDefinitions are applied first. Until they are there, the effect of the others is
      `unknown` in a check.
    - `wait` is a part of the step: a Deployment that is applied but not rolled out is waited for again by the next run.
      If it does not come up before `deadline`, the failure says what is missing.
    - With `prune`, objects that carry the labels and are no longer in the manifest are deleted.
    - Undo deletes objects that were created and restores those that were changed. Deleted and pruned objects, and the
      old content of Secrets, are not brought back.
    """

    outputs_model = KubeApplyOutputs
    example = """\
- name: limits
  type: kube-apply
  with:
    namespace: default
    objects:
      - apiVersion: v1
        kind: ConfigMap
        metadata: {name: limits, labels: {app: web}}
        data: {connections: "100"}
    prune: {app: web}
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return Undo.IMPOSSIBLE if params.get("state") == "absent" else cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Seen | None]:
        try:
            seen = self._look(ctx, self._documents(ctx))
        except Unavailable as error:
            return Forecast.unknown(error.message)
        if self.params.state == "absent":
            if not seen.before:
                return Forecast.satisfied("none of the objects is there", self._outputs(()))
            return Forecast.change(
                f"would delete {_count(seen.before)}", self._diffs(ctx, seen.before, {}, seen.before), seen=seen
            )
        names = seen.changed
        if names or seen.pruned:
            verbs = [f"apply {_count(names)}"] if names else []
            verbs += [f"delete {_count(seen.pruned)}"] if seen.pruned else []
            diffs = self._diffs(ctx, seen.before, seen.after, names)
            diffs += self._diffs(ctx, seen.pruned, {}, seen.pruned)
            return Forecast.change(f"would {' and '.join(verbs)}", diffs, seen=seen)
        if self.params.wait and (missing := seen.unready):
            return Forecast.unknown(f"waits for {listed(missing)}", seen=seen)
        return Forecast.satisfied(f"{_count(seen.after)} as it should be", self._outputs(seen.after))

    def run(self, ctx: StepContext, forecast: Forecast[Seen | None]) -> Result:
        params, program = self.params, kubectl(ctx, self.params)
        documents = self._documents(ctx)
        if params.state == "absent":
            limit = f"--timeout={max(1, round(params.deadline))}s"
            words = ["delete", "--ignore-not-found", limit, *self._place, "--filename=-"]
            program.do("delete objects", *words, stdin=_joined(documents))
            there = forecast.seen.before if forecast.seen else {}
            return Result(message=f"deleted {_count(there)}", outputs=self._outputs(()))
        started, seen, applied = time.monotonic(), forecast.seen, _Applied({}, {})
        first = [text for text in documents if _kind(text) in _FIRST]
        if seen is None and first and len(first) < len(documents):
            # Others depend on them: only then can the server say what it would do.
            self._apply(ctx, first, self._look(ctx, first), applied)
            self._await(ctx, started, first)
        seen = seen or self._look(ctx, documents)
        self._apply(ctx, documents, seen, applied)
        for name, pruned in seen.pruned.items():
            _delete(program, name, pruned, "--wait=false")
        if params.wait:
            self._await(ctx, started, documents)
        names = applied.records
        message = f"applied {_count(names)}" if names else "waited for the objects"
        if seen.pruned:
            message = f"{message}, deleted {_count(seen.pruned)}" if names else f"deleted {_count(seen.pruned)}"
        changed = bool(names or seen.pruned)
        return Result(changed=changed, message=message, outputs=self._outputs(seen.after))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        now = self._live(ctx, self._documents(ctx))
        others, restored = [], True
        for name, record in undo["objects"].items():
            mark, left = _mark(now.get(name)), undo["left"].get(name)
            restored = restored and mark.digest == record["digest"]
            if left is not None and mark.digest not in ("", record["digest"]) and not mark.is_like(_Mark(**left)):
                others.append(name)
        return Standing(changed=tuple(others), before=restored)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        program, now = kubectl(ctx, self.params), self._live(ctx, self._documents(ctx))
        lost = []
        for name, record in reversed(undo["objects"].items()):
            found = now.get(name)
            if not record["digest"] and found is not None:
                _delete(program, name, found)
            elif record["digest"] and _mark(found).digest != record["digest"]:
                if "content" in record:
                    program.do(f"restore {name}", "replace", "--filename=-", stdin=ctx.kept(record["content"]))
                else:
                    lost.append(name)
        if lost:
            raise StepFailed(
                f"the old content of {listed(lost)} was not kept",
                hint="Secrets are in no journal: restore them by hand",
            )

    # what there is

    @property
    def _place(self) -> list[str]:
        return [f"--namespace={self.params.namespace}"] if self.params.namespace else []

    def _documents(self, ctx: StepContext) -> list[str]:
        params = self.params
        if params.objects:
            return [msgspec.json.encode(each).decode() for each in params.objects]
        if params.local_src is not None:
            text = read_local(ctx.local_path(params.local_src)).decode("utf-8", "replace")
        elif params.src is not None:
            if not ctx.runner.inspect(params.src, digest=False).exists:
                raise Unavailable(f"there is no file {params.src}", hint="check `src`, a file on the host")
            text = ctx.runner.read_text(params.src)
        else:
            text = params.content or ""
        # A line of three dashes at the margin begins a document, also in a text inside of it.
        found = [part for part in re.split(r"(?m)^---(?:[ \t].*)?$", text) if _kind(part)]
        if not found:
            raise StepFailed("the manifest holds no object", hint="each has apiVersion, kind and metadata.name")
        return found

    def _look(self, ctx: StepContext, documents: Sequence[str]) -> Seen:
        before = self._live(ctx, documents)
        if self.params.state == "absent":
            return Seen(before, {}, {})
        program = kubectl(ctx, self.params)
        words = [*self._apply_words, "--dry-run=server", "-o", "json", "--filename=-"]
        done = program.ask(*words, stdin=_joined(documents))
        if done.exit_code != 0:
            later = any(_LATER.search(line) for line in done.err.splitlines())
            raise program.failure("ask the server", words, done, kind=Unavailable if later else StepFailed)
        after = _by_name(program.decoded("ask the server", done))
        return Seen(before, after, self._prunable(program, after))

    def _live(self, ctx: StepContext, documents: Sequence[str]) -> dict[str, Object]:
        program = kubectl(ctx, self.params)
        words = ["get", "--ignore-not-found", "-o", "json", "--request-timeout=20s", *self._place, "--filename=-"]
        done = program.ask(*words, stdin=_joined(documents))
        if done.exit_code != 0:
            raise program.failure("look at the objects", words, done, kind=Unavailable)
        return _by_name(program.decoded("look at the objects", done)) if done.out.strip() else {}

    def _prunable(self, program: Program, after: Mapping[str, Object]) -> dict[str, Object]:
        if not self.params.prune:
            return {}
        kinds = dict.fromkeys([*(_resource(each) for each in after.values()), *self.params.prune_kinds])
        labels = ",".join(f"{key}={value}" for key, value in self.params.prune.items())
        where = self._place or ["--all-namespaces"]
        words = ["get", ",".join(kinds), f"--selector={labels}", "-o", "json", "--ignore-not-found", *where]
        done = program.do("look for objects to prune", *words)
        found = _by_name(program.decoded("look for objects to prune", done)) if done.out.strip() else {}
        return {
            name: each
            for name, each in found.items()
            if name not in after and "deletionTimestamp" not in each["metadata"]
        }

    # what changes

    @property
    def _apply_words(self) -> list[str]:
        force = ["--force-conflicts"] if self.params.force else []
        return ["apply", "--server-side", f"--field-manager={self.params.field_manager}", *force, *self._place]

    def _apply(self, ctx: StepContext, documents: Sequence[str], seen: Seen, applied: _Applied) -> None:
        """Apply what differs, and add to ``applied`` what an undo needs."""
        names = seen.changed
        if not names:
            return
        for name in names:
            applied.records.setdefault(name, self._record(ctx, seen.before.get(name)))
        ctx.save_undo({"objects": applied.records, "left": applied.left})
        ordered = sorted(documents, key=lambda text: _kind(text) not in _FIRST)
        kubectl(ctx, self.params).do("apply", *self._apply_words, "--filename=-", stdin=_joined(ordered))
        now = self._live(ctx, documents)
        applied.left.update({name: msgspec.to_builtins(_mark(now.get(name))) for name in names})
        ctx.save_undo({"objects": applied.records, "left": applied.left})

    def _record(self, ctx: StepContext, before: Object | None) -> dict[str, Any]:
        record = {"digest": _mark(before).digest}
        if before is None or before["kind"] == "Secret":
            return record
        return {**record, "content": ctx.keep(msgspec.json.encode(_plain(before)))}

    def _await(self, ctx: StepContext, started: float, documents: Sequence[str]) -> None:
        while missing := Seen(self._live(ctx, documents), {}, {}).unready:
            took = time.monotonic() - started
            if took >= self.params.deadline:
                raise StepFailed(
                    f"waited {format_duration(self.params.deadline)}; still missing: {listed(missing)}",
                    hint="`kubectl describe` tells why; a longer `deadline` may be needed",
                )
            ctx.progress(f"waiting for {listed(missing)}", took, self.params.deadline)
            ctx.sleep(min(_PAUSE, max(0.1, self.params.deadline - took)))

    def _diffs(
        self, ctx: StepContext, before: Mapping[str, Object], after: Mapping[str, Object], names: Iterable[str]
    ) -> list[Diff]:
        found = []
        for name in list(names)[:_MOST]:
            old, new = before.get(name), after.get(name)
            note = "created" if old is None else "deleted" if new is None else ""
            hidden = ctx.sensitive or (old or new or {}).get("kind") == "Secret"
            if hidden:
                found.append(Diff(name, note=", ".join(filter(None, [note, HIDDEN]))))
            else:
                found.append(Diff(name, _text(old), _text(new), note))
        return found

    def _outputs(self, after: Iterable[str]) -> dict[str, Any]:
        return {"objects": sorted(after)}


def _joined(documents: Sequence[str]) -> bytes:
    return "\n---\n".join(documents).encode()


def _kind(text: str) -> str:
    """The kind of a document; empty if it holds nothing."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise StepFailed(f"the manifest cannot be read: {' '.join(str(error).split())}", hint="mend its YAML") from None
    if data is None:
        return ""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise StepFailed(
            "the manifest holds something that is no object", hint="each has apiVersion, kind and metadata"
        )
    return kind


def _by_name(data: Any) -> dict[str, Object]:
    items = data["items"] if data.get("kind", "").endswith("List") and "items" in data else [data]
    return {_name(each): each for each in items}


def _name(data: Object) -> str:
    metadata = data["metadata"]
    space = metadata.get("namespace")
    return f"{data['kind']} {space}/{metadata['name']}" if space else f"{data['kind']} {metadata['name']}"


def _resource(data: Object) -> str:
    group, slash, version = data["apiVersion"].partition("/")
    return f"{data['kind']}.{version}.{group}" if slash else str(data["kind"])


def _plain(data: Object | None) -> dict[str, Any] | None:
    """An object without what the server writes into it."""
    if data is None:
        return None
    metadata = {key: value for key, value in data["metadata"].items() if key not in _OWN}
    return {**{key: value for key, value in data.items() if key != "status"}, "metadata": metadata}


def _text(data: Object | None) -> str | None:
    """An object as YAML."""
    from ruamel.yaml import YAML

    if data is None:
        return None
    yaml, out = YAML(typ="safe"), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump(_plain(data), out)
    return out.getvalue()


class _Mark(Struct, frozen=True):
    """By what an object is recognized later, without its content."""

    digest: str = ""
    generation: int = 0
    uid: str = ""

    def is_like(self, other: _Mark) -> bool:
        """Whether nobody has changed it since; what controllers note on an object is not in its generation."""
        return self.uid == other.uid and (
            self.digest == other.digest or (self.generation > 0 and self.generation == other.generation)
        )


class _Applied(Struct):
    """What an undo needs of the objects that were applied."""

    records: dict[str, dict[str, Any]]
    left: dict[str, Any]


def _mark(data: Object | None) -> _Mark:
    if data is None:
        return _Mark()
    digest = hashlib.sha256(msgspec.json.encode(_plain(data), order="deterministic")).hexdigest()
    return _Mark(digest, data["metadata"].get("generation", 0), data["metadata"].get("uid", ""))


def _delete(program: Program, name: str, data: Object, *options: str) -> None:
    metadata = data["metadata"]
    where = [f"--namespace={metadata['namespace']}"] if "namespace" in metadata else []
    program.do(f"delete {name}", "delete", _resource(data), metadata["name"], "--ignore-not-found", *where, *options)


def _missing(data: Object) -> str:
    """What an object still lacks; empty if it is ready, or is of a kind that has nothing to wait for."""
    spec, status = data.get("spec") or {}, data.get("status") or {}
    wanted = spec.get("replicas", 1)
    stale = status.get("observedGeneration", 0) < data["metadata"].get("generation", 0)
    match data["kind"]:
        case "Deployment":
            ready = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
            done = not stale and ready >= wanted and status.get("replicas", 0) == wanted
            return "" if done or spec.get("paused") else f"{ready} of {wanted} replicas"
        case "StatefulSet":
            ready = min(status.get("updatedReplicas", 0), status.get("readyReplicas", 0))
            return "" if not stale and ready >= wanted else f"{ready} of {wanted} replicas"
        case "DaemonSet":
            wanted = status.get("desiredNumberScheduled", 0)
            ready = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
            return "" if not stale and ready >= wanted else f"{ready} of {wanted} nodes"
        case "Job":
            return _condition(status, "Complete")
        case "CustomResourceDefinition":
            return _condition(status, "Established")
        case "APIService":
            return _condition(status, "Available")
    return ""


def _condition(status: Mapping[str, Any], wanted: str) -> str:
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if conditions.get(wanted, {}).get("status") == "True":
        return ""
    failed = conditions.get("Failed", {})
    return f"failed, {failed.get('message', '')}" if failed.get("status") == "True" else f"not {wanted}"


def _count(names: Iterable[str]) -> str:
    found = list(names)
    return found[0] if len(found) == 1 else plural(len(found), "object")

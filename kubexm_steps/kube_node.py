"""The step type ``kube-node``: a node of Kubernetes: cordoned, drained, labelled, tainted or removed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from pydantic import Field

from kubexm_exec.step import Duration, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed, Undo
from kubexm_spec.diagnostics import plural
from kubexm_steps.lib.attributes import attribute_diff, changed, listed
from kubexm_steps.lib.kube import LABEL_KEY, LABEL_VALUE, OBJECT_NAME, KubeParams, kubectl, selects
from kubexm_steps.lib.programs import Unavailable
from kubexm_steps.lib.standing import LookingStep, mapped
from kubexm_steps.lib.types import Text, refuse

_MIRROR: Final = "kubernetes.io/config.mirror"
_MOST: Final = 10
"""Pods that a message names."""


class TaintParams(Params):
    """One taint."""

    key: Annotated[str, LABEL_KEY] = Field(description="Key, such as `dedicated`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="`NoSchedule`, `PreferNoSchedule` or `NoExecute`."
    )
    value: Annotated[Text, LABEL_VALUE] = Field("", description="Value; empty for none.")
    state: Literal["present", "absent"] = Field("present", description="`absent` removes it, whatever its value.")


class KubeNodeParams(KubeParams):
    """Parameters of ``kube-node``."""

    name: Annotated[str, OBJECT_NAME] | None = Field(
        None, description="Name of the node; by default that of the host which the step works for."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` deletes the node from the cluster.")
    if_exists: bool = Field(
        False, description="Whether nothing is done if the cluster has no such node; by default that is a failure."
    )
    schedulable: bool | None = Field(
        None, description="`false` cordons the node: no new pods; `true` uncordons it. By default not changed."
    )
    drained: bool = Field(
        False, description="Cordon it, evict its pods, and wait until they are gone. Pods of DaemonSets stay."
    )
    labels: dict[Annotated[str, LABEL_KEY], Annotated[Text, LABEL_VALUE] | None] = Field(
        default_factory=dict, description="Labels to set; null removes one. Others are not changed."
    )
    annotations: dict[Annotated[str, LABEL_KEY], Text | None] = Field(
        default_factory=dict, description="Annotations to set; null removes one. Others are not changed."
    )
    taints: list[TaintParams] = Field(
        default_factory=list, description="Taints to set or to remove. Others are not changed."
    )
    deadline: Duration = Field(300.0, gt=0, description="With `drained`: how long the pods may take to go.")
    grace_period: int | None = Field(
        None, ge=0, description="With `drained`: seconds that pods get to end; by default what they ask for."
    )
    delete_empty_dir_data: bool = Field(
        False, description="With `drained`: evict pods with `emptyDir` volumes too; what is in these is lost."
    )
    force: bool = Field(
        False, description="With `drained`: delete pods without a controller too; nothing creates them again."
    )

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(
                self, ("schedulable", "drained", "labels", "annotations", "taints"), "`state: absent`; drain it before"
            )
            refuse(self, ("if_exists",), "`state: absent`, which is about nodes that may be gone")
        elif self.schedulable is None and not (self.drained or self.labels or self.annotations or self.taints):
            raise ValueError("say what should be true: schedulable, drained, labels, annotations, taints or state")
        if self.drained and self.schedulable:
            raise ValueError("a drained node is not schedulable: uncordon it in a later step")
        if not self.drained:
            refuse(
                self, ("grace_period", "delete_empty_dir_data", "force"), "a node that is not drained: set `drained`"
            )
        if len({(taint.key, taint.effect) for taint in self.taints}) < len(self.taints):
            raise ValueError("a taint is listed twice: there is one for each key and effect")


class KubeNodeOutputs(Outputs):
    name: str = Field(description="Name of the node.")
    exists: bool = Field(description="Whether the cluster has it.")
    ready: bool = Field(description="Whether it is Ready.")
    schedulable: bool = Field(description="Whether it takes new pods.")
    version: str = Field(description="Version of its kubelet, such as `v1.36.4`.")
    pods: list[str] = Field(description="Pods that a drain would evict, as `namespace/name`; only with `drained`.")


class Pod(Struct, frozen=True):
    """A pod that a drain has to evict, and what is in the way of that."""

    name: str
    refused: str = ""
    """Why it is not evicted without another parameter."""
    waits: str = ""
    """What has to happen first."""


class Seen(Struct, frozen=True):
    """The node when precheck looked."""

    node: Mapping[str, Any] | None
    pods: tuple[Pod, ...] = ()

    def values(self) -> dict[str, str | None]:
        """All that the step can change, by name."""
        node = self.node or {}
        metadata, spec = node.get("metadata", {}), node.get("spec", {})
        return {
            "schedulable": "no" if spec.get("unschedulable") else "yes",
            **{f"label {key}": value for key, value in (metadata.get("labels") or {}).items()},
            **{f"annotation {key}": value for key, value in (metadata.get("annotations") or {}).items()},
            **{f"taint {each['key']}:{each['effect']}": each.get("value", "") for each in spec.get("taints") or ()},
        }


class KubeNodeStep(LookingStep[KubeNodeParams, Seen | None]):
    """A node of Kubernetes: whether it takes pods, its labels, annotations and taints; drained, or deleted.

    The step runs `kubectl` on its host, usually a control plane (`delegateTo`), and works on the node of the host that
    it serves.

    - `drained` cordons the node and evicts its pods, so that disruption budgets are respected. Pods of DaemonSets and
      static pods stay. A pod that is not evicted without `force` or `deleteEmptyDirData` is a failure before anything
      is changed. If pods are still there after `deadline`, the failure says what each of them waits for, and the node
      stays cordoned.
    - `check` shows which pods would go, and which disruption budgets would not let them.
    - A node that does not exist yet is `unknown` in a check, and a failure in a run, unless `ifExists` is set.
    - Undo restores what it was before (schedulable, labels, annotations, taints). Pods that were evicted do not come
      back to the node by themselves, and a deleted node cannot be brought back.
    """

    outputs_model = KubeNodeOutputs
    example = """\
- name: drain
  type: kube-node
  with: {drained: true, deleteEmptyDirData: true, deadline: 10m}
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        return Undo.IMPOSSIBLE if params.get("state") == "absent" else cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Seen | None]:
        params, name = self.params, self._name(ctx)
        try:
            seen = self._look(ctx)
        except Unavailable as error:
            return Forecast.unknown(error.message)
        if params.state == "absent":
            if seen.node is None:
                return Forecast.satisfied(f"there is no node {name}", self._outputs(ctx, seen))
            diff = attribute_diff(ctx, f"node {name}", {"ready": str(_is_ready(seen.node)).lower()}, None)
            return Forecast.change(f"would delete node {name}", [diff], seen=seen)
        if seen.node is None:
            if params.if_exists:
                return Forecast.satisfied(f"there is no node {name}", self._outputs(ctx, seen))
            return Forecast.unknown(f"there is no node {name} yet", seen=seen)
        before, after = self._shown(seen)
        if not changed(before, after):
            return Forecast.satisfied(f"node {name} is as it should be", self._outputs(ctx, seen))
        self._refuse(name, seen)
        waits = [f"{pod.name} ({pod.waits})" for pod in seen.pods if pod.waits]
        message = f"would {self._verb} node {name}"
        if seen.pods:
            message += f" with {plural(len(seen.pods), 'pod')}"
        if waits:
            message += f"; now blocked: {_some(waits)}"
        return Forecast.change(message, [attribute_diff(ctx, f"node {name}", before, after)], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen | None]) -> Result:
        params, name = self.params, self._name(ctx)
        seen = forecast.seen or self._look(ctx)
        if params.state == "absent":
            kubectl(ctx, params).do(f"delete node {name}", "delete", "node", name, "--wait=false", "--ignore-not-found")
            return Result(message=f"deleted node {name}", outputs=self._outputs(ctx, Seen(None)))
        if seen.node is None:
            raise StepFailed(
                f"there is no node {name}", hint="check `name`; a node appears when its kubelet has joined"
            )
        self._refuse(name, seen)
        now, wanted = seen.values(), self._wanted
        differs = {key: value for key, value in wanted.items() if now.get(key) != value}
        before = {key: now.get(key) for key in differs}
        ctx.save_undo({"node": name, "before": before, "left": differs})
        self._apply(ctx, name, differs)
        if params.drained:
            self._drain(ctx, name)
        done = "drained" if params.drained else "changed"
        if set(differs) == {"schedulable"} and not params.drained:
            done = "uncordoned" if params.schedulable else "cordoned"
        evicted = f" ({plural(len(seen.pods), 'pod')} evicted)" if seen.pods else ""
        return Result(message=f"{done} node {name}{evicted}", outputs=self._outputs(ctx, self._look(ctx)))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        seen = self._look(ctx, undo["node"])
        if seen.node is None:
            return Standing(changed=(f"node {undo['node']} (it is gone)",))
        return mapped(undo["before"], undo["left"], seen.values(), f"node {undo['node']} ({{}})")

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        seen = self._look(ctx, undo["node"])
        if seen.node is None:
            raise StepFailed(
                f"there is no node {undo['node']}", hint="it cannot be restored before it has joined again"
            )
        now = seen.values()
        self._apply(ctx, undo["node"], {key: old for key, old in undo["before"].items() if now.get(key) != old})

    # what there is

    def _name(self, ctx: StepContext) -> str:
        return self.params.name or ctx.origin.name

    def _look(self, ctx: StepContext, name: str = "") -> Seen:
        name = name or self._name(ctx)
        program, quick = kubectl(ctx, self.params), ("-o", "json", "--request-timeout=20s")
        done = program.ask("get", "node", name, "--ignore-not-found", *quick)
        if done.exit_code != 0:
            raise program.failure(f"look at node {name}", ["get", "node", name], done, kind=Unavailable)
        node = program.decoded(f"look at node {name}", done) if done.out.strip() else None
        if not self.params.drained or node is None:
            return Seen(node)
        here = f"--field-selector=spec.nodeName={name}"
        pods = program.look(f"list the pods of {name}", "get", "pods", "--all-namespaces", here, *quick)["items"]
        moving = [pod for pod in pods if not _stays(pod)]
        budgets = program.look("list disruption budgets", "get", "pdb", "--all-namespaces", *quick) if moving else {}
        return Seen(node, tuple(self._pod(pod, budgets.get("items") or ()) for pod in moving))

    def _pod(self, pod: Mapping[str, Any], budgets: Any) -> Pod:
        metadata, refused, waits = pod["metadata"], "", ""
        name = f"{metadata['namespace']}/{metadata['name']}"
        if not self.params.force and not any(each.get("controller") for each in metadata.get("ownerReferences") or ()):
            refused = "it has no controller: `force: true` deletes it"
        elif not self.params.delete_empty_dir_data and any("emptyDir" in v for v in pod["spec"].get("volumes") or ()):
            refused = "it has an emptyDir volume: `deleteEmptyDirData: true` gives that up"
        if "deletionTimestamp" in metadata:
            holders = metadata.get("finalizers")
            waits = f"it ends since {metadata['deletionTimestamp']}" + (
                f", held by {listed(holders)}" if holders else ""
            )
        for budget in budgets if not waits else ():
            status = budget.get("status") or {}
            if (
                budget["metadata"]["namespace"] == metadata["namespace"]
                and selects(budget["spec"].get("selector"), metadata.get("labels") or {})
                and not status.get("disruptionsAllowed")
            ):
                healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
                waits = f"disruption budget {budget['metadata']['name']}: {healthy} healthy, {wanted} needed"
        return Pod(name, refused, waits)

    def _refuse(self, name: str, seen: Seen) -> None:
        """Before the first change: a drain that cannot succeed would only leave the node cordoned."""
        if blocking := [f"{pod.name} ({pod.refused})" for pod in seen.pods if pod.refused]:
            raise StepFailed(
                f"drain node {name}: {plural(len(blocking), 'pod')} would not be evicted: {_some(blocking)}",
                hint="decide what may be lost, and say so in the step",
            )

    # what changes

    @property
    def _verb(self) -> str:
        if self.params.drained:
            return "drain"
        only = not (self.params.labels or self.params.annotations or self.params.taints)
        return ("uncordon" if self.params.schedulable else "cordon") if only else "change"

    @cached_property
    def _wanted(self) -> dict[str, str | None]:
        """What must be true, by name; None for what must not be there."""
        params = self.params
        wanted: dict[str, str | None] = {}
        if params.drained or params.schedulable is not None:
            wanted["schedulable"] = "yes" if params.schedulable else "no"
        wanted |= {f"label {key}": value for key, value in params.labels.items()}
        wanted |= {f"annotation {key}": value for key, value in params.annotations.items()}
        for taint in params.taints:
            wanted[f"taint {taint.key}:{taint.effect}"] = taint.value if taint.state == "present" else None
        return wanted

    def _shown(self, seen: Seen) -> tuple[dict[str, str], dict[str, str]]:
        now = seen.values()
        before = {key: value for key in self._wanted if (value := now.get(key)) is not None}
        after = {key: value for key, value in self._wanted.items() if value is not None}
        if self.params.drained:
            before["pods"], after["pods"] = listed([pod.name for pod in seen.pods]), listed([])
        return before, after

    def _apply(self, ctx: StepContext, name: str, values: Mapping[str, str | None]) -> None:
        metadata: dict[str, dict[str, str | None]] = {}
        patch: dict[str, Any] = {}
        taints = []
        for place, value in values.items():
            kind, _, key = place.partition(" ")
            if kind == "schedulable":
                patch["spec"] = {"unschedulable": value == "no" or None}
            elif kind == "taint":
                label, _, effect = key.rpartition(":")
                given = f"={value}" if value else ""
                taints.append(f"{key}-" if value is None else f"{label}{given}:{effect}")
            else:
                metadata.setdefault(f"{kind}s", {})[key] = value
        if metadata:
            patch["metadata"] = metadata
        program = kubectl(ctx, self.params)
        if patch:
            text = msgspec.json.encode(patch).decode()
            program.do(f"change node {name}", "patch", "node", name, "--type=merge", f"--patch={text}")
        if taints:
            program.do(f"taint node {name}", "taint", "node", name, "--overwrite", *taints)

    def _drain(self, ctx: StepContext, name: str) -> None:
        params, program = self.params, kubectl(ctx, self.params)
        arguments = ["drain", name, "--ignore-daemonsets", f"--timeout={max(1, round(params.deadline))}s"]
        if params.delete_empty_dir_data:
            arguments.append("--delete-emptydir-data")
        if params.force:
            arguments.append("--force")
        if params.grace_period is not None:
            arguments.append(f"--grace-period={params.grace_period}")
        done = program.ask(*arguments, live=True)
        if done.exit_code == 0:
            return
        failure = program.failure(f"drain node {name}", arguments, done)
        left = self._look(ctx).pods
        if left:
            shown = _some([f"{pod.name} ({pod.refused or pod.waits or 'it has not ended'})" for pod in left])
            failure.message = f"drain node {name}: {plural(len(left), 'pod')} still there: {shown}"
            failure.hint = "the node is cordoned: repair what blocks, and run it again, or uncordon it"
        raise failure

    def _outputs(self, ctx: StepContext, seen: Seen) -> dict[str, Any]:
        node = seen.node
        return {
            "name": self._name(ctx),
            "exists": node is not None,
            "ready": _is_ready(node),
            "schedulable": node is not None and not node["spec"].get("unschedulable", False),
            "version": "" if node is None else node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""),
            "pods": [pod.name for pod in seen.pods],
        }


def _is_ready(node: Mapping[str, Any] | None) -> bool:
    conditions = (node or {}).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _stays(pod: Mapping[str, Any]) -> bool:
    """Whether a drain leaves a pod alone: of a DaemonSet, static, or ended."""
    metadata = pod["metadata"]
    return (
        _MIRROR in (metadata.get("annotations") or {})
        or any(each["kind"] == "DaemonSet" and each.get("controller") for each in metadata.get("ownerReferences") or ())
        or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")

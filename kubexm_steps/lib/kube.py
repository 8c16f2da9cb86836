"""What steps that run kubectl have in common: how it reaches the cluster, and selectors of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from kubexm_exec.step import Params, StepContext
from kubexm_steps.lib.programs import Program
from kubexm_steps.lib.types import HostPath, Line, shaped

_HINTS: Final = (
    ("connection refused|was refused|no route|i/o timeout|Unable to connect", "the API server must answer the host"),
    ("[Uu]nauthorized|provide credentials|[Ff]orbidden", "check `kubeconfig`, and what its user may do"),
    ("no such file|Missing or incomplete configuration", "check `kubeconfig`, a file on the host"),
    ("conflict", "another program manages these fields: `force: true` takes them over"),
)

LABEL_KEY: Final = shaped(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
    "the key of a label, such as topology.kubernetes.io/zone",
)
LABEL_VALUE: Final = shaped(
    r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?",
    "the value of a label: up to 63 letters, digits, `-`, `_` and `.`",
)
OBJECT_NAME: Final = shaped(
    r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "the name of an object: lower-case letters, digits, `-` and `.`"
)


class KubeParams(Params):
    """The parameters of every step that runs kubectl."""

    kubeconfig: HostPath = Field(
        "/etc/kubernetes/admin.conf", description="File on the host that says how to reach the cluster."
    )
    program: Line = Field("kubectl", description="Name or path of kubectl on the host.")


def kubectl(ctx: StepContext, params: KubeParams) -> Program:
    """kubectl on the host, for the cluster of the parameters."""
    return Program(ctx, params.program, f"--kubeconfig={params.kubeconfig}", hints=_HINTS)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector of an object matches; an empty one matches all, none matches nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_fits(rule, labels) for rule in selector.get("matchExpressions") or ())


def _fits(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = rule["key"], rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False

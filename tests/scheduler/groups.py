"""Random tasks with groups of steps, made by the compiler itself: nested, with rescue and always, in batches."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kubexm_exec.compile import compile_pipeline
from kubexm_exec.model.graph import Dependency, ExecutionNode, Mode

if TYPE_CHECKING:
    from tests.scheduler.graphs import Choices

END = "gm/gt#end"
"""The gate at the end of the task."""
_DEEP = 2
"""Groups in groups."""
_BUDGETS = ("0", "0", "0", "1", "50%", "2")


def grouped(choose: Choices, hosts: Sequence[str], gates: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """A task with groups, and one that follows it; perhaps behind a gate."""
    writer = _Writer(choose)
    steps = [writer.group(0), *writer.entries(0, 2)]
    task: dict[str, Any] = {"name": "gt", "runOn": {"hosts": list(choose.subset(hosts))}, "steps": steps}
    if choose.one_in(3):
        task["strategy"] = "linear"
    if choose.one_in(3):
        task["batch"] = 1 + choose.below(2)
    if choose.one_in(2):
        task["maxFailures"] = choose.of(_BUDGETS)
    if writer.handlers:
        task["handlers"] = [writer.step("handler")]
    if choose.one_in(4):
        task["hostHooks"] = {kind: [writer.step(f"host-{kind}")] for kind in ("onFailure", "always")}
    after = {"name": "ga", "runOn": {"hosts": list(hosts)}, "steps": [{**_STEP, "name": "after"}]}
    nodes = _compiled(json.dumps([task, after]), tuple(hosts))
    opens = [Dependency(choose.of(gates).id, Mode.BARRIER)] if gates and choose.one_in(3) else []
    return [
        replace(
            node,
            dependencies=node.dependencies or tuple(opens),
            skip="not selected" if not node.is_gate and choose.one_in(20) else node.skip,
        )
        for node in nodes
    ]


_STEP: dict[str, Any] = {"type": "message", "with": {"text": "x"}}


class _Writer:
    def __init__(self, choose: Choices) -> None:
        self._choose = choose
        self._numbers = count(1)
        self.handlers = choose.one_in(3)

    def step(self, name: str = "") -> dict[str, Any]:
        choose = self._choose
        made = {**_STEP, "name": name or f"s{next(self._numbers)}"}
        if choose.one_in(8):
            made["ignoreErrors"] = True
        if choose.one_in(4):
            made["maxFailures"] = choose.of(_BUDGETS)
        return made

    def group(self, depth: int) -> dict[str, Any]:
        choose = self._choose
        made: dict[str, Any] = {"name": f"g{next(self._numbers)}", "steps": self.entries(depth + 1, 3)}
        if not choose.one_in(5):
            made["rescue"] = self.entries(depth + 1, 2)
        if "rescue" not in made or choose.one_in(2):
            made["always"] = [self.step() for _ in range(1 + choose.below(2))]
        return made

    def entries(self, depth: int, most: int) -> list[dict[str, Any]]:
        choose = self._choose
        made: list[dict[str, Any]] = []
        for number in range(1 + choose.below(most)):
            if depth < _DEEP and choose.one_in(4):
                made.append(self.group(depth))
            elif self.handlers and not depth and choose.one_in(3):
                made.append({"name": f"f{next(self._numbers)}", "flush": True})
            else:
                step = self.step()
                if self.handlers and choose.one_in(2):
                    step["notify"] = ["handler"]
                if choose.one_in(8):
                    step["forEach"] = ["a", "b"]
                if choose.one_in(8):
                    step["hooks"] = {choose.of(["onFailure", "pre", "post", "always"]): [self.step()]}
                made.append(step)
            # Whether a flush serves what is notified beside it is a matter of order.
            if number and choose.one_in(5) and (depth or not self.handlers):
                made[-1]["needs"] = []
        return made


@lru_cache(maxsize=1000)
def _compiled(tasks: str, hosts: tuple[str, ...]) -> tuple[ExecutionNode, ...]:
    spec = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": "random"},
        "inventory": {"hosts": [{"name": host, "connector": "local"} for host in hosts]},
        "modules": [{"name": "gm", "tasks": json.loads(tasks)}],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(json.dumps(spec))
        graph = compile_pipeline(path)
    # The step type is the matter of whoever runs it.
    return tuple(replace(node, with_={}) for node in graph.nodes.values())

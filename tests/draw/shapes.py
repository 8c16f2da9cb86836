"""Random pipelines for property tests: small, but with every way of waiting there is."""

from __future__ import annotations

from hypothesis import strategies as st

from kubexm_exec.model.graph import ExecutionGraph, Hook
from tests.draw.graphs import M, S, T, build

HOSTS = ("node1", "node2", "node3", "node4")


@st.composite
def needs(draw: st.DrawFn, earlier: list[str]) -> tuple[str, ...] | None:
    """Nothing said, or some of what was written before."""
    if not earlier or draw(st.booleans()):
        return None
    return tuple(draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4)))


@st.composite
def step_lists(draw: st.DrawFn) -> list[S]:
    """The steps of a task."""
    made: list[S] = []
    for index in range(draw(st.integers(1, 5))):
        name = f"s{index}"
        wanted = draw(needs([step.name for step in made]))
        items = draw(st.sampled_from([0, 0, 0, 2, 7]))
        made.append(S(name, draw(st.sampled_from(["file", "command"])), wanted, items, draw(st.booleans())))
    return made


@st.composite
def hook_sets(draw: st.DrawFn) -> dict[Hook, list[S]]:
    """Hooks of a scope; mostly none."""
    kinds = (
        draw(st.lists(st.sampled_from([h for h in Hook if h]), unique=True, max_size=4)) if draw(st.booleans()) else []
    )
    return {kind: [S(f"h{i}", "http") for i in range(draw(st.integers(1, 2)))] for kind in kinds}


@st.composite
def pipelines(draw: st.DrawFn) -> ExecutionGraph:
    """A whole graph."""
    modules: list[M] = []
    written: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        name = f"m{number}"
        tasks: list[T] = []
        for position in range(draw(st.integers(1, 4))):
            across = [f"{module.name}/{task.name}" for module in modules for task in module.tasks]
            tasks.append(
                T(
                    f"t{position}",
                    draw(step_lists()),
                    HOSTS[: draw(st.integers(1, 4))],
                    draw(needs([task.name for task in tasks] + across)),
                    linear=draw(st.booleans()),
                    batches=draw(st.sampled_from([1, 1, 2, 3])),
                    hooks=draw(hook_sets()),
                )
            )
        modules.append(M(name, tasks, draw(needs(written)), draw(hook_sets())))
        written.append(name)
    return build("random", modules, draw(hook_sets()))

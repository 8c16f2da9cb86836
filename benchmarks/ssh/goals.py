"""The goals: ratios between medians of one run, so that they hold on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.ssh.scenarios import Results
from benchmarks.table import Row

_SECOND = "second run"


def rows(found: Mapping[str, Results]) -> list[Row]:
    """The medians of each scenario, followed by how they compare."""
    made: list[Row] = []
    for name, results in found.items():
        made.extend(_medians(results))
        made.extend(row for row in _GOALS.get(name, lambda _: iter(()))(results))
    return made


def _medians(results: Results) -> Iterator[Row]:
    for of in results.scenario.passes:
        for tool in results.scenario.tools:
            wall = results.median(tool, "wall", of)
            if wall is not None:
                title = ", ".join(part for part in (results.scenario.title, of, tool) if part)
                cpu, memory = results.median(tool, "cpu", of), results.median(tool, "memory", of)
                yield Row(title, f"{wall:.2f} s, cpu {cpu:.2f} s, {memory:.0f} MB")


def _at_most(results: Results, peer: str, most: float, *, what: str = "wall", of: str = "") -> Iterator[Row]:
    mine, other = results.median("kubexm", what, of), results.median(peer, what, of)
    if mine is not None and other is not None:
        ratio = mine / other
        yield Row(f"  {_WORDS[what]} against {peer}", f"{ratio:.2f} times", f"at most {most:.2f}", ratio <= most)


def _faster(results: Results, peer: str, least: float, *, of: str = "") -> Iterator[Row]:
    mine, other = results.median("kubexm", "wall", of), results.median(peer, "wall", of)
    if mine is not None and other is not None:
        ratio = other / mine
        yield Row(f"  faster than {peer}", f"{ratio:.1f} times", f"at least {least:.0f}", ratio >= least)


def _a200(results: Results) -> Iterator[Row]:
    yield from _at_most(results, "fabric", 1.1)
    yield from _at_most(results, "fabric", 1.0, what="cpu")
    yield from _at_most(results, "pyinfra", 1.0)
    memory = results.median("kubexm", "memory")
    if memory is not None:
        yield Row("  memory of kubexm", f"{memory:.0f} MB", "at most 120 MB", memory <= 120)


def _b10(results: Results) -> Iterator[Row]:
    yield from _faster(results, "ansible", 30)


def _b50(results: Results) -> Iterator[Row]:
    yield from _at_most(results, "fabric", 0.5)
    yield from _at_most(results, "pyinfra", 0.33)


def _c(results: Results) -> Iterator[Row]:
    yield from _at_most(results, "pyinfra", 0.3, of=_SECOND)
    yield from _faster(results, "ansible", 50, of=_SECOND)


def _d(results: Results) -> Iterator[Row]:
    yield from _at_most(results, "scp", 1.2)
    yield from _at_most(results, "fabric", 1.0)
    yield from _at_most(results, "pyinfra", 1.0)


_WORDS = {"wall": "time", "cpu": "client CPU"}
_GOALS = {"a200": _a200, "b10": _b10, "b50": _b50, "c": _c, "d": _d}

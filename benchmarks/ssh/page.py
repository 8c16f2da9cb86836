"""The page of results: what was measured, on what machine, and how it stands against the goals."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.ssh.scenarios import Results
from benchmarks.table import Row

_HEAD = """\
# Benchmarks

`make bench-ssh` measures whole runs of kubexm and of other tools against one real SSH server, reached at as many
loopback addresses as there are hosts. It writes this page. Everything runs on one machine, so only ratios count: the
server's part of the work is the same for everybody, and it is the larger part of a connection.

- Every run is a command of its own, from cold: no connection is left from the run before.
- All tools take turns in each round, so that a busy machine harms them alike. Medians of {rounds} rounds (ansible:
  {slow_rounds}).
- CPU is that of all processes of the tool; memory is that of its largest process; sshd CPU is what the server, and
  all that it started, worked meanwhile.
- At most 50 hosts at once for everybody. Host keys are known before.
- kubexm: `kubexm-run` with a spec, installed as its users have it, and once more with `--no-journal`: no other tool
  writes down what it does so that it can be resumed. fabric: a Python script with a pool of 50 threads; "fabric
  group" is its `ThreadingGroup`, with a thread a host. pyinfra: a deploy with `--parallel 50`. ansible: a playbook
  without facts, 50 forks, pipelining and ControlPersist. scp: one a host, all at once.
- kubexm and pyinfra look first whether a file has to be sent at all; kubexm also syncs what it has written to the disk
  before it takes the old file's place.

`make bench` measures what needs no host: compiling and scheduling.
"""


_BY_HAND = "<!-- written by hand from here on -->"
CALM = 0.1
"""The share of the cores that other work may have before results are worth little."""


def machine(versions: list[str], others: float) -> list[str]:
    """What it ran on, and how much of that other work had: a line each."""
    with Path("/proc/meminfo").open() as file:
        gigabytes = int(next(file).split()[1]) / (1 << 20)
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return [
        f"{os.cpu_count()} cores ({model}), {gigabytes:.0f} GB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}",
        "; ".join(versions),
        f"Other work had {others:.0%} of the cores meanwhile"
        + (
            ": too much for firm results, and it harms those most who wait for many short things."
            if others > CALM
            else "."
        ),
    ]


def page(about: list[str], found: Mapping[str, Results], table: list[Row], rounds: int, slow_rounds: int) -> str:
    """The whole page."""
    lines = [
        _HEAD.format(rounds=rounds, slow_rounds=slow_rounds),
        "## The machine",
        "",
        *(f"- {line}" for line in about),
    ]
    lines += ["", "## Goals", "", "| scenario | kubexm | goal | |", "|---|---|---|---|"]
    title = ""
    for row in table:
        if row.reached is None:
            title = row.name.rpartition(", ")[0]
        else:
            mark = "reached" if row.reached else "**missed**"
            lines.append(f"| {title} | {row.name.strip()}: {row.value} | {row.goal} | {mark} |")
    for results in found.values():
        lines += ["", f"## {results.scenario.title}", "", *_table(results)]
    return "\n".join(lines) + "\n"


def by_hand(path: Path) -> str:
    """What people have written below the results that are there: a new run does not know better."""
    text = path.read_text("utf-8") if path.exists() else ""
    _, mark, kept = text.partition(_BY_HAND)
    return f"\n{mark}{kept}" if mark else ""


def _table(results: Results) -> Iterator[str]:
    for number, of in enumerate(results.scenario.passes):
        if of:
            yield from ([""] if number else []) + [f"{of.capitalize()}:", ""]
        yield "| tool | wall s | kubexm is | client CPU s | memory MB | sshd CPU s |"
        yield "|---|---|---|---|---|---|"
        mine = results.median("kubexm", "wall", of)
        for tool in results.scenario.tools:
            wall = results.median(tool, "wall", of)
            if wall is None:
                continue
            ratio = "" if mine is None or tool == "kubexm" else _ratio(mine, wall)
            rest = [results.median(tool, what, of) or 0.0 for what in ("cpu", "memory", "server")]
            yield f"| {tool} | {wall:.2f} | {ratio} | {rest[0]:.2f} | {rest[1]:.0f} | {rest[2]:.2f} |"


def _ratio(mine: float, other: float) -> str:
    return f"{other / mine:.1f} times faster" if mine <= other else f"{mine / other:.1f} times slower"

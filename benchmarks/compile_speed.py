"""Compile: 1,000 hosts x 100 steps, its time, its memory, and that it grows linearly."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.table import Row

_SPEC = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {{name: bench}}
params:
  prefix: {{type: string, default: /tmp/bench}}
vars:
  folder: "{{{{ params.prefix }}}}/{{{{ host.name }}}}"
inventory:
  hosts:
    - name: node[0001:{hosts:04d}]
      connector: local
      roles: [worker]
      vars: {{rack: "r1"}}
modules:
"""


def write_spec(folder: Path, hosts: int, steps: int) -> Path:
    """A pipeline of so many steps (ten a task, five tasks a module) on so many hosts."""
    lines = [_SPEC.format(hosts=hosts)]
    per_task, per_module = 10, 50
    for module in range((steps + per_module - 1) // per_module):
        lines.append(f"  - name: m{module}\n    tasks:\n")
        for task in range(module * per_module // per_task, min((module + 1) * per_module, steps) // per_task):
            lines.append(f"      - name: t{task}\n        runOn: {{roles: [worker]}}\n        steps:\n")
            for step in range(per_task):
                before = f' "{{{{ steps.s{step - 1}.outputs.stdout }}}}",' if step else ""
                lines.append(
                    f"          - name: s{step}\n            type: command\n"
                    "            when: \"host.name != 'nobody'\"\n"
                    f'            with: {{argv: [echo,{before} "{{{{ vars.folder }}}}/{step}"]}}\n'
                    "            retry: {attempts: 3, delay: 1s, backoff: exponential}\n            timeout: 30s\n"
                )
    path = folder / f"bench-{hosts}-{steps}.yaml"
    path.write_text("".join(lines))
    return path


def _child(path: str) -> None:
    """Compile in this process and say time, memory and size."""
    from kubexm_exec.compile import compile_file

    begun = time.perf_counter()
    result = compile_file(path)
    seconds = time.perf_counter() - begun
    if result.graph is None:
        raise SystemExit(str([str(finding) for finding in result.diagnostics]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "megabytes": peak, "actions": result.graph.actions()}))


def measure(path: Path, rounds: int = 3) -> dict[str, float]:
    """The best of some rounds, each in a process of its own."""
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.compile_speed", str(path)], check=True, capture_output=True, text=True
        )
        found.append(json.loads(done.stdout))
    return min(found, key=lambda one: float(one["seconds"]))


def run() -> list[Row]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        small = measure(write_spec(Path(folder), 100, 100))
        large = measure(write_spec(Path(folder), 1000, 100))
        few = measure(write_spec(Path(folder), 10, 100))
        many = measure(write_spec(Path(folder), 10, 1000))
    return [
        Row("compile 1,000 hosts x 100 steps", f"{large['seconds']:.2f} s", "at most 5 s", large["seconds"] <= 5),
        Row("  memory of the process", f"{large['megabytes']:.0f} MB", "at most 400 MB", large["megabytes"] <= 400),
        Row(
            "  10 times the hosts cost",
            f"{large['seconds'] / small['seconds']:.1f} times the time",
            "at most 12",
            large["seconds"] / small["seconds"] <= 12,
        ),
        Row(
            "  10 times the steps cost",
            f"{many['seconds'] / few['seconds']:.1f} times the time",
            "at most 12",
            many["seconds"] / few["seconds"] <= 12,
        ),
    ]


if __name__ == "__main__":
    _child(sys.argv[1])

"""Compile: 1,000 hosts x 100 steps and 25,000 steps on 10 hosts; time, memory, and that it grows linearly.

To load a spec means here what every user of it does first: to read the file and turn its YAML into plain data, by
`SourceFile.load`, which also refuses duplicate keys and the like; ruamel.yaml's own safe loader, in C, is shown too.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import Row

STEPS, ROUNDS = 25_000, 5
GOAL = 4.0
"""How many times as long as loading a spec compiling it may take, loading included."""

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
    from kubexm_exec.cli.gc import prepare
    from kubexm_exec.compile import compile_file

    prepare()  # as the command line does
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


def _compare(path: str, small: str) -> None:
    """Load and compile in turns in this process, and say the seconds of CPU of each; ``small`` has all code loaded."""
    from ruamel.yaml import YAML

    from kubexm_exec.cli.gc import prepare
    from kubexm_exec.compile import compile_file
    from kubexm_spec.yaml.source import SourceFile

    prepare()
    compile_file(small)
    work: dict[str, Callable[[], Any]] = {
        "load": lambda: SourceFile.load(path),
        "compile": lambda: compile_file(path),
        "ruamel": lambda: YAML(typ="safe").load(Path(path).read_text()),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(ROUNDS):
        for name, what in work.items():
            if name != "ruamel" or not number:  # takes long, and has no goal
                begun = time.process_time()
                made = what()
                times[name].append(time.process_time() - begun)
                del made
                gc.collect()
    sys.stdout.write(json.dumps(times))


def compare(path: Path, small: Path) -> dict[str, list[float]]:
    """The seconds of CPU that loading and compiling take, in turns."""
    command = [sys.executable, "-m", "benchmarks.compile_speed", str(path), str(small)]
    found: dict[str, list[float]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def time_validate(path: Path) -> float:
    """Seconds of a whole ``kubexm validate``."""
    program = Path(sys.executable).parent / "kubexm"
    begun = time.perf_counter()
    subprocess.run([program, "validate", path], check=True, capture_output=True)
    return time.perf_counter() - begun


def time_first_action(path: Path) -> float:
    """Seconds from the start of ``kubexm-run`` to its first action; the rest of the run is not waited for."""
    program = Path(sys.executable).parent / "kubexm-run"
    begun = time.perf_counter()
    command = [str(program), str(path), "--output", "json", "--no-journal"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("event") == "action.started":
                break
        else:
            raise RuntimeError("no action has started")
        seconds = time.perf_counter() - begun
        process.kill()
    return seconds


def run() -> list[Row]:
    """The rows of the table."""
    return [*_hosts(), *_steps()]


def _steps() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        small = write_spec(Path(folder), 10, 100)
        fifth = compare(write_spec(Path(folder), 10, STEPS // 5), small)
        path = write_spec(Path(folder), 10, STEPS)
        size = path.stat().st_size / 1e6
        times = compare(path, small)
        memory = measure(path, 1)["megabytes"]
        validate, first = time_validate(path), time_first_action(path)
    load, compiled = statistics.median(times["load"]), statistics.median(times["compile"])
    ratio = statistics.median(after / before for before, after in zip(times["load"], times["compile"], strict=True))
    more = compiled / statistics.median(fifth["compile"])
    return [
        Row(f"load {STEPS:,} steps on 10 hosts ({size:.1f} MB), CPU", f"{load:.2f} s"),
        Row("  compile, which also loads it, CPU", f"{compiled:.2f} s"),
        Row("  against loading", f"{ratio:.2f} times", f"at most {GOAL:.2f}", ratio <= GOAL),
        Row("  against loading by ruamel.yaml's safe C loader", f"{compiled / times['ruamel'][0]:.2f} times"),
        Row("  5 times the steps cost", f"{more:.1f} times the time", "at most 6", more <= 6),
        Row("  memory of the process", f"{memory:.0f} MB"),
        Row("  kubexm validate, with its start", f"{validate:.1f} s"),
        Row("  kubexm-run, from its start to the first action", f"{first:.1f} s"),
    ]


def _hosts() -> list[Row]:
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
    _compare(*sys.argv[1:3]) if len(sys.argv) > 2 else _child(sys.argv[1])

"""Runs the benchmarks and prints one table: ``python -m benchmarks [compile] [scheduling] [stragglers] [journal]``."""

from __future__ import annotations

import platform
import sys

from benchmarks import compile_speed, journal, scheduling, stragglers
from benchmarks.table import Row, render

_ALL = {
    "compile": compile_speed.run,
    "scheduling": scheduling.run,
    "stragglers": stragglers.run,
    "journal": journal.run,
}


def main(names: list[str]) -> int:
    """Run some or all; 1 if a goal was missed."""
    unknown = [name for name in names if name not in _ALL]
    if unknown:
        sys.stderr.write(f"there is no benchmark {unknown[0]}; there are {', '.join(_ALL)}\n")
        return 2
    rows: list[Row] = []
    for name in names or _ALL:
        rows.extend(_ALL[name]())
    sys.stdout.write(f"Python {platform.python_version()} on {platform.machine()}\n{render(rows)}\n")
    return 1 if any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

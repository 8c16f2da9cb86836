"""Runs the SSH benchmarks and prints a table: ``python -m benchmarks.ssh [--quick] [--page FILE] [SCENARIO...]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.ssh.contestants import CONTESTANTS, missing, version
from benchmarks.ssh.goals import rows
from benchmarks.ssh.page import by_hand, machine, page
from benchmarks.ssh.scenarios import MOST_HOSTS, SCENARIOS, Bench, Results, Wrong, disturbance
from benchmarks.ssh.server import NoServer, serve
from benchmarks.table import render


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.ssh", description="kubexm and its peers over SSH, from cold.")
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help="a50 a200 b10 b50 c d, or a letter for all of it"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of everybody; 5 unless given")
    parser.add_argument("--slow-rounds", type=int, default=2, help="of ansible; 2 unless given")
    parser.add_argument("--quick", action="store_true", help="2 rounds, and without ansible")
    parser.add_argument("--without", action="append", default=[], choices=list(CONTESTANTS), help="leave a tool out")
    parser.add_argument("--page", type=Path, help="write the results there")
    given = parser.parse_args(words)
    if given.quick:
        given.rounds = 2
        given.without.append("ansible")
    unknown = [one for one in given.scenarios if not any(each.name.startswith(one) for each in SCENARIOS)]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]}; there are {', '.join(each.name for each in SCENARIOS)}")
    return given


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(words: list[str]) -> int:
    """Run some or all; 1 if a goal was missed, 2 if something could not be measured."""
    given = _arguments(words)
    tools = [name for name in CONTESTANTS if name not in given.without]
    for name in list(tools):
        if why := missing(name):
            _say(f"left out: {why}")
            tools.remove(name)
    chosen = [each for each in SCENARIOS if not given.scenarios or each.name.startswith(tuple(given.scenarios))]
    found: dict[str, Results] = {}
    broken: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="kxb") as folder, serve(Path(folder), MOST_HOSTS) as site:
            bench = Bench(site, frozenset(tools), _say)
            for scenario in chosen:
                try:
                    found[scenario.name] = bench.run(scenario, given.rounds, given.slow_rounds)
                except Wrong as error:
                    # What the others have measured in many minutes still holds.
                    broken.append(scenario.name)
                    _say(f"{scenario.name} is left out: {error}")
    except NoServer as error:
        _say(str(error))
        return 2
    if not found:
        return 2
    table = rows(found)
    about = machine(
        [version(tool) for tool in tools if tool not in ("fabric group", "kubexm, no journal")],
        disturbance(found.values()),
    )
    sys.stdout.write("\n".join([*about, render(table), ""]))
    if given.page is not None:
        text = page(about, found, table, given.rounds, given.slow_rounds) + by_hand(given.page)
        given.page.write_text(text, "utf-8")
    if broken:
        return 2
    return 1 if any(row.reached is False for row in table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

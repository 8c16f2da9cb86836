"""What is measured: scenarios that all tools run in turns, round by round, checked to have done the work."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.ssh.contestants import CONTESTANTS, Call, Work, environment
from benchmarks.ssh.server import Site

_LONGEST: Final = 600.0
_MEGABYTES: Final = 50
_TEMPLATES: Final = 10
MOST_HOSTS: Final = 200


class Wrong(Exception):
    """A tool did not do what it was asked to, so its time means nothing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Some work on some hosts, and who does it."""

    name: str
    title: str
    hosts: int
    tools: tuple[str, ...]
    commands: int = 0
    templates: int = 0
    file: bool = False
    passes: tuple[str, ...] = ("",)
    """The second time of the same finds everything done."""


SCENARIOS: Final = (
    Scenario(
        "a50",
        "1 command, 50 hosts",
        50,
        ("kubexm", "kubexm, no journal", "fabric", "fabric group", "pyinfra", "ansible"),
        commands=1,
    ),
    Scenario(
        "a200",
        "1 command, 200 hosts",
        200,
        ("kubexm", "kubexm, no journal", "fabric", "fabric group", "pyinfra"),
        commands=1,
    ),
    Scenario(
        "b10",
        "20 commands, 10 hosts",
        10,
        ("kubexm", "kubexm, no journal", "fabric", "pyinfra", "ansible"),
        commands=20,
    ),
    Scenario("b50", "20 commands, 50 hosts", 50, ("kubexm", "kubexm, no journal", "fabric", "pyinfra"), commands=20),
    Scenario(
        "c",
        "10 templates, 20 hosts",
        20,
        ("kubexm", "kubexm, no journal", "fabric", "pyinfra", "ansible"),
        templates=_TEMPLATES,
        passes=("first run", "second run"),
    ),
    Scenario(
        "d", "50 MB to 10 hosts", 10, ("kubexm", "kubexm, no journal", "fabric", "pyinfra", "scp", "ansible"), file=True
    ),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one tool: seconds of the clock and of all its processes, MB of the largest, seconds of the server."""

    wall: float
    cpu: float
    memory: float
    server: float
    others: float
    """Seconds of CPU that went to what has nothing to do with it."""


@dataclass(slots=True)
class Results:
    """All samples of a scenario, by pass and tool."""

    scenario: Scenario
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)

    def median(self, tool: str, what: str = "wall", of: str = "") -> float | None:
        """The median of a value; None if the tool did not take part."""
        found = self.samples.get((of or self.scenario.passes[0], tool))
        return statistics.median(getattr(sample, what) for sample in found) if found else None


class Bench:
    """One server and a folder for everything that the tools need and leave."""

    def __init__(self, site: Site, tools: frozenset[str], say: Callable[[str], None]) -> None:
        self._site = site
        self._tools = tools
        self._say = say
        self._home = site.folder / "home"
        self._sources = site.folder / "sources"
        self._sources.mkdir()
        self._file = self._sources / "file"
        self._templates = tuple(self._sources / f"t{number}.conf.j2" for number in range(_TEMPLATES))
        for number, path in enumerate(self._templates):
            path.write_text(_template(number))

    def run(self, scenario: Scenario, rounds: int, slow_rounds: int) -> Results:
        """All rounds; the slow one takes part in fewer of them."""
        results = Results(scenario)
        tools = [tool for tool in scenario.tools if tool in self._tools]
        calls: dict[str, tuple[Work, Call]] = {}
        for tool in tools:
            work = self._work(scenario, tool)
            calls[tool] = work, CONTESTANTS[tool](work)
        for number in range(rounds):
            turn = number % len(tools)
            for tool in [*tools[turn:], *tools[:turn]]:
                if tool == "ansible" and number >= slow_rounds:
                    continue
                for of, sample in self._once(scenario, *calls[tool]):
                    results.samples.setdefault((of, tool), []).append(sample)
                    self._say(
                        f"{scenario.name:<5} round {number + 1}  {tool:<19}{of:<12}{sample.wall:8.2f} s  "
                        f"cpu {sample.cpu:6.2f} s  {sample.memory:5.0f} MB  sshd {sample.server:6.2f} s"
                    )
        for work, _ in calls.values():
            shutil.rmtree(work.folder)
        return results

    def _work(self, scenario: Scenario, tool: str) -> Work:
        folder = self._site.folder / f"{scenario.name}-{tool.replace(', ', '-').replace(' ', '-')}"
        folder.mkdir()
        if scenario.file and not self._file.exists():
            self._file.write_bytes(os.urandom(_MEGABYTES << 20))
        return Work(
            self._site,
            folder,
            folder / "hosts",
            self._site.hosts[: scenario.hosts],
            commands=scenario.commands,
            templates=self._templates[: scenario.templates],
            file=self._file if scenario.file else None,
        )

    def _once(self, scenario: Scenario, work: Work, call: Call) -> Iterator[tuple[str, Sample]]:
        shutil.rmtree(work.target, ignore_errors=True)
        for host in work.hosts:
            (work.target / host.name).mkdir(parents=True)
        for of in scenario.passes:
            yield of, self._measure(work, call)
            _check(work)
        shutil.rmtree(work.target)

    def _measure(self, work: Work, call: Call) -> Sample:
        self._site.calm()
        os.sync()
        log = work.folder / "log"
        before, busy = self._site.server_cpu(), _busy()
        measure = Path(__file__).with_name("measure.py")
        done = subprocess.run(
            [sys.executable, "-S", str(measure), str(log), str(_LONGEST), "--", *call.argv],
            env=environment(self._home, call),
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        self._site.calm()
        if found["code"] != 0:
            raise Wrong(f"{call.argv} ended with {found['code']}:\n{log.read_text(errors='replace')[-3000:]}")
        server = self._site.server_cpu() - before
        others = max(0.0, _busy() - busy - server - found["cpu"])
        return Sample(found["wall"], found["cpu"], found["memory"], server, others)


def _busy() -> float:
    """Seconds that the machine's cores have worked since it was started."""
    user, nice, system, _idle, _wait, *more = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return sum(int(ticks) for ticks in (user, nice, system, *more)) / os.sysconf("SC_CLK_TCK")


def disturbance(found: Iterable[Results]) -> float:
    """The share of all cores that went to other work while the tools ran."""
    samples = [sample for results in found for some in results.samples.values() for sample in some]
    had = sum(sample.wall for sample in samples) * (os.cpu_count() or 1)
    return sum(sample.others for sample in samples) / had if had else 0.0


def _check(work: Work) -> None:
    for host in work.hosts:
        folder = work.target / host.name
        for number, path in enumerate(work.templates):
            made = folder / path.stem
            if not made.is_file() or made.read_text() != _template(number).replace("{{ host_name }}", host.name):
                raise Wrong(f"{made} is not what {path.name} makes of it")
        if work.file is not None and not filecmp.cmp(work.file, folder / "file", shallow=False):
            raise Wrong(f"{folder}/file is not what was sent")


def _template(number: int) -> str:
    lines = [f"option_{line} = value-{number}-{line} for {{{{ host_name }}}}\n" for line in range(40)]
    return f"# part {number} of {{{{ host_name }}}}\n" + "".join(lines)

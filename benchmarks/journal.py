"""The journal: what it costs a run of actions that do nothing to be written down durably, against one without."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.run_graph import run_graph
from benchmarks.scheduling import WORKERS, Edges, chains, layers, make_graph
from benchmarks.table import Row
from kubexm_exec.engine.writeahead import inputs_digest
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.session import Recorder
from kubexm_exec.journal.store import Store
from kubexm_exec.model.ids import new_run_id

ROUNDS, STARTS = 25, 9
GOAL = 1.3
START_GOAL = 1.6
"""How many times as long as loading click, pydantic and jinja2 a whole run of one step may take on the CPU."""
_LOADED = "import click, pydantic, jinja2"
_ONE_MODEL = "import click, pydantic\nclass One(pydantic.BaseModel):\n    x: int"
"""`import pydantic` alone loads hardly anything of it: this is the least that whoever checks one value has to pay."""
_DOCUMENTS = "import click\nfrom kubexm_spec.models import PipelineDocument\nPipelineDocument.model_rebuild()"
"""The same with the models of pipelines, ready to check one."""

_SPEC = """apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: one}
inventory: {hosts: [{name: here, connector: local}]}
modules:
  - name: m
    tasks:
      - {name: t, runOn: {hosts: [here]}, steps: [{name: s, type: command, with: {argv: ["true"]}}]}
"""


def measure(edges: Edges, store: Store) -> tuple[float, float, int]:
    """Medians of the seconds that the journal takes and of how many times as long it makes a run, and its commits.

    Both are of one run without and the next one with it: machines are faster and slower from second to second.
    """
    graph = make_graph(edges)
    plain: list[float] = []
    kept: list[float] = []
    commits = 0
    for _ in range(ROUNDS):
        plain.append(run_graph(graph, WORKERS)[0])
        run = new_run_id()
        epoch = store.begin(
            run, name="bench", target="t", spec="s", executor="concurrent", holder=Owner.me(), made_from={}
        )
        recorder = Recorder(store, run, epoch)
        # As a session does it before the run: one for each node, which are as many as actions only here.
        recorder.digests = {node.id: inputs_digest(node, list) for node in graph.steps()}
        kept.append(run_graph(graph, WORKERS, recorder)[0])
        recorder.close()
        entries = [len(rows) for _, _, rows in store.entries(run)]
        commits = len(entries)
        if sum(entries) != 2 * len(edges):
            raise RuntimeError(f"the journal has {sum(entries)} entries of {2 * len(edges)}")
    more = statistics.median(after - before for before, after in zip(plain, kept, strict=True))
    times = statistics.median(after / before for before, after in zip(plain, kept, strict=True))
    return more, times, commits


def time_starts(folder: Path) -> tuple[float, ...]:
    """Median seconds of CPU of loading what every run is built on, of its unavoidable parts, and of a whole
    ``kubexm-run`` of one step without and with the journal; they take turns."""
    (folder / "spec.yaml").write_text(_SPEC)
    run = [str(Path(sys.executable).parent / "kubexm-run"), "spec.yaml", "--output", "quiet"]
    commands = (
        *([sys.executable, "-c", code] for code in (_LOADED, _ONE_MODEL, _DOCUMENTS)),
        [*run, "--no-journal"],
        [*run, "--journal", str(folder / "starts.db")],
    )
    times: list[list[float]] = [[] for _ in commands]
    for number in range(STARTS + 1):
        for command, taken in zip(commands, times, strict=True):
            begun = _spent()
            subprocess.run(command, cwd=folder, check=True)
            if number:
                # The first one makes the database.
                taken.append(_spent() - begun)
    return tuple(map(statistics.median, times))


def _spent() -> float:
    """Seconds of CPU of all processes that were started and have ended: other work on the machine hardly changes it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run() -> list[Row]:
    """The rows of the table."""
    rows: list[Row] = []
    # Not in /tmp, which may be memory: what is to be durable costs what this disk wants for it.
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        folder = Path(name)
        store = Store(str(folder / "journal.db"))
        for shape, text in ((layers, "two needs each"), (chains, "100 chains")):
            edges = shape()
            more, ratio, commits = measure(edges, store)
            each = more / len(edges) * 1e6
            rows.append(Row(f"journal, 10,000 actions that do nothing, {text} ({commits} commits)", f"{each:.1f} us"))
            rows.append(Row("  against the same without", f"{ratio:.2f} times", f"at most {GOAL:.2f}", ratio <= GOAL))
        store.close()
        bare, one, documents, plain, kept = time_starts(folder)
        rows.append(Row("kubexm-run of one step, without a journal, CPU", f"{plain * 1e3:.0f} ms"))
        ratio, goal = plain / bare, f"at most {START_GOAL:.2f}"
        rows.append(
            Row("  against loading click, pydantic and jinja2", f"{ratio:.2f} times", goal, ratio <= START_GOAL)
        )
        rows.append(Row("    of which click and one pydantic model of one field", f"{one / bare:.2f} times"))
        rows.append(Row("    the same with the models of pipelines", f"{documents / bare:.2f} times"))
        rows.append(Row("  with a journal, CPU", f"{kept * 1e3:.0f} ms"))
    return rows

"""A journal that an older kubexm wrote is brought up: what its runs did is known, gone on with and taken back."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, create_engine, text

from kubexm_exec.compile import compile_pipeline
from kubexm_exec.compile.compare import compare, compare_hosts
from kubexm_exec.engine.history import tell, whole_graph
from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.migrations.versions import v0001_first
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.sqlitefile import MAGIC
from kubexm_exec.journal.store import Store
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import FailureKind, SkipReason, Status
from tests.e2e.program import environment, run

FAILED, UNDONE, KILLED = "01M7N6FKM7F0CFJ8RYTS6JNCF7", "01M7N6FN5H2W8P0FWRDPW2W09F", "01M7N6FPP5CCQWDEFMPXBGW3Z8"


@contextlib.contextmanager
def database(url: str) -> Iterator[Connection]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:") if "://" in url else f"sqlite:///{url}")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def install(url: str, folder: Path) -> dict[str, Any]:
    """A journal as the last version with format 1 wrote it, of runs in that folder, with their specs."""
    said = Path(__file__).with_name("format1.json").read_text("utf-8").replace("FOLDER", str(folder))
    kept: dict[str, Any] = json.loads(said)
    for name, spec in kept["specs"].items():
        (folder / name).write_text(spec)
    if "://" not in url:
        Path(url).parent.mkdir(0o700, parents=True, exist_ok=True)
    with database(url) as connection:
        with Operations.context(MigrationContext.configure(connection)):
            v0001_first.upgrade()
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
        if "://" not in url:
            connection.execute(text(f"PRAGMA application_id = {MAGIC}"))
        for table in ("runs", "inputs", "entries"):
            for row in kept[table]:
                if table == "inputs":
                    row = {**row, "data": zlib.compress(json.dumps(row["data"]).encode())}
                elif table == "entries":
                    row = {**row, "data": json.dumps(row["data"])}
                names = ", ".join(row)
                connection.execute(
                    text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})"), row
                )
    return kept


def test_graph_of_format_1_is_the_one_that_its_spec_gives_now(url: str, tmp_path: Path) -> None:
    install(url, tmp_path)
    with contextlib.closing(Store(url)) as store:
        for spec, name in (("spec.yaml", FAILED), ("undone.yaml", UNDONE), ("killed.yaml", KILLED)):
            kept = ExecutionGraph.from_json(store.made_from(name)["graph"])
            now = compile_pipeline(tmp_path / spec)
            assert compare(kept, now) == []
            assert compare_hosts(kept, now) == []
            assert kept.content_hash() == now.content_hash()
            assert kept.sources == now.sources


def test_entries_of_format_1_say_the_same(url: str, tmp_path: Path) -> None:
    kept = install(url, tmp_path)
    with contextlib.closing(Store(url)) as store:
        failed, undone, killed = (tell(store, name) for name in (FAILED, UNDONE, KILLED))
        graph = whole_graph(ExecutionGraph.from_json(store.made_from(FAILED)["graph"]), failed)
    flaky = failed.of("first/prepare/flaky", "one")
    assert flaky.result is not None
    assert (flaky.result.status, flaky.result.attempts) == (Status.SUCCESS, 2)
    assert [(each.attempt, each.message, each.failure) for each in flaky.retries] == [
        (1, "exit code 3", FailureKind.FAILED)
    ]
    unmet = failed.of("first/prepare/flaky", "two").result
    assert unmet is not None
    assert unmet.reason is SkipReason.CONDITION
    ignored = failed.of("first/prepare/ignored", "two").result
    assert ignored is not None
    assert (ignored.ignored, ignored.kind, ignored.exit_code, ignored.stdout) == (True, FailureKind.FAILED, 4, "out\n")
    leaf = graph.nodes["second/more/grow+leaf"]
    assert (leaf.step_name, leaf.hosts, leaf.with_["shell"]) == ("command", ("one",), "echo leaf >>log")
    note = failed.of("first/prepare/flaky/hooks/pre/note@control-node", "two")
    assert [(each.place, each.step) for each in note.undo] == [("control-node", "command")]
    saved = [row[1] for each in kept["entries"] for row in each["data"] if row[0] == "x" and row[1]["kind"] == "undo"]
    for old in saved:
        told = (undone if old["node"] == "m/t/a" else failed).of(old["node"], old["host"])
        if told.undone:
            continue
        [new] = told.undo
        assert (new.data, new.params, new.become, new.time) == (old["data"], old["params"], old["become"], old["time"])
    assert undone.of("m/t/a", "one").undone == "undone"
    assert undone.of("m/t/b", "one").undone == "notReversible"
    assert undone.sessions[0].stop == "rollback"
    begun = killed.of("m/t/a", "one")
    assert (begun.begun, begun.inputs) == (True, "ddf795189548a25f")


def test_run_of_format_1_is_gone_on_with_and_taken_back(tmp_path: Path) -> None:
    install(str(tmp_path / "state" / "journal.db"), tmp_path)
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))

    def kubexm(*words: str) -> None:
        done = run("kubexm", "runs", *words, "--output", "quiet", cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr

    (tmp_path / "made.txt").write_text("hello\n")
    (tmp_path / "made.txt").chmod(0o644)
    for name in ("well", "tried"):
        (tmp_path / name).touch()
    log = tmp_path / "log"
    kubexm("resume", FAILED)
    assert log.read_text().splitlines() == ["breaks", "last"], "what was done is not done again"
    kubexm("rollback", FAILED, "--yes")
    assert not (tmp_path / "made.txt").exists()
    assert sorted(log.read_text().splitlines()) == sorted(
        ["breaks", "last", "undo-leaf", "undo a", "undo a", "undo b", "undo b"]
    )


def test_journal_is_not_brought_up_while_an_older_kubexm_writes_to_it(url: str, tmp_path: Path) -> None:
    install(url, tmp_path)
    with database(url) as connection:
        values = {"holder": Owner.me().to_json(), "run": KILLED}
        connection.execute(text("INSERT INTO leases VALUES ('t', :run, 1, :holder, 0, 0)"), values)
    with pytest.raises(JournalError, match=f"run {KILLED} of .* still writes to it; wait for its end"):
        Store(url)
    with database(url) as connection:
        connection.execute(text("DELETE FROM leases"))
    Store(url).close()


def test_run_that_cannot_be_understood_does_not_keep_the_others_back(url: str, tmp_path: Path) -> None:
    install(url, tmp_path)
    with database(url) as connection:
        connection.execute(text("UPDATE inputs SET data = :data WHERE run = :run"), {"data": b"?", "run": KILLED})
        connection.execute(text("UPDATE entries SET data = '[[7]]' WHERE run = :run"), {"run": KILLED})
    with contextlib.closing(Store(url)) as store:
        assert tell(store, UNDONE).sessions[0].status == "Failed"
        with pytest.raises(JournalError, match="cannot be decoded"):
            tell(store, KILLED)

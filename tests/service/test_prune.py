"""What is removed with a run, and what is not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import json as wire

from kubexm_exec.journal import leases
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.store import Store, folder_of
from kubexm_exec.model.ids import new_run_id
from kubexm_exec.ownership import remove_folder
from kubexm_exec.service.documents import claim
from kubexm_exec.service.errors import Held, NotFound
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import Documents, PruneRequest, RunRequest
from tests.service.kit import HEAD, request, spec, steps

BODY = steps("{name: a, type: command, with: {argv: [echo, hello]}}")


@pytest.fixture
def service(tmp_path: Path) -> LocalService:
    return LocalService(str(tmp_path / "journal.db"), tmp_path / "state")


@pytest.mark.parametrize("name", ["{}/precious", "../../precious", "", ".", "..", "x" * 100_000, "%", "_" * 26])
def test_only_runs_are_removed_and_all_or_none(service: LocalService, tmp_path: Path, name: str) -> None:
    spec(tmp_path, BODY)
    run = service.run(request(tmp_path)).run
    (tmp_path / "precious").mkdir()
    with pytest.raises(NotFound) as caught:
        service.prune([run, name.format(tmp_path)])
    assert len(caught.value.message) < 200
    assert (tmp_path / "precious").exists()
    assert folder_of(service.state, run).exists()
    assert len(service.runs()) == 1


def test_what_has_no_id_in_a_journal_is_no_run(service: LocalService, tmp_path: Path) -> None:
    spec(tmp_path, BODY)
    service.run(request(tmp_path))
    (tmp_path / "precious").mkdir()
    with sqlite3.connect(service.journal) as connection:
        connection.execute("CREATE TEMP TABLE copy AS SELECT * FROM runs")
        connection.execute("UPDATE copy SET id = '../../precious'")
        connection.execute("INSERT INTO runs SELECT * FROM copy")
    found = service.prunable(PruneRequest(everything=True))
    assert service.prune([each.row.id for each in found]) == 0
    assert (tmp_path / "precious").exists()
    with pytest.raises(NotFound):
        service.get("../../precious")


def test_a_run_that_was_taken_up_since_it_was_listed_stays(service: LocalService, tmp_path: Path) -> None:
    spec(tmp_path, BODY)
    run = service.run(request(tmp_path)).run
    [found] = service.prunable(PruneRequest(everything=True))
    store = Store(service.journal)
    leases.acquire(store, found.row.target, run, 2, Owner.me())  # a resume begins so
    store.close()
    with pytest.raises(Held):
        service.prune([run])
    assert service.get(run).past.row.id == run
    assert folder_of(service.state, run).exists()


def test_a_folder_goes_however_deep_it_is_and_nothing_behind_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "data").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(kept)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.symlink(kept, "link", dir_fd=here)
    os.close(here)
    remove_folder(top)
    assert not top.exists()
    (tmp_path / "link").symlink_to(kept)
    remove_folder(tmp_path / "link")
    assert (kept / "data").exists()


RUN = """
import sys
from pathlib import Path
from msgspec import json
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import RunRequest
LocalService(sys.argv[1], Path(sys.argv[2])).run(json.decode(sys.argv[3], type=RunRequest))
"""


@pytest.mark.parametrize("pruned", [True, False])
def test_what_was_unpacked_for_a_run_that_never_began_goes(service: LocalService, tmp_path: Path, pruned: bool) -> None:
    documents = Documents(folder=str(tmp_path), files={"spec.yaml": HEAD + BODY}, spec="spec.yaml")
    asked = wire.encode(RunRequest(documents=documents)).decode()
    argv = [sys.executable, "-c", RUN, service.journal, str(service.state), asked]
    killed = subprocess.run(argv, env={**os.environ, "KUBEXM_DIE_AT": "begin.before"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = service.state.glob("runs/*/documents/spec.yaml")
    if pruned:
        assert service.prune([]) == 0
    else:
        service.validate(["."], documents)
    assert not left.exists()
    assert list(service.state.glob("runs/*")) == []
    # What a living process is about to use stays.
    run = new_run_id()
    claim(service.state, run)
    folder_of(service.state, run).mkdir()
    service.prune([])
    assert folder_of(service.state, run).exists()

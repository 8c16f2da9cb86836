"""Random graphs, killed at random writes and resumed: the same end, and nothing that was acknowledged runs twice."""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.engine.history import RunHistory, tell, whole_graph
from kubexm_exec.journal.store import Store
from kubexm_exec.model.graph import Hook
from kubexm_exec.model.result import Status
from tests.journal.chance import RUN, Host, case_of, graph_of, is_blind
from tests.journal.forker import Forker
from tests.scheduler.graphs import Case, decisions

EXAMPLES = max(10, settings.default.max_examples // 4) if settings.default else 10
_AFTER = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory, if there is one: kill -9 does not care whether a disk has it, and these write a lot."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


def story_of(folder: Path) -> RunHistory | None:
    """What the journal acknowledged; None if it does not know the run."""
    store = Store(str(folder / "journal.db"))
    try:
        return tell(store, RUN) if store.runs() else None
    finally:
        store.close()


def result_of(folder: Path) -> Any:
    """What its last session came to; of what follows a begin only what it left behind, which is compared as well.

    A session in which nothing begins there has no reason for it, even if an earlier one has done it.
    """
    found = json.loads((folder / "result.json").read_text())
    found["actions"] = {name: end for name, end in found["actions"].items() if "/always/" not in name}
    # What failed and was rescued has perhaps changed something: a handler of the next session serves that.
    found["due"] = [due for due in found["due"] if due[3]]
    return found


def acknowledged(case: Case, history: RunHistory) -> set[tuple[str, str]]:
    """The actions that must never run again; hooks do, if what they follow does."""
    nodes = whole_graph(graph_of(case), history).nodes
    return {
        key
        for key, action in history.actions.items()
        if action.result is not None
        and not action.begun
        and action.result.status is Status.SUCCESS
        and nodes[key.node].hook not in _AFTER
    }


def to_its_end(forker: Forker, data: bytes, folder: Path, kills: list[int], mode: str) -> int:
    """Sessions of a run, each killed at its write of that number, and one that is not."""
    case = case_of(data)
    code = 0
    for kill in [*kills, 0]:
        history = story_of(folder) if folder.exists() else None
        now = "run" if history is None else mode
        done = acknowledged(case, history) if history is not None and mode != "rollback" else set()
        before = Host(folder).counts("run") if folder.exists() else {}
        code = forker.session(data, folder, now, f"any:{kill}" if kill else "")
        assert code in (0, -signal.SIGKILL), (folder / "error").read_text()
        after = Host(folder).counts("run")
        again = {key for key in done if after[key] != before[key]}
        assert not again, f"ran again although it was acknowledged: {again}"
        if code == 0:
            break
    return code


@settings(max_examples=EXAMPLES)
@given(data=decisions, kills=st.lists(st.integers(1, 24), min_size=1, max_size=3), back=st.integers(1, 12))
def test_killed_and_resumed_equals_undisturbed_and_is_taken_back_whole(
    data: bytes,
    kills: list[int],
    back: int,
    forker: Forker,
    memory: Path,
) -> None:
    folder = Path(tempfile.mkdtemp(dir=memory))
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    assert to_its_end(forker, data, undisturbed, [], "resume") == 0
    assert to_its_end(forker, data, killed, kills, "resume") == 0
    assert result_of(killed) == result_of(undisturbed)
    assert Host(killed).done() == Host(undisturbed).done()
    # Both are taken back, the one with a kill in the middle: nothing is left, and all was undone once in the end.
    assert to_its_end(forker, data, killed, [back, back], "rollback") == 0
    assert Host(killed).done() == set()
    history = story_of(killed)
    assert history is not None
    for key, action in history.actions.items():
        assert not action.undoing, key
        # One that was killed before it looked, and then found nothing to do, may have done it itself: nobody can know.
        doubted = action.attempts > 1 and action.undone == "notReversible"
        assert doubted or action.undone.partition(":")[0] in ("", "undone"), key
        assert not action.undo, key


@settings(max_examples=EXAMPLES)
@given(data=decisions, kills=st.lists(st.integers(1, 24), max_size=3))
def test_every_action_is_undone_once_and_backwards_whatever_its_attempts_and_sessions(
    data: bytes, kills: list[int], forker: Forker, memory: Path
) -> None:
    """Batches, retries, fragments, policies; a run that was killed and resumed, then taken back."""
    folder = Path(tempfile.mkdtemp(dir=memory)) / "run"
    to_its_end(forker, data, folder, kills, "resume")
    history = story_of(folder)
    assert history is not None
    # What the run's own policy has undone is not undone again.
    before = Host(folder).logged()
    there = Host(folder).done()
    assert forker.session(data, folder, "rollback") == 0, (folder / "error").read_text()
    undone = Host(folder).logged()[len(before) :]
    assert Host(folder).done() == set()
    assert len(set(undone)) == len(undone), "each once"
    # One that was killed after it had saved what its undo needs may have done nothing, which only a look can tell.
    assert (
        {f"{node} {host}" for node, host in undone if not is_blind(node)}
        <= there
        <= {f"{node} {host}" for node, host in undone}
    )
    nodes = whole_graph(graph_of(case_of(data)), history).nodes
    place = {(node, host): nodes[node].place(host) for node, host in undone}
    for host in set(place.values()):
        ended = [key for key in history.actions if place.get(key) == host]
        assert [key for key in undone if place[key] == host] == ended[::-1], "in reverse of the order they ended"
    # Once more: there is nothing left.
    assert forker.session(data, folder, "rollback") == 0
    assert Host(folder).logged() == [*before, *undone]


def test_every_write_of_one_graph(forker: Forker, memory: Path) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=memory))
    data = bytes(range(7, 247))
    assert to_its_end(forker, data, tmp_path / "undisturbed", [], "resume") == 0
    for write in itertools.count(1):
        folder = tmp_path / str(write)
        code = forker.session(data, folder, "run", f"any:{write}")
        if code == 0:
            assert write > 8, "it had hardly anything to write"
            break
        assert to_its_end(forker, data, folder, [], "resume") == 0
        assert result_of(folder) == result_of(tmp_path / "undisturbed"), write

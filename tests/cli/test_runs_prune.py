"""kubexm runs prune: what is old and of no more use goes, what is needed or alive stays."""

from __future__ import annotations

import pathlib

import pytest
from msgspec.structs import replace

from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.store import RunRow, Store
from kubexm_exec.service.past import old
from tests.cli.kit import Folder

SPEC = (
    "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: command, with: {shell: 'echo hi; test -e ok'}}]}]}]"
)
HERE = Owner.me()
DEAD = replace(HERE, started="1")


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def row(number: int, status: str, *, spec: str = "a", target: str = "t", holder: Owner = DEAD) -> RunRow:
    return RunRow(
        id=f"{number:026d}", name=spec, target=target, spec=spec, executor="concurrent", status=status, message="",
        created=float(number), ended=None if status == "Running" else number + 0.5, epoch=1, holder=holder,
    )  # fmt: skip


def removed(*rows: RunRow, keep: int = 0, before: float = 1e9, everything: bool = False) -> list[int]:
    newest_first = sorted(rows, key=lambda each: each.id, reverse=True)
    store = Store("prune.db")
    try:
        found = old(store, newest_first, keep, before, everything=everything)
        return sorted(int(each.id) for each in found)
    finally:
        store.close()


def test_older_successes_go_and_the_newest_of_each_spec_and_target_stays() -> None:
    rows = [row(1, "Success"), row(2, "Success"), row(3, "Success", target="u"), row(4, "Success", spec="b")]
    assert removed(*rows) == [1]


def test_what_failed_stays_until_there_was_a_success_since() -> None:
    assert removed(row(1, "Failed"), row(2, "Failed"), row(3, "Cancelled")) == []
    assert removed(row(1, "Failed"), row(2, "Success"), row(3, "Failed")) == [1]


@pytest.mark.parametrize("how", ["failed", "unreachable"])
def test_what_left_hosts_out_within_max_failures_can_be_resumed_and_stays_until_all_was_done(how: str) -> None:
    some = replace(row(2, "Success"), counts={"ok": 3, how: 1})
    whole = replace(row(3, "Success"), counts={"ok": 4, "failed": 0, "unreachable": 0, "ignored": 1})
    assert removed(row(1, "Failed"), some, replace(some, id=f"{4:026d}")) == []
    assert removed(row(1, "Failed"), some, whole) == [1, 2]


def test_what_broke_off_can_be_resumed_and_stays() -> None:
    assert removed(row(1, "Running"), row(2, "Interrupted")) == []
    assert removed(row(1, "Running"), row(2, "Interrupted"), everything=True) == [1, 2]


def test_what_was_rolled_back_is_of_no_more_use() -> None:
    assert removed(row(1, "RolledBack")) == [1]


def test_what_goes_on_is_never_removed() -> None:
    assert removed(row(1, "Running", holder=HERE), everything=True) == []


def test_newest_ones_and_young_ones_can_be_kept() -> None:
    rows = [row(number, "Success") for number in range(1, 6)]
    assert removed(*rows, keep=3) == [1, 2]
    assert removed(*rows, before=2.5) == [1, 2]
    assert removed(*rows, keep=2, before=2.5, everything=True) == [1, 2]


def test_without_a_terminal_it_says_what_would_go_and_refuses(folder: Folder) -> None:
    folder.spec(SPEC)
    folder.file("ok", "")
    for _ in range(2):
        assert folder.run("run", "main.yaml", "--output", "quiet").exit_code == 0
    refused = folder.run("runs", "prune", "--keep", "1")
    assert refused.exit_code == 3
    assert "1 run would be removed:" in refused.output
    assert "--yes" in refused.output
    assert len(folder.data("runs")) == 2
    assert folder.run("runs", "prune").output == "there is nothing to remove\n"
    assert folder.run("runs", "prune", "--older-than", "soon").exit_code == 2


def test_removed_runs_take_their_folders_along_and_give_space_back(folder: Folder, state: pathlib.Path) -> None:
    folder.spec(SPEC)
    folder.file("ok", "")
    for _ in range(3):
        assert folder.run("run", "main.yaml", "--output", "quiet").exit_code == 0
    newest = folder.data("runs")[0]["id"]
    store = Store(str(state / "journal.db"))
    for each in folder.data("runs")[1:]:
        store.keep(each["id"], "token", b"x" * 1_000_000)
    store.close()
    folder.run("runs", "prune", "--keep", "1", "--older-than", "0s", "--yes", "--output", "json")
    assert [each["id"] for each in folder.data("runs")] == [newest]
    assert [each.name for each in (state / "runs").iterdir()] == [newest]
    assert (state / "journal.db").stat().st_size < 1_000_000
    assert folder.run("runs", "logs").output.endswith("| hi\n")

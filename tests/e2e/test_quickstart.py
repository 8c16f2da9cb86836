"""The first thing a newcomer runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import run

SPEC = Path(__file__).parents[2] / "specs" / "quickstart.yaml"


def _hosts(result: dict[str, object]) -> list[dict[str, object]]:
    nodes = result["nodeResults"]
    assert isinstance(nodes, dict)
    return [host for node in nodes.values() for host in node["hostResults"].values()]


@pytest.fixture
def quickstart(tmp_path: Path) -> tuple[Path, list[dict[str, object]]]:
    """The folder and the results of two runs after each other."""
    folder = tmp_path / "made"
    results = []
    for number in (1, 2):
        done = run("kubexm-run", str(SPEC), "-e", f"dir={folder}", "--result", f"{number}.json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        results.append(json.loads((tmp_path / f"{number}.json").read_text()))
    return folder, results


def test_the_first_run_changes_and_the_second_needs_no_change(
    quickstart: tuple[Path, list[dict[str, object]]],
) -> None:
    _, (first, second) = quickstart
    assert any(host["changed"] for host in _hosts(first))
    assert not [host for host in _hosts(second) if host["changed"]]
    assert {first["status"], second["status"]} == {"Success"}


def test_it_shows_a_retry_a_condition_and_a_passed_output(quickstart: tuple[Path, list[dict[str, object]]]) -> None:
    folder, (first, _) = quickstart
    nodes = first["nodeResults"]
    assert isinstance(nodes, dict)
    assert nodes["database/start/schema"]["hostResults"]["db1"]["attempts"] == 2
    assert nodes["site/files/robots"]["hostResults"]["web2"]["reason"] == "condition"
    assert "three hosts, one spec" in (folder / "web1/www/index.html").read_text()


def test_it_leaves_no_server_behind(quickstart: tuple[Path, list[dict[str, object]]]) -> None:
    folder, _ = quickstart
    assert not list(folder.rglob("server.pid"))
    running = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and str(folder).encode() in _cmdline(entry)
    ]
    assert running == []


def _cmdline(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_it_runs_by_its_shipped_name_from_any_folder(tmp_path: Path) -> None:
    done = run("kubexm-run", "kubexm:quickstart", "--executor", "dry-run", "-e", f"dir={tmp_path}/x", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "x").exists()

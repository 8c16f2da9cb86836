"""The complete specs in docs/examples do what they say, and have nothing to do the second time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.book import ROOT

EXAMPLES = ROOT / "docs" / "examples"
PIPELINES = sorted(
    str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml") if "kind: Pipeline" in path.read_text("utf-8")
)


def run(folder: Path, spec: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("kubexm-run")
    return subprocess.run(
        [command, spec, "--output", "quiet", *options],
        cwd=folder,
        env={**os.environ, "DB_PASSWORD": "correct-horse"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("spec", PIPELINES)
def test_example_runs_and_changes_nothing_the_second_time(spec: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    takes_dir = "dir:" in (EXAMPLES / spec).read_text("utf-8")
    options = ("-e", f"dir={tmp_path}/made") if takes_dir else ()
    for changes in (takes_dir, False):
        done = run(tmp_path / "examples", spec, *options, "--result", str(tmp_path / "result.json"))
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((tmp_path / "result.json").read_text())
        hosts = [host for node in result["nodeResults"].values() for host in node["hostResults"].values()]
        assert any(host.get("changed") for host in hosts) is changes


def test_examples_are_formatted() -> None:
    command = Path(sys.executable).with_name("kubexm")
    done = subprocess.run([command, "fmt", "--diff", EXAMPLES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_secret_of_the_example_is_not_in_the_result(tmp_path: Path) -> None:
    done = run(EXAMPLES / "secrets", "secrets.yaml", "-e", f"dir={tmp_path}", "--result", str(tmp_path / "result.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "correct-horse" in (tmp_path / "db.conf").read_text()
    assert "correct-horse" not in (tmp_path / "result.json").read_text()

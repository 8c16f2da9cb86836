"""The complete specs in docs/examples do what they say, and have nothing to do the second time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main as kubexm
from kubexm_exec.cli.run import command as kubexm_run
from tests.docs.book import ROOT

EXAMPLES = ROOT / "docs" / "examples"
PIPELINES = sorted(
    str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml") if "kind: Pipeline" in path.read_text("utf-8")
)


def run(spec: Path, *options: str) -> Result:
    return CliRunner().invoke(
        kubexm_run, [str(spec), "--output", "quiet", *options], env={"DB_PASSWORD": "correct-horse"}
    )


@pytest.mark.parametrize("spec", PIPELINES)
def test_example_runs_and_changes_nothing_the_second_time(spec: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    takes_dir = "dir:" in (EXAMPLES / spec).read_text("utf-8")
    options = ("-e", f"dir={tmp_path}/made") if takes_dir else ()
    for changes in (takes_dir, False):
        done = run(tmp_path / "examples" / spec, *options, "--result", str(tmp_path / "result.json"))
        assert done.exit_code == 0, done.output
        result = json.loads((tmp_path / "result.json").read_text())
        hosts = [host for node in result["nodeResults"].values() for host in node["hostResults"].values()]
        assert any(host.get("changed") for host in hosts) is changes


def test_examples_are_formatted() -> None:
    done = CliRunner().invoke(kubexm, ["fmt", "--diff", str(EXAMPLES)])
    assert done.exit_code == 0, done.output


def test_secret_of_the_example_is_not_in_the_result(tmp_path: Path) -> None:
    spec = EXAMPLES / "secrets" / "secrets.yaml"
    done = run(spec, "-e", f"dir={tmp_path}", "--result", str(tmp_path / "result.json"))
    assert done.exit_code == 0, done.output
    assert "correct-horse" in (tmp_path / "db.conf").read_text()
    assert "correct-horse" not in (tmp_path / "result.json").read_text()

"""The examples as they are shipped: valid without hosts, formatted, and all of them listed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main as kubexm
from tests.examples.kit import EXAMPLES

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/pipeline.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_example_is_valid_without_warnings(name: str) -> None:
    done = CliRunner().invoke(kubexm, ["validate", str(EXAMPLES / name / "pipeline.yaml")])
    assert done.exit_code == 0, done.output
    assert "warning" not in done.output


def test_examples_are_formatted() -> None:
    done = CliRunner().invoke(kubexm, ["fmt", "--diff", str(EXAMPLES)])
    assert done.exit_code == 0, done.output


def test_all_examples_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()) == NAMES
    assert [name for name in NAMES if f"({name}/pipeline.yaml)" not in listed] == []

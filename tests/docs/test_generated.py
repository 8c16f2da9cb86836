"""The generated pages are what the code says today, whoever generates them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kubexm_spec.models
from kubexm_exec.cli.main import LazyGroup
from kubexm_exec.cli.main import main as kubexm
from kubexm_exec.plugins import step_registry
from tests.docs.book import GENERATED, ROOT
from tests.environments import borrowing_environment, build_wheel, install
from tools.docs import SECTIONS, pages


def test_committed_pages_are_what_would_be_generated() -> None:
    generated = pages()
    assert sorted(generated) == sorted(GENERATED)
    for name, text in generated.items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, f"docs/{name} is out of date; run: make docs"


def test_every_model_of_the_documents_has_a_section() -> None:
    bases = {"Model", "ModuleBody", "TaskBody", "BaseStepSpec"}
    models = {
        name
        for name in kubexm_spec.models.__all__
        if hasattr(getattr(kubexm_spec.models, name), "model_fields") and name not in bases
    }
    assert set(SECTIONS) == models


def test_every_step_type_and_command_has_a_section() -> None:
    steps = (ROOT / "docs" / "step-reference.md").read_text("utf-8")
    for info in step_registry().infos():
        if info.distribution == "kubexm":
            assert f"\n## {info.name}\n" in steps
    commands = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert isinstance(kubexm, LazyGroup)
    for name in kubexm.commands or ():
        assert f"\n## kubexm {name}\n" in commands


def test_pages_depend_neither_on_the_terminal_nor_on_other_packages_nor_on_hashing(tmp_path: Path) -> None:
    venv = borrowing_environment(tmp_path)
    install(venv, build_wheel(ROOT / "tests" / "thirdparty" / "acme-kubexm", tmp_path / "dist"))
    for python, env in (
        (venv / "bin" / "python", {"COLUMNS": "40", "PYTHONHASHSEED": "1"}),
        (Path(sys.executable), {"COLUMNS": "200", "PYTHONHASHSEED": "2", "LANG": "de_DE.UTF-8"}),
    ):
        done = subprocess.run(
            [python, ROOT / "tools" / "docs.py", "--check"],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", GENERATED)
def test_generated_page_says_that_it_is(name: str) -> None:
    assert "make docs" in (ROOT / "docs" / name).read_text("utf-8")

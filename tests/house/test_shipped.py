"""Where the shipped templates and specs are found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args

import pytest

from kubexm_spec import shipped

Kind = Literal["templates", "specs"]
KINDS = get_args(Kind)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_checkout_has_them_beside_the_packages(kind: Kind) -> None:
    assert shipped.shipped_root(kind) == ROOT / kind


def found_by_a_copy(site: Path, kind: str) -> subprocess.CompletedProcess[str]:
    package = site / "kubexm_spec"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    shutil.copy(shipped.__file__, package)
    code = f"from kubexm_spec.shipped import shipped_root; print(shipped_root({kind!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_installed_package_has_them_inside(kind: str, tmp_path: Path) -> None:
    inside = tmp_path / "kubexm_spec" / "_shipped" / kind
    inside.mkdir(parents=True)
    assert found_by_a_copy(tmp_path, kind).stdout.strip() == str(inside.resolve())


@pytest.mark.parametrize("kind", KINDS)
def test_folder_of_the_same_name_in_site_packages_is_not_taken_for_ours(kind: str, tmp_path: Path) -> None:
    (tmp_path / kind).mkdir()
    result = found_by_a_copy(tmp_path, kind)
    assert result.returncode != 0
    assert "install kubexm again" in result.stderr

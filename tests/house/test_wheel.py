"""The built wheel, installed into an environment that has nothing but its locked dependencies."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.environments import ROOT, build_wheel, locked_environment, site_packages, succeed

# One process builds and installs it for all of these tests.
pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return locked_environment(tmp_path_factory.mktemp("environment"), wheel)


def test_wheel_has_templates_and_specs_inside_a_package_and_not_at_the_top(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kubexm_spec", "kubexm_exec", "kubexm_steps"}
    for kind in ("templates", "specs"):
        tracked = succeed("git", "ls-files", kind, cwd=ROOT) if (ROOT / ".git").exists() else ""
        shipped = {name.removeprefix("kubexm_spec/_shipped/") for name in names}
        assert any(name.startswith(f"{kind}/") for name in shipped)
        assert set(tracked.split()) <= shipped


def test_wheel_has_the_licence_and_type_markers(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert all(f"{package}/py.typed" in names for package in ("kubexm_spec", "kubexm_exec", "kubexm_steps"))


@pytest.mark.parametrize("command", ["kubexm", "kubexm-run"])
def test_installed_command_answers_help_from_any_folder(command: str, environment: Path, tmp_path: Path) -> None:
    assert "Usage" in succeed(environment / "bin" / command, "--help", cwd=tmp_path)


def test_installed_package_is_the_wheel_and_finds_what_it_ships(environment: Path, tmp_path: Path) -> None:
    code = "from kubexm_spec.shipped import shipped_root as r; print(r('templates'), r('specs'), sep='\\n')"
    found = [Path(line) for line in succeed(environment / "bin" / "python", "-c", code, cwd=tmp_path).splitlines()]
    site = site_packages(environment.resolve())
    assert found == [site / "kubexm_spec" / "_shipped" / kind for kind in ("templates", "specs")]


def test_installed_package_offers_each_entry_point_once_and_each_loads(environment: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.metadata as m\n"
        "for group in ('steps', 'executors', 'connectors', 'secrets'):\n"
        "    for point in m.entry_points(group='kubexm.' + group):\n"
        "        point.load()\n"
        "        print(group, point.name)\n"
    )
    lines = succeed(environment / "bin" / "python", "-c", code, cwd=tmp_path).splitlines()
    assert len(lines) == len(set(lines))
    assert {"steps file", "executors concurrent", "connectors local", "secrets env"} <= set(lines)

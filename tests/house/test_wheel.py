"""The built wheel, installed into an environment that has nothing but its locked dependencies."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# One process builds and installs it for all of these tests.
pytestmark = pytest.mark.xdist_group("wheel")


def succeed(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def locked_names() -> list[str]:
    return re.findall(r"^([a-z0-9][a-z0-9._-]*)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)


def link_locked_dependencies(folder: Path) -> None:
    """Fill a folder with links to this environment's copies of what requirements.lock names, and nothing else."""
    folder.mkdir()
    for name in locked_names():
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # locked for another platform or Python
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("kubexm-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, and its dependencies linked: installing them would take a minute."""
    home = tmp_path_factory.mktemp("environment")
    venv = home / "venv"
    succeed(sys.executable, "-m", "venv", "--without-pip", venv, cwd=home)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", venv / "bin" / "python")
    succeed(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    link_locked_dependencies(home / "dependencies")
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{home / 'dependencies'}\n")
    # Every requirement of the wheel's metadata is met by what is locked.
    succeed(*pip, "check", cwd=home)
    return venv


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
    (site,) = environment.resolve().glob("lib/python*/site-packages")
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

"""Virtual environments for tests: wheels are really installed, dependencies are linked from the running one."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def succeed(*command: str | Path, cwd: Path) -> str:
    """Run a command that must work; gives what it printed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(project: Path, out: Path) -> Path:
    """The wheel of a project, built with what is installed here."""
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.glob("*.whl"))
    succeed(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out, cwd=project)
    (built,) = set(out.glob("*.whl")) - before
    return built


def install(venv: Path, *wheels: Path) -> None:
    """Install wheels into an environment, and nothing else."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", venv / "bin" / "python")
    succeed(*pip, "install", "--quiet", "--no-deps", "--no-index", *wheels, cwd=venv)
    # Every requirement of the wheels' metadata is met by what is there.
    succeed(*pip, "check", cwd=venv)


def locked_environment(home: Path, *wheels: Path) -> Path:
    """An environment with wheels in it, and the locked dependencies linked: installing them would take a minute."""
    venv = bare_environment(home)
    _link_locked_dependencies(home / "dependencies")
    (site_packages(venv) / "dependencies.pth").write_text(f"{home / 'dependencies'}\n")
    install(venv, *wheels)
    return venv


def borrowing_environment(home: Path, *sites: Path) -> Path:
    """An environment with kubexm's commands that sees what is installed in others; by default in the running one."""
    venv = bare_environment(home)
    borrowed = sites or (Path(sysconfig.get_path("purelib")),)
    # Not by bare paths: editable installs of the others are found through their own .pth files.
    lines = [f"import site; site.addsitedir({str(site)!r})\n" for site in borrowed]
    (site_packages(venv) / "borrowed.pth").write_text("".join(lines))
    for script in importlib.metadata.distribution("kubexm").entry_points.select(group="console_scripts"):
        path = venv / "bin" / script.name
        path.write_text(f"#!{venv}/bin/python\nfrom {script.module} import {script.attr}\n{script.attr}()\n")
        path.chmod(0o755)
    return venv


def bare_environment(home: Path) -> Path:
    """An environment with nothing in it, not even pip."""
    home.mkdir(parents=True, exist_ok=True)
    succeed(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    return home / "venv"


def site_packages(venv: Path) -> Path:
    """Where an environment keeps its packages."""
    (found,) = venv.glob("lib/python*/site-packages")
    return found


def _locked_names() -> list[str]:
    return re.findall(r"^([a-z0-9][a-z0-9._-]*)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)


def _link_locked_dependencies(folder: Path) -> None:
    """Fill a folder with links to this environment's copies of what requirements.lock names, and nothing else."""
    folder.mkdir()
    for name in _locked_names():
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # locked for another platform or Python
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))

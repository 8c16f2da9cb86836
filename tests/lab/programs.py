"""Programs of clusters (etcd, containerd, kubectl, ...) for tests: built by `make kubernetes`, or installed here."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.lab.machines import Machine

_PLACE = "/usr/local/bin"


@functools.cache
def _cache() -> Path:
    tool = Path(__file__).parents[2] / "tools" / "kubernetes.sh"
    if not tool.exists():
        return Path("/nonexistent")
    shown = subprocess.run([tool, "--where"], capture_output=True, text=True, check=True, timeout=60)
    return Path(shown.stdout.strip())


@functools.cache
def find(name: str) -> Path | None:
    """The newest one in the cache, or that of this machine."""

    def age(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.parent.name)]

    if built := sorted(_cache().glob(f"[!.]*-[0-9]*/{name}"), key=age):
        return built[-1]
    found = shutil.which(name, path="/usr/bin:/usr/sbin:/usr/local/bin")
    return Path(found) if found else None


def missing(names: Iterable[str]) -> str:
    """Why tests that need these programs cannot run here, or nothing."""
    absent = [name for name in names if find(name) is None]
    return f"no {', '.join(absent)} here: `make test` installs it as root" if absent else ""


def bring(machine: Machine, names: Iterable[str]) -> None:
    """Put programs on a machine, where nothing else is needed to run them."""
    for name in names:
        source, target = find(name), machine.root / _PLACE.lstrip("/") / name
        assert source is not None
        if not target.exists():
            shutil.copy(source, target)

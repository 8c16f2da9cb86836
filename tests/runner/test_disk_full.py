"""A file system that fills up while something is written to it: the old files are intact, and nothing else is left."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Deadline
from kubexm_exec.runner import Runner
from kubexm_exec.runner.files.trees import NewFile, TreeChange
from kubexm_exec.step import StepFailed
from tests.lab.sshd import MISSING, SSHD, SshHost


def _missing() -> str:
    if SSHD is None:
        return MISSING
    if os.geteuid() != 0:
        return "a file system of its own needs root"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no mount namespaces here"


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())

SPACE = 2 << 20


class TightHost(SshHost):
    """A host with little space in one of its folders, in a mount namespace of its own."""

    @property
    def tight(self) -> Path:
        return self.folder / "tight"

    def command(self) -> list[str]:
        self.tight.mkdir(exist_ok=True)
        mount = f"mount -t tmpfs -o size={SPACE},mode=0755 tmpfs '{self.tight}'"
        return ["unshare", "-m", "sh", "-c", f'set -e; {mount}; exec "$@"', "sh", *super().command()]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TightHost]:
    host = TightHost(tmp_path_factory.mktemp("tight") / "host")
    try:
        host.start()
        yield host
    finally:
        host.stop()


@pytest.fixture
def runner(host: TightHost) -> Iterator[Runner]:
    connector = SshConnector(host.host(), str)
    runner = Runner(connector, deadline=Deadline.after(60))
    runner.shell('cd -- "$1" && rm -rf -- * .[!.]* && echo old >a && echo old >b', str(host.tight))
    yield runner
    connector.close()


def by_bytes(runner: Runner, folder: str, local: Path) -> None:
    runner.write(f"{folder}/a", local.read_bytes())


def by_little_ones(runner: Runner, folder: str, local: Path) -> None:
    data = local.read_bytes()
    for number in range(len(data) // 60_000):
        runner.write(f"{folder}/a", data[: 60_000 + number])
        runner.run(["cp", f"{folder}/a", f"{folder}/copy{number}"], check=False)


def by_stream(runner: Runner, folder: str, local: Path) -> None:
    with local.open("rb") as file:
        file.seek(1)
        runner.write(f"{folder}/a", file)


def by_file(runner: Runner, folder: str, local: Path) -> None:
    runner.send(local, f"{folder}/a")


def by_tree(runner: Runner, folder: str, local: Path) -> None:
    look = runner.trees.look(folder, [folder])
    data = local.read_bytes()
    files = [NewFile(f"{folder}/{name}", data[:1_000_000], 0o644, 0, 0) for name in ("a", "b", "c", "d")]
    runner.trees.change(folder, TreeChange(gone=[f"{folder}/b"], files=files), look)


@pytest.mark.parametrize(
    ("way", "size"),
    [(by_bytes, 3 << 20), (by_stream, 3 << 20), (by_file, 3 << 20), (by_file, 9 << 20), (by_tree, 3 << 20)],
    ids=["bytes", "stream", "file", "large file", "folder"],
)
def test_the_old_files_are_intact_nothing_is_left_and_the_message_says_why(
    host: TightHost, runner: Runner, tmp_path: Path, way: Callable[[Runner, str, Path], None], size: int
) -> None:
    local = tmp_path / "local"
    local.write_bytes(random.Random(size).randbytes(size))
    folder = str(host.tight)
    with pytest.raises(StepFailed) as caught:
        way(runner, folder, local)
    assert "no space left on device (the file system is full)" in caught.value.message
    assert "df -h" in caught.value.hint
    assert runner.shell('cd -- "$1" && ls -A && cat a b', folder).out == "a\nb\nold\nold\n"


def test_a_small_file_that_no_longer_fits_leaves_the_old_one(host: TightHost, runner: Runner, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(random.Random(1).randbytes(9 << 20))
    with pytest.raises(StepFailed, match=r"write .*/a: no space left on device \(the file system is full\)"):
        by_little_ones(runner, str(host.tight), local)
    assert runner.shell('cd -- "$1" && ls -A | grep -c kx', str(host.tight), expect=(1,)).out == "0\n"
    assert len(runner.read_bytes(f"{host.tight}/a")) >= 60_000

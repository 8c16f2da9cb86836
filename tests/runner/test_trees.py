"""Folders through the runner: looked at in one round trip, changed by one stream, each file in one go."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Deadline
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.runner import Runner
from kubexm_exec.runner.files import trees
from kubexm_exec.runner.files.transfer import LARGE
from kubexm_exec.runner.files.trees import NewFile, TreeChange
from kubexm_exec.step import StepFailed
from tests.lab.people import missing, peopled_host
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host
from tests.runner.conftest import WithTools

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
ME = (os.geteuid(), os.getegid())


def put(runner: Runner, root: Path, files: dict[str, bytes], *, mode: int = 0o644, owner: str = "") -> None:
    """Put files in place below a folder, as a step would."""
    paths = [f"{root}/{name}" for name in files]
    above = {folder: None for path in paths for folder in _folders(path, str(root))}
    look = runner.trees.look(str(root), [str(root), *above, *paths])
    new = [folder for folder in above if not look.states[folder].exists]
    content = [NewFile(f"{root}/{name}", data, mode, look.uid, look.gid) for name, data in files.items()]
    runner.trees.change(str(root), TreeChange(folders=new, files=content, owner=owner), look)


def _folders(path: str, root: str) -> list[str]:
    found: list[str] = []
    while (path := os.path.dirname(path)) != root:  # noqa: PTH120
        found.append(path)
    return found[::-1]


def content_of(root: Path) -> dict[str, bytes]:
    return {
        os.fsdecode(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


ODD = [
    "-rf",
    "two words",
    "new\nline",
    "b\\s",
    "é漢",
    "\udcff",
    ".hidden",
    "..odd",
    "it's $(id)/*",
    "x" * 200,
    "=a=b",
    "t",
]


def test_files_of_any_name_arrive_and_leave_nothing_else(runner: Runner, folder: Path) -> None:
    files = {f"{name}{end}": name.encode("utf-8", "surrogateescape") for name in ODD for end in ("", "d/-x", "d/\n/y")}
    put(runner, folder, files, mode=0o640)
    assert content_of(folder) == files
    assert {path.stat().st_mode & 0o7777 for path in folder.rglob("*") if path.is_file()} == {0o640}
    assert [path.name for path in folder.iterdir() if path.name.startswith(".kx")] == []


def test_everything_below_a_folder_is_listed_whatever_it_is_called(runner: Runner, folder: Path) -> None:
    for name in ODD:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "li\nnk").symlink_to("no\nwhere")
    os.mkfifo(folder / "pipe")
    look = runner.trees.look(str(folder), [str(folder)], below=True)
    assert {state.path for state in look.below} == {str(path) for path in folder.rglob("*")}
    kinds = {os.path.relpath(state.path, folder): state.kind for state in look.below}
    assert (kinds["sub/deep"], kinds["li\nnk"], kinds["pipe"], kinds["-rf"]) == ("directory", "link", "other", "file")
    assert (look.uid, look.gid) == ME


def test_a_folder_that_is_not_there_has_nothing_below(runner: Runner, folder: Path) -> None:
    look = runner.trees.look(f"{folder}/missing", [f"{folder}/missing", f"{folder}/missing/x"], below=True)
    assert look.below == ()
    assert [state.kind for state in look.states.values()] == ["absent", "absent"]


def test_thousands_of_files_are_sent_compared_and_removed_with_one_command_each(
    folder: Path, connector: WithTools, busybox: bool
) -> None:
    runner = Runner(connector, deadline=Deadline.after(600))
    # It is the same with busybox, only slower.
    spread = 200 if busybox else 2_000
    files = {f"{number % 90}/{number}": str(number).encode() for number in range(spread)}
    files |= {f"many/{number}": str(number).encode() for number in range(1_000)}
    connector.count = 0
    put(runner, folder, files)
    assert connector.count == 2, "a look and a change"
    connector.count = 0
    look = runner.trees.look(str(folder), [str(folder), *(f"{folder}/{name}" for name in files)], below=True)
    assert connector.count == 1
    assert all(look.states[f"{folder}/{name}"].holds(data) for name, data in files.items())
    gone = [state.path for state in look.below if state.kind == "file"]
    emptied = [state.path for state in look.below if state.kind == "directory"]
    assert (len(gone), len(emptied)) == (spread + 1_000, 91)
    connector.count = 0
    runner.trees.change(str(folder), TreeChange(gone=gone, emptied=emptied), look)
    assert connector.count == 1
    assert list(folder.iterdir()) == []


def test_the_content_of_many_files_is_read_with_one_command(runner: Runner, folder: Path, connector: WithTools) -> None:
    for number in range(500):
        (folder / f"{number}\n").write_bytes(bytes([number % 256]) * number)
    states = runner.inspect_all([f"{folder}/{number}\n" for number in range(500)])
    connector.count = 0
    assert runner.trees.read(states) == [bytes([number % 256]) * number for number in range(500)]
    assert connector.count == 1
    (folder / "7\n").write_bytes(b"changed")
    with pytest.raises(StepFailed, match=r"read .*/7\n: it keeps changing"):
        runner.trees.read(states)


def test_the_order_in_which_files_of_many_folders_are_named_costs_nothing(runner: Runner, tmp_path: Path) -> None:
    paths = [tmp_path / f"d{number % 20}" / f"f {number}" for number in range(600)]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    states = runner.inspect_all([str(path) for path in paths])
    began = time.monotonic()
    assert runner.trees.read(states) == [f"{number}\n".encode() for number in range(600)]
    change = TreeChange(modes={0o600: [str(path) for path in paths]})
    runner.trees.change(str(tmp_path), change, runner.trees.look(str(tmp_path), [str(tmp_path)]))
    # It was a minute once: all names were moved about for each.
    assert time.monotonic() - began < 45
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}


def test_links_are_made_and_replaced_whatever_they_point_to(runner: Runner, folder: Path) -> None:
    (folder / "old").symlink_to("a")
    (folder / "file").write_bytes(b"x")
    (folder / "to folder").symlink_to(folder)
    links = {"old": "/abs/olute", "file": "../../out", "new\nname": "-dash", "sub/deep": "new\nline", "to folder": "x"}
    look = runner.trees.look(str(folder), [str(folder)])
    change = TreeChange(folders=[f"{folder}/sub"], links={f"{folder}/{name}": to for name, to in links.items()})
    runner.trees.change(str(folder), change, look)
    assert {name: str((folder / name).readlink()) for name in links} == links
    assert sorted(path.name for path in folder.iterdir()) == ["file", "new\nname", "old", "sub", "to folder"]


def test_a_stream_that_breaks_changes_nothing(runner: Runner, folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(b"old")
    local = tmp_path / "local"
    local.write_bytes(b"x" * 500_000)
    source = runner.source(local)
    local.write_bytes(b"y" * 500_000)
    look = runner.trees.look(str(folder), [str(folder)])
    files = [NewFile(f"{folder}/{name}", b"new", 0o644, *ME) for name in ("a", "b", "c")]
    change = TreeChange(gone=[f"{folder}/b"], files=[*files, NewFile(f"{folder}/d", source, 0o644, *ME)])
    with pytest.raises(StepFailed, match="was changed while it was sent"):
        runner.trees.change(str(folder), change, look)
    assert content_of(folder) == {"a": b"old", "b": b"old", "c": b"old"}
    assert len(list(folder.iterdir())) == 3


def test_a_folder_in_the_way_of_a_file_is_an_error_and_stays(runner: Runner, folder: Path) -> None:
    (folder / "a").mkdir()
    look = runner.trees.look(str(folder), [str(folder)])
    files = [NewFile(f"{folder}/{name}", b"new", 0o644, *ME) for name in ("a", "b", "c", "d")]
    with pytest.raises(StepFailed, match=f"write to {folder.parent}"):
        runner.trees.change(str(folder), TreeChange(files=files), look)
    assert (folder / "a").is_dir()
    assert not [path for path in folder.iterdir() if path.name.startswith(".kx")]


def test_what_a_killed_run_left_is_removed_after_a_day(runner: Runner, folder: Path) -> None:
    old, young = folder / ".kx-01.tree", folder / ".kx-02.tree"
    for path in (old, young):
        (path / "t").mkdir(parents=True)
        path.chmod(0o700)
    os.utime(old, (time.time() - 200_000,) * 2)
    put(runner, folder, dict.fromkeys("abcd", b"x"))
    assert sorted(path.name for path in folder.iterdir()) == [".kx-02.tree", "a", "b", "c", "d"]
    assert trees.is_transient(str(young))


def test_nothing_is_renamed_from_one_file_system_to_another(runner: Runner, folder: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == folder.stat().st_dev:
        pytest.skip("there is no second file system here")
    there = other / f"kx-{os.getpid()}"
    there.mkdir()
    try:
        (folder / "far").symlink_to(there)
        watched = os.stat(there).st_ino  # noqa: PTH116
        put(runner, folder, {**dict.fromkeys("abcd", b"near"), **{f"far/{name}": b"far" for name in "abcd"}})
        assert content_of(there) == dict.fromkeys("abcd", b"far")
        assert (folder / "far").is_symlink()
        assert there.stat().st_ino == watched
    finally:
        for path in there.iterdir():
            path.unlink()
        there.rmdir()


@as_root
def test_owners_and_modes_are_exact(runner: Runner, folder: Path) -> None:
    user, group = pwd.getpwuid(1).pw_name, grp.getgrgid(1).gr_name
    (folder / "kept").write_bytes(b"old")
    os.chown(folder / "kept", 54321, 54322)
    names = ["kept", "new", "set", "x"]
    look = runner.trees.look(str(folder), [str(folder)])
    files = [NewFile(f"{folder}/{name}", b"new", 0o4711 if name == "set" else 0o640, 54321, 54322) for name in names]
    runner.trees.change(str(folder), TreeChange(files=files), look)
    assert {((info := (folder / name).stat()).st_uid, info.st_gid) for name in names} == {(54321, 54322)}
    assert (folder / "set").stat().st_mode & 0o7777 == 0o4711
    runner.trees.change(str(folder), TreeChange(files=files, owner=f"{user}:{group}"), look)
    assert {((info := (folder / name).stat()).st_uid, info.st_gid) for name in names} == {(1, 1)}
    assert (folder / "set").stat().st_mode & 0o7777 == 0o4711, "giving it away must not take that off"
    change = TreeChange(owners={"54321:54322": [f"{folder}/{name}" for name in names]}, modes={0o600: [f"{folder}/x"]})
    runner.trees.change(str(folder), change, look)
    assert {((info := (folder / name).stat()).st_uid, info.st_gid) for name in names} == {(54321, 54322)}
    assert (folder / "x").stat().st_mode & 0o7777 == 0o600


def test_large_files_go_their_own_way(runner: Runner, folder: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(random.Random(1).randbytes(LARGE))
    look = runner.trees.look(str(folder), [str(folder)])
    small = [NewFile(f"{folder}/sub/{number}", b"x", 0o644, *ME) for number in range(5)]
    change = TreeChange(
        folders=[f"{folder}/sub"], files=[*small, NewFile(f"{folder}/sub/big", runner.source(local), 0o600, *ME)]
    )
    runner.trees.change(str(folder), change, look)
    assert (folder / "sub" / "big").read_bytes() == local.read_bytes()
    assert (folder / "sub" / "big").stat().st_mode & 0o7777 == 0o600
    assert len(list((folder / "sub").iterdir())) == 6


# over a connection


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.mark.skipif(SSHD is None, reason=MISSING)
def test_a_connection_that_drops_in_the_middle_of_the_stream_changes_nothing(box: SshHost, tmp_path: Path) -> None:
    root = tmp_path / "to"
    root.mkdir()
    names = [f"f{number}" for number in range(20)]
    for name in names:
        (root / name).write_bytes(b"old")
    local = tmp_path / "local"
    local.mkdir()
    for name in names:
        (local / name).write_bytes(random.Random(name).randbytes(1 << 20))
    connector = SshConnector(box.host(), str)
    dropped = False

    def drop(message: str, done: float | None, total: float | None) -> None:
        nonlocal dropped
        if not dropped and (done or 0) > 10 << 20:
            dropped = True
            box.drop_connections()

    runner = Runner(connector, deadline=Deadline.after(60), on_progress=drop)
    look = runner.trees.look(str(root), [str(root)])
    files = [NewFile(f"{root}/{name}", runner.source(local / name), 0o644, *ME) for name in names]
    with pytest.raises(ConnectorError):
        runner.trees.change(str(root), TreeChange(files=files), look)
    assert {(root / name).read_bytes() for name in names} == {b"old"}
    runner.trees.change(str(root), TreeChange(files=files), look)
    connector.close()
    sums = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}
    assert sums == {name: hashlib.sha256((local / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_somebody_who_is_not_root_keeps_what_belongs_to_others_or_is_told(tmp_path: Path) -> None:
    with peopled_host() as host:
        options = host.host()
        from msgspec.structs import replace

        connector = SshConnector(replace(options, user="other"), str)
        runner = Runner(connector, deadline=Deadline.after(60))
        uid = int(runner.run(["id", "-u"]).out)
        root = host.prefix / "to"
        root.mkdir()
        os.chown(root, uid, uid)
        (root / "mine").write_bytes(b"old")
        os.chown(root / "mine", uid, uid)
        files = dict.fromkeys(("mine", "a", "b", "c", "sub/d"), b"new")
        put(runner, root, files)
        assert content_of(root) == files
        assert {path.stat().st_uid for path in root.rglob("*")} == {uid}
        (root / "roots").write_bytes(b"old")
        look = runner.trees.look(str(root), [str(root)])
        theirs = [NewFile(f"{root}/{name}", b"newer", 0o644, uid, uid) for name in ("a", "b", "c")]
        change = TreeChange(files=[*theirs, NewFile(f"{root}/roots", b"newer", 0o644, 0, 0)])
        with pytest.raises(StepFailed, match="roots: operation not permitted"):
            runner.trees.change(str(root), change, look)
        assert (root / "roots").read_bytes() == b"old"
        connector.close()

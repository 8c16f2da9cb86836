"""What the cases of fetch cannot say: large files, files that change, folders that cannot be written to."""

from __future__ import annotations

import hashlib
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Sink
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.runner import Runner
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest


class Changing(LocalConnector):
    """This machine, where somebody writes to a file whenever it has been read."""

    def __init__(self, times: int) -> None:
        super().__init__(GraphHost("here", connector="local"), str)
        self.times = times

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        if self.times:
            self.times -= 1
            with Path(path).open("a") as file:
                file.write("more\n")
        super().stream(path, sink, deadline=deadline, cancel=cancel)
        if self.times:
            self.times -= 1
            with Path(path).open("a") as file:
                file.write("and more\n")


def test_a_large_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    size = 40 << 20
    (tmp_path / "large").write_bytes(random.Random(1).randbytes(size))
    world = StepTest(tmp_path, "fetch", {"path": str(tmp_path / "large"), "to": "got", "name": "large"})
    try:
        tracemalloc.start()
        try:
            result = world.run()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    finally:
        world.close()
    assert peak < 12 << 20
    got = tmp_path / "got" / "here" / "large"
    assert result.outputs["path"] == str(got)
    assert hashlib.sha256(got.read_bytes()).hexdigest() == result.outputs["sha256"]
    said = [event.data for event in world.events if event.kind == "action.progress"]
    assert said[-1] == {"message": "fetch large", "done": size, "total": size}


@pytest.mark.parametrize("times", [0, 1, 2, 4])
def test_a_file_that_changes_is_read_again_until_it_is_whole(tmp_path: Path, times: int) -> None:
    (tmp_path / "log").write_text("first\n")
    runner = Runner(Changing(times), deadline=Deadline.after(60))
    state = runner.fetch(runner.inspect(f"{tmp_path}/log"), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "log").read_bytes()
    assert state.sha256 == hashlib.sha256((tmp_path / "log").read_bytes()).hexdigest()


def test_a_file_that_changes_all_the_time_is_a_failure_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("first\n")
    runner = Runner(Changing(100), deadline=Deadline.after(60))
    with pytest.raises(StepFailed, match="it keeps changing") as caught:
        runner.fetch(runner.inspect(f"{tmp_path}/log"), tmp_path / "got")
    assert "a copy" in caught.value.hint


def test_a_cancelled_fetch_leaves_the_old_copy_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (20 << 20))
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "copy").write_bytes(b"old")
    cancel = Cancel()
    connector = LocalConnector(GraphHost("here", connector="local"), str)
    stop = Runner(connector, cancel=cancel, on_progress=lambda *_: cancel.set())
    with pytest.raises(CommandCancelled):
        stop.fetch(stop.inspect(f"{tmp_path}/large"), tmp_path / "got" / "copy")
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["copy"]
    assert (tmp_path / "got" / "copy").read_bytes() == b"old"


def test_a_place_that_cannot_be_written_to_is_a_failure_of_the_control_node(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "got").write_text("in the way")
    world = StepTest(tmp_path, "fetch", {"path": str(tmp_path / "file"), "to": "got", "name": "file"})
    try:
        with pytest.raises(StepFailed, match=r"got/here on the control node: not a directory"):
            world.run()
    finally:
        world.close()


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", "", "a//b", "./a", "a\0b"])
def test_a_name_that_leads_outside_is_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    world = StepTest(tmp_path, "fetch", {"path": "/etc/hostname", "to": "got", "name": name})
    try:
        with pytest.raises(ValueError, match="not a name inside a folder"):
            world.forecast()
    finally:
        world.close()


def test_a_path_with_dots_in_it_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "sub").mkdir()
    path = f"{tmp_path}/sub/../../{tmp_path.name}/file"
    world = StepTest(tmp_path, "fetch", {"path": path, "to": "got"})
    try:
        world.run()
    finally:
        world.close()
    assert (tmp_path / "got" / "here" / str(tmp_path / "file").lstrip("/")).read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0)
    world = StepTest(tmp_path, "fetch", {"path": str(tmp_path / "file"), "to": "got"})
    try:
        with pytest.raises(StepFailed, match="it cannot be read"):
            world.forecast()
    finally:
        world.close()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder such as /tmp."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "private").mkdir()
    (tmp_path / "file").write_text("x")
    return tmp_path / "shared"


def planted(link: Path, target: Path) -> None:
    link.symlink_to(target)
    os.chown(link, 65534, 65534, follow_symlinks=False)


@pytest.mark.parametrize("to", ["shared/got", "shared/got/deeper", "shared"])
def test_a_link_of_another_user_leads_nowhere(tmp_path: Path, shared: Path, to: str) -> None:
    planted(shared / ("here" if to == "shared" else "got"), tmp_path / "private")
    world = StepTest(tmp_path, "fetch", {"path": str(tmp_path / "file"), "to": to, "name": "file"})
    try:
        for action in (world.forecast, world.run):
            with pytest.raises(StepFailed, match=r"is a link to .*/private, in a folder that everybody may write"):
                action()
    finally:
        world.close()
    assert not list((tmp_path / "private").iterdir())


class Exchanging(LocalConnector):
    """This machine, where somebody else puts a link in the place of the host's folder while a file is read."""

    def __init__(self, folder: Path, target: Path) -> None:
        super().__init__(GraphHost("here", connector="local"), str)
        self.folder, self.target = folder, target

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        super().stream(path, sink, deadline=deadline, cancel=cancel)
        self.folder.rename(self.folder.with_name("moved"))
        planted(self.folder, self.target)


def test_a_folder_exchanged_for_a_link_while_a_file_is_read_leads_nowhere(tmp_path: Path, shared: Path) -> None:
    (shared / "here").mkdir()
    runner = Runner(Exchanging(shared / "here", tmp_path / "private"), deadline=Deadline.after(30), cancel=Cancel())
    runner.fetch(runner.inspect(f"{tmp_path}/file"), shared / "here" / "file")
    assert not list((tmp_path / "private").iterdir())
    assert [path.name for path in (shared / "moved").iterdir()] == ["file"]
    with pytest.raises(StepFailed, match="is a link to"):
        runner.fetch(runner.inspect(f"{tmp_path}/file"), shared / "here" / "file")


@pytest.mark.parametrize("before", ["file", "link", "nothing"])
def test_undo_goes_through_no_link_of_another_user(tmp_path: Path, shared: Path, before: str) -> None:
    copy = shared / "here" / "file"
    copy.parent.mkdir()
    if before == "file":
        copy.write_text("old")
    elif before == "link":
        copy.symlink_to("elsewhere")
    world = StepTest(tmp_path, "fetch", {"path": str(tmp_path / "file"), "to": "shared", "name": "file"})
    try:
        world.run()
        (shared / "here").rename(shared / "moved")
        (tmp_path / "private" / "file").write_text("mine")
        planted(shared / "here", tmp_path / "private")
        with pytest.raises(StepFailed, match="is a link to"):
            world.rollback()
    finally:
        world.close()
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["file"]
    assert (tmp_path / "private" / "file").read_text() == "mine"

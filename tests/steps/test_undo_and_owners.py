"""What the cases cannot say: owners, content that is too much to keep, and laws of editing lines."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.control import Cancel
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.model.result import ForecastState
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps import directory
from kubexm_steps.lib import files as _files
from kubexm_steps.line_in_file import with_line, without
from tests.steps import trees

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

LINES = st.lists(st.sampled_from(["a", "b", "#a", "", " a", "[s]"]), max_size=6)
TEXTS = st.tuples(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda made: made[1].join(made[0]) + (made[1] if made[2] and made[0] else "")
)
PATTERNS = st.sampled_from([None, "^a$", "^#?a", "^#a", "b", "nothing", r"^\[s\]", "^$"])


@given(TEXTS, st.sampled_from(["a", "b", "new", "#a"]), PATTERNS, PATTERNS, PATTERNS)
def test_a_line_is_in_the_text_afterwards_and_a_second_time_changes_nothing(
    text: str, line: str, match: str | None, after: str | None, before: str | None
) -> None:
    changed = with_line(text, line, match, after, before)
    assert line in changed.replace("\r\n", "\n").split("\n")
    assert with_line(changed, line, match, after, before) == changed


@given(TEXTS, st.sampled_from(["a", "b", "#a"]), PATTERNS)
def test_a_line_is_not_in_the_text_afterwards_and_the_others_are(text: str, line: str, match: str | None) -> None:
    changed = without(text, line, match)
    assert without(changed, line, match) == changed
    assert line not in changed.replace("\r\n", "\n").split("\n")
    if match is None:
        kept = [each for each in text.replace("\r\n", "\n").split("\n") if each != line]
        assert set(changed.replace("\r\n", "\n").split("\n")) <= {*kept, ""}


@as_root
@pytest.mark.parametrize(
    ("step", "more"),
    [
        ("file", {"content": "old"}),
        ("file", {"content": "new"}),
        ("copy", {"src": "source"}),
        ("line-in-file", {"line": "new"}),
        ("template", {"src": "source"}),
    ],
)
def test_the_owner_is_given_shown_and_put_back(tmp_path: Path, step: str, more: dict[str, Any]) -> None:
    (tmp_path / "source").write_text("new")
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    os.chown(path, 1, 2)
    world = StepTest(tmp_path, step, {"path": str(path), "owner": 3, "group": 4, **more})
    forecast = world.forecast()
    assert forecast.state is ForecastState.CHANGE
    assert ":" in forecast.diffs[0].note
    world.run()
    assert (path.stat().st_uid, path.stat().st_gid) == (3, 4)
    assert world.forecast().state is ForecastState.SATISFIED
    world.rollback()
    assert (path.stat().st_uid, path.stat().st_gid, path.read_text()) == (1, 2, "old")


@as_root
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    os.chown(path, 1, 2)
    StepTest(tmp_path, "file", {"path": str(path), "content": "new"}).run()
    assert (path.stat().st_uid, path.stat().st_gid) == (1, 2)


@as_root
def test_a_folder_is_given_away_and_taken_back(tmp_path: Path) -> None:
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", "owner": 3})
    (tmp_path / "d").mkdir()
    world.run()
    assert (tmp_path / "d").stat().st_uid == 3
    world.rollback()
    assert (tmp_path / "d").stat().st_uid == 0


@as_root
def test_what_is_unpacked_is_given_away_and_recognised(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(trees.archive("tar", {"d/a": "a\n"}))
    world = StepTest(
        tmp_path, "archive", {"path": f"{tmp_path}/to", "src": f"{tmp_path}/x.tar", "owner": 3, "group": 4}
    )
    world.run()
    assert {path.stat().st_uid for path in (tmp_path / "to").rglob("*")} == {3}
    assert world.forecast().state is ForecastState.SATISFIED
    os.chown(tmp_path / "to/d/a", 0, 0)
    assert "1 given away" in world.forecast().diffs[0].note
    world.run()
    assert (tmp_path / "to/d/a").stat().st_uid == 3
    world.rollback()
    assert (tmp_path / "to/d/a").stat().st_uid == 0


def test_content_that_is_too_much_to_keep_is_replaced_without_an_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "KEEP_LIMIT", 3)
    (tmp_path / "file").write_text("old content")
    world = StepTest(tmp_path, "file", {"path": f"{tmp_path}/file", "content": "new"})
    world.run()
    assert (tmp_path / "file").read_text() == "new"
    assert world.undo is None


def test_a_folder_that_is_too_much_to_keep_is_removed_without_an_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "KEEP_LIMIT", 10)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_text("content")
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", "state": "absent", "recursive": True})
    world.run()
    assert not (tmp_path / "d").exists()
    assert world.undo is None


def test_undo_is_saved_before_anything_is_changed(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("new")
    (tmp_path / "source" / "b").write_text("new")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "a").write_text("old")
    world = StepTest(tmp_path, "copy", {"src": "source", "path": f"{tmp_path}/to"})
    # Its progress is told before the first file is written: that is when it is stopped.
    world.runtime.bus.subscribe(lambda event: world.cancel.set())
    with pytest.raises(CommandCancelled):
        world.run()
    assert world.undo is not None
    world.cancel = Cancel()
    world.rollback()
    assert (tmp_path / "to" / "a").read_text() == "old"
    assert not (tmp_path / "to" / "b").exists()


def test_a_script_leaves_nothing_behind_when_it_is_killed(tmp_path: Path) -> None:
    content = f'dirname "$0" > {tmp_path}/where; sleep 60'
    world = StepTest(tmp_path, "script", {"content": content}, timeout=0.5)
    with pytest.raises(CommandTimedOut, match="while running"):
        world.run()
    folder = (tmp_path / "where").read_text().strip()
    assert "kx." in folder
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("step", "more"),
    [("directory", {"path": "{}/a/b"}), ("file", {"path": "{}/a/b/file", "content": "x", "createParents": True})],
)
def test_an_undo_says_which_folder_stays_because_of_what_others_put_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, more: dict[str, Any]
) -> None:
    world = StepTest(tmp_path, step, {**more, "path": more["path"].format(tmp_path)})
    world.run()
    (tmp_path / "a/b/theirs").touch()
    world.rollback()
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["theirs"]
    [said] = caplog.messages
    assert "the folder is kept: it contains something else" in said
    assert f"{tmp_path}/a/b'" in said


NOBODY = 0xFFFFFFFF
"""In an ACL: an entry without a number."""
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, rights, who)
    # Owner, user 1234, group, mask, others.
    for tag, rights, who in ((1, 6, NOBODY), (2, 4, 1234), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY))
)
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")


@as_root
@pytest.mark.parametrize(
    ("step", "params"),
    [
        ("file", {"content": "ours"}),
        ("file", {"mode": "0600"}),
        ("file", {"owner": "1234"}),
        ("file", {"state": "absent"}),
        ("line-in-file", {"line": "ours"}),
        ("symlink", {"target": "elsewhere", "force": True}),
    ],
)
def test_acl_and_capabilities_come_back(step: str, params: Mapping[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("before")
    try:
        os.setxattr(path, "system.posix_acl_access", ACL)
        os.setxattr(path, "security.capability", CAPABILITY)
    except OSError as error:
        pytest.skip(f"not on this file system: {error}")
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    assert len(before) == 2
    world = StepTest(tmp_path, step, {"path": str(path), **params})
    try:
        assert world.run().changed
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert path.read_text() == "before"


@as_root
@pytest.mark.parametrize("step", ["file", "symlink", "sync"])
def test_owner_of_a_link_comes_back(step: str, tmp_path: Path) -> None:
    link, source = tmp_path / "to" / "l", tmp_path / "from"
    link.parent.mkdir()
    link.symlink_to("before")
    os.chown(link, 4242, 4343, follow_symlinks=False)
    source.mkdir()
    (source / "l").write_text("ours")
    params: dict[str, Mapping[str, Any]] = {
        "file": {"path": str(link), "content": "ours"},
        "symlink": {"path": str(link), "target": "after"},
        "sync": {"src": str(source), "path": str(link.parent)},
    }
    world = StepTest(tmp_path, step, params[step])
    try:
        world.run()
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    info = link.lstat()
    assert (str(link.readlink()), info.st_uid, info.st_gid) == ("before", 4242, 4343)


def test_host_that_cannot_keep_extended_attributes_is_named_before_a_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    (other / "tar").write_text("#!/bin/sh\necho 'usage: tar'\n")
    (other / "tar").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{os.environ['PATH']}")
    path = tmp_path / "f"
    path.write_text("before")
    world = StepTest(tmp_path, "file", {"path": str(path), "content": "ours"})
    try:
        world.forecast()
        [said] = caplog.messages
        assert "an undo does not restore extended attributes: the host has no GNU tar" in said
        world.run()
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert path.read_text() == "before"


# what others put in the place of folders

OLD = {"d/": {"mode": "0711"}, "d/a": "a\n", "d/sub/": {"mode": "0700"}, "d/sub/f": "f\n", "d/l": {"link": "a"}}


def again(*more: Mapping[str, Any], root: str = "0711") -> Callable[[Path], None]:
    """Make the folder anew, with this in it."""

    def make(base: Path) -> None:
        trees.make(base, {"d/": {"mode": root}, **{name: what for each in more for name, what in each.items()}})

    return make


def part(*names: str) -> dict[str, Any]:
    """What was there, as far as it is named."""
    return {name: OLD[name] for name in names}


def link_to(other: str) -> Callable[[Path], None]:
    return lambda base: trees.make(base, {"other/a": "theirs\n", "d": {"link": other}})


@pytest.mark.parametrize(
    ("meddle", "state"),
    [
        (again(), "undone"),
        (again(part("d/a")), "undone"),
        (again(part("d/sub/", "d/l")), "undone"),
        (again(part("d/a", "d/sub/", "d/sub/f", "d/l")), "undone"),
        (again(root="0750"), "leftAlone"),
        (again({"d/a": "theirs\n"}), "leftAlone"),
        (again({"d/a/": {}}), "leftAlone"),
        (again({"d/sub": {"link": "a"}}), "leftAlone"),
        (again({"d/sub/": {"mode": "0755"}}), "leftAlone"),
        (again({"d/guest": "theirs\n"}), "leftAlone"),
        (again(part("d/sub/"), {"d/sub/guest/x": "theirs\n"}), "leftAlone"),
        (lambda base: trees.make(base, {"d": "theirs\n"}), "leftAlone"),
        (link_to("other"), "leftAlone"),
        (lambda base: os.mkfifo(base / "d"), "leftAlone"),
    ],
)
def test_removed_folder_comes_back_as_it_was_or_what_is_there_by_now_is_left_alone(
    meddle: Callable[[Path], None], state: str, tmp_path: Path
) -> None:
    trees.make(tmp_path, OLD)
    # How an archive is unpacked is another matter: without the attributes that `make` adds.
    before = {name: entry[:2] for name, entry in snapshot(tmp_path / "d").items()}
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", "state": "absent", "recursive": True})
    try:
        world.run()
        meddle(tmp_path)
        meddled = (tmp_path / "d").lstat().st_ino
        assert world.undo_run()[0] == state
        if state == "leftAlone":
            assert (tmp_path / "d").lstat().st_ino == meddled
            assert world.undo_run(overwrite=True) == ("undone", "")
        assert {name: entry[:2] for name, entry in snapshot(tmp_path / "d").items()} == before
        assert [(tmp_path / "d" / name).read_text() for name in ("a", "sub/f")] == ["a\n", "f\n"]
        assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o711
        assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".kx")]
        if (tmp_path / "other").exists():
            assert (tmp_path / "other/a").read_text() == "theirs\n"
        assert world.undo_run() == ("undone", "nothing to undo: it is as before the run")
    finally:
        world.close()


@as_root
@pytest.mark.parametrize("mode", ["0711", "0700"])
def test_what_could_not_be_removed_stays_and_the_rest_of_the_folder_comes_back(mode: str, tmp_path: Path) -> None:
    trees.make(tmp_path, {**OLD, "d/": {"mode": mode}})
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", "state": "absent", "recursive": True})
    try:
        world.run()
        # As rm leaves it where one file cannot be removed.
        trees.make(tmp_path, {"d/": {"mode": mode}, "d/sub/": {"mode": "0700"}, "d/sub/f": "f\n"})
        stays = (tmp_path / "d/sub/f").stat().st_ino
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert (tmp_path / "d/sub/f").stat().st_ino == stays
    assert sorted(snapshot(tmp_path / "d")) == ["a", "l", "sub", "sub/f"]


@pytest.mark.parametrize(
    ("before", "params", "meddle", "done"),
    [
        # Its mode was changed; who comes later finds a link at its place.
        ({"d/": {"mode": "0777"}}, {"mode": "0711"}, link_to("other"), False),
        ({"d/": {"mode": "0777"}}, {"mode": "0711"}, lambda base: None, False),
        ({"d/": {"mode": "0777"}}, {"mode": "0711"}, lambda base: trees.make(base, {"d": "theirs\n"}), False),
        # It was made.
        ({}, {}, link_to("other"), True),
        ({}, {}, link_to("nowhere"), True),
        ({}, {}, lambda base: trees.make(base, {"d": "theirs\n"}), True),
        ({}, {}, again({"d/guest": "theirs\n"}, root="0755"), False),
        # It was empty, and was removed.
        ({"d/": {"mode": "0711"}}, {"state": "absent"}, link_to("other"), True),
        ({"d/": {"mode": "0711"}}, {"state": "absent"}, again(root="0750"), True),
        ({"d/": {"mode": "0711"}}, {"state": "absent"}, lambda base: os.mkfifo(base / "d"), True),
    ],
)
def test_undo_of_a_folder_says_undone_only_if_it_is_so(
    before: Mapping[str, Any],
    params: Mapping[str, Any],
    meddle: Callable[[Path], None],
    done: bool,
    tmp_path: Path,
) -> None:
    trees.make(tmp_path, before)
    (tmp_path / "other").mkdir(mode=0o755)
    first = snapshot(tmp_path)
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", **params})
    try:
        world.run()
        if (tmp_path / "d").is_dir():
            (tmp_path / "d").rmdir()
        meddle(tmp_path)
        meddled = snapshot(tmp_path) if not (tmp_path / "d").is_fifo() else None
        assert world.undo_run()[0] == "leftAlone"
        assert meddled is None or snapshot(tmp_path) == meddled
        state, said = world.undo_run(overwrite=True)
        assert state == ("undone" if done else "undoFailed")
        assert bool(said) is not done
    finally:
        world.close()
    shutil.rmtree(tmp_path / "other")
    if done:
        assert snapshot(tmp_path) == {name: entry for name, entry in first.items() if name != "other"}


def test_sockets_of_a_removed_folder_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trees.make(tmp_path, OLD)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "d/sub/s"))
    world = StepTest(tmp_path, "directory", {"path": f"{tmp_path}/d", "state": "absent", "recursive": True})
    try:
        world.run()
        [said] = caplog.messages
        assert "an undo does not restore them" in said
        assert f"{tmp_path}/d/sub/s" in said
        assert world.undo_run() == ("undone", "")
        assert len(caplog.messages) == 2
    finally:
        world.close()


@as_root
@pytest.mark.parametrize(
    ("step", "params"),
    [
        ("directory", {"path": "sg/new", "mode": "0711"}),
        ("directory", {"path": "sg/new/below"}),
        ("directory", {"path": "sg/sub", "mode": "0711"}),
        ("directory", {"path": "sg", "mode": "0755"}),
        ("directory", {"path": "sg/empty", "state": "absent"}),
        ("directory", {"path": "sg/sub", "state": "absent", "recursive": True}),
        ("sync", {"path": "sg", "src": "source", "delete": True}),
        ("copy", {"path": "sg", "src": "source"}),
    ],
)
def test_folders_below_a_set_group_id_folder_come_back_with_their_own_mode(
    step: str, params: Mapping[str, Any], tmp_path: Path
) -> None:
    trees.make(tmp_path, {"source/a/": {}, "sg/": {}})
    os.chown(tmp_path / "sg", 0, 4321)
    (tmp_path / "sg").chmod(0o2755)
    for name in ("sub", "empty", "own"):
        (tmp_path / "sg" / name).mkdir()
        # The call takes the bit off, which chmod with four digits does not.
        (tmp_path / "sg" / name).chmod(0o2750 if name == "own" else 0o700)
    (tmp_path / "sg/sub/f").write_text("f")
    before = snapshot(tmp_path)
    world = StepTest(tmp_path, step, {**params, "path": f"{tmp_path}/{params['path']}"})
    try:
        assert world.run().changed
        assert world.forecast().state is ForecastState.SATISFIED
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert snapshot(tmp_path) == before

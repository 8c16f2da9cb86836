"""Archives that were made to do harm: nothing outside the folder is touched, and nothing dangerous gets into it."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.events import ACTION_PROGRESS, Event
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from tests.steps import trees

FORMATS = ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is given devices, and files of others")


class Thing:
    """One entry of an archive."""

    def __init__(
        self,
        name: str,
        content: str = "bad\n",
        *,
        mode: int = 0o644,
        kind: int = stat.S_IFREG,
        to: str = "",
        hard: str = "",
    ) -> None:
        self.name, self.content, self.mode, self.kind, self.to, self.hard = name, content, mode, kind, to, hard


def made(fmt: str, things: list[Thing]) -> bytes:
    """The archive, as no honest tool would make it."""
    data = io.BytesIO()
    if fmt == "zip":
        with zipfile.ZipFile(data, "w") as zipped:
            for thing in things:
                entry = zipfile.ZipInfo(thing.name)
                entry.create_system = 3
                kind = stat.S_IFLNK if thing.to else thing.kind
                entry.external_attr = (kind | thing.mode) << 16
                zipped.writestr(entry, thing.to or thing.content)
        return data.getvalue()
    mode: Any = f"w:{fmt.removeprefix('tar').removeprefix('.')}"
    kinds = {
        stat.S_IFCHR: tarfile.CHRTYPE,
        stat.S_IFBLK: tarfile.BLKTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE,
        stat.S_IFDIR: tarfile.DIRTYPE,
    }
    with tarfile.open(fileobj=data, mode=mode) as tar:
        for thing in things:
            info = tarfile.TarInfo(thing.name)
            info.mode, info.uid, info.gid, info.devmajor, info.devminor = thing.mode, 7, 8, 1, 3
            if thing.to:
                info.type, info.linkname = tarfile.SYMTYPE, thing.to
            elif thing.hard:
                info.type, info.linkname = tarfile.LNKTYPE, thing.hard
            elif thing.kind in kinds:
                info.type = kinds[thing.kind]
            else:
                info.size = len(thing.content)
            tar.addfile(info, io.BytesIO(thing.content.encode()) if info.size else None)
    return data.getvalue()


SPECIAL = {
    "setuid": [Thing("a", mode=0o4755)],
    "setgid": [Thing("d/a", mode=0o2755)],
    "device": [Thing("a", kind=stat.S_IFCHR)],
    "disk": [Thing("d/a", kind=stat.S_IFBLK)],
    "pipe": [Thing("a", kind=stat.S_IFIFO)],
}
CLIMBING = {
    "above": [Thing("good"), Thing("../victim/file")],
    "absolute": [Thing("good"), Thing("$VICTIM/file")],
    "through a link of its own": [Thing("l", to="$VICTIM"), Thing("l/file")],
    "through a link above": [Thing("l", to="../victim"), Thing("l/new")],
    "hard link, absolute": [Thing("a", hard="$VICTIM/file"), Thing("a")],
    "hard link above": [Thing("a", hard="../victim/file"), Thing("a")],
    "hard link through a link of its own": [Thing("l", to="$VICTIM"), Thing("a", hard="l/file"), Thing("a")],
}
CASES = [(name, fmt) for name, things in CLIMBING.items() for fmt in FORMATS if fmt != "zip" or not things[-2].hard]


class Ground:
    """A folder to unpack into, and what must stay as it is."""

    def __init__(self, base: Path, place: str, fmt: str, things: list[Thing], **more: Any) -> None:
        self.to, self.victim = base / "to", base / "victim"
        trees.make(base, {"to/": None, "victim/file": {"content": "root's\n", "mode": "0600"}})
        filled = [
            Thing(
                each.name.replace("$VICTIM", str(self.victim)),
                each.content,
                mode=each.mode,
                kind=each.kind,
                to=each.to.replace("$VICTIM", str(self.victim)),
                hard=each.hard.replace("$VICTIM", str(self.victim)),
            )
            for each in things
        ]
        (base / f"x.{fmt}").write_bytes(made(fmt, filled))
        src = {"src": f"{base}/x.{fmt}"} if place == "host" else {"localSrc": f"x.{fmt}"}
        self.world = StepTest(base, "archive", {"path": str(self.to), **src, **more})
        self.before = snapshot(self.victim)

    def unharmed(self) -> bool:
        return snapshot(self.victim) == self.before


@pytest.mark.parametrize("place", ["host", "control node"])
@pytest.mark.parametrize(("name", "fmt"), CASES)
def test_an_archive_that_leads_outside_is_refused_as_a_whole(name: str, fmt: str, place: str, tmp_path: Path) -> None:
    ground = Ground(tmp_path, place, fmt, CLIMBING[name])
    with pytest.raises(StepFailed) as caught:
        ground.world.run()
    assert "outside the folder" in caught.value.message or fmt == "zip" or place == "host", caught.value.message
    assert ground.unharmed()
    assert list(ground.to.iterdir()) == [], "nothing of it was unpacked"


@as_root
@pytest.mark.parametrize("place", ["host", "control node"])
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("name", SPECIAL)
def test_what_runs_as_somebody_else_and_devices_are_refused_unless_asked_for(
    name: str, fmt: str, place: str, tmp_path: Path
) -> None:
    things = SPECIAL[name]
    ground = Ground(tmp_path, place, fmt, things)
    ours = ground.to / things[0].name
    # Info-ZIP's unzip makes plain files of such entries; whoever lists the archive on the control node sees them.
    harmless = fmt == "zip" and place == "host"
    if harmless:
        ground.world.run()
        assert stat.S_ISREG(ours.lstat().st_mode)
        assert ours.lstat().st_mode & 0o6000 == 0
        return
    for call in (ground.world.forecast, ground.world.run):
        with pytest.raises(StepFailed, match="refused, because in it") as caught:
            call()
        assert "allowSpecial: true" in caught.value.hint
    assert list(ground.to.iterdir()) == []
    if fmt == "zip" and things[0].kind != stat.S_IFREG:
        return
    allowed = Ground(tmp_path / "again", place, fmt, things, allowSpecial=True, owner=3)
    allowed.world.run()
    info = (allowed.to / things[0].name).lstat()
    assert (stat.S_IFMT(info.st_mode), info.st_mode & 0o6000) == (things[0].kind, things[0].mode & 0o6000)
    assert info.st_uid == 3


@as_root
@pytest.mark.parametrize("place", ["host", "control node"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_the_owners_in_an_archive_are_nobodys_business(fmt: str, place: str, tmp_path: Path) -> None:
    ground = Ground(tmp_path, place, fmt, [Thing("a"), Thing("d/b")])
    ground.world.run()
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in ground.to.rglob("*")} == {(0, 0)}


@pytest.mark.parametrize("place", ["host", "control node"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_nothing_is_written_through_a_link_that_is_there(fmt: str, place: str, tmp_path: Path) -> None:
    ground = Ground(tmp_path, place, fmt, [Thing("file"), Thing("d/file")])
    (ground.to / "d").symlink_to(ground.victim)
    for call in (ground.world.forecast, ground.world.run):
        with pytest.raises(StepFailed, match=f"{ground.to}/d is a link to {ground.victim}"):
            call()
    assert ground.unharmed()
    assert sorted(path.name for path in ground.to.iterdir()) == ["d"]
    (ground.to / "d").unlink()
    # In place of a file, the link itself is replaced.
    (ground.to / "file").symlink_to(ground.victim / "file")
    ground.world.run()
    assert ground.unharmed()
    assert (ground.to / "file").read_text() == "bad\n"
    assert not (ground.to / "file").is_symlink()
    ground.world.rollback()
    assert (ground.to / "file").is_symlink()


def test_a_link_in_place_of_a_folder_is_followed_where_the_spec_says_so(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "host", "tar", [Thing("d/file")], follow=True)
    (ground.to / "d").symlink_to(ground.victim)
    ground.world.run()
    assert (ground.victim / "file").read_text() == "bad\n"
    ground.world.rollback()
    assert ground.unharmed()


@as_root
@pytest.mark.parametrize("where", ["shared", "shared/inner"], ids=["in the folder", "in one above"])
def test_an_archive_that_is_swapped_once_it_was_read_is_refused(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    source, other = folder / "app.tar", tmp_path / "other.tar"
    good = made("tar", [Thing("app", "good\n")])
    source.write_bytes(good)
    other.write_bytes(made("tar", [Thing("app", "bad\n")]))
    # Another user puts his own archive there, as soon as somebody has read it to the end.
    path = os.environ["PATH"]
    for tool in ("cat", "sha256sum", "tar"):
        swap = tmp_path / "bin" / tool
        swap.parent.mkdir(exist_ok=True)
        swap.write_text(
            f'#!/bin/sh\nPATH={path}\n{tool} "$@"; code=$?\ncp {other} {folder}/new\n'
            f"mv {folder}/new {source}\nexit $code\n"
        )
        swap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{path}")
    (tmp_path / "to").mkdir()
    params = {"src": str(source), "path": f"{tmp_path}/to", "sha256": hashlib.sha256(good).hexdigest()}
    with pytest.raises(StepFailed, match="its sha256 is"):
        StepTest(tmp_path, "archive", params).run()
    assert source.read_bytes() == other.read_bytes()
    assert not (tmp_path / "to/app").exists()


@as_root
@pytest.mark.parametrize("where", ["shared", "shared/inner"], ids=["in the folder", "in one above"])
def test_an_archive_that_is_swapped_just_before_it_is_unpacked_is_not_unpacked(where: str, tmp_path: Path) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    source, bad = folder / "app.tar", made("tar", [Thing("app", "bad\n")])
    source.write_bytes(made("tar", [Thing("app", "good\n")]))
    world = StepTest(tmp_path, "archive", {"src": str(source), "path": f"{tmp_path}/to"})

    def swap(event: Event) -> None:
        if event.kind == ACTION_PROGRESS:
            source.write_bytes(bad)

    world.runtime.bus.subscribe(swap)
    world.run()
    assert source.read_bytes() == bad
    assert (tmp_path / "to/app").read_text() == "good\n"


def test_what_a_killed_run_has_left_in_the_folder_goes_after_a_day(tmp_path: Path) -> None:
    source, to = tmp_path / "app.tar", tmp_path / "to"
    source.write_bytes(made("tar", [Thing("app", "good\n")]))
    for name, mode, age in ((".kx-01.tree", 0o700, 50), (".kx-02.tree", 0o700, 0), (".kx-03.tree", 0o755, 50)):
        left = to / name
        trees.make(left, {"t/app": "x"})
        left.chmod(mode)
        then = left.stat().st_mtime - age * 3600
        os.utime(left, (then, then))
    StepTest(tmp_path, "archive", {"src": str(source), "path": str(to)}).run()
    # One that is in use may be there, too, and what only has such a name.
    assert sorted(path.name for path in to.iterdir()) == [".kx-02.tree", ".kx-03.tree", "app"]

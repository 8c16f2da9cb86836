"""Archives through the runner: listed, compared, unpacked, packed; and the dangerous ones refused."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from kubexm_exec.runner import Runner
from kubexm_exec.runner.files.archives import Entry, Format, Unpacking, checked, format_of
from kubexm_exec.step import StepFailed

FILES = {"top/a.txt": b"a\n", "top/bin/tool": b"#!/bin/sh\n", "top/odd é \\name": b"odd"}
TARS: list[Format] = ["tar", "tar.gz", "tar.xz", "tar.bz2"]


def make(path: Path, fmt: Format, files: dict[str, bytes] = FILES) -> str:
    if fmt == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return str(path)
    modes = {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}
    with tarfile.open(path, modes[fmt]) as tar:  # type: ignore[call-overload]  # typeshed wants a literal for the mode
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o755 if "bin" in name else 0o644
            tar.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize("fmt", [*TARS, "zip"])
def test_an_archive_is_listed_unpacked_and_recognised(runner: Runner, folder: Path, fmt: Format, busybox: bool) -> None:
    if fmt == "zip" and (busybox or shutil.which("unzip") is None):
        pytest.skip("there is no unzip on this machine, or only busybox's, which lists other letters as ?")
    archive = make(folder / f"x:y.{fmt}", fmt)
    target = folder / "to"
    target.mkdir()
    entries = runner.archive_entries(archive, fmt)
    assert [entry.name for entry in entries] == list(FILES)
    assert not runner.archive_matches(archive, fmt, str(target), entries)
    runner.unpack(archive, str(target), fmt)
    assert {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()} == FILES
    assert runner.archive_matches(archive, fmt, str(target), entries)
    (target / "top/a.txt").write_text("other")
    assert not runner.archive_matches(archive, fmt, str(target), entries)


@pytest.mark.parametrize("fmt", [*TARS, "zip"])
def test_the_digest_of_each_file_is_told_that_is_asked_for(
    runner: Runner, folder: Path, fmt: Format, busybox: bool
) -> None:
    if fmt == "zip" and shutil.which("unzip") is None:
        pytest.skip("there is no unzip on this machine")
    files = {"a": b"a\n", "none": b"", "skipped": b"x" * 100_000, "d/long": b"0123456789" * 20_000, "last": b"z"}
    archive = make(folder / f"x.{fmt}", fmt, files)
    entries = runner.archive_entries(archive, fmt)
    assert {entry.name: entry.size for entry in entries} == {name: len(data) for name, data in files.items()}
    told = runner.archive_digests(archive, fmt, entries, files.keys() - {"skipped"})
    assert {entry.name: entry.sha256 for entry in told} == {
        name: "" if name == "skipped" else hashlib.sha256(data).hexdigest() for name, data in files.items()
    }


def test_the_digest_is_that_of_the_very_file_also_if_others_are_taken_off_by_their_names(
    runner: Runner, folder: Path
) -> None:
    archive = make(folder / "x.tar", "tar", {"off": b"off", "top/a": b"a", "off2": b"off", "top/b": b"b"})
    entries = runner.archive_entries(archive, "tar", strip=1)
    told = runner.archive_digests(archive, "tar", entries, {"a", "b"})
    assert [(entry.name, entry.sha256) for entry in told] == [
        (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("a", "b")
    ]


def test_where_links_lead_is_told(runner: Runner, folder: Path) -> None:
    with tarfile.open(folder / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a -> b"))
        for name, kind, target in (("l -> m", tarfile.SYMTYPE, "/x -> \\é"), ("h", tarfile.LNKTYPE, "./a -> b")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            tar.addfile(link)
    entries = runner.archive_entries(f"{folder}/x.tar", "tar")
    assert [(entry.name, entry.kind, entry.target) for entry in entries] == [
        ("a -> b", "file", ""),
        ("l -> m", "link", "/x -> \\é"),
        ("h", "hardlink", "a -> b"),
    ]


def test_what_was_not_listed_is_not_unpacked(runner: Runner, folder: Path) -> None:
    archive = make(folder / "x.tar", "tar", {"a": b"a", "b": b"b", "c": b"c"})
    (folder / "to").mkdir()
    odd: list[dict[str, bool]] = [{"a": True, "b": True}, {"a": True, "b": True, "d": True}, {"a": False, "d": False}]
    for names in odd:
        with pytest.raises(StepFailed, match="not those that were listed"):
            runner.unpack(archive, f"{folder}/to", "tar", Unpacking(names=names))
    assert list((folder / "to").iterdir()) == []
    runner.unpack(archive, f"{folder}/to", "tar", Unpacking(names={"a": True, "b": False, "c": True}))
    assert sorted(path.name for path in (folder / "to").iterdir()) == ["a", "c"]


def test_leading_parts_of_names_are_taken_off(runner: Runner, folder: Path) -> None:
    archive = make(folder / "x.tar.gz", "tar.gz")
    (folder / "to").mkdir()
    entries = runner.archive_entries(archive, "tar.gz", strip=1)
    assert [entry.name for entry in entries] == ["a.txt", "bin/tool", "odd é \\name"]
    runner.unpack(archive, f"{folder}/to", "tar.gz", Unpacking(strip=1))
    assert (folder / "to/bin/tool").stat().st_mode & 0o111
    assert runner.archive_matches(archive, "tar.gz", f"{folder}/to", entries, strip=1)


def test_taking_off_more_than_there_is_says_so(runner: Runner, folder: Path) -> None:
    archive = make(folder / "x.tar", "tar")
    with pytest.raises(StepFailed) as caught:
        runner.archive_entries(archive, "tar", strip=5)
    assert "stripComponents: 5" in caught.value.hint


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a/.."])
def test_an_archive_that_climbs_out_is_refused_before_anything_is_written(
    runner: Runner, folder: Path, name: str
) -> None:
    archive = make(folder / "evil.tar", "tar", {"good": b"x", name: b"evil"})
    try:
        entries = runner.archive_entries(archive, "tar")
    except StepFailed as refused:
        assert "outside the folder" in refused.message  # noqa: PT017 - what is not refused is looked at below
        return
    # busybox takes what climbs out off the names by itself, when it lists and when it unpacks.
    assert not any(entry.name.startswith("/") or ".." in entry.name.split("/") for entry in entries)
    (folder / "to").mkdir()
    runner.unpack(archive, f"{folder}/to", "tar")
    assert sorted(path.name for path in folder.iterdir()) == ["evil.tar", "to"]
    assert not Path("/etc/evil").exists()


def test_an_archive_that_writes_through_its_own_link_is_refused() -> None:
    entries = [Entry("a", "link"), Entry("a/passwd", "file")]
    with pytest.raises(StepFailed, match="outside the folder"):
        checked(entries, "evil.tar", 0)


def test_a_link_in_a_real_archive_is_seen_as_one(runner: Runner, folder: Path) -> None:
    with tarfile.open(folder / "x.tar", "w") as tar:
        link = tarfile.TarInfo("etc")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("etc/passwd"))
    with pytest.raises(StepFailed, match="outside the folder"):
        runner.archive_entries(f"{folder}/x.tar", "tar")


def test_what_is_not_an_archive_is_named(runner: Runner, folder: Path) -> None:
    (folder / "x.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(StepFailed) as caught:
        runner.archive_entries(f"{folder}/x.tar.gz", "tar.gz")
    assert f"list {folder}/x.tar.gz" in caught.value.message
    assert caught.value.hint == "is it really a tar.gz archive?"


@pytest.mark.parametrize("fmt", TARS)
def test_a_folder_is_packed_and_the_archive_recognised_until_something_changes(
    runner: Runner, folder: Path, fmt: Format, busybox: bool
) -> None:
    source = folder / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "file").write_text("one")
    archive = f"{folder}/x.{fmt}"
    assert not runner.is_packed(str(source), archive, fmt)
    if busybox and fmt == "tar.xz":
        with pytest.raises(StepFailed, match="pack"):
            runner.pack(str(source), archive, fmt)
        assert [path.name for path in folder.iterdir()] == ["source"]
        return  # its tar reads xz, and does not write it
    runner.pack(str(source), archive, fmt)
    assert runner.is_packed(str(source), archive, fmt)
    assert sorted(path.name for path in folder.iterdir()) == ["source", f"x.{fmt}"]
    (source / "sub" / "file").write_text("two")
    assert not runner.is_packed(str(source), archive, fmt)


def test_packing_what_is_not_there_leaves_nothing(runner: Runner, folder: Path) -> None:
    with pytest.raises(StepFailed):
        runner.pack(f"{folder}/missing", f"{folder}/x.tar", "tar")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fmt"),
    [("a.tgz", "tar.gz"), ("A.TAR.XZ", "tar.xz"), ("v1.2.tar", "tar"), ("x.zip", "zip"), ("y.tbz2", "tar.bz2")],
)
def test_the_format_is_told_by_the_name(name: str, fmt: str) -> None:
    assert format_of(f"/x/{name}") == fmt


def test_a_name_that_tells_no_format_asks_for_one() -> None:
    with pytest.raises(StepFailed) as caught:
        format_of("/x/file.bin")
    assert "set `format`" in caught.value.hint

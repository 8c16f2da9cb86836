"""Files through the runner: what is there, changes, and failures that say what to do."""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Connector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.runner import Runner
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.quote import EACH, script
from kubexm_exec.runner.session import Session
from kubexm_exec.step import StepFailed
from tests.runner.conftest import WithTools

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


def test_each_kind_of_thing_is_told_apart(runner: Runner, folder: Path) -> None:
    (folder / "file").write_bytes(b"content")
    (folder / "file").chmod(0o640)
    (folder / "dir").mkdir(0o700)
    (folder / "link").symlink_to("nowhere at\nall\n")
    os.mkfifo(folder / "pipe")
    names = ["file", "dir", "link", "pipe", "missing", "missing/below", "file/below"]
    states = dict(zip(names, runner.inspect_all([f"{folder}/{name}" for name in names]), strict=True))
    assert [state.kind for state in states.values()] == [
        "file", "directory", "link", "other", "absent", "absent", "absent",
    ]  # fmt: skip
    assert (states["file"].mode, states["file"].size) == (0o640, 7)
    assert states["file"].sha256 == hashlib.sha256(b"content").hexdigest()
    assert states["file"].uid == os.geteuid()
    assert states["dir"].mode == 0o700
    assert states["link"].target == "nowhere at\nall\n"


@pytest.mark.parametrize("name", ["plain", "two words", "new\nline", "back\\slash", "é漢", "-n", "a'b\"c", "\udcff"])
def test_a_file_of_any_name_is_found_with_its_digest(runner: Runner, folder: Path, name: str) -> None:
    (folder / name).write_bytes(name.encode("utf-8", "surrogateescape"))
    state = runner.inspect(f"{folder}/{name}")
    assert state.sha256 == hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


@pytest.mark.parametrize("digest", [True, False])
def test_of_more_paths_only_small_files_have_digests(runner: Runner, folder: Path, digest: bool) -> None:
    contents = {"own": 300 << 10, "large": (256 << 10) + 1, "small": 256 << 10, "empty": 0}
    for name, size in contents.items():
        (folder / name).write_bytes(b"x" * size)
    (folder / "dir").mkdir()
    (folder / "link").symlink_to("small")
    names = ["large", "missing", "dir", "link", "small", "large", "empty"]
    states = inspect(
        runner._session, [f"{folder}/own", f"{folder}/gone"], digest=digest, more=[f"{folder}/{name}" for name in names]
    )
    kinds = ["file", "absent", "file", "absent", "directory", "link", "file", "file", "file"]
    assert [state.kind for state in states] == kinds
    summed = [Path(state.path).name for state in states if state.sha256]
    assert summed == [*(["own"] if digest else []), "small", "empty"]
    assert states[6].sha256 == hashlib.sha256(b"x" * (256 << 10)).hexdigest()
    assert [state.size for state in states[6:]] == [256 << 10, (256 << 10) + 1, 0]


def test_hundreds_of_paths_are_answered_in_their_order(runner: Runner, folder: Path) -> None:
    for number in range(0, 500, 2):
        (folder / f"{number}").write_text(f"{number}")
    states = runner.inspect_all([f"{folder}/{number}" for number in range(500)])
    assert [state.kind for state in states] == ["file", "absent"] * 250
    assert states[498].sha256 == hashlib.sha256(b"498").hexdigest()


def test_ten_thousand_paths_of_any_name_are_answered_with_one_command(
    folder: Path, connector: WithTools, busybox: bool
) -> None:
    runner = Runner(connector, deadline=Deadline.after(600))
    # It is the same with busybox, only slower.
    names = [f"{number}" for number in range(1_000 if busybox else 10_000)]
    odd = {1: "new\nline", 2: "two words", 3: "back\\slash", 4: "-rf", 5: "é漢", 6: "\udcff", 7: "lin\nk", 8: "x" * 250}
    for number, name in odd.items():
        names[number] = name
    for number, name in enumerate(names):
        if number == 7:
            (folder / name).symlink_to("some\nwhere")
        elif number % 100 < 10:
            (folder / name).write_bytes(str(number).encode())
    connector.count = 0
    states = runner.inspect_all([f"{folder}/{name}" for name in names])
    assert connector.count == 1
    for number, state in enumerate(states):
        assert state.path == f"{folder}/{names[number]}"
        if number == 7:
            assert (state.kind, state.target) == ("link", "some\nwhere")
        elif number % 100 < 10:
            assert state.sha256 == hashlib.sha256(str(number).encode()).hexdigest()
        else:
            assert state.kind == "absent"


def test_without_digest_no_content_is_read(runner: Runner, folder: Path) -> None:
    (folder / "file").write_bytes(b"x")
    assert runner.inspect(f"{folder}/file", digest=False).sha256 == ""


def test_ownership_can_be_compared_by_name_and_by_number(runner: Runner, folder: Path) -> None:
    state = runner.inspect(str(folder))
    assert state.owned_by(state.owner, str(state.gid))
    assert state.owned_by(None, None)
    assert not state.owned_by("somebody-else", None)


@as_root
def test_a_user_without_a_name_is_its_number(runner: Runner, folder: Path) -> None:
    (folder / "file").touch()
    os.chown(folder / "file", 54321, 54322)
    state = runner.inspect(f"{folder}/file")
    assert (state.owner, state.group) == ("54321", "54322")


@not_root
def test_what_lies_behind_a_closed_folder_is_not_called_absent(runner: Runner, folder: Path) -> None:
    (folder / "closed").mkdir(0o000)
    try:
        with pytest.raises(StepFailed, match="permission denied"):
            runner.inspect(f"{folder}/closed/file")
    finally:
        (folder / "closed").chmod(0o700)


def test_a_path_through_a_circle_of_links_is_an_error_and_not_absent(runner: Runner, folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(StepFailed, match="symbolic links"):
        runner.inspect(f"{folder}/a/file")


def test_text_is_read_as_utf8_or_refused(runner: Runner, folder: Path) -> None:
    (folder / "text").write_bytes("é".encode())
    (folder / "latin").write_bytes("é".encode("latin-1"))
    assert runner.read_text(f"{folder}/text") == "é"
    with pytest.raises(StepFailed, match="not UTF-8"):
        runner.read_text(f"{folder}/latin")


def test_a_file_that_is_too_large_is_refused_and_never_cut(runner: Runner, folder: Path) -> None:
    (folder / "big").write_bytes(b"12345")
    assert runner.read_bytes(f"{folder}/big", limit=5) == b"12345"
    with pytest.raises(StepFailed, match="larger than 4 bytes"):
        runner.read_bytes(f"{folder}/big", limit=4)


def test_reading_what_is_not_there_says_so(runner: Runner, folder: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        runner.read_bytes(f"{folder}/missing")
    assert caught.value.message == f"read {folder}/missing: no such file or directory"


def test_writing_into_a_missing_folder_says_how_to_make_it(runner: Runner, folder: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        runner.write(f"{folder}/sub/file", "x")
    assert caught.value.message == f"write {folder}/sub/file: no such file or directory"
    assert "createParents" in caught.value.hint


def test_a_permission_failure_names_user_and_become(connector: Connector) -> None:
    user = Runner(connector).run(["id", "-un"]).out.strip()
    error = PermissionError(13, "Permission denied")
    failure = file_failure(Session(connector), "write", "/etc/etcd.env", error)
    assert failure.message == f"write /etc/etcd.env: permission denied (user {user}, no become)"
    assert failure.hint
    become = file_failure(Session(connector, become="root"), "write", "/etc/etcd.env", error)
    assert become.message.endswith(f"(user {user}, become root)")


@not_root
def test_writing_where_we_may_not_names_the_user(runner: Runner) -> None:
    with pytest.raises(StepFailed, match=r"permission denied \(user .*, no become\)"):
        runner.write("/kx-test", "x")


def test_folders_are_made_with_those_above_and_reported_topmost_first(runner: Runner, folder: Path) -> None:
    made = runner.mkdir(f"{folder}/a/b/c", mode=0o700)
    assert made == [f"{folder}/a", f"{folder}/a/b", f"{folder}/a/b/c"]
    assert [Path(path).stat().st_mode & 0o7777 for path in made] == [0o755, 0o755, 0o700]
    assert runner.mkdir(f"{folder}/a/b/c") == []


def test_a_folder_whose_parent_is_missing_is_refused_without_parents(runner: Runner, folder: Path) -> None:
    with pytest.raises(StepFailed, match="/a does not exist"):
        runner.mkdir(f"{folder}/a/b", parents=False)
    assert list(folder.iterdir()) == []


def test_a_file_in_the_way_of_a_folder_is_named(runner: Runner, folder: Path) -> None:
    (folder / "a").touch()
    with pytest.raises(StepFailed, match="/a is not a folder"):
        runner.mkdir(f"{folder}/a/b")


def test_removing_takes_files_links_and_empty_folders_only(runner: Runner, folder: Path) -> None:
    (folder / "dir").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    (folder / "link").symlink_to("full")
    for name in ("link", "dir", "missing"):
        runner.remove(f"{folder}/{name}")
    with pytest.raises(StepFailed, match="not empty"):
        runner.remove(f"{folder}/full")
    assert [path.name for path in folder.iterdir()] == ["full"]
    runner.remove(f"{folder}/full", recursive=True)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", ["/", "//", "/.", "/x/..", ".", ".."])
def test_removing_the_root_is_refused(runner: Runner, path: str) -> None:
    with pytest.raises(StepFailed, match="refused"):
        runner.remove(path, recursive=True)


def test_only_empty_folders_of_a_list_are_removed(runner: Runner, folder: Path) -> None:
    for name in ("a", "a/b", "c"):
        (folder / name).mkdir()
    (folder / "c" / "file").touch()
    stay = runner.remove_empty([f"{folder}/{name}" for name in ("a", "a/b", "c", "missing")])
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert stay == [f"{folder}/c"]


def test_a_link_replaces_a_link_to_a_folder_instead_of_landing_in_it(runner: Runner, folder: Path) -> None:
    (folder / "dir").mkdir()
    runner.symlink("dir", f"{folder}/link")
    runner.symlink("else where", f"{folder}/link")
    assert os.readlink(folder / "link") == "else where"  # noqa: PTH115
    assert sorted(path.name for path in folder.iterdir()) == ["dir", "link"]


def test_a_link_takes_the_place_of_the_very_file_that_it_leads_to(runner: Runner, folder: Path) -> None:
    (folder / "a").write_text("a")
    (folder / "b").hardlink_to(folder / "a")
    for target, name in (("a", "b"), (f"{folder}/a", "a")):
        runner.symlink(target, f"{folder}/{name}")
        assert str((folder / name).readlink()) == target


def test_a_link_never_lands_in_a_folder(runner: Runner, folder: Path) -> None:
    (folder / "dir").mkdir()
    with pytest.raises(StepFailed):
        runner.symlink("x", f"{folder}/dir")
    assert [path.name for path in folder.rglob("*")] == ["dir"]


def test_mode_and_name_are_changed(runner: Runner, folder: Path) -> None:
    (folder / "a").touch()
    runner.chmod(f"{folder}/a", 0o4750)
    runner.rename(f"{folder}/a", f"{folder}/b")
    assert (folder / "b").stat().st_mode & 0o7777 == 0o4750


@as_root
def test_the_owner_of_a_link_itself_is_changed(runner: Runner, folder: Path) -> None:
    (folder / "a").touch()
    (folder / "link").symlink_to("a")
    runner.chown(f"{folder}/link", "1", "2")
    assert (folder / "link").lstat().st_uid == 1
    assert (folder / "link").lstat().st_gid == 2
    assert (folder / "a").stat().st_uid == 0


def test_an_unknown_owner_is_named(runner: Runner, folder: Path) -> None:
    with pytest.raises(StepFailed, match="kx-nobody"):
        runner.chown(str(folder), "kx-nobody")


def test_links_on_the_way_are_followed(runner: Runner, folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    assert runner.resolve(f"{folder}/link/file") == f"{folder.resolve()}/real/file"


def test_a_temporary_folder_is_ours_alone_and_gone_afterwards(runner: Runner) -> None:
    with runner.temporary_folder() as path:
        assert Path(path).stat().st_mode & 0o777 == 0o700
        runner.write(f"{path}/file", "x")
    assert not Path(path).exists()


def test_a_temporary_folder_is_gone_after_a_failure_too(runner: Runner) -> None:
    with pytest.raises(LookupError), runner.temporary_folder() as path:
        raise LookupError
    assert not Path(path).exists()


@pytest.mark.parametrize("content", [b"", b"a\0b", b"x" * 300_000], ids=["none", "no text", "much"])
def test_new_content_is_judged_by_a_program_that_finds_it_by_its_path(
    runner: Runner, folder: Path, content: bytes
) -> None:
    target, seen = folder / "new $file", folder / "seen"
    runner.validate(str(target), content, ["sh", "-c", 'cat "${1#a=}" >"$2"; echo "$1" >>"$2"', "x", "a=%s", str(seen)])
    told = seen.read_bytes().removeprefix(content).decode()
    place = Path(told.removeprefix("a=").removesuffix("\n"))
    assert (told[:2], place.name, place.parent.exists()) == ("a=", "new $file", False)
    with pytest.raises(StepFailed) as caught:
        runner.validate(str(target), content, ["sh", "-c", 'echo "bad: $1"; exit 9', "x", "%s"])
    assert (caught.value.message, caught.value.exit_code) == (f"validate {target}: exit code 9: bad: {target}", 9)
    assert not target.exists()


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox here: its tools were not tried by these tests")
def test_these_tests_run_with_the_tools_of_busybox_too(request: pytest.FixtureRequest) -> None:
    """Says once, instead of for each test, that half of them are missing."""
    assert any("busybox" in item.name for item in request.session.items)


@pytest.mark.parametrize("most", [1, 7, 200])
def test_words_of_any_length_come_as_arguments_so_many_at_a_time(connector: WithTools, most: int) -> None:
    words = [f"{number} {'x' * (number * 7 % 150)}\n'" for number in range(1500)]
    listed = "".join(f"{word}\0" for word in words).encode()
    body = EACH + """each "$1" sh -c 'printf "%s." $#; printf "%s\\0" "$@"' kx a"""
    done = connector.run(
        script(body, str(most), stdin=listed, max_output=1 << 22), deadline=Deadline.after(60), cancel=Cancel()
    )
    assert done.exit_code == 0, done.err
    parts = [words[at : at + most] for at in range(0, len(words), most)]
    assert done.out == "".join(f"{len(part) + 1}." + "".join(f"{word}\0" for word in ["a", *part]) for part in parts)


def test_a_folder_in_which_another_works_already_is_not_replaced_by_a_new_one(runner: Runner, folder: Path) -> None:
    # Where others may write, a folder is made elsewhere and renamed: that must not take the place of an empty one.
    folder.chmod(0o1777)
    for round_ in range(12):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name, at=round_: runner.mkdir(f"{folder}/{at}/{name}/www"), "abcd"))
        assert sorted(path.name for path in (folder / str(round_)).iterdir()) == ["a", "b", "c", "d"]


def test_a_folder_that_several_make_at_once_is_made_and_none_of_them_fails(runner: Runner, folder: Path) -> None:
    # As hosts of an inventory that are the same machine.
    for number in range(6):
        made = folder / str(number) / "a" / "b"
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(runner.mkdir, str(made), mode=0o750) for _ in range(4)]:
                done.result()
        assert made.stat().st_mode & 0o777 == 0o750

"""Laws of folders that are kept the same, whatever is in them; and patterns, held against git's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps.lib import trees as _trees
from kubexm_steps.sync import Excluded
from tests.steps import trees

NAMES = st.sampled_from(["a", "b", "-n", "x y", "l\nf", "é"])
CONTENT = st.one_of(
    st.sampled_from(["1\n", "2\n"]).flatmap(
        lambda text: st.sampled_from(["0644", "0755"]).map(lambda mode: {"content": text, "mode": mode})
    ),
    st.sampled_from(["a", "../b", "/nowhere"]).map(lambda to: {"link": to}),
)
TREES: st.SearchStrategy[Any] = st.recursive(
    CONTENT, lambda inner: st.dictionaries(NAMES, inner, max_size=3).map(lambda made: {"folder": made}), max_leaves=6
)
FOLDERS = st.dictionaries(NAMES, TREES, max_size=4)


def flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """The tree as ``trees.make`` takes it."""
    made: dict[str, Any] = {}
    for name, what in tree.items():
        if "folder" in what:
            made[f"{above}{name}/"] = {"mode": "0755"}
            made |= flat(what["folder"], f"{above}{name}/")
        else:
            made[f"{above}{name}"] = what
    return made


def _as_it_should_be(source: tuple[Any, ...], before: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """What the source has; of a file that was there before, its own mode stays."""
    kept = before is not None and source[0] == before[0] == "file"
    return (source[0], before[1], *source[2:]) if before is not None and kept else source


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(source=FOLDERS, there=FOLDERS)
@example(source={"b": {"link": "a"}}, there={"b": {"folder": {"a": {"link": "a"}}}})
@example(source={"b": {"link": "a"}}, there={"b": {"folder": {"a": {"content": "x", "mode": "0644"}}}})
@example(source={"a": {"link": "a"}}, there={"a": {"folder": {"a": {"link": "a"}}}})
@example(source={}, there={"a": {"folder": {}}})
@example(source={"a": {"folder": {}}}, there={})
@example(
    source={"b": {"link": "a"}, "a": {"folder": {"c": {"link": "a"}}}},
    there={"b": {"folder": {"c": {"link": "a"}}}},
)
def test_afterwards_both_are_the_same_a_second_time_nothing_is_done_and_the_undo_brings_all_back(
    tmp_path_factory: pytest.TempPathFactory, source: dict[str, Any], there: dict[str, Any]
) -> None:
    base = tmp_path_factory.mktemp("sync")
    local, host = base / "local", base / "host"
    local.mkdir()
    host.mkdir()
    trees.make(local, flat(source))
    trees.make(host, flat(there))
    before = snapshot(host)
    world = StepTest(base, "sync", {"src": "local", "path": str(host), "delete": True})
    try:
        forecast = world.forecast()
        result = world.run()
        assert (forecast.state is ForecastState.CHANGE) is result.changed
        assert {name: entry[:3] for name, entry in snapshot(host).items()} == {
            name: _as_it_should_be(entry[:3], before.get(name)) for name, entry in snapshot(local).items()
        }
        assert world.forecast().state is ForecastState.SATISFIED
        if result.changed:
            assert world.undo_run() == ("undone", "")
            assert snapshot(host) == before
            world.rollback()
            assert snapshot(host) == before
    finally:
        world.close()


KINDS: list[Any] = [
    None,
    {"content": "1\n", "mode": "0644"},
    {"content": "2\n", "mode": "0755"},
    {"link": "b"},
    {"link": "/nowhere"},
    {"folder": {}},
    {"folder": {"a": {"content": "in\n", "mode": "0644"}}},
    {"folder": {"a": {"folder": {"a": {"link": "a"}}}}},
    {"folder": {"a": {"link": "b"}, "b": {"content": "1\n", "mode": "0600"}}},
]
PLACE = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(KINDS[1:]), max_size=2)


def put(base: Path, tree: dict[str, Any]) -> None:
    """Make a folder hold just this."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    trees.make(base, flat(tree))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(there=PLACE, sources=st.lists(PLACE, min_size=2, max_size=4))
@example(
    there={"a": KINDS[1], "b": KINDS[6]},
    sources=[{"a": KINDS[2], "b": KINDS[1]}, {"a": KINDS[6], "b": KINDS[3]}, {"a": KINDS[4], "b": KINDS[7]}],
)
@example(there={"a": KINDS[1]}, sources=[{"a": KINDS[6]}, {}])
@example(there={"a": KINDS[6]}, sources=[{"a": KINDS[1]}, {"a": KINDS[6]}])
@example(there={}, sources=[{"a": KINDS[7]}, {"a": KINDS[1]}, {"a": KINDS[6]}, {}])
def test_undo_brings_back_what_was_before_the_first_of_several_sessions_whatever_the_source_became(
    tmp_path_factory: pytest.TempPathFactory, there: dict[str, Any], sources: list[dict[str, Any]]
) -> None:
    base = tmp_path_factory.mktemp("sync")
    put(base / "host", there)
    before = snapshot(base / "host")
    world = StepTest(base, "sync", {"src": "local", "path": str(base / "host"), "delete": True})
    try:
        changed = False
        for source in sources:
            put(base / "local", source)
            changed = world.run_again().changed or changed
        if changed:
            same = snapshot(base / "host") == before
            assert world.undo_run() == ("undone", "nothing to undo: it is as before the run" if same else "")
            assert snapshot(base / "host") == before
            world.rollback()
            assert snapshot(base / "host") == before
    finally:
        world.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    there=PLACE,
    sources=st.lists(PLACE, min_size=1, max_size=2),
    place=st.sampled_from(["a", "b", "a/a", "a/new", "b/b"]),
    theirs=st.sampled_from(KINDS),
    step=st.sampled_from(["sync", "copy"]),
)
@example(there={}, sources=[{"a": KINDS[1]}], place="a", theirs=KINDS[6], step="copy")
@example(there={}, sources=[{"a": KINDS[5]}], place="a", theirs=KINDS[1], step="copy")
@example(there={"a": KINDS[6]}, sources=[{}], place="a", theirs=KINDS[1], step="sync")
@example(there={"a": KINDS[6]}, sources=[{}], place="a", theirs=KINDS[3], step="sync")
@example(there={"a": KINDS[1]}, sources=[{"a": KINDS[6]}], place="a/new", theirs=KINDS[1], step="sync")
@example(there={"a": KINDS[6]}, sources=[{"a": KINDS[5]}], place="a", theirs=KINDS[1], step="sync")
def test_what_others_did_is_left_alone_or_with_overwrite_all_is_as_before(
    tmp_path_factory: pytest.TempPathFactory,
    there: dict[str, Any],
    sources: list[dict[str, Any]],
    place: str,
    theirs: Any,
    step: str,
) -> None:
    base = tmp_path_factory.mktemp("sync")
    host = base / "host"
    put(host, there)
    before = snapshot(host)
    world = StepTest(base, step, {"src": "local", "path": str(host), **({"delete": True} if step == "sync" else {})})
    try:
        for source in sources:
            put(base / "local", source)
            try:
                world.run_again()
            except StepFailed:
                break
        left = snapshot(host)
        if world.undo is None or not (host / place).parent.is_dir():
            return
        if (host / place).is_dir() and not (host / place).is_symlink():
            shutil.rmtree(host / place)
        else:
            (host / place).unlink(missing_ok=True)
        trees.make(host, {} if theirs is None else flat({place: theirs}))
        meddled = snapshot(host)
        state, said = world.undo_run()
        if state == "leftAlone":
            assert snapshot(host) == meddled, "nothing is touched before that is noticed"
            assert str(host) in said
            state, said = world.undo_run(overwrite=True)
        now = snapshot(host)
        # What nobody had there before the run, nor the run, is no matter of its undo; nor what the run left as it was.
        new = {name for name in meddled if name not in before and name not in left}
        new |= {str(above) for name in new for above in Path(name).parents if str(above) not in before}
        if state == "undone":
            for name in {*before, *left, *meddled, *now} - new:
                fine = [before.get(name), *([meddled.get(name)] if before.get(name) == left.get(name) else [])]
                assert now.get(name) in fine, name
        else:
            assert (state, bool(said)) == ("undoFailed", True)
            assert theirs is None or "the undo did not restore" in said or "not a directory" in said
    finally:
        world.close()


@pytest.mark.parametrize("step", ["sync", "copy"])
@pytest.mark.parametrize("inside", ["", "f"])
def test_undo_leaves_a_folder_alone_whose_mode_somebody_changed(tmp_path: Path, step: str, inside: str) -> None:
    host = tmp_path / "host"
    put(host, {})
    put(tmp_path / "local", {"a": {"folder": {inside: KINDS[1]} if inside else {}}})
    world = StepTest(tmp_path, step, {"src": "local", "path": str(host)})
    try:
        world.run()
        (host / "a").chmod(0o711)
        theirs = snapshot(host)
        assert world.undo_run() == (
            "leftAlone", f"changed since by somebody else: {host}/a (mode) (use --overwrite to undo it anyway)"
        )  # fmt: skip
        assert snapshot(host) == theirs
        assert world.undo_run(overwrite=True) == ("undone", "")
        assert snapshot(host) == {}
    finally:
        world.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("target", ["a/b", "a", "nowhere"])
def test_undo_goes_through_no_link_that_the_step_put_in_the_place_of_a_folder(tmp_path: Path, target: str) -> None:
    put(tmp_path / "host", {"e": {"folder": {"b": {"folder": {"f": KINDS[1]}}, "c": KINDS[6]}}})
    put(tmp_path / "local", {"a": {"folder": {"b": {"link": "nowhere"}}}, "e": {"link": target}})
    before = snapshot(tmp_path / "host")
    with_ = {"src": "local", "path": str(tmp_path / "host"), "delete": True, "owner": "1"}
    world = StepTest(tmp_path, "sync", with_)
    try:
        world.run()
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert snapshot(tmp_path / "host") == before


def test_what_would_be_too_much_to_keep_cannot_be_undone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_trees, "KEEP_LIMIT", 10)
    (tmp_path / "local").mkdir()
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "large").write_bytes(b"x" * 11)
    world = StepTest(tmp_path, "sync", {"src": "local", "path": str(tmp_path / "host"), "delete": True})
    try:
        assert world.run().changed
        assert world.undo is None
    finally:
        world.close()


def test_undo_leaves_what_others_have_put_there_since(tmp_path: Path) -> None:
    (tmp_path / "local" / "sub").mkdir(parents=True)
    for name in "abcd":
        (tmp_path / "local" / "sub" / name).write_text(name)
    world = StepTest(tmp_path, "sync", {"src": "local", "path": str(tmp_path / "host"), "delete": True})
    try:
        world.run()
        (tmp_path / "host" / "sub" / "mine").write_text("mine")
        world.rollback()
    finally:
        world.close()
    assert [path.name for path in (tmp_path / "host" / "sub").iterdir()] == ["mine"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_given_to_all_of_it_and_put_back(tmp_path: Path) -> None:
    (tmp_path / "local" / "sub").mkdir(parents=True)
    for name in ("a", "b", "same", "sub/c"):
        (tmp_path / "local" / name).write_text("new")
    host = tmp_path / "host"
    host.mkdir()
    (host / "a").write_text("old")
    (host / "same").write_text("new")
    os.chown(host / "a", 54321, 54321)
    before = snapshot(host)
    with_ = {"src": "local", "path": str(host), "delete": True, "owner": "1", "group": "2", "mode": "4750"}
    world = StepTest(tmp_path, "sync", with_)
    try:
        world.run()
        assert {(path.stat().st_uid, path.stat().st_gid) for path in host.rglob("*")} == {(1, 2)}
        assert {path.stat().st_mode & 0o7777 for path in host.rglob("*") if path.is_file()} == {0o4750}
        assert world.forecast().state is ForecastState.SATISFIED
        world.rollback()
    finally:
        world.close()
    assert snapshot(host) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_new_file_in_a_set_group_id_folder_gets_the_group_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    for name in "abcde":
        (tmp_path / "local" / name).write_text("new")
    host = tmp_path / "host"
    host.mkdir()
    os.chown(host, 0, 54321)
    host.chmod(0o2755)
    world = StepTest(tmp_path, "sync", {"src": "local", "path": str(host)})
    try:
        world.run()
    finally:
        world.close()
    assert {path.stat().st_gid for path in host.iterdir()} == {54321}


def test_a_local_pipe_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    os.mkfifo(tmp_path / "local" / "pipe")
    world = StepTest(tmp_path, "sync", {"src": "local", "path": str(tmp_path / "host")})
    try:
        with pytest.raises(StepFailed, match=r"copy .*/pipe: it is a device, pipe or socket"):
            world.forecast()
    finally:
        world.close()


# patterns

PARTS = st.sampled_from(["a", "b", "ab", "*", "**", "a*", "?", "[ab]", "[!a]", "*b", "a.b", "\\*"])
PATTERNS = st.builds(
    lambda out, top, parts, end: f"{out}{top}{'/'.join(parts)}{end}",
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)
PATHS = [
    "a", "b", "ab", "a.b", "aab", "c/a", "c/b", "c/ab", "c/d/a", "c/d/b", "d/a/b/ab", "d/a/c", "*", "c/*", "ba", "e/ba",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here to compare with")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(PATTERNS, min_size=1, max_size=4))
def test_patterns_leave_out_what_git_would_ignore(
    tmp_path_factory: pytest.TempPathFactory, patterns: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("git")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", "."], cwd=folder, env=env, check=True)
    (folder / ".gitignore").write_text("".join(f"{pattern}\n" for pattern in patterns))
    for path in PATHS:
        if not (folder / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
    listed = [path for path in PATHS if (folder / path).is_file()]
    asked = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin", "--no-index"],
        input="".join(f"{path}\0" for path in listed),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    excluded = Excluded(patterns)
    ours = {path for path in listed if excluded(path, False)}
    assert ours == set(asked.stdout.split("\0")[:-1])


def test_a_pattern_with_many_stars_ends_in_time_on_any_name() -> None:
    began = time.thread_time()
    assert not Excluded(["*a" * 60 + "b", "**/" * 30 + "x"])("a" * 255, False)
    assert not Excluded(["**/*a" * 20 + "b"])("/".join(["a" * 200] * 20), False)
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [("[.-0]", ".0"), ("[!a]", ".01b"), ("[/]", ""), ("[a/b]", "ab"), ("[^./]", "01ab"), ("[-0]", "0")],
)
def test_no_bracket_matches_a_slash(pattern: str, matched: str) -> None:
    assert "".join(sign for sign in ".0/1ab" if Excluded([f"x{pattern}y"])(f"x{sign}y", False)) == matched


@pytest.mark.parametrize("pattern", ["", "/", "!", "//", "[z-a]"])
def test_a_pattern_that_means_nothing_is_refused_before_anything_runs(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "local").mkdir()
    world = StepTest(tmp_path, "sync", {"src": "local", "path": "/tmp/x", "exclude": [pattern]})
    try:
        with pytest.raises(ValueError, match="pattern"):
            world.forecast()
    finally:
        world.close()


def test_undo_removes_nothing_behind_a_link_that_is_there_by_now(tmp_path: Path) -> None:
    (tmp_path / "local" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name in "abcd":
        (tmp_path / "local" / "sub" / name).write_text(name)
        (tmp_path / "elsewhere" / name).write_text("precious")
    host = tmp_path / "host"
    world = StepTest(tmp_path, "sync", {"src": "local", "path": str(host)})
    try:
        world.run()
        shutil.rmtree(host / "sub")
        (host / "sub").symlink_to(tmp_path / "elsewhere")
        world.rollback()
    finally:
        world.close()
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["a", "b", "c", "d"]

"""Laws of archives that are unpacked over what is there, wherever the archive lies and whatever is in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kubexm_exec.model.result import ForecastState
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps.lib import files as _files
from tests.steps import trees
from tests.steps.test_hostile_archives import Thing, as_root, made

NAMES = ["a", "-b", "x y", "é", "d/a", "d/a -> b", "d/sub/c"]
TEXTS = st.sampled_from(["1\n", "2\n", "longer\n", "", "long 1", "long 2"])
TARGETS = st.sampled_from(["a", "../é", "/nowhere", "x -> y"])
MODES = st.sampled_from([0o644, 0o755, 0o640])
OWNERS = st.sampled_from([(0, 0), (33, 1)])


def text(short: str) -> str:
    """The content; a long one has more than is read at once."""
    return short * 15_000 if short.startswith("long ") else short


INSIDE = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(
            st.builds(lambda short, mode, name=name: Thing(name, text(short), mode=mode), TEXTS, MODES),
            st.builds(lambda to, name=name: Thing(name, to=to), TARGETS),
            st.builds(lambda name=name: Thing(name, hard="-b")),
        )
        for name in NAMES
    },
)
THERE = st.fixed_dictionaries(
    {},
    optional={
        name: st.tuples(
            st.one_of(
                st.builds(lambda short, mode: {"content": text(short), "mode": f"{mode:04o}"}, TEXTS, MODES),
                st.builds(lambda to: {"link": to}, TARGETS),
            ),
            OWNERS,
        )
        for name in [*NAMES, "d/mine"]
    },
)


def things(fmt: str, inside: dict[str, Thing], *, folders: bool) -> list[Thing]:
    """What the archive holds: no hard links where there is nothing to link to, nor in a zip."""
    linkable = fmt != "zip" and "-b" in inside and not inside["-b"].hard
    named = [Thing("d/", "", kind=stat.S_IFDIR, mode=0o755), Thing("d/sub/", "", kind=stat.S_IFDIR, mode=0o700)]
    rest = [thing for name, thing in inside.items() if name != "-b" and (linkable or not thing.hard)]
    first = [inside["-b"]] if "-b" in inside and not inside["-b"].hard else []
    return [*(named if folders else []), *first, *rest]


def content(entry: tuple[Any, ...] | None) -> Any:
    """What it is, whoever owns it: of a file its content, of a link its target."""
    if entry is None or entry[0] == "directory":
        return entry and entry[0]
    return (entry[0], entry[2] if entry[0] == "file" else entry[1])


def wanted(thing: Thing, every: list[Thing]) -> Any:
    if thing.hard:
        thing = next(each for each in every if each.name == thing.hard)
    return ("link", thing.to) if thing.to else ("file", thing.content.encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    fmt=st.sampled_from(["tar", "tar.gz", "zip"]),
    place=st.sampled_from(["src", "localSrc"]),
    inside=INSIDE.filter(lambda inside: any(not thing.hard for thing in inside.values())),
    there=THERE,
    folders=st.booleans(),
    owner=st.sampled_from([None, None, 3]),
    meddled=st.booleans(),
)
@example(  # other content and another target, beside what is new
    fmt="tar", place="src", owner=None, meddled=False, folders=False,
    inside={"a": Thing("a", "1\n"), "d/a": Thing("d/a", to="/new"), "x y": Thing("x y", "new\n")},
    there={"a": ({"content": "2\n"}, (0, 0)), "d/a": ({"link": "/old"}, (0, 0))},
)  # fmt: skip
@example(  # the same content of another owner, beside what is new
    fmt="tar", place="localSrc", owner=None, meddled=True, folders=True,
    inside={"a": Thing("a", "1\n"), "x y": Thing("x y", "new\n")},
    there={"a": ({"content": "1\n", "mode": "0640"}, (33, 1))},
)  # fmt: skip
@example(  # only another target
    fmt="zip", place="src", owner=None, meddled=False, folders=False,
    inside={"a": Thing("a", to="/new")}, there={"a": ({"link": "/old"}, (33, 1))},
)  # fmt: skip
@example(  # a hard link to something else than is there
    fmt="tar.gz", place="src", owner=None, meddled=True, folders=False,
    inside={"-b": Thing("-b", "1\n"), "a": Thing("a", hard="-b")},
    there={"-b": ({"content": "1\n"}, (0, 0)), "a": ({"content": "2\n"}, (0, 0))},
)  # fmt: skip
@example(  # nothing but folders is new
    fmt="tar", place="src", owner=None, meddled=True, folders=True,
    inside={"a": Thing("a", "1\n")}, there={"a": ({"content": "1\n"}, (0, 0))},
)  # fmt: skip
@example(  # folders that are given away
    fmt="tar", place="localSrc", owner=3, meddled=False, folders=True,
    inside={"d/a": Thing("d/a", "1\n")}, there={"d/a": ({"content": "1\n"}, (33, 1))},
)  # fmt: skip
def test_check_says_what_is_done_it_is_done_once_and_the_undo_brings_all_back_or_names_what_it_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    fmt: str,
    place: str,
    inside: dict[str, Thing],
    there: dict[str, Any],
    folders: bool,
    owner: int | None,
    meddled: bool,
) -> None:
    every = things(fmt, inside, folders=folders)
    files = [thing for thing in every if thing.kind != stat.S_IFDIR]
    if not files or (os.geteuid() != 0 and owner is not None):
        return
    base = tmp_path_factory.mktemp("archive")
    to = base / "to"
    to.mkdir()
    trees.make(to, {name: what for name, (what, _) in there.items()})
    for name, (_, (uid, gid)) in there.items():
        if os.geteuid() == 0:
            os.chown(to / name, uid, gid, follow_symlinks=False)
    (base / f"x.{fmt}").write_bytes(made(fmt, every))
    before, untouched = snapshot(to), snapshot(to, exact=True)
    source = f"{base}/x.{fmt}" if place == "src" else f"x.{fmt}"
    world = StepTest(base, "archive", {"path": str(to), place: source, **({"owner": owner} if owner else {})})
    try:
        forecast = world.forecast()
        assert snapshot(to, exact=True) == untouched, "check changes nothing"
        result = world.run()
        after, undo = snapshot(to), world.undo

        touched = {name for name in after if after[name] != before.get(name)}
        replaced = {name for name in touched & before.keys() if content(after[name]) != content(before[name])}
        assert (forecast.state is ForecastState.CHANGE) is result.changed is bool(touched)
        assert {diff.path for diff in forecast.diffs if diff.note == "replaced"} == {
            f"{to}/{name}" for name in replaced
        }
        if result.changed:
            said = forecast.diffs[0].note.partition(": ")[2]
            assert result.message.endswith(f"({said})")
            assert f"{len(touched - before.keys())} new" in said or touched <= before.keys()
        if owner is None:
            assert touched & before.keys() == replaced, "what is the same stays as it is"
        assert {thing.name: content(after.get(thing.name)) for thing in files} == {
            thing.name: wanted(thing, files) for thing in files
        }
        assert before.keys() <= after.keys()

        assert world.forecast().state is ForecastState.SATISFIED
        assert not world.run().changed
        assert snapshot(to) == after
        if not result.changed:
            return
        world.undo = undo
        if meddled and trees.meddle(to, before):
            theirs = snapshot(to)
            state, said = world.undo_run()
            assert (state, snapshot(to)) == ("leftAlone", theirs)
            assert any(f"{to}/{name}" in said for name in touched)
            assert world.undo_run(overwrite=True)[0] == "undone"
        else:
            assert world.undo_run() == ("undone", "")
        assert snapshot(to) == before
    finally:
        world.close()


@pytest.mark.parametrize("place", ["src", "localSrc"])
def test_what_would_be_too_much_to_keep_is_replaced_without_an_undo(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "KEEP_LIMIT", 3)
    (tmp_path / "x.tar").write_bytes(made("tar", [Thing("a", "new\n"), Thing("b", "new\n")]))
    trees.make(tmp_path, {"to/a": "old\n"})
    source = f"{tmp_path}/x.tar" if place == "src" else "x.tar"
    world = StepTest(tmp_path, "archive", {"path": f"{tmp_path}/to", place: source})
    assert world.run().changed
    assert (tmp_path / "to/a").read_text() == "new\n"
    assert world.undo is None


@as_root
@pytest.mark.parametrize("place", ["src", "localSrc"])
def test_a_pipe_in_place_of_a_file_is_a_failure_and_stays(tmp_path: Path, place: str) -> None:
    (tmp_path / "x.tar").write_bytes(made("tar", [Thing("a"), Thing("b")]))
    (tmp_path / "to").mkdir()
    os.mkfifo(tmp_path / "to/a")
    source = f"{tmp_path}/x.tar" if place == "src" else "x.tar"
    world = StepTest(tmp_path, "archive", {"path": f"{tmp_path}/to", place: source})
    for call in (world.forecast, world.run):
        with pytest.raises(StepFailed, match="to/a is a device, pipe or socket"):
            call()
    assert (tmp_path / "to/a").is_fifo()
    assert not (tmp_path / "to/b").exists()


def test_a_name_that_unzip_shows_as_another_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(made("zip", [Thing("a\nb")]))
    (tmp_path / "to").mkdir()
    world = StepTest(tmp_path, "archive", {"path": f"{tmp_path}/to", "src": f"{tmp_path}/x.zip"})
    with pytest.raises(StepFailed, match="names with control characters"):
        world.run()
    assert list((tmp_path / "to").iterdir()) == []


def _closed(path: Path) -> None:
    path.chmod(0o700)


def _shared(path: Path) -> None:
    path.chmod(0o1755)


def _given_away(path: Path) -> None:
    os.chown(path, 33, 1)


@as_root
@pytest.mark.parametrize("change", [_closed, _shared, _given_away])
@pytest.mark.parametrize("folder", ["above", "above/to", "above/to/d"])
def test_a_new_folder_that_somebody_has_changed_is_left_alone(
    tmp_path: Path, folder: str, change: Callable[[Path], None]
) -> None:
    (tmp_path / "x.tar").write_bytes(made("tar", [Thing("d/", "", kind=stat.S_IFDIR, mode=0o755)]))
    target = f"{tmp_path}/above/to"
    world = StepTest(tmp_path, "archive", {"path": target, "src": f"{tmp_path}/x.tar", "createParents": True})
    assert world.run().changed
    change(tmp_path / folder)
    state, said = world.undo_run()
    assert (state, (tmp_path / "above/to/d").is_dir()) == ("leftAlone", True)
    assert f"{tmp_path}/{folder} ({'owner, group' if change is _given_away else 'mode'})" in said
    assert world.undo_run(overwrite=True)[0] == "undone"
    assert not (tmp_path / "above").exists()

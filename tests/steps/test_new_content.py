"""New content of a file: judged in private before it takes the old one's place, which can be kept beside it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.model.result import ForecastState, Status
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest, snapshot
from kubexm_steps.file import FileStep
from kubexm_steps.lib import files as _files
from tests.executors.kit import Bench, graph, node
from tests.executors.test_changed_meanwhile import meddler
from tests.lab.sshd import SSHD, ssh_host

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
pytestmark = pytest.mark.xdist_group("new-content")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphHost | None]:
    if SSHD is None:
        yield None
        return
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host.host()


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest, box: GraphHost | None) -> GraphHost | None:
    if request.param == "ssh" and box is None:
        pytest.skip("no sshd here")
    return box if request.param == "ssh" else None


def judge(log: Path, then: str) -> list[str]:
    """A program that writes down where the content is and who may read it."""
    text = 'stat -c %a "${1%/*}" "$1" >"$2"; echo "$1" >>"$2"; cat "$1" >>"$2"; ' + then
    return ["sh", "-c", text, "judge", "%s", str(log)]


def seen(log: Path) -> tuple[str, str, Path, str]:
    """What it wrote down: the modes of folder and file, the path, and the content."""
    folder, file, path, content = log.read_text().split("\n", 3)
    return folder, file, Path(path), content


@pytest.mark.parametrize("code", [0, 1])
def test_content_is_judged_in_a_folder_of_our_own_that_is_gone_afterwards(
    tmp_path: Path, host: GraphHost | None, code: int
) -> None:
    path, log = tmp_path / "it's a $file", tmp_path / "log"
    with_ = {"path": str(path), "content": "a\0b\n%s", "validate": judge(log, f"exit {code}")}
    with StepTest(tmp_path, "file", with_, host=host) as step:
        step.forecast()
        assert not log.exists(), "a check does not run it"
        if code:
            with pytest.raises(StepFailed, match="exit code 1"):
                step.run()
        else:
            step.run()
    folder, mode, place, content = seen(log)
    assert (folder, mode, place.name, content) == ("700", "600", path.name, "a\0b\n%s")
    assert place.parent.name.startswith("kx.")
    assert not place.parent.exists()
    assert path.exists() is (code == 0)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_content_is_gone_also_if_the_judge_takes_too_long(tmp_path: Path, host: GraphHost | None, how: str) -> None:
    path, log, pipe = tmp_path / "f", tmp_path / "log", tmp_path / "pipe"
    os.mkfifo(pipe)
    path.write_text("old\n")
    with_ = {"path": str(path), "content": "new\n", "validate": judge(log, f"echo here >'{pipe}'; sleep 600")}
    with StepTest(tmp_path, "file", with_, host=host, timeout=4 if how == "timeout" else 60) as step:

        def stop() -> None:
            pipe.read_text()
            if how == "cancel":
                step.cancel.set()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(CommandTimedOut if how == "timeout" else CommandCancelled):
            step.run()
        thread.join()
        assert step.undo is None
    assert not seen(log)[2].parent.exists()
    assert path.read_text() == "old\n"


def test_the_judge_has_the_environment_of_a_command_and_no_input(tmp_path: Path, host: GraphHost | None) -> None:
    here = tmp_path / "here"
    here.write_text("")
    text = f'cat; env >"{tmp_path}/env"; pwd >"{tmp_path}/pwd"'
    judged = {"path": f"{tmp_path}/f", "content": "x", "validate": ["sh", "-c", text, "%s"]}
    with StepTest(tmp_path, "file", judged, host=host) as step:
        step.run()
    with StepTest(tmp_path, "command", {"shell": "env; echo PWD_IS=$(pwd)"}, host=host) as step:
        plain = step.run().outputs["stdout"].splitlines()
    assert f"PWD_IS={(tmp_path / 'pwd').read_text().strip()}" in plain
    env = set((tmp_path / "env").read_text().splitlines())
    names = {line.partition("=")[0] for line in env}
    assert "LC_ALL" not in names or any(line.startswith("LC_ALL=") for line in plain)
    assert {"/usr/sbin", "/sbin"} <= {part for line in env if line.startswith("PATH=") for part in line[5:].split(":")}


def test_a_step_with_a_judge_asks_the_host_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    run, put = LocalConnector.run, LocalConnector.put

    def counted_run(self: LocalConnector, *words: Any, **how: Any) -> Any:
        asked.append("run")
        return run(self, *words, **how)

    def counted_put(self: LocalConnector, *words: Any, **how: Any) -> Any:
        asked.append("put")
        return put(self, *words, **how)

    monkeypatch.setattr(LocalConnector, "run", counted_run)
    monkeypatch.setattr(LocalConnector, "put", counted_put)
    counts = []
    for number, more in enumerate(({}, {"validate": ["true", "%s"]})):
        asked.clear()
        with StepTest(tmp_path, "file", {"path": f"{tmp_path}/{number}", "content": "x", **more}) as step:
            step.run()
        counts.append(len(asked))
    assert counts == [counts[0], counts[0] + 1]


BACKUP = re.compile(r"f\.\d{8}T\d{6}Z\.[0-9a-f]{8}~")
WAYS: dict[str, dict[str, Any]] = {
    "file": {"content": "new\n"},
    "template": {"src": "source"},
    "copy": {"src": "source"},
    "line-in-file": {"line": "new"},
    "block-in-file": {"content": "new"},
    "file that goes": {"state": "absent"},
}


def backups(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith("~"))


@pytest.mark.parametrize("way", WAYS)
def test_old_content_is_kept_beside_the_file_until_an_undo(tmp_path: Path, host: GraphHost | None, way: str) -> None:
    (tmp_path / "source").write_text("new\n")
    folder = tmp_path / "there"
    folder.mkdir()
    path = folder / "f"
    path.write_text("old\n")
    path.chmod(0o640)
    before = snapshot(folder)
    kind = way.partition(" ")[0]
    with StepTest(tmp_path, kind, {"path": str(path), "backup": True, **WAYS[way]}, host=host) as step:
        step.forecast()
        assert snapshot(folder) == before
        result = step.run()
        [kept] = backups(folder)
        assert BACKUP.fullmatch(kept.name)
        assert result.outputs["backup"] == str(kept)
        assert str(kept) in result.message
        assert (kept.read_text(), kept.stat().st_mode & 0o7777) == ("old\n", 0o640)
        again = step.forecast()
        assert again.state is ForecastState.SATISFIED
        assert not again.outputs.get("backup")
        assert step.undo_run() == ("undone", "")
        assert snapshot(folder) == before
        # Somebody has made it their own meanwhile.
        step.run()
        [kept] = backups(folder)
        kept.write_text("theirs\n")
        state, said = step.undo_run()
        assert (state, str(kept) in said) == ("leftAlone", True)
        assert kept.read_text() == "theirs\n"


def test_no_backup_is_made_where_no_content_is_replaced(tmp_path: Path) -> None:
    for number, (given, more) in enumerate((("x", {"mode": "0600"}), (None, {}), ("x", {}))):
        folder = tmp_path / str(number)
        folder.mkdir()
        if given is not None:
            (folder / "f").write_text(given)
        with StepTest(tmp_path, "file", {"path": f"{folder}/f", "content": "x", "backup": True, **more}) as step:
            assert not step.run().outputs.get("backup")
        assert not backups(folder)


@pytest.mark.parametrize(
    ("before", "wanted", "kept"), [(0o4755, None, 0o755), (0o644, "0600", 0o600), (0o600, "0644", 0o600)]
)
def test_a_backup_is_open_to_no_more_people_than_the_file_before_and_after(
    tmp_path: Path, before: int, wanted: str | None, kept: int
) -> None:
    path = tmp_path / "f"
    path.write_text("old\n")
    path.chmod(before)
    more = {} if wanted is None else {"mode": wanted}
    with StepTest(tmp_path, "file", {"path": str(path), "content": "new\n", "backup": True, **more}) as step:
        step.run()
    [backup] = backups(tmp_path)
    assert backup.stat().st_mode & 0o7777 == kept


@as_root
def test_a_backup_belongs_to_whom_the_file_belonged(tmp_path: Path, host: GraphHost | None) -> None:
    path = tmp_path / "f"
    path.write_text("old\n")
    os.chown(path, 1, 2)
    with_ = {"path": str(path), "content": "new\n", "backup": True, "owner": 3, "group": 4}
    with StepTest(tmp_path, "file", with_, host=host) as step:
        step.run()
    [backup] = backups(tmp_path)
    assert (backup.stat().st_uid, backup.stat().st_gid) == (1, 2)


@pytest.mark.parametrize("more", [{"content": "new\n"}, {"state": "absent"}])
def test_a_file_that_is_too_large_for_a_backup_is_named_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(_files, "KEEP_LIMIT", 3)
    path = tmp_path / "f"
    path.write_text("old\n")
    with StepTest(tmp_path, "file", {"path": str(path), "backup": True, **more}) as step:
        with pytest.raises(StepFailed, match=r"back up .*/f: it is larger than") as caught:
            step.forecast()
        assert "leave out `backup`" in caught.value.hint


def test_there_is_one_backup_also_if_others_change_the_file_between_look_and_work(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("start\n")
    bench = Bench(steps={"file": FileStep}, connectors={"local": meddler(path, ["one\n", "two\n"])})
    with_ = {"path": str(path), "content": "mine\n", "backup": True}
    ran = bench.run(graph(node("write", "file", with_=with_)))
    assert ran.result.status is Status.SUCCESS
    [backup] = backups(tmp_path)
    assert backup.read_text() == "start\none\ntwo\n"
    assert ran.host("write").outputs["backup"] == str(backup)


def test_a_file_that_others_make_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "f"

    class Meddling(LocalConnector):
        def put(self, *what: Any, **how: Any) -> None:
            target.write_text("theirs\n")
            super().put(*what, **how)

    bench = Bench(steps={"file": FileStep}, connectors={"local": Meddling})
    ran = bench.run(graph(node("write", "file", with_={"path": str(target), "content": "mine\n", "createOnly": True})))
    assert ran.host("write").status is Status.SKIPPED
    assert target.read_text() == "theirs\n"

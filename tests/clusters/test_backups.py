"""`kubexm cluster backup` and `restore`: what they build, and what they refuse before anything is contacted."""

from __future__ import annotations

import hashlib
import pathlib

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main
from kubexm_exec.service.clusters import build
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST
from tests.clusters.test_build import EXTERNAL

PAGES = b"pages of a database".ljust(1024, b"\0")
SNAPSHOT = PAGES + hashlib.sha256(PAGES).digest()


def cluster(folder: pathlib.Path, text: str, *words: str) -> Result:
    (folder / "cluster.yaml").write_text(text)
    command, *more = words
    return CliRunner().invoke(main, ["cluster", command, "-f", str(folder / "cluster.yaml"), "--no-journal", *more])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (SMALLEST, "stacked"),
        (HIGHLY_AVAILABLE, "own"),
        (HIGHLY_AVAILABLE + "etcd: {walDir: /wal}\n", "own with a log apart"),
    ],
    ids=lambda value: value if len(value) < 30 else "",
)
def test_snapshots_are_planned_for_every_kind_of_etcd(text: str, word: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "s.db").write_bytes(SNAPSHOT)
    taken = cluster(tmp_path, text, "backup", "--executor", "dry-run", "-o", "copies")
    assert taken.exit_code == 0, taken.output
    # A member that does not answer is no reason to have no snapshot: the first that can be reached takes it.
    assert "kubexm-etcd-backup" in taken.output
    restored = cluster(tmp_path, text, "restore", "--executor", "dry-run", "--snapshot", str(tmp_path / "s.db"))
    assert restored.exit_code == 0, restored.output
    assert "--bump-revision=1000000000 --mark-compacted" in restored.output
    assert ("/opt/etcd-" in restored.output) is (word == "stacked")
    assert ("--wal-dir=/wal/" in restored.output) is (word == "own with a log apart")


def test_data_is_prepared_before_anything_stops_and_api_servers_come_back_last(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s.db").write_bytes(SNAPSHOT)
    said = cluster(
        tmp_path, HIGHLY_AVAILABLE, "restore", "--executor", "dry-run", "--snapshot", str(tmp_path / "s.db")
    ).output
    order = ["judge/snapshot", "judge/restore", "stop-api-servers/stop", "stop-etcd/service", "swap/swap"]
    order += ["start-etcd/healthy", "start-api-servers/start"]
    places = [said.index(f"etcd-restore/{step} ") for step in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "command", [["backup"], ["restore", "--yes", "--snapshot", "s.db"]], ids=lambda words: words[0]
)
def test_an_etcd_of_others_is_left_to_them(
    command: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.db").write_bytes(SNAPSHOT)
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.crt").write_text("ca")
    result = cluster(tmp_path, SMALLEST + EXTERNAL, *command)
    assert result.exit_code == 2
    assert "etcd is external" in result.output
    assert "cluster.yaml:8:" in result.output


@pytest.mark.parametrize(
    ("content", "beside", "said"),
    [
        (None, "", "no such file"),
        (b"", "", "it has 0 bytes"),
        (SNAPSHOT[:-1], "", "cut short"),
        (b"X" + SNAPSHOT[1:], "", "the digest of the snapshot s.db is wrong"),
        (SNAPSHOT, "0" * 64 + "  s.db\n", "another snapshot than s.db.sha256"),
    ],
    ids=["missing", "empty", "cut", "changed", "other"],
)
def test_a_snapshot_that_is_none_is_refused_with_nothing_done(
    content: bytes | None, beside: str, said: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "s.db").write_bytes(content)
    if beside:
        (tmp_path / "s.db.sha256").write_text(beside)
    result = cluster(tmp_path, HIGHLY_AVAILABLE, "restore", "--yes", "--snapshot", "s.db")
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_nobody_replaces_the_data_of_etcd_without_saying_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s.db").write_bytes(SNAPSHOT)
    result = cluster(tmp_path, HIGHLY_AVAILABLE, "restore", "--snapshot", str(tmp_path / "s.db"))
    assert result.exit_code == 3
    assert "approve it with --yes" in result.output


def test_the_timer_is_on_every_member_unless_the_document_says_no(tmp_path: pathlib.Path) -> None:
    def timers(text: str) -> list[str]:
        (tmp_path / "cluster.yaml").write_text(text)
        pipeline = build(str(tmp_path / "cluster.yaml"), str(tmp_path), lambda *_: None)
        return [module["name"] for module in pipeline["modules"] if module["name"].endswith("timer")]

    for text in (SMALLEST, HIGHLY_AVAILABLE):
        assert timers(text) == ["etcd-timer"]
        assert timers(text + "etcd: {backup: {enabled: false}}\n") == ["etcd-no-timer"]

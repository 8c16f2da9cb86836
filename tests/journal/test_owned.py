"""What is kept on the control node is nobody else's to write: a folder or file of another user is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.session import OutputLog
from kubexm_exec.journal.store import Store
from kubexm_exec.model.events import ACTION_OUTPUT, Event
from kubexm_exec.resources.cache import Cache
from kubexm_exec.resources.source import ResourceError
from tests.cli.kit import Folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
OTHER = 65534


def journal(state: Path) -> None:
    """Open it, and let go of it."""
    Store(str(state / "journal.db")).close()


def log(state: Path) -> None:
    """Write a piece of output."""
    lost: list[JournalError] = []
    subscriber = OutputLog(state / "runs" / "id", lost.append)
    subscriber(Event(ACTION_OUTPUT, "id", 1.0, "node", "host", {"text": "x"}))
    subscriber.close()
    if lost:
        raise lost[0]


def cache(state: Path) -> None:
    """Make it."""
    Cache(state).make()


def given(path: Path, mode: int, owner: int = OTHER) -> None:
    """Make a file (a name with a suffix) or a folder, of another user."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.touch()
    else:
        path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, owner)


@pytest.mark.parametrize(
    ("use", "planted"),
    [
        (journal, ""), (journal, "journal.db"), (journal, "journal.db-wal"), (journal, "journal.db-shm"),
        (log, ""), (log, "runs"), (log, "runs/id"), (log, "runs/id/output.jsonl"),
        (cache, ""), (cache, "files"), (cache, "records"), (cache, "parts"),
    ],
)  # fmt: skip
def test_what_another_user_made_is_refused(use: Callable[[Path], None], planted: str, tmp_path: Path) -> None:
    state = tmp_path / "st"
    given(state / planted, 0o666 if "." in planted else 0o777)
    with pytest.raises((JournalError, ResourceError), match=r"belongs to \S+ and has mode 0(666|777).*may write it"):
        use(state)


@pytest.mark.parametrize("use", [journal, log, cache])
def test_our_own_folder_that_others_may_write_is_refused(use: Callable[[Path], None], tmp_path: Path) -> None:
    given(tmp_path / "st", 0o1777, 0)
    with pytest.raises((JournalError, ResourceError), match="belongs to root and has mode 1777: everybody may write"):
        use(tmp_path / "st")


@pytest.mark.parametrize("use", [journal, log, cache])
def test_a_link_of_another_user_is_not_followed(use: Callable[[Path], None], tmp_path: Path) -> None:
    given(tmp_path / "shared", 0o1777, 0)
    (tmp_path / "private").mkdir()
    (tmp_path / "shared" / "st").symlink_to(tmp_path / "private")
    os.chown(tmp_path / "shared" / "st", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises((JournalError, ResourceError), match=r"is a link to .*, in a folder that everybody may write"):
        use(tmp_path / "shared" / "st")
    assert not list((tmp_path / "private").iterdir())


@pytest.mark.parametrize("use", [journal, log, cache])
def test_folders_above_that_are_missing_are_made_for_us_alone(use: Callable[[Path], None], tmp_path: Path) -> None:
    use(tmp_path / "a" / "b" / "st")
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


@pytest.mark.parametrize(("use", "name"), [(journal, "journal.db"), (log, "runs/id/output.jsonl")])
def test_a_file_of_ours_that_is_too_open_is_closed(use: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    use(tmp_path / "st")
    (tmp_path / "st").chmod(0o755)
    (tmp_path / "st" / name).chmod(0o644)
    use(tmp_path / "st")
    assert (tmp_path / "st" / name).stat().st_mode & 0o777 == 0o600


def test_a_command_says_whose_the_state_is_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(tmp_path / "st" / "journal.db", 0o666)
    given(tmp_path / "st", 0o777)
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "st"))
    result = Folder(tmp_path).run("runs")
    assert result.exit_code == 2
    assert "mode 0777" in result.output
    assert f"chown root {tmp_path / 'st'}" in result.output.replace("\n", " ")
    assert (tmp_path / "st" / "journal.db").stat().st_size == 0

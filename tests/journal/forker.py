"""A process without threads that has everything loaded and forks one child for each session: quick real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Forker:
    """The side of the tests."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.journal.forker", str(folder)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def session(self, data: bytes, folder: Path, mode: str, die_at: str = "") -> int:
        """Have one session made; the exit code of its process, negative if a signal ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"data": data.hex(), "folder": str(folder), "mode": mode, "die": die_at}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def program(self, folder: Path, *words: str, die_at: str = "") -> int:
        """Have a real command run in a folder, where ``said`` is what it prints; its exit code, as for a session."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"words": words, "folder": str(folder), "die": die_at}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def new_folder(folder: Path, template: Path) -> None:
    """An empty host and an empty journal."""
    for name in ("run", "undo", "done", "half"):
        (folder / name).mkdir(parents=True)
    shutil.copy(template, folder / "journal.db")


def _child(asked: dict[str, Any]) -> int:
    from kubexm_exec.journal import store
    from tests.journal.chance import case_of, session

    vars(store)["_DIE_AT"] = asked["die"]
    try:
        session(case_of(bytes.fromhex(asked["data"])), Path(asked["folder"]), asked["mode"])
    except BaseException:  # noqa: BLE001  the child must never get into the loop of its parent
        (Path(asked["folder"]) / "error").write_text(traceback.format_exc())
        return 1
    return 0


def _program(asked: dict[str, Any]) -> int:
    from kubexm_exec.cli import programs
    from kubexm_exec.journal import store

    vars(store)["_DIE_AT"] = asked["die"]
    folder = Path(asked["folder"])
    os.chdir(folder)
    os.environ["KUBEXM_STATE"] = str(folder / "state")
    name, *words = asked["words"]
    sys.argv = [name, *words]
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    try:
        getattr(programs, name.replace("-", "_"))()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001  as above
        traceback.print_exc()
        return 99
    finally:
        sys.stdout.flush()
    return 0


def _make_template(path: Path) -> None:
    from kubexm_exec.journal.store import Store

    Store(str(path)).close()


def _in_child(what: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(what(*arguments) or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Fork for every line that comes."""
    import kubexm_exec.journal.sqlitefile  # noqa: F401 - loaded here, so that no child has to
    from tests.journal.chance import case_of

    template = Path(sys.argv[1]) / "template.db"
    _in_child(_make_template, template)
    for line in sys.stdin:
        asked = json.loads(line)
        if "words" in asked:
            sys.stdout.write(f"{_in_child(_program, asked)}\n")
            sys.stdout.flush()
            continue
        folder = Path(asked["folder"])
        if not folder.exists():
            new_folder(folder, template)
        # Compiled here once, and not by every child.
        case_of(bytes.fromhex(asked["data"]))
        sys.stdout.write(f"{_in_child(_child, asked)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

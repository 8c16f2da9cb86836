"""A place for runs that are written down: a spec, a folder that stands for hosts, a journal, and real commands."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import asdict

from kubexm_exec.engine.entries import read
from kubexm_exec.engine.history import RunHistory, tell
from tests.e2e.program import BIN, environment, write_spec


class Sites(Protocol):
    """Makes sites for a test."""

    def __call__(self, body: str, *, journal: str = "", **env: str) -> Site:
        """A new one; ``env`` holds for all its commands."""


_PATIENCE = 90.0
"""Seconds that something may take on a busy machine."""


def wait_until(what: Callable[[], Any], why: Callable[[], str] = str) -> Any:
    """The first answer that is something."""
    until = time.monotonic() + _PATIENCE
    while not (answer := what()):
        assert time.monotonic() < until, f"it did not come to pass: {why()}"
        time.sleep(0.02)
    return answer


class Site:
    """Where runs are made. In the spec ``FOLDER`` is the folder of the hosts."""

    def __init__(self, folder: Path, body: str, *, journal: str = "", **env: str) -> None:
        self.folder = folder
        self.host = folder / "host"
        self.host.mkdir(parents=True)
        self.state = folder / "state"
        self.journal = journal
        self.within: tuple[str, ...] = ()
        """Words before each command, such as those that lead into a namespace."""
        self._started: list[subprocess.Popen[str]] = []
        self.env = environment(KUBEXM_STATE=str(self.state), **({"KUBEXM_JOURNAL": journal} if journal else {}), **env)
        self.write(body)

    def write(self, body: str, name: str = "spec.yaml") -> Path:
        """Another spec in its place, or a second one."""
        return write_spec(self.folder, body.replace("FOLDER", str(self.host)), name)

    def start(self, *command: str, cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
        """A command while it runs."""
        process = subprocess.Popen(
            [*self.within, str(BIN / command[0]), *command[1:]], cwd=cwd or self.folder, env={**self.env, **env},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a test that failed has left behind."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            if process.stdout is not None and not process.stdout.closed:
                process.communicate(timeout=_PATIENCE)

    def run(self, *command: str, cwd: Path | None = None, code: int | None = None, **env: str) -> str:
        """A command to its end; what it said. It must end with the code, if there is one."""
        process = self.start(*command, cwd=cwd, **env)
        return ended(process, code)

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        data: list[dict[str, Any]] = json.loads(self.run("kubexm", "runs", "--output", "json", code=0))
        return data

    def status(self) -> str:
        """What the newest run is."""
        return str(self.runs()[0]["status"])

    def history(self, run: str = "last") -> RunHistory:
        """All that the journal has of a run."""
        from kubexm_exec.journal.store import Store

        store = Store(self.journal or str(self.state / "journal.db"))
        try:
            return tell(store, store.run(run).id)
        finally:
            store.close()

    def entries(self, run: str = "last") -> list[dict[str, Any]]:
        """Every entry of a run."""
        from kubexm_exec.journal.store import Store

        store = Store(self.journal or str(self.state / "journal.db"))
        try:
            found = [each for _, _, group in store.entries(store.run(run).id, read=read) for each in group]
            return [{"kind": type(each).__name__.lower(), **asdict(each)} for each in found]
        finally:
            store.close()

    def lines(self, name: str) -> int:
        """How many lines a file of the hosts has."""
        path = self.host / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    def counts(self) -> Counter[str]:
        """How often each step that counts was executed: those write a line to ``count.NAME`` each time."""
        return Counter({path.name[6:]: self.lines(path.name) for path in self.host.glob("count.*")})

    def content(self) -> dict[str, str]:
        """What is on the hosts, without the counts."""
        return {
            str(path.relative_to(self.host)): path.read_text().replace(str(self.folder), "")
            for path in sorted(self.host.rglob("*"))
            if path.is_file() and not path.name.startswith("count.")
        }


def ended(process: subprocess.Popen[str], code: int | None = None) -> str:
    """What a command said in all; it must have ended with the code, and never with a traceback."""
    out, err = process.communicate(timeout=_PATIENCE)
    said = out + err
    assert "Traceback" not in said, said
    assert code is None or process.returncode == code, f"{process.returncode}\n{said}"
    return said

"""Whole runs of the real program on full hosts, and waiting for what they do there."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.program import BIN, environment, run, write_spec
from tests.lab.machines import Machine

SOON = 60.0
"""Long enough for anything that is not stuck, however busy this computer is."""
ALIVE: dict[str, Any] = {"serverAliveInterval": "1s", "serverAliveCountMax": 5}
"""So that a host that is silent is given up on soon."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    text: str
    result: dict[str, Any]

    def action(self, step: str, host: str) -> dict[str, Any]:
        """What a step did on a host."""
        action: dict[str, Any] = self.result["nodeResults"][f"module/task/{step}"]["hostResults"][host]
        return action

    def of(self, step: str) -> dict[str, str]:
        """How a step went on each host: the kind of failure, or else the status."""
        hosts = self.result["nodeResults"][f"module/task/{step}"]["hostResults"]
        return {name: action.get("failureKind") or action["status"] for name, action in hosts.items()}


class Project:
    """A folder with a pipeline; what belongs to whoever runs the tests is kept out."""

    def __init__(self, folder: Path, machines: Sequence[Machine], **defaults: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.printed = folder / "printed"
        self._env = {**environment(HOME=str(folder)), "SSH_AUTH_SOCK": ""}
        self.hosts: list[dict[str, Any]] = [{"name": each.name, "address": each.address} for each in machines]
        self.defaults = {
            "user": "root",
            "privateKeyPath": str(machines[0].key),
            "knownHosts": str(folder / "known_hosts"),
            **defaults,
        }

    def write(self, *steps: Mapping[str, Any], **task: Any) -> None:
        """The pipeline: one task with these steps."""
        self.write_tasks({"name": "task", **task, "steps": list(steps)})

    def write_tasks(self, *tasks: Mapping[str, Any]) -> None:
        """The pipeline: these tasks."""
        inventory = {"defaults": self.defaults, "hosts": self.hosts}
        modules = [{"name": "module", "tasks": tasks}]
        # JSON is YAML too.
        write_spec(self.folder, f"inventory: {json.dumps(inventory)}\nmodules: {json.dumps(modules)}\n")

    def run(self, **env: str) -> Outcome:
        """From its start to its end."""
        arguments = ("spec.yaml", "--result", "result.json")
        done = run("kubexm-run", *arguments, cwd=self.folder, env={**self._env, **env}, timeout=2 * SOON)
        return self.outcome(done.returncode, done.stdout + done.stderr)

    @contextlib.contextmanager
    def running(self) -> Iterator[Running]:
        """While it runs; nothing of it is left afterwards."""
        arguments = [str(BIN / "kubexm-run"), "spec.yaml", "--result", "result.json"]
        with self.printed.open("wb") as printed:
            process = subprocess.Popen(
                arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, env=self._env
            )
        try:
            yield Running(self, process)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def outcome(self, code: int, text: str) -> Outcome:
        """The record of the run that just ended."""
        assert "Traceback" not in text, text
        path = self.folder / "result.json"
        assert path.exists(), text
        return Outcome(code, text, json.loads(path.read_text()))


class Running:
    """A run that has not ended."""

    def __init__(self, project: Project, process: subprocess.Popen[bytes]) -> None:
        self._project = project
        self._process = process

    def said(self, word: str) -> bool:
        """Whether it has printed that so far."""
        return word in self._project.printed.read_text()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it has come that far."""
        try:
            wait_until(condition, what, lambda: self._process.poll() is not None)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self._project.printed.read_text()}") from None

    def end(self) -> Outcome:
        """Wait for its end."""
        self._process.wait(timeout=2 * SOON)
        return self._project.outcome(self._process.returncode, self._project.printed.read_text())


def wait_until(condition: Callable[[], bool], what: str, over: Callable[[], bool] = lambda: False) -> None:
    """Look again and again until it is so."""
    until = time.monotonic() + SOON
    while not condition():
        assert not over(), f"the run ended before {what}"
        assert time.monotonic() < until, f"waited in vain until {what}"
        time.sleep(0.05)

"""A connector that keeps an account of every command: works on this machine, for hosts that say where to write it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from kubexm_exec.connectors.base import Command, OnOutput, Sink
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost


class AccountedConnector:
    """Does what the local connector does, and writes down what was run; the file is the host's address."""

    def __init__(self, host: GraphHost, secrets: Callable[[str], str]) -> None:
        self._host = host
        self._inner = LocalConnector(host, secrets)
        self._lock = threading.Lock()

    def open(self, deadline: Deadline) -> None:
        """Begin the account."""
        try:
            Path(self._host.address).touch()
        except OSError as error:
            raise ConnectorError(f"host {self._host.name}: no account can be kept: {error.strerror}") from error
        self._inner.open(deadline)

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Write the command down, and run it."""
        with self._lock, Path(self._host.address).open("a", encoding="utf-8", errors="replace") as account:
            account.write(f"{command.display()}\n")
        return self._inner.run(command, deadline=deadline, cancel=cancel, on_output=on_output)

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file."""
        self._inner.put(source, path, mode=mode, owner=owner, group=group, deadline=deadline, cancel=cancel)

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """Read a file."""
        return self._inner.get(path, deadline=deadline, cancel=cancel, limit=limit)

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Read a file piece by piece."""
        self._inner.stream(path, sink, deadline=deadline, cancel=cancel)

    def close(self) -> None:
        """Nothing is held."""
        self._inner.close()

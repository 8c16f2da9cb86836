"""The connections of a run: one a host, opened on first use by one opener at a time, closed at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kubexm_exec.connectors.base import Connector, ConnectorError, Deadline
from kubexm_exec.graph import GraphHost


class Loads(Protocol):
    """What is asked of a registry: a plug-in by its name."""

    def load(self, name: str) -> Any:
        """The plug-in; raises RegistryError."""

    def names(self) -> list[str]:
        """All names."""


class ConnectorPool:
    """Hands out the connector of a host, open."""

    def __init__(
        self,
        hosts: Mapping[str, GraphHost],
        connectors: Loads,
        secret: Callable[[str], str],
        *,
        open_timeout: float = 30.0,
        most_opening: int = 100,
    ) -> None:
        self._hosts = hosts
        self._connectors = connectors
        self._secret = secret
        self._open_timeout = open_timeout
        # So many logins at once would all be slow, and the last ones too late.
        self._opening = threading.BoundedSemaphore(most_opening)
        self._open: dict[str, Connector] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, host: str, deadline: Deadline) -> Connector:
        """The host's connector; raises ConnectorError if it cannot be opened before the deadline."""
        connector = self._open.get(host)
        if connector is not None:
            return connector
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        if not _acquire(lock, deadline.earlier(self._open_time(host))):
            raise ConnectorError(f"{host} is still being connected to by another step")
        try:
            if host not in self._open:
                # The wait for a turn is not the host's fault, so its own time begins after it.
                if not _acquire(self._opening, deadline):
                    raise ConnectorError(f"there was no time left to connect to {host}: too many others were first")
                try:
                    self._open_one(host, deadline.earlier(self._open_time(host)))
                finally:
                    self._opening.release()
            return self._open[host]
        finally:
            lock.release()

    def _open_time(self, host: str) -> float:
        """Seconds for connecting: a host may be given more than usual."""
        return max(self._open_timeout, self._hosts[host].options.get("connectTimeout") or 0.0)

    def _open_one(self, host: str, deadline: Deadline) -> None:
        graph_host = self._hosts[host]
        connector: Connector = self._connectors.load(graph_host.connector)(graph_host, self._secret)
        try:
            connector.open(deadline)
        except BaseException:
            connector.close()
            raise
        with self._lock:
            if not self._closed:
                self._open[host] = connector
                return
        # An abandoned step came back after the end of the run: nobody would close what it opened.
        connector.close()
        raise ConnectorError("the run is over")

    def close(self) -> list[tuple[str, Exception]]:
        """Close all; one that cannot be closed does not stop the others and is named."""
        with self._lock:
            self._closed = True
            connectors, self._open = self._open, {}
        failed: list[tuple[str, Exception]] = []
        for host, connector in connectors.items():
            try:
                connector.close()
            except Exception as error:  # noqa: BLE001  whatever a third party's connector raises, the others are closed
                failed.append((host, error))
        return failed


def _acquire(lock: threading.Lock | threading.BoundedSemaphore, deadline: Deadline) -> bool:
    left = deadline.left()
    return lock.acquire() if left is None else lock.acquire(timeout=left)

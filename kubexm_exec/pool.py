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
    ) -> None:
        self._hosts = hosts
        self._connectors = connectors
        self._secret = secret
        self._open_timeout = open_timeout
        self._open: dict[str, Connector] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, host: str, deadline: Deadline) -> Connector:
        """The host's connector; raises ConnectorError if it cannot be opened before the deadline."""
        connector = self._open.get(host)
        if connector is not None:
            return connector
        deadline = deadline.earlier(self._open_timeout)
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        if not lock.acquire(timeout=deadline.left() or 0.0):
            raise ConnectorError(f"{host} is still being connected to by another step")
        try:
            if host not in self._open:
                self._open_one(host, deadline)
            return self._open[host]
        finally:
            lock.release()

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

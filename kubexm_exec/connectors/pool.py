"""The connections of a run: one a host, opened on first use by one opener at a time, closed at the end."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kubexm_exec.connectors.base import (
    Connector,
    ConnectorFactory,
    ExpectsHosts,
    HangsUp,
    Marks,
    SharesInRun,
    StartsIn,
    User,
)
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandCancelled, ConnectorError
from kubexm_exec.model.graph import GraphHost


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
        folder: str = "",
    ) -> None:
        """``folder``: where relative names of the control node begin; the working directory if it is empty."""
        self._hosts = hosts
        self._connectors = connectors
        self._secret = secret
        self._folder = folder
        self._open_timeout = open_timeout
        # So many logins at once would all be slow, and the last ones too late.
        self._most_opening = most_opening
        self._opening = Semaphore(most_opening)
        self._open: dict[str, Connector] = {}
        self._turns: dict[str, Semaphore] = {}
        self._makers: dict[str, ConnectorFactory] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._mark = ""
        self._left: Mapping[str, Sequence[tuple[str, User]]] = {}

    def mark(self, own: str, left: Mapping[str, Sequence[tuple[str, User]]]) -> None:
        """Let what runs on hosts carry a mark; on those in ``left`` end first what carries one of theirs.

        Call it before anything is connected to.
        """
        self._mark, self._left = own, left

    def prepare(self, hosts: Iterable[str]) -> None:
        """Let the connectors of some hosts get ready: these will be connected to soon."""
        for name in {self._hosts[host].connector for host in hosts}:
            # What is wrong with one is the failure of the steps that need it.
            with contextlib.suppress(Exception):
                self._maker(name)

    def expect(self, hosts: Iterable[str]) -> None:
        """These will be connected to first, at once: a factory that can get ready for them does it."""
        wanted: dict[str, list[GraphHost]] = {}
        for host in itertools.islice(hosts, self._most_opening):
            wanted.setdefault(self._hosts[host].connector, []).append(self._hosts[host])
        for name, of_it in wanted.items():
            with contextlib.suppress(Exception):
                maker = self._maker(name)
                if isinstance(maker, ExpectsHosts):
                    maker.expect(of_it)

    def get(self, host: str, deadline: Deadline, cancel: Cancel | None = None) -> Connector:
        """The host's connector; raises ConnectorError if it cannot be opened before the deadline.

        A cancel ends the waiting, and the opening, with CommandCancelled.
        """
        connector = self._open.get(host)
        if connector is not None:
            return connector
        cancel = cancel or Cancel()
        with self._lock:
            turn = self._turns.setdefault(host, Semaphore(1))
        if not turn.take(deadline.earlier(self._open_time(host)), cancel):
            raise ConnectorError(f"{host} is still being connected to by another step")
        try:
            if host not in self._open:
                # The wait for a turn is not the host's fault, so its own time begins after it.
                if not self._opening.take(deadline, cancel):
                    raise ConnectorError(f"there was no time left to connect to {host}: too many others were first")
                try:
                    self._open_one(host, deadline.earlier(self._open_time(host)), cancel)
                finally:
                    self._opening.give_back()
            return self._open[host]
        finally:
            turn.give_back()

    def _open_time(self, host: str) -> float:
        """Seconds for connecting: a host may be given more than usual."""
        return max(self._open_timeout, self._hosts[host].options.get("connectTimeout") or 0.0)

    def _maker(self, name: str) -> ConnectorFactory:
        """What makes connectors of that name; one that has something to share between hosts is asked once a run."""
        with self._lock:
            if name not in self._makers:
                factory = self._connectors.load(name)
                self._makers[name] = factory.for_run() if isinstance(factory, SharesInRun) else factory
            return self._makers[name]

    def _open_one(self, host: str, deadline: Deadline, cancel: Cancel) -> None:
        graph_host = self._hosts[host]
        connector = self._maker(graph_host.connector)(graph_host, self._secret)
        if self._folder and isinstance(connector, StartsIn):
            connector.start_in(self._folder)
        if self._mark and isinstance(connector, Marks):
            connector.mark(self._mark, self._left.get(host, ()))
        remove = cancel.on_set(functools.partial(_stop, connector))
        try:
            if not cancel.is_set():
                connector.open(deadline)
            if cancel.is_set():
                raise CommandCancelled
        except BaseException as error:
            connector.close()
            if cancel.is_set() and isinstance(error, ConnectorError):
                raise CommandCancelled from error
            raise
        finally:
            remove()
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
        # Each waits until its own has gone; so that they do not wait one after the other, all are told to go first.
        for connector in connectors.values():
            if isinstance(connector, HangsUp):
                with contextlib.suppress(Exception):  # the closing says what is wrong
                    connector.hang_up()
        for host, connector in connectors.items():
            try:
                connector.close()
            except Exception as error:  # noqa: BLE001  whatever a third party's connector raises, the others are closed
                failed.append((host, error))
        return failed


def _stop(connector: Connector) -> None:
    # Whoever opens it closes it once more, and hears what is wrong with that.
    with contextlib.suppress(Exception):
        connector.close()

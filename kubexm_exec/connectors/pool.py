"""The connections of a run: one per host, opened on first use by one thread at a time, closed at the end."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from kubexm_exec.connectors.thirdparty import (
    CheckedConnector,
    Loads,
    blamed,
    is_ours,
    lacking,
    load_connector,
    wrong_methods,
)
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandCancelled, ConnectorError
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.plugins import RAISES, RegistryError, connector_registry


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
        """Mark what runs on hosts, and first end what carries a mark in ``left``; called before connecting."""
        self._mark, self._left = own, left

    def prepare(self, hosts: Iterable[str]) -> RegistryError | None:
        """Prepare the connectors of hosts that will be connected to soon; returns the error of a broken one."""
        broken = None
        for name in {self._hosts[host].connector for host in hosts}:
            # Other errors are failures of the steps that need it.
            try:
                self._maker(name)
            except RegistryError as error:
                broken = error
            except Exception:  # noqa: BLE001, S112  told when a step needs it
                continue
        return broken

    def expect(self, hosts: Iterable[str]) -> None:
        """Let factories get ready for the hosts that will be connected to first, all at once."""
        wanted: dict[str, list[GraphHost]] = {}
        for host in itertools.islice(hosts, self._most_opening):
            wanted.setdefault(self._hosts[host].connector, []).append(self._hosts[host])
        for name, of_it in wanted.items():
            with contextlib.suppress(*RAISES):
                maker = self._maker(name)
                if isinstance(maker, ExpectsHosts):
                    maker.expect(of_it)

    def get(self, host: str, deadline: Deadline, cancel: Cancel | None = None) -> Connector:
        """The open connector of a host; raises ConnectorError after the deadline, CommandCancelled after a cancel."""
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
        """The factory of connectors of that name; one that shares something between hosts is made once per run."""
        with self._lock:
            if name not in self._makers:
                factory = load_connector(self._connectors, name)
                with blamed(name, connector_registry()):
                    maker = factory.for_run() if isinstance(factory, SharesInRun) else factory
                if not callable(maker):
                    raise connector_registry().broken(name, f"returned {maker!r:.60} from for_run, not a factory")
                self._makers[name] = maker
            return self._makers[name]

    def _open_one(self, host: str, deadline: Deadline, cancel: Cancel) -> None:
        graph_host = self._hosts[host]
        name = graph_host.connector
        maker, registry = self._maker(name), connector_registry()
        with blamed(name, registry):
            connector = maker(graph_host, self._secret)
        ours = is_ours(type(connector))
        if wrong := lacking(connector) or ("" if ours else wrong_methods(type(connector))):
            raise registry.broken(name, f"made a {type(connector).__name__}, which {wrong}")
        with blamed(name, registry):
            if self._folder and isinstance(connector, StartsIn):
                connector.start_in(self._folder)
            if self._mark and isinstance(connector, Marks):
                connector.mark(self._mark, self._left.get(host, ()))
        remove = cancel.on_set(functools.partial(_stop, connector))
        try:
            if not cancel.is_set():
                with blamed(name, registry):
                    connector.open(deadline)
            if cancel.is_set():
                raise CommandCancelled
        except BaseException as error:
            _stop(connector)
            if cancel.is_set() and isinstance(error, ConnectorError):
                raise CommandCancelled from error
            raise
        finally:
            remove()
        with self._lock:
            if not self._closed:
                self._open[host] = connector if ours else CheckedConnector(name, registry, connector)
                return
        # An abandoned step came back after the end of the run: nobody would close what it opened.
        _stop(connector)
        raise ConnectorError("the run is over")

    def close(self) -> list[tuple[str, BaseException]]:
        """Close all connections; returns those that could not be closed."""
        with self._lock:
            self._closed = True
            connectors, self._open = self._open, {}
        failed: list[tuple[str, BaseException]] = []
        # Closing waits for each connection in turn, so all of them begin to close first.
        for connector in connectors.values():
            if isinstance(connector, HangsUp):
                with contextlib.suppress(*RAISES):  # the closing says what is wrong
                    connector.hang_up()
        for host, connector in connectors.items():
            try:
                connector.close()
            except RAISES as error:  # whatever a third party's connector raises, the others are closed
                failed.append((host, error))
        return failed


def _stop(connector: Connector) -> None:
    # It was never used, or the thread that opens it closes it once more and reports errors.
    with contextlib.suppress(*RAISES):
        connector.close()

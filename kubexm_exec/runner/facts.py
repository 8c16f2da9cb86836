"""Gathers the facts of hosts, in one round trip over POSIX sh."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.runner.factscript import FACT_NAMES, SCRIPT, parse, with_skew


def gather(connector: Connector, *, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
    """The facts of a host; raises ConnectorError if its shell does not answer."""
    command = Command(argv=("sh", "-c", SCRIPT))
    before = time.time()
    result = connector.run(command, deadline=deadline, cancel=cancel)
    if result.exit_code != 0:
        said = result.err.strip().splitlines()[-1:] or [f"exit code {result.exit_code}"]
        raise ConnectorError(f"facts could not be gathered: {said[0]}")
    return with_skew(parse(result.out), before, time.time())


class Facts:
    """The facts of all hosts of a run: gathered on first use, once per host."""

    def __init__(self, connect: Callable[[str, Deadline, Cancel], Connector]) -> None:
        self._connect = connect
        self._known: dict[str, Mapping[str, Any]] = {}
        self._turns: dict[str, Semaphore] = {}
        self._lock = threading.Lock()

    def of(self, host: str, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
        """The facts of a host; a failure is not cached, so that a retry asks again."""
        known = self._known.get(host)
        if known is not None:
            return known
        with self._lock:
            turn = self._turns.setdefault(host, Semaphore(1))
        if not turn.take(deadline, cancel):
            raise ConnectorError(f"facts of {host} are still being gathered by another step")
        try:
            known = self._known.get(host)
            if known is None:
                connector = self._connect(host, deadline, cancel)
                known = self._known[host] = gather(connector, deadline=deadline, cancel=cancel)
            return known
        finally:
            turn.give_back()

    def forget(self, host: str) -> None:
        """Gather the facts again next time: the host has changed."""
        self._known.pop(host, None)


__all__ = ["FACT_NAMES", "Facts", "gather", "parse"]

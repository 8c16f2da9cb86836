"""The pool: its limit on connections that are being opened, and how it closes all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kubexm_exec.connectors.base import ConnectorFactory
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.connectors.pool import ConnectorPool
from kubexm_exec.control import Deadline
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost


class One:
    """A registry that knows one connector."""

    def __init__(self, connector: Callable[..., Any]) -> None:
        self._connector = connector

    def load(self, name: str) -> Any:
        return self._connector

    def names(self) -> list[str]:
        return ["x"]


def hosts(count: int, **options: Any) -> dict[str, GraphHost]:
    return {f"h{n}": GraphHost(f"h{n}", connector="x", options=options) for n in range(count)}


def test_no_more_hosts_are_connected_to_at_once_than_the_limit_says() -> None:
    lock = threading.Lock()
    full = threading.Barrier(3)
    opening: list[int] = [0, 0]

    class Counting(LocalConnector):
        def open(self, deadline: Deadline) -> None:
            with lock:
                opening[0] += 1
                opening[1] = max(opening)
            # Three have to be here together before any can go on, and a fourth would be counted.
            full.wait(30)
            with lock:
                opening[0] -= 1

    pool = ConnectorPool(hosts(12), One(Counting), str, most_opening=3)
    with ThreadPoolExecutor(12) as workers:
        list(workers.map(lambda n: pool.get(f"h{n}", Deadline.after(60)), range(12)))
    assert opening[1] == 3


def test_a_host_that_waits_for_its_turn_in_vain_is_unreachable_and_takes_no_others_place() -> None:
    held, go = threading.Event(), threading.Event()

    class Slow(LocalConnector):
        def open(self, deadline: Deadline) -> None:
            held.set()
            assert go.wait(30)

    pool = ConnectorPool(hosts(2), One(Slow), str, most_opening=1)
    with ThreadPoolExecutor(1) as worker:
        first = worker.submit(pool.get, "h0", Deadline.after(60))
        assert held.wait(30)
        with pytest.raises(ConnectorError, match="no time left to connect to h1"):
            pool.get("h1", Deadline.after(0.05))
        go.set()
        assert first.result(30) is not None
    assert pool.get("h1", Deadline.after(60)) is not None


def test_a_host_may_have_more_time_to_connect_than_usual() -> None:
    left: list[float | None] = []

    class Asking(LocalConnector):
        def open(self, deadline: Deadline) -> None:
            left.append(deadline.left())

    ConnectorPool(hosts(1, connectTimeout=500.0), One(Asking), str).get("h0", Deadline())
    assert left[0] is not None
    assert left[0] > 400


def test_all_are_told_to_hang_up_before_any_is_waited_for() -> None:
    told: list[str] = []

    class Slow(LocalConnector):
        def hang_up(self) -> None:
            told.append("hang up")
            raise OSError("broken already")

        def close(self) -> None:
            told.append("close")

    pool = ConnectorPool(hosts(2), One(Slow), str)
    for name in ("h0", "h1"):
        pool.get(name, Deadline.after(60))
    assert pool.close() == []
    assert told == ["hang up", "hang up", "close", "close"]


def test_what_connectors_share_is_made_once_a_run_and_before_any_is_opened() -> None:
    made: list[object] = []

    class Sharing(LocalConnector):
        @classmethod
        def for_run(cls) -> ConnectorFactory:
            made.append(object())
            return cls

    pool = ConnectorPool(hosts(2), One(Sharing), str)
    pool.prepare(["h0", "h1"])
    assert len(made) == 1
    for host in ("h0", "h1"):
        pool.get(host, Deadline.after(5))
    pool.close()
    assert len(made) == 1


def test_a_factory_is_told_which_of_its_hosts_are_expected_and_no_more_than_may_be_opened_at_once() -> None:
    told: list[list[str]] = []

    class Expecting:
        def __call__(self, host: GraphHost, secrets: Callable[[str], str]) -> LocalConnector:
            return LocalConnector(host, secrets)

        def expect(self, hosts: Sequence[GraphHost]) -> None:
            told.append([host.name for host in hosts])
            raise OSError("no matter")

    pool = ConnectorPool(hosts(5), One(Expecting()), str, most_opening=3)
    pool.expect(["h0", "h1", "h2", "h3"])
    assert told == [["h0", "h1", "h2"]]
    pool.get("h4", Deadline.after(5))
    pool.close()


def test_a_connector_that_cannot_get_ready_fails_the_steps_that_need_it_and_nothing_else() -> None:
    class Broken(LocalConnector):
        @classmethod
        def for_run(cls) -> ConnectorFactory:
            raise ConnectorError("no gateway")

    pool = ConnectorPool(hosts(1), One(Broken), str)
    pool.prepare(["h0"])
    with pytest.raises(ConnectorError, match="no gateway"):
        pool.get("h0", Deadline.after(5))

"""Connections that others go through: hosts behind the same gateway share it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, Final, Protocol

from kubexm_exec.connectors.ssh.dialing import Dialled
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandCancelled, ConnectorError

MOST_BEHIND: Final = 50
"""Hosts behind one connection to a gateway; one thread does all the work of a connection."""


class Gateway(Protocol):
    """An open connection to a gateway."""

    @property
    def alive(self) -> bool:
        """Whether it is up, as far as anybody knows."""

    def close(self) -> None:
        """Close it."""


class _Place:
    """All that is known of one gateway."""

    def __init__(self) -> None:
        self.turn = Semaphore(1)
        self.users: dict[Gateway, int] = {}
        self.failures = 0
        self.error: Exception | None = None


class Gateways:
    """The open gateways of a run; each is closed when the last host behind it has gone."""

    def __init__(self, most_behind: int = MOST_BEHIND) -> None:
        self._most = most_behind
        self._lock = threading.Lock()
        self._places: dict[Hashable, _Place] = {}
        self.dialled = Dialled()
        """Connections to hosts that are reached without a gateway."""

    def take(self, key: Hashable, opener: Callable[[], Gateway], deadline: Deadline, stop: Cancel) -> Gateway:
        """An open gateway with room for one more, opened by one opener at a time.

        Whoever waited for somebody else's opening in vain is told the same reason, and does not try again at once.
        """
        with self._lock:
            place = self._places.setdefault(key, _Place())
            failures = place.failures
        if not place.turn.take(deadline, stop):
            raise TimeoutError("timed out")
        try:
            with self._lock:
                for gateway, users in place.users.items():
                    if users < self._most and gateway.alive:
                        place.users[gateway] += 1
                        return gateway
                if place.failures != failures and place.error is not None:
                    raise place.error
            try:
                gateway = opener()
            except Exception as error:
                # What is refused for good (a key that changed) says so itself, with the host's own name.
                if not stop.is_set() and not isinstance(error, ConnectorError):
                    with self._lock:
                        place.failures += 1
                        place.error = error
                raise
            with self._lock:
                place.users[gateway] = 1
            return gateway
        finally:
            place.turn.give_back()

    def leave(self, key: Hashable, gateway: Gateway) -> None:
        """Go; the last one closes it."""
        with self._lock:
            users = self._places[key].users
            users[gateway] -= 1
            if users[gateway]:
                return
            del users[gateway]
        gateway.close()


def tunnel(transport: Any, address: tuple[str, int], deadline: Deadline, stop: Cancel) -> Any:
    """A channel through a gateway to an address behind it; raises what paramiko raises."""
    answers: SimpleQueue[Any] = SimpleQueue()
    # In a thread of its own: paramiko waits in a way that nothing but the gateway's answer or its end would end.
    given_up = threading.Event()

    def ask() -> None:
        try:
            channel = transport.open_channel("direct-tcpip", address, ("", 0), timeout=deadline.left())
        except Exception as error:  # noqa: BLE001  it is raised where it is waited for
            answers.put(error)
            return
        answers.put(channel)
        if given_up.is_set():
            channel.close()

    threading.Thread(target=ask, name="kubexm-tunnel", daemon=True).start()
    remove = stop.on_set(lambda: answers.put(None))
    try:
        answer = answers.get()
    finally:
        remove()
    if answer is None:
        given_up.set()
        while not answers.empty():
            if (late := answers.get()) is not None and not isinstance(late, Exception):
                late.close()
        raise CommandCancelled
    if isinstance(answer, Exception):
        raise answer
    return answer

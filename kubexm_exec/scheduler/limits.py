"""Applies the limits: which actions are offered, and which wait for capacity."""

from __future__ import annotations

from heapq import heappop, heappush

SHIFT = 32
"""A key is (place in graph order << SHIFT) | index of the action: it sorts by the first and finds it by the second."""
MASK = (1 << SHIFT) - 1


class Pool:
    """One limited thing (a host, a lock, a node): how much of it there is, is taken, and who waits for it."""

    __slots__ = ("queue", "size", "used")

    def __init__(self, size: int, what: str) -> None:
        if size < 1:
            raise ValueError(f"the limit of {what} is {size}: nothing could ever run; it must be at least 1")
        self.size = size
        self.used = 0
        self.queue: list[int] = []


class Limits:
    """Offers waiting actions in graph order, each as soon as all its pools and the forks have room.

    An action that waits is in one place only: in ``fresh`` (to be tried), or parked at the first pool it found full.
    Whenever a pool gets room, its first waiter is tried again, and if that one does not take the room, the next one.
    So nobody is forgotten, and a call costs what has changed, not how many wait.

    An action that was offered holds its place in every pool until it is started and given back: all that is offered may
    be started together. Those later in graph order may overtake only what does not fit at that moment.
    """

    __slots__ = ("_forks", "_probes", "fresh", "needs", "offered", "pools", "taken")

    def __init__(self, forks: int) -> None:
        self._forks = Pool(forks, "forks").size
        self._probes: dict[int, Pool] = {}
        self.fresh: list[int] = []
        self.offered: set[int] = set()
        self.taken = 0
        """Forks held: by what runs and by what is offered."""
        self.needs: list[tuple[Pool, ...]] = []
        """The pools of each action, by its index."""
        self.pools: list[Pool] = []

    def pool(self, size: int, what: str) -> Pool:
        """A new pool; raises ValueError if nothing could ever be taken from it."""
        pool = Pool(size, what)
        self.pools.append(pool)
        return pool

    def want(self, key: int) -> None:
        """Queue an action."""
        heappush(self.fresh, key)

    def offer(self) -> list[int]:
        """The keys of all that may be started now, in graph order."""
        fresh, needs, probes = self.fresh, self.needs, self._probes
        while fresh and self.taken < self._forks:
            key = heappop(fresh)
            wanted = needs[key & MASK]
            for pool in wanted:
                if pool.used >= pool.size:
                    heappush(pool.queue, key)
                    break
            else:
                for pool in wanted:
                    pool.used += 1
                self.taken += 1
                self.offered.add(key)
            if probes:
                probed = probes.pop(key, None)
                if probed is not None and probed.queue and probed.used < probed.size:
                    self._probe(probed)
        return sorted(self.offered)

    def give_back(self, key: int) -> None:
        """Release the capacity of an action."""
        self.taken -= 1
        for pool in self.needs[key & MASK]:
            pool.used -= 1
            if pool.queue:
                self._probe(pool)

    def withdraw(self, key: int) -> None:
        """Take the offer back, if there was one."""
        if key in self.offered:
            self.offered.remove(key)
            self.give_back(key)

    def restart(self, waiting: list[int]) -> None:
        """Drop all queued actions except these."""
        for pool in self.pools:
            pool.queue.clear()
        self._probes.clear()
        self.fresh[:] = sorted(waiting)

    def _probe(self, pool: Pool) -> None:
        key = heappop(pool.queue)
        self._probes[key] = pool
        heappush(self.fresh, key)

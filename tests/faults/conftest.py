"""Two full hosts that the tests here share: each test finds them whole, whatever the one before did to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.machines import Machine, machines, missing


@pytest.fixture(scope="session")
def _pair() -> Iterator[tuple[Machine, Machine]]:
    if why := missing():
        pytest.skip(why)
    with machines(2) as made:
        yield made[0], made[1]


@pytest.fixture
def pair(_pair: tuple[Machine, Machine]) -> Iterator[tuple[Machine, Machine]]:
    """They are up, on the network, and nobody is logged in."""
    yield _pair
    for each in _pair:
        each.heal()
        if not each.is_on():
            each.start()
            each.wait()
        # Everything that was started over SSH belongs to that service.
        each.sh("systemctl kill --signal=KILL ssh.service; rm -rf /srv/*")
        each.wait()

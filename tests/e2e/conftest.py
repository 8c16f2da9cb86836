"""Places for runs that are written down, cleaned up after a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.site import Site, Sites
from tests.lab.postgres import MISSING, Postgres, postgres


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    """Makes places for runs; what still runs in them at the end of the test is ended."""
    made: list[Site] = []

    def make(body: str, *, journal: str = "", **env: str) -> Site:
        made.append(Site(tmp_path / f"site{len(made) + 1}", body, journal=journal, **env))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A real PostgreSQL server."""
    if MISSING:
        pytest.skip(MISSING)
    with postgres() as running:
        yield running

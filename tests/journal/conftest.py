"""A journal in each kind of database: the same tests run on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.journal.store import Store
from tests.lab.postgres import MISSING, Postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    if MISSING:
        pytest.skip(MISSING)
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state" / "journal.db")
    running: Postgres = request.getfixturevalue("server")
    return running.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url)
    yield opened
    opened.close()

"""A web server, and a cache that is nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resources.server import Web, serve


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache is left alone."""
    home = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("KUBEXM_BUNDLE", raising=False)
    return home


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as web:
        yield web

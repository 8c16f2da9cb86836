"""One browser for all browser tests of a process; tests that need it skip where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.draw.browser import CHROMIUM, Browser, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser: {CHROMIUM} does not exist")
    with chromium() as found:
        yield found

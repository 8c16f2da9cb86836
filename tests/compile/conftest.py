"""What the tests of the compiler share."""

from __future__ import annotations

import pathlib

import pytest

from tests.compile.kit import Spec


@pytest.fixture
def spec(tmp_path: pathlib.Path) -> Spec:
    """A spec to be written, in a folder of its own."""
    return Spec(tmp_path)

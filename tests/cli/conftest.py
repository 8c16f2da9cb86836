"""What the tests of the commands share."""

from __future__ import annotations

import pathlib

import pytest

from tests.cli.kit import Folder


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return Folder(tmp_path)

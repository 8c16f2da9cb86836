"""A step looks once, in precheck: run does not ask the host the same again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kubexm_exec import testing
from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.model.command import CommandResult
from kubexm_exec.testing import StepTest
from tests.steps.test_cases import cases
from tests.steps.test_cases import test_step_does_what_its_case_says as check_case


class Counted:
    """A registry with the local connector, which writes down what it is asked for."""

    def __init__(self) -> None:
        asked: list[Any] = []
        self.asked = asked

        class Counting(LocalConnector):
            def run(self, command: Command, **how: Any) -> CommandResult:
                asked.append((command.argv, command.shell, command.stdin))
                return super().run(command, **how)

            def put(self, source: bytes | BinaryIO, path: str, **how: Any) -> None:
                asked.append(("put", path))
                super().put(source, path, **how)

            def get(self, path: str, **how: Any) -> bytes:
                asked.append(("get", path))
                return super().get(path, **how)

        self._connector = Counting

    def load(self, name: str) -> Callable[..., Connector]:
        return self._connector

    def names(self) -> list[str]:
        return ["local"]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(testing, "connector_registry", lambda: counted)
    return counted


@pytest.mark.parametrize("path", cases())
def test_run_does_not_ask_what_precheck_has_asked(
    path: Path, counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StepTest.run

    def once(self: StepTest) -> Any:
        counted.asked.clear()
        try:
            return run(self)
        finally:
            again = [asked for number, asked in enumerate(counted.asked) if asked in counted.asked[:number]]
            assert not again

    monkeypatch.setattr(StepTest, "run", once)
    check_case(path, tmp_path)

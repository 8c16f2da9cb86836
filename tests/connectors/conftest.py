"""A host with users who may become one another, for all tests of connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.ssh import SshConnector
from tests.lab.people import PASSWORD, PeopledHost, missing, peopled_host


@pytest.fixture(scope="module")
def peopled() -> Iterator[PeopledHost]:
    if missing():
        pytest.skip(missing())
    with peopled_host() as host:
        yield host


@pytest.fixture
def as_user(peopled: PeopledHost) -> Iterator[Callable[..., SshConnector]]:
    with ExitStack() as stack:

        def make(user: str, become: Any) -> SshConnector:
            made = SshConnector(replace(peopled.host(become=become), user=user), lambda _: PASSWORD)
            stack.callback(made.close)
            return made

        yield make

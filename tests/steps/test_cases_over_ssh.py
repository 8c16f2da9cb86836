"""Every case in cases/ once more, on a host that is reached by SSH: a step cannot tell the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubexm_exec import testing
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.model.graph import GraphHost
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host
from tests.steps.test_cases import cases
from tests.steps.test_cases import test_step_does_what_its_case_says as check_case

pytestmark = [pytest.mark.skipif(SSHD is None, reason=MISSING), pytest.mark.xdist_group("steps-over-ssh")]


class _Shared(SshConnector):
    """One connection for all cases, and a count of what it was used for."""

    def __init__(self, host: GraphHost) -> None:
        super().__init__(host, str)
        self.used = 0

    def hang_up(self) -> None:
        """A case is over, the connection is not."""

    def close(self) -> None:
        """The same."""
        self.used += 1

    def close_for_good(self) -> None:
        super().close()


class _OnlySsh:
    """A registry that knows one connector, whatever it is asked for."""

    def __init__(self, connector: SshConnector) -> None:
        self._connector = connector

    def load(self, name: str) -> Callable[..., SshConnector]:
        return lambda host, secrets: self._connector

    def names(self) -> list[str]:
        return ["local"]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.fixture(scope="module")
def connector(box: SshHost) -> Iterator[_Shared]:
    connector = _Shared(box.host())
    yield connector
    connector.close_for_good()
    assert connector.used, "no case has used the connection"


@pytest.mark.parametrize("path", cases())
def test_a_step_does_the_same_over_ssh(
    path: Path, tmp_path: Path, connector: _Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "connector_registry", lambda: _OnlySsh(connector))
    check_case(path, tmp_path)

"""The SSH connector keeps the contract of all connectors, on a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Connector
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Deadline
from tests.connectors.contract import ConnectorContract
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def shared(box: SshHost) -> Iterator[Connector]:
    connector = SshConnector(box.host(), lambda reference: reference)
    yield connector
    connector.close()


class TestSshConnector(ConnectorContract):
    @pytest.fixture
    def connector(self, shared: Connector) -> Connector:
        # One connection for all of these: a run has no more either.
        shared.open(Deadline.after(30))
        return shared

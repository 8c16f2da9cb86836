"""A third party's connector keeps the same contract as our own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Connector
from kubexm_exec.control import Deadline
from kubexm_exec.model.graph import GraphHost
from tests.connectors.contract import ConnectorContract

SOURCE = Path(__file__).parents[1] / "thirdparty/acme-kubexm/src/acme_kubexm/connector.py"


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("acme_connector", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestThirdPartysConnector(ConnectorContract):
    @pytest.fixture
    def connector(self, tmp_path: Path) -> Iterator[Connector]:
        host = GraphHost("here", connector="acme-accounted", address=str(tmp_path / "account"))
        connector: Connector = _module().AccountedConnector(host, str)
        connector.open(Deadline.after(5))
        yield connector
        connector.close()
        assert (tmp_path / "account").exists()

"""Loading fabric and paramiko: without what only invoke's tests and files need, and with it for those who ask."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from kubexm_exec.connectors.ssh.fabric import load_libraries


def _loaded(more: str = "") -> list[str]:
    program = (
        "import sys\n"
        "from kubexm_exec.connectors.ssh.fabric import load_libraries\n"
        f"load_libraries()\n{more}\n"
        "wanted = {'fabric', 'paramiko', 'unittest.mock', 'asyncio', 'invoke.vendor.yaml'}\n"
        "print(*sorted(wanted & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_nobody_needs_is_not_loaded() -> None:
    assert _loaded() == ["fabric", "paramiko"]


def test_who_imports_mock_later_gets_the_real_one() -> None:
    more = "from unittest.mock import MagicMock, patch\nassert MagicMock(return_value=3)() == 3"
    assert "unittest.mock" in _loaded(more)


def test_a_mock_context_of_invoke_still_works() -> None:
    more = (
        "from invoke import MockContext, Result\n"
        "context = MockContext(run={'uptime': Result('up')})\n"
        "assert context.run('uptime').stdout == 'up'\n"
        "context.run.assert_called_once_with('uptime')\n"
    )
    assert "unittest.mock" in _loaded(more)


def test_a_file_of_invoke_in_yaml_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "invoke.yaml").write_text("run:\n  echo: true\n")
    more = (
        "from invoke import Config\n"
        f"config = Config(project_location={str(tmp_path)!r})\n"
        "config.load_project()\n"
        "assert config.run.echo is True\n"
    )
    assert "invoke.vendor.yaml" in _loaded(more)


def test_a_step_that_wants_mock_while_they_are_loaded_gets_it() -> None:
    more = (
        "from kubexm_exec.connectors.ssh.fabric import _Later\n"
        "sys.modules['unittest.mock'] = _Later('unittest.mock')\n"
        "from unittest.mock import sentinel\n"
        "assert sentinel.here is sentinel.here\n"
        "import unittest.mock\n"
        "assert unittest.mock.sentinel is sentinel\n"
    )
    assert "unittest.mock" in _loaded(more)


def test_a_program_that_has_loaded_mock_keeps_it() -> None:
    import unittest.mock

    before = sys.modules["unittest.mock"]
    threads = [threading.Thread(target=load_libraries) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sys.modules["unittest.mock"] is before is unittest.mock

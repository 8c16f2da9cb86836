"""How hypothesis searches (HYPOTHESIS_PROFILE: quick by default, random or thorough), and full hosts for tests."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kubexm_exec.logs import NAME
from tests.lab import machines as lab

# No deadlines and no complaints about slow examples: how busy the machine is must not decide whether a test passes.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# The same examples every time, so that two runs of one commit agree; new ones are searched for by the other profiles.
settings.register_profile("quick", _untimed, max_examples=50, derandomize=True)
settings.register_profile("random", _untimed, max_examples=50)
settings.register_profile("thorough", _untimed, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session", autouse=True)
def _journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs are written down in a journal of the tests' own, never in that of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("KUBEXM_STATE", raising=False)
        patch.delenv("KUBEXM_JOURNAL", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _hangup() -> None:
    """A closed terminal ends what the tests start, also if the tests themselves were started with nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """A program that is run in the tests' own process says where its log lines go: that ends with the test."""
    logger = logging.getLogger(NAME)
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a third party's package acme-plain: one module with a ``Plain``, the plug-in ``plain`` of a group."""

    def install(group: str, code: str) -> None:
        folder = tmp_path / "site"
        package = folder / "acme_plain-1.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plain\nVersion: 1\n")
        (package / "entry_points.txt").write_text(f"[{group}]\nplain = acme_plain:Plain\n")
        (folder / "acme_plain.py").write_text(code)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "acme_plain", raising=False)

    return install


@pytest.fixture(scope="session")
def machine() -> Iterator[lab.Machine]:
    """One full host that all tests of this process share: leave it as you found it."""
    if why := lab.missing():
        pytest.skip(why)
    with lab.machines(1) as made:
        yield made[0]


@pytest.fixture
def machines() -> Iterator[Callable[[int], list[lab.Machine]]]:
    """Makes full hosts for one test alone."""
    if why := lab.missing():
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        yield lambda count: stack.enter_context(lab.machines(count))

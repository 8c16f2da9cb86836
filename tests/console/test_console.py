from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import TextIO

import pytest

from kubexm_exec.console import can_be_live, log_stream, make_console, wants_color
from tests.console.scenario import etcd_graph

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A terminal that nobody looks at, in an environment that says nothing."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    master, slave = pty.openpty()
    with open(slave, "w") as stream:  # noqa: PTH123 - a descriptor
        yield stream
    os.close(master)


def made(kind: str, stream: TextIO) -> str:
    console = make_console(kind, etcd_graph(), stream, color=None, verbose=0)
    console.close(None)
    return type(console).__name__


def test_auto_is_live_on_a_terminal(terminal: TextIO) -> None:
    assert made("auto", terminal) == "LiveConsole"


def test_auto_is_plain_elsewhere() -> None:
    assert made("auto", io.StringIO()) == "PlainConsole"


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("TERM", ""), ("CI", "true"), ("CI", "1")])
def test_auto_is_plain_where_a_tree_does_not_belong(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert made("auto", terminal) == "PlainConsole"


def test_ci_that_is_off_is_no_ci(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "false")
    assert made("auto", terminal) == "LiveConsole"


def test_live_is_plain_where_it_cannot_be() -> None:
    assert made("live", io.StringIO()) == "PlainConsole"


def test_other_kinds_are_what_they_say(terminal: TextIO) -> None:
    assert made("plain", terminal) == made("quiet", terminal) == "PlainConsole"
    assert made("json", terminal) == "JsonConsole"
    with pytest.raises(ValueError, match='there is no console "fancy"; there are auto, live'):
        made("fancy", terminal)


@pytest.mark.parametrize(
    ("environ", "on_terminal", "elsewhere"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0", "TERM": "xterm"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colour_is_as_the_environment_says(
    terminal: TextIO, environ: dict[str, str], on_terminal: bool, elsewhere: bool
) -> None:
    assert wants_color(terminal, environ) is on_terminal
    assert wants_color(io.StringIO(), environ) is elsewhere


def test_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not can_be_live(stream)


def test_log_lines_go_above_a_tree_and_else_to_stderr(terminal: TextIO) -> None:
    live = make_console("live", etcd_graph(), terminal, color=None, verbose=0)
    plain = make_console("plain", etcd_graph(), terminal, color=None, verbose=0)
    elsewhere = io.StringIO()
    assert log_stream(live, terminal) is live.output
    assert log_stream(live, elsewhere) is elsewhere
    assert log_stream(plain, terminal) is terminal
    live.close(None)


@pytest.mark.parametrize("kind", ["plain", "json", "quiet"])
def test_plain_consoles_do_without_drawing_libraries(kind: str) -> None:
    code = f"""if True:
        import io, sys
        from kubexm_exec.console import make_console
        from kubexm_exec.model.graph import ExecutionGraph
        make_console({kind!r}, ExecutionGraph("x", {{}}, {{}}, {{}}), io.StringIO(), color=None, verbose=0)
        sys.exit("rich.live" in sys.modules or "structlog" in sys.modules)
    """
    assert run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_modules_for_the_command_line_import_nothing_heavy() -> None:
    code = """if True:
        import sys
        import kubexm_exec.console, kubexm_exec.logs
        sys.exit(bool({"rich", "structlog", "click"} & set(sys.modules)))
    """
    assert run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0

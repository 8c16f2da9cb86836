"""The debugger's shell: commands on the host of the current action, through its own connection."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.control import Deadline
from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.context import connector_of
from kubexm_exec.engine.runtime import Runtime


def shell(runtime: Runtime, attempt: Attempt, line: str, say: Callable[[str], None]) -> None:
    """Run one command; without one, a shell on a terminal of this machine, or one command after another."""
    host = attempt.place
    connector = connector_of(runtime, attempt, Deadline())
    if line:
        _run(runtime, connector, line, say)
        return
    lines = runtime.lines
    if lines is None:
        say("  nobody can type here; give a command: shell COMMAND")
        return
    if lines.is_terminal and runtime.graph.hosts[host].connector == "local":
        program = os.environ.get("SHELL") or "/bin/sh"
        say(f"  {program} on {host}; exit comes back to the debugger")
        subprocess.run([program], check=False)
        return
    say("  one command a line, each in a shell of its own; exit comes back to the debugger")
    while True:
        runtime.options.output.write(f"{host}$ ")
        runtime.options.output.flush()
        typed = lines.read(Deadline(), runtime.cancel)
        if typed is None or typed.strip() in ("exit", "quit"):
            say("")
            return
        if not lines.is_terminal:
            say(typed)
        if typed.strip():
            _run(runtime, connector, typed, say)


def _run(runtime: Runtime, connector: Connector, line: str, say: Callable[[str], None]) -> None:
    result = connector.run(Command(shell=line), deadline=Deadline(), cancel=runtime.cancel)
    for text in (result.out, result.err):
        if text:
            say(text.removesuffix("\n"))
    if result.exit_code:
        say(f"  exit code {result.exit_code}")

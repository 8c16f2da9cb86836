"""What the whole program does with hosts that are silent: as a person at the terminal sees it."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.dialing import dial
from kubexm_exec.control import Cancel, Deadline
from tests.connectors.test_ssh_faults import LATE, listener
from tests.e2e.program import environment, start, write_spec
from tests.lab.sshd import MISSING, SSHD

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)
STEP = """
modules:
  - name: m
    tasks:
      - {name: t, steps: [{name: a, type: command, with: {argv: [date]}}]}
"""


def silent_inventory(port: int) -> dict[str, object]:
    defaults = {"user": "x", "hostKeys": "off", "port": port, "connectTimeout": LATE}
    return {"defaults": defaults, "hosts": [{"name": "h[1:120]", "address": "127.0.0.1"}]}


@pytest.mark.parametrize("program", ["kubexm-run", "kubexm exec", "kubexm facts"])
def test_an_interrupt_ends_the_program_while_it_connects_to_hosts_that_never_answer(
    tmp_path: Path, program: str
) -> None:
    with listener() as (port, called):
        inventory = silent_inventory(port)
        if program == "kubexm-run":
            write_spec(tmp_path, f"inventory: {json.dumps(inventory)}\n{STEP}")
            arguments = ["spec.yaml", "--forks", "120"]
        else:
            document = {"apiVersion": "kubexm.io/v1", "kind": "Inventory", "metadata": {"name": "i"}, **inventory}
            (tmp_path / "hosts.yaml").write_text(json.dumps(document))
            arguments = [program.split()[1], "-i", "hosts.yaml", "all"]
            arguments += ["--", "date"] if program == "kubexm exec" else []
        process = start(program.split()[0], *arguments, cwd=tmp_path, env=environment(HOME=str(tmp_path)))
        assert called.wait(LATE)
        process.send_signal(signal.SIGINT)
        # The connections themselves would be waited for five minutes.
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert "left behind" not in out + err


def test_a_stop_just_before_a_connection_is_begun_ends_it_too() -> None:
    class Late(Cancel):
        """Set right after somebody has looked."""

        def is_set(self) -> bool:
            was = super().is_set()
            self.set()
            return was

    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as callers:
        port = full.getsockname()[1]
        # Nobody takes these, so that the next one gets no answer.
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        begun = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            dial("127.0.0.1", port, Deadline.after(LATE), Late())
        assert time.monotonic() - begun < LATE / 2

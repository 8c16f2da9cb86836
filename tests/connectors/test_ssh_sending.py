"""Large input over real sshds: it arrives whole whatever keys, ciphers, readers and neighbours there are."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandCancelled
from tests.lab.sshd import MISSING, SSHD, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)

SIZE = 12 << 20


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


@pytest.fixture(
    params=[
        "RekeyLimit 1M",  # new keys a dozen times on the way
        "Ciphers aes128-gcm@openssh.com",
        "Ciphers aes256-gcm@openssh.com",
        "Ciphers aes128-ctr\nMACs hmac-sha2-256-etm@openssh.com",
        "Ciphers aes256-ctr\nMACs hmac-sha2-512",
    ]
)
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SshConnector]:
    with ssh_host(tmp_path / "box", settings=tuple(request.param.split("\n"))) as box:
        connector = SshConnector(box.host(), lambda reference: reference)
        yield connector
        connector.close()


def test_input_arrives_whole(connector: SshConnector) -> None:
    data = os.urandom(SIZE)
    done = connector.run(
        Command(argv=("sha256sum",), stdin=io.BytesIO(data)), deadline=Deadline.after(60), cancel=Cancel()
    )
    assert done.stdout.decode().split()[0] == hashlib.sha256(data).hexdigest()


def test_several_at_once_arrive_whole_with_output_on_the_way(connector: SshConnector) -> None:
    """Several senders share one connection, and what comes back has to be read meanwhile."""
    sent = [os.urandom(SIZE // 4) for _ in range(3)]
    came: dict[int, bytes] = {}

    def echo(number: int) -> None:
        command = Command(argv=("cat",), stdin=io.BytesIO(sent[number]), max_output=SIZE)
        came[number] = connector.run(command, deadline=Deadline.after(60), cancel=Cancel()).stdout

    threads = [threading.Thread(target=echo, args=(number,)) for number in range(len(sent))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [hashlib.sha256(came[number]).digest() for number in range(3)] == [
        hashlib.sha256(data).digest() for data in sent
    ]


def test_a_cancel_ends_a_send_to_somebody_who_takes_nothing(tmp_path: Path) -> None:
    with ssh_host(tmp_path / "box") as box:
        connector = SshConnector(box.host(), lambda reference: reference)
        cancel = Cancel()
        begun = threading.Event()

        class Endless(io.RawIOBase):
            def read(self, size: int = -1, /) -> bytes:
                begun.set()
                return bytes(size)

        def give_up() -> None:
            begun.wait(60)
            cancel.set()

        stop = threading.Thread(target=give_up)
        stop.start()
        with pytest.raises(CommandCancelled):
            connector.run(Command(argv=("sleep", "300"), stdin=Endless()), deadline=Deadline.after(60), cancel=cancel)
        stop.join()
        connector.close()

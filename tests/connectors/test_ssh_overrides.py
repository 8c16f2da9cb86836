"""What is overridden of paramiko is still there, and takes what it took: an upgrade that breaks it shows here."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_REQUEST
from paramiko.packet import Packetizer

from kubexm_exec.connectors.ssh import transport
from kubexm_exec.connectors.ssh.link import make_connection

CHANGED = f"paramiko {version('paramiko')} is not what kubexm_exec/connectors/ssh/transport.py was written for"
OVERRIDDEN = {
    (paramiko.Transport, "is_active"): ["self"],
    (paramiko.Transport, "_send_message"): ["self", "data"],
    (paramiko.Transport, "_send_user_message"): ["self", "data"],
    (paramiko.Transport, "_parse_debug"): ["self", "m"],
    (paramiko.Transport, "_parse_request_success"): ["self", "m"],
    (paramiko.Transport, "_parse_request_failure"): ["self", "m"],
    (Packetizer, "_build_packet"): ["self", "payload"],
    (Packetizer, "start_handshake"): ["self", "timeout"],
    (Packetizer, "handshake_timed_out"): ["self"],
    (Packetizer, "complete_handshake"): ["self"],
    (paramiko.SSHConfig, "lookup"): ["self", "hostname"],
}
CALLED = {
    (paramiko.Channel, "_wait_for_send_window"): ["self", "size"],
    (Packetizer, "set_keepalive"): ["self", "interval", "callback"],
}
OURS = (transport.HostTransport, transport.HostPacketizer, transport.RememberingConfig)


@pytest.mark.parametrize(("of", "parameters"), [*OVERRIDDEN.items(), *CALLED.items()], ids=str)
def test_it_takes_what_it_took(of: tuple[type, str], parameters: list[str]) -> None:
    kind, name = of
    method = getattr(kind, name, None)
    assert method is not None, f"{CHANGED}: {kind.__name__}.{name} is gone"
    assert list(inspect.signature(method).parameters) == parameters, f"{CHANGED}: {kind.__name__}.{name}"


def test_nothing_else_is_overridden_not_even_by_chance() -> None:
    known = {name for _, name in OVERRIDDEN} | {"_channel_handler_table", "set_outbound_cipher"}
    for kind in OURS:
        (base,) = kind.__bases__
        both = {name for name in vars(kind) if hasattr(base, name) and not name.startswith("__")}
        assert both <= known, f"{CHANGED}: {base.__name__} has {sorted(both - known)} too"


def test_requests_of_channels_are_handled_by_a_table_of_the_class() -> None:
    table: dict[int, Any] = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined]
    assert MSG_CHANNEL_REQUEST in table, CHANGED


@pytest.mark.parametrize("name", ["clear_to_send", "clear_to_send_lock", "packetizer", "sock", "logger"])
def test_a_transport_has_what_is_used_of_it(name: str) -> None:
    assert f"self.{name} = " in inspect.getsource(paramiko.Transport.__init__), f"{CHANGED}: no {name}"


def test_private_names_of_paramiko_are_used_in_one_file_only() -> None:
    folder = Path(transport.__file__).parent
    private = {name for _, name in (*OVERRIDDEN, *CALLED) if name.startswith("_")}
    for path in sorted(folder.glob("*.py")):
        used = {each.attr for each in ast.walk(ast.parse(path.read_bytes())) if isinstance(each, ast.Attribute)}
        assert path.name == "transport.py" or not used & private, path.name


def test_fabric_is_imported_as_it_is() -> None:
    for path in Path(transport.__file__).parent.glob("*.py"):
        assert "sys.modules" not in path.read_text(), path.name
    taken = inspect.signature(paramiko.SSHClient.connect).parameters
    assert {"sock", "transport_factory", "auth_timeout", "channel_timeout"} <= set(taken), CHANGED
    connection = make_connection("box", paramiko.SSHConfig())
    assert type(connection).__module__ == "fabric.connection"

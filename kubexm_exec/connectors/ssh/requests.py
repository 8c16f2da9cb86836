"""Requests of a channel that are sent without waiting for their answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kubexm_exec.connectors.ssh.errors import NotBegun
from kubexm_exec.model.errors import ConnectorError

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_COLUMNS: Final = 200
_LINES: Final = 50
# Numbers of RFC 4254: ECHO, OPOST, ONLCR off; raw: ISTRIP, INLCR, IGNCR, ICRNL, IXON, IXOFF, ISIG, ICANON, IEXTEN too.
_QUIET: Final = (53, 70, 72)
_RAW: Final = (33, 34, 35, 36, 38, 40, 50, 51, 59)


def request_exec(channel: paramiko.Channel, line: bytes) -> None:
    """Let the host's login shell run a line.

    Its answer is not waited for: that would cost a round trip, and for ever if the host hangs. A refusal closes the
    channel, and whoever reads from it sees that.
    """
    _send(channel, "exec", line)


def request_pty(channel: paramiko.Channel, *, raw: bool) -> None:
    """A terminal that changes nothing of what is written to it, and if it is raw nothing of what is typed either."""
    modes = b"".join(struct.pack(">BI", number, 0) for number in (*_QUIET, *(_RAW if raw else ()))) + b"\0"
    _send(channel, "pty-req", b"dumb", _COLUMNS, _LINES, 0, 0, modes)


def _send(channel: paramiko.Channel, kind: str, *arguments: bytes | int) -> None:
    import paramiko

    transport: HostTransport = channel.get_transport()  # type: ignore[assignment]
    try:
        transport.send_request(channel, kind, *arguments)
    except OSError as error:
        raise NotBegun(f"the host starts no shell: {error}") from error
    except paramiko.SSHException as error:
        raise ConnectorError(f"the host starts no shell: {error}") from error

"""The control node as other users than whoever runs the program: the SSH connector, with shells of this machine."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from kubexm_exec.connectors.local.channel import LocalChannel
from kubexm_exec.connectors.ssh.connector import Connection, SshConnector
from kubexm_exec.connectors.ssh.link import MOST_CHANNELS, Link
from kubexm_exec.connectors.ssh.options import Become, SshOptions, read_become
from kubexm_exec.control import Cancel, Deadline, Semaphore, raise_if_over
from kubexm_exec.model.errors import CommandTimedOut
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.safepaths import user_name

if TYPE_CHECKING:
    import paramiko

_OURS: Final = ("TMPDIR", "XDG_RUNTIME_DIR")
"""Variables with folders that another user may not enter."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Not ours: root must not run programs out of the folders of whoever becomes root."""


def other_users(
    host: GraphHost, secrets: Callable[[str], str], folder: str, environment: Mapping[str, str]
) -> SshConnector:
    """A connector for this machine, whose ``as_user`` becomes others; its commands start in a folder."""
    env = {name: value for name, value in environment.items() if name not in _OURS} | {"PATH": _PATH}
    return SshConnector(host, secrets, connection=_Here(host, secrets, LocalLink(folder, env)))


class LocalLink(Link):
    """Hands out shells of this machine, at most so many at once."""

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self.user = user_name(os.geteuid())
        self.make_room = None
        self._slots = Semaphore(MOST_CHANNELS)
        self._folder = folder
        self._env = env
        self._channels: weakref.WeakSet[LocalChannel] = weakref.WeakSet()

    @property
    def alive(self) -> bool:
        """Always: there is no connection that could drop."""
        return True

    def channel(self, deadline: Deadline, cancel: Cancel, *, counted: bool = True) -> paramiko.Channel:
        """A new one; waits for its turn."""
        if counted and not self._slots.take(deadline, cancel):
            raise CommandTimedOut
        try:
            raise_if_over(deadline, cancel)
            made = LocalChannel(self._folder, self._env)
            self._channels.add(made)
        except BaseException:
            if counted:
                self.release()
            raise
        return cast("paramiko.Channel", made)

    def hang_up(self) -> None:
        """Nobody waits for anything here."""

    def close(self) -> None:
        """Close all shells."""
        for channel in list(self._channels):
            channel.close()


class _Here(Connection):
    """The connection to this machine, which is always there."""

    def __init__(self, host: GraphHost, secrets: Callable[[str], str], link: LocalLink) -> None:
        becoming = functools.cache(lambda: _becoming(host.options.get("become"), host.name, secrets))
        self._options = SshOptions(host.name, host.address or host.name, becoming=becoming)
        self._link = link

    def reopen(self) -> None:
        """There is nothing to open."""

    def link(self, deadline: Deadline, cancel: Cancel) -> Link:
        """The way to shells of this machine."""
        return cast(Link, self._link)

    def another(self, deadline: Deadline) -> Link:
        """The same: nobody limits how many there are."""
        return cast(Link, self._link)

    def hang_up(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Close all shells."""
        cast(Link, self._link).close()


def _becoming(given: Any, host: str, secrets: Callable[[str], str]) -> Become:
    """How another user is become; root needs no sudo for that, which may not be installed."""
    become = read_become(given, host, secrets)
    if os.geteuid() == 0 and not (isinstance(given, Mapping) and given.get("method")):
        return replace(become, method="su", password=None)
    return become

"""The connection of one host: opened on first use by one opener at a time, and again if it dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubexm_exec.connectors.ssh.gateways import Gateways
from kubexm_exec.connectors.ssh.link import Link, open_link
from kubexm_exec.connectors.ssh.options import SshOptions, read_options
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandCancelled, ConnectorError
from kubexm_exec.model.graph import GraphHost


class Connection:
    """Gives the open link of a host; several threads may ask at once."""

    def __init__(self, host: GraphHost, secrets: Callable[[str], str], gateways: Gateways) -> None:
        self._host = host
        self._secrets = secrets
        self._gateways = gateways
        self.folder = ""
        """Where relative names begin; the working directory if it is empty."""
        self._options: SshOptions | None = None
        self._link: Link | None = None
        self._turn = Semaphore(1)
        self._lock = threading.Lock()
        self._closed = False
        self._was_open = False
        self._opening: Cancel | None = None
        """Ends the opening that is going on."""

    @property
    def options(self) -> SshOptions:
        """How the host is reached; secrets are looked up when it is asked for first."""
        if self._options is None:
            self._options = read_options(self._host, self._secrets, self.folder)
        return self._options

    def reopen(self) -> None:
        """Allow links again after a close; not if that came before the first one, when nobody wants it any more."""
        with self._lock:
            self._closed = self._closed and not self._was_open

    def link(self, deadline: Deadline, cancel: Cancel) -> Link:
        """The open connection; raises ConnectorError, or CommandCancelled."""
        link = self._link
        if link is not None and link.alive:
            return link
        if not self._turn.take(deadline, cancel):
            raise ConnectorError(f"host {self._host.name} is still being connected to by another step")
        try:
            link = self._link
            if link is not None and link.alive:
                return link
            return self._open(link, deadline, cancel)
        finally:
            self._turn.give_back()

    def another(self, deadline: Deadline) -> Link:
        """A second connection, for a host that allows no more channels on the first; whoever asks closes it."""
        with self._lock:
            if self._closed:
                raise ConnectorError("the run is over")
        return open_link(self.options, deadline, Cancel(), self._gateways)

    def _open(self, old: Link | None, deadline: Deadline, cancel: Cancel) -> Link:
        stop = Cancel()
        with self._lock:
            if self._closed:
                raise ConnectorError("the run is over")
            self._opening, self._link = stop, None
        remove = cancel.on_set(stop.set)
        try:
            if old is not None:
                old.close()
            link = open_link(self.options, deadline, stop, self._gateways)
        except CommandCancelled as error:
            if cancel.is_set():
                raise
            raise ConnectorError(f"host {self._host.name}: the connection was closed while it was opened") from error
        finally:
            remove()
            self._opening = None
        with self._lock:
            wanted = self._keep(link)
        if not wanted:
            link.close()
            raise ConnectorError("the run is over")
        return link

    def _keep(self, link: Link) -> bool:
        if not self._closed:
            self._link = link
            self._was_open = True
        return not self._closed

    def hang_up(self) -> None:
        """Begin to close it; what is still to be done is left to ``close``."""
        with self._lock:
            self._closed = True
            link = self._link
        if link is not None:
            link.hang_up()

    def close(self) -> None:
        """Close it; an opening that is going on ends at once."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
            opening = self._opening
        if opening is not None:
            opening.set()
        if link is not None:
            link.close()

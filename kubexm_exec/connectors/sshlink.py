"""One authenticated SSH connection to a host, through as many others as it takes, every one of them checked."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.connectors.base import Cancel, CommandCancelled, CommandTimedOut, ConnectorError, Deadline
from kubexm_exec.connectors.hostkeys import host_pattern, shared
from kubexm_exec.connectors.sshconfig import authentication, bare, expanded, ssh_config
from kubexm_exec.connectors.ssherrors import SILENT, is_refused_login, login_refused, may_pass, reason, text, where
from kubexm_exec.connectors.sshoptions import SshOptions

if TYPE_CHECKING:
    import paramiko

MOST_CHANNELS: Final = 6
"""sshd allows 10 sessions a connection unless told otherwise; some are left for kills and for other people's."""
KEEPALIVE: Final = 20
_MOST_HOPS: Final = 8
_REFUSED_TRIES: Final = 3
_BUSY_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0
_CHANNEL_TIME: Final = 60.0
_THREAD_END: Final = 5.0
_IDLE_LOOK: Final = 10.0
"""Seconds between two looks of an idle connection's thread; paramiko's own 0.1 costs much CPU at 200 hosts."""
CIPHERS: Final = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
"""What OpenSSH itself offers, the quickest first: GCM needs no second pass for a MAC. The CBC ones stay out."""
_SOCKET_OPTIONS: Final = (
    ("TCP_KEEPIDLE", KEEPALIVE),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 40_000),
)


class Link:
    """An open connection; hands out channels, at most so many at once."""

    def __init__(
        self, connections: list[Any], transport: paramiko.Transport, proxies: list[subprocess.Popen[bytes]]
    ) -> None:
        self.transport = transport
        self.user = str(connections[-1].user)
        self._connections = connections
        self._proxies = proxies
        self._slots = threading.BoundedSemaphore(MOST_CHANNELS)

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as anybody knows."""
        return self.transport.is_active()

    def channel(self, deadline: Deadline, cancel: Cancel, *, counted: bool = True) -> paramiko.Channel:
        """A new channel for one command; waits for its turn, and again while the host says that it has too many."""
        import paramiko

        if counted:
            self._wait_for_slot(deadline, cancel)
        pause = _FIRST_PAUSE
        limit = deadline.earlier(_CHANNEL_TIME)
        try:
            while True:
                if cancel.is_set():
                    raise CommandCancelled("it was cancelled")
                if deadline.passed():
                    raise CommandTimedOut("its time was over")
                try:
                    return self.transport.open_session(timeout=limit.left())
                except (paramiko.SSHException, EOFError, OSError) as error:
                    if not self.alive:
                        raise ConnectorError(f"the connection broke: {text(error)}") from error
                    # Several threads that are refused at once may get each other's exceptions, so none is told apart.
                    if limit.passed():
                        raise ConnectorError(f"the host opens no more channels: {text(error)}") from error
                cancel.wait(_jitter(min(pause, limit.left() or 0.0)))
                pause = min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            if counted:
                self.release()
            raise

    def release(self) -> None:
        """Give a channel's place back."""
        self._slots.release()

    def _wait_for_slot(self, deadline: Deadline, cancel: Cancel) -> None:
        while not self._slots.acquire(timeout=deadline.earlier(0.5).left()):
            if cancel.is_set():
                raise CommandCancelled("it was cancelled")
            if deadline.passed():
                raise CommandTimedOut("its time was over")
            if not self.alive:
                raise ConnectorError("the connection broke")

    def close(self) -> None:
        """Close it, and all it went through."""
        _close(self._connections, self._proxies)


def open_link(options: SshOptions, deadline: Deadline) -> Link:
    """Connect and log in; what may pass by itself (a full or restarting sshd) is tried again until the deadline."""
    import paramiko

    deadline = deadline.earlier(options.connect_timeout)
    pause, tries = _FIRST_PAUSE, 0
    while True:
        tries += 1
        opening = _Opening(options, deadline)
        try:
            return opening.open()
        except (paramiko.SSHException, EOFError, OSError) as error:
            left = deadline.left()
            if tries >= _most_tries(error) or (left is not None and left <= pause):
                # However paramiko puts it: what fails when the time is over, fails because of that.
                late = deadline.passed() and not isinstance(error, ConnectionError)
                raise ConnectorError(opening.failure(error, late=late)) from error
        time.sleep(_jitter(pause))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _most_tries(error: Exception) -> int:
    import paramiko

    if isinstance(error, ConnectionRefusedError | paramiko.ssh_exception.NoValidConnectionsError):
        return _REFUSED_TRIES
    # A full MaxStartups closes the connection before, or in the middle of, its greeting.
    return _BUSY_TRIES if may_pass(error) else 1


class _Opening:
    """One attempt; closes what it opened if it fails."""

    def __init__(self, options: SshOptions, deadline: Deadline) -> None:
        self._options = options
        self._deadline = deadline
        self._connections: list[Any] = []
        self._proxies: list[subprocess.Popen[bytes]] = []
        self._gateway_name = ""

    def failure(self, error: Exception, *, late: bool) -> str:
        """What went wrong, and whose fault it was: the host's or a gateway's."""
        why = SILENT if late else reason(error)
        if self._gateway_name:
            return f"host {self._options.name}: its gateway {self._gateway_name} cannot be reached: {why}"
        if not late and is_refused_login(error):
            return login_refused(self._options, error)
        return f"{where(self._options)}: {why}"

    def open(self) -> Link:
        _quiet()
        try:
            options = self._options
            gateway = self._gateway(options.address, options.proxy_jump, options.proxy_command, depth=0)
            last = self._connect(options.address, gateway, target=True)
            transport = last.transport
            transport.set_keepalive(KEEPALIVE)
            if isinstance(transport.sock, socket.socket):
                transport.sock.settimeout(_IDLE_LOOK)
            return Link(self._connections, transport, self._proxies)
        except BaseException:
            _close(self._connections, self._proxies)
            raise

    def _gateway(self, host: str, jump: str | None, command: str | None, depth: int) -> Any:
        """What the next connection goes through: an open connection, a socket, or None."""
        if depth > _MOST_HOPS:
            raise ConnectorError(f"host {self._options.name}: ProxyJump goes round in circles at {host}")
        found = ssh_config().lookup(bare(host))
        if jump is None and command is None:
            # As in ssh: whichever was written first would win, but one entry seldom has both.
            jump, command = found.get("proxyjump"), found.get("proxycommand")
            command = None if jump is not None else command
        elif command is not None:
            command = expanded(command, host, self._options, found)
        if command is not None and command.lower() != "none":
            return self._proxy(command)
        if jump is None or jump.lower() == "none":
            return None
        gateway = None
        for number, hop in enumerate(jump.replace(" ", "").split(",")):
            if number == 0 and bare(hop) != bare(host):
                gateway = self._gateway(hop, None, None, depth + 1)
            gateway = self._connect(hop, gateway, target=False)
        return gateway

    def _proxy(self, command: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            # What it complains about is of use only to somebody who can see it at once.
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
            )
        self._proxies.append(process)
        return ours

    def _connect(self, host: str, gateway: Any, *, target: bool) -> Any:
        from fabric import Config, Connection

        options = self._options
        left = self._deadline.left() or 0.0
        if left <= 0.0:
            raise TimeoutError("timed out")
        # One Config a connection: a shared one is changed by every thread that uses it.
        config = Config(ssh_config=ssh_config(), lazy=True)
        arguments = {"user": options.user, "port": options.port} if target else {}
        through: Any = False if gateway is None or isinstance(gateway, socket.socket) else gateway
        connection = Connection(host, config=config, gateway=through, connect_timeout=None, **arguments)
        connection.connect_kwargs = {
            **authentication(options, connection, target=target),
            "timeout": left,
            "banner_timeout": left,
            "auth_timeout": left,
            "channel_timeout": left,
            "transport_factory": functools.partial(_transport, self._key_kinds(connection)),
        }
        connection.connect_timeout = None
        if isinstance(gateway, socket.socket):
            connection.connect_kwargs["sock"] = gateway
        connection.client.set_missing_host_key_policy(_Policy(self._check_of(connection)))
        self._connections.append(connection)
        if through:
            through.transport.channel_timeout = left
        self._gateway_name = "" if target else host
        connection.open()
        return connection

    def _known_name(self, connection: Any) -> str:
        alias = connection.ssh_config.get("hostkeyalias")
        return str(alias) if alias else host_pattern(connection.host, connection.port)

    def _known_file(self, connection: Any) -> Path:
        if self._options.known_hosts is not None:
            return self._options.known_hosts
        configured = connection.ssh_config.get("userknownhostsfile")
        return Path(configured.split()[0] if configured else "~/.ssh/known_hosts").expanduser()

    def _key_kinds(self, connection: Any) -> list[str]:
        if self._options.host_keys == "off":
            return []
        return shared(self._known_file(connection)).kinds(self._known_name(connection))

    def _check_of(self, connection: Any) -> Callable[[paramiko.PKey], None]:
        def check(key: paramiko.PKey) -> None:
            shared(self._known_file(connection)).check(
                self._known_name(connection),
                key.get_name(),
                key.get_base64(),
                self._options.host_keys,
                host=self._options.name,
            )

        return check


class _Policy:
    """What paramiko asks about every key, since it is given no list of its own."""

    def __init__(self, check: Callable[[paramiko.PKey], None]) -> None:
        self._check = check

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        self._check(key)


def _transport(kinds: list[str], sock: Any, **more: Any) -> paramiko.Transport:
    """A transport without Nagle's delay that asks first for the kind of key that the host is known by."""
    import paramiko

    if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SOCKET_OPTIONS:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    transport = paramiko.Transport(sock, **more)
    security = transport.get_security_options()
    security.ciphers = [cipher for cipher in CIPHERS if cipher in security.ciphers]
    if kinds:
        wanted = [kind for known in kinds for kind in _signatures(known) if kind in security.key_types]
        security.key_types = [*wanted, *(kind for kind in security.key_types if kind not in wanted)]
    return transport


def _signatures(kind: str) -> tuple[str, ...]:
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)


def _close(connections: list[Any], proxies: list[subprocess.Popen[bytes]]) -> None:
    for connection in reversed(connections):
        transport = connection.transport or connection.client.get_transport()
        if transport is not None and isinstance(transport.sock, socket.socket):
            # Its thread sleeps in a read; closing alone would not wake it.
            with contextlib.suppress(OSError):
                transport.sock.shutdown(socket.SHUT_RDWR)
        connection.client.close()
        if transport is not None and transport.is_alive():
            # It may have noticed before we asked, and then nobody has waited for it.
            transport.join(_THREAD_END)
        sock = connection.connect_kwargs.get("sock")
        if sock is not None:
            sock.close()
    for process in proxies:
        process.terminate()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _quiet() -> None:
    """Keep paramiko's log of broken connections off the console: whoever called gets the error."""
    logger = logging.getLogger("paramiko")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _jitter(seconds: float) -> float:
    return seconds * random.uniform(0.6, 1.2)

"""One authenticated SSH connection to a host, through any number of gateways, each with its host key verified."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from kubexm_exec.connectors.ssh.config import authentication, bare, expanded, key_files, ssh_config
from kubexm_exec.connectors.ssh.dialing import Dialled, dial, hang_up
from kubexm_exec.connectors.ssh.errors import (
    SILENT,
    NotBegun,
    is_refused_login,
    login_refused,
    may_pass,
    not_tried,
    reason,
    text,
    where,
)
from kubexm_exec.connectors.ssh.hostkeys import host_pattern, shared
from kubexm_exec.connectors.ssh.options import SshOptions
from kubexm_exec.connectors.ssh.proxy import Proxy, ProxyFailed
from kubexm_exec.control import Cancel, Deadline, Semaphore, backoff, once, raise_if_over
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, ConnectorError
from kubexm_spec.models.hops import parse_hops

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

MOST_BEHIND: Final = 50
"""Hosts behind one connection to a gateway; one thread does all the work of a connection."""


class Gateway(Protocol):
    """An open connection to a gateway."""

    @property
    def alive(self) -> bool:
        """Whether it is up, as far as known."""

    def close(self) -> None:
        """Close it."""


class _Place:
    def __init__(self) -> None:
        self.turn = Semaphore(1)
        self.users: dict[Gateway, int] = {}
        self.failures = 0
        self.error: Exception | None = None


class Gateways:
    """The open gateways of a run; each is closed when the last host behind it has gone."""

    def __init__(self, most_behind: int = MOST_BEHIND) -> None:
        self._most = most_behind
        self._lock = threading.Lock()
        self._places: dict[Hashable, _Place] = {}
        self.dialled = Dialled()
        """Connections to hosts that are reached without a gateway."""

    def take(self, key: Hashable, opener: Callable[[], Gateway], deadline: Deadline, stop: Cancel) -> Gateway:
        """An open gateway with room, opened by one thread at a time; those that waited get the same error."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            failures = place.failures
        if not place.turn.take(deadline, stop):
            raise TimeoutError("timed out")
        try:
            with self._lock:
                for gateway, users in place.users.items():
                    if users < self._most and gateway.alive:
                        place.users[gateway] += 1
                        return gateway
                if place.failures != failures and place.error is not None:
                    raise place.error
            try:
                gateway = opener()
            except Exception as error:
                # What is refused for good (a key that changed) says so itself, with the host's own name.
                if not stop.is_set() and not isinstance(error, ConnectorError):
                    with self._lock:
                        place.failures += 1
                        place.error = error
                raise
            with self._lock:
                place.users[gateway] = 1
            return gateway
        finally:
            place.turn.give_back()

    def leave(self, key: Hashable, gateway: Gateway) -> None:
        """Release it; the last user closes it."""
        with self._lock:
            users = self._places[key].users
            users[gateway] -= 1
            if users[gateway]:
                return
            del users[gateway]
        gateway.close()


def tunnel(transport: Any, address: tuple[str, int], deadline: Deadline, stop: Cancel) -> Any:
    """A channel through a gateway to an address behind it; raises what paramiko raises."""
    answers: SimpleQueue[Any] = SimpleQueue()
    # In a thread of its own: paramiko waits in a way that nothing but the gateway's answer or its end would end.
    given_up = threading.Event()

    def ask() -> None:
        try:
            channel = transport.open_channel("direct-tcpip", address, ("", 0), timeout=deadline.left())
        except Exception as error:  # noqa: BLE001  it is raised where it is waited for
            answers.put(error)
            return
        answers.put(channel)
        if given_up.is_set():
            channel.close()

    threading.Thread(target=ask, name="kubexm-tunnel", daemon=True).start()
    remove = stop.on_set(lambda: answers.put(None))
    try:
        answer = answers.get()
    finally:
        remove()
    if answer is None:
        given_up.set()
        while not answers.empty():
            if (late := answers.get()) is not None and not isinstance(late, Exception):
                late.close()
        raise CommandCancelled
    if isinstance(answer, Exception):
        raise answer
    return answer


_MOST_HOPS: Final = 8


class Route(Struct, frozen=True):
    """Hops in the order they are gone through; the command connects to the first of them, or to the host itself."""

    hops: tuple[str, ...] = ()
    command: str | None = None


def route_to(options: SshOptions) -> Route:
    """The way that the inventory says, or else ~/.ssh/config."""
    return _route(options, options.address, options.proxy_jump, options.proxy_command, depth=0)


def _route(options: SshOptions, host: str, jump: str | None, command: str | None, depth: int) -> Route:
    if depth > _MOST_HOPS:
        raise ConnectorError(f"host {options.name}: ProxyJump goes round in circles at {host}")
    found = ssh_config().lookup(bare(host))
    setting = "look at `proxyJump` in the inventory"
    if jump is None and command is None:
        # As in ssh: whichever was written first would win, but one entry seldom has both.
        jump, command = found.get("proxyjump"), found.get("proxycommand")
        command = None if jump is not None else command
        setting = f"look at what ~/.ssh/config and /etc/ssh/ssh_config say as ProxyJump for {bare(host)}"
    elif command is not None:
        command = expanded(command, host, options, found)
    if command is not None and command.lower() != "none":
        return Route(command=command)
    try:
        hops = () if jump is None else parse_hops(jump)
    except ValueError as error:
        raise ConnectorError(f"host {options.name}: {error}; {setting}") from error
    if not hops:
        return Route()
    first, *more = hops
    before = _route(options, first, None, None, depth + 1) if bare(first) != bare(host) else Route()
    return Route((*before.hops, first, *more), before.command)


MOST_CHANNELS: Final = 6
"""sshd allows 10 sessions a connection unless told otherwise; some are left for kills and for other people's."""
_REFUSED_TRIES: Final = 3
_BUSY_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 3.0
_CHANNEL_TIME: Final = 60.0
_ROOM_TRIES: Final = 2
_THREAD_END: Final = 5.0


class NoChannel(ConnectorError):
    """The host allows no more sessions on a connection than there are."""


class Hop:
    """One open connection, to a host or to a gateway on the way to it."""

    def __init__(self, connection: Any, sock: Any, proxy: Proxy | None, leave: Callable[[], None]) -> None:
        self.transport: HostTransport = connection.transport
        self.user = str(connection.user)
        self._connection = connection
        self._sock = sock
        self._proxy = proxy
        self._leave = leave

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as known."""
        return self.transport.is_active()

    def hang_up(self) -> None:
        """Begin to close it, without waiting."""
        hang_up(self._sock)

    def close(self) -> None:
        """Close it, and leave the gateway that it went through."""
        _close(self._connection, self._sock, self._proxy)
        self._leave()


class Link:
    """An open connection to a host; hands out channels, at most so many at once."""

    def __init__(self, hop: Hop) -> None:
        self.transport = hop.transport
        self.user = hop.user
        self.make_room: Callable[[], None] | None = None
        """Releases idle channels."""
        self._hop = hop
        self._slots = Semaphore(MOST_CHANNELS)

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as known."""
        return self.transport.is_active()

    @property
    def loss(self) -> str:
        """Why it ended."""
        return "the host stopped answering" if self.transport.silent else "the connection dropped"

    def channel(self, deadline: Deadline, cancel: Cancel, *, counted: bool = True) -> paramiko.Channel:
        """A new channel; waits for its turn and while the host has too many, unless uncounted: then NoChannel."""
        import paramiko

        if counted and not self._slots.take(deadline, cancel):
            raise CommandTimedOut
        limit = deadline.earlier(_CHANNEL_TIME)
        tries = 0
        try:
            while True:
                raise_if_over(deadline, cancel)
                try:
                    return self.transport.open_session(timeout=limit.left())
                except (paramiko.SSHException, EOFError, OSError) as error:
                    if not self.alive:
                        # A host that did not answer in time would not answer a second request either.
                        kind = ConnectorError if self.transport.silent else NotBegun
                        raise kind(f"{self.loss}: {text(error)}") from error
                    # Several threads that are refused at once may get each other's exceptions, so none is told apart.
                    if limit.passed() or not (counted or tries < _ROOM_TRIES):
                        raise NoChannel(f"the host opens no more channels: {text(error)}") from error
                tries += 1
                if self.make_room is not None:
                    self.make_room()
                cancel.wait(min(backoff(tries, _FIRST_PAUSE, _LONGEST_PAUSE), limit.left() or 0.0))
        except BaseException:
            if counted:
                self.release()
            raise

    def release(self) -> None:
        """Release the slot of a channel."""
        self._slots.give_back()

    def hang_up(self) -> None:
        """Begin to close it, without waiting."""
        self._hop.hang_up()

    def close(self) -> None:
        """Close it, and its gateway unless others use that."""
        self._hop.close()


@once
def load_libraries() -> None:
    """Load fabric and paramiko: one thread does it, because their modules import each other in circles."""
    import fabric  # noqa: F401


def open_link(options: SshOptions, deadline: Deadline, stop: Cancel, gateways: Gateways) -> Link:
    """Connect and log in, with retries until the deadline; ``stop`` ends it at once with CommandCancelled."""
    load_libraries()
    import paramiko

    deadline = deadline.earlier(options.connect_timeout)
    tries = 0
    while True:
        tries += 1
        opening = _Opening(options, deadline, stop, gateways)
        try:
            return opening.open()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if stop.is_set():
                raise CommandCancelled from error
            left, pause = deadline.left(), backoff(tries, _FIRST_PAUSE, _LONGEST_PAUSE)
            if tries >= _most_tries(error) or (left is not None and left <= pause):
                # However paramiko puts it: what fails when the time is over, fails because of that.
                late = deadline.passed() and not isinstance(error, ConnectionError)
                raise ConnectorError(opening.failure(error, late=late)) from error
        if stop.wait(pause):
            raise CommandCancelled


def _most_tries(error: Exception) -> int:
    import paramiko

    if isinstance(error, ProxyFailed):
        return 1 if error.final else _REFUSED_TRIES
    if isinstance(error, ConnectionRefusedError | paramiko.ssh_exception.NoValidConnectionsError):
        return _REFUSED_TRIES
    # A full MaxStartups closes the connection before, or in the middle of, its greeting.
    return _BUSY_TRIES if may_pass(error) else 1


class _Opening:
    """One attempt; closes what it opened if it fails."""

    def __init__(self, options: SshOptions, deadline: Deadline, stop: Cancel, gateways: Gateways) -> None:
        self._options = options
        self._deadline = deadline
        self._stop = stop
        self._gateways = gateways
        self._gateway_name = ""
        self._keys: list[str] = []
        """Files that the SSH configuration names for the host, or gateway, that was last tried."""

    def failure(self, error: Exception, *, late: bool) -> str:
        """The error, attributed to the host or a gateway."""
        why = SILENT if late else reason(error)
        refused = not late and is_refused_login(error)
        if self._gateway_name:
            more = not_tried(self._keys) if refused else ""
            return f"host {self._options.name}: its gateway {self._gateway_name} cannot be reached: {why}{more}"
        if refused:
            return login_refused(self._options, error, self._keys)
        return f"{where(self._options)}: {why}"

    def open(self) -> Link:
        _quiet()
        route = route_to(self._options)
        return Link(self._hop(self._options.address, route, len(route.hops), target=True))

    def _through(self, route: Route, count: int) -> tuple[Hashable, Hop]:
        """The gateway at the end of so many hops; shared by all hosts that trust it in the same way."""
        key = (self._options.host_keys, self._options.known_hosts, route.command, route.hops[:count])
        self._gateway_name = name = route.hops[count - 1]
        gateway = self._gateways.take(
            key, lambda: self._hop(name, route, count - 1, target=False), self._deadline, self._stop
        )
        assert isinstance(gateway, Hop)
        return key, gateway

    def _hop(self, name: str, route: Route, before: int, *, target: bool) -> Hop:
        """Connect to a host, or a gateway, through so many hops of the route."""
        through = self._through(route, before) if before else None
        sock: Any = None
        proxy: Proxy | None = None
        connection: Any = None
        try:
            self._gateway_name = "" if target else name
            connection = self._connection(name, target=target)
            if through is not None:
                address = connection.host, int(connection.port)
                sock = tunnel(through[1].transport, address, self._deadline, self._stop)
            elif route.command is not None:
                proxy = Proxy(route.command, self._options.folder)
                sock = proxy.sock
            else:
                place = connection.host, int(connection.port)
                sock = dial(*place, self._deadline, self._stop, self._gateways.dialled)
            self._log_in(connection, sock, proxy)
            return Hop(connection, sock, proxy, functools.partial(self._leave, through))
        except BaseException:
            _close(connection, sock, proxy)
            self._leave(through)
            raise

    def _leave(self, through: tuple[Hashable, Hop] | None) -> None:
        if through is not None:
            self._gateways.leave(*through)

    def _connection(self, host: str, *, target: bool) -> Any:
        options = self._options
        arguments = {"user": options.user, "port": options.port} if target else {}
        connection = make_connection(host, ssh_config(), **arguments)
        self._keys = key_files(options, connection, target=target)
        connection.connect_kwargs = authentication(options, connection, self._keys, target=target)
        connection.client.set_missing_host_key_policy(_Policy(self._check_of(connection)))
        return connection

    def _log_in(self, connection: Any, sock: Any, proxy: Proxy | None) -> None:
        import paramiko

        from kubexm_exec.connectors.ssh.transport import HostTransport

        left = self._deadline.left() or 0.0
        if left <= 0.0:
            raise TimeoutError("timed out")
        connection.connect_kwargs |= {
            "sock": sock,
            "timeout": left,
            "banner_timeout": left,
            "auth_timeout": left,
            "channel_timeout": left,
            "transport_factory": functools.partial(HostTransport.over, self._key_kinds(connection)),
        }
        connection.connect_timeout = None
        remove = self._stop.on_set(lambda: hang_up(sock))
        try:
            connection.open()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if proxy is not None and not is_refused_login(error):
                proxy.raise_if_failed(error, wait=not (self._stop.is_set() or self._deadline.passed()))
            raise
        finally:
            remove()
        connection.transport.watch(self._options.alive(connection.ssh_config))

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
    """Verifies every host key for paramiko, which has no list of its own."""

    def __init__(self, check: Callable[[paramiko.PKey], None]) -> None:
        self._check = check

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        self._check(key)


def make_connection(host: str, ssh_config: Any, **arguments: Any) -> Any:
    """A fabric Connection that is not open yet; what it is not told here, it takes from the SSH configuration."""
    from fabric import Config, Connection

    return Connection(
        host,
        # Lazy: fabric's own files of settings are not read.
        config=Config(ssh_config=ssh_config, lazy=True),
        gateway=False,
        forward_agent=False,
        connect_timeout=1,
        connect_kwargs={"look_for_keys": False},
        inline_ssh_env=False,
        **arguments,
    )


def _close(connection: Any, sock: Any, proxy: Proxy | None) -> None:
    if sock is not None:
        hang_up(sock)
    if connection is not None:
        transport = connection.transport or connection.client.get_transport()
        connection.client.close()
        if transport is not None and transport.is_alive():
            # It may have noticed before we asked, and then nobody has waited for it.
            transport.join(_THREAD_END)
    if sock is not None:
        sock.close()
    if proxy is not None:
        proxy.close()


def _quiet() -> None:
    """Keep paramiko's log of broken connections off the console: the caller gets the error."""
    logger = logging.getLogger("paramiko")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())

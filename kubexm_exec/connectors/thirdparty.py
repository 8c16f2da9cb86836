"""Connectors of third parties: a mistake of their author is said of them and their package, never of a step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from kubexm_exec.connectors.base import Becomes, Command, Connector, Marks, OnOutput, Sink
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, ConnectorError, StepFailed
from kubexm_exec.plugins import RAISES, Registry, RegistryError, connector_registry, raised
from kubexm_exec.secrets import SecretError

_STOP: Final = {"deadline": None, "cancel": None}
_CALLS: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    "open": (1, {}),
    "run": (1, {**_STOP, "on_output": None}),
    "put": (2, {"mode": None, "owner": None, "group": None, **_STOP}),
    "get": (1, {**_STOP, "limit": None}),
    "stream": (2, _STOP),
    "close": (0, {}),
}
"""The methods of a connector: how many arguments each is given, and which by their names."""
_TOLD: Final = (ConnectorError, CommandCancelled, CommandTimedOut, SecretError, RegistryError, StepFailed)
"""What says itself what is wrong."""


class Loads(Protocol):
    """A registry: plug-ins by name."""

    def load(self, name: str) -> Any:
        """The plug-in; raises RegistryError."""

    def names(self) -> list[str]:
        """All names."""


def is_ours(kind: Any) -> bool:
    """Whether a class comes with kubexm: its mistakes are ours, and show as such."""
    return str(getattr(kind, "__module__", "")).startswith("kubexm_exec.")


def load_connector(registry: Loads, name: str) -> Any:
    """An installed factory of connectors; raises RegistryError if there is none, or if it makes no connectors."""
    factory = registry.load(name)
    if wrong := "" if is_ours(factory) else mistake(factory):
        raise connector_registry().broken(name, wrong)
    return factory


def mistake(factory: Any) -> str:
    """What the author of a factory has to mend before it can be used; empty if there is nothing to be seen."""
    if not callable(factory):
        return f"is not a class but {factory!r:.60}"
    if not isinstance(factory, type):
        return _wrong_call(factory, "it", 2, {})
    lacks = lacking(factory)
    if lacks or hasattr(factory, "for_run"):  # that one makes them in its own way
        return lacks or wrong_methods(factory)
    return _wrong_call(factory, f"{factory.__name__}.__init__", 2, {}) or wrong_methods(factory)


def lacking(connector: object) -> str:
    """The methods that a connector, or a class of them, does not have."""
    missing = [name for name in _CALLS if not callable(getattr(connector, name, None))]
    return f"has no method {' and no method '.join(missing)}" if missing else ""


def wrong_methods(kind: type) -> str:
    """The first method of a class that cannot be called as a connector is."""
    for name, (arguments, named) in _CALLS.items():
        method = getattr(kind, name)
        if inspect.iscoroutinefunction(method):
            return f"has an async method {name}: connectors are called by threads"
        own = not isinstance(inspect.getattr_static(kind, name), staticmethod | classmethod)
        if wrong := _wrong_call(method, f"{kind.__name__}.{name}", arguments + own, named):
            return wrong
    return ""


def _wrong_call(called: Any, who: str, arguments: int, named: Mapping[str, Any]) -> str:
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # of a class in C nothing is known
        return ""
    try:
        signature.bind(*[None] * arguments, **named)
    except TypeError as error:
        return f"cannot be used: {who} takes {signature}: {error}; see Writing a connector"
    return ""


@contextmanager
def blamed(name: str, registry: Registry[Any], *also: type[Exception]) -> Iterator[None]:
    """An exception that no connector may raise is its author's mistake; ``also`` may be raised here besides."""
    told: tuple[type[Exception], ...] = (*_TOLD, *also)
    try:
        yield
    except told:
        raise
    except RAISES as error:
        raise registry.broken(name, f"raised {raised(error)}") from error


class CheckedConnector:
    """A third party's open connector: what it raises and returns is what the contract says, or its mistake."""

    def __init__(self, name: str, registry: Registry[Any], connector: Connector) -> None:
        self._name = name
        self._registry = registry
        self._connector = connector
        self.close = connector.close
        # It can do what the connector can; whether it can is asked of the object.
        for more in ("compares", "hang_up", "start_in"):
            if hasattr(connector, more):
                setattr(self, more, getattr(connector, more))
        if isinstance(connector, Marks):
            self.mark, self.own_mark = connector.mark, connector.own_mark
        if isinstance(connector, Becomes):
            self.as_user = functools.partial(self._as_user, connector)

    def open(self, deadline: Deadline) -> None:
        """Connect again."""
        with self._blamed():
            self._connector.open(deadline)

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command."""
        # The input is read by the connector, and may not be readable.
        may_raise = () if command.stdin is None or isinstance(command.stdin, bytes) else (OSError,)
        with _passing(on_output) as output, self._blamed(*may_raise):
            result: Any = self._connector.run(command, deadline=deadline, cancel=cancel, on_output=output)
        if not isinstance(result, CommandResult):
            raise self._broken("run", result, "a CommandResult")
        for part in (result.stdout, result.stderr):
            if not isinstance(part, bytes):
                raise self._broken("run", part, "bytes", " as output")
        return result

    def put(self, source: Any, path: str, **more: Any) -> None:
        """Write a file."""
        with self._blamed(OSError):
            self._connector.put(source, path, **more)

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """Read a file."""
        with self._blamed(OSError):
            data: Any = self._connector.get(path, deadline=deadline, cancel=cancel, limit=limit)
        if not isinstance(data, bytes):
            raise self._broken("get", data, "bytes")
        return data

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Read a file piece by piece."""
        with _passing(sink) as taken, self._blamed(OSError):
            self._connector.stream(path, taken or sink, deadline=deadline, cancel=cancel)

    def _as_user(self, connector: Becomes, user: bool | str) -> Connector:
        with self._blamed(ValueError):
            other: Any = connector.as_user(user)
        if not isinstance(other, Connector):
            raise self._broken("as_user", other, "a connector")
        return CheckedConnector(self._name, self._registry, other)

    def _blamed(self, *also: type[Exception]) -> AbstractContextManager[None]:
        return blamed(self._name, self._registry, *also)

    def _broken(self, method: str, value: object, wanted: str, what: str = "") -> RegistryError:
        said = "None" if value is None else f"a {type(value).__name__}"
        return self._registry.broken(self._name, f"returned {said}{what} from {method}, not {wanted}")


@contextmanager
def _passing(callback: Callable[..., Any] | None) -> Iterator[Callable[..., Any] | None]:
    """A callback whose own exception is raised as it is, whatever the connector that calls it makes of it."""
    errors: list[BaseException] = []

    def call(*arguments: Any) -> Any:
        assert callback is not None
        try:
            return callback(*arguments)
        except BaseException as error:
            errors.append(error)
            raise

    try:
        yield None if callback is None else call
    except RAISES:
        if errors:
            raise errors[0] from None
        raise

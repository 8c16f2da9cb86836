"""Resolves references to secrets, such as `env:NAME` or `file:PATH#key`, and masks their values from then on."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from kubexm_exec.secrets.redact import MASK, Redactor, StreamMask
from kubexm_spec.diagnostics import did_you_mean

__all__ = ["MASK", "EnvSecrets", "FileSecrets", "Redactor", "SecretError", "SecretProvider", "Secrets", "StreamMask"]

GROUP: Final = "kubexm.secrets"
LIMIT: Final = 1024 * 1024
"""A larger file is assumed to be a mistake."""
_FORM: Final = "write env:NAME, file:PATH#key or vault:PATH#key"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9-]{0,15}")
_KINDS: Final = {int: "a number", float: "a number", bool: "a boolean", dict: "a mapping", list: "a list"}


class SecretError(Exception):
    """A reference that cannot be resolved: which one, why, and what to do. Never holds the value."""

    def __init__(self, reference: str, what: str, hint: str = "") -> None:
        super().__init__(f'secret "{reference}": {what}' + (f"; {hint}" if hint else ""))
        self.reference = reference
        self.what = what
        self.hint = hint


class SecretProvider(ABC):
    """Looks secrets up. A subclass is registered in the entry-point group ``kubexm.secrets``, by its prefix."""

    early: ClassVar[bool] = False
    """Whether its secrets exist before a run begins: those that a run needs are then resolved before it starts."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        """Shows a warning to the user."""
        self.folder = ""
        """Where relative paths start; the working directory if it is empty. Set before it is asked."""
        self.hidden: set[str] = set()
        """Further values to mask, such as its login token."""

    @abstractmethod
    def resolve(self, reference: str) -> str:
        """The value behind a whole reference such as ``env:NAME``; raises SecretError."""


class EnvSecrets(SecretProvider):
    """Secrets in environment variables: ``env:NAME``."""

    early = True

    def __init__(self, warn: Callable[[str], None], environ: Mapping[str, str] | None = None) -> None:
        super().__init__(warn)
        self._environ = os.environ if environ is None else environ

    def resolve(self, reference: str) -> str:
        """The value of the variable; one that is not set, or empty, is an error."""
        name = reference.partition(":")[2]
        if not name:
            raise SecretError(reference, "does not name an environment variable", _FORM)
        value = self._environ.get(name)
        if value is None:
            guess = did_you_mean(name, self._environ)
            raise SecretError(reference, f"the environment variable {name} is not set", guess or f"export {name}=...")
        if not value:
            raise SecretError(reference, f"the environment variable {name} is empty", f"export {name}=...")
        return value


class FileSecrets(SecretProvider):
    """Secrets in files: ``file:PATH`` (the text without its last line end) or ``file:PATH#key`` (YAML or JSON).

    A key with dots goes into mappings in the mapping. A relative path starts in the folder of the run.
    """

    early = True

    def resolve(self, reference: str) -> str:
        """The text, or the value of the key; it must be text, since 0123 as a number is another password."""
        name, _, key = reference.partition(":")[2].partition("#")
        if not name:
            raise SecretError(reference, "does not name a file", _FORM)
        text = self._read(reference, name)
        value = _lookup(reference, name, key, text) if key else text.removesuffix("\n").removesuffix("\r")
        if not value:
            raise SecretError(reference, f"{_what(name, key)} is empty", "put the value there")
        return value

    def _read(self, reference: str, name: str) -> str:
        try:
            path = Path(self.folder, Path(name).expanduser())
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise SecretError(reference, f"{name} is not a file", _FORM)
            if status.st_size > LIMIT:
                raise SecretError(reference, f"{name} is larger than 1 MiB", "is it the right file?")
            if status.st_mode & stat.S_IROTH:
                self.warn(f"the secret file {name} can be read by everybody on this machine; chmod 600 {name}")
            return path.read_text("utf-8")
        except FileNotFoundError:
            raise SecretError(reference, f"there is no file {name}", self._where(name)) from None
        except UnicodeDecodeError:
            # From None: the exception that it replaces holds the bytes of the file.
            raise SecretError(reference, f"{name} is not UTF-8 text", "encode it, as base64 for example") from None
        except OSError as error:
            raise SecretError(
                reference, f"{name} cannot be read: {error.strerror}", "check its owner and mode"
            ) from None
        except (ValueError, RuntimeError) as error:  # a NUL in the path; a ~user who does not exist
            raise SecretError(reference, f"not a path: {error}", _FORM) from None

    def _where(self, name: str) -> str:
        absolute = Path(name).is_absolute()
        return "check the path" if absolute else f"relative paths start at {self.folder or Path.cwd()}"


class Secrets:
    """All providers: resolves each reference once, keeps its value in memory only, and masks it."""

    def __init__(self, redactor: Redactor, warn: Callable[[str], None] | None = None, folder: str = "") -> None:
        """``folder``: where relative paths start; the working directory if it is empty."""
        self.redactor = redactor
        self._folder = folder
        self.warnings: list[str] = []
        """Warnings: files that everybody can read, values too short to be masked."""
        self._tell = warn
        self._lock = threading.Lock()
        self._providers: dict[str, SecretProvider] = {}
        self._values: dict[str, str] = {}

    def resolve(self, reference: str) -> str:
        """The value behind ``scheme:rest``; raises SecretError."""
        with self._lock:
            if reference not in self._values:
                provider = self._provider(reference)
                try:
                    value = self._asked(provider, reference)
                finally:
                    self.redactor.add(provider.hidden)
                if not self.redactor.add(value):
                    self._warn(f'the secret "{reference}" is too short to be masked in output; use a longer one')
                self._values[reference] = value
            return self._values[reference]

    def is_early(self, reference: str) -> bool:
        """Whether the secret can be resolved before a run begins; raises SecretError if it never can."""
        with self._lock:
            return self._provider(reference).early

    def _provider(self, reference: str) -> SecretProvider:
        scheme, colon, _ = reference.partition(":")
        # A password that was written in place of a reference must not appear in the log.
        if not colon or not _SCHEME.fullmatch(scheme):
            raise SecretError("...", "this is not a reference to a secret", _FORM)
        if scheme not in self._providers:
            from kubexm_exec.plugins import RAISES

            found = _load(f"{scheme}:...", scheme)
            try:
                provider = found(self._warn)
            except RAISES as error:
                raise _broken(f"{scheme}:...", scheme, _raised(error)) from None
            if not hasattr(provider, "hidden"):
                raise _broken(f"{scheme}:...", scheme, "does not call super().__init__(warn) in its __init__")
            provider.folder = self._folder
            self._providers[scheme] = provider
        return self._providers[scheme]

    @staticmethod
    def _asked(provider: SecretProvider, reference: str) -> str:
        """The answer of a provider; an unexpected exception, or a value other than text, is a mistake of its author."""
        from kubexm_exec.plugins import RAISES

        scheme = reference.partition(":")[0]
        try:
            value: Any = provider.resolve(reference)
        except SecretError:
            raise
        except RAISES as error:
            # From None, and without its text: either may hold the value.
            raise _broken(reference, scheme, _raised(error)) from None
        if not isinstance(value, str):
            raise _broken(reference, scheme, f"returned {_KINDS.get(type(value)) or type(value).__name__}, not text")
        if not value:
            raise _broken(reference, scheme, "returned an empty text")
        return value

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
            if self._tell is not None:
                self._tell(message)


def _load(reference: str, scheme: str) -> type[SecretProvider]:
    from kubexm_exec.plugins import Registry, RegistryError

    registry = Registry[Any](GROUP, "secret provider")
    try:
        found = registry.load(scheme)
    except RegistryError as error:
        raise SecretError(reference, error.message, error.hint) from error
    if not (isinstance(found, type) and issubclass(found, SecretProvider)):
        wrong = f"is no SecretProvider class but {found!r:.60}"
    elif found.__abstractmethods__:
        wrong = "has no method resolve"
    else:
        return found
    raise _broken(reference, scheme, wrong)


def _broken(reference: str, scheme: str, wrong: str) -> SecretError:
    from kubexm_exec.plugins import Registry

    error = Registry[Any](GROUP, "secret provider").broken(scheme, wrong)
    return SecretError(reference, error.message, error.hint)


def _raised(error: BaseException) -> str:
    """An exception by its type and place only; by its text if the call itself was wrong."""
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    if place.filename == __file__:
        return f"cannot be called: {error}"
    return f"raised {type(error).__name__} in {place.filename}:{place.lineno}"


def _what(name: str, key: str) -> str:
    return f'"{key}" in {name}' if key else name


def _lookup(reference: str, name: str, key: str, text: str) -> str:
    data = _parse(reference, name, text)
    if not isinstance(data, Mapping):
        hint = f'omit "#{key}" to use its whole text'
        raise SecretError(reference, f"{name} is not a mapping of keys to values", hint)
    return pick(reference, name, key, data)


def pick(reference: str, name: str, key: str, data: Mapping[str, Any]) -> str:
    """The text under a key; one with dots goes into mappings in the mapping. ``name`` says of what, in errors."""
    value: Any = data
    done: list[str] = []
    for part in [key] if key in data else key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            names = [str(each) for each in value] if isinstance(value, Mapping) else []
            # Other keys are named only as a suggestion for a typo: the rest of the file is confidential.
            what = f"{_what(name, '.'.join([*done, part]))} is not there"
            raise SecretError(reference, what, did_you_mean(part, names) or "check the name of the key")
        value = value[part]
        done.append(part)
    if not isinstance(value, str):
        kind = "empty" if value is None else f"not text but {_KINDS.get(type(value), 'something else')}"
        raise SecretError(reference, f"{_what(name, key)} is {kind}", "write the value in quotes")
    return value


def _parse(reference: str, name: str, text: str) -> Any:
    """The data of a YAML or JSON text. Errors say where, and never quote the text."""
    if name.endswith(".json"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise SecretError(reference, f"{name}:{error.lineno}:{error.colno} is not JSON") from None
        except RecursionError:
            raise SecretError(reference, f"{name} is nested too deeply") from None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise SecretError(reference, f"{place} is not YAML") from None
    except (YAMLError, RecursionError, ValueError):
        raise SecretError(reference, f"{name} is not YAML") from None

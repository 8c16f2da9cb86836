"""Verification of host keys: known_hosts read once, first contacts recorded, changed keys refused."""

from __future__ import annotations

import base64
import fcntl
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from kubexm_exec.control import once
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.safepaths import at

Policy = Literal["acceptNew", "strict", "off"]
SYSTEM_FILE: Final = Path("/etc/ssh/ssh_known_hosts")
_SSH_PORT: Final = 22


class HostKeyRefused(ConnectorError):
    """The host showed a key that must not be trusted."""


class KnownKey(Struct, frozen=True):
    """One line of a known_hosts file."""

    kind: str
    data: str
    place: str
    """FILE:LINE, for messages."""
    revoked: bool = False


def host_pattern(host: str, port: int) -> str:
    """The name that known_hosts files use for a host."""
    return host if port == _SSH_PORT else f"[{host}]:{port}"


def fingerprint(data: str) -> str:
    """The key's digest as ssh prints it."""
    digest = hashlib.sha256(base64.b64decode(data)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class KnownHosts:
    """The keys in a user's file (to which new ones are added) and in the machine's file. Threads may share it."""

    def __init__(self, path: Path, *more: Path) -> None:
        self.path = path
        self._more = more
        self._lock = threading.Lock()
        self._entries = _Entries()
        self._read: tuple[int, int] | None = None
        with self._lock:
            self._load()

    def kinds(self, name: str) -> list[str]:
        """The kinds of keys that are known of a host: what it should be asked for."""
        with self._lock:
            return list(dict.fromkeys(key.kind for key in self._entries.find(name) if not key.revoked))

    def check(self, name: str, kind: str, data: str, policy: Policy, *, host: str) -> None:
        """Let a known key pass, record a new one where the policy allows that, and refuse all others."""
        if policy == "off":
            return
        with self._lock:
            if self._knows(name, data):
                return
            # Another program may have written to the file since.
            self._load()
            if self._verdict(name, kind, data, host):
                return
            if policy == "strict":
                raise HostKeyRefused(
                    f"host {host}: the key of {name} is not known ({kind} {fingerprint(data)}, not in {self.path}); "
                    "compare it with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` says there and add it "
                    "with `ssh-keyscan`, or set `hostKeys: acceptNew` to trust hosts on first contact"
                )
            self._record(name, kind, data, host)

    def _knows(self, name: str, data: str) -> bool:
        keys = [key for key in self._entries.find(name) if key.data == data]
        return bool(keys) and not any(key.revoked for key in keys)

    def _verdict(self, name: str, kind: str, data: str, host: str) -> bool:
        """True if the key is known, False if nothing is known of the host."""
        found = self._entries.find(name)
        for key in found:
            if key.revoked and key.data == data:
                raise HostKeyRefused(
                    f"host {host}: the key of {name} ({kind} {fingerprint(data)}) was revoked in {key.place}; "
                    "do not connect to it before it has got a new key"
                )
        known = [key for key in found if not key.revoked]
        if any(key.data == data for key in known):
            return True
        if not known:
            return False
        old = next((key for key in known if key.kind == kind), known[0])
        raise HostKeyRefused(
            f"host {host}: the key of {name} has CHANGED: it is now {kind} {fingerprint(data)}, "
            f"{old.place} knows {old.kind} {fingerprint(old.data)}. Somebody may be listening in, or the host was "
            f"installed anew. Only if you know why: `ssh-keygen -R '{name}' -f {old.place.rpartition(':')[0]}`"
        )

    def _load(self) -> None:
        stamp = _stamp(self.path)
        if stamp is not None and stamp == self._read:
            return
        entries = _Entries()
        for path in (self.path, *self._more):
            entries.read(path)
        self._entries, self._read = entries, stamp

    def _record(self, name: str, kind: str, data: str, host: str) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with at(str(self.path), last=True) as (folder, last):
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(last, flags, 0o600, dir_fd=folder)
            with os.fdopen(fd, "r+b", buffering=0) as file:
                fcntl.flock(fd, fcntl.LOCK_EX)
                self._read = None
                self._load()
                if self._verdict(name, kind, data, host):
                    return
                size = os.fstat(fd).st_size
                # One write while the file is locked: no reader ever sees half a line.
                whole = size == 0 or os.pread(fd, 1, size - 1) == b"\n"
                file.write(f"{'' if whole else chr(10)}{name} {kind} {data}\n".encode())
                os.fsync(fd)
            self._read = None
            self._load()
        except OSError as error:
            raise HostKeyRefused(
                f"host {host}: the key of {name} is new and cannot be recorded in {self.path}: {error.strerror}; "
                "make the file writable, or name another one with `knownHosts:`"
            ) from error


@once
def shared(path: Path) -> KnownHosts:
    """The one object for a file: it is read once however many hosts there are."""
    return KnownHosts(path, SYSTEM_FILE)


class _Entries:
    """Lines by name; those with wildcards and hashed names are looked through one by one."""

    def __init__(self) -> None:
        self._plain: dict[str, list[KnownKey]] = {}
        self._hashed: list[tuple[bytes, bytes, KnownKey]] = []
        self._patterns: list[tuple[list[str], KnownKey]] = []

    def read(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise HostKeyRefused(
                f"{path} cannot be read: {error.strerror}; it says which hosts can be trusted"
            ) from error
        for number, line in enumerate(text.splitlines(), 1):
            self._add(line.split(), f"{path}:{number}")

    def _add(self, words: list[str], place: str) -> None:
        if not words or words[0].startswith("#"):
            return
        marker = words.pop(0) if words[0].startswith("@") else ""
        # What an authority signed cannot be checked here, so its lines prove nothing.
        if marker not in ("", "@revoked") or len(words) < 3 or not _is_key(words[2]):
            return
        key = KnownKey(words[1], words[2], place, revoked=bool(marker))
        names = words[0].split(",")
        if words[0].startswith("|1|"):
            salt, _, digest = words[0][3:].partition("|")
            self._hashed.append((base64.b64decode(salt), base64.b64decode(digest), key))
        elif any(mark in words[0] for mark in "*?!"):
            self._patterns.append((names, key))
        else:
            for name in names:
                self._plain.setdefault(name.lower(), []).append(key)

    def find(self, name: str) -> list[KnownKey]:
        name = name.lower()
        found = list(self._plain.get(name, ()))
        found += (key for salt, digest, key in self._hashed if hmac.digest(salt, name.encode(), "sha1") == digest)
        found += (key for patterns, key in self._patterns if _matches(name, patterns))
        return found


def _matches(name: str, patterns: Iterable[str]) -> bool:
    matched = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        if fnmatch.fnmatchcase(name, "".join(_escaped(pattern.removeprefix("!").lower()))):
            if negated:
                return False
            matched = True
    return matched


def _escaped(pattern: str) -> Iterator[str]:
    for letter in pattern:
        yield "[[]" if letter == "[" else letter


def _is_key(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

"""Login settings of ~/.ssh and the inventory, combined."""

from __future__ import annotations

import getpass
import glob
import os
import re
import shlex
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Final

from kubexm_exec.connectors.ssh.keyfiles import check_readable, private_key, usable_key
from kubexm_exec.connectors.ssh.options import SshOptions, check_address
from kubexm_exec.control import once
from kubexm_exec.model.errors import ConnectorError
from kubexm_spec.models.hops import is_port

_DEEPEST: Final = 16
"""As deep as ssh goes; a file that includes itself ends there."""
_SETTING: Final = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")

Block = tuple[str, ...]
"""Conditions of `Match` that all hold for the lines below; none of them: they are for all hosts."""


def config_text(path: Path) -> str:
    """The text of a file with its `Include`s, whose relative names start beside it; OSError if it cannot be read."""
    return "\n".join(_lines(path, (), path.parent, 0))


def _lines(path: Path, within: Block, base: Path, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ConnectorError(f"{path} is included by files that include each other; correct `Include` in {base}")
    block = within
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read()
    for line in text.split("\n"):
        setting = _SETTING.match(line.strip())
        keyword, value = (setting[1].lower(), setting[2]) if setting else ("", "")
        if keyword == "include":
            for each in _included(value, path, base):
                yield from _lines(each, block, base, depth + 1)
                # The last block of what was included ends with it.
                yield _header(block)
        elif keyword in ("host", "match"):
            block = (*within, *_conditions(keyword, value))
            yield _header(block) if within else line
        else:
            yield line


def _included(value: str, path: Path, base: Path) -> Iterator[Path]:
    """The files that are meant and are there, in the order in which ssh reads them."""
    try:
        patterns = shlex.split(value, comments=True)
    except ValueError as error:
        raise ConnectorError(f"{path}: Include {value} cannot be read: {str(error).lower()}; correct it") from error
    for pattern in patterns:
        # pathlib's own glob would also find what begins with a dot, such as what an editor leaves behind.
        found = glob.glob(str(Path(pattern).expanduser()), root_dir=base)  # noqa: PTH207
        yield from (base / name for name in sorted(found) if (base / name).is_file())


def _conditions(keyword: str, value: str) -> Block:
    """A block's head as conditions of `Match`: several of those can hold at once, of `Host` there is one."""
    if keyword == "host":
        return (f"originalhost {','.join(value.split())}",)
    words = value.lower().split()
    if words[-1] == "all" and {"canonical", "final"}.issuperset(words[:-1]):
        # It has to stand alone, and says nothing.
        return tuple(words[:-1])
    return (value,)


def _header(block: Block) -> str:
    return f"Match {' '.join(block)}" if block else "Host *"


_TOKEN: Final = re.compile("%[%hnpru]")
_ELSEWHERE: Final = re.compile(r"(?im)^[ \t]*(hostname|port|proxy|match|canonical|bind|addressfamily)")
"""Settings, or the beginnings of them, that decide how a host is reached."""
SSH_PORT: Final = 22


def key_files(options: SshOptions, connection: Any, *, target: bool) -> list[str]:
    """The key files of the SSH configuration that are there; none if there is a password, which is meant to be used."""
    if target and options.password is not None and not options.has_key:
        return []
    configured = connection.ssh_config.get("identityfile", [])
    certificate = connection.ssh_config.get("certificatefile")
    certificates = [certificate] if isinstance(certificate, str) else certificate or []
    return [str(path) for name in (*certificates, *configured) if _is_there(path := Path(name).expanduser())]


def _is_there(path: Path) -> bool:
    """Whether a file exists, even if it cannot be read: only missing ones are skipped."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def authentication(options: SshOptions, connection: Any, configured: list[str], *, target: bool) -> dict[str, Any]:
    """Keys and passwords for paramiko; what the inventory names goes before ``configured``, the SSH configuration's."""
    only = connection.ssh_config.get("identitiesonly", "no").lower() == "yes"
    given: dict[str, Any] = {"allow_agent": not only, "look_for_keys": not configured}
    first: list[str] = []
    if target:
        if options.private_key is not None:
            given.update(pkey=usable_key(options), look_for_keys=False)
        elif options.private_key_path is not None:
            path = Path(options.private_key_path).expanduser()
            check_readable(path, options.name)
            first = [str(path)]
            given["look_for_keys"] = False
        elif options.password is not None:
            # A given password is meant to be used: further keys would only use up the attempts that the host allows.
            given.update(allow_agent=False, look_for_keys=False)
        given.update(password=options.password, passphrase=options.passphrase)
    # As paramiko does it: a password may be meant for the key.
    passphrase = given.get("passphrase") or given.get("password")
    # paramiko must not see a file that is no key: it would not say which one it is, and the other keys may do.
    files = [*first, *(path for path in configured if private_key(path, passphrase) is not None)]
    if "pkey" in given:
        if files:
            given["key_filename"] = files
        return given
    key = private_key(files[0], passphrase) if files else None
    if key is not None:
        given["pkey"] = key
    if key is not None or first:
        files = files[1:]
    if files:
        given["key_filename"] = files
    return given


def ssh_config() -> Any:
    """The user's and the machine's SSH configuration, read once."""
    return _read_config(os.environ.get("HOME"))


@once
def _texts(home: str | None) -> list[tuple[Path, str]]:
    """The files of the configuration that are there; ``home`` is only what the answer is remembered by."""
    found: list[tuple[Path, str]] = []
    for path in (Path.home() / ".ssh" / "config", Path("/etc/ssh/ssh_config")):
        try:
            found.append((path, config_text(path)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(path, error) from error
    return found


def is_redirecting() -> bool:
    """Whether the configuration may redirect any host to something other than its address."""
    try:
        return any(_ELSEWHERE.search(text) for _, text in _texts(os.environ.get("HOME")))
    except ConnectorError:
        return True  # whoever connects says so


def _unreadable(path: Path, error: Exception) -> ConnectorError:
    return ConnectorError(f"{path} cannot be read: {error}; correct it, ssh itself would stumble too")


@once
def _read_config(home: str | None) -> Any:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import RememberingConfig

    # paramiko puts the name into the commands of ProxyCommand and Match exec as it is.
    config = RememberingConfig(check_address, _check_port)
    for path, text in _texts(home):
        try:
            config.parse(StringIO(text))
        except paramiko.ssh_exception.ConfigParseError as error:
            raise _unreadable(path, error) from error
    return config


def _check_port(host: str, found: Any) -> None:
    """Refuse an impossible port in the SSH configuration of a host."""
    port = found.get("port")
    if port is not None and not is_port(port):
        raise ConnectorError(
            f"the SSH configuration says Port {port} for {host}, and a port is a number from 1 to 65535; "
            "correct it in ~/.ssh/config or /etc/ssh/ssh_config"
        )


def expanded(command: str, host: str, options: SshOptions, found: Any) -> str:
    """The command with %h, %n, %p, %r and %u filled in, each as one word of a shell; %% is a percent sign."""
    local = getpass.getuser()
    values = {
        "%h": found.get("hostname", host),
        "%n": host,
        "%p": options.port or found.get("port", 22),
        "%r": options.user or found.get("user") or local,
        "%u": local,
    }
    return _TOKEN.sub(lambda token: "%" if token[0] == "%%" else shlex.quote(str(values[token[0]])), command)


def bare(hop: str) -> str:
    """The host of ``user@host:port``."""
    host = hop.rpartition("@")[2]
    return host if host.count(":") > 1 else host.partition(":")[0]

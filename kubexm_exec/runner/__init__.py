"""What a step can do on its host: commands, files, archives and parts of the system, over any connector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kubexm_exec.connectors.base import Command, Connector, OnOutput
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.runner import commands
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.operations import Files
from kubexm_exec.runner.files.probe import Held
from kubexm_exec.runner.quote import join, quote, script
from kubexm_exec.runner.session import Ahead, OnProgress, Session
from kubexm_exec.runner.transfers import Transfers

if TYPE_CHECKING:
    from kubexm_exec.runner.files.archives import Entry, Format, Unpacking
    from kubexm_exec.runner.files.downloads import Downloads
    from kubexm_exec.runner.files.trees import Trees
    from kubexm_exec.runner.packages import Packages
    from kubexm_exec.runner.system.boot import Boot
    from kubexm_exec.runner.system.certificates import Trust
    from kubexm_exec.runner.system.cron import Crontabs
    from kubexm_exec.runner.system.firewall import Firewalls
    from kubexm_exec.runner.system.git import Git
    from kubexm_exec.runner.system.kernel import Kernel
    from kubexm_exec.runner.system.keys import Keys
    from kubexm_exec.runner.system.mounts import MountTable
    from kubexm_exec.runner.system.names import System
    from kubexm_exec.runner.system.services import Services
    from kubexm_exec.runner.system.swap import SwapSpace
    from kubexm_exec.runner.system.units import Units
    from kubexm_exec.runner.system.users import Users
    from kubexm_exec.runner.system.web import HostWeb

__all__ = ["Command", "CommandResult", "FileState", "Held", "Runner", "join", "quote"]


def _part(module: str, name: str) -> Any:
    """A part of a runner, whose module is imported when it is first used."""

    def make(runner: Runner) -> Any:
        return getattr(import_module(f"kubexm_exec.runner.{module}"), name)(runner._session)

    return cached_property(make)


class Runner(Files):
    """An action's access to its host. Everything ends with the action's deadline or cancel; failures are StepFailed."""

    def __init__(
        self,
        connector: Connector,
        deadline: Deadline | None = None,
        cancel: Cancel | None = None,
        on_output: OnOutput | None = None,
        sensitive: bool = False,
        become: str = "",
        facts: Callable[[], Mapping[str, Any]] | None = None,
        transfers: Transfers | None = None,
        on_progress: OnProgress | None = None,
        forget: Callable[[], None] | None = None,
        ahead: Ahead | None = None,
        looking: Callable[[], bool] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            Session(
                connector,
                deadline or Deadline(),
                cancel or Cancel(),
                on_output,
                sensitive,
                become,
                facts,
                transfers or Transfers(),
                on_progress,
                forget,
                ahead,
                looking,
                env=env or {},
            )
        )

    # commands

    def run(
        self,
        command: Command | Sequence[str],
        *,
        check: bool = True,
        expect: Collection[int] = (0,),
        live: bool = True,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command (an argument vector, or a Command) to its end.

        With ``check`` an exit code that is not in ``expect`` is a StepFailed. ``live`` shows its output while it runs:
        leave it off for questions that only the step asks.
        """
        if not isinstance(command, Command):
            command = Command(argv=tuple(command))
        return commands.execute(self._session, command, check=check, expect=expect, live=live, timeout=timeout)

    def shell(
        self,
        body: str,
        *arguments: str,
        stdin: bytes | None = None,
        check: bool = True,
        expect: Collection[int] = (0,),
        live: bool = True,
        max_output: int = 1 << 20,
    ) -> CommandResult:
        """Run a fixed piece of POSIX shell. Data goes into ``arguments`` (``"$1"``, ``"$2"``), never into the text."""
        command = script(body, *arguments, stdin=stdin, max_output=max_output)
        return commands.execute(self._session, command, check=check, expect=expect, live=live)

    def show(self, text: str) -> None:
        """Show a text like the output of a command."""
        if self._session.on_output is not None and not self._session.sensitive:
            self._session.on_output("stdout", text.encode("utf-8", "replace"))

    def display(self, command: Command) -> str:
        """A command for a message: short, and hidden if the step is sensitive."""
        return commands.display(self._session, command)

    def reconnect(self, timeout: float | None = None) -> str:
        """Drop the connection and the cached facts, and reconnect; returns why that failed, or nothing.

        For steps that change what the facts say, or the login. Other actions on the host lose their connection too.
        """
        from kubexm_exec.runner.system.boot import reconnect

        return reconnect(self._session, timeout)

    # archives

    def steady_archive(self, path: str) -> AbstractContextManager[str]:
        """The path to read an archive from that is read several times: a private copy, if others may change it."""
        from kubexm_exec.runner.files import archives

        return archives.steady(self._session, path)

    def archive_entries(self, path: str, fmt: Format, *, strip: int = 0, special: bool = False) -> list[Entry]:
        """The entries of an archive on the host; an archive that would write outside its folder is refused.

        So is one with devices, pipes, or programs that run as another user, unless ``special`` allows them.
        """
        from kubexm_exec.runner.files import archives

        return archives.checked(archives.entries_on_host(self._session, path, fmt), path, strip, special=special)

    def archive_matches(self, path: str, fmt: Format, folder: str, entries: Sequence[Entry], *, strip: int = 0) -> bool:
        """Whether the files in a folder have the same content as those in the archive."""
        from kubexm_exec.runner.files import archives

        names = [entry.name for entry in entries if entry.kind == "file"]
        return archives.same_content(self._session, path, fmt, strip, folder, names)

    def archive_digests(self, path: str, fmt: Format, entries: Sequence[Entry], names: Collection[str]) -> list[Entry]:
        """The entries, those with these names with their digests if the host can compute them."""
        from kubexm_exec.runner.files import archives

        return archives.with_digests(self._session, path, fmt, entries, names)

    def unpack(self, path: str, folder: str, fmt: Format, how: Unpacking | None = None) -> None:
        """Unpack an archive on the host into an existing folder. List it first: that refuses dangerous ones."""
        from kubexm_exec.runner.files import archives

        archives.unpack(self._session, path, folder, fmt, how or archives.Unpacking())

    def give_away(self, paths: Sequence[str], owner: str) -> None:
        """Change the owner (``user``, ``:group`` or ``user:group``) of many files, links and folders."""
        from kubexm_exec.runner.files import archives

        archives.give_away(self._session, paths, owner)

    def pack(self, folder: str, path: str, fmt: Format, *, mode: int | None = None) -> None:
        """Pack the content of a folder into an archive, atomically; without a mode, a new one is 0600."""
        from kubexm_exec.runner.files import archives

        archives.pack(self._session, folder, path, fmt, mode)

    def is_packed(self, folder: str, path: str, fmt: Format) -> bool:
        """Whether an archive has exactly the current content of a folder."""
        from kubexm_exec.runner.files import archives

        return archives.is_packed(self._session, folder, path, fmt)

    # parts of the system

    @cached_property
    def services(self) -> Services:
        """Services, by systemd or openrc."""
        from kubexm_exec.runner.system.services import services

        return services(self._session)

    boot: Boot = _part("system.boot", "Boot")
    """Reboots."""
    downloads: Downloads = _part("files.downloads", "Downloads")
    """Files that the host downloads itself."""
    kernel: Kernel = _part("system.kernel", "Kernel")
    """Settings and modules of the running kernel."""
    mounts: MountTable = _part("system.mounts", "MountTable")
    """Mounted file systems."""
    swap: SwapSpace = _part("system.swap", "SwapSpace")
    """Swap space."""
    system: System = _part("system.names", "System")
    """The name of the host, and its hosts file."""
    packages: Packages = _part("packages", "Packages")
    """Packages, by the package manager of the host."""
    trees: Trees = _part("files.trees", "Trees")
    """Folders with all their content."""
    users: Users = _part("system.users", "Users")
    """Users and groups."""
    keys: Keys = _part("system.keys", "Keys")
    """Authorized keys of users."""
    units: Units = _part("system.units", "Units")
    """Unit files of systemd."""
    crontabs: Crontabs = _part("system.cron", "Crontabs")
    """Tables of cron."""
    trust: Trust = _part("system.certificates", "Trust")
    """The certificates that the host trusts."""
    firewall: Firewalls = _part("system.firewall", "Firewalls")
    """Openings in the firewall."""
    web: HostWeb = _part("system.web", "HostWeb")
    """Requests that the host sends itself."""
    git: Git = _part("system.git", "Git")
    """Checkouts of git repositories."""

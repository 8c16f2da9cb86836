"""What a step can do on its host: commands, operations, folders, links and archives, over any connector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kubexm_exec.connectors.base import Command, Connector, OnOutput
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.runner import commands
from kubexm_exec.runner.files import fetching, operations, transfer
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.files.operations import READ_LIMIT
from kubexm_exec.runner.files.probe import Held
from kubexm_exec.runner.quote import join, quote, script
from kubexm_exec.runner.session import Ahead, OnProgress, Session
from kubexm_exec.runner.transfers import Source, Transfers

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

__all__ = ["Command", "CommandResult", "FileState", "Held", "Runner", "join", "quote"]


class Runner:
    """One action's hands on its host. All ends with the action's deadline or cancellation; failures are StepFailed."""

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
    ) -> None:
        self._session = Session(
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
        """Show a text to those who watch, as if a command had printed it."""
        if self._session.on_output is not None and not self._session.sensitive:
            self._session.on_output("stdout", text.encode("utf-8", "replace"))

    def display(self, command: Command) -> str:
        """A command for a message: short, and nothing of it if the step is sensitive."""
        return commands.display(self._session, command)

    def reconnect(self, timeout: float | None = None) -> str:
        """Drop the host's connection and its facts, and connect anew; says why that did not work, or nothing.

        For steps after which the host is another one. Whatever else runs on the host at the time loses its connection.
        """
        from kubexm_exec.runner.system.boot import reconnect

        return reconnect(self._session, timeout)

    # what is there

    def inspect(self, path: str, *, digest: bool = True) -> FileState:
        """What is at a path, with the sha256 of a file's content unless ``digest`` is off."""
        return self.inspect_all([path], digest=digest)[0]

    def inspect_all(self, paths: Sequence[str], *, digest: bool = True) -> list[FileState]:
        """What is at each of many paths, with one command for hundreds of them."""
        ask = partial(inspect, self._session)
        ahead = self._session.ahead
        return ask(paths, digest=digest) if ahead is None else ahead.inspect(paths, ask, digest=digest)

    def missing_folders(self, path: str, seen: FileState | None = None) -> list[str]:
        """The folder and those above it that do not exist, topmost first.

        ``seen`` is what ``inspect`` has said of it, or of something in it: the host is not asked again.
        """
        return operations.missing_folders(self._session, path, seen)

    def resolve(self, path: str) -> str:
        """The path with all links in it followed; one that another user could have made is a failure."""
        return operations.resolve(self._session, path)

    def follow(self, path: str) -> str:
        """The path with all links in it followed, whoever made them: for specs that say so."""
        return operations.follow(self._session, path)

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """The bytes of a file that is not larger than the limit."""
        return operations.read_bytes(self._session, path, limit=limit)

    def read_text(self, path: str, *, limit: int = READ_LIMIT) -> str:
        """The text (UTF-8) of a file that is not larger than the limit."""
        return operations.read_text(self._session, path, limit=limit)

    def read_to_edit(self, path: str) -> bytes:
        """The bytes of a file that will be written again; refused if another user could have led that name to it."""
        return operations.read_to_edit(self._session, path)

    def content(self, state: FileState, *, limit: int = READ_LIMIT) -> bytes:
        """The bytes of a file as ``inspect`` has seen it; those of a small one are read once an action."""
        return operations.content(self._session, state, limit=limit)

    def attributes(self, state: FileState, *, ask: bool = True) -> Mapping[str, str] | None:
        """The extended attributes of a file (ACL, capabilities, label), for ``write_with``; None: the host cannot tell.

        They come with the content if that was read before; without ``ask`` only then.
        """
        return operations.attributes_of(self._session, state, ask=ask)

    # changes

    def write_with(
        self, path: str, data: bytes, *, mode: int, owner: str, group: str, attributes: Mapping[str, str]
    ) -> None:
        """Write a file with the extended attributes that it had; owner and group are numbers."""
        from kubexm_exec.runner.files import attributes as extended

        extended.write(self._session, path, data, mode, int(owner), int(group), attributes)

    def write(
        self,
        path: str,
        data: bytes | str | BinaryIO,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
    ) -> None:
        """Write a file atomically; a file that is replaced keeps its mode and owner unless given, a new one is 0644."""
        operations.write(self._session, path, data, mode=mode, owner=owner, group=group)

    def source(self, local: Path) -> Source:
        """A file on the control node with its size and sha256, which is computed once a run."""
        return transfer.source_of(self._session, local)

    def send(
        self,
        local: Path,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        known: FileState | None = None,
    ) -> bool:
        """Make a file hold what a file of the control node holds; returns whether anything was changed.

        What is the same already is not sent; mode and owner are then only changed where they are given. A large file
        waits for its turn, shows its progress, and goes on where an earlier try was cut. ``known`` is what ``inspect``
        has said of the path.
        """
        return operations.bring(self._session, local, transfer.Target(path, mode, owner, group), known)

    def fetch(self, state: FileState, local: Path, *, mode: int = 0o644) -> FileState:
        """Bring a file that ``inspect`` has seen to the control node; gives the file as it was when it was read."""
        return fetching.fetch(self._session, state, local, mode=mode)

    def mkdir(
        self,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        parents: bool = True,
        exact: bool = False,
        missing: Sequence[str] | None = None,
    ) -> list[str]:
        """Make a folder (0755 unless given) and those above it; returns what was made, topmost first.

        With ``exact`` it does not have the set-group-id bit from the one above. ``missing`` is what ``missing_folders``
        has said of the path, if it was asked before.
        """
        return operations.mkdir(
            self._session, path, mode=mode, owner=owner, group=group, parents=parents, exact=exact, missing=missing
        )  # fmt: skip

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty folder, or with ``recursive`` a folder with all that is in it."""
        operations.remove(self._session, path, recursive=recursive)

    def remove_empty(self, folders: Sequence[str]) -> list[str]:
        """Remove those of the folders that are empty, the last one first; gives those that stay, in that order."""
        return operations.remove_empty(self._session, folders)

    def symlink(self, target: str, path: str) -> None:
        """Make a link, atomically in place of another link or file."""
        operations.symlink(self._session, target, path)

    def chmod(self, path: str, mode: int) -> None:
        """Change the mode."""
        operations.chmod(self._session, path, mode)

    def chown(self, path: str, owner: str | None = None, group: str | None = None) -> None:
        """Change the owner, the group or both."""
        operations.chown(self._session, path, owner, group)

    def rename(self, source: str, target: str) -> None:
        """Rename, in place of a file of the new name."""
        operations.rename(self._session, source, target)

    def temporary_folder(self) -> AbstractContextManager[str]:
        """A folder on the host that only we can enter; at the end of the ``with`` it is removed, whatever happened."""
        return operations.temporary_folder(self._session)

    # archives

    def steady_archive(self, path: str) -> AbstractContextManager[str]:
        """Where to read an archive that is looked at more than once: a copy of our own, if others may change it."""
        from kubexm_exec.runner.files import archives

        return archives.steady(self._session, path)

    def archive_entries(self, path: str, fmt: Format, *, strip: int = 0, special: bool = False) -> list[Entry]:
        """What an archive on the host would unpack; one that would write outside its folder is refused.

        Also one with devices, pipes, and programs that run as somebody else, unless ``special`` allows them.
        """
        from kubexm_exec.runner.files import archives

        return archives.checked(archives.entries_on_host(self._session, path, fmt), path, strip, special=special)

    def archive_matches(self, path: str, fmt: Format, folder: str, entries: Sequence[Entry], *, strip: int = 0) -> bool:
        """Whether the operations in a folder hold what the archive's operations hold."""
        from kubexm_exec.runner.files import archives

        names = [entry.name for entry in entries if entry.kind == "file"]
        return archives.same_content(self._session, path, fmt, strip, folder, names)

    def archive_digests(self, path: str, fmt: Format, entries: Sequence[Entry], names: Collection[str]) -> list[Entry]:
        """The entries with the digests of those of these names, where the host can tell them."""
        from kubexm_exec.runner.files import archives

        return archives.with_digests(self._session, path, fmt, entries, names)

    def unpack(self, path: str, folder: str, fmt: Format, how: Unpacking | None = None) -> None:
        """Unpack an archive on the host into a folder that is there. List it first: that refuses dangerous ones."""
        from kubexm_exec.runner.files import archives

        archives.unpack(self._session, path, folder, fmt, how or archives.Unpacking())

    def give_away(self, paths: Sequence[str], owner: str) -> None:
        """Change the owner (``user``, ``:group`` or ``user:group``) of many operations, links and folders."""
        from kubexm_exec.runner.files import archives

        archives.give_away(self._session, paths, owner)

    def pack(self, folder: str, path: str, fmt: Format, *, mode: int | None = None) -> None:
        """Pack all that is in a folder into an archive, atomically; without a mode, a new one is 0600."""
        from kubexm_exec.runner.files import archives

        archives.pack(self._session, folder, path, fmt, mode)

    def is_packed(self, folder: str, path: str, fmt: Format) -> bool:
        """Whether an archive holds just what is in a folder now."""
        from kubexm_exec.runner.files import archives

        return archives.is_packed(self._session, folder, path, fmt)

    # parts of the system; each is imported only where it is used

    @cached_property
    def boot(self) -> Boot:
        """The host's boots."""
        from kubexm_exec.runner.system.boot import Boot

        return Boot(self._session)

    @cached_property
    def downloads(self) -> Downloads:
        """Files that the host fetches itself."""
        from kubexm_exec.runner.files.downloads import Downloads

        return Downloads(self._session)

    @cached_property
    def kernel(self) -> Kernel:
        """Settings and modules of the running kernel."""
        from kubexm_exec.runner.system.kernel import Kernel

        return Kernel(self._session)

    @cached_property
    def mounts(self) -> MountTable:
        """Mounted file systems."""
        from kubexm_exec.runner.system.mounts import MountTable

        return MountTable(self._session)

    @cached_property
    def swap(self) -> SwapSpace:
        """Swap space."""
        from kubexm_exec.runner.system.swap import SwapSpace

        return SwapSpace(self._session)

    @cached_property
    def system(self) -> System:
        """The host's own name, and the names that it knows."""
        from kubexm_exec.runner.system.names import System

        return System(self._session)

    @cached_property
    def packages(self) -> Packages:
        """Packages, by the host's package manager."""
        from kubexm_exec.runner.packages import Packages

        return Packages(self._session)

    @cached_property
    def trees(self) -> Trees:
        """Folders with all that is in them."""
        from kubexm_exec.runner.files.trees import Trees

        return Trees(self._session)

    @cached_property
    def users(self) -> Users:
        """Users and groups."""
        from kubexm_exec.runner.system.users import Users

        return Users(self._session)

    @cached_property
    def keys(self) -> Keys:
        """The keys that let users in."""
        from kubexm_exec.runner.system.keys import Keys

        return Keys(self._session)

    @cached_property
    def services(self) -> Services:
        """Services, by systemd or openrc."""
        from kubexm_exec.runner.system.managers import services

        return services(self._session)

    @cached_property
    def units(self) -> Units:
        """Unit operations of systemd."""
        from kubexm_exec.runner.system.units import Units

        return Units(self._session)

    @cached_property
    def crontabs(self) -> Crontabs:
        """Tables of cron."""
        from kubexm_exec.runner.system.cron import Crontabs

        return Crontabs(self._session)

    @cached_property
    def trust(self) -> Trust:
        """The certificates that the host trusts."""
        from kubexm_exec.runner.system.certificates import Trust

        return Trust(self._session)

    @cached_property
    def firewall(self) -> Firewalls:
        """Openings in the host's firewall."""
        from kubexm_exec.runner.system.firewall import Firewalls

        return Firewalls(self._session)

    @cached_property
    def git(self) -> Git:
        """Checkouts of git repositories."""
        from kubexm_exec.runner.system.git import Git

        return Git(self._session)

"""The step type ``archive``: unpack an archive into a folder, or pack a folder into one."""

from __future__ import annotations

import hashlib
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Struct
from pydantic import Field

from kubexm_exec.step import RESOURCE, Diff, Forecast, LocalFile, Outputs, Result, StepContext, StepFailed
from kubexm_exec.step.archives import Entry, EntryKind, Format, Unpacking, checked, format_of, special_bits, unpacked
from kubexm_exec.step.host import FileState
from kubexm_spec.diagnostics import plural
from kubexm_steps.lib.files import (
    Change,
    Content,
    RestoringStep,
    Wanted,
    lacks_folder,
    local_failure,
    remember,
    remember_left,
    stream_digest,
)
from kubexm_steps.lib.trees import MOST_DIFFS
from kubexm_steps.lib.types import Account, FollowParams, HostPath, Mode, located, refuse, show_owner


class ArchiveParams(FollowParams):
    """Parameters of ``archive``."""

    path: HostPath = Field(description="Folder to unpack into; with `action: pack` the archive to write.")
    src: HostPath | None = Field(None, description="Archive on the host; with `action: pack` the folder to pack.")
    local_src: Annotated[str | None, LocalFile()] = Field(
        None,
        description="Archive on the control node (or `resource:NAME`), instead of `src`; sent only if needed.",
    )
    action: Literal["unpack", "pack"] = Field("unpack", description="Whether to unpack or to pack.")
    format: Format | None = Field(
        None, description="Format of the archive, if its name does not tell. `zip` can only be unpacked."
    )
    strip_components: int = Field(
        0, ge=0, description="Number of leading path components to strip from names in a tar archive, as in `tar`."
    )
    sha256: str | None = Field(
        None, pattern="^[0-9a-fA-F]{64}$", description="Digest that the archive must have before it is unpacked."
    )
    creates: HostPath | None = Field(
        None, description="Do nothing if this path exists. Faster than comparing everything, but less exact."
    )
    owner: Account | None = Field(
        None, description="Owner of unpacked files; by default the user that kubexm works as."
    )
    group: Account | None = Field(None, description="Group of unpacked files.")
    mode: Mode | None = Field(
        None,
        description="Mode of the packed archive. By default an existing archive keeps its mode, and a new one is "
        "`0600`, because its content may not be public.",
    )
    create_parents: bool = Field(False, description="Create missing parent folders of `path` (0755).")
    allow_special: bool = Field(
        False,
        description="Also unpack setuid and setgid files, devices, pipes and sockets. By default an archive that "
        "contains any of them is refused.",
    )
    follow: bool = Field(
        False,
        description="Follow links: in the path to `path` even where other users can write, and in `path` where the "
        "archive has a folder. By default both are a failure.",
    )

    def model_post_init(self, context: object) -> None:
        if (self.src is None) == (self.local_src is None):
            raise ValueError("archive takes either src (on the host) or localSrc (on the control node)")
        if self.action == "pack":
            unpacking = ("local_src", "strip_components", "sha256", "owner", "group", "allow_special")
            refuse(self, unpacking, "`action: pack`")
        elif self.mode is not None:
            raise ValueError("mode goes with `action: pack` only: what is unpacked has the modes in the archive")
        name = self.path if self.action == "pack" else self.src or self.local_src or ""
        zipped = self.format == "zip" or (self.format is None and name.lower().endswith(".zip"))
        if zipped and self.action == "pack":
            raise ValueError("zip archives can be unpacked, not packed; choose tar.gz or tar.xz")
        if zipped and self.strip_components:
            raise ValueError("stripComponents works with tar archives only")


class ArchiveOutputs(Outputs):
    path: str = Field(description="The folder, or the packed archive.")
    entries: int = Field(0, description="Number of entries in the archive; 0 after packing, or if `creates` existed.")


class _Plan(Struct, frozen=True):
    entries: list[Entry]
    changes: list[Change]
    folders: list[str]
    foreign: list[Change]
    """What has the right content but another owner."""
    names: Mapping[str, bool]
    """Of each name in the archive but those of folders, whether it is put in place; else it stays as it is."""

    @property
    def any(self) -> bool:
        return bool(self.changes or self.folders or self.foreign)

    def summary(self) -> str:
        new = sum(change.before.kind == "absent" for change in self.changes) + len(self.folders)
        parts = [
            (new, "new"),
            (len(self.changes) + len(self.folders) - new, "replaced"),
            (len(self.foreign), "given away"),
        ]
        return ", ".join(f"{count} {word}" for count, word in parts if count)


class Seen(NamedTuple):
    """What is at the path and what the source on the host is, missing folders, and what unpacking would change."""

    before: FileState
    source: str
    above: Sequence[str] = ()
    plan: _Plan | None = None


class ArchiveStep(RestoringStep[ArchiveParams, Seen]):
    """An archive unpacked into a folder, or a folder packed into an archive.

    Formats: `tar`, `tar.gz`, `tar.xz`, `tar.bz2` with the host's `tar`, and `zip` with its `unzip`.

    - Existing files with the same content are left as they are; permissions are not compared.
    - An archive with names that lead out of the folder (`../`, absolute, through its own links) is refused as a whole;
      so is one with setuid programs or devices, unless `allowSpecial: true`.
    - It is first unpacked next to its destination, then moved there file by file. A link in place of a file is
      replaced; a link in place of a folder is a failure, unless `follow: true`.
    - Unpacked files belong to the user that kubexm works as, or to `owner` and `group`, never to those in the archive.
    - Packing is repeated only if names, modes, owners, times or content in the folder have changed.
    - Undo removes new files and restores replaced ones (up to 64 MiB).
    """

    outputs_model = ArchiveOutputs
    example = """\
- name: etcd
  type: archive
  with:
    src: /var/cache/etcd-v3.5.16-linux-amd64.tar.gz
    path: /opt/etcd
    stripComponents: 1
    creates: /opt/etcd/etcd
"""

    _file = ""
    """The name of the file of a resource: it tells the kind of archive."""
    _source = ""
    """Where the archive on the host is read."""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        self._learn(ctx)
        params = self.params
        if params.creates is not None and ctx.runner.inspect(params.creates, digest=False).exists:
            return Forecast.satisfied(f"{params.creates} exists", self._outputs(0))
        folder = posixpath.dirname(params.path)
        sources = [] if params.src is None else [params.src]
        before, *there = ctx.runner.inspect_all([params.path, *sources], digest=False)
        seen = Seen(before, "".join(source.kind for source in there))
        if seen.source == "absent":
            return Forecast.unknown(f"{params.src} does not exist yet", seen=seen)
        if before.above and not params.create_parents:
            return lacks_folder(params.path, seen)
        if not before.folder and params.create_parents:
            seen = seen._replace(above=ctx.runner.missing_folders(folder, before))
        if params.action == "pack":
            self._refuse_to_pack(seen)
            same = ctx.runner.is_packed(params.src or "", params.path, self._format)
            if same and params.mode in (None, before.mode):
                return Forecast.satisfied(f"{params.path} is up to date with {params.src}", self._outputs(0))
            diff = Diff(params.path, note="packed")
            return Forecast.change(f"would pack {params.src} into {params.path}", [diff], seen=seen)
        plan = self._plan(ctx)
        if not plan.any:
            return Forecast.satisfied(f"{params.path} is up to date", self._outputs(len(plan.entries)))
        seen = seen._replace(plan=plan)
        return Forecast.change(f"would unpack {self._name} into {params.path}", self._diffs(plan), seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        seen, src = forecast.seen, self.params.src
        if self.params.action == "pack":
            return self._pack(ctx, seen)
        if src is None:
            return self._unpack(ctx, seen)
        # What is checked is what is unpacked: a copy is looked at once more.
        with ctx.runner.steady_archive(src) as self._source:
            return self._unpack(ctx, seen if self._source == src else seen._replace(plan=None))

    def _diffs(self, plan: _Plan) -> list[Diff]:
        """What comes, and by name what is there and will be another, the first ones of many."""
        path = self.params.path
        replaced = [change.before.path for change in plan.changes if change.before.exists]
        diffs = [Diff(path, note=f"{plural(len(plan.entries), 'entry')}: {plan.summary()}")]
        diffs += [Diff(each, note="replaced") for each in replaced[:MOST_DIFFS]]
        rest = len(replaced) - MOST_DIFFS
        return [*diffs, Diff(path, note=f"and {rest} more replaced")] if rest > 0 else diffs

    def _learn(self, ctx: StepContext) -> None:
        self.params = located(ctx, self.params, last=self.params.action == "unpack")
        if self.params.follow and self.params.src is not None:
            self.params = self.params.model_copy(update={"src": ctx.runner.follow(self.params.src)})
        source = self.params.local_src or ""
        if source.startswith(RESOURCE):
            self._file = ctx.resource(source.removeprefix(RESOURCE)).filename
        self._source = self.params.src or ""

    def _unpack(self, ctx: StepContext, seen: Seen) -> Result:
        params = self.params
        plan = seen.plan or self._plan(ctx)
        undo = remember(ctx, [*plan.changes, *plan.foreign], [*seen.above, *plan.folders])
        if params.path in plan.folders:
            ctx.runner.mkdir(
                params.path, owner=params.owner, group=params.group, parents=params.create_parents,
                missing=[*seen.above, params.path] if seen.plan else None,
            )  # fmt: skip
        if plan.changes or plan.folders:
            ctx.progress(f"unpack {self._name}")
            self._extract(ctx, plan)
        self._give_away(ctx, plan)
        remember_left(ctx, undo, [*seen.above, *plan.folders])
        return Result(
            message=f"unpacked {self._name} into {params.path} ({plan.summary()})",
            outputs=self._outputs(len(plan.entries)),
        )

    def _extract(self, ctx: StepContext, plan: _Plan) -> None:
        params = self.params
        how = Unpacking(params.strip_components, self._owner, params.allow_special, params.follow, plan.names)
        if params.src is not None:
            ctx.runner.unpack(self._source, params.path, self._format, how)
            return
        with ctx.runner.temporary_folder() as folder:
            sent = f"{folder}/archive"
            with ctx.local_path(params.local_src or "").open("rb") as file:
                ctx.runner.write(sent, file, mode=0o600)
            ctx.runner.unpack(sent, params.path, self._format, how)

    def _refuse_to_pack(self, seen: Seen) -> None:
        if seen.source != "directory":
            raise StepFailed(f"pack {self.params.src}: there is no such folder", hint="`src` is a folder on the host")
        if seen.before.kind in ("directory", "other"):
            raise StepFailed(f"pack {self.params.path}: it is there and not a file", hint="choose another path")

    def _pack(self, ctx: StepContext, seen: Seen) -> Result:
        params = self.params
        folder = params.src or ""
        self._refuse_to_pack(seen)
        undo = remember(ctx, [_replaced(seen.before)], seen.above)
        if seen.above:
            ctx.runner.mkdir(seen.above[-1], missing=seen.above)
        ctx.runner.pack(folder, params.path, self._format, mode=params.mode)
        remember_left(ctx, undo, seen.above)
        return Result(message=f"packed {folder} into {params.path}", outputs=self._outputs(0))

    def _plan(self, ctx: StepContext) -> _Plan:
        params = self.params
        entries = self._entries(ctx)
        paths = self._by_path(entries)
        folders = [path for path in _folders_of(paths, params.path) if path not in paths]
        states = ctx.runner.inspect_all([*folders, *paths], digest=params.local_src is not None)
        for state in states:
            self._refuse(state, paths.get(state.path))
        same = {state.path for state in states if state.path in paths and _is_same(paths[state.path], state)}
        if params.src is not None:
            same |= self._same_on_host(ctx, entries, paths, states)
        changes: list[Change] = []
        foreign: list[Change] = []
        missing: list[str] = []
        names: dict[str, bool] = {}
        for state in states:
            entry = paths.get(state.path)
            if entry is not None and entry.kind != "directory":
                names[entry.name] = state.path not in same
            if entry is not None and names.get(entry.name):
                changes.append(_replaced(state))
            elif not state.exists:
                missing.append(state.path)
            elif entry is not None and not state.owned_by(params.owner, params.group):
                foreign.append(Change(Wanted(state.path, None), state, state.mode, False, False, True, becomes=""))
        return _Plan(entries, changes, sorted(missing, key=lambda path: path.count("/")), foreign, names)

    def _by_path(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        return {posixpath.join(self.params.path, name): entry for name, entry in unpacked(entries).items()}

    def _refuse(self, state: FileState, entry: Entry | None) -> None:
        """What is there and cannot be replaced by what is in the archive is a failure."""
        wanted_folder = entry is None or entry.kind == "directory"
        if wanted_folder and state.kind == "link" and state.path != self.params.path and not self.params.follow:
            raise StepFailed(
                f"unpack {self._name}: {state.path} is a link to {state.target}, but a folder in the archive",
                hint="its content would be written to the target of the link: remove the link, or set `follow: true`",
            )
        if (
            state.exists
            and (state.kind == "directory") != wanted_folder
            and not (wanted_folder and state.kind == "link")
        ):
            raise StepFailed(
                f"unpack {self._name}: {state.path} is {'not a folder' if wanted_folder else 'a folder'}, "
                f"but {'one' if wanted_folder else 'not'} in the archive",
                hint="remove it first, or choose another path",
            )
        if state.kind == "other" and entry is not None and entry.kind != "other":
            raise StepFailed(
                f"unpack {self._name}: {state.path} is a device, pipe or socket, but not in the archive",
                hint="remove it first, or choose another path",
            )

    def _same_on_host(
        self, ctx: StepContext, entries: list[Entry], paths: Mapping[str, Entry], states: Sequence[FileState]
    ) -> set[str]:
        """What is just as in an archive on the host, of that which only its content can tell."""
        alike = [state.path for state in states if state.path in paths and _may_be_same(paths[state.path], state)]
        if not alike:
            return set()
        source, strip = self._source, self.params.strip_components
        held = [entry.kind for entry in entries if entry.kind in ("file", "hardlink")]
        # Usually all of it is the same: that is found out at once, and of each by itself only if it is not so.
        plain = held == ["file"] * len(alike) and all(paths[path].kind == "file" for path in alike)
        if plain and ctx.runner.archive_matches(source, self._format, self.params.path, entries, strip=strip):
            return set(alike)
        names = {paths[path].name for path in alike}
        for entry in reversed(entries):
            if entry.kind == "hardlink" and entry.name in names:
                names.add(entry.target)
        known = self._by_path(ctx.runner.archive_digests(source, self._format, entries, names))
        return {state.path for state in ctx.runner.inspect_all(alike) if _is_same(known[state.path], state)}

    def _entries(self, ctx: StepContext) -> list[Entry]:
        """What will be unpacked; the digest of the archive is checked first."""
        params = self.params
        if params.src is not None:
            if params.sha256 is not None:
                self._verify(params.src, ctx.runner.inspect(self._source).sha256)
            return ctx.runner.archive_entries(
                self._source, self._format, strip=params.strip_components, special=params.allow_special
            )
        path: Path = ctx.local_path(params.local_src or "")
        if params.sha256 is not None:
            self._verify(str(path), Content.of_file(ctx, path).sha256)
        entries = local_entries(path, self._format)
        return checked(entries, str(path), params.strip_components, special=params.allow_special)

    def _verify(self, name: str, digest: str) -> None:
        wanted = (self.params.sha256 or "").lower()
        if digest != wanted:
            raise StepFailed(
                f"{name}: its sha256 is {digest or 'unknown'}, expected {wanted}",
                hint="it is damaged or another version: fetch it again, or correct `sha256`",
            )

    def _give_away(self, ctx: StepContext, plan: _Plan) -> None:
        """What was there and stays; what is unpacked comes with its owner."""
        if self._owner and plan.foreign:
            ctx.runner.give_away([change.before.path for change in plan.foreign], self._owner)

    @property
    def _owner(self) -> str:
        return show_owner(self.params.owner, self.params.group)

    @cached_property
    def _format(self) -> Format:
        name = self.params.path if self.params.action == "pack" else self._file or self._name
        return format_of(name, self.params.format)

    @property
    def _name(self) -> str:
        return self.params.src or self.params.local_src or ""

    def _outputs(self, entries: int) -> dict[str, Any]:
        return {"path": self.params.path, "entries": entries}


def _folders_of(paths: Mapping[str, Entry], top: str) -> list[str]:
    """The folder itself and those that the names go through, topmost first."""
    folders = {top: None}
    for path in paths:
        above: list[str] = []
        while (path := posixpath.dirname(path)) not in folders:
            above.append(path)
        folders.update(dict.fromkeys(reversed(above)))
    return list(folders)


def _is_same(entry: Entry, state: FileState) -> bool:
    """Whether it is there, and known to be the same."""
    match entry.kind:
        case "link" if entry.target:
            return state.kind == "link" and entry.target == state.target
        case "link":
            target = state.target.encode("utf-8", "surrogateescape")
            return state.kind == "link" and entry.sha256 == hashlib.sha256(target).hexdigest()
        case "file":
            return state.kind == "file" and entry.sha256 == state.sha256 != ""
        case kind:
            return state.kind == kind


def _may_be_same(entry: Entry, state: FileState) -> bool:
    """Whether it takes a digest to know that."""
    if entry.kind == "link":
        return state.kind == "link" and not entry.target
    return entry.kind == state.kind == "file" and entry.size == state.size


def _replaced(state: FileState) -> Change:
    return Change(Wanted(state.path, None), state, state.mode, True, False, False, becomes="")


def local_entries(path: Path, fmt: Format) -> list[Entry]:
    """Everything in a local archive, under the names it has in there."""
    try:
        return _zip_entries(path) if fmt == "zip" else _tar_entries(path)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, lzma.LZMAError, zlib.error) as error:
        raise StepFailed(
            f"{path}: not a readable {fmt} archive: {error}", hint="check that it is complete, such as with `sha256`"
        ) from error
    except OSError as error:
        raise local_failure("read", path, error) from error


def _tar_entries(path: Path) -> list[Entry]:
    entries = []
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile():
                file = tar.extractfile(member)
                assert file is not None
                entries.append(Entry(member.name, "file", stream_digest(file), special=special_bits(member.mode)))
            elif member.isdir():
                entries.append(Entry(member.name, "directory"))
            elif member.issym():
                entries.append(Entry(member.name, "link", "", member.linkname))
            else:
                special = "" if member.islnk() else "a device, a pipe or a socket"
                kind: EntryKind = "hardlink" if member.islnk() else "other"
                entries.append(Entry(member.name, kind, "", member.linkname, special))
    return entries


def _zip_entries(path: Path) -> list[Entry]:
    entries = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                entries.append(Entry(info.filename, "directory"))
            elif stat.S_ISLNK(info.external_attr >> 16):
                entries.append(Entry(info.filename, "link", "", archive.read(info).decode("utf-8", "surrogateescape")))
            else:
                special = special_bits(info.external_attr >> 16)
                with archive.open(info) as file:
                    entries.append(Entry(info.filename, "file", stream_digest(file), special=special))
    return entries

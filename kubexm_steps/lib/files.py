"""What every step that writes files has in common: what would change, how it is shown, done, and undone."""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Generic, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field
from typing_extensions import TypeVar

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, Step, StepContext, StepFailed, Undo
from kubexm_exec.step.host import Command, FileState
from kubexm_steps.lib.standing import attributes_of, file_left, files_standing, merge_files, state_left
from kubexm_steps.lib.types import NewContentParams, OneFileParams, WholeFileParams, show_mode

KEEP_LIMIT: Final = 64 << 20
"""Bytes of replaced content that one action keeps for its undo; beyond it, it cannot be undone."""
SHOWN_LIMIT: Final = 1 << 20
"""Bytes of a file that are read to show what changes in it."""
NEW_FILE: Final = 0o644
SECRET_FILE: Final = 0o600
HIDDEN: Final = "content hidden"
_WARNED: Final = "kubexm: said that extended attributes are not kept"
EMPTY: Final = hashlib.sha256(b"").hexdigest()


class FileOutputs(Outputs):
    """What later steps can know of the file."""

    path: str = Field(description="The file on the host.")
    sha256: str = Field("", description="Digest of its content; empty if it was removed or contains a secret.")
    size: int = Field(0, description="Its size in bytes.")


class NewContentOutputs(FileOutputs):
    """What they can know of a file whose old content may have been kept."""

    backup: str = Field("", description="Path of the backup; empty if none was made.")


class Content(Struct, frozen=True):
    """What a file should hold: bytes, or a file on the control node that is too large to be read at once."""

    sha256: str
    size: int
    data: bytes | None = None
    local: Path | None = None

    @classmethod
    def of(cls, data: bytes | str) -> Content:
        """These bytes, or this text."""
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return cls(hashlib.sha256(raw).hexdigest(), len(raw), raw)

    @classmethod
    def of_file(cls, ctx: StepContext, path: Path) -> Content:
        """What is in a file on the control node; it is read once a run."""
        source = ctx.runner.source(path)
        return cls(source.sha256, source.size, None, path)

    def text(self) -> str | None:
        """The text to show; None if it is none or too much."""
        if self.size > SHOWN_LIMIT:
            return None
        return as_text(self.data if self.local is None else self.local.read_bytes())


class Wanted(Struct, frozen=True):
    """A file as it should be. Content None: whatever is there, and a new file is empty."""

    path: str
    content: Content | None
    mode: int | None = None
    owner: str | None = None
    group: str | None = None
    create_parents: bool = False
    new_mode: int = NEW_FILE
    """The mode of a file that does not exist yet, unless ``mode`` says otherwise; one that is there keeps its own."""
    create_only: bool = False
    """Whether one that is there is left as it is."""
    validate: Sequence[str] = ()
    """The command that must accept new content."""
    backup: bool = False
    """Whether the old content is kept beside it."""


class Change(Struct, frozen=True):
    """What lies between a file as it is and as it should be."""

    wanted: Wanted
    before: FileState
    mode: int
    """The mode it will have."""
    content: bool
    permissions: bool
    ownership: bool

    @property
    def created(self) -> bool:
        """Whether there was no such file (a link that is replaced counts as none)."""
        return self.before.kind != "file"

    becomes: Literal["file", "absent", "link", ""] = "file"
    """What there will be; empty if that is not known before."""
    target: str = ""
    """Of the link that there will be."""
    folders: Sequence[str] = ()
    """Folders above it that are made first, topmost first."""

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.content or self.permissions or self.ownership

    def left(self, ctx: StepContext) -> dict[str, Any] | None:
        """What is there when it is done; None if that is not known before."""
        wanted = self.wanted
        match self.becomes:
            case "":
                return None
            case "absent":
                return {"kind": "absent"}
            case "link":
                return {"kind": "link", "target": self.target, "owner": "", "group": ""}
        sha256 = None
        if self.content:
            sha256 = EMPTY if wanted.content is None else wanted.content.sha256
        return file_left(
            ctx, self.before, sha256=sha256, secret=is_secret(ctx, wanted), mode=self.mode,
            owner=wanted.owner, group=wanted.group,
        )  # fmt: skip

    def notes(self) -> list[str]:
        """What changes apart from content, in few words."""
        if self.created:
            what = "created" if self.before.kind == "absent" else f"link to {self.before.target} becomes a file"
            owners = {"owner": self.wanted.owner, "group": self.wanted.group}
            # Numbers are set by steps themselves, and say nothing to people.
            named = [f"{noun} {name}" for noun, name in owners.items() if name and not name.isdigit()]
            return [what, show_mode(self.mode), *named]
        notes = [f"{show_mode(self.before.mode)} -> {show_mode(self.mode)}"] if self.permissions else []
        if self.ownership:
            owner, group = self.wanted.owner or self.before.owner, self.wanted.group or self.before.group
            notes.append(f"{self.before.owner}:{self.before.group} -> {owner}:{group}")
        return notes

    def summary(self) -> str:
        """What changes, for a message."""
        if self.before.kind != "file":
            return "new" if self.before.kind == "absent" else self.notes()[0]
        return ", ".join([*(["content"] if self.content else []), *self.notes()])


def wanted_file(params: OneFileParams, content: Content | None) -> Wanted:
    """The file that the parameters of a step ask for."""
    return Wanted(params.path, content, params.mode, params.owner, params.group, params.create_parents)


def new_content(params: NewContentParams, wanted: Wanted) -> Wanted:
    """The file with what the parameters say about new content."""
    once = isinstance(params, WholeFileParams) and params.create_only
    return replace(wanted, create_only=once, validate=tuple(params.validate_ or ()), backup=params.backup)


def is_secret(ctx: StepContext, wanted: Wanted) -> bool:
    """Whether only its owner may read the file: the step is sensitive, or a secret is in it."""
    data = None if wanted.content is None else wanted.content.data
    return ctx.sensitive or (data is not None and ctx.holds_secret(data))


def compare(ctx: StepContext, wanted: Wanted, before: FileState) -> Change:
    """What would have to change; something that is no file there is a failure."""
    if before.kind == "directory":
        raise StepFailed(
            f"write {wanted.path}: it is a folder",
            hint="choose another path, or remove the folder first with a `directory` step",
        )
    if before.kind == "other":
        raise StepFailed(f"write {wanted.path}: it is a device, pipe or socket", hint="choose another path")
    fixed = wanted.mode if wanted.mode is not None else SECRET_FILE if is_secret(ctx, wanted) else None
    if before.kind != "file":
        return Change(wanted, before, wanted.new_mode if fixed is None else fixed, True, True, True)
    mode = before.mode if fixed is None else fixed
    return Change(
        wanted,
        before,
        mode,
        content=wanted.content is not None and wanted.content.sha256 != before.sha256,
        permissions=mode != before.mode,
        ownership=not before.owned_by(wanted.owner, wanted.group),
    )


def forecast_file(ctx: StepContext, wanted: Wanted, before: FileState | None = None) -> Forecast[Change]:
    """What ``apply_file`` would do; ``before`` is the file, if it has been looked at."""
    before = before or ctx.runner.inspect(wanted.path)
    if wanted.create_only and before.kind in ("file", "link"):
        there = before if before.kind == "file" else FileState(before.path)
        shown = "" if is_secret(ctx, wanted) else there.sha256
        return Forecast.satisfied(f"{wanted.path} exists", {"path": wanted.path, "sha256": shown, "size": there.size})
    change = compare(ctx, wanted, before)
    if not change.any:
        return Forecast.satisfied(f"{wanted.path} is as it should be", file_outputs(ctx, wanted, before))
    if before.above and not wanted.create_parents:
        return lacks_folder(wanted.path, change)
    if not before.folder and wanted.create_parents:
        change = replace(change, folders=ctx.runner.missing_folders(posixpath.dirname(wanted.path), before))
    verb = "create" if change.created else "change"
    diff = file_diff(ctx, change)
    if change.before.kind == "file" and ctx.runner.attributes(change.before, ask=False) is None:
        warn_of_attributes(ctx, wanted.path)
    _check_backup(change)
    if change.content and wanted.owner is None:
        ctx.runner.check_replaceable(before)
    alone = wanted.path if change.content and not change.folders and not wanted.backup else ""
    message = f"would {verb} {wanted.path} ({change.summary()})"
    if change.content and wanted.validate:
        message += f", if it is accepted by: {ctx.runner.display(Command(argv=tuple(wanted.validate)))}"
    return Forecast.change(message, [diff], seen=change, replaces=alone)


T = TypeVar("T")


def lacks_folder(path: str, seen: T, option: str = "createParents") -> Forecast[T]:
    """The forecast of a step that needs the folder of a path, and does not make it."""
    folder = posixpath.dirname(path)
    hint = f"make it first with a directory step, or use `{option}: true`"
    failure = StepFailed(f"write {path}: the folder {folder} does not exist", hint=hint, file=folder)
    return Forecast.unknown(f"the folder {folder} does not exist yet", seen=seen, failure=failure)


def file_diff(ctx: StepContext, change: Change) -> Diff:
    """The change for people: content as a diff where it is text that may be shown."""
    notes = change.notes()
    if not change.content:
        return Diff(change.wanted.path, note=", ".join(notes))
    if is_secret(ctx, change.wanted):
        return Diff(change.wanted.path, note=", ".join([*notes, HIDDEN]))
    after = "" if change.wanted.content is None else change.wanted.content.text()
    before = "" if change.created else shown_text(ctx, change.before)
    if before is None or after is None:
        sizes = f"{change.before.size} -> {change.wanted.content.size if change.wanted.content else 0} bytes"
        return Diff(change.wanted.path, note=", ".join([*notes, f"not shown: {sizes}"]))
    if not change.created and before.splitlines() == after.splitlines():
        notes = [*notes, "only line ends differ"]
    return Diff(change.wanted.path, None if change.created else before, after, ", ".join(notes))


def shown_text(ctx: StepContext, state: FileState) -> str | None:
    """The text of a file as it is; None if it is none, or too much to be shown."""
    return None if state.size > SHOWN_LIMIT else as_text(ctx.runner.content(state, limit=SHOWN_LIMIT))


def as_text(data: bytes | None) -> str | None:
    """The bytes as text, if they are some."""
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def apply_file(ctx: StepContext, change: Change) -> Result:
    """Make the file what it should be, or remove it, and remember what is needed to undo that."""
    wanted, before = change.wanted, change.before
    if change.content and wanted.validate:
        _validate(ctx, change)
    backup = _backup(ctx, change)
    remember(ctx, [change, *backup], change.folders)
    if change.folders:
        ctx.runner.mkdir(change.folders[-1], missing=change.folders)
    for copy in backup:
        apply_change(ctx, copy)
    try:
        if change.becomes == "absent":
            ctx.runner.remove(before.path)
        else:
            apply_change(ctx, change)
    except StepFailed:
        # Nothing was replaced, and the next attempt makes its own.
        for copy in backup:
            ctx.runner.remove(copy.wanted.path)
        raise
    if change.becomes == "absent":
        message, outputs = f"removed {before.path}", _gone(before.path)
    else:
        message = f"{'created' if change.created else 'changed'} {wanted.path}"
        message += "" if before.kind == "absent" else f" ({change.summary()})"
        outputs = file_outputs(ctx, wanted, before)
    for copy in backup:
        message += f"; its old content is in {copy.wanted.path}"
        outputs["backup"] = copy.wanted.path
    return Result(message=message, outputs=outputs)


def _validate(ctx: StepContext, change: Change) -> None:
    """Have the command accept the new content, before anything is changed."""
    wanted = change.wanted
    content: bytes | Path = b""
    if wanted.content is not None:
        content = wanted.content.data or b"" if wanted.content.local is None else wanted.content.local
    ctx.runner.validate(wanted.path, content, wanted.validate, executable=bool(change.mode & 0o100))


def _check_backup(change: Change) -> None:
    before = change.before
    if change.wanted.backup and change.content and before.kind == "file" and before.size > KEEP_LIMIT:
        raise StepFailed(
            f"back up {before.path}: it is larger than {KEEP_LIMIT >> 20} MiB",
            hint="leave out `backup`, or copy it with a `command` step first",
        )


def _backup(ctx: StepContext, change: Change) -> list[Change]:
    """The file beside it that gets its old content; none if that is not wanted, or if there was no file.

    Nobody can guess its name, and thus have something there before. No more people may read it than the file before,
    or than the new one.
    """
    before = change.before
    if not (change.wanted.backup and change.content and before.kind == "file"):
        return []
    _check_backup(change)
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = f"{before.path}.{now}.{secrets.token_hex(4)}~"
    content = Content.of(ctx.runner.content(before, limit=KEEP_LIMIT))
    wanted = Wanted(path, content, owner=str(before.uid), group=str(before.gid))
    return [Change(wanted, FileState(path), before.mode & change.mode & 0o777, True, True, True)]


def apply_change(ctx: StepContext, change: Change) -> None:
    """Write the file, or change only its mode or owner if that is all."""
    wanted = change.wanted
    if not change.content:
        if change.ownership:
            ctx.runner.chown(wanted.path, wanted.owner, wanted.group)
        # A change of owner clears set-user-id bits, so the mode comes last.
        if change.permissions or (change.ownership and change.mode & 0o6000):
            ctx.runner.chmod(wanted.path, change.mode)
        return
    if wanted.content is not None and wanted.content.local is not None:
        ctx.runner.send(
            wanted.content.local, wanted.path, mode=change.mode, owner=wanted.owner, group=wanted.group,
            known=change.before,
        )  # fmt: skip
        return
    data = b"" if wanted.content is None else wanted.content.data or b""
    ctx.runner.write(wanted.path, data, mode=change.mode, owner=wanted.owner, group=wanted.group, seen=change.before)


def forecast_absence(ctx: StepContext, path: str, *, backup: bool = False) -> Forecast[Change]:
    """How ``apply_file`` would remove the file or link."""
    state = ctx.runner.inspect(path)
    if state.kind == "absent":
        return Forecast.satisfied(f"{path} does not exist", _gone(path))
    if state.kind == "directory":
        raise StepFailed(f"remove {path}: it is a folder", hint="use a `directory` step with `state: absent`")
    if state.kind == "other":
        raise StepFailed(f"remove {path}: it is a device, pipe or socket, which this step does not remove")
    before = None if ctx.sensitive or state.kind != "file" else shown_text(ctx, state)
    note = f"link to {state.target} removed" if state.kind == "link" else "removed"
    change = removal(state)
    if backup:
        change = replace(change, wanted=replace(change.wanted, backup=True))
        _check_backup(change)
    return Forecast.change(f"would remove {path}", [Diff(path, before, None, note)], seen=change)


def _gone(path: str) -> dict[str, Any]:
    return {"path": path, "sha256": "", "size": 0}


def removal(before: FileState) -> Change:
    """The change by which a file or link goes away."""
    return Change(Wanted(before.path, None), before, before.mode, True, False, False, becomes="absent")


def linking(before: FileState, target: str) -> Change:
    """The change by which a link comes to a place."""
    return replace(removal(before), becomes="link", target=target)


def file_outputs(ctx: StepContext, wanted: Wanted, before: FileState) -> dict[str, Any]:
    """What later steps see of the file."""
    digest, size = before.sha256, before.size
    if wanted.content is not None:
        digest, size = wanted.content.sha256, wanted.content.size
    elif before.kind != "file":
        digest, size = EMPTY, 0
    # A digest of a secret can be tried against guesses.
    return {"path": wanted.path, "sha256": "" if is_secret(ctx, wanted) else digest, "size": size}


def remember(ctx: StepContext, changes: Sequence[Change], folders: Sequence[str], **more: Any) -> dict[str, Any]:
    """Save what ``restore`` needs (and ``more``) before a change, and return it; nothing if that is too large."""
    total = sum(change.before.size for change in changes if change.content and change.before.kind == "file")
    if total > KEEP_LIMIT:
        ctx.log.warning("cannot be undone: the replaced content is too large to be kept", bytes=total, limit=KEEP_LIMIT)
        return {}
    undo = {"files": [_record(ctx, change) for change in changes], "folders": list(folders), **more}
    ctx.save_undo(undo)
    return undo


def remember_left(ctx: StepContext, undo: Mapping[str, Any], folders: Sequence[str] = ()) -> None:
    """Save what ``remember`` returned again, with the files and new ``folders`` as they are now."""
    if undo:
        states = ctx.runner.inspect_all([*(record["path"] for record in undo["files"]), *folders])
        files = [
            {**record, "left": [state_left(ctx, state, secret=ctx.sensitive)]}
            for record, state in zip(undo["files"], states, strict=False)
        ]
        made = {each.path: attributes_of(each) for each in states[len(files) :]}
        ctx.save_undo({**undo, "files": files, "new_folders": made})


def _record(ctx: StepContext, change: Change) -> dict[str, Any]:
    state = change.before
    left = change.left(ctx)
    record = {"path": state.path, **attributes_of(state), "left": [] if left is None else [left]}
    if state.kind == "file":
        if change.content:
            record["content"] = ctx.keep(ctx.runner.content(state, limit=KEEP_LIMIT))
        # A change of owner removes capabilities.
        if change.content or change.ownership:
            record |= attributes_record(ctx, state)
        if "attributes" in record and "content" not in record and state.size <= KEEP_LIMIT:
            record["content"] = ctx.keep(ctx.runner.content(state, limit=KEEP_LIMIT))
    return record


def attributes_record(ctx: StepContext, state: FileState) -> dict[str, Any]:
    """The extended attributes of a file that is replaced, for its record; a host that cannot tell them is named."""
    found = ctx.runner.attributes(state)
    if found is None:
        warn_of_attributes(ctx, state.path)
    return {"attributes": dict(found)} if found else {}


def warn_of_attributes(ctx: StepContext, path: str) -> None:
    """Say, once a host, that an undo will not bring back extended attributes."""
    if not ctx.cache("host").get(_WARNED):
        ctx.cache("host")[_WARNED] = True
        ctx.log.warning(
            "an undo does not restore extended attributes: the host has no GNU tar to keep them with", path=path
        )


P = TypeVar("P", bound=Params)
S = TypeVar("S", default=None)


class RestoringStep(Step[P, S], Generic[P, S]):
    """A step whose undo puts files back, besides whatever else it does."""

    undo = Undo.REPEATABLE
    repeatable = True

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare the files, and new folders, with what was left."""
        made = [{"path": path, "kind": "absent", "left": [left]} for path, left in undo.get("new_folders", {}).items()]
        # Earlier versions have recorded modes alone.
        modes = undo.get("modes", {})
        return files_standing(ctx, [*undo.get("files", ()), *made], made=undo.get("folders", ()), modes=modes)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        restore(ctx, undo)

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of each file, and of all else, what was there before the first attempt."""
        merged = {**later, **{name: value for name, value in first.items() if value is not None}}
        for name, value in later.items():
            if name in first and isinstance(value, dict) and isinstance(first[name], dict):
                merged[name] = {**value, **first[name]}
        if "left" in later:
            left = later["left"]
            merged["left"] = {**first.get("left", {}), **left} if isinstance(left, dict) else left
        merged["files"] = merge_files(first.get("files", ()), later.get("files", ()))
        merged["folders"] = list(dict.fromkeys([*first.get("folders", ()), *later.get("folders", ())]))
        return merged

    @classmethod
    def spare_undo(cls, undo: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """All but the record of that file."""
        return {**undo, "files": [record for record in undo.get("files", ()) if record["path"] != path]}


class OneFileStep(RestoringStep[P, Change], Generic[P]):
    """A step that writes or removes one file, as its precheck has found out."""

    outputs_model = NewContentOutputs

    def run(self, ctx: StepContext, forecast: Forecast[Change]) -> Result:
        """Write or remove the file."""
        return apply_file(ctx, forecast.seen)


def restore(ctx: StepContext, undo: Mapping[str, Any]) -> None:
    """Put back what ``remember`` saved; what was created goes away, with its folders if nothing else is in them."""
    folders = list(undo.get("folders", ()))
    clear_made(ctx, folders)
    for record in reversed(undo.get("files", ())):
        restore_file(ctx, record)
    remove_made(ctx, folders)


def clear_made(ctx: StepContext, folders: Sequence[str]) -> None:
    """Remove what has replaced folders that a step had made; the target of a link is left alone."""
    cleared = ""
    for state in ctx.runner.inspect_all(folders, digest=False):
        if state.kind not in ("absent", "directory") and not (cleared and state.path.startswith(f"{cleared}/")):
            cleared = state.path
            ctx.runner.remove(cleared)


def remove_made(ctx: StepContext, folders: Sequence[str]) -> None:
    """Remove folders that a step had made, as far as nothing else is in them by now."""
    if stay := ctx.runner.remove_empty(folders):
        ctx.log.warning("the folder is kept: it contains something else", path=stay[0])


def restore_file(ctx: StepContext, record: Mapping[str, Any]) -> None:
    """Put back one file or link as it was."""
    path = record["path"]
    if record["kind"] == "absent":
        ctx.runner.remove(path)
    elif record["kind"] == "link":
        ctx.runner.symlink(record["target"], path)
        if "owner" in record:
            ctx.runner.chown(path, record["owner"], record["group"])
    elif "content" in record:
        data, attributes = ctx.kept(record["content"]), record.get("attributes")
        whose = {name: record[name] for name in ("mode", "owner", "group")}
        if attributes:
            ctx.runner.write_with(path, data, **whose, attributes=attributes)
        else:
            ctx.runner.write(path, data, **whose)
    else:
        # Even a change to the same owner removes capabilities.
        if not ctx.runner.inspect(path, digest=False).owned_by(record["owner"], record["group"]):
            ctx.runner.chown(path, record["owner"], record["group"])
        ctx.runner.chmod(path, record["mode"])


def stream_digest(file: IO[bytes]) -> str:
    """The sha256 of what is still to be read."""
    found = hashlib.sha256()
    while block := file.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def read_local(path: Path) -> bytes:
    """The content of a file on the control node."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise local_failure("read", path, error) from error


def local_failure(
    what: str, path: Path, error: OSError, hint: str = "the path is relative to the spec's file"
) -> StepFailed:
    """The failure of something on the control node."""
    reason = (error.strerror or str(error)).lower()
    return StepFailed(f"{what} {path} on the control node: {reason}", hint=hint)

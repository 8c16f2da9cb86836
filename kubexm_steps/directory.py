"""The step type ``directory``: a folder, or no folder."""

from __future__ import annotations

import io
import posixpath
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from kubexm_exec.step import Diff, Forecast, Outputs, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.host import TAR, WAY, FileState
from kubexm_steps.lib.files import KEEP_LIMIT, clear_made, lacks_folder, remove_made, stream_digest
from kubexm_steps.lib.standing import OLDER, LookingStep, attributes_of, files_standing, together
from kubexm_steps.lib.types import InspectedPath, OwnedParams, located, refuse, show_mode

_NEW_FOLDER: Final = 0o755
_SECRET_FOLDER: Final = 0o700
_NAMED: Final = 5
"""So many of the things that no undo brings back are named."""
# Archives never leave standard input and output: a name with a colon would be taken for another host's.
_SAVE: Final = (
    WAY
    + TAR
    + r"""
go "$1"
find "./$name" -type s -exec printf 'kx: socket %s\n' {} + >&2
archive -czf - -- "./$name"
"""
)
_FIRST: Final = WAY + 'reach "$1/."; ls -A . | head -n 1'
# All of it is unpacked before anything is changed. `fill`: what is missing is put into the folder that is there;
# `replace`: what is there goes away.
_LOAD: Final = (
    WAY
    + TAR
    + r"""
fill() {
  for e in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if ! [ -e "$e" ] && ! [ -L "$e" ]; then continue; fi
    name=${e##*/}
    if ! [ -e "./$name" ] && ! [ -L "./$name" ]; then mv -T -- "$e" "./$name" || return
    elif [ -d "$e" ] && ! [ -L "$e" ]; then ( inner "$name" && fill "$e" ) || return; fi
  done
}
inner() { hops=0; walk "$1/" || stop; }
put() {
  if [ "$1" = fill ] && [ -d "../$name" ] && ! [ -L "../$name" ]; then
    ( cd -P .. && inner "$name" && fill "$stage/new/$name" )
    return
  fi
  if [ -e "../$name" ] || [ -L "../$name" ]; then mv -T -- "../$name" old/it || return; fi
  mv -T -- "new/$name" "../$name" && return
  if [ -e old/it ] || [ -L old/it ]; then mv -T -- old/it "../$name"; fi
  return 1
}
go "$1"
private "$2" || exit
# What is unpacked has no bit from the folder above.
hold && mkdir new old && chmod g-s new && ( cd new && archive -xzpf - ) && put "$3"
code=$?
leave "$2"
exit $code
"""
)
# The first thing in each folder that is not the next one of them.
_GUESTS: Final = (
    WAY
    + r"""
while [ $# -gt 0 ]; do
  (
    to "$1/." || exit 0
    for f in ./* ./.[!.]* ./..?*; do
      if [ "$1/${f#./}" != "${2-}" ] && { [ -e "$f" ] || [ -L "$f" ]; }; then printf '%s\0' "$1/${f#./}"; break; fi
    done
  )
  shift
done
"""
)


class DirectoryParams(OwnedParams):
    """Parameters of ``directory``."""

    path: InspectedPath = Field(description="The folder on the host, as an absolute path.")
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the folder.")
    parents: bool = Field(
        True, description="Create missing parent folders (0755, owned by the user that kubexm works as)."
    )
    recursive: bool = Field(
        False, description="With `state: absent`: remove the folder with all its content, not only an empty one."
    )

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("mode", "owner", "group"), "`state: absent`")
            if self.path == "/":
                raise ValueError("the root folder cannot be removed")
        elif self.recursive:
            raise ValueError("recursive needs `state: absent`")


class DirectoryOutputs(Outputs):
    path: str = Field(description="The folder on the host.")


class Seen(NamedTuple):
    """The folder, and what is missing of it and of those above it, topmost first."""

    before: FileState
    missing: list[str]


class DirectoryStep(LookingStep[DirectoryParams, Seen]):
    """A folder with given permissions and owner, or its absence.

    Missing parent folders are created too. A link to a folder counts as that folder and is kept; where other users can
    write, it is a failure (`follow`).

    - A new folder is `0755` unless `mode` is set, `0700` if the step is `sensitive`; an existing one keeps
      its mode and owner unless they are given.
    - `state: absent` removes an empty folder; with `recursive: true` also its content.
    - Undo removes the created folders if they are still empty, or restores mode and owner. A
      removed folder is restored with its content, up to 64 MiB (packed). If the folder exists again,
      missing content is added to it; a folder with other content is left alone.
    """

    outputs_model = DirectoryOutputs
    example = """\
- name: data
  type: directory
  with:
    path: /var/lib/etcd
    mode: "0700"
    owner: etcd
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        params = self.params = located(ctx, self.params, last=self.params.state == "present")
        seen = self._look(ctx)
        before, missing = seen
        if params.state == "absent":
            if before.kind == "absent":
                return Forecast.satisfied(f"{params.path} does not exist", self._outputs())
            if not params.recursive and ctx.runner.shell(_FIRST, params.path, live=False).stdout:
                return Forecast.unknown(f"{params.path} is not empty, and `recursive` is not set", seen=seen)
            return Forecast.change(f"would remove {params.path}", [Diff(params.path, note="folder removed")], seen=seen)
        if before.kind == "absent":
            if len(missing) > 1 and not params.parents:
                return lacks_folder(params.path, seen, "parents")
            diffs = [Diff(path, note=f"folder created, {show_mode(_NEW_FOLDER)}") for path in missing[:-1]]
            diffs.append(Diff(params.path, note=f"folder created, {show_mode(self._mode(ctx, before))}"))
            return Forecast.change(f"would create {params.path}", diffs, seen=seen)
        notes = self._notes(ctx, before)
        if not notes:
            return Forecast.satisfied(f"{params.path} is as it should be", self._outputs())
        return Forecast.change(f"would change {params.path}", [Diff(params.path, note=", ".join(notes))], seen=seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        before, missing = forecast.seen
        params = self.params
        if params.state == "absent":
            return self._remove(ctx, before)
        if before.kind == "absent":
            mode = self._mode(ctx, before)
            own = {"kind": "directory", "mode": mode, "owner": params.owner or "", "group": params.group or ""}
            ctx.save_undo({"made": missing, "left": own})
            ctx.runner.mkdir(
                params.path,
                mode=mode,
                owner=params.owner,
                group=params.group,
                parents=params.parents,
                exact=params.mode is not None,
                missing=missing,
            )
            return Result(message=f"created {params.path}", outputs=self._outputs())
        notes = self._notes(ctx, before)
        was = attributes_of(before)
        named = {"owner": params.owner, "group": params.group}
        left = was | {"mode": self._mode(ctx, before)} | {key: name for key, name in named.items() if name}
        ctx.save_undo({"path": before.path, **was, "left": left})
        if not before.owned_by(params.owner, params.group):
            ctx.runner.chown(before.path, params.owner, params.group)
        ctx.runner.chmod(before.path, self._mode(ctx, before))
        return Result(message=f"changed {params.path} ({', '.join(notes)})", outputs=self._outputs())

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        if "left" not in undo:
            return Standing(unknown=OLDER)
        path, left = located(ctx, self.params, last=self.params.state == "present").path, undo["left"]
        if "made" in undo:
            return self._made_standing(ctx, undo["made"], left)
        if "packed" in undo:
            state = ctx.runner.inspect(path, digest=False)
            if state.kind == "directory":
                return packed_standing(ctx, path, ctx.kept(undo["packed"]))
            return Standing(changed=(f"{path} (it is not a folder)",) if state.exists else ())
        before = {name: undo[name] for name in ("mode", "owner", "group")}
        if "empty" not in undo:
            path = self._changed(ctx, undo)
        return files_standing(ctx, [{"path": path, "kind": "directory", **before, "left": [left]}])

    def _made_standing(self, ctx: StepContext, made: Sequence[str], left: Mapping[str, Any]) -> Standing:
        """Compare folders that were made, and see whether something else is in them."""
        # Each is 0700 until it has its owner.
        closed = {"kind": "directory", "mode": _SECRET_FOLDER, "owner": "", "group": ""}
        lefts = [{**closed, "mode": _NEW_FOLDER}] * (len(made) - 1) + [dict(left)]
        records = [
            # In a folder with the set-group-id bit they have it too.
            {"path": path, "kind": "absent", "left": [each, closed, {**each, "mode": each["mode"] | 0o2000}]}
            for path, each in zip(made, lefts, strict=True)
        ]
        guests = ctx.runner.shell(_GUESTS, *made, live=False).out.split("\0")
        others = [Standing(changed=(f"{guest} (in a folder that was made)",)) for guest in guests if guest]
        return together(files_standing(ctx, records), *others)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        path = located(ctx, self.params, last=self.params.state == "present").path
        if "made" in undo:
            clear_made(ctx, undo["made"])
            remove_made(ctx, undo["made"])
        elif "packed" in undo:
            self._bring_back(ctx, path, undo)
        elif "empty" in undo:
            there = ctx.runner.inspect(path, digest=False).kind
            if there not in ("absent", "directory"):
                ctx.runner.remove(path)
            ctx.runner.mkdir(path, mode=undo["mode"], owner=undo["owner"], group=undo["group"], exact=True)
            if there == "directory":
                self._put_back(ctx, path, undo)
        else:
            self._put_back(ctx, self._changed(ctx, undo), undo)

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**first, **({"left": later["left"]} if "left" in later else {})} if first else later

    def _changed(self, ctx: StepContext, undo: Mapping[str, Any]) -> str:
        """The folder whose mode or owner was changed, which a link may have led to then; not what one leads to now."""
        path = located(ctx, self.params, last=True).path
        return str(undo["path"]) if "path" in undo else ctx.runner.resolve(path)

    def _put_back(self, ctx: StepContext, path: str, undo: Mapping[str, Any]) -> None:
        kind = ctx.runner.inspect(path, digest=False).kind
        if kind != "directory":
            raise StepFailed(f"folder {path}: it is {'gone' if kind == 'absent' else 'no longer a folder'}")
        ctx.runner.chown(path, undo["owner"], undo["group"])
        ctx.runner.chmod(path, undo["mode"])

    def _bring_back(self, ctx: StepContext, path: str, undo: Mapping[str, Any]) -> None:
        packed, how = ctx.kept(undo["packed"]), "fill"
        if self.standing(ctx, undo).changed:
            how = "replace"
            if ctx.runner.inspect(path, digest=False).kind == "directory":
                refuse_mounted(ctx, path)
        self._say_lost(ctx, undo.get("lost", ()))
        ctx.runner.shell(_LOAD, path, f".kx-{secrets.token_hex(8)}.tree", how, stdin=packed, live=False)

    def _look(self, ctx: StepContext) -> Seen:
        """The folder, or the one that a link at its place leads to; something else in its place is a failure."""
        path, missing = self.params.path, list[str]()
        state = ctx.runner.inspect(path, digest=False)
        if state.kind == "link" and self.params.state == "present":
            state = ctx.runner.inspect(ctx.runner.resolve(path), digest=False)
            if state.kind == "absent":
                raise StepFailed(f"folder {path}: it is a link that leads nowhere", hint="remove the link first")
        if state.kind in ("file", "other") or (state.kind == "link" and self.params.state == "absent"):
            thing = "a link" if state.kind == "link" else "not a folder"
            raise StepFailed(
                f"folder {path}: it is {thing}", hint="use a `file` step with `state: absent` to remove it first"
            )
        if state.kind == "absent" and self.params.state == "present":
            missing = ctx.runner.missing_folders(path, state)
        return Seen(state, missing)

    def _mode(self, ctx: StepContext, before: FileState) -> int:
        if self.params.mode is not None:
            return self.params.mode
        if before.exists:
            return before.mode
        return _SECRET_FOLDER if ctx.sensitive else _NEW_FOLDER

    def _notes(self, ctx: StepContext, before: FileState) -> list[str]:
        params = self.params
        mode = self._mode(ctx, before)
        notes = [] if mode == before.mode else [f"{show_mode(before.mode)} -> {show_mode(mode)}"]
        if not before.owned_by(params.owner, params.group):
            owner, group = params.owner or before.owner, params.group or before.group
            notes.append(f"{before.owner}:{before.group} -> {owner}:{group}")
        return notes

    def _remove(self, ctx: StepContext, before: FileState) -> Result:
        params = self.params
        if params.recursive:
            self._keep_all(ctx)
        else:
            ctx.save_undo({"empty": True, **attributes_of(before), "left": {"kind": "absent"}})
        ctx.runner.remove(params.path, recursive=params.recursive)
        return Result(message=f"removed {params.path}", outputs=self._outputs())

    def _keep_all(self, ctx: StepContext) -> None:
        packed = ctx.runner.shell(_SAVE, self.params.path, live=False, max_output=KEEP_LIMIT)
        if packed.dropped:
            ctx.log.warning("cannot be undone: the folder is too large to be kept", limit=KEEP_LIMIT)
        else:
            sockets = re.findall(r"^kx: socket \./(.*)$", packed.err, re.MULTILINE)
            above = posixpath.dirname(self.params.path)
            lost = [posixpath.join(above, name) for name in sockets[:_NAMED]]
            self._say_lost(ctx, lost)
            ctx.save_undo({"packed": ctx.keep(packed.stdout), "left": {"kind": "absent"}, "lost": lost})

    def _say_lost(self, ctx: StepContext, lost: Sequence[str]) -> None:
        if lost:
            ctx.log.warning("sockets cannot be kept: an undo does not restore them", paths=", ".join(lost))

    def _outputs(self) -> dict[str, Any]:
        return {"path": self.params.path}


def packed_standing(ctx: StepContext, path: str, packed: bytes) -> Standing:
    """What an undo finds of a removed folder that exists again; what is not as it was belongs to somebody else."""
    records = _records(path, packed)
    known = {record["path"] for record in records}
    below = ctx.runner.trees.look(path, [path], below=True).below
    # Of a folder that was not in it, only the topmost.
    guests = [state.path for state in below if state.path not in known and posixpath.dirname(state.path) in known]
    found = files_standing(ctx, records, root=path)
    # If everything is as it was, additional files are no obstacle.
    theirs = [] if found.before else [Standing(changed=(f"{guest} (it was not there)",)) for guest in guests]
    return together(found, *theirs)


def refuse_mounted(ctx: StepContext, path: str) -> None:
    """Fail if another file system is mounted somewhere below: what is on it would be removed with the folder."""
    look = ctx.runner.trees.look(path, [path], below=True)
    for state in look.below:
        if state.kind == "directory" and state.device != look.device:
            raise StepFailed(
                f"replace {path}: another file system is mounted at {state.path}", hint="unmount it and try again"
            )


def _records(path: str, packed: bytes) -> list[dict[str, Any]]:
    """All that is in the archive, the folder itself first, as records of files that may be missing."""
    import tarfile

    above, found = posixpath.dirname(path), dict[str, dict[str, Any]]()
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r|gz") as tar:
            for info in tar:
                name = posixpath.normpath(posixpath.join(above, info.name))
                record: dict[str, Any] = {"path": name, "kind": "other", "left": [{"kind": "absent"}]}
                record |= {"owner": str(info.uid), "group": str(info.gid)}
                if info.issym():
                    found[name] = record | {"kind": "link", "target": info.linkname}
                    continue
                record["mode"] = info.mode & 0o7777
                if info.isdir():
                    record["kind"] = "directory"
                elif info.islnk():
                    first = found.get(posixpath.normpath(posixpath.join(above, info.linkname)), record)
                    record = {**first, "path": name}
                elif info.isfile() and (content := tar.extractfile(info)) is not None:
                    record |= {"kind": "file", "sha256": stream_digest(content)}
                found[name] = record
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StepFailed(f"compare {path}: the archive that was kept of it cannot be read: {error}") from error
    return list(found.values())

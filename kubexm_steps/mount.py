"""The step type ``mount``: a file system that is mounted, is in fstab, or is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.storage import FstabLine, Mounted, Mounts, appended, edited, is_at, mounts_at
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import HIDDEN, RestoringStep, restore
from kubexm_steps.lib.standing import BROKE_OFF, differing, together
from kubexm_steps.lib.types import HostPath, shaped


def _joined(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value) else value


_OneWord = Annotated[str, shaped(r"[^-\s\0#][^\s\0#]*", "one word: no blanks, `#`, or `-` at its start")]


class MountParams(Params):
    """Parameters of ``mount``."""

    path: HostPath = Field(description="The mount point. It is created if missing.")
    src: Annotated[str, shaped(r"[^-\r\n\0][^\r\n\0]*", "something that can be mounted")] | None = Field(
        None,
        description="Source: a device, `UUID=...`, `LABEL=...`, a folder (with the option `bind`), `host:/path`, or "
        "any word for `tmpfs` and the like. Required for `mounted` and `present`.",
    )
    fstype: _OneWord = Field(
        "auto", description="Type of the file system, such as `ext4`, `xfs`, `nfs` or `tmpfs`; `none` for `bind`."
    )
    options: Annotated[_OneWord, BeforeValidator(_joined, json_schema_input_type=str | list[str])] = Field(
        "defaults", description="Options, as a list or a text with commas."
    )
    dump: int = Field(0, ge=0, description="Fifth field in fstab.")
    pass_: int = Field(0, ge=0, alias="pass", description="Sixth field in fstab: order of checks at boot.")
    state: Literal["mounted", "unmounted", "present", "absent"] = Field(
        "mounted",
        description="`mounted`: in fstab and mounted; `present`: only in fstab; `unmounted`: not mounted now, fstab "
        "unchanged; `absent`: neither mounted nor in fstab.",
    )

    def model_post_init(self, context: object) -> None:
        if self.state in ("mounted", "present") and self.src is None:
            raise ValueError("say what is mounted: `src`")
        if self.state in ("unmounted", "absent") and self.path == "/":
            raise ValueError("the root of the file system stays mounted")


class MountOutputs(Outputs):
    path: str = Field(description="The mount point, with links resolved.")
    mounted: bool = Field(description="Whether something is mounted there.")


class MountStep(RestoringStep[MountParams, Mounts]):
    """A file system that is mounted now and at every boot, only listed in fstab, or neither.

    Only the line of this mount point is changed in `/etc/fstab`; comments and other lines are kept. It is
    mounted first and added to fstab afterwards, so that a failing mount never blocks a boot.

    - If another source is mounted there, it is unmounted first. If only options differ, it is remounted.
    - Visible options are compared with the running system (`ro`, `noexec`, `nosuid`, `nodev`, `noatime` and
      the like, sizes of tmpfs); others only with fstab.
    - The folder of the mount point is created, and removed only by undo.
    - Undo restores fstab and the former mount. The content of a tmpfs is lost.
    """

    outputs_model = MountOutputs
    example = """\
- name: data
  type: mount
  with:
    path: /var/lib/etcd
    src: LABEL=etcd
    fstype: xfs
    options: [noatime]
"""

    def precheck(self, ctx: StepContext) -> Forecast[Mounts]:
        now = self._look(ctx)
        edit, move = self._edit(now), self._move(now)
        if not edit.any and not move:
            word = {"mounted": "mounted", "present": "in fstab"}.get(self.params.state, "not mounted")
            outputs = {"path": now.path, "mounted": bool(now.here())}
            return Forecast.satisfied(f"{self.params.path} is {word}", outputs)
        src = self.params.src or ""
        if move == "mount" and src.startswith("/") and not now.source_there:
            return Forecast.unknown(f"{src} does not exist yet", seen=now)
        shown = diffs(ctx, [edit])
        if move:
            hidden = ctx.sensitive or ctx.holds_secret(f"{self.params.src} {self.params.options}")
            shown.insert(0, Diff(self.params.path, note=HIDDEN if hidden else self._note(now, move)))
        verb = {"": "change fstab for", "replace": "mount"}.get(move, move)
        return Forecast.change(f"would {verb} {self.params.path}", shown, seen=now)

    def run(self, ctx: StepContext, forecast: Forecast[Mounts]) -> Result:
        now = forecast.seen
        edit, move = self._edit(now), self._move(now)
        made = ctx.runner.missing_folders(self.params.path) if move == "mount" and not now.kind else []
        before = [_record(now, mount) for mount in now.here()]
        kept: dict[str, Any] = {"move": move, "before": before, "made": made, "path": now.path}
        save(ctx, [edit], **kept)
        if made:
            if now.source_is_file:
                raise StepFailed(
                    f"mount {self.params.src} at {self.params.path}: a file needs a file as its mount point",
                    hint="create an empty one first with a `file` step",
                )
            ctx.runner.mkdir(self.params.path, missing=made)
        try:
            self._do(ctx, now, move)
        except StepFailed:
            ctx.runner.remove_empty(made)
            raise
        if edit.any:
            apply(ctx, [edit])
            ctx.runner.mounts.reload()
        if move:
            after = ctx.runner.mounts.look(now.path)
            save(ctx, [edit], **kept, left=[_record(after, mount) for mount in after.here()])
        word = {"": "changed fstab for", "replace": "mounted"}.get(move, f"{move}ed")
        message = f"{word} {self.params.path}"
        mounted = self.params.state == "mounted" or (self.params.state == "present" and bool(now.here()))
        return Result(message=message, outputs={"path": now.path, "mounted": mounted})

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        files = super().standing(ctx, undo)
        if not undo["move"]:
            return files
        now = ctx.runner.mounts.look(undo["path"])
        here = [_record(now, mount) for mount in now.here()]
        if "left" not in undo:
            broke_off = files.unknown or BROKE_OFF
            return together(files, Standing(before=here == undo["before"], unknown=broke_off))
        return together(files, differing(undo["path"], undo["before"], undo["left"], here, "what is mounted there"))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        if undo.get("files"):
            ctx.runner.mounts.reload()
        path = undo["path"]
        before = undo["before"]
        now = ctx.runner.mounts.look(path)
        here = now.here()
        if undo["move"] == "remount":
            if here and _record(now, here[-1]) != before[-1]:
                ctx.runner.mounts.remount(before[-1]["source"], path, before[-1]["remount"])
        elif undo["move"] and [_record(now, mount) for mount in here] != before:
            if undo["move"] in ("mount", "replace"):
                ctx.runner.mounts.unmount(path, len(here))
            for layer in before:
                ctx.runner.mounts.mount(
                    layer["source"], path, layer["fstype"], layer["options"], layer["again"]
                )  # fmt: skip
        ctx.runner.remove_empty(undo["made"])

    def _look(self, ctx: StepContext) -> Mounts:
        now = ctx.runner.mounts.look(self.params.path, self.params.src or "")
        if len(mounts_at(now.fstab.text, self.params.path)) > 1:
            raise StepFailed(f"{now.fstab.path} has several lines for {self.params.path}", hint="keep only one of them")
        return now

    def _edit(self, now: Mounts) -> Edit:
        params = self.params
        text = now.fstab.text
        if params.state == "unmounted":
            return Edit(now.fstab, text if now.fstab.exists else None)
        wanted = None
        if params.state != "absent":
            wanted = FstabLine(
                params.src or "", params.path, params.fstype, params.options, params.dump, params.pass_
            )  # fmt: skip
        there = bool(mounts_at(text, params.path))
        if wanted is not None and not there:
            return Edit(now.fstab, appended(text, wanted))
        if not there:
            return Edit(now.fstab, text if now.fstab.exists else None)
        return Edit(now.fstab, edited(text, lambda line: wanted if is_at(line, params.path) else line))

    def _move(self, now: Mounts) -> Literal["", "mount", "replace", "remount", "unmount"]:
        here = now.here()
        if self.params.state == "present":
            return ""
        if self.params.state != "mounted":
            return "unmount" if here else ""
        if not here:
            return "mount"
        if not self._is_it(now, here[-1]):
            return "replace"
        lines = mounts_at(now.fstab.text, self.params.path)
        changed = bool(lines) and lines[0].options != self.params.options
        return "remount" if changed or differ(self.params.options, here[-1]) else ""

    def _is_it(self, now: Mounts, mount: Mounted) -> bool:
        params = self.params
        if is_bind(params.options):
            return now.same
        wanted = params.fstype
        if wanted not in ("auto", "none") and not (
            mount.fstype.startswith(wanted) or mount.fstype.endswith(f".{wanted}")
        ):
            return False
        source = now.source or (params.src or "")
        # The word before a tmpfs means nothing, and an image file is mounted as a loop device.
        return mount.source == source or not (source.startswith("/dev/") or ":" in source)

    def _do(self, ctx: StepContext, now: Mounts, move: str) -> None:
        params = self.params
        here = now.here()
        if move in ("replace", "unmount"):
            ctx.runner.mounts.unmount(now.path, len(here))
        if move in ("mount", "replace"):
            first, again = kernel_options(params.options)
            ctx.runner.mounts.mount(params.src or "", params.path, params.fstype, first, again)
        elif move == "remount":
            ctx.runner.mounts.remount(now.origin(here[-1]), now.path, remount_options(params.options))
            after = ctx.runner.mounts.look(params.path).here()
            left = differ(params.options, after[-1]) if after else "it"
            if left:
                raise StepFailed(
                    f"remount {params.path}: {left} did not take effect",
                    hint="this option takes effect only on a new mount: unmount it first, or reboot",
                )

    def _note(self, now: Mounts, move: str) -> str:
        here = now.here()
        match move:
            case "mount":
                return f"{self.params.src} mounted"
            case "replace":
                return f"{now.origin(here[-1])} -> {self.params.src} mounted"
            case "remount":
                return f"remounted with {self.params.options}"
            case _:
                return f"{now.origin(here[-1])} unmounted"


def _record(now: Mounts, mount: Mounted) -> dict[str, Any]:
    options, again, remount = undo_options(mount)
    bound = mount.root not in ("/", "")
    return {
        "source": now.origin(mount),
        "fstype": "none" if bound else mount.fstype,
        "options": options,
        "again": again,
        "remount": remount,
    }


_OPPOSITES: Final = {
    "ro": "rw",
    "nosuid": "suid",
    "nodev": "dev",
    "noexec": "exec",
    "sync": "async",
}
_SEEN: Final = {*_OPPOSITES, "noatime", "nodiratime", "relatime"}
_DEFAULTS: Final = ("rw", "suid", "dev", "exec")
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def is_bind(options: str) -> bool:
    """Whether a folder is bound, rather than a file system mounted."""
    return bool({"bind", "rbind"} & set(options.split(",")))


def kernel_options(options: str) -> tuple[str, str]:
    """What is given to mount, and to a remount after it: a bind mount takes its other options only then."""
    words = [word for word in options.split(",") if word and not word.startswith(("x-", "comment="))]
    if not is_bind(options):
        return ",".join(words) or "defaults", ""
    kind = "rbind" if "rbind" in words else "bind"
    more = [word for word in words if word not in ("bind", "rbind", "defaults", "nofail", "noauto", "auto", "_netdev")]
    return kind, f"remount,bind,{','.join(more)}" if more else ""


def remount_options(options: str) -> str:
    """What is given to a remount: also the defaults, because tools disagree on what is not said."""
    words = [word for word in options.split(",") if word and not word.startswith(("x-", "comment="))]
    kept = [word for word in words if word not in ("bind", "rbind", "defaults")]
    return ",".join(["remount", *(["bind"] if is_bind(options) else []), *_DEFAULTS, *kept])


def undo_options(mount: Mounted) -> tuple[str, str, str]:
    """Options to mount something again as it is: for the mount, for a remount after it, and for a remount alone."""
    own = [*(word for word in _DEFAULTS if word not in ("rw",) and f"no{word}" not in mount.options), *mount.options]
    if mount.root not in ("/", ""):
        return "bind", f"remount,bind,{','.join(own)}", f"remount,bind,{','.join(own)}"
    settings = [word for word in mount.super_options if word not in ("rw", "ro", *own)]
    whole = ",".join([*own, *settings])
    return whole, "", f"remount,{whole}"


def differ(options: str, mount: Mounted) -> str:
    """The first of the wanted options that the mount does not have, as far as that can be seen; empty if none."""
    words = options.split(",")
    expanded = [one for word in words for one in (_DEFAULTS if word == "defaults" else (word,))]
    wanted: dict[str, bool] = {}
    for word in expanded:
        for name, opposite in _OPPOSITES.items():
            if word in (name, opposite):
                wanted[name] = word == name
        if word in _SEEN - _OPPOSITES.keys():
            wanted[word] = True
    # A file system may be read-only as a whole.
    seen = {*mount.options, *(word for word in mount.super_options if word in ("ro", "sync"))}
    for name, on in wanted.items():
        if on != (name in seen):
            return name if on else _OPPOSITES[name]
    if mount.fstype == "tmpfs" and not is_bind(options):
        return _tmpfs_differs(words, mount)
    return ""


def _tmpfs_differs(words: list[str], mount: Mounted) -> str:
    live = dict(word.partition("=")[::2] for word in mount.super_options)
    for word in words:
        key, _, value = word.partition("=")
        wrong = False
        match key:
            case "size" | "nr_inodes":
                there, asked = _size(live.get(key, "")), _size(value)
                wrong = there is not None and asked is not None and there != _rounded(asked, key)
            case "mode" if value.isdigit():
                wrong = live.get("mode", "1777").lstrip("0") != value.lstrip("0")
            case "uid" | "gid" if value.isdigit():
                wrong = live.get(key, "0") != value
        if wrong:
            return word
    return ""


def _size(text: str) -> int | None:
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdigit() or (unit and unit not in _SIZES):
        return None
    return int(number) * _SIZES.get(unit, 1)


def _rounded(size: int, key: str) -> int:
    """The kernel counts in pages."""
    return size if key != "size" else -(-size // 4096) * 4096

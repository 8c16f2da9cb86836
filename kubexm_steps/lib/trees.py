"""What steps that write whole folders have in common: what differs, how it is shown, done, and undone."""

from __future__ import annotations

import hashlib
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic

from msgspec import Struct, field
from pydantic import Field
from typing_extensions import TypeVar

from kubexm_exec.step import Diff, Forecast, Standing, StepContext, StepFailed
from kubexm_exec.step.host import FileState
from kubexm_exec.step.trees import NewFile, TreeChange, TreeLook, is_transient
from kubexm_steps.lib.files import (
    KEEP_LIMIT,
    SHOWN_LIMIT,
    Change,
    Content,
    RestoringStep,
    Wanted,
    clear_made,
    compare,
    file_diff,
    lacks_folder,
    linking,
    local_failure,
    remove_made,
    restore_file,
    warn_of_attributes,
)
from kubexm_steps.lib.standing import (
    attributes_of,
    files_standing,
    look_at,
    merge_files,
    together,
    without_what_is_behind,
)
from kubexm_steps.lib.types import HostPath, Mode, OneFileParams, show_owner

LeftOut = Callable[[str, bool], bool]
"""Says whether a name below the folder (and whether it is a folder) is left alone."""


def nothing(name: str, folder: bool) -> bool:
    """Leaves nothing out."""
    return False


class Tree(Struct, frozen=True):
    """What is in a local folder, by its path on the host."""

    path: str
    folders: dict[str, Path]
    links: dict[str, str]
    files: dict[str, Path]

    @property
    def count(self) -> int:
        """How many files and links there are."""
        return len(self.files) + len(self.links)


def read_tree(local: Path, path: str, left_out: LeftOut) -> Tree:
    """What is in a folder of the control node."""
    tree = Tree(path, {path: local}, {}, {})
    for entry in _walk(local, local, left_out):
        target = posixpath.join(path, entry.relative_to(local).as_posix())
        if entry.is_symlink():
            tree.links[target] = str(entry.readlink())
        elif entry.is_dir():
            tree.folders[target] = entry
        elif entry.is_file():
            tree.files[target] = entry
        else:
            raise StepFailed(f"copy {entry}: it is a device, pipe or socket", hint="remove it from the folder")
    return tree


def _walk(top: Path, folder: Path, left_out: LeftOut) -> Iterator[Path]:
    """Everything below, each folder before what is in it, in the same order everywhere."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise local_failure("read", folder, error) from error
    for entry in entries:
        is_folder = entry.is_dir() and not entry.is_symlink()
        if left_out(entry.relative_to(top).as_posix(), is_folder):
            continue
        yield entry
        if is_folder:
            yield from _walk(top, entry, left_out)


def permissions(local: Path) -> int:
    """Its mode without set-user-id, set-group-id and sticky bits, which are never sent to a host."""
    return stat.S_IMODE(local.stat().st_mode) & 0o777


MOST_DIFFS: Final = 50
_PRELOADED: Final = 4 << 20
_CLOSED: Final[Mapping[str, Any]] = {"kind": "directory", "mode": 0o700, "owner": "", "group": ""}
"""What a folder is until everything is in it."""
_NOTHING: Final[Mapping[str, Any]] = {"kind": "absent"}


class TreeParams(OneFileParams):
    """The parameters of every step that may write a folder."""

    mode: Mode | None = Field(
        None,
        description='Mode of all files as an octal string such as `"0644"`. By default an existing file keeps its '
        "mode, and a new one has that of the source.",
    )
    path: HostPath = Field(description="Destination on the host, as an absolute path.")
    dir_mode: Mode | None = Field(
        None, description='Mode of new folders, such as `"0750"`; by default that of the source.'
    )


T = TypeVar("T", bound=TreeParams)
S = TypeVar("S", default=None)


class Plan(Struct):
    """What is missing, different or too much on the host."""

    tree: Tree
    look: TreeLook
    folders: list[str] = field(default_factory=list)
    links: list[Change] = field(default_factory=list)
    files: list[Change] = field(default_factory=list)
    gone: list[FileState] = field(default_factory=list)
    emptied: list[FileState] = field(default_factory=list)
    """Those inside others first."""

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.folders or self.links or self.files or self.gone or self.emptied)

    def count(self) -> str:
        """What is copied, for a message."""
        parts = [(len(self.files), "file"), (len(self.links), "link"), (len(self.folders), "folder")]
        return ", ".join(f"{number} {noun}{'s' if number > 1 else ''}" for number, noun in parts if number)

    @property
    def too_much(self) -> int:
        """How many things are removed."""
        return len(self.gone) + len(self.emptied)


def make_plan(ctx: StepContext, params: TreeParams, tree: Tree, *, delete: bool, left_out: LeftOut) -> Plan:
    """Compare the folder on the host with the local one, in one round trip."""
    above = posixpath.dirname(tree.path)
    look = ctx.runner.trees.look(tree.path, [above, *tree.folders, *tree.links, *tree.files], below=delete)
    plan = Plan(tree, look)
    kept: set[str] = set()
    if delete:
        kept = _surplus(plan, left_out)
    places = _Places(plan, delete, kept)
    for path in tree.folders:
        # The folder itself may be reached by a link also where everything in it is to be as in the source.
        linked = not delete or path == tree.path
        if not places.at(path, ("directory", "link to a folder") if linked else ("directory",), "a folder").exists:
            plan.folders.append(path)
            places.new.add(path)
    for path, target in tree.links.items():
        state = places.at(path, ("file", "link", "link to a folder"), "a link")
        if (state.kind, state.target) != ("link", target):
            plan.links.append(linking(state, target))
    for path, local in tree.files.items():
        state = places.at(path, ("file", "link", "link to a folder"), "a file")
        change = compare(ctx, local_file(ctx, params, local, path, permissions(local)), state)
        if change.any:
            plan.files.append(change)
    # Those deepest down first: a folder is removed when it is empty.
    plan.emptied.sort(key=lambda state: state.path.count("/"), reverse=True)
    return plan


def forecast_plan(
    ctx: StepContext, params: TreeParams, plan: Plan, *, same: str, outputs: Mapping[str, Any]
) -> Forecast[Plan]:
    """What ``apply_plan`` would do; ``same`` is said, and the outputs are given, if that is nothing."""
    above = posixpath.dirname(params.path)
    if not params.create_parents and not plan.look.states[above].exists:
        return lacks_folder(params.path, plan)
    if not plan.any:
        return Forecast.satisfied(same, outputs)
    return Forecast.change(f"would {copied(plan, 'copy', 'remove')}", plan_diffs(ctx, plan), seen=plan)


def copied(plan: Plan, copy: str, remove: str) -> str:
    """What is done, in these verbs."""
    parts = [f"{copy} {plan.count()} to {plan.tree.path}"] if plan.count() else []
    if plan.too_much:
        where = "" if parts else f" from {plan.tree.path}"
        parts.append(f"{remove} {plan.too_much}{where}")
    return " and ".join(parts)


def local_file(ctx: StepContext, params: TreeParams, local: Path, path: str, new_mode: int) -> Wanted:
    """A local file as it should be on the host."""
    content = Content.of_file(ctx, local)
    return Wanted(path, content, params.mode, params.owner, params.group, params.create_parents, new_mode)


def _folder_mode(ctx: StepContext, params: TreeParams, local: Path) -> int:
    """The mode of a folder that is made: who owns it can always put files into it, as the step itself does."""
    if params.dir_mode is not None:
        return params.dir_mode
    return 0o700 if ctx.sensitive else permissions(local) | 0o700


def _surplus(plan: Plan, left_out: LeftOut) -> set[str]:
    """Find what is not in the source; gives the folders that have to stay for something in them."""
    tree, look = plan.tree, plan.look
    wanted = {*tree.folders, *tree.links, *tree.files}
    device = look.device
    kept: set[str] = set()
    surplus: list[FileState] = []
    start = len(tree.path.rstrip("/")) + 1
    for state in look.below:
        folder = state.kind == "directory"
        # Only folders tell: files of an overlay are on other devices than the folders that they are in.
        mounted = folder and state.device != device
        if mounted or is_transient(state.path) or left_out(state.path[start:], folder):
            kept.update(_above(state.path, tree.path))
            kept.add(state.path)
        elif state.path not in wanted:
            surplus.append(state)
    for state in surplus:
        if state.path not in kept:
            (plan.emptied if state.kind == "directory" else plan.gone).append(state)
    return kept


def _above(path: str, root: str) -> Iterator[str]:
    while (path := posixpath.dirname(path)) not in (root, "/", ""):
        yield path


class _Places:
    def __init__(self, plan: Plan, delete: bool, kept: set[str]) -> None:
        self.new: set[str] = set()
        """Folders that will be made: whatever a link in their place leads to, there is nothing in them."""
        self._plan = plan
        self._delete = delete
        self._kept = kept

    def at(self, path: str, kinds: Sequence[str], wanted: str) -> FileState:
        """What is there; something of another kind goes away with ``delete``, if nothing in it has to stay."""
        if posixpath.dirname(path) in self.new:
            return FileState(path)
        state = self._plan.look.states[path]
        kind = "link to a folder" if state.to_folder else state.kind
        if kind in (*kinds, "absent"):
            return state
        what = {"directory": "a folder", "other": "a device, pipe or socket", "link": "a link that leads to no folder"}
        there = what.get(kind, f"a {kind}")
        if not self._delete:
            raise StepFailed(
                f"copy to {path}: expected {wanted}, found {there}",
                hint="remove it first, or choose another path",
            )
        if path in self._kept:
            raise StepFailed(
                f"copy to {path}: expected {wanted}, found {there} with excluded content",
                hint="move the excluded content away first, or exclude the folder itself",
            )
        (self._plan.emptied if state.kind == "directory" else self._plan.gone).append(state)
        return FileState(path)


def plan_diffs(ctx: StepContext, plan: Plan) -> list[Diff]:
    """The changes for people, the first ones of many."""
    diffs = [Diff(path, note="folder created") for path in plan.folders]
    diffs += [Diff(change.wanted.path, note="link") for change in plan.links]
    removed = sorted([*plan.gone, *plan.emptied], key=lambda state: state.path)
    diffs += [Diff(state.path, note="folder removed" if state.kind == "directory" else "removed") for state in removed]
    left = max(0, MOST_DIFFS - len(diffs))
    shown = plan.files[:left]
    if not ctx.sensitive:
        _preload(ctx, shown)
    rest = len(diffs) + len(plan.files)
    diffs = [*diffs[:MOST_DIFFS], *(file_diff(ctx, change) for change in shown)]
    rest -= len(diffs)
    return [*diffs, Diff(plan.tree.path, note=f"and {rest} more")] if rest else diffs


def _preload(ctx: StepContext, changes: Sequence[Change]) -> None:
    """Read what the diffs show in one go."""
    some: list[FileState] = []
    total = 0
    for change in changes:
        if change.content and change.before.kind == "file" and change.before.size <= SHOWN_LIMIT:
            total += change.before.size
            if total <= _PRELOADED:
                some.append(change.before)
    ctx.runner.trees.preload(some)


def apply_plan(ctx: StepContext, params: TreeParams, plan: Plan) -> None:
    """Do it, and remember before that what is needed to undo it."""
    tree, look = plan.tree, plan.look
    made = plan.folders
    if params.owner is None:
        _check_owners(plan)
    missing: list[str] = []
    if made and made[0] == tree.path:
        # Those above it are made too, or there is a clear failure.
        above = look.states[posixpath.dirname(tree.path)]
        missing = [tree.path] if above.kind == "directory" else ctx.runner.missing_folders(tree.path)
        made = [*(missing[:-1] if params.create_parents else []), *made]
    modes = {path: _folder_mode(ctx, params, tree.folders[path]) for path in plan.folders}
    _remember(ctx, plan, made, modes)
    if missing:
        ctx.runner.mkdir(
            tree.path,
            mode=modes[tree.path],
            owner=params.owner,
            group=params.group,
            parents=params.create_parents,
            missing=missing,
        )
    owner = show_owner(params.owner, params.group)
    change = TreeChange(
        gone=[state.path for state in plan.gone],
        emptied=[state.path for state in plan.emptied],
        folders=[path for path in plan.folders if path != tree.path],
        folder_mode=0o700,
        links={link.wanted.path: tree.links[link.wanted.path] for link in plan.links},
        owner=owner,
    )
    # Closed until everything is in them, and only then as they should be.
    for path in change.folders:
        change.modes.setdefault(modes[path], []).append(path)
    for file in plan.files:
        path = file.wanted.path
        if file.content:
            content = ctx.runner.source(tree.files[path])
            change.files.append(NewFile(path, content, file.mode, *_numbers(file.before, look)))
            continue
        if file.ownership:
            change.owners.setdefault(owner, []).append(path)
        if file.permissions or (file.ownership and file.mode & 0o6000):
            change.modes.setdefault(file.mode, []).append(path)
    ctx.runner.trees.change(tree.path, change, look)


def _check_owners(plan: Plan) -> None:
    """Refuse to replace a file of another user in a folder that others can write; that of the folder may have one."""
    look = plan.look
    for file in plan.files:
        before, folder = file.before, look.states.get(posixpath.dirname(file.before.path))
        if not file.content or before.kind != "file" or folder is None or before.uid in (0, look.uid, folder.uid):
            continue
        if folder.mode & 0o022 or folder.uid not in (0, look.uid):
            raise StepFailed(
                f"copy to {before.path}: it belongs to user {before.owner}, in a folder that others can write",
                hint="set `owner`, or remove it first",
            )


def _numbers(before: FileState, look: TreeLook) -> tuple[int, int]:
    """Owner and group of a file that is replaced are kept; a new one is ours, in a set-group-id folder the folder's."""
    if before.kind == "file":
        return before.uid, before.gid
    folder = look.states.get(posixpath.dirname(before.path))
    return look.uid, folder.gid if folder is not None and folder.mode & 0o2000 else look.gid


# undo


def _remember(ctx: StepContext, plan: Plan, made: Sequence[str], modes: Mapping[str, int]) -> None:
    replaced = [
        change.before for change in (*plan.links, *plan.files) if change.content and change.before.kind == "file"
    ]
    replaced += [state for state in plan.gone if state.kind == "file"]
    total = sum(state.size for state in replaced)
    others = [state for state in plan.gone if state.kind == "other"]
    if total > KEEP_LIMIT or others:
        why = "the replaced content is too large to be kept" if not others else f"{others[0].path} cannot be kept"
        ctx.log.warning(f"cannot be undone: {why}", bytes=total, limit=KEEP_LIMIT)
        return
    contents = dict(zip((state.path for state in replaced), ctx.runner.trees.read(replaced), strict=True))
    given_away = [change.before for change in plan.files if change.ownership and not change.content]
    extended = _attributes(ctx, plan.tree.path, [*replaced, *(state for state in given_away if state.kind == "file")])
    links = [state.path for state in plan.gone if state.kind == "link"]
    gone = [state for state in plan.gone if state.kind == "file"]
    gone += ctx.runner.inspect_all(links, digest=False)
    emptied = {state.path for state in plan.emptied}
    records = []
    for change in (*plan.links, *plan.files):
        path = change.before.path
        lefts = [_left(ctx, plan, change), *([{"kind": "directory"}] if path in emptied else [])]
        records.append({**_record(ctx, change.before, contents.get(path)), "left": lefts})
    new = set(plan.folders)
    for state in gone:
        left = {"kind": "directory" if state.path in new else "absent"}
        records.append({**_record(ctx, state, contents.get(state.path)), "left": [left]})
    for record in records:
        if found := extended.get(record["path"]):
            record["attributes"] = found
    removed = [_record(ctx, state, None) for state in reversed(plan.emptied)]
    linked = [path for path in plan.tree.folders if plan.look.states[path].to_folder and path not in new]
    ctx.save_undo({
        "root": plan.tree.path, "files": records, "made": list(made), "modes": modes, "removed": removed,
        "linked": linked,
    })  # fmt: skip


def _attributes(ctx: StepContext, root: str, states: Sequence[FileState]) -> dict[str, Mapping[str, str]]:
    """The extended attributes of files that are replaced, of those that have some."""
    some = ctx.runner.trees.have_attributes(root, states)
    if some is None:
        warn_of_attributes(ctx, root)
    found = {state.path: ctx.runner.attributes(state) for state in states} if some else {}
    return {path: each for path, each in found.items() if each}


def _left(ctx: StepContext, plan: Plan, change: Change) -> dict[str, Any]:
    """What is at the place of a file or link when the plan is done."""
    left = change.left(ctx) or {}
    if change.content and change.becomes == "file":
        uid, gid = _numbers(change.before, plan.look)
        left |= {"owner": change.wanted.owner or str(uid), "group": change.wanted.group or str(gid)}
    return left


def _record(ctx: StepContext, state: FileState, content: bytes | None) -> dict[str, Any]:
    record = {"path": state.path, **attributes_of(state)}
    if state.kind != "absent":
        record |= {"uid": state.uid, "gid": state.gid}
    return record if content is None else record | {"content": ctx.keep(content)}


class TreeStep(RestoringStep[T, S], Generic[T, S]):
    """A step that may write a whole folder; of a single file it is undone as every step that writes one."""

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare with what was left."""
        return tree_standing(ctx, undo) if "root" in undo else super().standing(ctx, undo)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        if "root" in undo:
            restore_tree(ctx, undo)
        else:
            super().rollback(ctx, undo)

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of each file what was there before the first attempt."""
        trees = "root" in first and "root" in later
        return merge_trees(first, later) if trees else super().merge_undo(first, later)


def tree_standing(ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
    """What an undo finds of a folder with all that was written into it."""
    root, made, linked = undo["root"], undo["made"], {*undo["linked"]}
    records = {record["path"]: record for record in undo["files"]}
    for record in undo["removed"]:
        path = record["path"]
        lefts = [{"kind": "absent"}, _CLOSED, *record.get("left", ()), *records.get(path, {}).get("left", ())]
        records[path] = {**record, "left": lefts}
    below = [path for path in (*records, *made) if path.startswith(f"{root.rstrip('/')}/")]
    way = {root, *(folder for path in below for folder in _above(path, root))} - linked
    found = files_standing(
        ctx, list(records.values()), made=made, modes=undo.get("modes", {}), way=sorted(way), root=root
    )
    # Such a folder has to go with all that is in it.
    instead = {path for path in made if records.get(path, _NOTHING)["kind"] != "absent"}
    if not instead:
        return found
    ours = {*made, *records}
    guests = [
        state.path
        for state in ctx.runner.trees.look(root, [root], below=True).below
        if state.path not in ours and not instead.isdisjoint(_above(state.path, root))
    ]
    return together(found, *(Standing(changed=(f"{guest} (in a folder that was made)",)) for guest in guests))


def merge_trees(first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
    """What two attempts saved as one: of each place what was there before the first."""
    root, files = first["root"], {record["path"] for record in first["files"]}
    removed = {record["path"]: record for record in first["removed"]}
    # A folder that a later attempt finds there is one that the first has made.
    none = {*first["made"], *files} - removed.keys()
    records, lost = list[Mapping[str, Any]](), [*first.get("lost", ()), *later.get("lost", ())]
    for record in later["files"]:
        path = record["path"]
        if path in files or record["kind"] == "absent" or none.isdisjoint(_above(path, root)):
            records.append(record)
            continue
        # Somebody else created it in between, in a folder that did not exist before: it cannot be restored.
        lost.append(path)
        records.append({"path": path, "kind": "absent", "left": record.get("left", [])})
    for record in later["removed"]:
        if record["path"] not in none and none.isdisjoint(_above(record["path"], root)):
            removed.setdefault(record["path"], record)
    # What a later attempt made or removed at the place of a file, or of a folder, of the first.
    lefts = [(path, "directory") for path in later["made"]]
    lefts += [(record["path"], "absent") for record in later["removed"]]
    records += [{"path": path, "kind": "absent", "left": [{"kind": kind}]} for path, kind in lefts if path in files]
    for path, kind in lefts:
        if path in removed and kind == "directory":
            removed[path] = {**removed[path], "left": [{"kind": kind}]}
    made = dict.fromkeys([*first["made"], *later["made"]])
    return {
        "root": root,
        "files": merge_files(first["files"], records),
        "removed": list(removed.values()),
        "made": [path for path in made if path not in removed],
        "modes": {**first.get("modes", {}), **later.get("modes", {})},
        "linked": list(dict.fromkeys([*first["linked"], *later["linked"]])),
        "lost": lost,
    }


def restore_tree(ctx: StepContext, undo: Mapping[str, Any]) -> None:
    """Put back what ``apply_plan`` has changed; what was made goes away, folders only if nothing else is in them."""
    root, records, removed = undo["root"], undo["files"], undo["removed"]
    made = [path for path in undo["made"] if path.startswith(f"{root.rstrip('/')}/")]
    clear_made(ctx, [path for path in undo["made"] if not path.startswith(f"{root.rstrip('/')}/")])
    for path in undo.get("lost", ()):
        ctx.log.warning("it appeared between two attempts, the later one removed it, and it is not restored", path=path)
    places = dict.fromkeys([*(record["path"] for record in (*records, *removed)), *made])
    look = look_at(ctx, root, [root, *places], records, below=True)
    if look.states[root].kind == "link" and root not in undo["linked"]:
        raise StepFailed(f"write to {root}: it has become a link", hint="remove the link and try again")
    states = without_what_is_behind(look.states, places)
    change = TreeChange(folder_mode=0o700, exact=True)
    # Only what is not behind a link that was not there before: that belongs to somebody else.
    ours = {state.path for state in look.below}
    ours |= {
        path for path in places if any(path.startswith(f"{folder}/") for folder in undo["linked"] if folder != root)
    }
    special = {record["path"]: record for record in records if record.get("attributes") and "content" in record}
    for record in records:
        if record["path"] not in special:
            _put_back(ctx, record, states[record["path"]], change, ours)
    for record in sorted(removed, key=lambda record: str(record["path"]).count("/")):
        _put_folder_back(record, states[record["path"]], change)
    # What has replaced a folder.
    kept = {record["path"] for record in records if record["kind"] != "absent"}
    change.gone += [
        path
        for path in dict.fromkeys([*made, *change.folders])
        if states[path].kind in ("file", "link") and path in ours and path not in kept
    ]
    change.gone = list(dict.fromkeys(change.gone))
    change.emptied = _emptied(made, look, {*change.gone})
    _clear_the_way(ctx, [states[path] for path in places if path in ours], undo, change)
    if change.any:
        if not look.states[root].exists:
            ctx.runner.mkdir(root)
        ctx.runner.trees.change(root, change, look)
    for record in special.values():
        restore_file(ctx, record)
    remove_made(ctx, undo["made"])


def _put_folder_back(record: Mapping[str, Any], now: FileState, change: TreeChange) -> None:
    path, owner = record["path"], f"{record['uid']}:{record['gid']}"
    if now.kind != "directory":
        change.folders.append(path)
    elif (now.mode, now.uid, now.gid) == (record["mode"], record["uid"], record["gid"]):
        return
    change.modes.setdefault(record["mode"], []).append(path)
    change.owners.setdefault(owner, []).append(path)


def _clear_the_way(ctx: StepContext, places: Sequence[FileState], undo: Mapping[str, Any], change: TreeChange) -> None:
    """Remove what nothing can be put in place of: folders with something in them, devices, pipes and sockets."""
    folders = {record["path"] for record in undo["removed"]}
    # Of the others, only mode and owner were changed.
    whole = {record["path"]: record for record in undo["files"] if (record["kind"] != "file" or "content" in record)}
    made, emptied, cleared = {*undo["made"]}, {*change.emptied}, set[str]()
    for state in sorted(places, key=lambda state: state.path.count("/")):
        path, record = state.path, whole.get(state.path)
        if state.kind == "directory":
            # One that was made stays for what others have put there, unless something is to come back in its place.
            stays = record is None or (record["kind"] == "absent" and path in made)
            blocks = not stays and path not in folders and path not in emptied
        else:
            blocks = state.kind == "other" and (record is not None or path in made or path in folders)
        if blocks and cleared.isdisjoint(_above(path, undo["root"])):
            cleared.add(path)
            ctx.runner.remove(path, recursive=True)
    if cleared:
        for name in ("gone", "emptied"):
            paths = [path for path in getattr(change, name) if cleared.isdisjoint(_above(path, undo["root"]))]
            setattr(change, name, paths)


def _put_back(ctx: StepContext, record: Mapping[str, Any], now: FileState, change: TreeChange, ours: set[str]) -> None:
    path, kind = record["path"], record["kind"]
    if kind == "absent":
        if now.kind in ("file", "link") and path in ours:
            change.gone.append(path)
    elif kind == "link":
        if (now.kind, now.target) != ("link", record["target"]):
            change.links[path] = record["target"]
            if "uid" in record:
                change.owners.setdefault(f"{record['uid']}:{record['gid']}", []).append(path)
    elif "content" in record:
        data = ctx.kept(record["content"])
        same = now.kind == "file" and now.sha256 == hashlib.sha256(data).hexdigest()
        if not same or (now.mode, now.uid, now.gid) != (record["mode"], record["uid"], record["gid"]):
            change.files.append(NewFile(path, data, record["mode"], record["uid"], record["gid"]))
    elif now.kind == "file":
        if (now.uid, now.gid) != (record["uid"], record["gid"]):
            change.owners.setdefault(f"{record['uid']}:{record['gid']}", []).append(path)
        if now.mode != record["mode"] or record["mode"] & 0o6000:
            change.modes.setdefault(record["mode"], []).append(path)


def _emptied(made: Sequence[str], look: TreeLook, gone: set[str]) -> list[str]:
    """Those of the folders that will be empty, the deepest first."""
    inside: dict[str, int] = {}
    for state in look.below:
        if state.path not in gone:
            folder = posixpath.dirname(state.path)
            inside[folder] = inside.get(folder, 0) + 1
    there = {state.path for state in look.below if state.kind == "directory"}
    emptied: list[str] = []
    for folder in sorted(made, key=lambda path: path.count("/"), reverse=True):
        if folder in there and not inside.get(folder):
            emptied.append(folder)
            above = posixpath.dirname(folder)
            inside[above] = inside.get(above, 0) - 1
    return emptied

"""Whether a host still is as a step left it when the step is undone, or somebody else has changed it since."""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic

from msgspec.structs import replace
from typing_extensions import TypeVar

from kubexm_exec.step import Params, Standing, Step, StepContext, StepFailed, Undo
from kubexm_exec.step.host import FileState, ancestors
from kubexm_exec.step.trees import TreeLook

OLDER: Final = "the run was recorded by an earlier version of kubexm, which did not record what it left"
BROKE_OFF: Final = "it was interrupted before it recorded what it left"
_ROUNDS: Final = 50_000
"""Of the digest of content with a secret: a plain one could be tried against guesses by a reader of the journal."""
_NOUNS: Final = {"absent": "gone", "file": "a file", "directory": "a folder", "link": "a link", "other": "no file"}


P = TypeVar("P", bound=Params)
S = TypeVar("S", default=None)


class LookingStep(Step[P, S], Generic[P, S]):
    """A step whose undo compares the host with what was ``left``."""

    undo = Undo.REPEATABLE
    repeatable = True

    @classmethod
    def merge_undo(cls, first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was there before the first attempt, and what the last one left."""
        return {**later, **first, **({"left": later["left"]} if "left" in later else {})}


def together(*standings: Standing) -> Standing:
    """What several parts of one undo find, as one."""
    return Standing(
        changed=tuple(name for each in standings for name in each.changed),
        before=all(each.before for each in standings),
        unknown=next((each.unknown for each in standings if each.unknown), ""),
    )


def differing(name: str, before: Any, left: Any, now: Any, shown: str = "") -> Standing:
    """What an undo finds of one value that is not secret."""
    if now in (before, left):
        return Standing(before=now == before)
    return Standing(changed=(f"{name} ({shown})" if shown else name,))


def mapped(before: Mapping[str, Any], left: Mapping[str, Any], now: Mapping[str, Any], noun: str = "{}") -> Standing:
    """What an undo finds of several values, each under its name; ``noun`` is how a name is shown."""
    found = [differing(noun.format(name), before.get(name), left[name], now.get(name)) for name in left]
    return together(*found) if found else Standing(before=True)


def digest(ctx: StepContext, sha256: str, *, secret: bool) -> str:
    """A digest that may be written down, also of content that holds a secret."""
    if not secret or not sha256:
        return sha256
    known = ctx.cache("run").setdefault("kubexm digests", {})
    if sha256 not in known:
        salt = secrets.token_hex(16)
        known[sha256] = f"{salt}:{_slow(sha256, salt)}"
    kept: str = known[sha256]
    return kept


def is_digest(kept: str, sha256: str) -> bool:
    """Whether a digest that was written down is that of content with this one."""
    salt, _, slow = kept.rpartition(":")
    return _slow(sha256, salt) == slow if salt else kept == sha256


def _slow(sha256: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", sha256.encode(), salt.encode(), _ROUNDS).hex()


# files


def file_left(
    ctx: StepContext,
    before: FileState,
    *,
    sha256: str | None,
    secret: bool,
    mode: int,
    owner: str | None,
    group: str | None,
) -> dict[str, Any]:
    """A file as a step leaves it. sha256 None: its content is not touched; empty: it is not known."""
    there = before.kind == "file"
    left: dict[str, Any] = {"kind": "file", "mode": mode}
    if sha256 is not None:
        left["sha256"] = digest(ctx, sha256, secret=secret)
    # A new file belongs to the user that the step works as.
    left["owner"] = owner or (str(before.uid) if there else "")
    left["group"] = group or (str(before.gid) if there else "")
    return left


def attributes_of(state: FileState) -> dict[str, Any]:
    """Kind, owner, group, and mode or target, as records have them."""
    if state.kind == "absent":
        return {"kind": "absent"}
    rest = {"target": state.target} if state.kind == "link" else {"mode": state.mode}
    return {"kind": state.kind, "owner": str(state.uid), "group": str(state.gid), **rest}


def state_left(ctx: StepContext, state: FileState, *, secret: bool = False) -> dict[str, Any]:
    """What is at a path now, as a step has left it."""
    content = {"sha256": digest(ctx, state.sha256, secret=secret)} if state.kind == "file" else {}
    return attributes_of(state) | content


def files_standing(
    ctx: StepContext,
    records: Sequence[Mapping[str, Any]],
    *,
    made: Sequence[str] = (),
    modes: Mapping[str, int] = MappingProxyType({}),
    way: Sequence[str] = (),
    root: str = "",
) -> Standing:
    """What an undo finds of files: records of what was there before, each with all that may have been left.

    ``made`` are folders: by themselves they hold nothing of anybody that an undo could destroy, but for the mode of
    those in ``modes``, which were left with one of their own. ``way`` are folders on the way that were no links.
    ``root`` is the folder that all of it is in: links there may go round in a circle.
    """
    paths = [record["path"] for record in records]
    known = {*paths}
    paths = list(dict.fromkeys([*paths, *(posixpath.dirname(path) for path in paths), *made, *way]))
    if not paths:
        return Standing(before=True)
    if root:
        seen = dict(look_at(ctx, root, paths, records).states)
    else:
        seen = {state.path: state for state in ctx.runner.inspect_all(paths)}
    states = without_what_is_behind(seen, [*known, *made])
    me = _Me(ctx, states)
    # One that took the place of something else is that one's matter.
    folders = [states[path] for path in made if path not in known]
    odd = [state for state in folders if state.kind not in ("absent", "directory")]
    odd += [states[path] for path in way if path not in known and states[path].kind not in ("absent", "directory")]
    return together(
        Standing(before=not any(state.exists for state in folders)),
        *(Standing(changed=(f"{state.path} (it is {_NOUNS[state.kind]})",)) for state in odd),
        *(Standing(changed=(f"{state.path} (mode)",)) for state in folders if _has_other_mode(state, modes)),
        *(_file(ctx, record, states[record["path"]], me) for record in records),
    )


def _has_other_mode(state: FileState, modes: Mapping[str, int]) -> bool:
    # A step that was interrupted leaves folders closed.
    left = modes.get(state.path)
    return state.kind == "directory" and left is not None and state.mode & 0o777 not in (left & 0o777, 0o700)


def look_at(
    ctx: StepContext, root: str, paths: Sequence[str], records: Sequence[Mapping[str, Any]], *, below: bool = False
) -> TreeLook:
    """The state of paths below a folder; nothing is behind a link that a step may have put in the place of a folder.

    Where the step has given the folder away, the way through such a link would be refused.
    """
    places = {record["path"] for record in records if any(left["kind"] == "link" for left in record.get("left") or ())}
    places &= {folder for path in paths for folder in ancestors(path)[:-1]} if places else set()
    links = set[str]()
    while places:
        outer = [path for path in places if places.isdisjoint(ancestors(path)[:-1])]
        states = ctx.runner.trees.look(root, outer).states
        links.update(path for path in outer if states[path].kind == "link")
        places = {path for path in places.difference(outer) if links.isdisjoint(ancestors(path))}
    hidden = {path for path in paths if links and not links.isdisjoint(ancestors(path)[:-1])}
    look = ctx.runner.trees.look(root, [path for path in paths if path not in hidden], below=below)
    return replace(look, states={path: look.states.get(path, FileState(path)) for path in paths}) if hidden else look


def without_what_is_behind(states: Mapping[str, FileState], places: Iterable[str]) -> dict[str, FileState]:
    """The states, but what is seen through a link in one of these places is not there."""
    linked = {path for path in places if states[path].kind == "link"}

    def behind(path: str) -> bool:
        above = posixpath.dirname(path)
        while above not in linked:
            path, above = above, posixpath.dirname(above)
            if path == above:
                return False
        return True

    return {path: FileState(path) if linked and behind(path) else state for path, state in states.items()}


class _Me:
    """Whose a file is that a step makes without a word about that; asked for once, and only if it matters."""

    def __init__(self, ctx: StepContext, states: Mapping[str, FileState]) -> None:
        self._ctx = ctx
        self._states = states

    @cached_property
    def _numbers(self) -> list[str]:
        return self._ctx.runner.shell("id -u && id -g", live=False).out.split()

    def owns(self, state: FileState) -> bool:
        return str(state.uid) == self._numbers[0]

    def groups(self, state: FileState) -> bool:
        folder = self._states.get(posixpath.dirname(state.path))
        if folder is not None and folder.mode & 0o2000:
            return state.gid == folder.gid
        return str(state.gid) == self._numbers[1]


def _file(ctx: StepContext, record: Mapping[str, Any], now: FileState, me: _Me) -> Standing:
    path, lefts = now.path, record.get("left")
    before = {**record, "sha256": _kept_digest(ctx, record)} if "content" in record else record
    if lefts is None:
        return Standing(before=_is(before, now, me), unknown=OLDER)
    if not lefts:
        return Standing(before=_is(before, now, me), unknown=BROKE_OFF)
    alike = [state for state in (before, *lefts) if state["kind"] == now.kind]
    if not alike:
        return Standing(changed=(f"{path} (it is {_NOUNS[now.kind]})",))
    # Each by itself: an undo, or the step, may have come only half the way.
    differs = [aspect for aspect in _ASPECTS if not any(_fits(each, now, aspect, me) for each in alike)]
    if differs:
        names = ", ".join(differs).replace("sha256", "content")
        return Standing(changed=(f"{path} ({names})",))
    same, attributes = _is(before, now, me), record.get("attributes")
    return Standing(before=same and (not attributes or ctx.runner.attributes(now) == attributes))


_ASPECTS: Final = ("sha256", "target", "mode", "owner", "group")


def _is(state: Mapping[str, Any], now: FileState, me: _Me) -> bool:
    return state["kind"] == now.kind and all(_fits(state, now, aspect, me) for aspect in _ASPECTS)


def _fits(state: Mapping[str, Any], now: FileState, aspect: str, me: _Me) -> bool:
    """Whether a file is so, as far as is known how it was."""
    said = state.get(aspect)
    if said is None:
        return True
    match aspect:
        case "sha256":
            return not said or is_digest(said, now.sha256)
        case "owner":
            return said in (now.owner, str(now.uid)) if said else me.owns(now)
        case "group":
            return said in (now.group, str(now.gid)) if said else me.groups(now)
    return bool(said == getattr(now, aspect))


def _kept_digest(ctx: StepContext, record: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(ctx.kept(record["content"])).hexdigest()
    except StepFailed:
        # A secret, of an earlier session: it cannot be put back either, and nothing is like it.
        return "not kept"


def merge_files(first: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of two attempts as one: of each file what was there before the first, and all that may be left."""
    found = {record["path"]: record for record in first}
    for record in later:
        known = found.get(record["path"])
        if known is None:
            found[record["path"]] = record
            continue
        # Of a file whose mode or owner was changed at first, the content is still that of before.
        more = record["kind"] == known["kind"] == "file" and "content" not in known
        merged = {**record, **known} if more else {**known}
        if "left" in known and "left" in record:
            merged["left"] = [*known["left"], *(left for left in record["left"] if left not in known["left"])]
        found[record["path"]] = merged
    return list(found.values())

"""The step type ``sync``: a folder of the host holds what a folder of the control node holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from re import escape
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kubexm_exec.step import Forecast, LocalFile, Outputs, Result, StepContext, StepFailed
from kubexm_spec.models.common import no_items
from kubexm_spec.regex import Regex, RegexError, regex
from kubexm_steps.lib.trees import (
    Plan,
    Tree,
    TreeParams,
    TreeStep,
    apply_plan,
    copied,
    forecast_plan,
    make_plan,
    read_tree,
)
from kubexm_steps.lib.types import located

_NOTHING = r"[^\x00-\x{10FFFF}]"


class Excluded:
    """Says of names below a folder whether a list of patterns leaves them out; the last one that matches decides.

    A pattern without a slash matches a name at any depth, one with a slash a path from the top. A slash at the end
    means folders only, ``*`` and ``?`` stop at slashes, ``**`` does not, and ``!`` takes back what an earlier pattern
    left out. What is in a folder that is left out is left out too.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [_rule(pattern) for pattern in patterns]
        self._folders: dict[str, bool] = {}

    def __call__(self, name: str, folder: bool) -> bool:
        """Whether that is left out; the name is relative, without a slash at its end."""
        if not self._rules:
            return False
        above, slash, _ = name.rpartition("/")
        if slash and self._folder(above):
            return True
        return self._folder(name) if folder else self._matches(name, folder=False)

    def _folder(self, name: str) -> bool:
        known = self._folders.get(name)
        if known is None:
            above, slash, _ = name.rpartition("/")
            known = self._folders[name] = bool(slash and self._folder(above)) or self._matches(name, folder=True)
        return known

    def _matches(self, name: str, *, folder: bool) -> bool:
        excluded = False
        for expression, folders_only, out in self._rules:
            if (folder or not folders_only) and expression.matches(name):
                excluded = out
        return excluded


def checked_pattern(pattern: str) -> str:
    """The pattern, if it means anything."""
    _rule(pattern)
    return pattern


def _rule(pattern: str) -> tuple[Regex, bool, bool]:
    out = not pattern.startswith("!")
    text = pattern if out else pattern[1:]
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text.strip("/"):
        raise ValueError(f"the pattern {pattern!r} matches nothing")
    anchored = "/" in text
    source = _translated(text.removeprefix("/"))
    try:
        expression = regex(f"(?s){source}" if anchored else f"(?s)(?:.*/)?{source}")
    except RegexError as error:
        raise ValueError(f"the pattern {pattern!r} cannot be read: {error}") from error
    return expression, folders_only, out


def _translated(text: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif text[at:] == "**" and (at == 0 or text[at - 1] == "/"):
            parts.append(".+")
            at += 2
        elif text[at] == "*":
            while text.startswith("*", at + 1):
                at += 1
            parts.append("[^/]*")
            at += 1
        elif text[at] == "?":
            parts.append("[^/]")
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end]
            negated = inside.startswith(("!", "^"))
            ranges = "".join(f"{_sign(low)}-{_sign(high)}" for low, high in _ranges(inside[negated:]))
            parts.append(f"[^/{ranges}]" if negated else f"[{ranges}]" if ranges else _NOTHING)
            at = end + 1
        elif text[at] == "\\" and at + 1 < len(text):
            parts.append(escape(text[at + 1]))
            at += 2
        else:
            parts.append(escape(text[at]))
            at += 1
    return "".join(parts)


def _ranges(inside: str) -> Iterator[tuple[str, str]]:
    """What brackets hold, as ranges; without the slash, which no bracket matches."""
    at = 0
    while at < len(inside):
        low = high = inside[at]
        at += 1
        if inside[at : at + 1] == "-" and at + 1 < len(inside):
            high = inside[at + 1]
            at += 2
        if low <= "/" <= high:
            yield from ((one, two) for one, two in ((low, "."), ("0", high)) if one <= two)
        else:
            yield low, high


def _sign(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


class SyncParams(TreeParams):
    """Parameters of ``sync``."""

    src: Annotated[str, LocalFile()] = Field(
        description="Folder on the control node, relative to the file that contains this step."
    )
    delete: bool = Field(False, description="Remove content of `path` that is not in `src`.")
    exclude: list[Annotated[str, AfterValidator(checked_pattern)]] = Field(
        default_factory=no_items,
        description="Patterns as in a .gitignore; matching files are neither sent nor removed.",
    )

    def model_post_init(self, context: object) -> None:
        if self.delete and self.path == "/":
            raise ValueError("delete on the root folder would remove everything; name a folder below it")


class SyncOutputs(Outputs):
    path: str = Field(description="The folder on the host.")
    files: int = Field(description="Number of files and links in the source, without excluded ones.")


class SyncStep(TreeStep[SyncParams, Plan]):
    """A folder on the host with the same content as a folder on the control node.

    The two are compared in one round trip, by sha256. What differs is sent as one stream, written to disk next to its
    destination, and then each file is replaced atomically.

    - `delete: true` removes what is not in the source or is of another kind there: a link where the source
      has a folder becomes a folder, and its target is not changed. Without `delete`, `sync` is a `copy` with
      `exclude`, and a link to a folder counts as that folder.
    - `exclude` takes patterns as in a `.gitignore`: `*.log` at any depth, `/cache` at the top, `build/` for folders
      only, `**` for any number of folders, and `!keep.log` for an exception. Excluded files are neither sent nor
      removed. Folders with excluded content are kept, and so are other file systems mounted inside.
    - Without `mode`, an existing file keeps its mode, and a new one has that of the source (without setuid, setgid
      and sticky bits); files of a `sensitive` step are `0600`. New folders have the mode of the source too.
    - `check` shows what would be added, changed and removed.
    - Undo restores what was replaced and removed (up to 64 MiB), and removes what was created.
    """

    outputs_model = SyncOutputs
    example = """\
- name: site
  type: sync
  with:
    src: ./files/site
    path: /srv/site
    delete: true
    exclude: ["*.swp", /uploads]
"""

    def precheck(self, ctx: StepContext) -> Forecast[Plan]:
        params = self.params = located(ctx, self.params, last=True)
        plan = self._plan(ctx)
        return forecast_plan(ctx, params, plan, same=f"{params.path} is the same", outputs=self._outputs(plan.tree))

    def run(self, ctx: StepContext, forecast: Forecast[Plan]) -> Result:
        plan = forecast.seen
        apply_plan(ctx, self.params, plan)
        return Result(message=copied(plan, "copied", "removed"), outputs=self._outputs(plan.tree))

    def _plan(self, ctx: StepContext) -> Plan:
        params = self.params
        local = ctx.local_path(params.src)
        if not local.is_dir():
            missing = "it is not a folder" if local.exists() else "it does not exist"
            raise StepFailed(
                f"sync {params.src}: {missing} on the control node ({local})", hint="use `copy` for a single file"
            )
        left_out = Excluded(params.exclude)
        tree = read_tree(local, params.path, left_out)
        return make_plan(ctx, params, tree, delete=params.delete, left_out=left_out)

    def _outputs(self, tree: Tree) -> dict[str, Any]:
        return {"path": self.params.path, "files": tree.count}

"""The step type ``git``: a checkout of a repository at a branch, a tag or a commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.git import EMPTY, Access, Checkout
from kubexm_spec.diagnostics import plural
from kubexm_steps.lib.standing import OLDER, LookingStep
from kubexm_steps.lib.types import FollowParams, HostPath, located, unbroken


def _repo(url: str) -> str:
    if not url or url.startswith("-") or any(char in url for char in "\0\r\n"):
        raise ValueError(f"{url!r} is not the address of a repository")
    if "::" in url.partition("/")[0]:
        raise ValueError(f"{url!r}: addresses that run a program are not allowed")
    if re.match(r"(?i)https?://[^/@]*:[^/@]*@", url):
        raise ValueError("an address with a password in it is not allowed; use `username` and `password`")
    return url


def _ref(name: str) -> str:
    if not name or name.startswith("-") or re.search(r"[\0-\x20~^:?*\[\\]|\.\.|@\{|//|/$|\.lock$", name):
        raise ValueError(f"{name!r} is not the name of a branch or tag, or a commit")
    return name


class GitParams(FollowParams):
    """Parameters of ``git``."""

    repo: Annotated[str, AfterValidator(_repo)] = Field(
        description="Address of the repository, as for `git clone`: https, ssh, a path on the host."
    )
    path: HostPath = Field(description="Folder of the checkout on the host.")
    ref: Annotated[str, AfterValidator(_ref)] = Field(
        "HEAD", description="Branch, tag or commit. By default the HEAD of the repository."
    )
    depth: int | None = Field(None, ge=1, description="Fetch only this many commits of history.")
    force: bool = Field(False, description="Discard local changes and commits; by default they are a failure.")
    submodules: bool = Field(False, description="Fetch submodules too, recursively.")
    username: Annotated[str, AfterValidator(unbroken)] | None = Field(
        None, description="User for https; many servers accept any user with a token."
    )
    password: Annotated[str, AfterValidator(unbroken)] | None = Field(
        None, description="Password or token for https, as a secret. It is never stored on the host."
    )
    ssh_key: HostPath | None = Field(None, description="Key for ssh: a file on the host, without a passphrase.")

    def model_post_init(self, context: object) -> None:
        if self.username is not None and self.password is None:
            raise ValueError("a username goes with a password")
        if self.path == "/":
            raise ValueError("the root folder cannot be a checkout")


class GitOutputs(Outputs):
    path: str = Field(description="Folder of the checkout.")
    commit: str = Field(description="The commit that is checked out.")


class GitStep(LookingStep[GitParams, Checkout]):
    """A checkout of a git repository at a branch, a tag or a commit.

    kubexm first asks the repository for the commit of the name; if the checkout has it, nothing is done. The host
    itself fetches, so it needs git and access to the repository.

    - A branch is checked out as a branch of that name; tags and commits as a detached HEAD.
    - Local changes to tracked files and unpushed commits are never lost: they are a failure
      unless `force: true`. Untracked files are kept.
    - User and password are passed to git on standard input: they appear in no process list, file or address.
      New host keys of ssh servers are accepted, changed ones refused.
    - Undo restores the former commit and branch with their local changes, or removes a new checkout.
    """

    outputs_model = GitOutputs
    example = """\
- name: source
  type: git
  with:
    repo: https://git.example/team/app.git
    path: /opt/app
    ref: v1.4.2
    depth: 1
    password: "{{ secret('env:GIT_TOKEN') }}"
"""

    def precheck(self, ctx: StepContext) -> Forecast[Checkout]:
        now = self._look(ctx)
        if not now.git:
            return Forecast.unknown("git is not installed yet", seen=now)
        if not now.wanted:
            # A short number of a commit that is not here yet, or no name at all.
            return Forecast.unknown(f"{self.params.repo} has no branch or tag {self.params.ref}", seen=now)
        if self._is_right(now):
            changed = ", with local changes" if now.changes else ""
            message = f"{self.params.path} is at {now.head[:12]} ({self.params.ref}){changed}"
            return Forecast.satisfied(message, self._outputs(now))
        self._refuse(now)
        note = f"{now.head[:12]} -> {now.wanted[:12]}" if now.head else f"checkout of {now.wanted[:12]}"
        if now.changes and self.params.force:
            note += f", {plural(len(now.changes), 'local change')} discarded"
        verb = "update" if now.kind == "checkout" else "check out"
        return Forecast.change(
            f"would {verb} {self.params.path} ({self.params.ref})", [Diff(self.params.path, note=note)], seen=now
        )

    def run(self, ctx: StepContext, forecast: Forecast[Checkout]) -> Result:
        params, now = self.params, forecast.seen
        if not now.git:
            raise StepFailed("git is not installed on the host", hint="install it first with a `package` step")
        if not now.wanted:
            raise StepFailed(
                f"{params.repo} has no branch or tag {params.ref}", hint="a commit needs all of its 40 digits"
            )
        if now.kind == "checkout":
            kept = ctx.runner.git.save_changes(params.path) if now.changes and now.head else ""
            undo = {"head": now.head, "branch": now.branch, "url": now.url, "changes": kept}
            ctx.save_undo({**undo, "left": now.wanted} if now.head else {})
        else:
            above = ctx.runner.missing_folders(params.path)[:-1] if now.kind == "absent" else []
            ctx.save_undo({"made": now.kind, "above": above, "left": now.wanted})
            if above:
                ctx.runner.mkdir(above[-1], missing=above)
        ctx.runner.git.checkout(
            params.repo,
            params.path,
            now,
            self._access(),
            depth=params.depth,
            force=params.force,
            submodules=params.submodules,
        )
        verb = "updated" if now.kind == "checkout" else "checked out"
        return Result(message=f"{verb} {params.path} at {now.wanted[:12]}", outputs=self._outputs(now))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        path, made = located(ctx, self.params, last=True).path, undo.get("made")
        if "left" not in undo:
            return Standing(unknown=OLDER)
        now = ctx.runner.git.state(path, every=bool(made))
        if made and now.kind in ("absent", "empty"):
            return Standing(before=now.kind == made)
        if now.kind != "checkout":
            return Standing(changed=(f"{path} (it is no longer a checkout)",))
        if not made and now.head == undo["head"]:
            return Standing(before=not undo["changes"])
        if now.head != undo["left"]:
            return Standing(changed=(f"{path} (it is at {now.head[:12] or 'no commit'})",))
        return Standing(changed=tuple(f"{path}/{line[3:]}" for line in now.changes[:3]))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        path = located(ctx, self.params, last=True).path
        if undo.get("made") == "absent":
            ctx.runner.remove(path, recursive=True)
            ctx.runner.remove_empty(undo["above"])
        elif undo.get("made") == "empty":
            ctx.runner.shell(EMPTY, path, live=False)
        elif "head" in undo:
            ctx.runner.git.go_back(
                path, undo["head"], undo["branch"], undo["url"], undo["changes"], submodules=self.params.submodules
            )

    def _access(self) -> Access:
        params = self.params
        user = params.username or ("git" if params.password else "")
        return Access(user, params.password or "", params.ssh_key or "")

    def _look(self, ctx: StepContext) -> Checkout:
        self.params = params = located(ctx, self.params, last=True)
        now = ctx.runner.git.look(params.repo, params.path, params.ref, self._access())
        if now.kind in ("folder", "other"):
            thing = "a folder with something else in it" if now.kind == "folder" else "not a folder"
            raise StepFailed(f"check out {params.path}: it is {thing}", hint="choose another path, or remove it first")
        return now

    def _is_right(self, now: Checkout) -> bool:
        if now.kind != "checkout" or now.head != now.wanted or now.url != self.params.repo:
            return False
        if now.wanted_kind == "branch" and now.branch != now.wanted_ref:
            return False
        return not (self.params.force and now.changes)

    def _refuse(self, now: Checkout) -> None:
        """Nothing that is only here is given up unasked."""
        if self.params.force or now.kind != "checkout":
            return
        if now.changes:
            names = ", ".join(line[3:] for line in now.changes[:3])
            more = ", ..." if len(now.changes) > 3 else ""
            raise StepFailed(
                f"update {self.params.path}: it has local changes ({names}{more})",
                hint="see `git diff` on the host; `force: true` discards them",
            )
        if now.own_commits and now.head != now.wanted:
            raise StepFailed(
                f"update {self.params.path}: its commit {now.head[:12]} exists nowhere else",
                hint="push it, or discard it with `force: true`",
            )

    def _outputs(self, now: Checkout) -> dict[str, Any]:
        return {"path": self.params.path, "commit": now.wanted}

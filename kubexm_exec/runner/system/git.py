"""Checkouts of git repositories on a host: their state, that of the repository, and changes."""

from __future__ import annotations

import re
import secrets
from typing import Final

from msgspec import Struct

from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations, execute
from kubexm_exec.runner.files.probe import look
from kubexm_exec.runner.quote import script
from kubexm_exec.safepaths import WAY

# Secrets come by standard input (user, password and key, a line each) and are passed on in the environment: no list of
# processes shows them, and no file has them. git never prompts.
_ACCESS: Final = r"""
IFS= read -r KX_USER; IFS= read -r KX_PASSWORD; IFS= read -r KX_KEY
export KX_USER KX_PASSWORD KX_KEY GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true SSH_ASKPASS=true LC_ALL=C
ssh='ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new'
[ -z "$KX_KEY" ] || ssh="$ssh"' -o IdentitiesOnly=yes -i "$KX_KEY"'
export GIT_SSH_COMMAND="$ssh"
remote() {
  if [ -n "$KX_PASSWORD" ]; then
    git -c credential.helper= -c credential.helper='!f() {
      test "$1" = get || exit 0; printf "username=%s\npassword=%s\n" "$KX_USER" "$KX_PASSWORD"; }; f' "$@"
  else git "$@"; fi
}
"""
_LOOK: Final = r"""
repo=$1 path=$2 ref=$3
place "$path"; path=$real
have git || { part nogit; exit 0; }
# Looking changes nothing, not even the index.
export GIT_OPTIONAL_LOCKS=0
if [ -d "$path" ]; then
  if [ -e "$path/.git" ]; then
    if said=$(git -C "$path" rev-parse --git-dir 2>&1); then
      part head; git -C "$path" rev-parse -q --verify HEAD
      part branch; git -C "$path" symbolic-ref -q --short HEAD
      part url; git -C "$path" config --get remote.origin.url
      part changes; git -C "$path" status --porcelain --untracked-files=no --ignore-submodules=none | head -n 20
      part owned
      ! git -C "$path" rev-parse -q --verify HEAD >/dev/null ||
        git -C "$path" for-each-ref --contains HEAD --count=1 refs/remotes refs/tags refs/kubexm
      if git -C "$path" rev-parse -q --verify "$ref^{commit}" >/dev/null 2>&1; then
        part known; git -C "$path" rev-parse "$ref^{commit}"
      fi
    else part trouble; printf %s "$said"; fi
  else part folder; ls -A -- "$path" | head -n 1; fi
elif [ -e "$path" ] || [ -L "$path" ]; then part other
fi
part remote
exec 3>&1
said=$(remote ls-remote --symref -- "$repo" "$ref" "refs/heads/$ref" "refs/tags/$ref" "refs/tags/$ref^{}" 2>&1 >&3) ||
  { part failed; printf %s "$said"; }
:
"""
# A new checkout is made in a private folder beside its place, and renamed: there is never half of one, and nobody else
# can change it meanwhile.
_CHECKOUT: Final = r"""
repo=$1 kind=$3 ref=$4 commit=$5 depth=$6 force=$7 submodules=$8 stage=$9 made= new=
reach "$2"
if [ ! -e "./$name/.git" ]; then
  if [ -d "./$name" ]; then made=y; else new=y; private "$stage" && mkdir -- "./$name" || exit; fi
fi
# Called in the checkout, which may have been renamed.
clean() { if [ -n "$new" ]; then cd -P .. && leave "$stage"; elif [ -n "$made" ]; then rm -rf -- ./.git; fi; }
from=${PWD%/}/$name
cd -P -- "./$name" && [ "$PWD" = "$from" ] || exit
if [ -n "$made$new" ]; then git init -q && git remote add origin "$repo" || { code=$?; clean; exit $code; }; fi
get() {
  git remote set-url origin "$repo" || return
  case $kind in
    branch) what=+refs/heads/$ref:refs/remotes/origin/$ref ;;
    tag) what=+refs/tags/$ref:refs/tags/$ref ;;
    *) what=$commit ;;
  esac
  if ! git cat-file -e "$commit^{commit}" 2>/dev/null || [ "$kind" != commit ]; then
    if ! remote fetch -q --no-tags ${depth:+--depth="$depth"} origin "$what"; then
      [ "$kind" = commit ] || return 1
      # Not every server serves a commit by its id: then everything is fetched.
      remote fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*' || return
    fi
  fi
  [ -n "$force" ] && f=-f || f=
  case $kind in
    branch) git checkout -q $f -B "$ref" "$commit" || return ;;
    *) git checkout -q $f --detach "$commit" || return ;;
  esac
  if [ -n "$force" ]; then git reset -q --hard "$commit" || return; fi
  if [ -n "$submodules" ]; then
    remote submodule -q sync --recursive && remote submodule -q update --init --recursive ${depth:+--depth="$depth"} $f || return
  fi
  git update-ref refs/kubexm/deployed HEAD
}
( get ) || { code=$?; clean; exit $code; }
[ -n "$new" ] || exit 0
cd -P .. || exit
mv -T -- "./$name" "../$name" || { code=$?; leave "$stage"; exit $code; }
leave "$stage"
"""  # noqa: E501
_SAVE: Final = WAY + 'reach "$1/."; git stash create kubexm'
EMPTY: Final = WAY + 'reach "$1/."; find . -mindepth 1 -delete'
"""Removes all that is in a folder."""
_RETURN: Final = r"""
path=$1 commit=$2 branch=$3 url=$4 stash=$5 submodules=$6
reach "$path/."
if [ -n "$url" ]; then git remote set-url origin "$url" || exit; fi
if [ "$(git rev-parse HEAD)" = "$commit" ] && [ "$(git symbolic-ref -q --short HEAD)" = "$branch" ] &&
  { [ -z "$stash" ] || ! git diff --quiet HEAD; }; then exit 0; fi
if [ -n "$branch" ]; then git checkout -q -f -B "$branch" "$commit" || exit
else git checkout -q -f --detach "$commit" || exit; fi
if [ -n "$submodules" ]; then git submodule -q update --init --recursive -f || exit; fi
if [ -n "$stash" ]; then git stash apply -q "$stash" || exit; fi
git update-ref refs/kubexm/deployed HEAD
"""
# Changes in a checkout; with "all" also untracked and ignored files.
_STATE: Final = r"""
place "$1"; path=$real
[ -d "$path" ] || exit 0
cd -- "$path" || exit
export GIT_OPTIONAL_LOCKS=0
if [ ! -e .git ]; then part other; ls -A | head -n 1; exit 0; fi
part head; git rev-parse -q --verify HEAD
part changes
if [ "$2" = all ]; then git status --porcelain --untracked-files=normal --ignored | head -n 20
else git status --porcelain --untracked-files=no --ignore-submodules=none | head -n 20; fi
:
"""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REASONS: Final = (
    (r"could not read Username|Authentication failed|terminal prompts disabled|Invalid username",
     "it needs a user and password, or rejects these: check `username` and `password`"),
    (r"Permission denied \(", "does the server know the key in `sshKey` (or the user's own)?"),
    (r"Host key verification failed", "the server's host key is unknown or has changed: check known_hosts on the host"),
    (r"Could not resolve host|Connection refused|Connection timed out|unable to access|unable to connect",
     "can the host reach it? Try `git ls-remote` there"),
    (r"not appear to be a git repository|repository .* not found|does not exist", "check `repo`"),
    (r"dubious ownership", "the checkout belongs to another user: let the step `become` that user"),
    (r"would be overwritten", "`force: true` overwrites files that are in the way"),
)  # fmt: skip


class Access(Struct, frozen=True):
    """Credentials for a repository; they are never shown."""

    username: str = ""
    password: str = ""
    ssh_key: str = ""

    def stdin(self) -> bytes:
        """The first lines of the input of the scripts."""
        return f"{self.username}\n{self.password}\n{self.ssh_key}\n".encode()


class Checkout(Struct, frozen=True):
    """The state of a path, and the commit that a name refers to in the repository."""

    git: bool
    """Whether git is installed."""
    kind: str
    """``absent``, ``empty`` (a folder), ``checkout``, or something in the way: ``folder``, ``other``."""
    head: str = ""
    branch: str = ""
    url: str = ""
    changes: tuple[str, ...] = ()
    """Files with local changes, as ``git status`` lists them."""
    own_commits: bool = False
    """Whether it has commits that are nowhere else."""
    wanted: str = ""
    """The commit that the name refers to; empty if there is none."""
    wanted_kind: str = ""
    """``branch``, ``tag`` or ``commit``."""
    wanted_ref: str = ""
    """The name; for HEAD, the branch that it refers to."""


class Git(Operations):
    """Checkouts of git repositories."""

    def look(self, repo: str, path: str, ref: str, access: Access) -> Checkout:
        """The state of the path, and the commit that the name refers to in the repository."""
        what = f"look at {path}"
        seen = look(self._session, (), _ACCESS + _LOOK, repo, path, ref, stdin=access.stdin(), what=what)
        if "nogit" in seen.parts:
            return Checkout(False, "absent")
        if "trouble" in seen.parts:
            raise self._failure(what, seen.text("trouble"))
        if "failed" in seen.parts:
            raise self._failure(f"ask {repo}", seen.text("failed"))
        wanted, kind, name = _resolve(ref, seen.lines("remote"), seen.text("known").strip())
        if "head" not in seen.parts:
            state = "absent"
            if "folder" in seen.parts:
                state = "folder" if seen.text("folder").strip() else "empty"
            state = "other" if "other" in seen.parts else state
            return Checkout(True, state, wanted=wanted, wanted_kind=kind, wanted_ref=name)
        head = seen.text("head").strip()
        return Checkout(
            True,
            "checkout",
            head=head,
            branch=seen.text("branch").strip(),
            url=seen.text("url").strip(),
            changes=tuple(seen.lines("changes")),
            own_commits=bool(head) and not seen.text("owned").strip(),
            wanted=wanted,
            wanted_kind=kind,
            wanted_ref=name,
        )

    def state(self, path: str, *, every: bool) -> Checkout:
        """The state of the path, without the repository; ``every``: untracked and ignored files count too."""
        seen = look(self._session, (), _STATE, path, "all" if every else "", what=f"look at {path}")
        if "head" in seen.parts:
            return Checkout(True, "checkout", seen.text("head").strip(), changes=tuple(seen.lines("changes")))
        other = "folder" if seen.text("other").strip() else "empty"
        return Checkout(True, other if "other" in seen.parts else "absent")

    def checkout(
        self,
        repo: str,
        path: str,
        now: Checkout,
        access: Access,
        *,
        depth: int | None,
        force: bool,
        submodules: bool,
    ) -> None:
        """Fetch the wanted commit and check it out."""
        arguments = [repo, path, now.wanted_kind, now.wanted_ref, now.wanted, str(depth or "")]
        arguments += ["yes" if force else "", "yes" if submodules else ""]
        arguments.append(f".kx-{secrets.token_hex(8)}.tree")
        result = self._ask(_ACCESS + WAY + _CHECKOUT, *arguments, stdin=access.stdin())
        if result.exit_code != 0:
            raise self._failure(f"check out {now.wanted_ref} of {repo} in {path}", result.err or result.out, result)

    def save_changes(self, path: str) -> str:
        """The local changes as a commit without a name; empty if there are none."""
        return execute(self._session, script(_SAVE, path), live=False).out.strip()

    def go_back(self, path: str, commit: str, branch: str, url: str, changes: str, *, submodules: bool) -> None:
        """Check out a former commit, with its local changes."""
        arguments = [path, commit, branch, url, changes, "yes" if submodules else ""]
        result = self._ask(WAY + _RETURN, *arguments)
        if result.exit_code != 0:
            raise self._failure(f"go back to {commit[:12]} in {path}", result.err or result.out, result)

    def _failure(self, what: str, said: str, result: CommandResult | None = None) -> StepFailed:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines or ["git failed"]
        # An error of ssh is the reason of the one that git reports.
        telling = [line for line in lines if re.search(r"Permission denied \(|verification failed", line)] or telling
        hint = next((hint for pattern, hint in _REASONS if re.search(pattern, said, re.IGNORECASE)), "")
        return StepFailed(
            f"{what}: {telling[0].removeprefix('fatal: ').removeprefix('error: ')}",
            exit_code=result.exit_code if result else None,
            stderr="" if self._session.sensitive else said,
            hint=hint,
        )


def _resolve(ref: str, lines: list[str], known: str) -> tuple[str, str, str]:
    """The commit that a name refers to, the kind of the name, and the name to check it out by."""
    there: dict[str, str] = {}
    for line in lines:
        commit, _, name = line.partition("\t")
        if ref == "HEAD" and name == "HEAD" and commit.startswith("ref: refs/heads/"):
            there["main branch"] = commit.removeprefix("ref: refs/heads/")
        else:
            there[name] = commit
    if f"refs/heads/{ref}" in there:
        return there[f"refs/heads/{ref}"], "branch", ref
    tag = there.get(f"refs/tags/{ref}^{{}}") or there.get(f"refs/tags/{ref}")
    if tag:
        return tag, "tag", ref
    if ref == "HEAD" and "HEAD" in there:
        main = there.get("main branch", "")
        return there["HEAD"], "branch" if main else "commit", main or ref
    if _COMMIT.fullmatch(ref):
        return ref, "commit", ref
    if known and re.fullmatch(r"[0-9a-f]{7,64}", ref) and known.startswith(ref):
        return known, "commit", ref
    return "", "", ref

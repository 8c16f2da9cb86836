"""The step type ``authorized-key``: public keys that can log in as a user."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.accounts import KeyFile
from kubexm_spec.models.common import no_items
from kubexm_steps.lib.edits import held_record
from kubexm_steps.lib.files import (
    Change,
    Content,
    RestoringStep,
    Wanted,
    apply_change,
    compare,
    file_diff,
    restore,
)
from kubexm_steps.lib.standing import attributes_of, files_standing
from kubexm_steps.lib.types import ONE_OR_MANY, AccountName, HostPath, refuse, show_mode

_FOLDER: Final = 0o700
_FILE: Final = 0o600


_TYPES: Final = re.compile(
    r"(ssh-(rsa|ed25519|ed448)|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com"
    r"|sk-ecdsa-sha2-nistp256@openssh\.com|[a-z0-9-]+-cert-v01@openssh\.com)"
)
# Quotes keep blanks together; a quote inside is escaped.
_WORD: Final = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^\s"])+)(?:\s+|$)')
_OPTION: Final = re.compile(r'[A-Za-z0-9-]+(="(?:[^"\\]|\\.)*")?')


class Key(Struct, frozen=True):
    """A public key."""

    kind: str
    body: str
    comment: str = ""
    options: str = ""

    @property
    def line(self) -> str:
        """The line of the file."""
        return " ".join(part for part in (self.options, self.kind, self.body, self.comment) if part)

    def same(self, other: Key) -> bool:
        """Whether it is the same key, whatever stands around it."""
        return (self.kind, self.body) == (other.kind, other.body)


def read(line: str) -> Key | None:
    """The key in a line of a file; None for comments, blank lines and what is none."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    words: list[str] = []
    while text and len(words) < 3:
        found = _WORD.match(text)
        if found is None:
            return None
        words.append(found[1])
        text = text[found.end() :]
        if _TYPES.fullmatch(words[0]):
            if len(words) == 2:
                return Key(words[0], words[1], text)
        elif len(words) == 2 and not _TYPES.fullmatch(words[1]):
            return None
    return Key(words[1], words[2], text, words[0]) if len(words) == 3 else None


def parse(text: str, number: int = 1) -> list[Key]:
    """The keys in a text, one a line; ValueError, which repeats none of it, if one is no key."""
    if "PRIVATE KEY" in text:
        raise ValueError("this is a private key: use the public one, from the file that ends in .pub")
    keys = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = read(line)
        if key is None:
            raise ValueError(f"key {number} is not a public key: write its type, its text and a comment, on one line")
        _check(key, number)
        check_options(key.options)
        keys.append(key)
        number += 1
    return keys


def _check(key: Key, number: int) -> None:
    try:
        raw = base64.b64decode(key.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"key {number} ({key.kind}) is damaged: its text is not base64") from error
    length = int.from_bytes(raw[:4], "big")
    if len(raw) < 4 + length or raw[4 : 4 + length].decode("ascii", "replace") != key.kind:
        raise ValueError(f"key {number} is damaged: its text is not that of a key of type {key.kind}")


def check_options(text: str) -> str:
    """Options as they stand before a key, separated by commas; ValueError if they cannot."""
    rest = text
    while rest:
        found = _OPTION.match(rest)
        if found is None or (found.end() < len(rest) and rest[found.end()] != ","):
            raise ValueError(f'{text!r} are not options of a key: write them as in no-pty,from="10.0.0.0/8"')
        rest = rest[found.end() + 1 :]
    return text


def with_keys(text: str, wanted: Sequence[Key], *, exclusive: bool) -> str:
    """The text of a file with these keys in it, each once; with ``exclusive`` with no others."""
    missing = list(wanted)
    lines: list[str] = []
    for line in text.splitlines():
        key = read(line)
        if key is None:
            if not exclusive or not line.strip() or line.lstrip().startswith("#"):
                lines.append(line)
            continue
        want = next((one for one in wanted if one.same(key)), None)
        if want is None:
            if not exclusive:
                lines.append(line)
        elif want in missing:
            missing.remove(want)
            # A key without a comment keeps the one that it has.
            new = want if want.comment else replace(want, comment=key.comment)
            lines.append(line if new == key else new.line)
    lines += [key.line for key in missing]
    if lines == text.splitlines():
        return text
    return "\n".join(lines) + "\n" if lines else ""


def without_keys(text: str, unwanted: Sequence[Key]) -> str:
    """The text of a file without these keys."""
    lines = text.splitlines()
    kept = [line for line in lines if (key := read(line)) is None or not any(key.same(one) for one in unwanted)]
    if len(kept) == len(lines):
        return text
    return "\n".join(kept) + "\n" if kept else ""


def _public(texts: list[str]) -> list[str]:
    number = 1
    for text in texts:
        number += len(parse(text, number))
    if number == 1:
        raise ValueError("it contains no key")
    return texts


class AuthorizedKeyParams(Params):
    """Parameters of ``authorized-key``."""

    user: AccountName = Field(description="User that the keys log in as.")
    keys: Annotated[list[str], ONE_OR_MANY, AfterValidator(_public)] = Field(
        description="Public keys as in a `.pub` file, one or several; a text can have several lines."
    )
    options: Annotated[list[str], ONE_OR_MANY] = Field(
        default_factory=no_items,
        description='Options of the keys, such as `no-pty` or `from="10.0.0.0/8"`; see sshd(8).',
    )
    exclusive: bool = Field(False, description="Remove all other keys of the user.")
    path: HostPath | None = Field(
        None, description="File to use instead of `.ssh/authorized_keys` in the user's home; its folder must exist."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the keys.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("exclusive", "options"), "`state: absent`")
        check_options(",".join(self.options))
        if self.options and any(key.options for text in self.keys for key in parse(text)):
            raise ValueError("a key already has options; write them in one place")


class AuthorizedKeyOutputs(Outputs):
    user: str = Field(description="User that the keys log in as.")
    path: str = Field("", description="File with the keys; empty if there is no such user.")
    keys: int = Field(0, description="Total number of keys of the user.")


class AuthorizedKeyStep(RestoringStep[AuthorizedKeyParams, KeyFile | None]):
    """Public SSH keys that log in as a user.

    A key is identified by its key data, regardless of comment and options, so it is never listed twice. Other
    keys, comments and lines are kept, unless `exclusive: true` removes all other keys.

    - Keys are checked when the spec is compiled: a damaged or private key never reaches a host.
    - `~/.ssh` is `0700` and the file `0600`, and both belong to the user; a folder given by `path` is left as it is.
    - A link in place of the file or of `~/.ssh` is not followed: it could lead anywhere.
    - The options of a key are set to those of the step, even if the step has none.
    - Undo restores the old file with its mode and owner.
    """

    outputs_model = AuthorizedKeyOutputs
    example = """\
- name: deploy-key
  type: authorized-key
  with:
    user: deploy
    keys: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB5SCsiJuABdSKHiJqlFBX8Y2oWq0Jp3+LNfbbJVhXw2 deploy@example
    options: [no-pty, 'from="10.0.0.0/8"']
"""

    def precheck(self, ctx: StepContext) -> Forecast[KeyFile | None]:
        params = self.params
        found = ctx.runner.keys.look(params.user, params.path or "")
        if found is None:
            if params.state == "absent":
                return Forecast.satisfied(f"there is no user {params.user}", self._outputs(None, ""))
            return Forecast.unknown(f"the user {params.user} does not exist yet")
        text = self._text(found)
        change = self._change(ctx, found, text)
        folder = self._folder_note(found)
        if change is None and not folder:
            return Forecast.satisfied(f"keys of {params.user} are as they should be", self._outputs(found, text))
        shown = [Diff(found.folder.path, note=folder)] if folder else []
        if change is not None:
            shown.append(file_diff(ctx, change))
        return Forecast.change(f"would change the keys of {params.user}", shown, seen=found)

    def run(self, ctx: StepContext, forecast: Forecast[KeyFile | None]) -> Result:
        params, found = self.params, forecast.seen
        if found is None:
            raise StepFailed(f"keys of {params.user}: there is no such user", hint="create it first with a `user` step")
        text = self._text(found)
        change = self._change(ctx, found, text)
        folder = self._folder_note(found)
        self._save(ctx, found, change)
        owner, group = str(found.uid), str(found.gid)
        if not found.folder.exists:
            ctx.runner.mkdir(found.folder.path, mode=_FOLDER, owner=owner, group=group, parents=False)
        elif folder:
            ctx.runner.chown(found.folder.path, owner, group)
            ctx.runner.chmod(found.folder.path, _FOLDER)
        if change is not None:
            apply_change(ctx, change)
        return Result(message=f"changed the keys of {params.user}", outputs=self._outputs(found, text))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        folder = undo["folder"]
        return files_standing(ctx, [*undo["files"], *([{"kind": "directory", **folder}] if folder else [])])

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        restore(ctx, undo)
        folder = undo["folder"]
        if folder is not None:
            ctx.runner.chown(folder["path"], folder["owner"], folder["group"])
            ctx.runner.chmod(folder["path"], folder["mode"])

    def _wanted(self) -> list[Key]:
        options = ",".join(self.params.options)
        keys: list[Key] = []
        for key in (key for text in self.params.keys for key in parse(text)):
            if not any(key.same(known) for known in keys):
                keys.append(replace(key, options=options) if options else key)
        return keys

    def _text(self, found: KeyFile) -> str:
        if self.params.state == "absent":
            return without_keys(found.held.text, self._wanted())
        return with_keys(found.held.text, self._wanted(), exclusive=self.params.exclusive)

    def _change(self, ctx: StepContext, found: KeyFile, text: str) -> Change | None:
        """What is to be done with the file; None if nothing."""
        if not found.held.exists and not text:
            return None
        wanted = Wanted(found.held.path, Content.of(text), _FILE, str(found.uid), str(found.gid))
        change = compare(ctx, wanted, found.held.state)
        # Keys that are not there need not be removed, so nothing else of the file is anybody's business.
        if self.params.state == "absent" and not change.content:
            return None
        return change if change.any else None

    def _folder_note(self, found: KeyFile) -> str:
        """What is to be done with `~/.ssh`, in few words."""
        folder = found.folder
        if self.params.state == "absent" or (self.params.path is not None and folder.exists):
            return ""
        if self.params.path is not None:
            raise StepFailed(
                f"keys of {found.user}: there is no folder {folder.path}",
                hint="create it first with a `directory` step",
            )
        if not folder.exists:
            return f"folder created, {show_mode(_FOLDER)}"
        notes = [] if folder.mode == _FOLDER else [f"{show_mode(folder.mode)} -> {show_mode(_FOLDER)}"]
        if not folder.owned_by(str(found.uid), str(found.gid)):
            notes.append(f"{folder.owner}:{folder.group} -> {found.user}")
        return ", ".join(notes)

    def _save(self, ctx: StepContext, found: KeyFile, change: Change | None) -> None:
        folder = found.folder
        left = {"kind": "directory", "mode": _FOLDER, "owner": str(found.uid), "group": str(found.gid)}
        before = {"path": folder.path, **attributes_of(folder), "left": [left]}
        ctx.save_undo(
            {
                "files": [] if change is None else [held_record(ctx, found.held, [change.left(ctx)])],
                "folders": [] if folder.exists else [folder.path],
                "folder": before if folder.exists and self._folder_note(found) else None,
            }
        )

    def _outputs(self, found: KeyFile | None, text: str) -> dict[str, Any]:
        count = sum(read(line) is not None for line in text.splitlines())
        return {"user": self.params.user, "path": found.held.path if found is not None else "", "keys": count}

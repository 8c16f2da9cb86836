"""The step type ``authorized-key``: public keys that let somebody in as a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.accounts import KeyFile
from kubexm_spec.models.common import no_items
from kubexm_steps.lib import keys as _keys
from kubexm_steps.lib.accounts import AccountName, one_or_many
from kubexm_steps.lib.files import (
    Change,
    Content,
    RestoringStep,
    Wanted,
    apply_change,
    attributes_record,
    compare,
    file_diff,
    restore,
)
from kubexm_steps.lib.keys import Key, read
from kubexm_steps.lib.standing import files_standing
from kubexm_steps.lib.types import HostPath, show_mode

_FOLDER: Final = 0o700
_FILE: Final = 0o600


def _public(texts: list[str]) -> list[str]:
    number = 1
    for text in texts:
        number += len(_keys.parse(text, number))
    if number == 1:
        raise ValueError("there is no key in it")
    return texts


class AuthorizedKeyParams(Params):
    """Parameters of ``authorized-key``."""

    user: AccountName = Field(description="User that the keys log in as.")
    keys: Annotated[
        list[str], BeforeValidator(one_or_many, json_schema_input_type=str | list[str]), AfterValidator(_public)
    ] = Field(description="Public keys as in a `.pub` file, one or several; a text can have several lines.")
    options: Annotated[list[str], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])] = Field(
        default_factory=no_items,
        description='Options of the keys, such as `no-pty` or `from="10.0.0.0/8"`; see sshd(8).',
    )
    exclusive: bool = Field(False, description="Remove all other keys of the user.")
    path: HostPath | None = Field(
        None, description="File to use instead of `.ssh/authorized_keys` in the user's home; its folder must exist."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the keys.")

    @model_validator(mode="after")
    def _makes_sense(self) -> AuthorizedKeyParams:
        if self.state == "absent" and (self.exclusive or self.options):
            raise ValueError("exclusive and options go with `state: present`")
        _keys.check_options(",".join(self.options))
        if self.options and any(key.options for text in self.keys for key in _keys.parse(text)):
            raise ValueError("options stand before a key already; write them in one place")
        return self


class AuthorizedKeyOutputs(Outputs):
    """What later steps can know of the keys."""

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
        """Compare the keys with what should be."""
        params = self.params
        found = ctx.runner.keys.look(params.user, params.path or "")
        if found is None:
            if params.state == "absent":
                return Forecast.satisfied(f"there is no user {params.user}", self._outputs(None, ""))
            return Forecast.unknown(f"the user {params.user} is not there yet")
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
        """Write the file."""
        params, found = self.params, forecast.seen
        if found is None:
            raise StepFailed(f"keys of {params.user}: there is no such user", hint="make it first with a user step")
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
        """Compare the file and its folder with what was left."""
        folder = undo["folder"]
        return files_standing(ctx, [*undo["files"], *([{"kind": "directory", **folder}] if folder else [])])

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back the old file."""
        restore(ctx, undo)
        folder = undo["folder"]
        if folder is not None:
            ctx.runner.chown(folder["path"], folder["owner"], folder["group"])
            ctx.runner.chmod(folder["path"], folder["mode"])

    def _wanted(self) -> list[Key]:
        options = ",".join(self.params.options)
        keys: list[Key] = []
        for key in (key for text in self.params.keys for key in _keys.parse(text)):
            if not any(key.same(known) for known in keys):
                keys.append(replace(key, options=options) if options else key)
        return keys

    def _text(self, found: KeyFile) -> str:
        if self.params.state == "absent":
            return _keys.without_keys(found.held.text, self._wanted())
        return _keys.with_keys(found.held.text, self._wanted(), exclusive=self.params.exclusive)

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
                f"keys of {found.user}: there is no folder {folder.path}", hint="make it first with a directory step"
            )
        if not folder.exists:
            return f"folder created, {show_mode(_FOLDER)}"
        notes = [] if folder.mode == _FOLDER else [f"{show_mode(folder.mode)} -> {show_mode(_FOLDER)}"]
        if not folder.owned_by(str(found.uid), str(found.gid)):
            notes.append(f"{folder.owner}:{folder.group} -> {found.user}")
        return ", ".join(notes)

    def _save(self, ctx: StepContext, found: KeyFile, change: Change | None) -> None:
        state, folder = found.held.state, found.folder
        file: dict[str, Any] = {"path": state.path, "kind": state.kind}
        if change is not None:
            file["left"] = [change.left(ctx)]
        if found.held.exists:
            file |= {"mode": state.mode, "owner": str(state.uid), "group": str(state.gid)}
            file["content"] = ctx.keep(found.held.data)
            file |= attributes_record(ctx, state)
        before = {"path": folder.path, "mode": folder.mode, "owner": str(folder.uid), "group": str(folder.gid)}
        left = {"kind": "directory", "mode": _FOLDER, "owner": str(found.uid), "group": str(found.gid)}
        before |= {"kind": "directory", "left": [left]}
        ctx.save_undo(
            {
                "files": [] if change is None else [file],
                "folders": [] if folder.exists else [folder.path],
                "folder": before if folder.exists and self._folder_note(found) else None,
            }
        )

    def _outputs(self, found: KeyFile | None, text: str) -> dict[str, Any]:
        count = sum(read(line) is not None for line in text.splitlines())
        return {"user": self.params.user, "path": found.held.path if found is not None else "", "keys": count}

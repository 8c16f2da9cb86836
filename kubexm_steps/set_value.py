"""The step type ``set-value``: values in an ini, json, yaml or toml file."""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kubexm_exec.step import StepContext, StepFailed
from kubexm_spec.models.common import no_items
from kubexm_steps.formats import ini, keypaths
from kubexm_steps.formats.spans import DataText
from kubexm_steps.lib.parts import EditParams, EditStep

Format = Literal["ini", "json", "yaml", "toml"]
_LIMIT: Final = 1 << 20
_ENDINGS: Final[dict[str, Format]] = {
    ".ini": "ini", ".cfg": "ini", ".conf": "ini", ".cnf": "ini", ".json": "json", ".yaml": "yaml", ".yml": "yaml",
    ".toml": "toml",
}  # fmt: skip


def _path(text: str) -> str:
    keypaths.parse(text)
    return text


KeyPathText = Annotated[str, AfterValidator(_path)]
"""A path of keys."""


class SetValueParams(EditParams):
    """Parameters of ``set-value``."""

    values: dict[KeyPathText, Any] = Field(
        default_factory=dict,
        description="Values by the path of their keys, such as `server.port: 8080`. A value has the type that it has "
        "in the spec; a map or list replaces what is there as a whole.",
    )
    remove: list[KeyPathText] = Field(
        default_factory=no_items,
        description="Paths of keys that must not be there; they are removed first. Not items of lists.",
    )
    format: Format | None = Field(
        None, description="Format of the file. By default its name tells: `.conf`, `.cfg` and `.cnf` are `ini`."
    )
    inline_comments: bool = Field(
        False,
        description="In an ini file, what follows a blank and `;` or `#` is a comment, and is kept. By default it is a "
        "part of the value, as for systemd and Python.",
    )

    def only_removes(self) -> bool:
        """Whether no value is set."""
        return not self.values

    def kind(self) -> Format | None:
        """The format of the file."""
        return self.format or _ENDINGS.get(posixpath.splitext(self.path)[1].lower())

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.values and not self.remove:
            raise ValueError("say which values to set or to remove: `values` or `remove`")
        kind = self.kind()
        if kind is None:
            raise ValueError(f"the name {posixpath.basename(self.path)} does not tell the format: set `format`")
        if self.inline_comments and kind != "ini":
            raise ValueError("inlineComments is for ini files only")
        if self.create_file and not self.values:
            raise ValueError("createFile needs `values`")
        for text in self.remove:
            path = keypaths.parse(text)
            _check(kind, path, "")
            if isinstance(path[-1], int):
                raise ValueError(f"{text}: the next run would remove the next item; set the list as a whole")
        for text, value in self.values.items():
            _check(kind, keypaths.parse(text), value)
        return self


def _check(kind: Format, path: keypaths.KeyPath, value: Any) -> None:
    if kind == "ini":
        ini.check(path, value)
    elif kind == "toml" and _holds_null(value):
        raise ValueError(f"{keypaths.show(path)}: TOML has no null")


def _format(kind: Format) -> DataText:
    """What reads and writes a format; only that one's library is loaded."""
    match kind:
        case "json":
            from kubexm_steps.formats.jsontext import JsonText

            return JsonText()
        case "yaml":
            from kubexm_steps.formats.yamltext import YamlText

            return YamlText()
    from kubexm_steps.formats.tomltext import TomlText

    return TomlText()


def _holds_null(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(_holds_null(item) for item in items)


class SetValueStep(EditStep[SetValueParams]):
    """Values in an ini, json, yaml or toml file, set or removed by the path of their keys; all else in it is kept.

    Use it for settings in files that other programs or packages own. For files that belong to you as a whole, use
    `file` or `template`.

    In a path, names are separated by dots (`server.port`). One with a dot or bracket in it is in double quotes
    (`metadata.annotations."example.com/owner"`). `[0]` is the first item of a list, and the number behind the last item
    adds one. Maps and lists on the way are created. In an ini file a path is `SECTION.KEY`, or `KEY` before the first
    section.

    - Comments, order, indentation and quotes stay as they are. The new text is read again before it is written: if
      anything else in it would mean something else, that is a failure, and the file stays as it is.
    - A value that is there already, of the same type, is left as it is written: `1` is `1.0`, but not `"1"` or `true`.
    - In an ini file a value is a text, a number, or true or false (`true`, `false`); null is a key without a value.
      Of a key that is there several times the last one is changed, and `remove` removes all. Lines that are indented
      more than a key continue its value.
    - In an ini file only whole lines are comments: `port = 80 ; web` has the value `80 ; web`, and setting `port`
      replaces all of it. With `inlineComments: true` the value is `80`, and the comment is kept.
    - A file that cannot be read is a failure with the line. So is one of more than 1 MiB, or YAML with several
      documents.
    - A link is followed and its target changed; where other users can write, a link is a failure (`follow`).
    - Writing, mode, owner, `validate`, `backup` and undo are as in `file`.
    """

    example = """\
- name: kubelet
  type: set-value
  with:
    path: /var/lib/kubelet/config.yaml
    values:
      maxPods: 200
      evictionHard."memory.available": 200Mi
    remove: [featureGates.OldOne]
"""

    def edited(self, ctx: StepContext, text: str) -> str:
        params = self.params
        kind = params.kind()
        assert kind is not None
        if len(text) > _LIMIT:
            raise StepFailed(f"change {params.path}: it is larger than {_LIMIT >> 20} MiB", hint="use `template`")
        values = {keypaths.parse(path): keypaths.plain(value) for path, value in params.values.items()}
        removed = [keypaths.parse(path) for path in params.remove]
        try:
            if kind == "ini":
                return ini.edited(text, values, removed, inline=params.inline_comments)
            return _format(kind).edited(text, values, removed)
        except keypaths.EditError as error:
            where = f"change {params.path}" + ("" if error.line is None else f", line {error.line}")
            wrong = f"it is no valid {kind.upper()}: correct it on the host, or set `format`"
            # The reason may quote what is in the file.
            reason = "it cannot be read or changed so" if ctx.sensitive else error.reason
            hint = "" if error.line is None else wrong
            raise StepFailed(f"{where}: {reason}", hint=hint, file=params.path) from error

"""The step type ``line-in-file``: one line that is in a file, or is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from kubexm_exec.step import Forecast, Result, Step, StepContext, StepFailed
from kubexm_steps._files import Content, FileOutputs, Wanted, forecast_file, restore, write_file
from kubexm_steps._types import OneFileParams, Text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a line has no line break in it; use one step a line, or forEach")
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class LineInFileParams(OneFileParams):
    """Parameters of ``line-in-file``."""

    line: Annotated[Text, AfterValidator(_one_line)] | None = Field(
        None,
        description="The line, without a line break. With `state: absent`: every line that is just this is removed.",
    )
    match: Pattern | None = Field(
        None,
        description="Regular expression (Python's, searched in each line). The last line that matches is replaced by "
        "`line`; with `state: absent` every line that matches is removed.",
    )
    insert_after: Pattern | None = Field(
        None, description="Where a new line goes: after the last line that matches this; at the end if none does."
    )
    insert_before: Pattern | None = Field(
        None, description="Where a new line goes: before the first line that matches this; at the end if none does."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes lines instead.")
    create_file: bool = Field(False, description="Make the file if it is not there; without it that is a failure.")

    @model_validator(mode="after")
    def _makes_sense(self) -> LineInFileParams:
        if self.state == "present" and self.line is None:
            raise ValueError("say which line should be in the file: `line`")
        if self.state == "absent" and self.line is None and self.match is None:
            raise ValueError("say which lines should not be in the file: `line` or `match`")
        if self.insert_after is not None and self.insert_before is not None:
            raise ValueError("insertAfter and insertBefore exclude each other")
        if self.state == "absent" and (self.insert_after or self.insert_before or self.create_file):
            raise ValueError("insertAfter, insertBefore and createFile go with `state: present` only")
        return self


class LineInFileStep(Step[LineInFileParams]):
    """One line of a file that others write too: it is in there, or it is not.

    Use it for settings in files that belong to the system, such as `/etc/hosts`. A file that is yours as a whole is
    better written by `file` or `template`.

    With `match`, the last line that matches becomes `line`; if none matches and `line` is nowhere in the file, it is
    added: where `insertAfter` or `insertBefore` says, else at the end.

    - If `line` itself does not match `match` and is in the file already, nothing changes.
    - The file's line ends (LF or CRLF) are kept. A link is followed: the file it leads to is changed.
    - Writing, mode, owner and undo are as in `file`.
    """

    outputs_model = FileOutputs
    reversible = True
    example = """\
- name: forwarding
  type: line-in-file
  with:
    path: /etc/sysctl.d/99-kubernetes.conf
    line: net.ipv4.ip_forward = 1
    match: ^#?\\s*net\\.ipv4\\.ip_forward\\s*=
    createFile: true
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Work out the new text, and compare."""
        wanted = self._wanted(ctx)
        if wanted is None:
            if self.params.state == "absent":
                outputs = {"path": self.params.path, "sha256": "", "size": 0}
                return Forecast.satisfied(f"{self.params.path} is not there", outputs)
            return Forecast.unknown(f"the file {self.params.path} is not there yet")
        return forecast_file(ctx, wanted)

    def run(self, ctx: StepContext) -> Result:
        """Write the new text."""
        wanted = self._wanted(ctx)
        if wanted is None:
            if self.params.state == "absent":
                outputs = {"path": self.params.path, "sha256": "", "size": 0}
                return Result(changed=False, message=f"{self.params.path} is not there", outputs=outputs)
            raise StepFailed(
                f"change {self.params.path}: there is no such file", hint="set `createFile: true` to make it"
            )
        return write_file(ctx, wanted)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        restore(ctx, undo)

    def _wanted(self, ctx: StepContext) -> Wanted | None:
        """The file as it should be; None if there is none and none is to be made."""
        params = self.params
        path, text = params.path, ""
        state = ctx.runner.inspect(path, digest=False)
        if state.kind == "link":
            path = ctx.runner.resolve(path)
            state = ctx.runner.inspect(path, digest=False)
        if state.kind == "absent" and not params.create_file:
            return None
        if state.kind == "file":
            # Bytes that are no UTF-8 go through unchanged.
            text = ctx.runner.read_bytes(path).decode("utf-8", "surrogateescape")
        if params.state == "absent":
            text = without(text, params.line, params.match)
        else:
            text = with_line(text, params.line or "", params.match, params.insert_after, params.insert_before)
        return Wanted(path, Content.of(text), params.mode, params.owner, params.group, params.create_parents)


def with_line(text: str, line: str, match: str | None, after: str | None, before: str | None) -> str:
    """The text with the line in it; the same text if it is in there as it should be."""
    lines, end = _split(text)
    matching = _matching(lines, match)
    if line in lines and (match is None or not re.search(match, line)):
        return text
    if matching:
        lines[matching[-1]] = line
        return _joined(lines, end, text)
    if line in lines:
        return text
    if after is not None and (anchors := _matching(lines, after)):
        lines.insert(anchors[-1] + 1, line)
    elif before is not None and (anchors := _matching(lines, before)):
        lines.insert(anchors[0], line)
    else:
        lines.append(line)
        return end.join(lines) + end
    return _joined(lines, end, text)


def without(text: str, line: str | None, match: str | None) -> str:
    """The text without the lines that are just ``line`` or match."""
    lines, end = _split(text)
    kept = [each for each in lines if each != line and not (match is not None and re.search(match, each))]
    return text if len(kept) == len(lines) else _joined(kept, end, text)


def _split(text: str) -> tuple[list[str], str]:
    """The lines without their ends, and what they end with."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.removesuffix(end).split(end) if text else []
    return lines, end


def _joined(lines: list[str], end: str, old: str) -> str:
    """The lines as a text that ends as the old one did."""
    if not lines:
        return ""
    return end.join(lines) + (end if old.endswith(end) else "")


def _matching(lines: list[str], pattern: str | None) -> list[int]:
    if pattern is None:
        return []
    search = re.compile(pattern).search
    return [number for number, line in enumerate(lines) if search(line)]

"""The step type ``line-in-file``: one line that is in a file, or is not."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from kubexm_exec.step import StepContext
from kubexm_steps.lib.lines import Pattern, joined, matching, split
from kubexm_steps.lib.parts import EditStep, PartParams
from kubexm_steps.lib.types import Text


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a line has no line break in it; use one step a line, forEach, or block-in-file")
    return text


class LineInFileParams(PartParams):
    """Parameters of ``line-in-file``."""

    line: Annotated[Text, AfterValidator(_one_line)] | None = Field(
        None,
        description="The line, without a line break. With `state: absent`: every line equal to it is removed.",
    )
    match: Pattern | None = Field(
        None,
        description="Regular expression (RE2), searched in each line. The last matching line is replaced by `line`; "
        "with `state: absent` every matching line is removed.",
    )

    def model_post_init(self, context: object) -> None:
        if self.state == "present" and self.line is None:
            raise ValueError("say which line should be in the file: `line`")
        if self.state == "absent" and self.line is None and self.match is None:
            raise ValueError("say which lines should not be in the file: `line` or `match`")


class LineInFileStep(EditStep[LineInFileParams]):
    """One line of a shared file, present or absent.

    Use it for settings in system files such as `/etc/hosts`. For files that belong to you as a whole, use
    `file` or `template`.

    With `match`, the last matching line becomes `line`; if none matches and `line` is not in the file, it is
    added at `insertAfter` or `insertBefore`, or at the end.

    - If `line` itself does not match `match` and is already in the file, nothing changes.
    - Line endings (LF or CRLF) are kept. A link is followed and its target changed;
      where other users can write, a link is a failure (`follow`).
    - If others change the file between the look and the write, the step looks again, up to 5 times: their changes
      are kept.
    - Writing, mode, owner, `validate`, `backup` and undo are as in `file`.
    """

    example = """\
- name: forwarding
  type: line-in-file
  with:
    path: /etc/sysctl.d/99-kubernetes.conf
    line: net.ipv4.ip_forward = 1
    match: ^#?\\s*net\\.ipv4\\.ip_forward\\s*=
    createFile: true
"""

    def edited(self, ctx: StepContext, text: str) -> str:
        params = self.params
        if params.state == "absent":
            return without(text, params.line, params.match)
        return with_line(text, params.line or "", params.match, params.insert_after, params.insert_before)


def with_line(text: str, line: str, match: str | None, after: str | None, before: str | None) -> str:
    """The text with the line in it; the same text if it is in there as it should be."""
    lines, end = split(text)
    found = matching(lines, match)
    if line in lines and (match is None or not matching([line], match)):
        return text
    if found:
        lines[found[-1]] = line
        return joined(lines, end, text)
    if line in lines:
        return text
    if after is not None and (anchors := matching(lines, after)):
        lines.insert(anchors[-1] + 1, line)
    elif before is not None and (anchors := matching(lines, before)):
        lines.insert(anchors[0], line)
    else:
        lines.append(line)
        return end.join(lines) + end
    return joined(lines, end, text)


def without(text: str, line: str | None, match: str | None) -> str:
    """The text without the lines that are just ``line`` or match."""
    lines, end = split(text)
    found = set(matching(lines, match))
    kept = [each for number, each in enumerate(lines) if each != line and number not in found]
    return text if len(kept) == len(lines) else joined(kept, end, text)

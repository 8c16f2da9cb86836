"""The step type ``block-in-file``: some lines between two markers that are in a file, or are not."""

from __future__ import annotations

from pydantic import Field, field_validator

from kubexm_exec.step import StepContext
from kubexm_steps.lib.lines import split, with_block
from kubexm_steps.lib.parts import EditStep, PartParams
from kubexm_steps.lib.types import Text, refuse


class BlockInFileParams(PartParams):
    """Parameters of ``block-in-file``."""

    content: Text | None = Field(None, description="Lines of the block. Required unless `state: absent`.")
    name: str = Field(
        "block",
        min_length=1,
        description="Name of the block in its markers. Each block of a file needs its own name.",
    )
    comment: str = Field(
        "#", min_length=1, description="Start of a comment in this kind of file, such as `#`, `;` or `<!--`."
    )
    comment_end: str = Field("", description="End of a comment, if it needs one, such as `-->`.")

    @field_validator("name", "comment", "comment_end")
    @classmethod
    def _on_one_line(cls, text: str) -> str:
        if text != text.strip() or any(char in text for char in "\r\n\0"):
            raise ValueError("a marker is one line, and nothing in it begins or ends with a blank")
        return text

    def model_post_init(self, context: object) -> None:
        if self.state == "present" and self.content is None:
            raise ValueError("say what should be in the block: `content`")
        if self.state == "absent":
            refuse(self, ["content"], "`state: absent`")
        lines, _ = split((self.content or "").replace("\r\n", "\n"))
        if {self.marker("BEGIN"), self.marker("END")} & {line.rstrip() for line in lines}:
            raise ValueError("the content contains a marker of its own block; give the block another name")

    def marker(self, word: str) -> str:
        """The line that begins or ends the block."""
        return " ".join(part for part in (self.comment, word, "kubexm", self.name, self.comment_end) if part)


class BlockInFileStep(EditStep[BlockInFileParams]):
    """Lines between two markers in a shared file, present or absent.

    The markers are comments with the name of the block (`# BEGIN kubexm NAME` and `# END kubexm NAME`). The lines
    between them belong to this step and are replaced as a whole; the rest of the file is kept. A new block is added at
    `insertAfter` or `insertBefore`, or at the end; an existing block stays in its position.

    - A file can have several blocks: give each one a `name`. Where comments do not begin with `#`, set `comment`.
    - A marker without its partner is a failure: the extent of the block is never guessed.
    - Line endings (LF or CRLF) are kept. A link is followed and its target changed;
      where other users can write, a link is a failure (`follow`).
    - Undo restores the file. Writing, mode, owner, `validate` and `backup` are as in `file`.
    """

    example = """\
- name: limits
  type: block-in-file
  with:
    path: /etc/security/limits.conf
    name: etcd
    content: |
      etcd soft nofile 65536
      etcd hard nofile 65536
    insertBefore: ^# End of file
"""

    def edited(self, ctx: StepContext, text: str) -> str:
        params = self.params
        block: list[str] | None = None
        if params.state == "present":
            block, _ = split((params.content or "").replace("\r\n", "\n"))
        return with_block(
            text,
            params.marker("BEGIN"),
            params.marker("END"),
            block,
            after=params.insert_after,
            before=params.insert_before,
            where=params.path,
        )

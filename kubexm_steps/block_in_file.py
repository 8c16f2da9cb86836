"""The step type ``block-in-file``: some lines between two markers that are in a file, or are not."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from kubexm_steps.lib.lines import split, with_block
from kubexm_steps.lib.parts import PartParams, PartStep
from kubexm_steps.lib.types import Text


class BlockInFileParams(PartParams):
    """Parameters of ``block-in-file``."""

    content: Text | None = Field(None, description="The lines of the block. Needed unless `state: absent`.")
    name: str = Field(
        "block",
        min_length=1,
        description="Name of the block in its markers. Give each block of a file a name of its own.",
    )
    comment: str = Field(
        "#", min_length=1, description="What a comment begins with in this kind of file, such as `#`, `;` or `<!--`."
    )
    comment_end: str = Field("", description="What a comment ends with, where it needs that, such as `-->`.")

    @field_validator("name", "comment", "comment_end")
    @classmethod
    def _on_one_line(cls, text: str) -> str:
        if text != text.strip() or any(char in text for char in "\r\n\0"):
            raise ValueError("a marker is one line, and nothing in it begins or ends with a blank")
        return text

    @model_validator(mode="after")
    def _makes_sense(self) -> BlockInFileParams:
        if self.state == "present" and self.content is None:
            raise ValueError("say what should be in the block: `content`")
        if self.state == "absent" and self.content is not None:
            raise ValueError("a block that is to be absent has no content")
        lines, _ = split((self.content or "").replace("\r\n", "\n"))
        if {self.marker("BEGIN"), self.marker("END")} & {line.rstrip() for line in lines}:
            raise ValueError("the content holds a marker of its own block; give the block another name")
        return self

    def marker(self, word: str) -> str:
        """The line that begins or ends the block."""
        return " ".join(part for part in (self.comment, word, "kubexm", self.name, self.comment_end) if part)


class BlockInFileStep(PartStep[BlockInFileParams]):
    """Some lines between two markers in a file that others write too: they are in there, or they are not.

    The markers are comments with the name of the block (`# BEGIN kubexm NAME` and `# END kubexm NAME`). What is between
    them belongs to this step and is replaced as a whole; all else in the file is left alone. A new block goes where
    `insertAfter` or `insertBefore` says, else to the end; one that is there stays where it is.

    - A file can have many blocks: give each a `name`. Where `#` begins no comment, say what does with `comment`.
    - A marker without its partner is a failure: nothing is guessed about what belongs to the block.
    - The file's line ends (LF or CRLF) are kept. A link is followed: the file it leads to is changed;
      where others may write, a link is a failure (`follow`).
    - Undo puts the file back as it was. Writing, mode and owner are as in `file`.
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

    def edited(self, text: str) -> str:
        """The text with the block, or without it."""
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

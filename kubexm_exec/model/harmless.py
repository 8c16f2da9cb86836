"""Text from elsewhere, made harmless for a terminal."""

from __future__ import annotations

import re
from typing import Final

# Sequences for a terminal: colours, cursor, titles. What a host prints must not steer the reader's terminal.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # other strings
    r"|\x1b[ -/]*[0-~]?"
)
# Other control characters, and those that turn the direction of writing or break lines unseen.
_CONTROLS: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    """The text without anything that would steer a terminal; of a line that was overwritten only what was left."""
    if text.isprintable():
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        # What is written after it stands over what was there before.
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)

"""Digests of what steps are given: whether two attempts were given the same can be seen, and what it was cannot."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from kubexm_exec.model.graph import ExecutionNode, digest

_QUICK: Final = msgspec.json.Encoder(enc_hook=str, order="sorted")
_DIGITS: Final = 16
"""There is one in the entry of every attempt."""


def inputs_digest(node: ExecutionNode, mask: Callable[[Any], Any]) -> str:
    """The digest of all that decides what a node does on a host; ``mask`` takes secrets out of data.

    It lets people guess: there is none of what is not to be shown, nor of secrets in steps that others have returned.
    """
    if node.sensitive:
        return ""
    inputs = mask(node.inputs())
    try:
        return sha256(_QUICK.encode(inputs)).hexdigest()[:_DIGITS]
    except (TypeError, ValueError, OverflowError):
        # Such as keys that are not text, large numbers, or half a character.
        return digest(inputs)[:_DIGITS]

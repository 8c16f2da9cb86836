"""Digests of the inputs of steps: they show whether inputs have changed without revealing them."""

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
    """The digest of all that decides what a node does on a host; empty for a sensitive node.

    A digest allows guessing: ``mask`` removes secrets from the data first.
    """
    if node.sensitive:
        return ""
    inputs = mask(node.inputs())
    try:
        return sha256(_QUICK.encode(inputs)).hexdigest()[:_DIGITS]
    except (TypeError, ValueError, OverflowError):
        # Such as keys that are not text, large numbers, or a lone surrogate.
        return digest(inputs)[:_DIGITS]

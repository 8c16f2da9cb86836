"""What is known of an action from earlier sessions of its run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kubexm_exec.engine.attempt import ActionOutcome, Earlier
from kubexm_exec.engine.entries import Undo


class Known(Struct, frozen=True):
    """Either how it ended, or that it was begun and nobody knows how far it came."""

    outcome: ActionOutcome | None = None
    """How it ended, if that is to count; None: it is to be run."""
    doubt: str = ""
    """Not empty: it may have been done; this is why nobody knows."""
    started: float = 0.0
    undo: Sequence[Undo] = ()
    """What its attempts saved for an undo, in order."""
    worked: bool = False
    """Its last try got beyond precheck and failed."""
    earlier: Earlier = Earlier()
    """When it changed something, and when it succeeded."""
    undoing: bool = False
    """An undo of it was begun, and nobody knows how far it came."""

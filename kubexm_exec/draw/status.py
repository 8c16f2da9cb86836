"""How outcomes look: a symbol, a shape and a colour for each, so that none is told by colour alone."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kubexm_exec.model.result import SYMBOLS, Status


class Look(Struct, frozen=True):
    """How one outcome is shown."""

    key: str
    label: str
    symbol: str
    icon: str
    """Path of the sign in a disc of radius 7 round 0,0; it is stroked."""
    light: str
    dark: str


_RUNNING = SYMBOLS[Status.RUNNING]
LOOKS = {
    look.key: look
    for look in (
        Look("failed", "failed", SYMBOLS[Status.FAILED], "M-2.7-2.7 2.7 2.7M2.7-2.7-2.7 2.7", "#c0262d", "#ff7b78"),
        Look(
            "running", "running", SYMBOLS[Status.RUNNING], "M0-3.4A3.4 3.4 0 0 1 0 3.4M0-1.2V1.2", "#0b62c4", "#6cb2ff"
        ),
        Look("cancelled", "cancelled", SYMBOLS[Status.CANCELLED], "M-2-2H2V2H-2Z", "#7a4a9e", "#c79bea"),
        Look("skipped", "skipped", SYMBOLS[Status.SKIPPED], "M-2.6 2.6 2.6-2.6", "#59647a", "#9aa7bb"),
        Look("change", "would change", "~", "M-3.4 .8C-2.2-2-.9-1.2 0 0S2.2 2 3.4-.8", "#985f00", "#f0b849"),
        Look(
            "unknown",
            "unknown",
            "?",
            "M-1.8-1.7C-1.6-3.7 2-3.6 1.9-1.6 1.8-.2 0-.1 0 1.3M0 3.3V3.4",
            "#7a4a9e",
            "#c79bea",
        ),
        Look("unseen", "not checked", "·", "M0-.2A.4 .4 0 1 0 0 .6 .4 .4 0 1 0 0-.2", "#59647a", "#9aa7bb"),
        Look("ok", "ok", SYMBOLS[Status.SUCCESS], "M-3 .3-1 2.4 3.1-2.3", "#17793a", "#56d27e"),
        Look("same", "unchanged", "=", "M-2.8-1.3H2.8M-2.8 1.5H2.8", "#0d6c80", "#5cc6dc"),
        Look("pending", "not run", SYMBOLS[Status.PENDING], "M-2 0A2 2 0 1 0 2 0 2 2 0 1 0-2 0", "#6a7587", "#8592a6"),
    )
}
"""By key, the one that matters most first."""

_NAMES = {
    "success": "ok",
    "changed": "ok",
    "ok": "ok",
    "unchanged": "same",
    "satisfied": "same",
    "would change": "change",
    "notlookedat": "unseen",
    "unreachable": "failed",
    "timedout": "failed",
    "errored": "failed",
    "interrupted": "cancelled",
    "rolledback": "cancelled",
    "partial": "cancelled",
}
_ORDER = {key: index for index, key in enumerate(LOOKS)}


def look(status: str) -> Look:
    """The look of a status, by the names that results, forecasts and people use; what is not known is not run."""
    name = status.strip().lower()
    return LOOKS.get(_NAMES.get(name, name), LOOKS["pending"])


def worst(looks: Iterable[Look]) -> Look | None:
    """The most important of several."""
    return min(looks, key=lambda one: _ORDER[one.key], default=None)

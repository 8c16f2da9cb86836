"""The events of YAML text, one after the other, as libyaml's parser tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH: Final = 100
"""How many collections may be inside one another."""


def open_events(text: str) -> Callable[[], Any]:
    """A function that returns the next event of a text: from the C parser if there is one, else from the Python one."""
    try:
        from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # no compiled parser for this Python: the same events, some forty times slower
        return open_events_without_c(text)
    next_event: Callable[[], Any] = CParser(text).get_event
    return next_event


def open_events_without_c(text: str) -> Callable[[], Any]:
    """As `open_events`, always from the parser written in Python."""
    from ruamel.yaml import YAML

    next_event: Callable[[], Any] = YAML(typ="safe", pure=True).parse(text).__next__
    return next_event


def skip_collection(next_event: Callable[[], Any]) -> bool:
    """Go to the end of the collection that has just begun; False if it is too deep for that."""
    depth = 1
    while depth:
        name = type(next_event()).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > MAX_DEPTH:
            return False
    return True

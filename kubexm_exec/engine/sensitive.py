"""What may be shown of an action: no secrets, and no values of a sensitive step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import SENSITIVE
from kubexm_exec.secrets import Redactor
from kubexm_exec.values.expressions import texts

_SHORTEST: Final = 8
"""Shorter outputs of a sensitive step are not masked everywhere: they would mask ordinary words."""
_TEXTS: Final = ("message", "hint", "traceback")
_STREAMS: Final = ("stdout", "stderr", "command")
_DIFFS: Final = ("diffs", "refused")


def masker(attempt: Attempt, redactor: Redactor) -> Callable[[str], str]:
    """Masks secrets, and the values of a sensitive step's expressions; literals of the spec are not secret."""
    if not attempt.node.sensitive:
        return redactor.mask
    own = Redactor()
    if attempt.used is not None:
        rendered = plain(attempt.used.model_dump(by_alias=True, exclude_unset=True))
        for value in _made(rendered, attempt.node.with_):
            own.add(value)
    for name, value in (attempt.env or {}).items():
        if value != attempt.node.env[name][1]:
            own.add(value)
    return lambda text: own.mask(redactor.mask(text))


def conceal(attempt: Attempt, outcome: ActionOutcome, redactor: Redactor) -> None:
    """Remove everything from a result that must not be shown; a sensitive step's outputs are secrets from now on."""
    result = outcome.result
    if attempt.node.sensitive:
        # A path that the spec names would else be one, and every path that begins like it.
        written = {text for _, text in texts(dict(attempt.node.with_))}
        found = [text for _, text in texts(dict(outcome.outputs or {})) if text not in written]
        redactor.add([text for text in found if len(text) >= _SHORTEST])
        mask = masker(attempt, redactor)
        for name in _TEXTS:
            setattr(result, name, mask(getattr(result, name)))
        for name in _STREAMS:
            if getattr(result, name):
                setattr(result, name, SENSITIVE)
        for name in _DIFFS:
            hidden = [{"path": diff["path"], "text": "", "note": SENSITIVE} for diff in getattr(result, name)]
            setattr(result, name, hidden)
        result.outputs = dict.fromkeys(result.outputs, SENSITIVE)
    if len(redactor):
        for name in (*_TEXTS, *_STREAMS, *_DIFFS, "outputs"):
            value = getattr(result, name)
            if value:
                setattr(result, name, redactor.mask(value))


def shown_params(node: ExecutionNode, params: Mapping[str, Any] | BaseModel) -> Any:
    """Parameters as they may be shown."""
    return SENSITIVE if node.sensitive else plain(params)


def _made(rendered: Any, written: Any) -> Iterator[str]:
    if isinstance(rendered, str):
        if rendered != written:
            yield rendered
    elif isinstance(rendered, Mapping):
        for key, item in rendered.items():
            yield from _made(item, written.get(key) if isinstance(written, Mapping) else None)
    elif isinstance(rendered, list):
        for index, item in enumerate(rendered):
            same = isinstance(written, list | tuple) and index < len(written)
            yield from _made(item, written[index] if same else None)

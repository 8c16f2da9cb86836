"""Writes versions into the text of a Versions document: in order, with its comments kept."""

from __future__ import annotations

import io
from typing import Any

from kubexm_spec.clusters.versions import in_order
from kubexm_spec.models import API_VERSION
from kubexm_spec.yaml.format import format_text

EMPTY = f"""\
# Versions of ours, which are merged with those that come with kubexm.
apiVersion: {API_VERSION}
kind: Versions
metadata: {{name: ours}}
"""


def with_content(text: str, more: dict[str, Any], name: str) -> str:
    """The text of a document with more in it; raises SpecError if the text cannot be formatted."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    data = yaml.load(text)
    _put(data, more)
    _sort(data, in_order(data))
    target = io.StringIO()
    yaml.dump(data, target)
    return format_text(target.getvalue(), name)


def _put(data: Any, more: dict[str, Any]) -> None:
    from ruamel.yaml.scalarstring import SingleQuotedScalarString

    for key, value in more.items():
        # A minor version without quotes would be a number.
        shown = SingleQuotedScalarString(key) if key.count(".") == 1 and key.replace(".", "").isdecimal() else key
        if isinstance(value, dict):
            if not isinstance(data.get(key), dict):
                data[shown] = {}
            _put(data[key], value)
        elif isinstance(value, list) and isinstance(data.get(key), list):
            data[key].extend(each for each in value if each not in data[key])
        else:
            data[shown] = value


def _sort(data: Any, wanted: Any) -> None:
    """Bring mappings and lists into an order; comments stay with what they are about."""
    from ruamel.yaml.comments import CommentedMap

    if isinstance(data, list) and isinstance(wanted, list) and list(data) != wanted:
        data[:] = wanted
    if isinstance(data, CommentedMap):
        moved = list(data) != list(wanted)
        for key in wanted:
            _sort(data[key], wanted[key])
            if moved:
                data.move_to_end(key)

"""Inventories in other forms than ours: ansible's (YAML, INI, programs), terraform's, and those of third parties."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.inventories.ansible_files import read_ansible
from kubexm_spec.inventories.converted import Body, ConvertedSource, VirtualSource, in_document
from kubexm_spec.inventories.terraform import is_terraform, read_terraform
from kubexm_spec.yaml.source import SourceFile

Provider = Callable[[str, str], Mapping[str, Any]]
"""Gives the inventory of (name of a third party's source, argument) in our form; raises SpecError if there is none."""


def convert(source: SourceFile, diagnostics: Diagnostics) -> ConvertedSource | None:
    """What terraform printed, or None if it is something else."""
    documents = [document for document in source.documents if document is not None]
    if len(documents) != 1 or source.documents[0] is None or not is_terraform(documents[0]):
        return None
    body = read_terraform(source, diagnostics)
    return ConvertedSource(source.name, source.path, source.text, body, in_document(source))


def provided(name: str, data: Mapping[str, Any]) -> ConvertedSource:
    """The inventory that a third party's source gave; findings show it as JSON."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    source = SourceFile.from_text(text, name)
    body = Body(source.documents[0], {(): ()})
    return VirtualSource(name, source.path, text, body, in_document(source))


__all__ = ["ConvertedSource", "Provider", "convert", "provided", "read_ansible"]

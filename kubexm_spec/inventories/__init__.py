"""Inventories in other forms than ours: ansible's (YAML, INI, programs), terraform's, and those of third parties."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from kubexm_spec.diagnostics import Diagnostic, Diagnostics, SpecError
from kubexm_spec.inventories.ansible_data import is_ansible, read_data
from kubexm_spec.inventories.ansible_ini import looks_like_ini, read_ini
from kubexm_spec.inventories.converted import Body, ConvertedSource, VirtualSource, in_document, in_text
from kubexm_spec.inventories.program import is_program, run_program
from kubexm_spec.inventories.terraform import is_terraform, read_terraform
from kubexm_spec.source import SourceFile, read_bytes, read_text

Provider = Callable[[str, str], Mapping[str, Any]]
"""Gives the inventory of (name of a third party's source, argument) in our form; raises SpecError if there is none."""

_DATA = (".yaml", ".yml", ".json")


def read_special(path: pathlib.Path, name: str, diagnostics: Diagnostics) -> ConvertedSource | None:
    """An inventory that is a program or INI, or None if it is for YAML to read; findings leave it ``broken``."""
    if is_program(path):
        return _program(path, name, diagnostics)
    if path.suffix in _DATA or not path.is_file():
        return None
    text = read_text(path, name)
    if path.suffix != ".ini" and not looks_like_ini(text):
        return None
    body = read_ini(text, name, diagnostics)
    return ConvertedSource(name, path.absolute(), text, body, in_text())


def _program(path: pathlib.Path, name: str, diagnostics: Diagnostics) -> ConvertedSource:
    text = run_program(path, name)
    printed = SourceFile.from_text(text, f"{name} --list")
    document = printed.documents[0]
    if not isinstance(document, dict):
        raise SpecError([Diagnostic("inventory-program", f"{name} --list did not print an object of groups")])
    body = read_data(printed, diagnostics)
    return ConvertedSource(printed.name, path.absolute(), text, body, in_document(printed), file=read_bytes(path, name))


def convert(source: SourceFile, diagnostics: Diagnostics) -> ConvertedSource | None:
    """A file of YAML or JSON in another form than ours, or None if it is no such file."""
    documents = [document for document in source.documents if document is not None]
    if len(documents) != 1 or source.documents[0] is None:
        return None
    body: Body | None
    if is_terraform(documents[0]):
        body = read_terraform(source, diagnostics)
    elif is_ansible(documents[0]):
        body = read_data(source, diagnostics)
    else:
        return None
    return ConvertedSource(source.name, source.path, source.text, body, in_document(source))


def provided(name: str, data: Mapping[str, Any]) -> ConvertedSource:
    """The inventory that a third party's source gave; findings show it as JSON."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    source = SourceFile.from_text(text, name)
    body = Body(source.documents[0], {(): ()})
    return VirtualSource(name, source.path, text, body, in_document(source))


__all__ = ["ConvertedSource", "Provider", "convert", "provided", "read_special"]

"""Inventories in other forms than ours: ansible's (YAML, INI, programs), terraform's, and those of third parties."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic.alias_generators import to_camel

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.inventories.ansible_files import read_ansible
from kubexm_spec.inventories.converted import Body, ConvertedSource, VirtualSource, in_document
from kubexm_spec.yaml.source import Path, SourceFile

WHOLE: Final = "kubexm_inventory"
HOSTS: Final = "hosts"
_FREE: Final = ("vars", "labels")
"""What has names of the writer's own below it."""


def is_terraform(document: Any) -> bool:
    """Whether a document is what ``terraform output -json`` prints."""
    return (
        isinstance(document, Mapping)
        and bool(document)
        and all(isinstance(one, Mapping) and {"value", "type"} <= set(one) for one in document.values())
    )


def read_terraform(source: SourceFile, diagnostics: Diagnostics) -> Body | None:
    """The inventory in our form, or None with findings."""
    document = source.documents[0]
    name = next((one for one in (WHOLE, HOSTS) if one in document), None)
    if name is None:
        summary = f"these Terraform outputs contain no inventory: {', '.join(sorted(document))}"
        hint = f'add output "{WHOLE}" (hosts, groups, vars) or output "{HOSTS}" (address by name, or a list)'
        diagnostics.error("no-inventory-output", summary, source.place(0), hint=hint)
        return None
    origin: Path = (name, "value")
    value = document[name]["value"]
    body = Body(origins={(): origin})
    if name == WHOLE:
        if not isinstance(value, Mapping):
            diagnostics.error("wrong-type", f'output "{WHOLE}" should be a mapping', source.place(0, origin))
            return None
        for key, one in value.items():
            if key == HOSTS:
                body.data[HOSTS] = _hosts(one, (*origin, HOSTS), body)
            elif key in ("groups", "roles") and isinstance(one, Mapping):
                body.data[key] = {named: _renamed(inner) for named, inner in one.items()}
            else:
                body.data[to_camel(key)] = one if key in _FREE else _renamed(one)
    else:
        body.data[HOSTS] = _hosts(value, origin, body)
    return body


def _hosts(value: Any, origin: Path, body: Body) -> Any:
    if isinstance(value, Mapping):
        hosts = []
        for index, (name, one) in enumerate(value.items()):
            body.origins[HOSTS, index] = (*origin, name)
            host = {"address": one} if isinstance(one, str) else _renamed(one)
            hosts.append({"name": name, **host} if isinstance(host, Mapping) else host)
        return hosts
    body.origins[HOSTS,] = origin
    return [_renamed(one) for one in value] if isinstance(value, list) else value


def _renamed(one: Any) -> Any:
    """Terraform's names are written with underscores, ours are not; what is null there was not said."""
    if not isinstance(one, Mapping):
        return one
    return {to_camel(key) if "_" in key else key: value for key, value in one.items() if value is not None}


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
    text = json.dumps(data, indent=2, ensure_ascii=False)
    source = SourceFile.from_text(text, name)
    body = Body(source.documents[0], {(): ()})
    return VirtualSource(name, source.path, text, body, in_document(source))


__all__ = ["ConvertedSource", "Provider", "convert", "provided", "read_ansible"]

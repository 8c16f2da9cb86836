"""Cluster documents of other tools: read, turned into one of ours, and checked as that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.service.errors import Invalid
from kubexm_spec.diagnostics import Diagnostics, SpecError
from kubexm_spec.yaml.source import SourceFile

_GROUPS: Final = {"kubekey": "kubekey.kubesphere.io/", "kubexm-go": "kubexms.io/"}
"""By tool what the apiVersion of its documents begins with."""
KUBESPRAY: Final = "kubespray"


class Conversion(Struct, frozen=True, kw_only=True):
    """A Cluster document, and what was lost on the way."""

    data: dict[str, Any]
    text: str
    lost: Diagnostics
    findings: Diagnostics
    """What is wrong with the result."""
    sources: Mapping[str, Any]


def convert(file: str, folder: str, tool: str, target: str) -> Conversion:
    """A document in a file of another tool (found out if it is empty) as one of ours; raises Invalid.

    ``target``: where it is to be, which paths in it are relative to.
    """
    from kubexm_spec.clusters.build import document_text
    from kubexm_spec.clusters.convert_kubekey import convert_kubekey, convert_kubexm_go
    from kubexm_spec.clusters.convert_kubespray import convert_kubespray

    ways = {"kubekey": convert_kubekey, "kubexm-go": convert_kubexm_go, KUBESPRAY: convert_kubespray}
    lost = Diagnostics()
    tool, source, index = _read(file, folder, tool)
    data = ways[tool](source, index, lost)
    head = [f"# Converted by `kubexm cluster convert` from {file} ({tool})."]
    if len(lost):
        head.append("# Not converted, or not as it was:")
        head += [f"#   {each.span}: {each.summary}" + (f" ({each.hint})" if each.hint else "") for each in lost]
    text = document_text(data, "\n".join(head) + "\n", target)
    findings, made = _checked(text, folder, target)
    return Conversion(data=data, text=text, lost=lost, findings=findings, sources={target: made})


def _read(file: str, folder: str, tool: str) -> tuple[str, SourceFile, int]:
    """The tool, the file, and the number of the document in it."""
    path = Path(folder) / file
    if tool != KUBESPRAY and path.is_file():
        try:
            source = SourceFile.load(path, name=file)
        except SpecError as error:
            if tool:
                raise Invalid.documents(Diagnostics(error.diagnostics), {}, folder) from None
            source = None  # an inventory in INI
        for index, document in enumerate(source.documents if source is not None else ()):
            version = str(document.get("apiVersion", "")) if isinstance(document, Mapping) else ""
            for name, start in _GROUPS.items():
                if tool in ("", name) and version.startswith(start) and document.get("kind") == "Cluster":
                    if not isinstance(document.get("spec"), Mapping):
                        raise Invalid(f"{file}: the Cluster of {name} has no spec")
                    return name, source, index  # type: ignore[return-value]
        if tool:
            start = _GROUPS[tool]
            raise Invalid(f"{file} has no Cluster of {tool}: no document with apiVersion {start}... and kind Cluster")
    return KUBESPRAY, _inventory(path, file, folder), 0


def _inventory(path: Path, file: str, folder: str) -> SourceFile:
    from kubexm_spec.inventories.ansible_files import read_ansible

    found = Diagnostics()
    hint = "give hosts.yaml or inventory.ini of an inventory of kubespray, or a document with --from"
    if not path.exists():
        raise Invalid(f"{file} does not exist", hint)
    try:
        source = read_ansible(path, file, found)
    except SpecError as error:
        raise Invalid.documents(Diagnostics(error.diagnostics), {}, folder) from None
    if found.has_errors:
        raise Invalid.documents(found, {}, folder)
    groups = source.documents[0].get("groups", {}) if source is not None else {}
    if source is None or not {"kube_control_plane", "kube-master"} & set(groups):
        raise Invalid(f"{file} is no inventory of kubespray: it has no group kube_control_plane", hint)
    return source


def _checked(text: str, folder: str, target: str) -> tuple[Diagnostics, SourceFile]:
    """What is wrong with a document of ours."""
    from kubexm_exec.compile.standalone import check_document
    from kubexm_exec.plugins import step_registry
    from kubexm_spec.documents.loader import Loader

    found = Diagnostics()
    loader = Loader(found, folder=folder)
    source = SourceFile(target, Path(folder) / target, text.encode())
    loaded = loader.document(source, 0)
    if loaded is not None:
        check_document(loaded, loader, found, step_registry())
    return found, source

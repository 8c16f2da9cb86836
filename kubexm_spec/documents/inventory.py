"""Loads the inventory that a pipeline or ``-i`` names, in whatever form it is, as one and the same body."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from typing import TYPE_CHECKING, Final

from kubexm_spec.diagnostics import Diagnostics, SpecError
from kubexm_spec.documents.checking import check
from kubexm_spec.documents.loader import SHIPPED_PREFIX, Loaded, Loader
from kubexm_spec.models import InventoryBody
from kubexm_spec.paths import exists, is_file, is_folder
from kubexm_spec.yaml.lines import is_spec
from kubexm_spec.yaml.source import Place, SourceFile, read_bytes

if TYPE_CHECKING:
    from kubexm_spec.inventories import ConvertedSource

_PROVIDED: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*):(.*)", re.DOTALL)


def override_inventory(loader: Loader, reference: str) -> Loaded[InventoryBody] | None:
    """The inventory of ``-i``; paths start in the loader's folder."""
    path = loader.folder / reference
    if not exists(path) and _is_provided(reference):
        return _provided(loader, reference, None)
    return _file(loader, path, reference, "", None)


def load_inventory(loader: Loader, reference: str, base: SourceFile, used_by: Place) -> Loaded[InventoryBody] | None:
    """The inventory that a document names: a path, ``path#name``, ``#name``, ``kubexm:name`` or ``NAME:argument``."""
    file_part, _, wanted = reference.partition("#")
    path = base.path.parent / file_part
    if file_part.startswith(SHIPPED_PREFIX) or not file_part:
        found = loader.resolve(reference, base, "Inventory", used_by)
        document = found.document if found is not None else None
        if found is None or not isinstance(document, InventoryBody):
            return None
        return Loaded(document, found.source, found.index)
    if not is_file(path) and not is_folder(path):
        if _is_provided(reference):
            return _provided(loader, reference, used_by)
        loader.not_found(path, file_part, "Inventory", used_by)
        return None
    return _file(loader, path, os.path.normpath(pathlib.Path(base.name).parent / file_part), wanted, used_by)


def _is_provided(reference: str) -> bool:
    return _PROVIDED.fullmatch(reference) is not None


def _file(
    loader: Loader, path: pathlib.Path, name: str, wanted: str, used_by: Place | None
) -> Loaded[InventoryBody] | None:
    try:
        special = _foreign(path, name, loader.diagnostics)
    except SpecError as error:
        loader.diagnostics.extend(error.diagnostics, used_by)
        return None
    if special is not None:
        return _converted(loader, special)
    source = loader.source(path, name, used_by)
    if source is None:
        return None
    if not wanted and not is_spec(source.text):
        from kubexm_spec.inventories import convert

        other = convert(source, loader.diagnostics)
        if other is not None:
            return _converted(loader, other)
    found = loader.choose(source, wanted, "Inventory", used_by or source.place(0))
    if found is None or not isinstance(found.document, InventoryBody):
        return None
    return Loaded(found.document, found.source, found.index)


def _foreign(path: pathlib.Path, name: str, diagnostics: Diagnostics) -> ConvertedSource | None:
    """The inventory of a file or folder that is ansible's; what reads those is loaded only if it may be one."""
    if path.suffix in (".yaml", ".yml") and is_file(path) and not os.access(path, os.X_OK):
        with contextlib.suppress(UnicodeDecodeError):
            if is_spec(read_bytes(path, name).decode()):
                return None
    from kubexm_spec.inventories import read_ansible

    return read_ansible(path, name, diagnostics)


def _converted(loader: Loader, source: ConvertedSource) -> Loaded[InventoryBody] | None:
    for part in source.parts:
        loader.sources[pathlib.Path(os.path.normpath(part.path.absolute()))] = part
    if source.broken:
        return None
    body = check(InventoryBody, source.documents[0], source.place(0), loader.diagnostics, what="the inventory")
    return Loaded(body, source, 0) if body is not None else None


def _provided(loader: Loader, reference: str, used_by: Place | None) -> Loaded[InventoryBody] | None:
    from kubexm_spec.inventories import provided

    match = _PROVIDED.fullmatch(reference)
    if match is None or loader.provider is None:
        summary = f'the inventory "{reference}" is neither a file nor an installed source'
        loader.diagnostics.error("file-not-found", summary, used_by)
        return None
    try:
        data = loader.provider(match[1], match[2])
    except SpecError as error:
        loader.diagnostics.extend(error.diagnostics, used_by)
        return None
    return _converted(loader, provided(reference, data))

"""Loads a pipeline with all it uses: inventory, modules and tasks from other files, and from the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import SHIPPED_PREFIX, Loaded, Loader
from kubexm_spec.models import Document, InventoryBody, ModuleDocument, PipelineDocument, TaskDocument
from kubexm_spec.yaml.source import Path, SourceFile


class Bundle(Struct):
    """A pipeline and all documents it uses, checked on their own; the compiler puts them together."""

    pipeline: Loaded[PipelineDocument]
    inventory: Loaded[InventoryBody] | None = None
    modules: dict[Path, Loaded[ModuleDocument]] = field(default_factory=dict)
    """Used module documents by the path of the module that uses them."""
    tasks: dict[tuple[str, Path], Loaded[TaskDocument]] = field(default_factory=dict)
    """Used task documents by (name of the source file, path of the task in it)."""
    sources: dict[str, SourceFile] = field(default_factory=dict)


def load_bundle(
    path: str | os.PathLike[str],
    diagnostics: Diagnostics,
    *,
    inventory: str | None = None,
    loader: Loader | None = None,
) -> Bundle | None:
    """The pipeline in a file with all it uses, or None; everything that is wrong is in the diagnostics.

    ``inventory`` takes the place of the pipeline's own. Both names start in the loader's folder. A ``loader`` of the
    caller's knows afterwards what was read.
    """
    loader = loader or Loader(diagnostics)
    name = os.fspath(path)
    is_shipped = name.startswith(SHIPPED_PREFIX)
    shipped = loader.shipped(name.removeprefix(SHIPPED_PREFIX), "Pipeline", None) if is_shipped else None
    source = loader.source(shipped or loader.folder / name, name) if shipped or not is_shipped else None
    if source is None:
        return None
    found = [i for i, data in enumerate(source.documents) if isinstance(data, dict) and data.get("kind") == "Pipeline"]
    if len(found) != 1:
        loaded = loader.documents(source)
        if not found and (loaded or not diagnostics.has_errors):
            kinds = ", ".join(sorted({type(d.document).__name__.removesuffix("Document") for d in loaded}))
            summary = f"{source.name} contains no Pipeline" + (f", but {kinds}" if kinds else "")
            diagnostics.error("no-pipeline", summary, source.place(0), hint="only a Pipeline can be run")
        elif len(found) > 1:
            summary, hint = f"{source.name} contains {len(found)} Pipelines", "a file can contain one Pipeline"
            diagnostics.error("several-pipelines", summary, source.place(found[1]), hint=hint)
        return None
    pipeline = loader.document(source, found[0])
    modules: dict[Path, Loaded[ModuleDocument]] = {}
    tasks: dict[tuple[str, Path], Loaded[TaskDocument]] = {}
    # A pipeline that is wrong still has its files checked, so that all errors are shown at once.
    _load_uses(loader, source, found[0], modules, tasks)
    if pipeline is None or not isinstance(pipeline.document, PipelineDocument):
        named = source.documents[found[0]].get("inventory")
        if isinstance(named, str):
            from kubexm_spec.documents.inventory import load_inventory

            load_inventory(loader, named, source, source.place(found[0], ("inventory",)))
        return None
    bundle = Bundle(Loaded(pipeline.document, source, found[0]), None, modules, tasks)
    _load_inventory(loader, bundle, inventory)
    bundle.sources = {s.name: s for s in loader.sources.values() if s is not None and not s.virtual}
    return bundle


def _load_uses(
    loader: Loader,
    source: SourceFile,
    index: int,
    modules: dict[Path, Loaded[ModuleDocument]],
    tasks: dict[tuple[str, Path], Loaded[TaskDocument]],
) -> None:
    """Add the documents that the modules and tasks of a pipeline use."""
    for path, module, used in _uses(loader, source, index, source.documents[index], (), "Module"):
        body = (source, index, module, path)
        if used is not None and isinstance(used.document, ModuleDocument):
            modules[path] = Loaded(used.document, used.source, used.index)
            body = (used.source, used.index, used.source.documents[used.index], ())
        for below, _, task in _uses(loader, *body, "Task"):
            if task is not None and isinstance(task.document, TaskDocument):
                tasks[(body[0].name, (body[1], *below))] = Loaded(task.document, task.source, task.index)


def _uses(
    loader: Loader, source: SourceFile, index: int, data: Any, path: Path, kind: str
) -> Iterator[tuple[Path, dict[str, Any], Loaded[Document] | None]]:
    """The modules or tasks of a mapping with their paths, and the document that each one uses."""
    key = f"{kind.lower()}s"
    items = data.get(key)
    for number, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            where, reference = (*path, key, number), item.get("uses")
            place = source.place(index, (*where, "uses"))
            yield where, item, loader.resolve(reference, source, kind, place) if isinstance(reference, str) else None


def _load_inventory(loader: Loader, bundle: Bundle, override: str | None) -> None:
    pipeline = bundle.pipeline
    own = pipeline.document.inventory
    if override is None and isinstance(own, InventoryBody):
        bundle.inventory = Loaded(own, pipeline.source, pipeline.index, ("inventory",))
        return
    from kubexm_spec.documents.inventory import load_inventory, override_inventory

    if override is not None:
        bundle.inventory = override_inventory(loader, override)
    elif isinstance(own, str):
        bundle.inventory = load_inventory(loader, own, pipeline.source, pipeline.place("inventory"))


__all__ = ["SHIPPED_PREFIX", "Bundle", "Loaded", "Loader", "load_bundle"]

"""Loads a pipeline with all it uses: inventory, modules and tasks from other files, and from the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct, field

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import SHIPPED_PREFIX, Loaded, Loader
from kubexm_spec.models import (
    InventoryBody,
    ModuleDocument,
    PipelineDocument,
    TaskDocument,
    TaskSpec,
)
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
    found_path = (
        loader.shipped(name.removeprefix(SHIPPED_PREFIX), "Pipeline", None)
        if name.startswith(SHIPPED_PREFIX)
        else loader.folder / name
    )
    source = loader.source(found_path, name) if found_path is not None else None
    if source is None:
        return None
    found = [i for i, data in enumerate(source.documents) if isinstance(data, dict) and data.get("kind") == "Pipeline"]
    if len(found) != 1:
        loaded = loader.documents(source)
        if not found and (loaded or not diagnostics.has_errors):
            kinds = ", ".join(sorted({type(d.document).__name__.removesuffix("Document") for d in loaded}))
            diagnostics.error(
                "no-pipeline",
                f"{source.name} contains no Pipeline" + (f", but {kinds}" if kinds else ""),
                source.place(0),
                hint="only a Pipeline can be run",
            )
        elif len(found) > 1:
            diagnostics.error(
                "several-pipelines",
                f"{source.name} contains {len(found)} Pipelines",
                source.place(found[1]),
                hint="a file can contain one Pipeline",
            )
        return None
    pipeline = loader.document(source, found[0])
    if pipeline is None or not isinstance(pipeline.document, PipelineDocument):
        _check_neighbours(loader, source, found[0])
        return None
    bundle = Bundle(Loaded(pipeline.document, source, found[0]))
    _load_uses(loader, bundle)
    _load_inventory(loader, bundle, inventory)
    bundle.sources = {s.name: s for s in loader.sources.values() if s is not None and not s.virtual}
    return bundle


def _check_neighbours(loader: Loader, source: SourceFile, index: int) -> None:
    """A pipeline that is wrong still has its files checked, so that all errors are shown at once."""
    data = source.documents[index]
    inventory = data.get("inventory")
    if isinstance(inventory, str):
        from kubexm_spec.documents.inventory import load_inventory

        load_inventory(loader, inventory, source, source.place(index, ("inventory",)))
    modules = data.get("modules")
    for number, module in enumerate(modules if isinstance(modules, list) else []):
        if not isinstance(module, dict):
            continue
        if isinstance(module.get("uses"), str):
            used = loader.resolve(module["uses"], source, "Module", source.place(index, ("modules", number, "uses")))
            if used is not None and isinstance(used.document, ModuleDocument):
                for position, task in enumerate(used.document.tasks):
                    if task.uses is not None:
                        loader.resolve(task.uses, used.source, "Task", used.place("tasks", position, "uses"))
        tasks = module.get("tasks")
        for position, task in enumerate(tasks if isinstance(tasks, list) else []):
            if isinstance(task, dict) and isinstance(task.get("uses"), str):
                where = source.place(index, ("modules", number, "tasks", position, "uses"))
                loader.resolve(task["uses"], source, "Task", where)


def _load_uses(loader: Loader, bundle: Bundle) -> None:
    pipeline = bundle.pipeline
    for number, module in enumerate(pipeline.document.modules):
        path: Path = ("modules", number)
        if module.uses is not None:
            used = loader.resolve(module.uses, pipeline.source, "Module", pipeline.place(*path, "uses"))
            if used is not None and isinstance(used.document, ModuleDocument):
                document = Loaded(used.document, used.source, used.index)
                bundle.modules[path] = document
                _load_tasks(loader, bundle, used.document.tasks, document, ())
        else:
            _load_tasks(loader, bundle, module.tasks, pipeline, path)


def _load_tasks(
    loader: Loader,
    bundle: Bundle,
    tasks: Iterable[TaskSpec],
    owner: Loaded[PipelineDocument] | Loaded[ModuleDocument],
    prefix: Path,
) -> None:
    for number, task in enumerate(tasks):
        if task.uses is None:
            continue
        path = (*prefix, "tasks", number)
        used = loader.resolve(task.uses, owner.source, "Task", owner.place(*path, "uses"))
        if used is not None and isinstance(used.document, TaskDocument):
            bundle.tasks[(owner.source.name, (owner.index, *path))] = Loaded(used.document, used.source, used.index)


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

"""Checks documents in files and folders; nothing is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Documents, Validation


def validate(paths: Sequence[str], documents: Documents) -> Validation:
    """What is wrong with the documents in some files, and in all specs below some folders.

    Pipelines are compiled with all that they use, and with the values and choices of ``documents``.
    """
    from kubexm_exec.compile import compile_file, merged
    from kubexm_exec.compile.standalone import check_broken, check_document
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.service.documents import compile_options
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.diagnostics import Diagnostics
    from kubexm_spec.documents.loader import Loader

    options = compile_options(documents)
    diagnostics = Diagnostics()
    loader = Loader(diagnostics, folder=documents.folder)
    steps = step_registry()
    sources = {}
    checked = left_out = 0
    for path, is_spec in _files(paths, documents.folder):
        if not is_spec:
            left_out += 1
            continue
        checked += 1
        file = loader.source(loader.folder / path, str(path))
        if file is None:
            continue
        sources[file.name] = file
        for loaded in loader.documents(file):
            check_document(loaded, loader, diagnostics, steps)
        if any(isinstance(data, dict) and data.get("kind") == "Pipeline" for data in file.documents):
            result = compile_file(path, options)
            diagnostics.extend(result.diagnostics)
            sources.update(result.sources)
    check_broken(loader.broken, diagnostics, steps, Expressions())
    return Validation(merged(diagnostics), sources, checked, left_out)


def yaml_files(path: Path, folder: str = "") -> list[tuple[Path, bool]]:
    """All YAML files below a folder, but not those in hidden ones; each with whether it is a spec of ours."""
    root = Path(folder, path)
    found = (each.relative_to(root) for each in root.rglob("*") if each.suffix in (".yaml", ".yml") and each.is_file())
    seen = sorted(name for name in found if not any(part.startswith(".") for part in name.parts))
    return [(path / name, _mentions_kubexm(root / name)) for name in seen]


def _mentions_kubexm(path: Path) -> bool:
    try:
        return b"kubexm.io/" in path.read_bytes()
    except OSError:  # told when it is loaded
        return True


def _files(paths: Iterable[str], folder: str) -> Iterator[tuple[Path, bool]]:
    """Every file once, with whether it is to be checked: all that are named, and of those in folders the specs."""
    seen: set[Path] = set()
    for name in paths:
        path = Path(name)
        found = [(path, True)]
        if Path(folder, path).is_dir():
            found = yaml_files(path, folder)
            if not any(is_spec for _, is_spec in found):
                raise Invalid(f"{name} contains no spec: no .yaml or .yml file with apiVersion: kubexm.io/v1")
        for file, is_spec in found:
            if Path(folder, file) not in seen:
                seen.add(Path(folder, file))
                yield file, is_spec

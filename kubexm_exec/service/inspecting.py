"""What specs and inventories say, without running anything: differences, values and hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubexm_exec.service.documents import Warn, compile_options, compiled, hosts_of, site_of
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Difference, Documents, HostInfo, Validation
from kubexm_spec.diagnostics import Diagnostics, did_you_mean
from kubexm_spec.paths import is_folder

if TYPE_CHECKING:
    from kubexm_exec.compile import Compilation
    from kubexm_exec.compile.compare import Inputs
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.compile.state import State
    from kubexm_exec.model.graph import ExecutionGraph


def validate(paths: Sequence[str], documents: Documents) -> Validation:
    """Findings in files, and in all specs below folders; pipelines are compiled with the values of ``documents``."""
    from kubexm_exec.compile import compile_file, merged
    from kubexm_exec.compile.standalone import check_broken, check_document
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.values.expressions import Expressions
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
        if is_folder(Path(folder, path)):
            found = yaml_files(path, folder)
            if not any(is_spec for _, is_spec in found):
                raise Invalid(f"{name} contains no spec: no .yaml or .yml file with apiVersion: kubexm.io/v1")
        for file, is_spec in found:
            if Path(folder, file) not in seen:
                seen.add(Path(folder, file))
                yield file, is_spec


def diff(before: Documents, after: Documents, warn: Warn) -> Difference:
    """What changes in the graph from one spec to another."""
    from kubexm_exec.compile.compare import compare, compare_hosts

    was, old = compiled(before, warn)
    now, new = compiled(after, warn)
    changes = compare(old, new, inputs_before=_inputs(was), inputs_after=_inputs(now))
    return Difference(changes, compare_hosts(old, new), _policy(old, new))


def _inputs(compilation: Compilation) -> Inputs | None:
    from kubexm_exec.compile.hashes import inputs_of

    return None if compilation.state is None else partial(inputs_of, compilation.state)


def _policy(old: ExecutionGraph, new: ExecutionGraph) -> list[str]:
    """What holds for the whole run and is not the same."""
    found = []
    if old.failure_policy is not new.failure_policy:
        found.append(f"failurePolicy: {old.failure_policy.value} -> {new.failure_policy.value}")
    for name in sorted(old.locks.keys() | new.locks.keys()):
        if old.locks.get(name, 1) != new.locks.get(name, 1):
            found.append(f"lock {name}: {old.locks.get(name, 1)} -> {new.locks.get(name, 1)}")
    return found


def values(documents: Documents, host: str, scope: str, warn: Warn) -> list[ValueRow]:
    """The values that a host sees in a scope, and where each is from."""
    from kubexm_exec.compile.explain import explain

    result, graph = compiled(documents, warn)
    if result.state is None:
        raise RuntimeError("a compiled graph has its state")
    if host not in result.state.hosts:
        raise Invalid(f'there is no host "{host}"', did_you_mean(host, result.state.hosts), kind="unknown-host")
    if scope not in graph.scopes:
        hint = did_you_mean(scope, graph.scopes)
        raise Invalid(f'there is no module or task "{scope}"', hint, kind="unknown-scope")
    return explain(result.state, host, scope)


def hosts(documents: Documents, pattern: str, warn: Warn) -> list[HostInfo]:
    """The hosts of a spec or an inventory; those that a pattern selects come with their variables."""
    site, state = site_of(documents, warn)
    if not pattern:
        return [HostInfo(state.hosts[name]) for name in site.names]
    names = hosts_of(site, [pattern], reached=False)
    return [HostInfo(state.hosts[name], _vars(state, name)) for name in names]


def _vars(state: State, name: str) -> list[ValueRow]:
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.compile.hosts import merged_layers

    sources: dict[str, list[str]] = {}
    for label, key, place in merged_layers(state, name):
        sources.setdefault(key, []).append(f"{label} at {place.file_line}")
    found = state.hosts[name].vars
    return [ValueRow(key, found[key], several[-1], tuple(several[-2::-1])) for key, several in sorted(sources.items())]

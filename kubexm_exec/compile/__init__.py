"""The compiler: from documents to an execution graph, by an ordered list of small passes."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.compile.options import CompileOptions
from kubexm_spec.diagnostics import Diagnostic, Diagnostics, Note, Span, SpecError
from kubexm_spec.yaml.source import SourceFile

if TYPE_CHECKING:
    from kubexm_exec.compile.state import State
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.plugins import Registry
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.documents.bundle import Bundle


class Compilation(Struct):
    """The result: the graph if there was no error, and all findings."""

    diagnostics: Diagnostics
    graph: ExecutionGraph | None = None
    bundle: Bundle | None = None
    expressions: Expressions | None = None
    sources: dict[str, SourceFile] = field(default_factory=dict)
    state: State | None = None

    def span_of_secret(self, host: str, reference: str) -> Span | None:
        """Where the inventory names a secret that a host is reached with."""
        from kubexm_exec.compile.hosts import place_of_secret

        place = place_of_secret(self.state, host, reference) if self.state is not None else None
        return place.span() if place is not None else None


def compile_file(
    path: str | os.PathLike[str],
    options: CompileOptions | None = None,
    *,
    steps: Registry[Any] | None = None,
    connectors: Registry[Any] | None = None,
) -> Compilation:
    """Compile the pipeline in a file. All errors of all files are collected; nothing is run."""
    from kubexm_exec.compile.inventories import ask
    from kubexm_exec.compile.standalone import check_broken
    from kubexm_exec.compile.state import State
    from kubexm_exec.plugins import connector_registry, step_registry
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.documents.bundle import load_bundle
    from kubexm_spec.documents.loader import Loader

    options = options or CompileOptions()
    diagnostics = Diagnostics()
    loader = Loader(diagnostics, provider=ask, folder=options.folder)
    expressions = Expressions()
    steps = steps or step_registry()
    bundle = load_bundle(path, diagnostics, inventory=options.inventory, loader=loader)
    check_broken(loader.broken, diagnostics, steps, expressions)
    result = Compilation(diagnostics, bundle=bundle, expressions=expressions)
    result.sources = {source.name: source for source in loader.sources.values() if source is not None}
    if bundle is not None:
        result.state = State(
            name=bundle.pipeline.document.metadata.name,
            documents=bundle,
            diagnostics=diagnostics,
            expressions=expressions,
            steps=steps,
            connectors=connectors or connector_registry(),
            options=options,
        )
        _run_passes(result.state)
        result.sources.update(bundle.sources)
    result.diagnostics = merged(diagnostics)
    if result.state is not None and not diagnostics.has_errors:
        result.graph = _assemble(result.state)
    return result


def compile_state(state: State) -> ExecutionGraph | None:
    """The graph of documents that are loaded already, or None; findings are in the state's diagnostics."""
    _run_passes(state)
    return None if state.diagnostics.has_errors else _assemble(state)


def _run_passes(state: State) -> None:
    """Report as many findings at once as possible: stop only where the next passes would have nothing to build on."""
    for stops, passes in _stages():
        errors = state.diagnostics.errors
        if errors and (stops is None or any(finding.code in stops for finding in errors)):
            return
        state.linked = None  # the nodes may be others from here on
        for work in passes:
            work(state)


def _stages() -> Sequence[tuple[frozenset[str] | None, Sequence[Callable[[State], None]]]]:
    """The compiler: its passes in order, after the codes of errors that end it before them (None: any error)."""
    from kubexm_exec.compile.cycles import check_cycles
    from kubexm_exec.compile.drafts import draft_modules
    from kubexm_exec.compile.files import check_files
    from kubexm_exec.compile.handlers import add_notifications, find_handlers
    from kubexm_exec.compile.hashes import add_hashes
    from kubexm_exec.compile.hooks import check_ids
    from kubexm_exec.compile.hosts import build_hosts, check_connectors
    from kubexm_exec.compile.link import link
    from kubexm_exec.compile.loops import choose_first, make_nodes, select_nodes
    from kubexm_exec.compile.namedhosts import check_named_hosts
    from kubexm_exec.compile.ready import choose_ready
    from kubexm_exec.compile.references import check_references
    from kubexm_exec.compile.rendered import check_rendered
    from kubexm_exec.compile.resources import check_resources
    from kubexm_exec.compile.scopes import bind_pipeline
    from kubexm_exec.compile.types import check_types
    from kubexm_exec.compile.varsfiles import bind_vars, read_vars_files

    no_order = frozenset({"cycle", "duplicate-name"})
    return (
        (
            frozenset(),
            (
                build_hosts,
                bind_pipeline,
                read_vars_files,
                bind_vars,
                draft_modules,
                find_handlers,
                check_ids,
                make_nodes,
                add_notifications,
                check_types,
                check_cycles,
            ),
        ),
        (
            no_order,
            (
                link,
                select_nodes,
                choose_ready,
                check_connectors,
                check_references,
                check_rendered,
                check_files,
                check_named_hosts,
                check_resources,
            ),
        ),
        (None, (add_hashes, choose_first)),
    )  # fmt: skip


def merged(findings: Iterable[Diagnostic]) -> Diagnostics:
    """The findings without repetitions: one that is made from several places is one, with the notes of all."""
    found: dict[Diagnostic, list[Note]] = {}
    for finding in findings:
        found.setdefault(replace(finding, notes=()), []).extend(finding.notes)
    return Diagnostics(replace(finding, notes=tuple(dict.fromkeys(notes))) for finding, notes in found.items())


def _assemble(state: State) -> ExecutionGraph:
    from kubexm_exec.model.graph import ExecutionGraph, FailurePolicy
    from kubexm_exec.values.evaluate import CONTROL_NODE

    document = state.bundle.pipeline.document
    # All of the inventory, also what a limit leaves out: expressions of the others may refer to any host.
    alone = state.all_hosts == (CONTROL_NODE,)
    needed = alone or CONTROL_NODE in state.named_hosts
    needed = needed or any(CONTROL_NODE in (*node.locations, *node.candidates) for node in state.nodes.values())
    return ExecutionGraph(
        name=document.metadata.name,
        description=document.metadata.description,
        nodes=state.nodes,
        hosts={name: host for name, host in state.hosts.items() if needed or name != CONTROL_NODE},
        scopes=state.scopes,
        failure_policy=FailurePolicy(document.failure_policy),
        locks=document.locks,
        sources=_sources(state),
        target=_target(state),
    )


def _target(state: State) -> str:
    """The target of the run: the pipeline's `lock`, else its inventory by name or path, else the pipeline itself."""
    from kubexm_spec.models.inventory import InventoryDocument

    document = state.bundle.pipeline.document
    if document.lock is not None:
        return document.lock
    inventory = state.bundle.inventory
    named = inventory.document if inventory is not None else None
    if isinstance(named, InventoryDocument):
        return f"inventory {named.metadata.name}"
    return str((inventory or state.bundle.pipeline).source.path.absolute())


def _sources(state: State) -> dict[str, str]:
    """Digests of all files by their path from the pipeline's folder: the same in every checkout."""
    root = pathlib.Path(os.path.abspath(state.bundle.pipeline.folder))  # noqa: PTH100 - resolve() would follow links out of the checkout
    files = {source.path: source.sha256 for source in state.bundle.sources.values()}
    files.update(state.files)
    return {os.path.relpath(path, root): sha for path, sha in sorted(files.items())}


def compile_pipeline(path: str | os.PathLike[str], options: CompileOptions | None = None) -> ExecutionGraph:
    """The graph of a pipeline; raises SpecError with everything that is wrong."""
    result = compile_file(path, options)
    if result.graph is None:
        raise SpecError(result.diagnostics)
    return result.graph


__all__ = ["Compilation", "CompileOptions", "compile_file", "compile_pipeline", "compile_state", "merged"]

"""Hosts without a spec: the inventory's hosts alone, patterns of them, and a graph of one command on some of them."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.compile import compile_state
from kubexm_exec.compile.hostpatterns import choose
from kubexm_exec.compile.hosts import build_hosts
from kubexm_exec.compile.inventories import ask
from kubexm_exec.compile.options import CompileOptions
from kubexm_exec.compile.state import State
from kubexm_exec.model.graph import ExecutionGraph, Origin
from kubexm_exec.plugins import connector_registry, step_registry
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_exec.values.expressions import Expressions
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.bundle import Bundle, load_bundle
from kubexm_spec.documents.loader import Loader
from kubexm_spec.yaml.source import SourceFile

_NAME: Final = "ad-hoc"


class Site(Struct):
    """The hosts of an inventory and all that was found wrong with it."""

    diagnostics: Diagnostics
    sources: dict[str, SourceFile] = field(default_factory=dict)
    state: State | None = None
    """None if there are errors."""
    folder: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The inventory's hosts in order; the control node only if it is alone."""
        return self.state.all_hosts if self.state is not None else ()


def load_site(spec: str | None, inventory: str | None, folder: str = "") -> Site:
    """The hosts of a spec's inventory, or of the one that takes its place; their names start in a folder."""
    diagnostics = Diagnostics()
    loader = Loader(diagnostics, provider=ask, folder=folder)
    bundle = load_bundle(spec or _seed(loader, ["true"], None, ()), diagnostics, inventory=inventory, loader=loader)
    sources = {source.name: source for source in loader.sources.values() if source is not None}
    site = Site(diagnostics, sources, folder=folder)
    if bundle is not None:
        state = _state(bundle, diagnostics, inventory, {})
        build_hosts(state)
        if not diagnostics.has_errors:
            site.state = state
    return site


def choose_hosts(site: Site, patterns: Iterable[str]) -> list[str]:
    """The hosts that patterns mean, in the inventory's order; raises PatternError."""
    return choose(site.state.hosts, patterns, CONTROL_NODE) if site.state is not None else []


def command_graph(
    site: Site, hosts: Sequence[str], argv: Sequence[str] | None, shell: str | None, become: str | None = None
) -> ExecutionGraph:
    """A graph of one node: the command on these hosts, as ``become`` if given; braces in it have no meaning."""
    if site.state is None:
        raise ValueError("there are no hosts")
    diagnostics = Diagnostics()
    loader = Loader(diagnostics, folder=site.folder)
    bundle = load_bundle(_seed(loader, argv, shell, hosts), diagnostics, loader=loader)
    if bundle is None:
        raise RuntimeError(f"the ad hoc pipeline is wrong: {list(diagnostics)}")
    bundle.inventory = site.state.bundle.inventory
    values = {"argv": list(argv)} if argv is not None else {"shell": shell}
    graph = compile_state(_state(bundle, diagnostics, None, values))
    if graph is None:
        raise RuntimeError(f"the ad hoc pipeline is wrong: {list(diagnostics)}")
    # It is in no file: a place in one would lead nowhere.
    return graph.with_nodes(replace(node, origin=Origin(), become=become) for node in graph.nodes.values())


def _state(bundle: Bundle, diagnostics: Diagnostics, inventory: str | None, values: dict[str, Any]) -> State:
    return State(
        name=bundle.pipeline.document.metadata.name,
        documents=bundle,
        diagnostics=diagnostics,
        expressions=Expressions(),
        steps=step_registry(),
        connectors=connector_registry(),
        options=CompileOptions(values=values, inventory=inventory),
    )


def _seed(loader: Loader, argv: Sequence[str] | None, shell: str | None, hosts: Sequence[str]) -> str:
    """Put a pipeline into the loader as if it were a file; gives its name."""
    key, kind = ("argv", "list") if argv is not None else ("shell", "string")
    step = {"name": "command", "type": "command", "with": {key: f"{{{{ params.{key} }}}}"}}
    task: dict[str, Any] = {"name": "command", "steps": [step]}
    if hosts:
        task["runOn"] = {"hosts": list(hosts)}
    document = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": _NAME},
        "params": {key: {"type": kind, "default": ["true"] if argv is not None else "true"}},
        "modules": [{"name": "exec", "tasks": [task]}],
    }
    path = (loader.folder / _NAME).absolute()
    source = SourceFile(_NAME, path, json.dumps(document).encode())
    source.virtual = True
    loader.sources[pathlib.Path(os.path.normpath(path))] = source
    return _NAME

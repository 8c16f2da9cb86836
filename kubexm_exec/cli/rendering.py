"""Renders the files that steps of a spec would write, for every host, without contacting one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kubexm_exec.service.requests import Documents

ASSUMED: Final[Mapping[str, Any]] = {
    "os": {"family": "debian", "distribution": "debian", "version": "12", "codename": "bookworm"},
    "kernel": "6.1.0",
    "architecture": "amd64",
    "machine": "x86_64",
    "defaultRoute": {"interface": "eth0", "gateway": "", "address": ""},
}
"""What is assumed of hosts."""


def rendered_files(documents: Documents) -> Iterator[tuple[str, str, str]]:
    """Host, path and content of every file; raises Invalid and ExpressionError."""
    from kubexm_exec.compile.static import NoRecords, no_secret
    from kubexm_exec.plugins import step_registry
    from kubexm_exec.service.documents import compiled, unpacked
    from kubexm_exec.step import Step
    from kubexm_exec.values.evaluate import Evaluator
    from kubexm_exec.values.expressions import Expressions, UnknownValueError
    from kubexm_exec.values.templates import TemplateFinder, Templates

    with tempfile.TemporaryDirectory() as folder:
        _, graph = compiled(unpacked(documents, Path(folder)), lambda *_: None)
        expressions = Expressions()
        evaluator = Evaluator(graph, expressions, records=NoRecords(), facts=lambda _: ASSUMED, secret=no_secret)
        templates = Templates(expressions, lambda base: TemplateFinder.for_spec(base, documents.templates))
        registry = step_registry()
        for node in graph.nodes.values():
            if node.is_gate or (writes := registry.load(node.step_name).writes) is Step.writes:
                continue
            for host in node.hosts:
                try:
                    if evaluator.unmet(node, host) is not None:
                        continue
                except UnknownValueError:
                    pass  # it may be written
                params, _ = evaluator.partial_params(node, host)
                file = writes(params)
                if file is None:
                    continue
                text = file.content
                if file.template:
                    context = {**evaluator.context(node, host), **file.names}
                    text = templates.render(file.template, _base(graph, node.scope), context)
                yield node.place(host), file.path, text


def _base(graph: Any, scope_id: str) -> str:
    scope = graph.scopes.get(scope_id)
    while scope is not None and not scope.base:
        scope = graph.scopes.get(scope.parent)
    return scope.base if scope is not None else ""

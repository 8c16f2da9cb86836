"""Writes small specs and compiles them."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Mapping
from typing import Any

from kubexm_exec.compile import Compilation, CompileOptions, compile_file
from kubexm_exec.compile.static import static_evaluator
from kubexm_exec.model.graph import ExecutionGraph

HEAD = "apiVersion: kubexm.io/v1\nkind: Pipeline\nmetadata: {name: site}\n"


class Spec:
    """A folder with a pipeline and whatever it uses."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.path = folder / "main.yaml"

    def write(self, text: str, **files: str) -> Spec:
        """The pipeline (without its head) and other files; ``__`` in a name is a dot, ``_S_`` a slash."""
        self.path.write_text(HEAD + textwrap.dedent(text), "utf-8")
        for name, content in files.items():
            self.file(name.replace("_S_", "/").replace("__", "."), content)
        return self

    def file(self, name: str, content: str) -> pathlib.Path:
        """Another file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content), "utf-8")
        return path

    def compile(self, **options: Any) -> Compilation:
        """What compiling gives."""
        return compile_file(self.path, CompileOptions(**options))

    def graph(self, **options: Any) -> ExecutionGraph:
        """The graph of a spec that is right."""
        result = self.compile(**options)
        assert result.graph is not None, [str(finding) for finding in result.diagnostics]
        return result.graph

    def codes(self, **options: Any) -> list[str]:
        """The codes of all findings, by place."""
        return [finding.code for finding in self.compile(**options).diagnostics.sorted()]

    def params(self, node: str, host: str | None = None, **options: Any) -> Mapping[str, Any]:
        """What a node's parameters are on a host (the first one by default), as far as they are known before a run."""
        result = self.compile(**options)
        assert result.state is not None
        assert result.graph is not None, [str(finding) for finding in result.diagnostics]
        found = result.graph.nodes[node]
        evaluator = static_evaluator(result.state, result.graph.nodes)
        return evaluator.params(found, host or found.hosts[0])

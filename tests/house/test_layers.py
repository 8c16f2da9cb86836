"""The layers: kubexm_spec <- kubexm_exec <- kubexm_steps, and built-in steps are found through entry points only."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Lowest first: a package may import itself and those before it.
LAYERS = ("kubexm_spec", "kubexm_exec", "kubexm_steps")
# pydantic_core is where pydantic keeps the public half of its own error types.
SPEC_LIBRARIES = {"msgspec", "pydantic", "pydantic_core", "re2", "ruamel"}
# Everything else that is ours: it may use the layers, but built-in steps only as a third party's.
OUTSIDE = ("tools", "benchmarks")


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of every absolute import, also those inside functions and by importlib."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module


def violations(package: str, tree: ast.Module) -> list[str]:
    """Say for each import of a module in `package` that the layers forbid where it is and why."""
    found = []
    for line, module in imports(tree):
        top = module.partition(".")[0]
        if top == package:
            continue
        if top == "kubexm_steps":
            found.append(f"{line}: imports {module}; built-in steps are found through entry points only")
        elif top in LAYERS and package in LAYERS and LAYERS.index(top) > LAYERS.index(package):
            found.append(f"{line}: imports {module}, a layer above {package}")
        elif package == "kubexm_spec" and top not in SPEC_LIBRARIES | sys.stdlib_module_names:
            found.append(f"{line}: imports {module}; kubexm_spec takes only {sorted(SPEC_LIBRARIES)} and the stdlib")
    return found


@pytest.mark.parametrize("package", [*LAYERS, *OUTSIDE])
def test_package_imports_only_what_its_layer_may(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{violation}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for violation in violations(package, ast.parse(path.read_bytes(), str(path)))
    ]
    assert not found, "\n".join(found)


def test_every_layer_has_modules_to_check() -> None:
    assert all(list((ROOT / package).rglob("*.py")) for package in LAYERS)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("kubexm_spec", "import kubexm_exec.step"),
        ("kubexm_spec", "from kubexm_exec import step"),
        ("kubexm_spec", "import jinja2"),
        ("kubexm_spec", "def late():\n    from networkx import DiGraph"),
        ("kubexm_exec", "from kubexm_steps.file import FileStep"),
        ("kubexm_exec", "if TYPE_CHECKING:\n    import kubexm_steps"),
        ("kubexm_exec", "importlib.import_module('kubexm_steps.file')"),
        ("kubexm_exec", "__import__('kubexm_steps')"),
        ("benchmarks", "import os, kubexm_steps.command"),
    ],
)
def test_import_against_the_layers_is_found(package: str, source: str) -> None:
    assert violations(package, ast.parse(source))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        (
            "kubexm_spec",
            "import json, pydantic\nfrom ruamel.yaml import YAML\nfrom kubexm_spec.yaml.source import Place",
        ),
        ("kubexm_exec", "import networkx\nfrom kubexm_spec.documents import bundle"),
        ("kubexm_steps", "from kubexm_exec.step import Step\nimport kubexm_spec.duration, kubexm_steps.file"),
        ("kubexm_exec", "'kubexm_steps is only named here'"),
        ("tools", "from kubexm_exec import registry"),
    ],
)
def test_import_along_the_layers_is_allowed(package: str, source: str) -> None:
    assert not violations(package, ast.parse(source))

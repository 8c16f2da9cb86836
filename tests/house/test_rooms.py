"""The rooms: which part of the program may know which, also by imports in functions and for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import networkx
import pytest

Imports: TypeAlias = "networkx.DiGraph[str]"

ROOT = Path(__file__).resolve().parents[2]

EXEC = (
    ("model",),
    ("control", "safepaths"),
    ("http", "ownership", "plugins"),
    ("values",),
    ("secrets",),
    ("connectors",),
    ("runner",),
    ("resources",),
    ("step",),
    ("compile", "scheduler"),
    ("engine",),
    ("executors", "journal", "testing"),
    ("service",),
    ("cli",),
)
"""Lowest first: a room may import those below it, never one beside it."""
SPEC = (
    ("diagnostics", "duration", "hostnames", "imagenames", "paths", "regex", "semver", "shipped", "size"),
    ("ranges",),
    ("yaml",),
    ("models",),
    ("inventories",),
    ("documents",),
    ("clusters", "excerpt", "schema"),
)
VIEWS = {"console", "draw", "report"}
"""They know the model and one another; only the command line knows them."""
LOGS = "logs"
"""Whoever is above the model may log; how a line looks is a matter of the console."""


def modules() -> dict[str, Path]:
    """Every module of the product by its name."""
    found = {}
    for package in ("kubexm_spec", "kubexm_exec", "kubexm_steps"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The modules of ours that a module imports, wherever in its text that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module


@pytest.fixture(scope="module")
def imports() -> Imports:
    """The graph of who imports whom."""
    known = modules()
    graph: Imports = networkx.DiGraph()
    graph.add_nodes_from(known)
    for name, path in known.items():
        tree = ast.parse(path.read_bytes(), str(path))
        graph.add_edges_from((name, other) for other in imported(tree, set(known)) if other != name)
    return graph


def room(module: str) -> str:
    """The part of its package that a module is in; the package itself is in none."""
    return module.split(".")[1] if "." in module else ""


def inside(imports: Imports, package: str) -> Iterator[tuple[str, str]]:
    """The imports between two rooms of a package."""
    for one, other in imports.edges:
        mine = one.startswith(f"{package}.") and other.startswith(f"{package}.")
        if mine and room(one) != room(other):
            yield one, other


def test_no_module_imports_another_in_a_circle(imports: Imports) -> None:
    knots = [sorted(part) for part in networkx.strongly_connected_components(imports) if len(part) > 1]
    assert not knots


def test_every_room_has_a_place_in_the_order(imports: Imports) -> None:
    placed = {name for level in EXEC for name in level} | VIEWS | {LOGS}
    assert {room(name) for name in imports if name.startswith("kubexm_exec.")} == placed
    assert {room(name) for name in imports if name.startswith("kubexm_spec.")} == {
        name for level in SPEC for name in level
    }


def test_rooms_of_the_engine_import_only_what_is_below_them(imports: Imports) -> None:
    height = {name: number for number, level in enumerate(EXEC) for name in level}
    wrong = []
    for one, other in inside(imports, "kubexm_exec"):
        mine, theirs = room(one), room(other)
        if mine in VIEWS or mine == LOGS:
            allowed = theirs in VIEWS | {"model"}
        elif theirs in VIEWS:
            allowed = mine == "cli"
        elif theirs == LOGS:
            allowed = height[mine] > height["model"]
        elif mine == "scheduler":
            allowed = theirs == "model"
        else:
            allowed = height[mine] > height[theirs]
        if not allowed:
            wrong.append(f"{one} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_commands_know_the_journal_and_the_engine_by_the_service_alone(imports: Imports) -> None:
    beyond = {"journal", "engine", "executors"}
    wrong = [
        (one, other) for one, other in inside(imports, "kubexm_exec") if room(one) == "cli" and room(other) in beyond
    ]
    assert not wrong


def test_rooms_of_documents_import_only_what_is_below_them(imports: Imports) -> None:
    height = {name: number for number, level in enumerate(SPEC) for name in level}
    wrong = [
        f"{one} imports {other}"
        for one, other in inside(imports, "kubexm_spec")
        if height[room(one)] <= height[room(other)]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_knows_click_streams_and_the_end_of_the_process() -> None:
    wrong = []
    for name, path in modules().items():
        if name.startswith("kubexm_exec.cli"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            match node:
                case ast.Name(id="SystemExit") if name != "kubexm_exec.plugins":  # which others catch by RAISES
                    wrong.append(f"{name}:{node.lineno}")
                case (
                    ast.Attribute(value=ast.Name(id="os" | "contextlib"), attr="chdir")
                    | ast.Attribute(value=ast.Name(id="sys"), attr="stdin" | "stdout" | "stderr")
                ):
                    wrong.append(f"{name}:{node.lineno}")
                case ast.Attribute(attr="getcwd" | "cwd" | "environ" | "signal") if "kubexm_exec.service" in name:
                    wrong.append(f"{name}:{node.lineno}")
                case ast.Import(names=names) if any(alias.name.split(".")[0] == "click" for alias in names):
                    wrong.append(f"{name}:{node.lineno}")
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "click":
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_only_one_room_speaks_http() -> None:
    """A client of a service has its own way to speak to it, as botocore; hvac's is given a session of requests."""
    clients = {"http.client", "urllib.request", "urllib3", "requests", "httpx", "aiohttp"}
    wrong = []
    for name, path in modules().items():
        if name.startswith("kubexm_exec.http.") or name == "kubexm_exec.secrets.vault":
            continue
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            match node:
                case ast.Import(names=aliases):
                    found = {alias.name for alias in aliases}
                case ast.ImportFrom(module=str(module), level=0, names=aliases):
                    found = {module, *(f"{module}.{alias.name}" for alias in aliases)}
                case _:
                    continue
            wrong += [f"{name} imports {each}" for each in found if each in clients or each.split(".")[0] in clients]
    assert not wrong, "\n".join(wrong)


def test_step_types_know_of_the_engine_only_what_every_author_gets(imports: Imports) -> None:
    wrong = [
        f"{one} imports {other}"
        for one, other in imports.edges
        if one.startswith("kubexm_steps")
        and not f"{other}.".startswith(("kubexm_steps.", "kubexm_exec.step.", "kubexm_spec."))
    ]
    assert not wrong, "\n".join(wrong)

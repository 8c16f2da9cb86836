"""What the pages claim about exit codes, environment variables, names, filters and step types is so in the code."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator

import pytest

from kubexm_exec import step
from kubexm_exec.cli import codes
from kubexm_exec.executors import debug
from kubexm_exec.plugins import executor_registry, step_registry
from kubexm_exec.runner.facts import FACT_NAMES
from kubexm_exec.values.evaluate import ROOTS
from kubexm_exec.values.filters import FILTERS
from tests.docs.book import ROOT

PACKAGES = ("kubexm_spec", "kubexm_exec", "kubexm_steps")


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def variables(tree: ast.AST) -> Iterator[str]:
    """The environment variables that code reads by name, written there or in a constant of the same module."""
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Attribute(attr="get", value=owner), args=[first, *_])
                | ast.Subscript(value=owner, slice=first)
            ) if ast.unparse(owner).endswith("environ"):
                pass
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[first, *_]):
                pass
            case ast.Call(args=[owner, first]) if ast.unparse(owner).endswith("environ"):
                pass
            case _:
                continue
        if isinstance(first, ast.Constant):
            yield str(first.value)
        elif isinstance(first, ast.Name) and first.id in constants:
            yield constants[first.id]


def test_every_exit_code_is_documented() -> None:
    numbers = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)}
    rows = re.findall(r"^\| (\d+) \|", text_of("docs/exit-codes.md"), re.MULTILINE)
    assert {int(row) for row in rows} == numbers
    assert all(str(number) in text_of("README.md").partition("Exit codes:")[2] for number in numbers)


def test_every_environment_variable_that_the_code_reads_is_documented() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", text_of("docs/exit-codes.md"), re.MULTILINE))
    read = {
        name
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search("environ|getenv", source := path.read_text("utf-8"))
        for name in variables(ast.parse(source))
    }
    assert {"KUBEXM_TEMPLATES", "NO_COLOR"} <= read
    assert read <= documented


def test_every_top_level_name_of_expressions_is_documented() -> None:
    names = text_of("docs/expressions.md").partition("## Names")[2].partition("## Filters")[0]
    assert not [name for name in (*ROOTS, "result") if not re.search(rf"`{name}\b", names)]
    assert not [name for name in FACT_NAMES if f"`{name}`" not in names]


def test_every_filter_of_our_own_is_documented() -> None:
    filters = text_of("docs/expressions.md").partition("## Filters")[2]
    assert not [name for name in FILTERS if not re.search(rf"`{name}\b", filters)]


@pytest.mark.parametrize("name", sorted(info.name for info in executor_registry().infos()))
def test_every_executor_is_documented(name: str) -> None:
    assert f"`{name}`" in text_of("docs/concepts.md").partition("## Executors")[2]


def test_number_of_step_types_in_the_readme_is_right() -> None:
    (number,) = re.findall(r"\[(\d+) step types\]", text_of("README.md"))
    assert int(number) == sum(info.distribution == "kubexm" for info in step_registry().infos())


def test_everything_that_a_step_may_use_is_documented() -> None:
    page = text_of("docs/writing-a-step.md")
    public = {name for name in vars(step.StepContext) if not name.startswith("_")}
    public |= set(typing.get_type_hints(step.StepContext, vars(step) | {"Runner": object}))
    table = page.partition("## What a step can use")[2]
    assert not sorted(name for name in public if not re.search(rf"`{name}\b|[`, ]{name}\(", table))


def test_every_page_is_linked_from_the_index() -> None:
    index = text_of("docs/index.md")
    others = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert not sorted(name for name in others if f"({name})" not in index)


def test_commands_of_the_debugger_in_the_tutorial_exist() -> None:
    table = text_of("docs/tutorial.md").partition("At a prompt")[2].partition("##")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    shown = {command.split()[0] for cell in cells for command in re.findall("`(.*?)`", cell)}
    assert shown
    assert shown <= set(debug.COMMANDS.values())


def test_test_folders_named_in_contributing_exist() -> None:
    named = set(re.findall(r"`tests/([a-z0-9]+)`", text_of("CONTRIBUTING.md")))
    there = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert there <= named

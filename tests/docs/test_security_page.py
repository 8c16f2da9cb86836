"""Every claim of the security page names the tests that prove it, and they are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.book import ROOT

PAGE = ROOT / "docs" / "security.md"
_HEAD = ["Claim", "How", "Test"]
_NAMED = re.compile(r"`([^`]+)`")


def sections() -> dict[str, list[list[str]]]:
    """The cells of every row of every table, by the heading above."""
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
            found[title] = []
        elif line.startswith("|") and not line.startswith("|--"):
            found[title].append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def claims() -> Iterator[tuple[str, list[str]]]:
    """Every claim, with the cells of its row."""
    for title, rows in sections().items():
        if title != "Security":
            yield from ((row[0], row) for row in rows[1:])


@cache
def named_in(path: Path) -> frozenset[str]:
    """The tests of a file as they are named on a command line; those that are always skipped are none."""
    body = ast.parse(path.read_text("utf-8")).body
    inside = [(f"{each.name}::", item) for each in body if isinstance(each, ast.ClassDef) for item in each.body]
    return frozenset(
        f"{prefix}{item.name}"
        for prefix, item in [*(("", each) for each in body), *inside]
        if isinstance(item, ast.FunctionDef)
        and item.name.startswith("test_")
        and not any(re.match(r"pytest\.mark\.(skip|xfail)\b", ast.unparse(mark)) for mark in item.decorator_list)
    )


def is_run(path: Path, name: str) -> bool:
    """Whether pytest runs what is in a file: one of tests, or a contract that one beside it is made from."""
    return path.name.startswith("test_") or any(
        f"({name.partition('::')[0]})" in each.read_text("utf-8") for each in path.parent.glob("test_*.py")
    )


def test_every_party_has_its_section_and_every_table_its_three_columns() -> None:
    found = sections()
    parties = [re.findall(r"\(#(.*?)\)", row[-1])[0] for row in found.pop("Security")[1:]]
    tables = {title: rows for title, rows in found.items() if rows}
    assert parties == [re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-") for title in tables]
    assert {title: rows[0] for title, rows in tables.items()} == dict.fromkeys(tables, _HEAD)
    assert {"What is not protected", "Reporting a vulnerability"} <= set(found) - set(tables)


@pytest.mark.parametrize("row", [pytest.param(row, id=claim[:60]) for claim, row in claims()])
def test_every_claim_names_tests_that_are_there(row: list[str]) -> None:
    assert len(row) == len(_HEAD), row
    assert all(row)
    named = _NAMED.findall(row[-1])
    assert named, "no test"
    assert row[-1] == ", ".join(f"`{name}`" for name in named)
    for reference in named:
        file, _, name = reference.partition("::")
        path = ROOT / file
        assert path.is_file(), reference
        if "/cases/" in file:
            assert not name
            continue
        assert name in named_in(path), reference
        assert is_run(path, name), reference

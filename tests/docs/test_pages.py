"""Every example of every page does what the page says. KUBEXM_WRITE_DOCS=1 writes what it did into the page."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kubexm_spec.yaml.load import load_documents
from tests.docs.book import GENERATED, ROOT, PageError, blocks, commands, pages, rewrite
from tests.docs.compare import matches
from tests.docs.world import World, running_environment
from tests.environments import borrowing_environment

WRITE = bool(os.environ.get("KUBEXM_WRITE_DOCS"))
FRESH = "<!-- environment: fresh -->"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def world_of(page: Path, folder: Path) -> World:
    if FRESH not in page.read_text("utf-8"):
        return World(running_environment())
    # `pip install` of the page's own project needs no network: what builds it is installed here.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return World(borrowing_environment(folder) / "bin", offline)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_example_of_a_page_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    changed: dict[int, str] = {}
    with world_of(page, tmp_path) as world:
        for block in blocks(page):
            wanted = world.do(block)
            if wanted is not None:
                assert WRITE, f"{block.where}: the page does not show what happens; it would be:\n\n{wanted}"
                changed[block.line] = wanted
    if changed:
        assert page.name not in GENERATED
        rewrite(page, changed)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{name_of(page)} links to {target}"
        if anchor and path.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            known = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in known, f"{name_of(page)} links to {target}, but there is no such heading"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_yaml_that_nobody_runs_can_be_read_all_the_same(page: Path) -> None:
    for block in blocks(page):
        if block.reason and block.language == "yaml":
            load_documents(block.text, block.where)


def test_a_block_that_nobody_runs_needs_a_reason(tmp_path: Path) -> None:
    page = ROOT / "docs" / "imaginary.md"
    written = tmp_path / "page.md"
    written.write_text("```yaml\na: 1\n```\n\n<!-- not run: it is a picture -->\n\n```text\n+--+\n```\n")
    first, second = blocks(written)
    first.page = second.page = page
    with World(running_environment()) as world:
        with pytest.raises(PageError, match="nobody runs this block"):
            world.do(first)
        assert world.do(second) is None


def test_a_command_whose_output_is_not_that_of_the_page_is_found(tmp_path: Path) -> None:
    written = tmp_path / "page.md"
    written.write_text("```console\n$ echo one\none\n$ echo two\nthree\n```\n")
    (block,) = blocks(written)
    with World(running_environment()) as world:
        assert world.do(block) == "$ echo one\none\n$ echo two\ntwo\n"
    assert [command.text for command in commands(block)] == ["echo one", "echo two"]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["12:00:00  ok  a/b/c  (1.2s)"], ["09:15:59  ok  a/b/c  (840ms)"], True),
        (["12:00:00  ok  a", "12:00:01  ok  b"], ["09:00:00  ok  b", "09:00:00  ok  a"], True),
        (["first", "second"], ["second", "first"], False),
        (["first", "...", "last"], ["first", "x", "y", "last"], True),
        (["first", "...", "last"], ["first", "x", "y"], False),
        (["first"], ["first", "more"], False),
        (["12:00:00  b", "...", "end"], ["12:00:00  a", "12:00:00  b", "table", "end"], True),
        (["12:00:00  b", "...", "12:00:00  d"], ["12:00:00  d", "12:00:00  a", "12:00:00  b"], True),
        (["12:00:00  b", "...", "end"], ["12:00:00  a", "12:00:00  c", "end"], False),
        (["12:00:00  b"], ["12:00:00  b", "12:00:00  c"], False),
        (["12:00:00  skipped  a"], ["12:00:00  skipped  a  (1ms)"], True),
        (["a    b"], ["a  b"], True),
        (["a b"], ["ab"], False),
        (["run 01JC8Z5M1QK3W6T7YB2N4R9XHV"], ["run 01KA8Z5M1QK3W6T7YB2N4R9XHV"], True),
    ],
)
def test_only_what_differs_each_time_is_left_out_of_the_comparison(
    shown: list[str], printed: list[str], same: bool
) -> None:
    assert matches(shown, printed) is same

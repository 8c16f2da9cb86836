"""Every limit of expressions: what is just within it is done, and what is beyond it is refused in words that say so."""

from __future__ import annotations

import pathlib
import time

import pytest

from kubexm_exec.values import limits as exprlimits
from kubexm_exec.values.expressions import ExpressionError, Expressions
from kubexm_exec.values.limits import (
    DEEPEST,
    LONGEST,
    LONGEST_ATTRIBUTE,
    MOST_BITS,
    MOST_BYTES,
    MOST_DECIMALS,
    MOST_ITEMS,
    MOST_SECONDS,
    MOST_STEPS,
    MOST_WORK,
    SLOW_TEXT,
    Budget,
)
from kubexm_exec.values.names import BUDGET
from kubexm_exec.values.templates import TemplateFinder, Templates
from kubexm_spec import regex

EXPRESSIONS = Expressions()
NESTED = "{%% set n = namespace(x=[]) %%}{%% for i in range(%d) %%}{%% set n.x = [n.x] %%}{%% endfor %%}{{ n.x ~ '' }}"
KEEP = (
    "{%% set n = namespace(x=[]) %%}{%% for i in range(%d) %%}{%% set n.x = n.x + ['a' * 1000000 ~ i] %%}{%% endfor %%}"
)

LIMITS = [
    ("{{ ('a' * %d) | length }}", LONGEST, LONGEST + 1, "a text has at most 16,777,216 characters"),
    ("{{ ('a' | center(%d)) | length }}", LONGEST, LONGEST + 1, "a text has at most"),
    ("{{ ([0] * %d) | length }}", MOST_ITEMS, MOST_ITEMS + 1, "a list or mapping has at most 1,048,576 items"),
    (NESTED, DEEPEST - 2, DEEPEST + 1, "a value has at most 200 nested lists and mappings"),
    (KEEP, MOST_BYTES * 6 // 7 // 1_000_000, 200, "all values of an expression together have at most"),
    ("{%% for i in [0] * %d %%}{%% endfor %%}", MOST_ITEMS, MOST_ITEMS + 1, "at most"),
    ("{%% for i in [0] * 1000 %%}{%% for j in [0] * %d %%}{%% endfor %%}{%% endfor %%}",
     MOST_WORK // 1000 - 1, MOST_WORK // 1000, "at most 2,000,000 iterations"),
    ("{{ (2 ** %d) > 0 }}", MOST_BITS // 2, MOST_BITS // 2 + 1, "an integer has at most 15,000 bits"),
    ("{{ ('a' * %d) | title | length }}", SLOW_TEXT, SLOW_TEXT + 1, "this takes at most 1,048,576 characters"),
    ("{{ ('a' * %d).strip('b' * 1024) | length }}", MOST_STEPS >> 10, (MOST_STEPS >> 10) + 1, "too long"),
    ("{{ 1.5 | round(%d) }}", MOST_DECIMALS, MOST_DECIMALS + 1, "a rounded number has at most 300 decimals"),
    ("{{ [{}] | map(attribute='a' * %d) | list | length }}", LONGEST_ATTRIBUTE, LONGEST_ATTRIBUTE + 1,
     "the name of an attribute has at most 500 characters"),
    ("{{ 'a' | regex_search('a' * %d) }}", regex.LONGEST_PATTERN, regex.LONGEST_PATTERN + 1, "10,000 characters"),
    ("{{ ('b' * 10000000) | regex_search('a{%d}') }}", 20, 1000, "is too large for a text of 10,000,000 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "within", "beyond", "words"), LIMITS)
def test_what_is_within_a_limit_is_done_and_what_is_beyond_is_refused(
    text: str, within: int, beyond: int, words: str
) -> None:
    EXPRESSIONS.text(text % within)({})
    with pytest.raises(ExpressionError) as caught:
        EXPRESSIONS.text(text % beyond)({})
    assert words in caught.value.message


def test_every_limit_has_a_test_and_stands_in_the_documentation() -> None:
    page = pathlib.Path(__file__).parents[2].joinpath("docs/expressions.md").read_text()
    source = pathlib.Path(__file__).read_text()
    limits = [name for name in vars(exprlimits) if name.startswith(("LONGEST", "MOST", "DEEPEST", "SLOW"))]
    assert len(limits) == 11
    for name in limits:
        assert source.count(name) >= 2
        value = getattr(exprlimits, name)
        shown = [f"{value:,}", f"{value:g}", f"{value >> 20} MiB" if isinstance(value, int) else ""]
        assert any(one and one in page for one in shown), name


def test_an_evaluation_that_works_too_long_ends() -> None:
    slow = "{% for i in range(100000) %}{% if 'b' in big %}{% endif %}{% if big[1:] == big %}{% endif %}{% endfor %}"
    began = time.thread_time()
    with pytest.raises(ExpressionError, match=f"an expression has {MOST_SECONDS:g} seconds"):
        EXPRESSIONS.text(slow)({"big": "a" * 10_000_000})
    assert time.thread_time() - began < 5


def test_what_is_no_longer_needed_does_not_count() -> None:
    text = (
        "{% set n = namespace(x='') %}{% for i in range(20000) %}{% set n.x = n.x ~ 'a line of a file\n' %}{% endfor %}"
    )
    assert len(EXPRESSIONS.text(text + "{{ n.x }}")({})) == 20_000 * 17


def test_the_texts_of_one_step_share_a_budget_and_the_next_one_has_its_own() -> None:
    names = {BUDGET: Budget()}
    many = {f"k{number}": f"{{{{ 'a' * 10000000 ~ {number} }}}}" for number in range(30)}
    with pytest.raises(ExpressionError, match="all values of an expression together"):
        EXPRESSIONS.render(many, names)
    assert len(EXPRESSIONS.render({"a": many["k1"]}, names)["a"]) == 10_000_001


@pytest.mark.parametrize(
    "files",
    [
        {"a.j2": "{% include 'a.j2' %}"},
        {"a.j2": "{% extends 'a.j2' %}"},
        {"a.j2": "{% import 'a.j2' as a %}"},
        {"a.j2": "{% for i in range(99999) %}{% include 'b.j2' %}{% endfor %}", "b.j2": "text " * 1000},
        {"a.j2": "{% for i in range(99999) %}{% block b %}{% endblock %}{% endfor %}",
         "c.j2": "{% extends 'a.j2' %}{% block b %}" + "text " * 1000 + "{% endblock %}"},
        {"a.j2": "{% block b %}{{ self.b() }}{{ self.b() }}{% endblock %}"},
        {"a.j2": "line\n{{ ('a' * 1000) | center(10 ** 9) }}"},
    ],
)  # fmt: skip
def test_templates_that_include_or_extend_without_end_are_refused(
    files: dict[str, str], tmp_path: pathlib.Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    templates = Templates(EXPRESSIONS, lambda base: TemplateFinder([tmp_path]))
    with pytest.raises(ExpressionError) as caught:
        templates.render("c.j2" if "c.j2" in files else "a.j2", str(tmp_path), {})
    assert caught.value.message.startswith("template ")

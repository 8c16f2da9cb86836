"""Texts with nothing but names between their braces: as Jinja2 has them, without loading it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kubexm_exec.values.expressions import Compiled, ExpressionError, Expressions
from kubexm_exec.values.names import plain_name, plain_parts

CONTEXT: dict[str, Any] = {
    "a": {"b": 1, "c": {"d": [1, "x"], "items": "own", "_u": 2}, "e f": "space"},
    "t": "text {{ a }}",
    "n": None,
    "l": [1, {"k": "v"}],
    "loop": 7,
    "true": 8,
}
PIECES = st.sampled_from(
    ["{{ a.b }}", "{{a}}", "{{ t }}", "{{ n }}", "{{ l }}", "{{ a['e f'] }}", '{{ a["b"] }}', "{{ a.c.d }}",
     "{{ a.c.items }}", "{{ a.items }}", "{{ a.c._u }}", "{{ a.zz }}", "{{ zz }}", "{{ loop }}", "{{ true }}",
     "{{ range }}", "{{ not }}", "{{- a.b }}", "{{ a.b -}}", "{{ a . b }}", "{{ a.b + 1 }}", "{{ l[0] }}", "{{ 'x' }}",
     "{{ }}", "{", "}", "{{", "}}", "{%", "%}", "{#", "#}", " ", "\n", "\r\n", "x", "{{ a.b }", "{{\u00a0a.b }}",
     "{{ \u00e4 }}", "a.b", "'", '"', "{{ a['b }}"]
)  # fmt: skip


def value(read: Callable[[], Compiled]) -> tuple[object, ...]:
    """What a text is in the context, or what is wrong."""
    try:
        compiled = read()
    except ExpressionError as error:
        return (str(error),)
    try:
        return compiled(CONTEXT), compiled.native, compiled.references
    except ExpressionError as error:
        return str(error), compiled.native, compiled.references


@given(st.lists(PIECES, max_size=6).map("".join))
def test_text_is_the_same_whether_jinja2_reads_it_or_not(text: str) -> None:
    expressions = Expressions()
    by_jinja = value(lambda: Compiled(text, *expressions.jinja.text(text)))
    assert value(lambda: expressions.text(text)) == by_jinja


@given(st.lists(PIECES, max_size=3).map(lambda parts: "".join(parts).replace("{", "").replace("}", "")))
def test_bare_expression_is_the_same_whether_jinja2_reads_it_or_not(text: str) -> None:
    assume(text.strip())
    expressions = Expressions()
    by_jinja = value(lambda: Compiled(text, *expressions.jinja.expression(text), True))
    assert value(lambda: expressions.expression(text)) == by_jinja


@pytest.mark.parametrize("text", ["{{ a.b }}", "x {{ a['b'] }} y", "{{a}}", "no braces"])
def test_names_are_read_as_such(text: str) -> None:
    assert plain_parts(text) is not None


@pytest.mark.parametrize("text", ["{{{ a }}", "{{ a | lower }}", "{{ true }}", "{{ loop }}", "{% if a %}x", "{#x#}"])
def test_anything_else_is_left_to_jinja2(text: str) -> None:
    assert plain_parts(text) is None
    assert plain_name(text) is None


def test_run_of_names_alone_does_not_load_jinja2() -> None:
    program = (
        "import sys\n"
        "from kubexm_exec.values.expressions import Expressions\n"
        "assert Expressions().render({'a': ['{{ b.c }} d']}, {'b': {'c': 1}}) == {'a': ['1 d']}\n"
        "assert Expressions().condition('b', {'b': True})\n"
        "sys.exit('jinja2' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

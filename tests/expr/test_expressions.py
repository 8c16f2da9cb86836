"""Expressions: types, names, conditions, and what a text refers to."""

from __future__ import annotations

from typing import Any

import pytest

from kubexm_exec.values.expressions import ExpressionError, Expressions, Namespace, UnknownValueError, is_dynamic

EXPRESSIONS = Expressions()
CONTEXT: dict[str, Any] = {
    "vars": {"size": 3, "list": [1, 2], "map": {"a": {"b": True}}, "text": "no", "none": None, "ratio": 1.5},
    "host": {"name": "node1"},
}


def text(source: str) -> Any:
    return EXPRESSIONS.text(source)(CONTEXT)


def error(source: str, *, bare: bool = False) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        (EXPRESSIONS.expression if bare else EXPRESSIONS.text)(source)(CONTEXT)
    return caught.value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ vars.size }}", 3),
        ("{{vars.size}}", 3),
        ("{{- vars.size -}}", 3),
        ("{{ vars.list }}", [1, 2]),
        ("{{ vars.map }}", {"a": {"b": True}}),
        ("{{ vars['map']['a'].b }}", True),
        ("{{ vars.none }}", None),
        ("{{ vars.ratio }}", 1.5),
        ("{{ vars.size == 3 }}", True),
        ("{{ vars.size }} x", "3 x"),
        (" {{ vars.size }}", " 3"),
        ("{{ vars.size }}{{ vars.size }}", "33"),
        ("{% if vars.size > 2 %}big{% endif %}", "big"),
        ("line\n{{ vars.size }}\n", "line\n3\n"),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ vars.list | map('string') }}", ["1", "2"]),
        ("{{ vars.map.items() }}", [["a", {"b": True}]]),
        ("{{ 'a<b' | escape }}", "a&lt;b"),
        ("{{ '{{ vars.size }}' }}", "{{ vars.size }}"),
        ("{{ ['{{'] }}", ["{{"]),
        ("{{ vars.size }}{# why #}", "3"),
        ("no expression", "no expression"),
    ],
)
def test_a_text_that_is_one_expression_keeps_the_type_of_its_value(source: str, value: Any) -> None:
    found = EXPRESSIONS.render(source, CONTEXT)
    assert found == value
    assert type(found) is type(value)


def test_data_is_rendered_through_and_through() -> None:
    data = {"a": ["{{ vars.size }}", {"{{ host.name }}": "x{{ vars.size }}"}], "b": 5, "c": None}
    assert EXPRESSIONS.render(data, CONTEXT) == {"a": [3, {"node1": "x3"}], "b": 5, "c": None}
    assert is_dynamic(data)
    assert not is_dynamic({"a": ["{ x }", 1]})


def test_values_are_not_rendered_again() -> None:
    context = {"params": {"evil": "{{ 7 * 7 }}"}}
    assert EXPRESSIONS.text("{{ params.evil }}")(context) == "{{ 7 * 7 }}"
    assert EXPRESSIONS.text("<{{ params.evil }}>")(context) == "<{{ 7 * 7 }}>"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ nope }}", "there is no name 'nope'"),
        ("{{ vars.sze }}", "there is no 'sze' in it; did you mean \"size\"?"),
        ("{{ vars.map.x.y }}", "there is no 'x' in it; it has a"),
        ("{{ vars.list[7] }}", "there is no item 7 in it; it has 2, from 0"),
        ("x {{ vars.sze }}", "there is no 'sze' in it; did you mean \"size\"?"),
        ("{{ [vars.sze] }}", "there is no 'sze' in it; did you mean \"size\"?"),
        ("{{ {'a': vars.sze} }}", "there is no 'sze' in it; did you mean \"size\"?"),
        ("{{ vars.list | map(attribute='x') | list }}", "there is no 'x' in it; it is a number"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ vars.text + 1 }}", "`+` does not work with a text and a number"),
        ("{{ vars.text.x }}", "there is no 'x' in it; it is a text"),
        ("{{ 1 + vars.text }}", "`+` does not work with a number and a text"),
        ("{{ vars.text < 1 }}", "`<` does not work with a text and a number"),
        ("{{ range }}", "the value of the expression is a function, not data; is a ( ) or a name missing?"),
    ],
)
def test_what_is_missing_or_wrong_is_an_error_that_says_what(source: str, message: str) -> None:
    assert error(source).message == message


@pytest.mark.parametrize(
    ("source", "message", "fragment"),
    [
        ("{{ vars.size | uper }}", "there is no filter 'uper'; did you mean \"upper\"?", "uper"),
        ("{{ vars.size | uper }} x", "there is no filter 'uper'; did you mean \"upper\"?", "uper"),
        ("{{ vars.size is oddd }}", "there is no test 'oddd'; did you mean \"odd\"?", "oddd"),
        ("a\n{{ 1 + }}\nb", "the expression is invalid: it ends where a value should be", "{{ 1 + }}"),
        ("{{ }}", "the expression is invalid: it is empty", "{{ }}"),
        ("{{ vars.size", "the expression is invalid: it is never closed with }}", "{{ vars.size"),
        ("{% if vars.size %}", "the expression is invalid: {% if %} is never closed", "{% if vars.size %}"),
        ("{{ a b }}", "the expression is invalid: unexpected 'b'", "{{ a b }}"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "the expression is invalid: it is nested too deeply", ""),
        ("{{ " + "9" * 5000 + " }}", "the expression is invalid: a number in it has too many digits", ""),
        ("{% include 'x' %}", "only a template file can include another one; use a step of type template", ""),
        ("{% for x in y recursive %}{% endfor %}", "the expression is invalid: recursive loops are not allowed",
         "{% for x in y recursive %}{% endfor %}"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why_and_where(source: str, message: str, fragment: str) -> None:
    found = error(source)
    assert (found.message, found.fragment) == (message, fragment)


def test_deeply_nested_blocks_are_an_error_and_not_the_end() -> None:
    assert "is invalid" in error("{% for a in [1] %}" * 40 + "{% endfor %}" * 40).message


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("vars.size == 3", True),
        ("{{ vars.size == 3 }}", True),
        ("vars.size", True),
        ("vars.size - 3", False),
        ("vars.none", False),
        ("[]", False),
        ("vars.list", True),
        ("{}", False),
        ("'true'", True),
        ("' False '", False),
        ("host.name in ['node1']", True),
        ("vars.nope is defined", False),
        ("vars.nope | default(false)", False),
        ("not vars.size", False),
    ],
)
def test_a_condition_gives_true_or_false(source: str, value: bool) -> None:
    assert EXPRESSIONS.condition(source, CONTEXT) is value


def test_a_condition_may_be_written_as_true_or_false() -> None:
    assert EXPRESSIONS.condition(True, CONTEXT) is True
    assert EXPRESSIONS.condition(False, CONTEXT) is False


@pytest.mark.parametrize("source", ["vars.text", "'no'", "'0'", "''", "'yes'", "host.name"])
def test_a_condition_that_gives_any_other_text_is_an_error_and_not_silently_true(source: str) -> None:
    with pytest.raises(ExpressionError, match="a condition must be true or false, but this is the text"):
        EXPRESSIONS.condition(source, CONTEXT)


@pytest.mark.parametrize("source", ["", "  ", "vars.size ==", "a b", "x }} {{ y"])
def test_a_condition_that_cannot_be_read_is_an_error(source: str) -> None:
    assert error(source, bare=True).message


def references(source: str, *, bare: bool = False) -> dict[str, bool]:
    compiled = (EXPRESSIONS.expression if bare else EXPRESSIONS.text)(source)
    return {str(reference): reference.optional for reference in compiled.references}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{{ vars.a }}", {"vars.a": False}),
        ("{{ vars.a.b['c-d'].e }}", {"vars.a.b['c-d'].e": False}),
        ('{{ steps["x/y"].outputs.z }}', {"steps['x/y'].outputs.z": False}),
        ("{{ hosts[host.name].address }}", {"hosts": False, "host.name": False}),
        ("{{ vars.a | default(vars.b) }}", {"vars.a": True, "vars.b": False}),
        ("{{ vars.a | d('x') | upper }}", {"vars.a": True}),
        ("{{ vars.a is defined }}", {"vars.a": True}),
        ("{% if vars.a is defined %}{{ vars.a.b }}{% endif %}{{ vars.c }}",
         {"vars.a": True, "vars.a.b": True, "vars.c": False}),
        ("{% for x in vars.list %}{{ x }}{{ loop.index }}{% endfor %}", {"vars.list": False}),
        ("{% set y = vars.a %}{{ y }}", {"vars.a": False}),
        ("{% macro m(p) %}{{ p }}{{ vars.q }}{% endmacro %}{{ m(1) }}", {"vars.q": False}),
        ("{{ range(3) }}", {"range": False}),
        ("{{ vars }}", {"vars": False}),
        ("{{ 'vars.a' }}", {}),
        ("{# vars.a #}x", {}),
    ],
)  # fmt: skip
def test_the_names_that_a_text_refers_to(source: str, found: dict[str, bool]) -> None:
    assert references(source) == found


def test_a_bare_expression_has_references_too() -> None:
    assert references("vars.a == host.name", bare=True) == {"vars.a": False, "host.name": False}


def test_a_name_that_needs_itself_is_an_error_that_shows_the_circle() -> None:
    names: Namespace = Namespace("vars", {"a": 1, "b": 1}, lambda name: names["b" if name == "a" else "a"])
    with pytest.raises(ExpressionError, match=r"vars\.a refers to itself: a -> b -> a"):
        EXPRESSIONS.text("{{ vars.a }}")({"vars": names})


def test_a_value_that_is_known_later_stays_what_it_is_through_filters_and_loops() -> None:
    def later(name: str) -> Any:
        raise UnknownValueError(f"steps.{name}", "it has not run")

    context = {"steps": Namespace("steps", {"a": 1}, later), "vars": {"l": [1]}}
    for source in ("{{ steps.a }}", "x {{ steps.a | upper }}", "{% for i in vars.l %}{{ steps.a }}{% endfor %}"):
        with pytest.raises(UnknownValueError) as caught:
            EXPRESSIONS.text(source)(context)
        assert caught.value.name == "steps.a"


def test_params_and_vars_can_be_looped_over() -> None:
    context = {"vars": Namespace("vars", {"b": 1, "a": 2}, {"b": 1, "a": 2}.__getitem__)}
    assert EXPRESSIONS.text("{% for k, v in vars.items() %}{{ k }}={{ v }} {% endfor %}")(context) == "b=1 a=2 "
    assert EXPRESSIONS.text("{{ vars | dictsort }}")(context) == [["a", 2], ["b", 1]]
    assert EXPRESSIONS.text("{{ vars }}")(context) == {"b": 1, "a": 2}

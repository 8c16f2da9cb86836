"""Nothing but data can be reached from an expression, and none grows or works without end."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from kubexm_exec.values.expressions import ExpressionError, Expressions, Namespace
from kubexm_exec.values.limits import LONGEST
from kubexm_exec.values.templates import TemplateFinder, Templates

EXPRESSIONS = Expressions()


class Engine:
    """Something that holds what an expression must not reach."""

    def __init__(self) -> None:
        self.password = "hunter2"

    def secret(self, reference: str) -> str:
        return f"value of {reference}"


def context() -> dict[str, Any]:
    engine = Engine()
    return {
        "vars": Namespace("vars", {"a": 1, "l": 1, "t": 1}, {"a": 1, "l": [1, 2], "t": "text"}.__getitem__),
        "params": {"map": {"k": "v"}, "list": [1, 2]},
        "secret": engine.secret,
    }


def refused(source: str) -> str:
    names = context()
    with pytest.raises(ExpressionError) as caught:
        EXPRESSIONS.text(source)(names)
    assert "hunter2" not in caught.value.message
    return caught.value.message


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ '' | attr('__cla' ~ 'ss__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ dict.mro() }}",
    "{{ dict.__subclasses__() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ range.__globals__ }}",
    "{{ secret.__self__ }}",
    "{{ secret.__self__.password }}",
    "{{ secret.__func__.__globals__ }}",
    "{{ vars._names }}",
    "{{ vars._value }}",
    "{{ vars['_value'] }}",
    "{{ vars | attr('_value') }}",
    "{{ vars.missing('x') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__self__.password}'.format(secret) }}",
    "{{ '{a.__self__}'.format_map({'a': secret}) }}",
    "{{ '%s' | format(secret) | attr('__class__') }}",
    "{{ ('{0.__self__}' | string).format(secret) }}",
    "{{ ''.format.__self__ }}",
    "{{ (1).__add__(2) }}",
    "{{ ().__reduce_ex__(2) }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__ }}",
    "{% set x = cycler.__init__ %}{{ x }}",
    "{{ lipsum.__globals__ }}",
    "{{ joiner }}",
    "{{ secret }}",
    "{{ vars.l.append(1) }}",
    "{{ params.list.append(1) }}",
    "{{ params.map.update({'x': 1}) }}",
    "{{ params.map.clear() }}",
    "{{ params.map.pop('k') }}",
    "{% do params.list.append(1) %}",
    "{{ params.list.sort() }}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_what_is_no_data_cannot_be_reached_or_changed(source: str) -> None:
    refused(source)


def test_what_was_given_is_as_it_was_afterwards() -> None:
    names = context()
    for source in ESCAPES:
        with pytest.raises(ExpressionError):
            EXPRESSIONS.text(source)(names)
    assert names["params"] == {"map": {"k": "v"}, "list": [1, 2]}


def test_a_secret_can_be_asked_for() -> None:
    assert EXPRESSIONS.text("{{ secret('env:X') }}")(context()) == "value of env:X"


HUGE = [
    "{{ 'a' * 10**10 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [0] * 10**9 }}",
    "{{ (0,) * 10**9 }}",
    "{{ 10 ** 10000 }}",
    "{{ ('a' * 10**7) + ('a' * 10**7) }}",
    "{{ ([0] * 10**7) + ([0] * 10**7) }}",
    "{{ ('a' * 10**7) ~ ('a' * 10**7) }} x",
    "{{ 'a' | center(10**9) }}",
    "{{ 'a' | center(width=10**9) }}",
    "{{ 'a' | indent(10**9) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a'.rjust(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ '{:{w}}'.format(1, w=10**9) }}",
    "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
    "{{ 'aaa'.replace('', 'b' * 10**7) }}",
    "{{ ('a' * 10000) | replace('a', 'b' * 10000) }}",
    "{{ ('a' * 10**6).join(range(100) | list) }}",
    "{{ (['a'] * 10**5) | join('b' * 1000) }}",
    "{{ [1, 2] | batch(10**9, 0) | list }}",
    "{{ [1, 2] | slice(10**9) | list }}",
    "{{ range(10**9) }}",
    "{{ range(10**9) | list | length }}",
    "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
]


@pytest.mark.parametrize("source", HUGE)
def test_no_value_becomes_huge(source: str) -> None:
    message = refused(source)
    assert "too large" in message or "Range too big" in message


ENDLESS = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in [0] * 100000 %}{% for j in [0] * 100000 %}x{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for i in vars.l recursive %}{{ loop(vars.l) }}{% endfor %}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_no_loop_and_no_macro_goes_on_without_end(source: str) -> None:
    message = refused(source)
    assert any(words in message for words in ("without end", "maximum recursion depth", "not allowed"))


@pytest.mark.parametrize(
    ("source", "length"),
    [
        (f"{{{{ 'a' * {LONGEST} }}}}", LONGEST),
        ("{% for i in range(100000) %}abc{% endfor %}", 300_000),
        ("{{ 'a' | center(1000) }}", 1000),
        ("{{ '%-100s|' % 'a' }}", 101),
        ("{{ '{:>100}'.format('a') }}", 100),
        ("{{ 'a-b' | replace('-', '+') }}", 3),
        ("{{ range(1000) | join(',') }}", 3889),
        ("{{ 'a\nb' | indent(2) }}", 5),
    ],
)
def test_what_people_really_write_is_not_in_the_way(source: str, length: int) -> None:
    assert len(EXPRESSIONS.text(source)(context())) == length


def test_what_templates_include_is_on_the_same_account(tmp_path: pathlib.Path) -> None:
    (tmp_path / "outer.j2").write_text("{% for i in range(90000) %}{% include 'inner.j2' %}{% endfor %}")
    (tmp_path / "inner.j2").write_text("{% for i in range(90000) %}{% endfor %}")
    templates = Templates(EXPRESSIONS, lambda base: TemplateFinder([tmp_path]))
    with pytest.raises(ExpressionError, match="without end"):
        templates.render("outer.j2", str(tmp_path), context())

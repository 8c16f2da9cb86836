"""Whatever an expression tries, it ends in time and memory, with an error that names it."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.hostile import SECONDS, Maker, Outcome, evaluated

LISTED = [
    "{{ (['a' * 10000000] * 1000) | join }}",
    "{{ ('a' * 10000000).join(range(1000) | map('string')) }}",
    "{{ (range(100000) | map('string') | map('center', 999)) | join }}",
    "{{ [vars] * 1000 | join(attribute='a') }}",
    "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "{{ ('%s' * 1000) % (['a' * 10000000] * 1000) }}",
    "{{ ('%(a)s' * 100000) % {'a': 'a' * 1000000} }}",
    "{{ ('%(a)s' * 100000) | format(a='a' * 1000000) }}",
    "{{ '%1000000000d' % 1 }}{{ '%.1000000000f' | format(1.0) }}",
    "{{ ('{0}' * 1000).format('a' * 10000000) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ ('a\\n' * 100000) | indent(100000) }}",
    "{{ ('a\\n' * 100000) | indent('a' * 100000) }}",
    "{{ ('a ' * 100000) | wordwrap(1, wrapstring='a' * 100000) }}",
    "{{ ('a' * 1000000) | wordwrap(1) }}",
    "{{ ('a' * 10000).translate({97: 'a' * 1000000}) }}",
    "{{ 'a' | center(10 ** 10) }}{{ 'a'.rjust(10 ** 10) }}",
    "{{ 10 ** (10 ** 10) }}",
    "{% set n = namespace(x=10) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "{{ (('f' * 8000000) | int(base=16)) // (('f' * 4000000) | int(base=16)) }}",
    "{{ (1).to_bytes(10 ** 10, 'big') }}",
    "{{ ([['a'] * 4000] * 4000) | sum(start=[]) | length }}",
    "{{ ('a' * 300000) | groupby('b', 'c' * 3000000) | length }}",
    "{{ ('a' * 300000) | groupby('b', default='c' * 3000000) | length }}",
    "{{ (['a'] * 1000000) | batch(100000000, 0) | list }}",
    "{{ ('a' * 8000000).strip('b' * 8000000) }}{{ ('a' * 8000000).rfind('ab' ~ 'a' * 4000000) }}",
    "{{ ('a' * 10000000).encode() * 10000 }}",
    "{{ ('a' * 10000) | regex_replace('a', 'b' * 100000) }}",
    "{{ ('a' * 3000000) | regex_replace('a*b|a', '') }}",
    "{{ ('a' * 1000000 ~ 'b') | regex_search('(a+)+$') }}",
    "{{ ('ab' * 1000000) | regex_search('(a|b)*a(a|b){900}c') }}",
    "{{ vars.deep == vars.other }}",
    "{{ vars.deep | string | length }}",
    "{{ vars.deep | to_json | length }}",
    "{{ vars.deep }}",
    "{{ 40 | round(1, vars.tuple) }}",
    "{{ {vars.tuple: 1} | length }}",
    "{{ vars.tuple in {} }}",
    "{{ [vars.deep, vars.other] | sort | length }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = n.l + [('a' * 10000000)[i:]] %}{% endfor %}",
    "{% for i in range(100000) %}" + "text " * 10000 + "{% endfor %}",
]


def wrong(outcomes: list[Outcome]) -> list[Outcome]:
    """Those that took too much time or memory."""
    return [
        outcome
        for outcome in outcomes
        if outcome.seconds > SECONDS or outcome.error.startswith("died") or "MemoryError" in outcome.error
    ]


def test_each_way_to_take_all_memory_or_time_that_is_known_is_refused() -> None:
    outcomes = evaluated(LISTED)
    assert wrong(outcomes) == []
    fine = [outcome.text for outcome in outcomes if not outcome.error]
    assert fine == ["{{ ('a' * 1000000 ~ 'b') | regex_search('(a+)+$') }}"]


def test_every_filter_test_and_method_with_hostile_arguments_ends_in_time_and_memory() -> None:
    assert wrong(evaluated(Maker(Random(11)).each())) == []


def test_loops_and_macros_around_hostile_operations_end_in_time_and_memory() -> None:
    assert wrong(evaluated(Maker(Random(1)).programs())) == []


@settings(max_examples=3)
@given(st.integers(0, 1 << 32))
def test_combinations_of_operations_end_in_time_and_memory(seed: int) -> None:
    assert wrong(evaluated(Maker(Random(seed)).operations(20))) == []

"""Regular expressions of specs: what they mean, and that no pattern and no text makes them slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.regex import RegexError, checked_regex, regex

SLOW = [
    ("(a+)+$", "a", "b"),
    ("(a|a)+$", "a", "b"),
    ("(a|aa)+$", "a", "b"),
    (r"(\w*\s*)+:$", "word ", "!"),
    ("(.*)(.*)(.*)(.*)(.*)(.*)x", "a", ""),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a", ""),
    ("(a?){100}a{100}$", "a", "b"),
    ("(x+x+)+y", "x", ""),
]


@pytest.mark.parametrize(("pattern", "unit", "end"), SLOW)
def test_patterns_that_freeze_others_end_at_once(pattern: str, unit: str, end: str) -> None:
    text = unit * 100_000 + end
    began = time.thread_time()
    assert regex(pattern).search(text) is None
    assert not regex(pattern).matches(text)
    assert regex(pattern).replaced(text, "") == text
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("pattern", ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "a{1001}"])
def test_what_has_no_bound_of_time_is_refused_with_the_reason(pattern: str) -> None:
    re.compile(pattern)
    with pytest.raises(RegexError, match="so that a search takes linear time"):
        regex(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a**", r"\p{Nonsense}", "((a{100}){100}){100}", "\ud800"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        checked_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"b\Z", "ab"),
        (r"a{,2}b", "aaab"),
        (r"[\u00e4\u00f6]+", "xäöx"),
        (r"\U0001f600", "a\U0001f600"),
        (r"\\Z", r"a\Z"),
        (r"[{,2}]+", "{,2}"),
        (r"[\]{,3}]", "]"),
        (r"(?i)ABC", "xabc"),
        (r"(?P<port>\d+)/tcp", "8080/tcp"),
        (r"x(y)?", "x"),
    ],
)
def test_what_python_writes_in_another_way_means_the_same(pattern: str, text: str) -> None:
    found = re.search(pattern, text)
    assert found is not None
    assert regex(pattern).search(text) == ((found[1] or "") if found.re.groups else found[0])


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        ("b", "x"), ("(b)(c)?", r"<\1\2\g<0>>"), ("(?P<n>b)", r"\g<n>\n"), ("x*", "-"), ("ö", "ä"), ("", r"\\"),
        ("b", r"\."),
    ],
)  # fmt: skip
def test_a_replacement_is_what_python_makes_of_it(pattern: str, replacement: str) -> None:
    for text in ("abcabd", "öbc\ud800b", ""):
        assert regex(pattern).replaced(text, replacement) == re.sub(pattern, replacement, text)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of Python's own, about "[[" and the like
@given(st.text(alphabet="ab(c)|*+?.[]^$", max_size=8), st.text(alphabet="abc", max_size=12), st.text("xy", max_size=2))
def test_what_both_can_read_means_the_same_as_in_python(pattern: str, text: str, replacement: str) -> None:
    try:
        found = re.search(pattern, text)
        ours = regex(pattern)
    except (re.error, RegexError):
        return
    assert (ours.search(text) is None) == (found is None)
    assert ours.matches(text) == (re.fullmatch(pattern, text) is not None)
    if found is not None and not found.re.groups:
        assert ours.search(text) == found[0]


@pytest.mark.parametrize("replacement", [r"\2", r"\g<n>", r"\g<9>", r"\q", "\\"])
def test_a_replacement_with_a_group_that_is_not_there_is_refused(replacement: str) -> None:
    with pytest.raises(RegexError, match="the replacement"):
        regex("(a)").replaced("a", replacement)

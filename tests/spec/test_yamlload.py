"""Loading YAML: what values mean, and what is refused with which words."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.events import MAX_DEPTH
from kubexm_spec.yaml.load import MAX_FINDINGS, load_documents


def load(text: str) -> Any:
    (document,) = load_documents(text, "f.yaml")
    return document


def findings(text: str) -> list[Diagnostic]:
    with pytest.raises(SpecError) as caught:
        load_documents(text, "f.yaml")
    return caught.value.diagnostics.sorted()


def finding(text: str) -> Diagnostic:
    (only,) = findings(text)
    return only


def where(diagnostic: Diagnostic) -> tuple[int, int]:
    assert diagnostic.span is not None
    return diagnostic.span.line, diagnostic.span.column


# What values mean


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "N", "Yes", "ON", "TRue", "nULL"])
def test_words_of_yaml_1_1_stay_texts(word: str) -> None:
    assert load(f"{word}: {word}") == {word: word}


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-31",
        "2024-01-31T10:00:00Z",
        "12:30:45",
        "1_000",
        "0b11",
        "0644",
        "007",
        "-012",
        "01.5",
        "1.2.3",
        "+",
        ".",
        "-",
        "=",
        "1e",
        "0x",
        "0o8",
        "e3",
        "--1",
    ],
)
def test_what_only_looks_like_a_number_or_a_date_stays_a_text(text: str) -> None:
    assert load(f"a: {text}" if text != "-" else 'a: "-"') == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("0o644", 0o644),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!!int 5", 5),
        ("!!float 5", 5.0),
        ("!!bool true", True),
        ("!!null ~", None),
        ('"5"', "5"),
        ("'null'", "null"),
        ("|\n  5\n", "5\n"),
        ("!!map {b: 1}", {"b": 1}),
        ("!!seq [1]", [1]),
    ],
)
def test_values_have_the_types_of_json(text: str, value: object) -> None:
    found = load(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(load("a: .nan")["a"])


def test_documents_are_kept_apart_and_empty_ones_keep_their_number() -> None:
    assert load_documents("a: 1\n---\n---\n- b\n...\n", "f") == [{"a": 1}, None, ["b"]]
    assert load_documents("# nothing\n", "f") == []


def test_windows_line_ends_are_line_ends() -> None:
    assert load("a: |\r\n  x\r\n  y\r\nb: 1\r\n") == {"a": "x\ny\n", "b": 1}


def test_anchors_aliases_and_merges_work() -> None:
    text = """
base: &base {a: 1, b: 2}
more: &more
  <<: *base
  b: 3
both:
  <<: [*more, {c: 9, a: 7}]
  d: &d text
again: *d
*d : key by alias
"""
    data = load(text)
    assert data["more"] == {"a": 1, "b": 3}
    assert data["both"] == {"a": 1, "b": 3, "c": 9, "d": "text"}
    assert data["again"] == "text"
    assert data["text"] == "key by alias"


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert load('{"<<": 1}') == {"<<": 1}


def test_an_anchor_may_be_used_again_and_stands_for_the_last_value() -> None:
    assert load("[&a 1, *a, &a 2, *a, &a [&a 3, *a], *a]") == [1, 1, 2, 2, [3, 3], 3]


# What is refused


def test_duplicate_keys_are_found_at_every_depth_with_both_places() -> None:
    first, second = findings("a: 1\nb:\n  - c: 2\n    d: 3\n    c: 4\na: 5\n")
    assert (first.code, where(first)) == ("duplicate-key", (5, 5))
    assert first.notes[0].span is not None
    assert first.notes[0].span.line == 3
    assert (second.code, where(second)) == ("duplicate-key", (6, 1))
    assert second.notes[0].span is not None
    assert second.notes[0].span.line == 1


def test_a_duplicate_key_is_reported_beside_a_later_syntax_error() -> None:
    assert [d.code for d in findings("a: 1\na: 2\nb: [\n")] == ["duplicate-key", "yaml-syntax"]


def test_a_key_that_a_merge_brings_too_is_no_duplicate() -> None:
    assert load("x: &x {a: 1}\ny: {<<: *x, a: 2}")["y"] == {"a": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8080: x", "8080 is a number"),
        ("true: x", "a boolean"),
        ("~: x", "null"),
        ("1.5: x", "number"),
        ("[a]: x", "list"),
        ("? {a: b}\n: x", "mapping"),
        ("?\n: x", "no key"),
    ],
)
def test_keys_that_are_no_texts_are_refused_at_their_place(text: str, words: str) -> None:
    found = finding(text)
    assert found.code == "key-not-a-string"
    assert words in found.summary


def test_every_wrong_key_is_reported_and_the_rest_is_read() -> None:
    assert [where(d) for d in findings("1: a\nb: {2: c}\n")] == [(1, 1), (2, 5)]


@pytest.mark.parametrize("tag", ["!foo", "!!python/object:os.system", "!!binary", "!!set", "!!timestamp", "!<x:y>"])
@pytest.mark.parametrize("value", ["x", "[x]", "{x: y}"])
def test_tags_are_refused_on_every_kind_of_value(tag: str, value: str) -> None:
    found = finding(f"a: 1\nb: {tag} {value}\n")
    assert (found.code, where(found)) == ("unknown-tag", (2, 4))


@pytest.mark.parametrize("text", ["!!int x", "!!bool 1", "!!null x", "!!float true", "!!int 1.5"])
def test_a_tag_that_does_not_fit_its_value_is_refused(text: str) -> None:
    assert finding(text).code == "wrong-tag"


def test_an_alias_without_an_anchor_says_which_one_was_meant() -> None:
    found = finding("a: &default 1\nb: *defualt\n")
    assert (found.code, where(found), found.hint) == ("unknown-alias", (2, 4), 'did you mean "default"?')


def test_anchors_do_not_reach_into_the_next_document() -> None:
    assert finding("a: &x 1\n---\nb: *x\n").code == "unknown-alias"


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: [*a]}", "x: &a\n  <<: *a\n"])
def test_an_alias_inside_its_own_value_is_refused(text: str) -> None:
    assert finding(text).code == "recursive-alias"


def test_an_alias_bomb_is_refused_before_anything_walks_it() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert finding("\n".join(lines)).code == "alias-bomb"


def test_a_bomb_of_merges_and_one_of_long_texts_are_refused_too() -> None:
    merges = ["a0: &a0 {" + ", ".join(f"k{n}: v" for n in range(100)) + "}"]
    merges += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 20)]
    assert finding("\n".join(merges)).code == "alias-bomb"
    assert finding(f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 1000)}]").code == "alias-bomb"


def test_honest_use_of_anchors_is_no_bomb() -> None:
    anchor = "d: &d {" + ", ".join(f"k{n}: v" for n in range(40)) + "}\n"
    data = load(anchor + "".join(f"h{n}: *d\n" for n in range(5000)))
    assert len(data) == 5001


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{" * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        "{a: " * 100_000,
        "\n".join(" " * n + "a:" for n in range(3000)),
        "\n".join(" " * n + "-" for n in range(3000)),
    ],
    ids=["brackets", "braces", "dashes", "question marks", "flow mappings", "indented keys", "indented dashes"],
)
def test_deep_nesting_is_refused_without_a_crash(text: str) -> None:
    assert findings(text)[-1].code in ("too-deep", "unquoted-expression", "key-not-a-string", "yaml-syntax")


def test_the_deepest_allowed_nesting_is_read_and_one_more_is_not() -> None:
    load("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    found = finding("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert (found.code, where(found)) == ("too-deep", (1, MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "a:\n  - x\n\t- y\n", "a: b\n\tc: d\n"])
def test_tabs_as_indentation_have_their_own_message(text: str) -> None:
    found = finding(text)
    assert found.code == "tab-indentation"
    assert where(found)[1] == 1
    assert "spaces" in found.hint


def test_tabs_elsewhere_are_fine() -> None:
    assert load("a:\tb\nc: |\n  x\n  \ty\n") == {"a": "b", "c": "x\n\ty\n"}


@pytest.mark.parametrize("char", ["\0", "\x01", "\x1b", "\x7f", "\x85", "\u2028", "\ufeff", "\uffff"])
def test_control_characters_are_refused_at_their_place(char: str) -> None:
    found = finding(f"a: 1\nb: x{char}y\n")
    assert (found.code, where(found)) == ("control-character", (2, 5))


def test_a_nul_written_as_an_escape_is_refused_too_and_other_escapes_are_not() -> None:
    assert finding(r'a: "x\0"').code == "control-character"
    assert load(r'a: "\e[0m\u2028"') == {"a": "\x1b[0m\u2028"}


def test_a_number_with_too_many_digits_is_refused() -> None:
    assert finding("a: " + "9" * 5000).code == "number-too-long"


def test_a_merge_of_something_else_is_refused() -> None:
    assert finding("a: {<<: 3}").code == "bad-merge"
    assert finding("x: &x {}\na: {<<: *x, <<: *x}").code == "duplicate-key"


def test_every_unquoted_expression_is_named_as_what_it_is() -> None:
    first, second, third = findings("a: {{ b }}\nc:\n  - {{ d }}\ne: {{ f }}/g\n")
    assert {first.code, second.code, third.code} == {"unquoted-expression"}
    assert [where(first), where(second), where(third)] == [(1, 4), (3, 5), (4, 4)]
    assert first.span is not None
    assert first.span.end_column == 11
    assert finding("a: {% if x %}").code == "unquoted-expression"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 'x\nb: 1\n", (1, 4), "never closed"),
        ('a: "x\n', (1, 4), "never closed"),
        ("a: [1, 2\n", (1, 4), "never closed"),
        ("a: {b: 1\nc: 2\n", (2, 2), "comma or }"),
        ("a: b: c\n", (1, 5), "colon"),
        ("a: 1\n  b: 2\n", (2, 4), "colon"),
        ("a:\n  b: 1\n c: 2\n", (3, 2), "expected a key"),
        ("a: 1\nfoo\nb: 2\n", (2, 1), "expected a colon"),
        ("- a\nb: 1\n", (2, 1), "list item"),
        ("a: - b\n", (1, 4), "list item"),
        ("a: @b\n", (1, 4), "begin with @"),
        ("a: `b`\n", (1, 4), "begin with `"),
        ('a: "\\q"\n', (1, 5), "escape"),
        ("%YAML 3.0\n---\na: 1\n", (1, 1), "version"),
        ("a: !e!x y\n", (1, 4), "tag"),
        ("a: {b: env:NAME}", (1, 11), "a colon is not expected here"),
    ],
)
def test_syntax_errors_say_in_plain_words_what_is_wrong_and_where(
    text: str, place: tuple[int, int], words: str
) -> None:
    found = finding(text)
    assert (found.code, where(found)) == ("yaml-syntax", place)
    assert words in found.summary


def test_a_file_full_of_mistakes_is_given_up_after_enough_of_them() -> None:
    assert len(findings("a: 1\n" * 10_000)) == MAX_FINDINGS


def test_without_the_compiled_parser_the_same_data_and_findings_come_out() -> None:
    program = """
import sys
sys.modules["_ruamel_yaml"] = sys.modules["_ruamel_yaml_clibz"] = None
from kubexm_spec.yaml.format import format_text
from kubexm_spec.yaml.source import SourceFile
from kubexm_spec.diagnostics import SpecError
source = SourceFile.from_text("a: &x {b: [1, 0644]}\\nc: {<<: *x}\\n")
assert "ruamel.yaml.cyaml" not in sys.modules
assert source.documents == [{"a": {"b": [1, "0644"]}, "c": {"b": [1, "0644"]}}], source.documents
assert source.place(0, ("c", "b", 1)).file_line == "<text>:1:15", source.place(0, ("c", "b", 1)).file_line
assert format_text("a:\\n- b   # c\\n", "f") == "a:\\n  - b   # c\\n"
for text, code in (
    ("a: 1\\na: 2", "duplicate-key"),
    ("a: !x y", "unknown-tag"),
    ("a: [", "yaml-syntax"),
    ("a:\\n\\tb: 1", "tab-indentation"),
):
    try:
        SourceFile.from_text(text)
    except SpecError as error:
        assert [d.code for d in error.diagnostics] == [code], error
    else:
        raise AssertionError(text)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

"""Findings as data: collecting, sorting, raising, suggesting."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.diagnostics import (
    Diagnostic,
    Diagnostics,
    Note,
    Severity,
    Span,
    SpecError,
    did_you_mean,
    suggest,
)
from kubexm_spec.yaml.source import SourceFile


def span(file: str, line: int, column: int = 1) -> Span:
    return Span(file, line, column, line, column + 1)


def test_span_reads_as_file_line_column() -> None:
    assert str(span("a.yaml", 3, 7)) == "a.yaml:3:7"


def test_findings_come_out_by_file_line_and_column_whatever_the_order_they_were_made_in() -> None:
    found = Diagnostics()
    found.error("x", "third", span("b.yaml", 1))
    found.warning("x", "second", span("a.yaml", 10))
    found.error("x", "first", span("a.yaml", 9, 4))
    found.error("x", "without a place")
    assert [d.summary for d in found.sorted()] == ["without a place", "first", "second", "third"]
    assert [d.summary for d in found] == ["third", "second", "first", "without a place"]


def test_the_very_same_finding_is_kept_once() -> None:
    found = Diagnostics()
    for _ in range(3):
        found.error("x", "same", span("a", 1), notes=[Note("used by", span("b", 1))])
    found.error("x", "same", span("a", 2))
    found.extend(list(found))
    assert len(found) == 2


def test_only_errors_raise() -> None:
    found = Diagnostics()
    found.warning("w", "careful")
    found.raise_if_errors()
    assert not found.has_errors
    found.error("e", "wrong", span("a.yaml", 2), hint="do it right")
    with pytest.raises(SpecError) as caught:
        found.raise_if_errors()
    assert caught.value.diagnostics is found
    assert "a.yaml:2:1: error[e]: wrong (do it right)" in str(caught.value)
    assert [d.code for d in found.errors] == ["e"]
    assert [d.code for d in found.warnings] == ["w"]


def test_a_place_becomes_its_span() -> None:
    source = SourceFile.from_text("a:\n  b: 1\n", "f.yaml")
    found = Diagnostics()
    found.error("x", "here", source.place(0, ("a", "b"), key=True))
    assert next(iter(found)).span == Span("f.yaml", 2, 3, 2, 4)


def test_a_finding_is_json_data_with_camel_case_keys() -> None:
    finding = Diagnostic("c", "s", span("f", 1, 2), Severity.WARNING, "d", "h", (Note("n", span("g", 3)), Note("m")))
    data = json.loads(json.dumps(finding.as_dict()))
    assert data["severity"] == "warning"
    assert data["span"] == {"file": "f", "line": 1, "column": 2, "endLine": 1, "endColumn": 3}
    assert data["notes"][0]["span"]["line"] == 3
    assert data["notes"][1] == {"message": "m", "span": None}
    assert Diagnostic("c", "s").as_dict()["span"] is None


@pytest.mark.parametrize(
    ("word", "candidates", "expected"),
    [
        ("pth", ["content", "path", "mode"], "path"),
        ("runon", ["name", "runOn"], "runOn"),
        ("run_on", ["run", "runOn"], "runOn"),
        ("run-on", ["run", "runOn"], "runOn"),
        ("RUNON", ["runOn"], "runOn"),
        ("step", ["tasks", "steps"], "steps"),
        ("policies", ["policy"], "policy"),
        ("tpye", ["name", "type"], "type"),
        ("wokrer", ["worker", "master"], "worker"),
        ("env", ["environment", "path"], "environment"),
        ("xyz", ["path", "name"], None),
        ("a", ["b"], None),
        ("", ["b"], None),
        ("path", [], None),
    ],
)
def test_suggest_finds_what_was_meant_and_nothing_else(word: str, candidates: list[str], expected: str | None) -> None:
    assert suggest(word, candidates) == expected


def test_the_closest_candidate_wins_over_an_earlier_one() -> None:
    assert suggest("containerc", ["contained", "containerd"]) == "containerd"


def test_did_you_mean_is_a_question_or_nothing() -> None:
    assert did_you_mean("pth", ["path"]) == 'did you mean "path"?'
    assert did_you_mean("pth", ["other"]) == ""


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=8))
def test_suggest_gives_a_candidate_other_than_the_word(word: str, candidates: list[str]) -> None:
    found = suggest(word, candidates)
    assert found is None or (found in candidates and found != word)


@given(st.text("abcdefgh", min_size=5, max_size=12), st.data())
def test_a_name_with_one_letter_missing_is_found_again(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    typo = name[:at] + name[at + 1 :]
    assert suggest(typo, ["something-quite-different", name]) == name

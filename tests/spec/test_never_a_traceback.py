"""Whatever bytes come in, there is data or findings with places, and both can be shown and formatted."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubexm_spec.diagnostics import Diagnostics, SpecError
from kubexm_spec.excerpt import render, summary_line
from kubexm_spec.yaml.format import format_text
from kubexm_spec.yaml.source import SourceFile

SPEC = """\
# a pipeline
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: hello, labels: {a: "b"}}
defaults: &defaults
  retry: {attempts: 3, delay: 2s}
modules:
- name: greet
  steps:
    - name: write   # beside
      <<: *defaults
      with:
        path: "/tmp/{{ host.name }}.txt"
        content: |
          hello {{ params.greeting }}

          end
        folded: >-
          one
          two
---
kind: Inventory
hosts: [{name: 'node[01:50]'}]
"""
# fmt: off
PIECES = [
    "\t", " ", "\n", "- ", "a: ", "{{ x }}", "{", "}", "[", "]", "&a ", "*a", "<<: *a", "!!int ", "!x ",
    "|\n", "|2+\n", ">-\n", "#c\n", " # c", "'", "\"", "\\0", "\\", "? ", ": ", ":", "---\n", "...\n",
    "%YAML 1.2\n", "\r\n", "\r", "\u2028", "\u0085", "\x00", "\ufeff", "é", "你", "0644", "~", ", ", "@", "`",
    "%", "  ", "    ",
]
# fmt: on


def paths(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The places of a document, a hundred at most."""
    found: list[tuple[str | int, ...]] = []
    waiting = [(data, path)]
    while waiting and len(found) < 100:
        value, here = waiting.pop()
        found.append(here)
        if isinstance(value, dict):
            waiting += [(inner, (*here, key)) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(inner, (*here, number)) for number, inner in enumerate(value)]
    return found


def check(data: bytes) -> None:
    try:
        source = SourceFile("f.yaml", Path("f.yaml"), data)
    except SpecError as error:
        check_findings(error.diagnostics)
        return
    found = Diagnostics()
    for number, document in enumerate(source.documents):
        for path in paths(document):
            place = source.place(number, path)
            found.error("x", "value", place)
            found.error("x", "key", place.key())
            found.warning("x", "nothing there", place.child("no such key", 7))
            found.warning("x", "piece", place.find("a"))
    assert all(d.span is not None and 1 <= d.span.line <= max(1, len(source.lines)) for d in found)
    check_findings(found)
    try:
        neat = format_text(source.text, "f.yaml")
    except SpecError as error:
        codes = [d.code for d in error.diagnostics]
    else:
        codes = ["format-unsafe"]
        assert format_text(neat, "f.yaml") == neat
    assert codes == ["format-unsafe"]


def check_findings(found: Diagnostics) -> None:
    assert len(found) > 0
    for finding in found:
        assert finding.code
        assert finding.summary
        span = finding.span
        assert span is not None
        assert span.line >= 1
        assert span.column >= 1
        assert (span.end_line, span.end_column) > (span.line, span.column)
    assert render(found, color=True)
    assert found.as_list()
    assert summary_line(found)


@given(st.binary(max_size=60))
@example(b"")
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf")
@example(b"a: \xed\xa0\x80")
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join))
def test_any_heap_of_yaml(text: str) -> None:
    check(text.encode())


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(SPEC)), st.integers(0, 12), st.sampled_from([*PIECES, ""])), max_size=4))
def test_any_spec_with_mistakes_in_it(changes: list[tuple[int, int, str]]) -> None:
    text = SPEC
    for at, cut, piece in changes:
        text = text[:at] + piece + text[at + cut :]
    check(text.encode())


@given(st.integers(0, len(SPEC)), st.binary(max_size=3))
def test_any_spec_with_bytes_changed_or_cut_off(at: int, piece: bytes) -> None:
    data = SPEC.encode()
    check(data[:at] + piece + data[at + len(piece) :])
    check(data[:at])

"""Files and places: reading, and where in the text things are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.source import MAX_BYTES, SourceFile

SPEC = """\
apiVersion: kubexm.io/v1
defaults: &defaults
  retry: {attempts: 3, delay: 2s}
  mode: "0644"
modules:
  - name: greet
    steps:
      - name: write
        <<: *defaults
        when: "{{ params.ab or params.a }} and params.a"
        with:
          path: '/tmp/it''s'
          content: |
            first {{ host.name }}
              second {{ params.greeting }}
          empty:
          alias: *defaults
      -
      - second
---
kind: Other
"""


@pytest.fixture
def source() -> SourceFile:
    return SourceFile.from_text(SPEC, "site.yaml")


STEP = ("modules", 0, "steps", 0)


def text_at(source: SourceFile, document: int, path: tuple[str | int, ...], *, key: bool = False) -> str:
    span = source.place(document, path, key=key).span()
    assert span.line == span.end_line, "more than one line"
    return source.lines[span.line - 1][span.column - 1 : span.end_column - 1]


# Reading


def failure(path: str | os.PathLike[str]) -> Diagnostic:
    with pytest.raises(SpecError) as caught:
        SourceFile.load(path)
    (only,) = caught.value.diagnostics
    return only


def test_a_file_keeps_its_name_as_typed_and_knows_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    source = SourceFile.load("a.yaml")
    assert source.name == "a.yaml"
    assert source.path == tmp_path / "a.yaml"
    assert source.data == b"\xef\xbb\xbfa: 1\r\n"
    assert source.text == "a: 1\r\n"
    assert source.lines == ["a: 1"]
    assert source.documents == [{"a": 1}]
    assert source.sha256 == hashlib.sha256(source.data).hexdigest()
    assert str(source.place(0, ("a",)).span()) == "a.yaml:1:4"
    assert SourceFile.load(tmp_path / "a.yaml", name="shown").place().span().file == "shown"


def test_a_missing_file_names_a_neighbour(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("a: 1")
    for typed in ("sit.yaml", "site.yml", "Site.yaml"):
        found = failure(tmp_path / typed)
        assert found.code == "file-not-found"
        assert found.hint == f'did you mean "{tmp_path}/site.yaml"?'
    assert failure(tmp_path / "quite-different.txt").hint == ""


def test_a_missing_folder_is_said_too(tmp_path: Path) -> None:
    found = failure(tmp_path / "no" / "site.yaml")
    assert (found.code, found.hint) == ("file-not-found", f"there is no folder {tmp_path / 'no'} either")


def test_a_file_used_as_a_folder_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a: 1")
    assert failure(tmp_path / "file" / "x.yaml").code == "file-not-found"


def test_folders_pipes_and_devices_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert failure(tmp_path).code == "not-a-file"
    assert failure(tmp_path / "pipe").code == "not-a-file"
    assert failure(os.devnull).code == "not-a-file"


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read everything: be somebody else for a moment
        os.seteuid(65534)
    try:
        assert failure(path).code == "permission"
    finally:
        os.seteuid(user)


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert failure(tmp_path / "loop").code == "unreadable-file"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_impossible_names_are_findings(name: str) -> None:
    assert failure(name).code in ("file-not-found", "unreadable-file")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert failure(tmp_path / "large.yaml").code == "file-too-large"


def test_bytes_that_are_not_utf8_are_shown_with_their_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xc3\xa9\xe9\n")
    found = failure(tmp_path / "latin.yaml")
    assert found.code == "not-utf8"
    assert "0xe9" in found.summary
    assert found.span is not None
    assert (found.span.line, found.span.column) == (2, 5)


def test_utf16_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "wide.yaml").write_bytes("a: 1".encode("utf-16"))
    found = failure(tmp_path / "wide.yaml")
    assert found.code == "not-utf8"
    assert "UTF-16" in found.hint


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n---\n", "\ufeff"])
def test_a_file_without_a_document_is_empty(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        SourceFile.from_text(text)
    assert [d.code for d in caught.value.diagnostics] == ["empty-file"]


def test_findings_of_the_text_carry_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [\n")
    found = failure(tmp_path / "bad.yaml")
    assert found.span is not None
    assert found.span.file == str(tmp_path / "bad.yaml")


# Places


def test_values_and_keys_have_their_own_spans(source: SourceFile) -> None:
    assert text_at(source, 0, ("apiVersion",)) == "kubexm.io/v1"
    assert text_at(source, 0, ("apiVersion",), key=True) == "apiVersion"
    assert text_at(source, 0, (*STEP, "with", "path")) == "'/tmp/it''s'"
    assert text_at(source, 0, (*STEP, "with", "path"), key=True) == "path"
    assert text_at(source, 0, ("defaults", "retry")) == "{attempts: 3, delay: 2s}"
    assert text_at(source, 0, ("defaults", "retry", "delay")) == "2s"
    assert text_at(source, 1, ("kind",)) == "Other"


def test_what_comes_through_a_merge_or_an_alias_is_where_its_text_is(source: SourceFile) -> None:
    assert source.place(0, (*STEP, "retry", "attempts")).file_line == "site.yaml:3:21"
    assert source.place(0, (*STEP, "mode"), key=True).file_line == "site.yaml:4:3"
    assert source.place(0, (*STEP, "with", "alias", "mode")).file_line == "site.yaml:4:9"


def test_own_keys_come_before_merged_ones_and_the_first_merged_mapping_wins() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  <<: [*a, *b]\n  y: 3\n"
    source = SourceFile.from_text(text, "f")
    assert source.documents[0]["c"] == {"x": 1, "z": 2, "y": 3}
    assert [source.place(0, ("c", k)).span().line for k in "xyz"] == [1, 5, 2]


@pytest.mark.parametrize(
    ("text", "path", "where"),
    [
        ("{name: plain}", (), "f:1:8"),
        ("name:   'quoted'  # why", (), "f:1:9"),
        ('- name: "x"\n- other: 1\n  name: y', (1,), "f:3:9"),
        ("name: |\n  block\n\n", (), "f:1:7"),
        ("name: &a anchored", (), "f:1:10"),
        ("name: !!str 7", (), "f:1:13"),
        ("x: &a text\nname: *a", (), "f:1:7"),
        ("name: ''", (), "f:1:7"),
        ("name:", (), "f:1:1"),
        ("name: {name: inner}", ("name",), "f:1:14"),
        ("name: {deep: 1}", (), "f:1:7"),
        ("a: {<<: {name: merged}}\nb: {c: 1}", ("a",), "f:1:16"),
        ("a: {<<: {name: merged}, name: own}", ("a",), "f:1:31"),
        ("a: &a {name: shared}\nb: *a", ("b",), "f:1:14"),
        ("a: {b: 1}", ("a",), "f:1:1"),
    ],
)
def test_names_are_where_they_are_written_however_that_is(text: str, path: tuple[str | int, ...], where: str) -> None:
    source = SourceFile.from_text(text, "f")
    assert source.place(0, (*path, "name")).file_line == where


def test_a_long_chain_of_merges_is_followed() -> None:
    lines = ["a0: &a0 {deep: 1}"] + [f"a{n}: &a{n} {{<<: *a{n - 1}}}" for n in range(1, 1000)]
    source = SourceFile.from_text("\n".join(lines), "f")
    assert source.place(0, ("a999", "deep")).file_line == "f:1:16"


def test_a_path_that_is_not_there_is_shown_by_the_key_of_its_nearest_parent(source: SourceFile) -> None:
    assert text_at(source, 0, (*STEP, "with", "missing", "deeper")) == "with"
    assert text_at(source, 0, ("modules", 0, "steps", 9, "x")) == "steps"
    assert text_at(source, 0, ("modules", "not-an-index")) == "modules"
    assert text_at(source, 0, ("apiVersion", "below-a-scalar")) == "apiVersion"


def test_what_has_no_key_is_shown_by_its_own_first_key(source: SourceFile) -> None:
    assert source.place(0, (*STEP, "type")).file_line == "site.yaml:8:9"
    assert source.place(0, STEP, key=True).file_line == "site.yaml:8:9"
    assert source.place(1, ("metadata",)).file_line == "site.yaml:21:1"
    assert source.place(7, ("metadata",)).file_line == "site.yaml:21:1"


def test_a_value_that_is_not_written_is_shown_by_its_key_or_its_dash(source: SourceFile) -> None:
    assert text_at(source, 0, (*STEP, "with", "empty")) == "empty"
    assert text_at(source, 0, ("modules", 0, "steps", 1)) == "-"


def test_a_collection_spans_from_its_first_to_its_last_character(source: SourceFile) -> None:
    span = source.place(0, ("defaults",)).span()
    assert (span.line, span.column, span.end_line, span.end_column) == (3, 3, 4, 15)


def test_anchors_and_tags_are_no_part_of_a_value() -> None:
    source = SourceFile.from_text("a: &x !!str 5\nb: &y\n  - 1\n", "f")
    assert source.place(0, ("a",)).raw == "5"
    assert source.place(0, ("b",)).file_line == "f:3:3"


def test_positions_count_characters_not_bytes() -> None:
    source = SourceFile.from_text('{"é你😀": x, b: 1}', "f")
    assert text_at(source, 0, ("é你😀",), key=True) == '"é你😀"'
    assert source.place(0, ("b",), key=True).span().column == 12


def test_lines_count_the_same_with_any_line_end() -> None:
    for end in ("\n", "\r\n", "\r"):
        source = SourceFile.from_text(f"a: 1{end}b: |{end}  x{end}  y{end}c: 3{end}", "f")
        assert source.place(0, ("c",)).file_line == "f:5:4", repr(end)


def test_child_and_key_lead_on(source: SourceFile) -> None:
    place = source.place(0, ("modules",)).child(0, "name")
    assert place.path == ("modules", 0, "name")
    assert place.key().on_key
    assert not place.key().child("x").on_key
    assert place.key().file_line == "site.yaml:6:5"


# Pieces of values


def found_text(source: SourceFile, path: tuple[str | int, ...], fragment: str) -> tuple[int, int]:
    span = source.place(0, path).find(fragment)
    assert source.lines[span.line - 1][span.column - 1 : span.end_column - 1] == fragment
    return span.line, span.column


def test_a_reference_is_found_as_a_whole_word_inside_the_expression(source: SourceFile) -> None:
    assert found_text(source, (*STEP, "when"), "params.a") == (10, 32)
    assert found_text(source, (*STEP, "when"), "params.ab") == (10, 19)


def test_a_reference_is_found_in_the_lines_of_a_block_scalar(source: SourceFile) -> None:
    assert found_text(source, (*STEP, "with", "content"), "host.name") == (14, 22)
    assert found_text(source, (*STEP, "with", "content"), "params.greeting") == (15, 25)


def test_text_with_quotes_is_found_as_it_is_escaped_in_the_file() -> None:
    source = SourceFile.from_text("""a: 'x {{ "it''s" }}'\nb: "y {{ \\"q\\" }}"\n""", "f")
    assert source.place(0, ("a",)).find('"it\'s"').column == 10
    assert source.place(0, ("b",)).find('"q"').column == 10


def test_text_that_is_folded_in_the_file_is_found_across_the_lines() -> None:
    source = SourceFile.from_text("a: >\n  {{ one\n  two }}\n", "f")
    span = source.place(0, ("a",)).find("one two")
    assert (span.line, span.column, span.end_line, span.end_column) == (2, 6, 3, 6)


def test_what_is_not_found_falls_back_to_the_value(source: SourceFile) -> None:
    place = source.place(0, ("apiVersion",))
    assert place.find("nothing like it") == place.span()
    assert place.find("") == place.span()


Plain = st.text("abcdefgh", min_size=1, max_size=6).map(lambda text: "k" + text)
Trees = st.recursive(
    Plain,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(Plain, inner, min_size=1, max_size=3),
    max_leaves=12,
)


def as_block(tree: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(tree, dict):
        out = []
        for key, value in tree.items():
            out += (
                [f"{pad}{key}: {value}"] if isinstance(value, str) else [f"{pad}{key}:", *as_block(value, indent + 2)]
            )
        return out
    if isinstance(tree, list):
        out = []
        for value in tree:
            out += [f"{pad}- {value}"] if isinstance(value, str) else [f"{pad}-", *as_block(value, indent + 2)]
        return out
    return [f"{pad}{tree}"]


@given(Trees)
def test_every_scalar_and_every_key_of_any_tree_is_where_its_text_is(tree: object) -> None:
    source = SourceFile.from_text("\n".join(as_block(tree, 0)) + "\n", "f")
    assert source.documents == [tree]
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(tree, ())]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            assert text_at(source, 0, path) == value
        elif isinstance(value, dict):
            for key in value:
                assert text_at(source, 0, (*path, key), key=True) == key
            waiting += [(inner, (*path, key)) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(inner, (*path, number)) for number, inner in enumerate(value)]

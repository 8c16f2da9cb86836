"""Formatting: the house style, and that nothing but the looks changes."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kubexm_spec.diagnostics import SpecError
from kubexm_spec.yaml.format import comments, format_text
from kubexm_spec.yaml.load import load_documents

UGLY = """\


# top comment

# second
apiVersion:   kubexm.io/v1   # trailing
kind : Pipeline
metadata: { name: x,labels: {a: b} }\t# flow


# before params
params:
# wrongly indented comment
    greeting:
        type: string   # type

        default: hello
    # end of params
vars:
    # commented: out
modules:
- name: a   # item
  # between keys
  steps:

  - name: s1
    type: file
    with:
      mode: 0644
      date: 2001-01-01
      n1: ~
      n2:
      s: 'single'
      d: "dou\\tble"
      content: |
          block
            text

      folded: >-
        folded text
        here
      lit: |2
          leading
      plain: multi
        line
    # after s1
  # between items
  -   name: s2
      type: x
      anchors: &anc {a: 1}
      x: &y
        q: 1
      merged:
        <<: *y
        z: 2
      al: *anc
  # end of steps
- name: b
  list: [1,2,
     3 # three
       # below
     ]   # multi
  empty: { }
  - el
# very end
""".replace("  - el\n", "  el: [ ]\n")

NEAT = """\
# top comment

# second
apiVersion: kubexm.io/v1   # trailing
kind: Pipeline
metadata: {name: x, labels: {a: b}}  # flow

# before params
params:
  # wrongly indented comment
  greeting:
    type: string   # type

    default: hello
  # end of params
vars:
  # commented: out
modules:
  - name: a   # item
    # between keys
    steps:

      - name: s1
        type: file
        with:
          mode: 0644
          date: 2001-01-01
          n1: ~
          n2:
          s: 'single'
          d: "dou\\tble"
          content: |
            block
              text

          folded: >-
            folded text
            here
          lit: |2
              leading
          plain: multi
            line
        # after s1
      # between items
      - name: s2
        type: x
        anchors: &anc {a: 1}
        x: &y
          q: 1
        merged:
          <<: *y
          z: 2
        al: *anc
      # end of steps
  - name: b
    list: [1, 2,
      3 # three
      # below
    ]   # multi
    empty: {}
    el: []
# very end
"""


def test_a_whole_spec_gets_the_house_style_and_keeps_every_comment() -> None:
    assert format_text(UGLY, "f") == NEAT


def test_what_is_neat_stays_as_it_is() -> None:
    assert format_text(NEAT, "f") == NEAT


@pytest.mark.parametrize(
    ("ugly", "neat"),
    [
        ("", ""),
        ("# only\n\n\n\n# comments\n\n", "# only\n\n# comments\n"),
        ("a: 1", "a: 1\n"),
        ("\ufeffa:   1\r\nb:  2\r\n", "a: 1\nb: 2\n"),
        ("a:\n- b\n-   c\n", "a:\n  - b\n  - c\n"),
        ("- - a\n  -   b\n-\n      - c\n", "- - a\n  - b\n-\n  - c\n"),
        ("-  a: 1\n   b: 2\n", "- a: 1\n  b: 2\n"),
        ("a: {b: ,c: [1,2 ,3 ] , d: }\n", "a: {b: , c: [1, 2, 3], d: }\n"),
        ("a: |+\n    x\n\n\n", "a: |+\n  x\n\n\n"),
        ("a: |\n    x\n\n\n\nb: 1\n", "a: |\n  x\n\nb: 1\n"),
        ("a: |\n  x", "a: |-\n  x\n"),
        ("a: |1\n  x\n y\nl:\n- |2\n    z\n", "a: |2\n   x\n  y\nl:\n  - |2\n      z\n"),
        (
            "a: |   # why\n      #!/bin/sh\n      # not a comment\n  # a comment\nb: 1\n",
            "a: |   # why\n  #!/bin/sh\n  # not a comment\n# a comment\nb: 1\n",
        ),
        ("--- # c\na: 1\n...\n# d\n---\nb: 2", "--- # c\na: 1\n...\n# d\n---\nb: 2\n"),
        ("? a\n: b\n? |\n   k\n: - c\n", "? a\n: b\n? |\n  k\n: - c\n"),
        ("a: 'x\n\n      y'\n", "a: 'x\n\n  y'\n"),
        ("a: &x b\n*x : 2\n", "a: &x b\n*x : 2\n"),
        ("a: 1\n\n\n\n\nb: 2\n\n\n", "a: 1\n\nb: 2\n"),
    ],
)
def test_small_things_are_laid_out_as_expected(ugly: str, neat: str) -> None:
    assert format_text(ugly, "f") == neat
    assert format_text(neat, "f") == neat


def test_keys_of_documents_and_steps_come_in_their_usual_order() -> None:
    ugly = """\
        modules:
        - tasks:
          - steps:
            - with:
                b: 1
                a: 2
              retry: {attempts: 3}
              when: x
              type: file
              name: one
          name: t
        metadata: {name: x}
        kind: Pipeline
        apiVersion: kubexm.io/v1
        """
    neat = """\
        apiVersion: kubexm.io/v1
        kind: Pipeline
        metadata: {name: x}
        modules:
          - tasks:
              - steps:
                  - name: one
                    type: file
                    when: x
                    retry: {attempts: 3}
                    with:
                      b: 1
                      a: 2
            name: t
        """
    assert format_text(textwrap.dedent(ugly), "f") == textwrap.dedent(neat)


@pytest.mark.parametrize(
    "text",
    [
        "kind: a\n# about the version\napiVersion: b\n",
        "kind: a  # why\napiVersion: b\n",
        "kind: a\n\napiVersion: b\n",
        "kind: &k a\napiVersion: *k\n",
        "x: &x {a: b}\n<<: *x\nkind: a\napiVersion: b\n",
        "kind: |+\n  a\n\napiVersion: b\n",
        "kind: |  # why\n  a\napiVersion: b\n",
        "{kind: a, apiVersion: b}\n",
    ],
    ids=["comment above", "comment beside", "empty line", "alias", "merge", "kept lines", "block comment", "flow"],
)
def test_keys_stay_where_they_are_when_moving_them_could_go_wrong(text: str) -> None:
    assert format_text(text, "f") == text


def test_text_that_cannot_be_read_is_reported_as_loading_reports_it() -> None:
    with pytest.raises(SpecError) as caught:
        format_text("a: 1\na: 2\n", "site.yaml")
    (found,) = caught.value.diagnostics
    assert found.code == "duplicate-key"
    assert str(found.span) == "site.yaml:2:1"


def test_text_that_would_change_its_meaning_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        format_text(" ---\n", "site.yaml")  # a text of three dashes; without its indentation it begins a document
    assert [d.code for d in caught.value.diagnostics] == ["format-unsafe"]


# Any text

Words = st.sampled_from(["a", "b", "steps", "name", "type", "with", "kind", "apiVersion", "x y"])
Scalars = st.sampled_from(
    [
        "1",
        "0644",
        "~",
        "",
        "text",
        "'it''s'",
        '"d\\n q"',
        "*anchor",
        "{a: 1,b: [c,d ]}",
        "[ ]",
        "multi\n{pad}   line",
        '"two\n\n{pad} lines"',
        "|\n{pad}   block\n\n{pad}     more",
        ">-\n{pad} folded",
        "|2\n{pad}     deep",
        "|+\n{pad} kept\n\n",
    ]
)
Remarks = st.sampled_from(["", "", "", "# c", "   # far", "# a\n\n\n# b", "\n\n"])


@st.composite
def blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> str:
    """A block of text: a list or a mapping with comments and empty lines anywhere, at odd columns."""
    out = []
    width = draw(st.sampled_from([1, 2, 4]))
    is_list = draw(st.booleans())
    names = draw(st.lists(Words, min_size=1, max_size=4, unique=True))
    for name in names:
        remark = draw(Remarks)
        if remark:
            out.append(
                "\n".join(
                    " " * draw(st.integers(0, indent + 4)) + line if line.strip() else "" for line in remark.split("\n")
                )
            )
        lead = "-" if is_list else f"{name}:"
        beside = draw(st.sampled_from(["", "", " # beside", "     # aside"]))
        if depth < 3 and draw(st.booleans()):
            inner = draw(blocks(indent + width, depth + 1))
            out.append(" " * indent + lead + beside + "\n" + inner)
        else:
            value = draw(Scalars).replace("{pad}", " " * indent)
            out.append(" " * indent + lead + " " * draw(st.integers(1, 3)) + value + ("" if "\n" in value else beside))
    return "\n".join(out)


@given(blocks(), Remarks, st.sampled_from(["", "\n", "\n\n\n"]))
def test_formatting_any_text_keeps_data_and_comments_and_is_stable(text: str, remark: str, end: str) -> None:
    text = f"# first\nanchor: &anchor 5\nroot:\n{textwrap.indent(text, '   ')}\n{remark}{end}"
    try:
        data = load_documents(text, "f")
    except SpecError:
        event("not loadable")
        return
    event("loadable")
    neat = format_text(text, "f")
    assert load_documents(neat, "f") == data
    assert [c for _, c in comments(neat)] == [c for _, c in comments(text)]
    assert format_text(neat, "f") == neat
    assert neat.endswith("\n")

"""Findings from models: which key or value, what is wrong in plain words, and one finding for one mistake."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.checking import check, keys_at
from kubexm_spec.models import PipelineDocument
from kubexm_spec.yaml.source import Path, SourceFile


class Inner(BaseModel):
    """Something inside."""

    model_config = ConfigDict(extra="forbid")
    size: int = Field(ge=1)
    level: Literal["low", "high"] = "low"


class Outer(BaseModel):
    """Something with something inside."""

    model_config = ConfigDict(extra="forbid")
    name: str
    inner: Inner | None = None
    many: list[Inner] = []
    either: str | Inner | None = None
    table: dict[str, Inner] = {}
    flag: bool = False


def findings(text: str, model: type[BaseModel] = Outer, **options: Any) -> list[tuple[str, str, str, str]]:
    source = SourceFile.from_text(text, "f.yaml")
    diagnostics = Diagnostics()
    check(model, source.documents[0], source.place(), diagnostics, what="the thing", **options)
    return [(f.code, str(f.span).removeprefix("f.yaml:"), f.summary, f.hint) for f in diagnostics.sorted()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\n", []),
        ("nam: a\n",
         [("unknown-key", "1:1", 'the thing has no key "nam"; it takes either, flag, inner, many, name, table',
           'did you mean "name"?')]),
        ("flag: true\n", [("missing-key", "1:1", 'the thing needs the key "name"', 'add "name"')]),
        ("name: 5\n", [("wrong-type", "1:7", 'the thing: "name": should be a text; got 5', 'put it in quotes: "5"')]),
        ("name: true\n",
         [("wrong-type", "1:7", 'the thing: "name": should be a text; got true', 'put it in quotes: "true"')]),
        ("name: [a]\n", [("wrong-type", "1:7", 'the thing: "name": should be a text; got a list', "")]),
        ("name:\n", [("wrong-type", "1:1", 'the thing: "name": should be a text; got null', "")]),
        ("name: a\nflag: maybe\n",
         [("wrong-value", "2:7", 'the thing: "flag": should be true or false; got \'maybe\'', "")]),
        ("name: a\ninner: {size: x}\n",
         [("wrong-value", "2:15", '"inner" of the thing: "size": should be a whole number; got \'x\'', "")]),
        ("name: a\ninner: {size: 1.5}\n",
         [("wrong-value", "2:15", '"inner" of the thing: "size": should be a whole number; got 1.5', "")]),
        ("name: a\ninner: {size: 0}\n",
         [("wrong-value", "2:15", '"inner" of the thing: "size": should be greater than or equal to 1; got 0', "")]),
        ("name: a\ninner: {size: 1, level: hgh}\n",
         [("wrong-value", "2:25", '"inner" of the thing: "level": should be \'low\' or \'high\'; got \'hgh\'',
           'did you mean "high"?')]),
        ("name: a\ninner: 5\n", [("wrong-type", "2:8", 'the thing: "inner": should be a mapping; got 5', "")]),
        ("name: a\nmany: 5\n", [("wrong-type", "2:7", 'the thing: "many": should be a list; got 5', "")]),
        ("name: a\nmany:\n  - size: 1\n  - sze: 1\n",
         [("unknown-key", "4:5", 'the thing has no key "sze"; it takes level, size', 'did you mean "size"?')]),
        ("name: a\nmany: [5]\n",
         [("wrong-type", "2:8", 'the thing: item 1 of "many": should be a mapping; got 5', "")]),
        ("name: a\ntable: {x: {size: 0}}\n",
         [("wrong-value", "2:19", '"x" of "table" of the thing: "size": should be greater than or equal to 1; got 0',
           "")]),
        ("name: a\neither: {sze: 1}\n",
         [("unknown-key", "2:10", '"either" of the thing has no key "sze"; it takes level, size',
           'did you mean "size"?')]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_finding_in_plain_words_at_the_key_or_value(
    text: str, expected: list[tuple[str, str, str, str]]
) -> None:
    assert findings(text) == expected


def test_all_mistakes_are_found_at_once() -> None:
    assert [code for code, *_ in findings("nme: a\nflag: x\ninner: {size: 0, x: 1}\nmany: [{}]\n")] == [
        "unknown-key", "wrong-value", "wrong-value", "unknown-key", "missing-key",
    ]  # fmt: skip


def test_what_is_not_known_yet_is_not_judged() -> None:
    def unknown(path: Path) -> bool:
        return path[:1] == ("flag",)

    assert findings("name: a\nflag: '{{ x }}'\n", ignore=unknown) == []
    assert len(findings("name: a\nflag: '{{ x }}'\n")) == 1


def test_a_key_that_does_not_exist_is_wrong_whatever_its_value_will_be() -> None:
    assert [code for code, *_ in findings("name: a\nx: '{{ x }}'\n", ignore=lambda path: True)] == ["unknown-key"]


def test_good_data_becomes_the_model() -> None:
    source = SourceFile.from_text("name: a\ninner: {size: 3}\n")
    diagnostics = Diagnostics()
    found = check(Outer, source.documents[0], source.place(), diagnostics)
    assert found is not None
    assert found.inner == Inner(size=3)
    assert not len(diagnostics)


def test_the_keys_that_a_place_may_have() -> None:
    assert keys_at(Outer, ("inner",)) == {"size", "level"}
    assert keys_at(Outer, ("many", 0)) == {"size", "level"}
    assert keys_at(Outer, ("table", "x")) == {"size", "level"}
    assert "retry" in keys_at(PipelineDocument, ("modules", 0, "tasks", 0, "steps", 0))
    assert "attempts" in keys_at(PipelineDocument, ("modules", 0, "tasks", 0, "steps", 0, "retry"))


def test_steps_tasks_and_modules_are_called_by_their_names() -> None:
    text = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: p}
modules:
  - name: base
    tasks:
      - name: t
        steps: [{name: write, type: file, x: 1}, {type: file, x: 1}]
        x: 1
    x: 1
inventory: {hosts: [{name: a, x: 1}]}
params: {p: {x: 1}}
"""
    told = [summary.partition(" has")[0] for code, _, summary, _ in findings(text, PipelineDocument) if "key" in code]
    assert [who for who in told if "needs" not in who] == [
        'step "write"', "step 2", 'task "t"', 'module "base"', 'host "a"', 'parameter "p"',
    ]  # fmt: skip

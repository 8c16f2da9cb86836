"""Templates that were compiled to be checked are rendered from that code, unless their file has changed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubexm_exec.values.expressions import ExpressionError, Expressions
from kubexm_exec.values.templates import TemplateFinder, Templates


def checked(folder: Path, text: str) -> tuple[Path, Templates]:
    """A template with that text that was checked, and what renders it."""
    path = folder / "a.conf"
    path.write_text(text)
    expressions = Expressions()
    expressions.jinja.keep_template(expressions.jinja.parse(text), text, "a.conf", str(path))
    return path, Templates(expressions, lambda base: TemplateFinder([Path(base)]))


def test_checked_template_is_rendered(tmp_path: Path) -> None:
    _, templates = checked(tmp_path, "port {{ port }}\n")
    assert templates.render("a.conf", str(tmp_path), {"port": 80}) == "port 80\n"


def test_template_that_changed_after_its_check_is_rendered_as_it_is_now(tmp_path: Path) -> None:
    path, templates = checked(tmp_path, "port {{ port }}\n")
    path.write_text("listen {{ port }}\n")
    assert templates.render("a.conf", str(tmp_path), {"port": 80}) == "listen 80\n"


def test_error_in_a_checked_template_names_it_and_its_line(tmp_path: Path) -> None:
    _, templates = checked(tmp_path, "one\n{{ nothing.there }}\n")
    with pytest.raises(ExpressionError, match=r"template a\.conf:2: "):
        templates.render("a.conf", str(tmp_path), {})


def test_template_of_names_alone_is_rendered_as_by_the_code_of_jinja2(tmp_path: Path) -> None:
    text = "a {{ n }} {{ deep['x'].y }} {{nothing}}{ }}\n\n{{ ok }} {{\nmany\t}}\n"
    names = {"n": 1.5, "deep": {"x": {"y": "<z>"}}, "nothing": None, "ok": True, "many": [{"k": "v"}, "w"]}
    _, templates = checked(tmp_path, text)
    rendered = templates.render("a.conf", str(tmp_path), names)
    _, compiled = checked(tmp_path, text + "{% if true %}{% endif %}")
    assert rendered == compiled.render("a.conf", str(tmp_path), names)


def test_template_of_names_alone_can_be_included_in_a_loop_and_extended(tmp_path: Path) -> None:
    _, templates = checked(tmp_path, "[{{ item }}]")
    (tmp_path / "loop").write_text("{% for item in items %}{% include 'a.conf' %}{% endfor %}")
    (tmp_path / "child").write_text("{% extends 'a.conf' %}{% block none %}x{% endblock %}")
    assert templates.render("loop", str(tmp_path), {"items": [1, 2]}) == "[1][2]"
    assert templates.render("child", str(tmp_path), {"item": 3}) == "[3]"


def test_template_of_names_alone_has_the_limits_of_others(tmp_path: Path) -> None:
    _, templates = checked(tmp_path, "{{ text }}" * 5)
    with pytest.raises(ExpressionError, match="too large"):
        templates.render("a.conf", str(tmp_path), {"text": "x" * (4 << 20)})
    nested: list[object] = []
    for _ in range(60):
        nested = [nested, nested]
    with pytest.raises(ExpressionError, match="too large"):
        templates.render("a.conf", str(tmp_path), {"text": nested})

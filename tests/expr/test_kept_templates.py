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
    expressions.keep_template(expressions.parse(text), text, "a.conf", str(path))
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

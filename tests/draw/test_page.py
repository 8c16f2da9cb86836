from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from kubexm_exec.draw import draw
from kubexm_exec.draw.page import Page, safe_json
from tests.draw.graphs import cluster
from tests.draw.test_formats import NASTY, nasty


class Reader(HTMLParser):
    """Collects elements, their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open][-1] += data


def policy(reader: Reader) -> dict[str, set[str]]:
    content = next(
        attrs["content"] for tag, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    parts = (part.split() for part in (content or "").split(";"))
    return {name: set(values) for name, *values in parts}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_exactly_the_pages_own_scripts_and_styles() -> None:
    reader = Reader(draw(nasty(), "html"))
    allowed = policy(reader)
    kinds = [attrs.get("type") for tag, attrs in reader.tags if tag == "script"]
    scripts = [text for text, kind in zip(reader.inside["script"], kinds, strict=True) if kind is None]
    assert allowed["default-src"] == {"'none'"}
    assert allowed["script-src"] == {digest(text) for text in scripts}
    assert allowed["style-src"] == {digest(text) for text in reader.inside["style"]}


def test_no_element_carries_a_script_a_style_or_an_address() -> None:
    for tag, attrs in Reader(draw(nasty(), "html")).tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "src", "action")], tag
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", draw(cluster(), "html"))


def test_data_is_read_back_as_it_was_and_cannot_end_its_element() -> None:
    text = safe_json({"a": NASTY, "b": "\u2028 \ud800 é"})
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == {"a": NASTY, "b": "\u2028 \ud800 é"}


def test_a_page_without_scripts_allows_none() -> None:
    assert "script-src 'none'" in Page("x").render().replace("&#39;", "'")

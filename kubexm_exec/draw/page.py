"""Builds a self-contained HTML page: nothing is loaded from anywhere, and only the page's own scripts may run."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from kubexm_exec.draw.text import escape

_JSON_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def asset(package: str, name: str) -> str:
    """The text of a file in a package's ``static`` folder."""
    return (resources.files(package) / "static" / name).read_text("utf-8")


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element: it holds no tag, and only ASCII."""
    return json.dumps(data, separators=(",", ":"), default=str).translate(_JSON_UNSAFE)


class Page:
    """Collects styles, data and scripts round a body."""

    def __init__(self, title: str, kind: str = "graph") -> None:
        self.title = title
        self.kind = kind
        """What it is, so that a later one may replace it."""
        self.body = ""
        self._styles: list[str] = []
        self._scripts: list[str] = []
        self._data: list[tuple[str, str]] = []

    def style(self, css: str) -> None:
        """Add a style sheet."""
        self._styles.append(css)

    def script(self, code: str) -> None:
        """Add a script; scripts run after the body, in the order they were added."""
        self._scripts.append(code)

    def data(self, ident: str, data: Any) -> None:
        """Add data for scripts, as the text of an element with that id."""
        self._data.append((ident, safe_json(data)))

    def render(self) -> str:
        """The page. Its policy names the hash of every style and script in it, and allows nothing else."""
        policy = (
            f"default-src 'none'; style-src {_hashes(self._styles)}; script-src {_hashes(self._scripts)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
        parts = [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta name="generator" content="kubexm {self.kind}">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(self.title)}</title>\n",
            *(f"<style>{css}</style>\n" for css in self._styles),
            f"</head>\n<body>\n{self.body}\n",
            *(f'<script type="application/json" id="{escape(ident)}">{text}</script>\n' for ident, text in self._data),
            *(f"<script>{code}</script>\n" for code in self._scripts),
            "</body>\n</html>\n",
        ]
        return "".join(parts)


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"

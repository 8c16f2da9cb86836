"""Calls the commands as people do, in a folder of their own."""

from __future__ import annotations

import json
import pathlib
import textwrap
from typing import Any

from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main

HEAD = "apiVersion: kubexm.io/v1\nkind: Pipeline\nmetadata: {name: site}\n"


class Folder:
    """A folder with specs, and the commands run in it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def file(self, name: str, text: str) -> pathlib.Path:
        """A file as it is."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def spec(self, text: str, name: str = "main.yaml") -> pathlib.Path:
        """A pipeline, without its head."""
        return self.file(name, HEAD + textwrap.dedent(text))

    def run(self, *arguments: str, stdin: bytes | None = None) -> Result:
        """A command; an exception that is no exit is a bug."""
        result = CliRunner().invoke(main, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "Traceback" not in result.output
        return result

    def data(self, *arguments: str, exit_code: int = 0) -> Any:
        """What a command says with --output json: one document, and nothing else on stdout."""
        result = self.run(*arguments, "--output", "json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

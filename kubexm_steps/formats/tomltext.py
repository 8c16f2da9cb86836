"""TOML with other values in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubexm_steps.formats.keypaths import EditError, KeyPath, drop, put
from kubexm_steps.formats.spans import DataText


class TomlText(DataText):
    """TOML, with its comments and blanks."""

    def read(self, text: str) -> Any:
        """The data, as another library reads it than the one that changes the text."""
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            said = str(error)
            found = re.search(r" \(at line (\d+), column (\d+)\)$", said)
            reason = f"{said[:1].lower()}{said[1:]}"
            if found is None:
                raise EditError(reason) from error
            raise EditError(f"{reason.removesuffix(found[0])}, column {found[2]}", int(found[1])) from error

    def written(self, text: str, values: Mapping[KeyPath, Any], removed: Sequence[KeyPath]) -> str:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
        from tomlkit.items import Array, InlineTable

        def inside(above: Any) -> Any:
            return tomlkit.inline_table() if isinstance(above, InlineTable | Array) else tomlkit.table()

        try:
            document = tomlkit.parse(text)
            for path in removed:
                drop(document, path)
                _keep_empty(document, path[:-1])
            for path, value in values.items():
                put(document, path, value, inside, lambda above: tomlkit.array())
            return tomlkit.dumps(document)
        except (TOMLKitError, TypeError, ValueError, AttributeError) as error:
            raise EditError(f"it cannot be changed: {error}") from error


def _keep_empty(document: Any, path: KeyPath) -> None:
    """Write a table of its own for one that is empty now, and was there only because of the tables in it."""
    import tomlkit
    from tomlkit.items import Table

    node, above = document, None
    for key in path:
        try:
            above, node = node, node[key]
        except (KeyError, IndexError):
            return
    if above is not None and isinstance(node, Table) and not node and node.is_super_table():
        above[path[-1]] = tomlkit.table()

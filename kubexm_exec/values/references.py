"""The names that an expression refers to, found in its tree without evaluating it."""

from __future__ import annotations

import re

from jinja2 import nodes
from msgspec import Struct
from msgspec.structs import replace

SECRET = "secret"
"""The function that looks a secret up."""
OWN_NAMES = frozenset({"loop", "caller", "varargs", "kwargs", "self", "super"})
"""What Jinja2 itself defines in loops, macros and templates."""


class Reference(Struct, frozen=True):
    """A chain of names that starts at a top-level name: ``steps.probe.outputs.stdout``."""

    root: str
    path: tuple[str, ...]
    exact: bool = True
    """False if the chain goes on with something that is computed."""
    optional: bool = False
    """True where it is allowed to be missing: under ``default`` or ``is defined``."""
    argument: str = ""
    """What ``secret(...)`` is called with, as far as it is written: the beginning of it if it is not ``exact``."""

    def __str__(self) -> str:
        text = self.root
        for part in self.path:
            text += f".{part}" if re.fullmatch(r"[A-Za-z_]\w*", part) else f"['{part}']"
        return text


def find_references(tree: nodes.Node) -> tuple[Reference, ...]:
    """The chains of names that a parsed text refers to, without names it defines itself (loops, set, macros)."""
    own = set(OWN_NAMES)
    tested: list[tuple[str, tuple[str, ...]]] = []
    for node in tree.find_all((nodes.Name, nodes.Macro, nodes.Import, nodes.FromImport, nodes.Test)):
        if isinstance(node, nodes.Name):
            if node.ctx != "load":
                own.add(node.name)
        elif isinstance(node, nodes.Test):
            chain = _chain(node.node) if _forgives(node) else None
            if chain is not None:
                tested.append(chain[:2])
        elif isinstance(node, nodes.Macro):
            own.add(node.name)
        elif isinstance(node, nodes.Import):
            own.add(node.target)
        elif isinstance(node, nodes.FromImport):
            own.update(name if isinstance(name, str) else name[1] for name in node.names)
    found: dict[Reference, None] = {}
    _walk(tree, own, found)
    return tuple(dict.fromkeys(_excused(reference, tested) for reference in found)) if tested else tuple(found)


def _excused(reference: Reference, tested: list[tuple[str, tuple[str, ...]]]) -> Reference:
    """What a text tests with ``is defined`` may be missing wherever the same text uses it."""
    for root, path in tested:
        if reference.root == root and reference.path[: len(path)] == path:
            return replace(reference, optional=True)
    return reference


def _forgives(node: nodes.Filter | nodes.Test) -> bool:
    return node.name in (("default", "d") if isinstance(node, nodes.Filter) else ("defined", "undefined"))


def _walk(node: nodes.Node, own: set[str], found: dict[Reference, None], optional: bool = False) -> None:
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == SECRET not in own:
        argument, whole = _beginning(node.args[0]) if node.args else ("", False)
        found.setdefault(Reference(SECRET, (), whole or not argument, optional, argument))
        for each in node.args:
            _walk(each, own, found)
        return
    chain = _chain(node)
    if chain is not None:
        root, path, exact, rest = chain
        if root not in own:
            found.setdefault(Reference(root, path, exact, optional))
        for other in rest:
            _walk(other, own, found)
        return
    forgiven = node.node if isinstance(node, nodes.Filter | nodes.Test) and _forgives(node) else None
    for child in node.iter_child_nodes():
        _walk(child, own, found, child is forgiven)


def _beginning(node: nodes.Node) -> tuple[str, bool]:
    """The text that an expression begins with, and whether that is all of it."""
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, nodes.Concat) and node.nodes:
        return _beginning(node.nodes[0])[0], False
    return (_beginning(node.left)[0], False) if isinstance(node, nodes.Add) else ("", False)


def _chain(node: nodes.Node) -> tuple[str, tuple[str, ...], bool, list[nodes.Node]] | None:
    """Unwind ``a.b['c'][x]`` to (a, (b, c), exact=False, [x]); None if it does not start at a name."""
    parts: list[str | None] = []
    rest: list[nodes.Node] = []
    while True:
        if isinstance(node, nodes.Getattr):
            parts.append(node.attr)
            node = node.node
        elif isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
                parts.append(str(node.arg.value))
            else:
                parts.append(None)
                rest.append(node.arg)
            node = node.node
        elif isinstance(node, nodes.Name) and node.ctx == "load":
            parts.reverse()
            known: list[str] = []
            for part in parts:
                if part is None:
                    return node.name, tuple(known), False, rest
                known.append(part)
            return node.name, tuple(known), True, rest
        else:
            return None

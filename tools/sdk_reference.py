"""The reference of the step kit: every name that an author gets, with its signature, from the text of the modules."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
from pathlib import Path

import kubexm_exec.step

_HIDDEN = ("describe",)
"""Modules beside the kit's own that are not for authors."""


def modules() -> list[str]:
    """The modules of the kit, the main one first."""
    folder = Path(kubexm_exec.step.__file__).parent
    parts = sorted(path.stem for path in folder.glob("[a-z]*.py") if path.stem not in _HIDDEN)
    return ["kubexm_exec.step", *(f"kubexm_exec.step.{name}" for name in parts), "kubexm_exec.testing"]


def sdk_reference(banner: str) -> str:
    """All names that authors of steps get."""
    lines = [
        "# Step kit reference",
        "",
        banner,
        "",
        "Every name that a step type may use, with its signature. How they play together is in",
        "[Writing a step](writing-a-step.md). What is not listed here may change without a word.",
    ]
    for module in modules():
        lines += ["", f"## {module}", "", _said(_tree(module))]
        simple = []
        for name in importlib.import_module(module).__all__:
            where, node = _definition(module, name)
            if isinstance(node, ast.ClassDef) and (members := _members(where, node)):
                alias = f" Signatures call it `{node.name}`." if node.name != name else ""
                lines += ["", f"### {name}", "", _head(node) + alias, "", *members, *_parts(node)]
            else:
                simple.append(_entry(name, node, _below(where, node)))
        lines += ["", *simple] if simple else []
    return "\n".join(lines).replace("``", "`") + "\n"


@functools.cache
def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    return ast.parse(Path(spec.origin or "").read_text("utf-8"))


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(name for module in modules() for name in importlib.import_module(module).__all__)


def _definition(module: str, name: str) -> tuple[str, ast.stmt]:
    """The definition of a name, and its module, through however many modules it is handed on."""
    for node in _tree(module).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() if node.name == name:
                return module, node
            case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)) if (
                target == name
            ):
                return module, node
            case ast.ImportFrom(module=str(source)):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _definition(source, alias.name) if source.startswith("kubexm") else (module, node)
    raise LookupError(f"{module} has no {name}")


def _said(node: ast.AST) -> str:
    """The first paragraph of its documentation."""
    text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def _head(node: ast.ClassDef) -> str:
    made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    signature = f"`{node.name}{_arguments(made)}`: " if made is not None else ""
    return signature + _said(node)


def _members(module: str, node: ast.ClassDef) -> list[str]:
    """The public attributes and methods of a class, also of bases outside the kit, with what is said of them."""
    found: dict[str, str] = {}
    for here, after in zip(node.body, [*node.body[1:], None], strict=True):
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        match here:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default = (
                    "" if here.value is None or isinstance(here.value, ast.Call) else f" = {ast.unparse(here.value)}"
                )
                found[name] = f"- `{name}: {ast.unparse(here.annotation)}{default}`" + (f": {text}" if text else "")
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_") and name != "model_config":
                found[name] = f"- `{name}`" + (f": {text}" if text else "")
            case ast.FunctionDef(name=name) if not name.startswith("_") and not _is(here, "overload"):
                found[name] = _entry(name, here)
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id not in _names() and base.id not in dir(builtins):
            where, inherited = _definition(module, base.id)
            if isinstance(inherited, ast.ClassDef):
                found |= {entry: entry for entry in _members(where, inherited)}
    return list(found.values())


def _parts(node: ast.ClassDef) -> list[str]:
    """The classes of a runner's parts, each with its members."""
    lines: list[str] = []
    for each in node.body:
        match each:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                value=ast.Call(
                    func=ast.Name(id="_part"), args=[ast.Constant(value=str(module)), ast.Constant(value=str(kind))]
                ),
            ):
                where, found = _definition(f"kubexm_exec.runner.{module}", kind)
                assert isinstance(found, ast.ClassDef)
                lines += ["", f"### {node.name}.{name}", "", f"`{kind}`: {_said(found)}", "", *_members(where, found)]
    return lines


def _below(module: str, node: ast.stmt) -> str:
    """What is said of a constant: the text that follows it."""
    body = _tree(module).body
    after = body[body.index(node) + 1] if node in body[:-1] else None
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
        return " ".join(str(ast.literal_eval(after.value)).split())
    return ""


def _entry(name: str, node: ast.stmt, said: str = "") -> str:
    if isinstance(node, ast.FunctionDef):
        shown = name + (
            f" -> {_type(node)}" if _is(node, "property") or _is(node, "cached_property") else _arguments(node)
        )
        return f"- `{shown}`: {said or _said(node)}"
    if isinstance(node, ast.ClassDef):
        head = _head(node)
        return f"- {head}" if head.startswith("`") else f"- `{name}`: {head}"
    return f"- `{name}`" + (f": {said}" if said else "")


def _is(node: ast.FunctionDef, decorator: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == decorator for each in node.decorator_list)


def _type(node: ast.FunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns is not None else "None"


def _arguments(node: ast.FunctionDef) -> str:
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args]
    if given and given[0].arg in ("self", "cls"):
        (arguments.posonlyargs or arguments.args).pop(0)
    returns = "" if node.name == "__init__" else f" -> {_type(node)}"
    return f"({ast.unparse(arguments)}){returns}"

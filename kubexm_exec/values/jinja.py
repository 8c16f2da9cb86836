"""Expressions that Jinja2 has to read: sandboxed, with strict names and native types; what a text refers to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any, Final

from jinja2 import BytecodeCache, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.bccache import Bucket
from jinja2.exceptions import SecurityError
from msgspec.structs import replace

from kubexm_exec.values.finder import TRIMMING
from kubexm_exec.values.limits import LimitError
from kubexm_exec.values.names import (
    OWN_NAMES,
    SECRET,
    ExpressionError,
    MissingValueError,
    Reference,
    as_data,
    budget_of,
)
from kubexm_exec.values.sandbox import Sandbox, kind_of
from kubexm_spec.diagnostics import did_you_mean, shortened

Evaluate = Callable[[Mapping[str, Any]], Any]


class _Codes(BytecodeCache):
    """Keeps the code of template files in memory: what was compiled to be checked is not compiled again to be run."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str, bool, bool], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket its code, if the file is still the same."""
        bucket.code = self._codes.get(_key(bucket))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket's code."""
        if bucket.code is not None:
            self._codes[_key(bucket)] = bucket.code


def _key(bucket: Bucket) -> tuple[str, str, bool, bool]:
    trims = bucket.environment
    return bucket.key, bucket.checksum, trims.trim_blocks, trims.lstrip_blocks


_OPERANDS: Final = re.compile(
    r"unsupported operand type\(s\) for (?P<sign>\S+)(?: or pow\(\))?: '(?P<left>\w+)' and '(?P<right>\w+)'"
    r"|'(?P<order>\S+)' not supported between instances of '(?P<first>\w+)' and '(?P<second>\w+)'"
    r'|can only concatenate str \(not "(?P<other>\w+)"\) to str'
)
"""What Python says of an operator whose operands it does not take."""


def _undefined_message(error: UndefinedError) -> str:
    text = str(error.message or error)
    match = re.fullmatch(r"'(\w+)' is undefined", text)
    return f"there is no name {match[1]!r}" if match else text


class Jinja:
    """Reads and compiles texts for one run; threads may share it."""

    def __init__(self) -> None:
        self.environment = Sandbox(bytecode_cache=_Codes())
        self._for_templates = self.environment.overlay(
            trim_blocks=TRIMMING.trim_blocks, lstrip_blocks=TRIMMING.lstrip_blocks
        )

    def text(self, text: str) -> tuple[Evaluate, tuple[Reference, ...], bool]:
        """A text with ``{{ }}``: what evaluates it, its references, and whether it keeps the type of its value."""
        tree = self.parse(text)
        if "{%" in text and any(tree.find(kind) for kind in _OTHER_FILES):
            raise ExpressionError("only a template file can include another one; use a step of type template")
        references = find_references(tree)
        single = _single_expression(tree, text)
        if single is not None:
            return self._native(single, text), references, True
        with _readable(text, self.environment):
            template = self.environment.from_string(tree)

        def evaluate(context: Mapping[str, Any]) -> str:
            with budget_of(context):
                return "".join(template.root_render_func(template.new_context(context)))  # type: ignore[arg-type]

        return evaluate, references, False

    def expression(self, text: str) -> tuple[Evaluate, tuple[Reference, ...]]:
        """A bare expression as in ``when``."""
        with _readable(text, self.environment):
            tree = self.environment.parse("{{" + text + "}}")
        single = _single_expression(tree, "{{" + text + "}}")
        if single is None:
            raise ExpressionError("the expression is invalid: there is more than one", text.strip())
        return self._native(single, text), find_references(tree)

    def parse(self, text: str, name: str | None = None) -> nodes.Template:
        """The tree of a text, or of the template of that name; raises ExpressionError, whose fragment is the line."""
        with _readable(text, self.environment):
            if name is not None:
                with suppress(TemplateSyntaxError):  # the lines of errors are right only where nothing is trimmed
                    return self._for_templates.parse(text, name)
            return self.environment.parse(text, name)

    def keep_template(self, tree: nodes.Template, text: str, name: str, filename: str) -> None:
        """Compile a template file, and keep its code for those who load it by that name from that file.

        Raises ExpressionError. The tree, which is that of the text, may be simplified on the way.
        """
        with _readable(text, self.environment):
            code = self._for_templates.compile(tree, name, filename)  # unknown filters are found only here
        cache = self.environment.bytecode_cache
        if cache is not None:
            bucket = cache.get_bucket(self._for_templates, name, filename, text)
            bucket.code = code
            cache.set_bucket(bucket)

    def _native(self, expression: nodes.Expr, text: str) -> Evaluate:
        """The value of an expression, with its type."""
        result = nodes.Assign(nodes.Name("result", "store"), expression, lineno=1)
        tree = nodes.Template([result], lineno=1)
        tree.set_environment(self.environment)
        with _readable(text, self.environment):
            template = self.environment.from_string(tree)

        def evaluate(context: Mapping[str, Any]) -> Any:
            with budget_of(context):
                names = template.new_context(context)  # type: ignore[arg-type]  # it is copied
                for _ in template.root_render_func(names):
                    pass
                return as_data(names.vars["result"], names.budget)  # type: ignore[attr-defined]

        return evaluate


def explained(error: Exception, text: str) -> ExpressionError:
    """What evaluating a text has raised, as an error of the expression."""
    found = _explained(error, text)
    if not isinstance(error, LimitError):
        found.evaluated = shortened(text.strip(), 80)
    return found


def _explained(error: Exception, text: str) -> ExpressionError:
    if isinstance(error, UndefinedError):
        return MissingValueError(_undefined_message(error))
    if isinstance(error, LimitError):
        # It may be part of another one, whose place is the one that is told.
        return ExpressionError(f"{error}, in {shortened(text, 80)}")
    if isinstance(error, SecurityError):
        return ExpressionError(f"not allowed in an expression: {error}")
    if isinstance(error, TemplateError):
        return ExpressionError(str(error.message or error))
    # An operator or filter on the wrong value: whatever it raises is the spec's fault.
    if isinstance(error, TypeError) and (match := _OPERANDS.fullmatch(str(error))):
        sign = match["sign"] or match["order"] or "+"
        kinds = (match["left"] or match["first"] or "str", match["right"] or match["second"] or match["other"])
        return ExpressionError(f"`{sign}` does not work with {' and '.join(map(kind_of, kinds))}")
    return ExpressionError(f"{type(error).__name__}: {error}")


@contextmanager
def _readable(text: str, environment: Sandbox) -> Iterator[None]:
    """Turn whatever reading a text raises into an ExpressionError that points at the line."""
    try:
        yield
    except TemplateSyntaxError as error:
        lines = text.splitlines() or [""]
        number = min(max(error.lineno, 1), len(lines))
        fragment = _quoted_name(error, lines[number - 1].strip())
        raise ExpressionError(_syntax_message(error, environment), fragment, number) from error
    except RecursionError as error:
        raise ExpressionError("the expression is invalid: it is nested too deeply") from error
    except ValueError as error:
        raise ExpressionError("the expression is invalid: a number in it has too many digits") from error
    except (SyntaxError, OverflowError, MemoryError) as error:  # more nested blocks than Python compiles
        raise ExpressionError(f"the expression is invalid: {error}") from error


_CLEARER = [
    (
        re.compile(r"Unexpected end of template\b.*block that needs to be closed is '(\w+)'"),
        r"{% \1 %} is never closed",
    ),
    (re.compile(r"unexpected end of template, expected 'end of print statement'"), "it is never closed with }}"),
    (re.compile(r"unexpected end of template, expected 'end of statement block'"), "it is never closed with %}"),
    (
        re.compile(r"unexpected 'end of (?:print statement|statement block|template)'"),
        "it ends where a value should be",
    ),
    (re.compile(r"Expected an expression, got 'end of (?:print statement|statement block)'"), "it is empty"),
    (re.compile(r"expected token 'end of print statement', got '='"), "a single = is not a comparison; write =="),
    (re.compile(r"expected token 'end of (?:print statement|statement block)', got (.+)"), r"unexpected \1"),
]
"""Clearer words for messages of Jinja2 that need knowledge of its parser."""


def _syntax_message(error: TemplateSyntaxError, environment: Sandbox) -> str:
    message = (error.message or "").rstrip(".")
    unknown = re.fullmatch(r"No (filter|test) named '(.+)'", message)
    if unknown is None:
        for pattern, words in _CLEARER:
            message = pattern.sub(words, message)
        return f"the expression is invalid: {message}"
    kind, name = unknown.groups()
    guess = did_you_mean(name, environment.filters if kind == "filter" else environment.tests)
    return f"there is no {kind} {name!r}" + (f"; {guess}" if guess else "")


def _quoted_name(error: TemplateSyntaxError, line: str) -> str:
    """The name that the message is about, if the line has it; else the line."""
    named = re.search(r"named '(.+)'", error.message or "")
    return named[1] if named and named[1] in line else line


def _single_expression(tree: nodes.Template, text: str) -> nodes.Expr | None:
    """The expression of a text that is nothing else."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = tree.body[0].nodes
    if len(parts) != 1 or isinstance(parts[0], nodes.TemplateData):
        return None
    # A comment beside it is not in the tree.
    return parts[0] if text.startswith("{{") and text.endswith("}}") else None


_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


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

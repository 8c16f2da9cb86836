"""Expressions: sandboxed Jinja2 with strict names and native types, and the references that a text makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

from jinja2 import BytecodeCache, StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.bccache import Bucket
from jinja2.exceptions import SecurityError
from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.values.limits import SCALARS, Budget, LimitError, fit, weighed
from kubexm_exec.values.sandbox import ExpressionError as ExpressionError
from kubexm_exec.values.sandbox import MissingValueError, Sandbox, budget_of
from kubexm_exec.values.sandbox import Namespace as Namespace
from kubexm_spec.diagnostics import did_you_mean, shortened

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


class Compiled:
    """An expression or a text with expressions, ready to be evaluated many times."""

    __slots__ = ("_evaluate", "native", "references", "text")

    def __init__(
        self, text: str, evaluate: Callable[[Mapping[str, Any]], Any], references: tuple[Reference, ...], native: bool
    ) -> None:
        self.text = text
        self.references = references
        self.native = native
        self._evaluate = evaluate

    def __call__(self, context: Mapping[str, Any]) -> Any:
        """The value in that context; raises ExpressionError."""
        try:
            return self._evaluate(context)
        except ExpressionError:
            raise
        except UndefinedError as error:
            raise MissingValueError(_undefined_message(error)) from error
        except LimitError as error:
            # It may be part of another one, whose place is the one that is told.
            raise ExpressionError(f"{error}, in {shortened(self.text, 80)}") from error
        except SecurityError as error:
            raise ExpressionError(f"not allowed in an expression: {error}") from error
        except TemplateError as error:
            raise ExpressionError(str(error.message or error)) from error
        except Exception as error:  # an operator or filter on the wrong value: whatever it raises is the spec's fault
            raise ExpressionError(f"{type(error).__name__}: {error}") from error


class _Codes(BytecodeCache):
    """Keeps the code of template files in memory: what was compiled to be checked is not compiled again to be run."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket its code, if the file is still the same."""
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket's code."""
        if bucket.code is not None:
            self._codes[bucket.key, bucket.checksum] = bucket.code


def _as_data(value: Any, budget: Budget) -> Any:
    """The value as plain data: sequences of all kinds are lists, and nothing in it is undefined."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if type(value) is str else str(value)
    if isinstance(value, StrictUndefined):
        value._fail_with_undefined_error()
    if isinstance(value, Mapping):
        budget.copied(len(value))
        return {key: _as_data(item, budget) for key, item in value.items()}
    if isinstance(value, Iterable):
        items = value if isinstance(value, list) else budget.listed(value)
        budget.copied(len(items))
        return [_as_data(item, budget) for item in items]
    raise ExpressionError(
        f"the value of the expression is a {type(value).__name__}, not data; is a ( ) or a name missing?"
    )


def _found(value: Any, context: Mapping[str, Any]) -> Any:
    """What a name stands for, as plain data."""
    if type(value) in SCALARS:
        return value
    with budget_of(context) as budget:
        return _as_data(value, budget)


def _undefined_message(error: UndefinedError) -> str:
    text = str(error.message or error)
    match = re.fullmatch(r"'(\w+)' is undefined", text)
    return f"there is no name {match[1]!r}" if match else text


def is_dynamic(value: Any) -> bool:
    """Whether plain data holds an expression anywhere."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, Mapping):
        return any(is_dynamic(key) or is_dynamic(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(is_dynamic(item) for item in value)
    return False


class Expressions:
    """Compiles expressions once and evaluates them; one object serves a whole run and may be shared by threads."""

    def __init__(self) -> None:
        self.environment = Sandbox(bytecode_cache=_Codes())
        # Bounded by what a spec can hold; the same text on a thousand hosts is compiled once.
        self.text = lru_cache(maxsize=65536)(self._text)
        self.expression = lru_cache(maxsize=65536)(self._expression)
        self._of_templates: dict[str, tuple[Reference, ...]] = {}
        self._plain_templates: dict[str, Callable[[Mapping[str, Any]], str]] = {}

    def _text(self, text: str) -> Compiled:
        """A text with ``{{ }}``; a text that is nothing but one expression keeps the type of its value."""
        tree = self.parse(text)
        if "{%" in text and any(tree.find(kind) for kind in _OTHER_FILES):
            raise ExpressionError("only a template file can include another one; use a step of type template")
        references = find_references(tree)
        single = _single_expression(tree, text)
        if single is not None:
            return Compiled(text, self._native(single, text), references, True)
        plain = self._plain(tree)
        if plain is not None:
            return Compiled(text, plain, references, False)
        with _readable(text, self.environment):
            template = self.environment.from_string(tree)

        def evaluate(context: Mapping[str, Any]) -> str:
            with budget_of(context):
                return "".join(template.root_render_func(template.new_context(context)))  # type: ignore[arg-type]

        return Compiled(text, evaluate, references, False)

    def _expression(self, text: str) -> Compiled:
        """A bare expression as in ``when``; ``{{ }}`` around it is allowed."""
        stripped = text.strip()
        if stripped.startswith("{{") and stripped.endswith("}}"):
            return self._text(stripped)
        if not stripped:
            raise ExpressionError("the expression is empty")
        with _readable(text, self.environment):
            tree = self.environment.parse("{{" + text + "}}")
        single = _single_expression(tree, "{{" + text + "}}")
        if single is None:
            raise ExpressionError("the expression is invalid: there is more than one", stripped)
        return Compiled(text, self._native(single, text), find_references(tree), True)

    def parse(self, text: str, name: str | None = None) -> nodes.Template:
        """The tree of a text, or of the template of that name; raises ExpressionError, whose fragment is the line."""
        with _readable(text, self.environment):
            return self.environment.parse(text, name)

    def template_references(self, text: str, tree: nodes.Template | None = None) -> tuple[Reference, ...]:
        """What a template refers to, found once for each text; ``tree`` is its tree, if that is known already."""
        if text not in self._of_templates:
            self._of_templates[text] = find_references(self.parse(text) if tree is None else tree)
        return self._of_templates[text]

    def keep_template(self, tree: nodes.Template, text: str, name: str, filename: str) -> None:
        """Compile a template file, and keep its code for those who load it by that name from that file.

        Raises ExpressionError. The tree, which is that of the text, may be simplified on the way.
        """
        plain = self._plain(tree)
        if plain is not None:
            self._plain_templates[text] = plain
            return
        with _readable(text, self.environment):
            code = self.environment.compile(tree, name, filename)  # unknown filters are found only here
        cache = self.environment.bytecode_cache
        if cache is not None:
            bucket = cache.get_bucket(self.environment, name, filename, text)
            bucket.code = code
            cache.set_bucket(bucket)

    def plain_template(self, text: str) -> Callable[[Mapping[str, Any]], str] | None:
        """What renders a kept template with nothing but names between its braces, which needs no code of Jinja2."""
        return self._plain_templates.get(text)

    def _native(self, expression: nodes.Expr, text: str) -> Callable[[Mapping[str, Any]], Any]:
        """The value of an expression, with its type."""
        lookup = self._lookup(expression)
        if lookup is not None:
            return lambda context: _found(lookup(context), context)
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
                return _as_data(names.vars["result"], names.budget)  # type: ignore[attr-defined]

        return evaluate

    def _plain(self, tree: nodes.Template) -> Callable[[Mapping[str, Any]], str] | None:
        """A text whose expressions are nothing but names, as most are: quicker than to have Jinja2 compile it."""
        parts: list[str | Callable[[Mapping[str, Any]], Any]] = []
        for output in tree.body:
            if isinstance(output, nodes.ExprStmt):  # counts the text of a template, as is done below
                continue
            if not isinstance(output, nodes.Output):
                return None
            for node in output.nodes:
                part = node.data if isinstance(node, nodes.TemplateData) else self._lookup(node)
                if part is None:
                    return None
                parts.append(part)

        def evaluate(context: Mapping[str, Any]) -> str:
            texts = [part if isinstance(part, str) else str(weighed(part(context))) for part in parts]
            fit(sum(map(len, texts)))
            return "".join(texts)

        return evaluate

    def _lookup(self, node: nodes.Node) -> Callable[[Mapping[str, Any]], Any] | None:
        """The value behind a chain of names (``a.b['c']``); None for any other expression."""
        environment = self.environment
        steps: list[tuple[bool, Any]] = []
        while not isinstance(node, nodes.Name):
            if isinstance(node, nodes.Getattr):
                steps.append((True, node.attr))
            elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
                steps.append((False, node.arg.value))
            else:
                return None
            node = node.node
        root = node.name
        if root in OWN_NAMES:
            return None
        steps.reverse()

        def value(context: Mapping[str, Any]) -> Any:
            if root in context:
                found = context[root]
            elif root in environment.globals:
                found = environment.globals[root]
            else:
                found = environment.undefined(name=root)
            for is_attribute, name in steps:
                found = environment.getattr(found, name) if is_attribute else environment.getitem(found, name)
            return found

        return value

    def render(self, value: Any, context: Mapping[str, Any]) -> Any:
        """Plain data with every expression in it evaluated, all on one budget."""
        if isinstance(value, str):
            return self.text(value)(context) if is_dynamic(value) else value
        if isinstance(value, Mapping):
            with budget_of(context):
                return {self.render(key, context): self.render(item, context) for key, item in value.items()}
        if isinstance(value, list | tuple):
            with budget_of(context):
                return [self.render(item, context) for item in value]
        return value

    def condition(self, value: str | bool, context: Mapping[str, Any]) -> bool:
        """Whether a condition holds: true or false, or whether a number is not 0 and a list or mapping is not empty.

        A text must say true or false: any other ("no", "0", a typo) would silently be true.
        """
        if isinstance(value, bool):
            return value
        result = self.expression(value)(context)
        if isinstance(result, str):
            if result.strip().lower() not in ("true", "false"):
                raise ExpressionError(
                    f"a condition must be true or false, but this is the text {shortened(result, 40)!r}; compare it, "
                    "such as x == 'yes', or x != '' for any text"
                )
            return result.strip().lower() == "true"
        if result is None or isinstance(result, bool | int | float | list | tuple | Mapping):
            return bool(result)
        raise ExpressionError(f"a condition must be true or false, but this is {type(result).__name__}")

    def references(self, value: Any, *, bare: bool = False) -> list[tuple[tuple[str | int, ...], str, Reference]]:
        """Every reference in plain data: (path of the text, the text, the reference); raises ExpressionError."""
        found: list[tuple[tuple[str | int, ...], str, Reference]] = []
        for path, text in texts(value):
            if bare or is_dynamic(text):
                compiled = self.expression(text) if bare else self.text(text)
                found.extend((path, text, reference) for reference in compiled.references)
        return found


def texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every string in plain data with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))


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
GLOBALS = frozenset({"range", "dict", "namespace"})
"""Top-level names that are always there."""


class UnknownValueError(ExpressionError):
    """A value that can only be known later (an output of a step that has not run, a fact of a host not contacted)."""

    def __init__(self, name: str, because: str = "") -> None:
        super().__init__(f"{name} is not known yet" + (f": {because}" if because else ""), name)
        self.name = name
        self.because = because


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

"""The Jinja2 environment of expressions: nothing but data can be reached, and no value or loop grows without end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinMethodType, MethodType
from typing import Any, Final

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateSyntaxError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import _PassArg, missing
from markupsafe import Markup

from kubexm_exec.values import guards
from kubexm_exec.values.filters import FILTERS, TESTS
from kubexm_exec.values.limits import MOST_BITS, SCALARS, Budget, fit, weighed
from kubexm_exec.values.names import BUDGET, MAPPING_METHODS, Explained, MissingValueError, Namespace
from kubexm_spec.regex import RegexError, regex

_LOOP: Final = " loop"
_TEXT: Final = " text"
_PLAIN: Final = (nodes.Const, nodes.TemplateData, nodes.Concat, nodes.Compare, nodes.Not, nodes.Test)
_BITS_A_DIGIT: Final = 4


class _Context(Context):
    """One rendering; what it includes or imports is on the same budget."""

    def __init__(self, environment: Any, parent: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(environment, parent, *args, **kwargs)
        budget: Budget | None = parent.get(BUDGET)
        if budget is None:
            budget = parent[BUDGET] = Budget()
        self.budget = budget


class _Generator(CodeGenerator):
    """What Jinja2 writes as plain Python, by way of the environment where it could make or compare without end."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """``a ~ b``."""
        self.write("environment.concatenated(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """``a[1:2]``, which is a copy, and ``a[b]``."""
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.sliced(context, ")
        self.visit(node.node, frame)
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            self.visit(bound or nodes.Const(None), frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """``a == b``; a comparison goes only as far as both sides are lists or mappings."""
        plain = isinstance(node.expr, _PLAIN)
        self.write("(")
        self._weigh(node.expr, frame, not plain and any(operand.op in ("in", "notin") for operand in node.ops))
        for operand in node.ops:
            self.write(f" {_OPERATORS[operand.op]} ")
            self._weigh(operand.expr, frame, not plain and not _is_flat(operand.expr))
            plain = isinstance(operand.expr, _PLAIN)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """``{a: b}``, whose keys are hashed."""
        self.write("{")
        for pair in node.items:
            self._weigh(pair.key, frame, not isinstance(pair.key, _PLAIN))
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("}")

    def _weigh(self, node: nodes.Expr, frame: Frame, wanted: bool) -> None:
        self.write("environment.weighed(" if wanted else "")
        self.visit(node, frame)
        self.write(")" if wanted else "")


def _is_flat(node: nodes.Expr) -> bool:
    """Whether nothing is inside a value but what is written there."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, _PLAIN) for item in node.items)
    return isinstance(node, _PLAIN)


_OPERATORS: Final = {
    "eq": "==", "ne": "!=", "gt": ">", "gteq": ">=", "lt": "<", "lteq": "<=", "in": "in", "notin": "not in",
}  # fmt: skip


class _Formatter(guards.MeasuredFormatter, SandboxedFormatter):
    pass


class _EscapeFormatter(guards.MeasuredFormatter, SandboxedEscapeFormatter):
    pass


_KINDS: Final = {
    "str": "a text", "int": "a number", "float": "a number", "bool": "true or false", "NoneType": "null",
    "list": "a list", "tuple": "a list", "dict": "a mapping",
}  # fmt: skip


def kind_of(name: str) -> str:
    """What people call the values of a type."""
    return _KINDS.get(name, f"a {name}")


class Missing(StrictUndefined):
    """A name that is not there; using it says what is there instead. What is inside of it is not there either."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__":
            raise AttributeError(name)
        return self

    def __getitem__(self, *args: Any) -> Any:
        return self

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint or self._undefined_obj is missing:
            return super()._undefined_message
        name: Any = self._undefined_name  # jinja2 says that it is a text
        if isinstance(name, int) and isinstance(self._undefined_obj, list | tuple | str):
            return f"there is no item {name} in it; it has {len(self._undefined_obj)}, from 0"
        if not isinstance(self._undefined_obj, Mapping):
            return f"there is no {self._undefined_name!r} in it; it is {kind_of(type(self._undefined_obj).__name__)}"
        if isinstance(self._undefined_obj, Explained):
            return self._undefined_obj._missing(str(self._undefined_name))
        from kubexm_spec.diagnostics import did_you_mean

        keys = [str(key) for key in self._undefined_obj]
        guess = did_you_mean(str(self._undefined_name), keys)
        there = ", ".join(keys[:8]) + (", ..." if len(keys) > 8 else "")
        return f"there is no {self._undefined_name!r} in it; " + (
            guess or (f"it has {there}" if keys else "it is empty")
        )


class Sandbox(ImmutableSandboxedEnvironment):
    """Looks names up as keys before attributes, and refuses to make huge values or to work without end."""

    context_class = _Context
    code_generator_class = _Generator
    intercepted_binops = frozenset(["*", "**", "+", "%", "//"])
    weighed = staticmethod(weighed)

    def __init__(self, **options: Any) -> None:
        # Not optimized: filters of constants would be evaluated while compiling, without a budget.
        super().__init__(
            undefined=Missing,
            keep_trailing_newline=True,
            autoescape=False,
            finalize=_counted,
            optimized=False,
            **options,
        )
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)
        self.filters.update(FILTERS)
        self.filters = {name: guards.guarded(name, function) for name, function in self.filters.items()}
        self.filters[_LOOP] = _rounds
        self.filters[_TEXT] = _text
        self.tests.update(TESTS)
        tests: dict[str, Any] = self.tests
        for name in (*guards.COMPARING, *TESTS):
            tests[name] = guards.guarded_test(tests[name])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute``: a key of a mapping before a method of it."""
        if type(obj) is dict or isinstance(obj, Mapping):
            try:
                return obj[attribute]
            except KeyError:
                if isinstance(obj, Namespace) and attribute not in MAPPING_METHODS:
                    return self.undefined(hint=obj.missing(attribute), name=attribute)
            except MissingValueError as error:
                # A value that is an expression itself: who uses it may forgive that something in it is not there.
                return self.undefined(hint=error.message, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]``."""
        if type(argument) is str:
            if type(obj) is dict and argument in obj:
                return obj[argument]
            if isinstance(obj, Namespace):
                return self.getattr(obj, argument)
        elif type(argument) not in SCALARS:
            weighed(argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make a large value out of small ones."""
        if operator == "+":
            if type(left) is not int:
                guards.added(left, right)
        elif operator == "*":
            guards.multiplied(left, right)
        elif operator == "**":
            guards.powered(left, right)
        elif operator == "%" and isinstance(left, str):
            guards.formatted(left, right)
        else:
            guards.divided(left, right)
        return context.budget.made(self.binop_table[operator](left, right))

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call of a text comes by here."""
        budget = context.budget
        budget.spend(10)
        if type(obj) is BuiltinMethodType:
            args = guards.foreseen(obj.__name__, obj.__self__, args, kwargs, budget)
        elif isinstance(obj, type) or isinstance(getattr(obj, "__self__", None), LoopContext):
            for arg in args:
                weighed(arg)
        return budget.made(super().call(context, obj, *args, **kwargs))

    def _filter_test_common(
        self, name: Any, value: Any, args: Any, kwargs: Any, context: Any, eval_ctx: Any, is_filter: bool
    ) -> Any:
        """A filter or a test for each item, as ``map`` and ``select`` have them."""
        if context is not None:
            budget = context.budget
            budget.rounds -= 1
            if not budget.rounds & 7:
                budget.spend(0)
        if type(name) is str:
            function: Any = (self.filters if is_filter else self.tests).get(name)
            passed = getattr(function, "jinja_pass_arg", None)
            if function is not None and passed is None:
                return function(value, *(args or ()), **(kwargs or {}))
            if passed is _PassArg.context and context is not None:
                return function(context, value, *(args or ()), **(kwargs or {}))
        return super()._filter_test_common(weighed(name), value, args, kwargs, context, eval_ctx, is_filter)

    def concatenated(self, context: Any, parts: tuple[Any, ...]) -> str:
        """``a ~ b``."""
        texts = [part if type(part) is str else str(weighed(part)) for part in parts]
        fit(sum(map(len, texts)))
        text: str = context.budget.made("".join(texts))
        return text

    def sliced(self, context: Any, obj: Any, start: Any, stop: Any, step: Any) -> Any:
        """``obj[start:stop:step]``."""
        return context.budget.made(obj[start:stop:step])

    def wrap_str_format(self, value: Any) -> Any:
        """``"...".format``, which is found here before it is called."""
        if not isinstance(value, BuiltinMethodType | MethodType) or value.__name__ not in ("format", "format_map"):
            return None
        name, template = value.__name__, value.__self__
        if not isinstance(template, str):
            return None

        def wrapper(*args: Any, **kwargs: Any) -> str:
            if name == "format_map":
                (kwargs,), args = args, ()
            formatter = (
                _EscapeFormatter(self, escape=template.escape) if isinstance(template, Markup) else _Formatter(self)
            )
            return type(template)(formatter.vformat(template, args, kwargs))

        return wrapper

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        if len(source) * _BITS_A_DIGIT > MOST_BITS:
            for const in tree.find_all(nodes.Const):
                if isinstance(const.value, int) and const.value.bit_length() > MOST_BITS:
                    raise TemplateSyntaxError("a number in it has too many digits", const.lineno, name, filename)
        if "regex_" in source:
            for node in tree.find_all(nodes.Filter):
                _check_pattern(node, name, filename)
        parts: list[Any] = [tree]
        if "{%" in source:  # only there loops and blocks can be
            self._count_rounds(tree, name, filename)
            parts += tree.find_all(nodes.Block)
        if name is not None:  # others may include it
            self._count_text(parts)
        return tree

    def _count_rounds(self, tree: nodes.Template, name: str | None, filename: str | None) -> None:
        """Have rounds of loops counted, and the text that stands in them."""
        for loop in list(tree.find_all(nodes.For)):
            if loop.recursive:
                raise TemplateSyntaxError("recursive loops are not allowed", loop.lineno, name, filename)
            size = nodes.Const(_characters(loop.body))
            loop.iter = nodes.Filter(loop.iter, _LOOP, [size], [], None, None, lineno=loop.lineno)

    def _count_text(self, parts: list[Any]) -> None:
        """Have the text counted that stands in a template and its blocks."""
        for part in parts:
            characters = nodes.Const(_characters(part.body), lineno=1)
            counted = nodes.Filter(characters, _TEXT, [], [], None, None, lineno=part.lineno)
            part.body.insert(0, nodes.ExprStmt(counted, lineno=part.lineno))


def _characters(body: list[nodes.Node]) -> int:
    """How long the text is that stands there, without what is counted by itself."""
    total = 0
    for node in body:
        if isinstance(node, nodes.TemplateData):
            total += len(node.data)
        elif not isinstance(node, nodes.For | nodes.Block | nodes.Macro):
            total += _characters(list(node.iter_child_nodes()))
    return total


def _check_pattern(node: nodes.Filter, name: str | None, filename: str | None) -> None:
    """Refuse a pattern that is written there and cannot be read."""
    args = node.args
    if node.name == "map" and args and isinstance(args[0], nodes.Const) and str(args[0].value).startswith("regex_"):
        args = args[1:]
    elif not node.name.startswith("regex_"):
        return
    given = args[0] if args else next((pair.value for pair in node.kwargs if pair.key == "pattern"), None)
    if isinstance(given, nodes.Const) and isinstance(given.value, str):
        try:
            regex(given.value)
        except RegexError as error:
            raise TemplateSyntaxError(
                f"{given.value!r} is not a pattern: {error}", node.lineno, name, filename
            ) from None


@pass_context
def _rounds(context: Any, items: Iterable[Any], characters: int) -> Iterator[Any]:
    budget: Budget = context.budget
    return budget.counted(items, characters)


@pass_context
def _text(context: Any, characters: int) -> None:
    context.budget.spend(10)
    context.budget.written(characters)


@pass_context
def _counted(context: Any, value: Any) -> Any:
    if type(value) is not str:
        if type(value) in SCALARS or isinstance(value, StrictUndefined):
            return value
        value = str(weighed(value))
    budget = context.budget
    budget.characters -= len(value)
    if budget.characters < 0:
        budget.written(0)
    return value

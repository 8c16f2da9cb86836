"""Makes expressions that try to take all memory or time, and evaluates them in a process that has little of both."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from random import Random
from typing import Any, Final, NamedTuple

MEMORY: Final = 512 << 20
SECONDS: Final = 5

TEXTS: Final = [
    "('a' * 4000000)",
    "('a' * 16000000)",
    "('\U0001f600' * 3000000)",
    "('\\x00' * 3000000)",
    "('a b' * 1500000)",
    "('ab ' * 40000)",
    "('a,' * 2000000)",
    "('\\n' * 2000000)",
    "('\\t' * 2000000)",
    "('<a b=' * 300000)",
    "('&' * 3000000)",
    "('%s' * 100000)",
    "('%(a)s' * 100000)",
    "('{}' * 100000)",
    "('{0}' * 100000)",
    "('[' * 1000000)",
    "('f' * 3000000)",
    "('9' * 1000000)",
    "('-' * 300000)",
    "(('ab' ~ 'a' * 2000000))",
    "('a.' * 1000000)",
    "('\u00e4-' * 500000)",
    "'%1000000000d'",
    "'%.1000000000f'",
    "'%*d'",
    "'{:>1000000000}'",
    "'{:{}}'",
    "'{0!r:>99999999}'",
    "'(a+)+$'",
    "'(a|b)*a(a|b){900}c'",
    "'(a*)*|b'",
    "'a*b|a'",
    "''",
    "'a'",
    "'x'",
]
NUMBERS: Final = [
    "0", "1", "-1", "2", "3", "16", "40", "1.5", "1e308", "(10 ** 9)", "(-(10 ** 9))", "(10 ** 18)", "(10 ** 4000)",
    "('f' * 3000000) | int(base=16)", "100000", "1000000", "true", "none",
]  # fmt: skip
LISTS: Final = [
    "([0] * 1000000)",
    "(['a' * 10000] * 100000)",
    "([['a'] * 1000] * 1000)",
    "([[[[['a'] * 1000] * 1000] * 1000] * 1000])",
    "(range(100000) | list)",
    "range(100000)",
    "(range(100000) | map('string'))",
    "(range(100000) | map('string') | map('center', 999))",
    "('a' * 1000000) | list",
    "{'a': 'x' * 1000000}",
    "{97: 'x' * 1000000}",
    "{'a': [0] * 1000000}",
    "dict.fromkeys(range(100000), 'x' * 1000)",
    "(((((0,) * 1000,) * 1000,) * 1000,) * 1000,)",
    "[]",
    "['a', 'b']",
    "vars.deep",
    "vars.other",
    "vars.tuple",
    "[vars] * 1000000",
    "vars",
]
ARGUMENTS: Final = [
    "'a'",
    "attribute='a'",
    "attribute='a.' * 100000",
    "'upper'",
    "'string'",
    "'center', 9999",
    "'list'",
]
OPERATORS: Final = ["*", "+", "-", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
BODIES: Final = [
    "{{ A }}",
    "{{ A if B else C }}",
    "{{ (A)[1:] ~ (B)[::-1] }}",
    "{{ [A, A][1:] | list }}",
    "{% set x = A %}{% set y = B %}{{ x == y }}{{ x in [y] }}{{ x < y }}",
    "{% set n = namespace(x=A) %}{% for i in range(60) %}{% set n.x = n.x OP n.x %}{% endfor %}{{ n.x == B }}",
    "{% set n = namespace(x=A) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x FILTER }}",
    "{% set n = namespace(x=0, y=0) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% set n.y = (n.y, n.y) %}"
    "{% endfor %}{{ n.x == n.y }}",
    "{% set n = namespace(x=0) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}",
    "{% set n = namespace(x=()) %}{% for i in range(99999) %}{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} FILTER }}",
    "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = n.x + [A] %}{% endfor %}",
    "{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = n.x + [(A)[i:]] %}{% endfor %}",
    "{% set n = namespace(x={}) %}{% for i in range(999) %}{% set n.x = dict(n.x, a=n.x, b=n.x) %}{% endfor %}{{ n }}",
    "{% for i in A %}{% for j in B %}{{ C }}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ A }}{% endfor %}",
    "{% for i in range(99999) %}{% if A == B %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}" + "constant text " * 1000 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}{{ x ~ x }}",
    "{% macro f(a, b) %}{{ f(a OP b, A) }}{% endmacro %}{{ f(A, B) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "{% for i in A %}{% if loop.changed(B) %}{{ loop.cycle(A, B) }}{% endif %}{{ loop.length }}{% endfor %}",
    "{% filter upper %}{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}{% endfilter %}",
    "{% call(x) f() %}{% endcall %}{% macro f() %}{% for i in range(99999) %}{{ caller(A) }}{% endfor %}{% endmacro %}",
]


class Names(NamedTuple):
    """What the sandbox has."""

    filters: list[str]
    tests: list[str]
    methods: list[tuple[str, str]]
    """The kind of the owner, and the name."""


def names() -> Names:
    """Every filter, test and method that can be written, as the environment itself has them."""
    from kubexm_exec.values.sandbox import Sandbox

    sandbox = Sandbox()
    owners = {"text": "", "list": [], "tuple": (), "mapping": {}, "number": 1, "float": 1.5, "bytes": b""}
    return Names(
        sorted(name for name in sandbox.filters if not name.startswith(" ")),
        sorted(name for name in sandbox.tests if name.isidentifier()),
        [(kind, name) for kind, owner in owners.items() for name in dir(owner) if not name.startswith("_")],
    )


class Maker:
    """Makes expressions; every filter, test and method in turn, and combinations at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = names()

    def value(self, depth: int = 1) -> str:
        """Any value."""
        pick = self.random.random()
        if depth and pick < 0.25:
            return self.operation(depth - 1)
        return self.random.choice(TEXTS if pick < 0.6 else NUMBERS if pick < 0.8 else LISTS)

    def arguments(self) -> str:
        """Some arguments."""
        count = self.random.choice([0, 1, 1, 2, 2, 3])
        return ", ".join(
            self.random.choice(ARGUMENTS) if self.random.random() < 0.2 else self.value(0) for _ in range(count)
        )

    def filter(self, name: str, depth: int = 0) -> str:
        """A value through that filter."""
        return f"(({self.value(depth)}) | {name}({self.arguments()}))"

    def test(self, name: str) -> str:
        """That test of a value."""
        return f"(({self.value(0)}) is {name}({self.value(0)}))"

    def method(self, kind: str, name: str) -> str:
        """That method of a value."""
        owners = {
            "text": TEXTS,
            "bytes": [f"({text}).encode()" for text in TEXTS],
            "number": NUMBERS,
            "float": ["1.5"],
            "mapping": [one for one in LISTS if one[0] in "{d"],
            "list": [one for one in LISTS if one[0] == "("],
            "tuple": ["vars.tuple", "((0,) * 1000000)"],
        }
        owner = self.random.choice(owners[kind])
        return f"(({owner}).{name}({self.arguments()}))"

    def operation(self, depth: int) -> str:
        """Any operation."""
        choice = self.random.choice
        pick = self.random.random()
        if pick < 0.45:
            return self.filter(choice(self.names.filters), depth)
        if pick < 0.75:
            return self.method(*choice(self.names.methods))
        if pick < 0.8:
            return self.test(choice(self.names.tests))
        return f"(({self.value(depth)}) {choice(OPERATORS)} ({self.value(depth)}))"

    def programs(self) -> list[str]:
        """Texts with loops, macros and the like around operations: one of each kind."""
        return [self.program(body) for body in BODIES]

    def program(self, body: str) -> str:
        """A text of that kind; capital letters in it stand for values."""
        text = re.sub(r"\b[ABC]\b", lambda _: self.value(), body)
        text = text.replace(" OP ", f" {self.random.choice(['+', '*', '~', '**'])} ")
        return text.replace(" FILTER", f" | {self.random.choice(self.names.filters)}({self.arguments()})")

    def operations(self, count: int) -> list[str]:
        """Combinations of operations."""
        return [_text(self.operation(2)) for _ in range(count)]

    def each(self) -> list[str]:
        """Every filter, test and method once."""
        return [
            *(_text(self.filter(name)) for name in self.names.filters),
            *(_text(self.test(name)) for name in self.names.tests),
            *(_text(self.method(*method)) for method in self.names.methods),
        ]


def _text(expression: str) -> str:
    return "{{ " + expression + " }}"


class Outcome(NamedTuple):
    """What became of an expression."""

    text: str
    seconds: float
    error: str


def evaluated(texts: list[str]) -> list[Outcome]:
    """Evaluate them one after another in a process of their own; one that it does not survive has an error ``died``."""
    done: list[Outcome] = []
    while len(done) < len(texts):
        child = subprocess.run(
            [sys.executable, "-m", "tests.expr.hostile"],
            input=json.dumps(texts[len(done) :]),
            capture_output=True,
            text=True,
            check=False,
        )
        done += [Outcome(*json.loads(line)) for line in child.stdout.splitlines()]
        if len(done) < len(texts):
            done.append(Outcome(texts[len(done)], 0.0, f"died: {child.returncode} {child.stderr[-500:]}"))
    return done


def _context() -> dict[str, Any]:
    from kubexm_exec.values.names import Namespace

    deep: list[Any] = []
    other: list[Any] = []
    shared: tuple[Any, ...] = ()
    for _ in range(60):
        deep, other, shared = [deep, deep], [other, other], (shared, shared)
    values = {"deep": deep, "other": other, "tuple": shared, "text": "a" * 1000, "a": "a" * 1000000}
    return {"vars": Namespace("vars", values, values.__getitem__)}


def _main() -> None:
    from kubexm_exec.values.expressions import ExpressionError, Expressions

    texts = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = _context()
    for text in texts:
        error = ""
        expressions = Expressions()
        signal.setitimer(signal.ITIMER_PROF, SECONDS * 2)  # a process that hangs in C ends here
        began = time.thread_time()
        try:
            expressions.text(text)(names)
        except ExpressionError as wrong:
            error = wrong.message
        sys.stdout.write(json.dumps([text, time.thread_time() - began, error[:300]]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()

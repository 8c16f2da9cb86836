"""Step types that are missing, claimed twice, broken or not what they say: only specs that use them are harmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import field_validator

from kubexm_exec.compile import Compilation, compile_file
from kubexm_exec.plugins import PluginInfo, Registry, RegistryError, step_registry
from kubexm_exec.step import Forecast, Outputs, Params, Result, Step, StepContext, load_step
from tests.compile.kit import Spec


class HelloParams(Params):
    """Parameters of the step."""

    name: str
    times: int = 1


class HelloOutputs(Outputs):
    """Outputs of the step."""

    greeting: str


class Hello(Step[HelloParams]):
    """Says hello."""

    outputs_model = HelloOutputs

    def run(self, ctx: StepContext, forecast: Forecast[Any]) -> Result:
        return Result()


class CarelessParams(Params):
    """Parameters with a validator that breaks."""

    name: str

    @field_validator("name")
    @classmethod
    def _look(cls, value: str) -> str:
        raise KeyError(value)


class Careless(Step[CarelessParams]):
    """Breaks when its parameters are looked at."""

    def run(self, ctx: StepContext, forecast: Forecast[Any]) -> Result:
        return Result()


class OddParams(Params):
    """Parameters of a type that nobody can check."""

    stream: StepContext


class Odd(Step[OddParams]):
    """Cannot be given its parameters."""

    def run(self, ctx: StepContext, forecast: Forecast[Any]) -> Result:
        return Result()


class InMemory(Registry[Any]):
    """Step types that were never installed."""

    def __init__(self, **types: Any) -> None:
        super().__init__("tests", "step type")
        self.types = types

    def names(self) -> list[str]:
        return sorted(self.types)

    def info(self, name: str) -> PluginInfo:
        if name not in self.types:
            raise RegistryError("unknown-step-type", f'there is no step type "{name}"', "")
        return PluginInfo(name, "tests", "acme-steps", "1.0")

    def load(self, name: str) -> Any:
        self.info(name)
        found = self.types[name]
        if isinstance(found, Exception):
            raise found
        return found


TYPES = InMemory(
    hello=Hello,
    careless=Careless,
    odd=Odd,
    function=len,
    twice=RegistryError(
        "ambiguous-step-type", 'step type "twice" is claimed by a and b', "uninstall one of the packages"
    ),
    broken=RegistryError(
        "broken-step-type", 'step type "broken" of package acme cannot be loaded: ImportError', "repair it"
    ),
)


def compiled(spec: Spec, *steps: str) -> Compilation:
    body = "".join(f"          - {step}\n" for step in steps)
    spec.write(f"modules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n{body}")
    return compile_file(spec.path, steps=TYPES)


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        ("{name: s, type: careless, with: {name: x}}", "broken-step-type", "KeyError"),
        ("{name: s, type: odd}", "broken-step-type", "cannot be used: PydanticSchemaGenerationError: Unable to"),
        ("{name: s, type: function, with: {}}", "broken-step-type", "is no Step class"),
        ("{name: s, type: twice}", "ambiguous-step-type", "claimed by a and b"),
        ("{name: s, type: broken}", "broken-step-type", "cannot be loaded"),
    ],
)
def test_a_type_that_cannot_be_used_is_told_where_it_is_used(spec: Spec, step: str, code: str, words: str) -> None:
    result = compiled(spec, "{name: first, type: hello, with: {name: x}}", step)
    (finding,) = result.diagnostics
    assert finding.code == code
    assert words in finding.summary
    assert finding.hint
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (10, 29)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("pass", "Plain has no `run`"),
        ("def run(self, ctx): ...", r"Plain\.run takes \(self, ctx, forecast\)"),
        ("undo = True\n    def run(self, ctx, forecast): ...", r"Plain\.undo must be an Undo, .*, not True"),
        (
            "undo = Undo.ONCE\n    def run(self, ctx, forecast): ...",
            r"Plain\.undo is Undo\.ONCE, but it has no `rollback`",
        ),
        (
            "def run(self, ctx, forecast): ...\n    def rollback(self, ctx, undo): ...",
            r"Plain has a `rollback`, but undo is Undo\.IMPOSSIBLE",
        ),
    ],
)
def test_a_wrong_class_is_refused_when_it_is_loaded_and_harms_no_other_of_its_module(
    body: str, wrong: str, plug_in: Callable[[str, str], None]
) -> None:
    head = "from kubexm_exec.step import Params, Result, Step, Undo\n"
    good = "class Good(Step[Params]):\n    def run(self, ctx, forecast): return Result()\n"
    plug_in(
        "kubexm.steps]\ngood = acme_plain:Good\n[kubexm.steps", f"{head}class Plain(Step[Params]):\n    {body}\n{good}"
    )
    registry = step_registry()
    with pytest.raises(
        RegistryError, match=f'"plain" of package acme-plain cannot be used: acme_plain.{wrong}'
    ) as caught:
        load_step(registry, "plain")
    assert caught.value.code == "broken-step-type"
    assert load_step(registry, "good").__name__ == "Good"


def test_a_broken_package_does_not_harm_specs_that_do_not_use_it(spec: Spec) -> None:
    result = compiled(spec, "{name: s, type: hello, with: {name: x, times: 3}}")
    assert result.graph is not None
    assert not len(result.diagnostics)


def test_outputs_of_a_third_party_are_known_by_its_model(spec: Spec) -> None:
    result = compiled(
        spec,
        "{name: s, type: hello, with: {name: x}}",
        '{name: u, type: hello, with: {name: "{{ steps.s.outputs.greeting }}"}}',
        '{name: v, type: hello, with: {name: "{{ steps.s.outputs.greting }}"}}',
    )
    assert [(f.code, f.hint) for f in result.diagnostics] == [("unknown-output", 'did you mean "greeting"?')]


def test_parameters_of_a_third_party_are_checked_as_far_as_they_are_known(spec: Spec) -> None:
    result = compiled(
        spec,
        '{name: s, type: hello, with: {name: "{{ facts.hostname }}", times: "{{ 1 + 1 }}"}}',
        '{name: u, type: hello, with: {name: "{{ facts.hostname }}", times: "{{ \'many\' }}", tims: 1}}',
    )
    assert [(f.code, f.span and f.span.column) for f in result.diagnostics.sorted()] == [
        ("wrong-value", 80),
        ("unknown-key", 96),
    ]


def test_a_connector_that_is_claimed_twice_is_told_at_the_host(spec: Spec) -> None:
    class Connectors(InMemory):
        def info(self, name: str) -> PluginInfo:
            raise RegistryError("ambiguous-connector", f'connector "{name}" is claimed by a and b', "uninstall one")

    spec.write(
        "inventory: {hosts: [{name: a, connector: odd}]}\n"
        "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: hello, with: {name: x}}]}]}]\n"
    )
    (finding,) = compile_file(spec.path, steps=TYPES, connectors=Connectors()).diagnostics
    assert finding.code == "ambiguous-connector"
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (4, 42)

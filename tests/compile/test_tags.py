"""The tags always and never: what runs whatever is selected, and what must be asked for."""

from __future__ import annotations

import pytest

from tests.compile.kit import Spec

SPEC = """
hooks:
  pre:
    - {name: debug, type: message, tags: [never, debug], with: {text: x}}
    - {name: plain, type: message, with: {text: x}}
modules:
  - name: web
    tags: [web]
    tasks:
      - name: t
        hostHooks: {pre: [{name: out, type: message, with: {text: x}}]}
        steps:
          - {name: facts, type: message, tags: [always], with: {text: x}}
          - {name: conf, type: message, tags: [conf], with: {text: x}}
          - {name: trace, type: message, tags: [debug, never], with: {text: x}, notify: restart}
        handlers: [{name: restart, type: message, tags: [never, restart], with: {text: x}}]
  - name: db
    tasks:
      - name: migrate
        tags: [never, migrate]
        hooks: {pre: [{name: stop, type: message, with: {text: x}}]}
        hostHooks: {pre: [{name: out, type: message, with: {text: x}}]}
        steps:
          - name: a
            type: message
            tags: [schema]
            with: {text: x}
            hooks: {pre: [{name: before, type: message, with: {text: x}}]}
          - {name: b, type: message, tags: [never, data], with: {text: x}}
"""
HOOKS = {"hooks/pre/plain"}
HOST = "web/t/hostHooks/pre/out"
AROUND = {"db/migrate/hostHooks/pre/out", "db/migrate/hooks/pre/stop"}
MIGRATE = {"db/migrate/a", "db/migrate/a/hooks/pre/before", *AROUND}


def chosen(spec: Spec, tags: str, skip: str) -> set[str]:
    options = {"tags": frozenset(tags.split()), "skip_tags": frozenset(skip.split())}
    return {node.id for node in spec.write(SPEC).graph(**options).steps() if not node.skip} - HOOKS


@pytest.mark.parametrize(
    ("tags", "skip", "runs"),
    [
        ("", "", {"web/t/facts", "web/t/conf", HOST}),
        ("conf", "", {"web/t/facts", "web/t/conf", HOST}),
        ("conf", "always", {"web/t/conf", HOST}),
        ("", "always", {"web/t/conf", HOST}),
        ("web", "", {"web/t/facts", "web/t/conf", HOST}),
        ("web", "web", set()),
        ("always", "", {"web/t/facts", HOST}),
        ("debug", "", {"web/t/facts", "web/t/trace", "hooks/pre/debug", HOST}),
        ("debug restart", "", {"web/t/facts", "web/t/trace", "hooks/pre/debug", "web/t/handlers/restart", HOST}),
        ("migrate", "", {"web/t/facts", HOST, *MIGRATE}),
        ("schema", "", {"web/t/facts", HOST, *MIGRATE}),
        ("migrate data", "", {"web/t/facts", HOST, *MIGRATE, "db/migrate/b"}),
        ("data", "", {"web/t/facts", HOST, "db/migrate/b", *AROUND}),
        (
            "never",
            "always",
            {"web/t/trace", "hooks/pre/debug", "web/t/handlers/restart", HOST, *MIGRATE, "db/migrate/b"},
        ),
        ("debug", "never", {"web/t/facts", HOST}),
    ],
)
def test_what_runs(spec: Spec, tags: str, skip: str, runs: set[str]) -> None:
    assert chosen(spec, tags, skip) == runs


def test_a_tag_around_a_step_that_never_runs_does_not_ask_for_it(spec: Spec) -> None:
    assert "web/t/trace" not in chosen(spec, "web", "")
    assert "db/migrate/b" not in chosen(spec, "migrate", "")


def test_why_a_step_is_left_out_is_said(spec: Spec) -> None:
    graph = spec.write(SPEC).graph()
    assert graph.nodes["web/t/trace"].skip == "it is tagged never, and --tags does not ask for it"

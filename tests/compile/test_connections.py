"""How hosts are reached: what defaults, roles, groups and hosts of an inventory say, put together."""

from __future__ import annotations

from typing import Any

import pytest

from kubexm_exec.compile.hosts import CONNECTION_KEYS
from kubexm_exec.model.graph import ExecutionGraph, GraphHost
from kubexm_spec.models import ConnectionSpec
from tests.compile.kit import Spec

PIPELINE = """
modules:
  - name: site
    tasks:
      - {name: hello, steps: [{name: hi, type: message, with: {text: hi}}]}
"""


def inventory(spec: Spec, text: str) -> Spec:
    lines = "".join(f"  {line}\n" for line in text.strip("\n").splitlines())
    return spec.write(f"inventory:\n{lines}{PIPELINE}")


def host(spec: Spec, text: str, name: str = "a") -> GraphHost:
    return inventory(spec, text).graph().hosts[name]


def errors(spec: Spec, text: str) -> list[tuple[str, int]]:
    """Codes and lines, counted within the inventory."""
    found = inventory(spec, text).compile().diagnostics.errors
    return [(error.code, error.span.line - 4) for error in found if error.span is not None]


def test_every_setting_of_a_connection_is_merged() -> None:
    assert set(CONNECTION_KEYS) == set(ConnectionSpec.model_fields)


def test_a_role_says_how_its_hosts_are_reached(spec: Spec) -> None:
    text = """
roles:
  web: {user: deploy, port: 2222, privateKeyPath: /k, passphrase: "env:P", become: true, perHostLimit: 3}
hosts: [{name: a, roles: [web]}, {name: b}]
"""
    one, other = host(spec, text), host(spec, text, "b")
    assert (one.user, one.port, one.per_host_limit) == ("deploy", 2222, 3)
    assert one.options == {"privateKeyPath": "/k", "passphrase": "env:P", "become": True}
    assert (other.user, other.port, other.options) == (None, None, {})


def test_a_task_or_step_says_as_whom_it_works(spec: Spec) -> None:
    spec.write("""
modules:
  - name: m
    tasks:
      - {name: plain, steps: [{name: s, type: command, with: {argv: [id]}}]}
      - name: t
        become: postgres
        hooks: {always: [{name: h, type: command, with: {argv: [id]}}]}
        steps:
          - {name: inherits, type: command, with: {argv: [id]}}
          - {name: root, type: command, become: true, with: {argv: [id]}}
          - {name: login, type: command, become: false, with: {argv: [id]}}
""")
    graph = spec.graph()
    expected = {
        "m/plain/s": None, "m/t/inherits": "postgres", "m/t/root": True, "m/t/login": False,
        "m/t/hooks/always/h": "postgres",
    }  # fmt: skip
    assert {node.id: node.become for node in graph.steps()} == expected
    assert {node.id: node.become for node in ExecutionGraph.from_json(graph.to_json()).steps()} == expected


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ('"{{ vars.x }}"', "should be the name of a user, written out"),
        ('""', "should be the name of a user, written out"),
        ("-u", "should be the name of a user, written out"),
        ("[root]", "should be a text or true or false"),
        ("{user: root}", "should be a text or true or false"),
    ],
)
def test_whom_a_step_works_as_is_a_name_that_is_written_out(spec: Spec, word: str, said: str) -> None:
    step = f"{{name: s, type: command, become: {word}, with: {{argv: [id]}}}}"
    spec.write(f"modules: [{{name: m, tasks: [{{name: t, steps: [{step}]}}]}}]")
    [error] = spec.compile().diagnostics.errors
    assert said in error.summary


def test_a_role_that_a_group_gives_says_so_too(spec: Spec) -> None:
    text = "roles: {web: {user: deploy}}\ngroups: {site: {hosts: [a], roles: [web]}}\nhosts: [{name: a}]"
    assert host(spec, text).user == "deploy"


@pytest.mark.parametrize(
    ("without", "user"),
    [((), "host"), (("host",), "group"), (("host", "group"), "role"), (("host", "group", "role"), "all")],
)
def test_the_host_wins_over_its_group_and_that_over_its_role_and_that_over_the_defaults(
    spec: Spec, without: tuple[str, ...], user: str
) -> None:
    def says(level: str) -> str:
        return "" if level in without else f", user: {level}"

    text = f"""
defaults: {{user: all, port: 1}}
roles: {{web: {{port: 2{says("role")}}}}}
groups: {{site: {{hosts: [a]{says("group")}}}}}
hosts: [{{name: a, roles: [web]{says("host")}}}]
"""
    found = host(spec, text)
    assert (found.user, found.port) == (user, 2)


@pytest.mark.parametrize("listed", ["[web, db]", "[db, web]"])
@pytest.mark.parametrize("kind", ["roles", "groups"])
def test_of_several_that_disagree_the_one_written_last_in_the_inventory_decides(
    spec: Spec, kind: str, listed: str
) -> None:
    shared: dict[str, Any] = {
        "roles": f"roles: {{web: {{user: web, port: 1}}, db: {{user: db}}}}\nhosts: [{{name: a, roles: {listed}}}]",
        "groups": "groups: {web: {hosts: [a], user: web, port: 1}, db: {hosts: [a], user: db}}\nhosts: [{name: a}]",
    }
    found = host(spec, shared[kind])
    assert (found.user, found.port) == ("db", 1)


def test_what_a_role_says_wrongly_is_found_where_it_is_written(spec: Spec) -> None:
    text = """roles:
  web:
    port: 0
    password: hunter2
    connector: telnet
hosts: [{name: a}]
"""
    assert errors(spec, text) == [("wrong-value", 3)]
    assert errors(spec, text.replace("port: 0", "port: 1")) == [("plain-password", 4), ("unknown-connector", 5)]


@pytest.mark.parametrize("jump", ["", ",,", "root@127.0.0.11:notaport"])
def test_a_gateway_that_cannot_be_one_is_found_before_anything_runs(spec: Spec, jump: str) -> None:
    assert errors(spec, f'hosts:\n  - name: a\n    proxyJump: "{jump}"') == [("wrong-value", 3)]


@pytest.mark.parametrize(
    ("weak", "strong", "options"),
    [
        ("proxyJump: a", "proxyCommand: nc %h %p", {"proxyCommand": "nc %h %p"}),
        ("proxyCommand: nc %h %p", "proxyJump: a", {"proxyJump": "a"}),
        ("proxyCommand: nc %h %p", "user: me", {"proxyCommand": "nc %h %p"}),
    ],
)
def test_the_stronger_of_two_ways_to_make_the_connection_takes_the_place_of_the_other(
    spec: Spec, weak: str, strong: str, options: dict[str, str]
) -> None:
    assert host(spec, f"defaults: {{{weak}}}\nhosts: [{{name: a, {strong}}}]").options == options

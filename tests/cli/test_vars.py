"""vars: what a host sees, where each value is from, and what it hides."""

from __future__ import annotations

import re

import pytest

from tests.cli.kit import Folder

SPEC = """\
params:
  version: {default: "1"}
  count: {type: integer, default: 2}
  token: {type: secret, default: "env:TOKEN"}
vars:
  home: "/srv/{{ host.name }}"
  both: pipeline
  later: "{{ steps.s.status }}"
inventory: hosts.yaml
modules:
  - name: m
    vars: {both: module}
    tasks:
      - name: t
        vars: {both: task, own: 1}
        steps: [{name: s, type: message, with: {text: x}}]
  - {name: u, uses: used.yaml, with: {port: "{{ params.count }}"}}
"""
HOSTS = """\
apiVersion: kubexm.io/v1
kind: Inventory
metadata: {name: i}
vars: {region: eu, both: inventory}
roles: {web: {vars: {both: role}}}
groups: {front: {hosts: [a], vars: {both: group}}}
hosts:
  - {name: a, connector: local, roles: [web], vars: {both: host}}
  - {name: b, connector: local}
"""
USED = """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: used}
params: {port: {type: integer}, other: {default: x}}
vars: {conf: "/etc/{{ params.port }}"}
tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}}]}]
"""


@pytest.fixture
def site(folder: Folder) -> Folder:
    folder.spec(SPEC)
    folder.file("hosts.yaml", HOSTS)
    folder.file("used.yaml", USED)
    return folder


def test_every_value_has_its_source_and_what_it_hides(site: Folder) -> None:
    site.file("values.yaml", "count: 5\n")
    result = site.run(
        "vars", "main.yaml", "--host", "a", "--task", "m/t", "-e", "version=2", "--vars-file", "values.yaml"
    )
    assert result.exit_code == 0, result.output
    assert [re.sub("  +", "  ", line).strip() for line in result.stdout.splitlines()] == [
        "params.count  5  --vars-file at values.yaml:1:8",
        'params.token  "(secret)"  default at main.yaml:7:34',
        'params.version  "2"  command line (-e)',
        'vars.both  "host"  host vars at hosts.yaml:8:60',
        "hides group front at hosts.yaml:6:43",
        "hides role web at hosts.yaml:5:28",
        "hides inventory vars at hosts.yaml:4:26",
        "hides task vars at main.yaml:18:22",
        "hides module vars at main.yaml:15:18",
        "hides pipeline vars at main.yaml:10:9",
        'vars.home  "/srv/a"  pipeline vars at main.yaml:9:9',
        'vars.later  "(known during the run: steps.s)"  pipeline vars at main.yaml:11:10',
        "vars.own  1  task vars at main.yaml:18:33",
        'vars.region  "eu"  inventory vars at hosts.yaml:4:16',
    ]


def test_the_same_as_data(site: Folder) -> None:
    rows = {row["name"]: row for row in site.data("vars", "main.yaml", "--host", "b")}
    assert rows["vars.both"] == {
        "name": "vars.both",
        "value": "inventory",
        "source": "inventory vars at hosts.yaml:4:26",
        "hides": ["pipeline vars at main.yaml:10:9"],
    }
    assert rows["params.count"]["value"] == 2
    assert rows["params.token"]["value"] == "(secret)"


def test_a_used_document_has_values_of_its_own(site: Folder) -> None:
    rows = {row["name"]: row for row in site.data("vars", "main.yaml", "--host", "b", "--task", "u/t")}
    assert {name: row["value"] for name, row in rows.items()} == {
        "params.port": 2,
        "params.other": "x",
        "vars.conf": "/etc/2",
        "vars.both": "inventory",
        "vars.region": "eu",
    }
    assert rows["params.port"]["source"] == "given at main.yaml:20:45"
    assert rows["params.other"]["source"] == "default at used.yaml:4:50"


def test_the_control_node_can_be_looked_from(site: Folder) -> None:
    rows = {row["name"]: row["value"] for row in site.data("vars", "main.yaml", "--host", "control-node")}
    assert rows["vars.home"] == "/srv/control-node"


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("--host", "aa"), "unknown-host", 'did you mean "a"?'),
        (("--host", "a", "--task", "m/tt"), "unknown-scope", 'did you mean "m/t"?'),
        (("--host", "a", "--task", "nowhere"), "unknown-scope", ""),
    ],
)
def test_a_wrong_name_gets_a_suggestion(site: Folder, arguments: tuple[str, ...], code: str, hint: str) -> None:
    data = site.data("vars", "main.yaml", *arguments, exit_code=2)
    assert (data["diagnostics"][0]["code"], data["diagnostics"][0]["hint"]) == (code, hint)

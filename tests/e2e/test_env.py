"""Environment variables of a spec reach every command on the host: here, over SSH, as another user; never in sight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.site import Site, Sites
from tests.lab.people import PeopledHost, missing, peopled_host

SECRET = "planted-in-an-environment"
BODY = """
params: {token: {type: secret, default: "env:TOKEN"}}
env: {LEVEL: pipeline, PLACE: "{{ host.name }}", GONE: x}
modules:
  - name: m
    env: {LEVEL: module}
    tasks:
      - name: t
        env: {GONE: null, TOKEN: "{{ params.token }}"}
        steps:
          - name: own
            type: command
            with: {readOnly: true, shell: 'echo "$LEVEL $PLACE ${GONE-none} $(printf %s "$TOKEN" | wc -c)"'}
          - name: mine
            type: command
            env: {LEVEL: step, GOT: "{{ steps.own.outputs.stdout }}"}
            with:
              shell: 'echo "$LEVEL $GOT $EXTRA" > "$ROOT/mine"'
              env: {EXTRA: of the command, ROOT: "{{ vars.root }}"}
          - name: script
            type: script
            with:
              args: ["{{ vars.root }}"]
              content: |
                echo "$LEVEL" > "$1/script"
                cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > "$1/lines"
                env > "$1/env"
          - name: valid
            type: file
            with:
              path: "{{ vars.root }}/valid"
              content: x
              validate: [sh, -c, 'test "$LEVEL" = module && test -e "$1"', sh, "%s"]
          - name: more
            type: fragment
            with:
              steps:
                - name: added
                  type: command
                  env: {ADDED: "yes"}
                  with: {shell: 'echo "$LEVEL $ADDED" > "{{ vars.root }}/added"'}
"""


def check(site: Site, root: Path, name: str) -> None:
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "json", code=0)
    events = [json.loads(line) for line in said.splitlines()]
    [own] = [one for one in events if one["event"] == "action.finished" and one["node"] == "m/t/own"]
    expected = f"module {name} none {len(SECRET)}"
    assert own["outputs"]["stdout"].strip() == expected, "a command that only reads has it in a check, too"
    assert not (root / "mine").exists()
    said = site.run("kubexm-run", "spec.yaml", "-vv", code=0)
    assert (root / "mine").read_text() == f"step {expected} of the command\n"
    assert (root / "script").read_text() == "module\n"
    assert (root / "added").read_text() == "module yes\n"
    assert (root / "valid").read_text() == "x"
    environment = (root / "env").read_text()
    assert f"TOKEN={SECRET}\n" in environment
    assert "GONE=" not in environment
    assert SECRET not in (root / "lines").read_text(), "no command line shows it"
    assert SECRET not in said
    (root / "env").unlink()
    leaks = [path for path in site.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not leaks, "it is on no disk"


def test_every_command_has_the_environment_of_its_place_in_the_spec(sites: Sites) -> None:
    inventory = "inventory: {defaults: {connector: local}, hosts: [{name: n, vars: {root: FOLDER}}]}\n"
    site = sites(inventory + BODY, TOKEN=SECRET)
    check(site, site.host, "n")


@pytest.fixture(scope="module")
def box() -> Iterator[PeopledHost]:
    if why := missing():
        pytest.skip(why)
    with peopled_host() as host:
        yield host


def test_so_has_one_over_ssh_and_as_another_user(sites: Sites, box: PeopledHost) -> None:
    host = {
        "name": "n", "address": box.address, "port": box.port, "user": "trusted", "privateKeyPath": str(box.key),
        "knownHosts": str(box.folder / "known"), "vars": {"root": str(box.prefix)}, "become": "other",
    }  # fmt: skip
    inventory = f"inventory: {json.dumps({'hosts': [host]})}\n"
    site = sites(inventory + BODY, TOKEN=SECRET, HOME=str(box.folder), SSH_AUTH_SOCK="")
    check(site, box.prefix, "n")


def test_a_dry_run_names_what_is_not_known_and_a_value_that_is_no_text_fails_its_step(sites: Sites) -> None:
    site = sites(
        """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: a, type: command, with: {argv: ["true"]}}
          - {name: b, type: command, with: {argv: ["true"]}, env: {X: "{{ steps.a.outputs.exitCode }}"}}
          - {name: c, type: command, with: {argv: ["true"]}, env: {X: "{{ [1] }}"}}
"""
    )
    said = site.run("kubexm-run", "spec.yaml", "--executor", "dry-run")
    assert "not known yet: steps.a.outputs" in said
    said = site.run("kubexm-run", "spec.yaml", code=1)
    assert "the value of the environment variable X is no text and no number" in said

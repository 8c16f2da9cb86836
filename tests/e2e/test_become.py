"""Steps that work as other users than their host does: what they do is theirs, in check, run, second run and undo."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.site import Site, Sites
from tests.lab.people import PASSWORD, PeopledHost, missing, peopled_host

WHY_NOT = missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

STEPS = """
modules:
  - name: m
    tasks:
      - name: t
        become: other
        steps:
          - {name: own, type: file, with: {path: "{{ vars.root }}/own", content: "x\\n"}}
          - {name: closed, type: directory, become: true, with: {path: "{{ vars.root }}/closed", mode: "0700"}}
          - {name: inside, type: file, become: root, with: {path: "{{ vars.root }}/closed/in", content: "x\\n"}}
          - {name: who, type: command, with: {argv: [id, -un], changedWhen: "false"}}
          - {name: login, type: file, become: false, with: {path: "{{ vars.root }}/login", content: "x\\n"}}
          - name: more
            type: fragment
            with: {steps: [{name: added, type: file, with: {path: "{{ vars.root }}/added", content: "x\\n"}}]}
"""
OWNERS = {"own": "other", "closed": "root", "closed/in": "root", "login": "trusted", "added": "other"}


@pytest.fixture(scope="module")
def box() -> Iterator[PeopledHost]:
    with peopled_host() as host:
        yield host


def site_of(sites: Sites, box: PeopledHost, user: str, steps: str, **more: object) -> Site:
    host = {
        "name": "n", "address": box.address, "port": box.port, "user": user, "privateKeyPath": str(box.key),
        "knownHosts": str(box.folder / "known"), "vars": {"root": str(box.prefix)}, **more,
    }  # fmt: skip
    return sites(f"inventory: {json.dumps({'hosts': [host]})}\n{steps}", HOME=str(box.folder), SSH_AUTH_SOCK="")


def owners(box: PeopledHost) -> dict[str, str]:
    names = {47000: "asked", 47001: "trusted", 47004: "other", 0: "root"}
    return {str(path.relative_to(box.prefix)): names[path.stat().st_uid] for path in box.prefix.rglob("*")}


@pytest.mark.parametrize(
    ("user", "become"),
    [("trusted", None), ("asked", {"password": "env:PW", "always": False})],
    ids=["trusted", "asked"],
)
def test_each_step_works_as_the_user_it_says(sites: Sites, box: PeopledHost, user: str, become: object) -> None:
    site = site_of(sites, box, user, STEPS, become=become)
    expected = {**OWNERS, "login": user}
    site.run("kubexm-run", "spec.yaml", "--executor", "check", code=0, PW=PASSWORD)
    assert owners(box) == {}
    said = site.run("kubexm-run", "spec.yaml", "--output", "json", code=0, PW=PASSWORD)
    assert owners(box) == expected
    lines = [json.loads(line) for line in said.splitlines()]
    [who] = [line for line in lines if line.get("node") == "m/t/who" and line["event"] == "action.finished"]
    assert who["outputs"]["stdout"].strip() == "other", who
    assert PASSWORD not in said
    assert "7 actions: 7 unchanged" in site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0, PW=PASSWORD)
    [_, first] = [run["id"] for run in site.runs()]
    site.run("kubexm", "runs", "rollback", first, "--yes", "--output", "quiet", code=0, PW=PASSWORD)
    assert owners(box) == {}


def test_step_that_may_not_says_who_it_was_and_what_to_do(sites: Sites, box: PeopledHost) -> None:
    steps = """
modules:
  - name: m
    tasks: [{name: t, steps: [{name: s, type: file, with: {path: /etc/kubexm-never, content: x}}]}]
"""
    said = site_of(sites, box, "trusted", steps).run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert "(user trusted, no become)" in said
    assert "give the step `become: true`" in said
    said = site_of(sites, box, "nobodys", steps.replace("type: file", "type: file, become: true")).run(
        "kubexm-run", "spec.yaml", "--output", "plain"
    )
    assert "nobodys cannot become root by sudo" in said
    assert not Path("/etc/kubexm-never").exists()


def test_one_command_is_run_as_another_user(sites: Sites, box: PeopledHost) -> None:
    site = site_of(sites, box, "trusted", STEPS)
    said = site.run("kubexm", "exec", "all", "--spec", "spec.yaml", "--become", "other", "--", "id", "-un", code=0)
    assert "| other" in said
    for name in ("", "-x", "a b", "yes", "{{ x }}"):
        said = site.run("kubexm", "exec", "n", "--spec", "spec.yaml", "--become", name, "--", "id", code=2)
        assert f'error: --become "{name}": it should be ' in said


def test_what_was_done_is_undone_as_who_did_it(sites: Sites, box: PeopledHost) -> None:
    steps = """
modules:
  - name: m
    tasks:
      - name: t
        become: root
        steps:
          - {name: closed, type: directory, with: {path: "{{ vars.root }}/closed", mode: "0700"}}
          - {name: inside, type: file, with: {path: "{{ vars.root }}/closed/in", content: "x\\n"}}
"""
    site = site_of(sites, box, "trusted", steps)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    text = (site.folder / "spec.yaml").read_text()
    (site.folder / "spec.yaml").write_text(text.replace("become: root", "become: other"))
    resume = ("kubexm", "runs", "resume", "last", "--accept-changes", "--output", "quiet")
    site.run(*resume, code=-signal.SIGKILL, KUBEXM_DIE_AT="take.after")
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert owners(box) == {}


LOCAL = """
inventory:
  hosts:
    - {name: n, connector: local, vars: {root: ROOT}}
    - {name: d, connector: local, become: daemon, vars: {root: ROOT}}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - {name: mine, type: file, with: {path: "{{ vars.root }}/mine", content: "x\\n"}}
          - {name: theirs, type: file, become: daemon, with: {path: "{{ vars.root }}/theirs", content: "x\\n"}}
          - {name: closed, type: directory, become: bin, with: {path: "{{ vars.root }}/closed", mode: "0700"}}
          - {name: inside, type: file, become: bin, with: {path: "{{ vars.root }}/closed/in", content: "x\\n"}}
      - name: u
        runOn: {hosts: [d]}
        steps:
          - {name: own, type: file, with: {path: "{{ vars.root }}/own", content: "x\\n"}}
          - {name: login, type: file, become: false, with: {path: "{{ vars.root }}/login", content: "x\\n"}}
"""


def test_this_machine_is_worked_on_as_other_users_in_check_run_second_run_and_undo(
    sites: Sites, box: PeopledHost
) -> None:
    def found() -> dict[str, str]:
        return {str(path.relative_to(box.prefix)): path.owner() for path in box.prefix.rglob("*")}

    site = sites(LOCAL.replace("ROOT", str(box.prefix)))
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert "5 would change, 1 unknown" in " ".join(said.split()), said
    assert found() == {}
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    expected = {"mine": "root", "theirs": "daemon", "closed": "bin", "closed/in": "bin", "own": "daemon"}
    assert found() == {**expected, "login": "root"}
    assert "6 actions: 6 unchanged" in site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0)
    [_, first] = [run["id"] for run in site.runs()]
    site.run("kubexm", "runs", "rollback", first, "--yes", "--output", "quiet", code=0)
    assert found() == {}


def test_a_user_of_this_machine_that_does_not_exist_fails_at_once_and_says_what_to_do(sites: Sites) -> None:
    site = sites("""
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks: [{name: t, steps: [{name: s, type: command, become: nosuchuser, with: {argv: [id]}}]}]
""")
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert "host n: root cannot become nosuchuser by su: " in said
    assert "give a user in `become` that exists on the host" in " ".join(said.split())

"""What the security page says of the whole program and no other test has: values from outside, and files it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.site import Sites
from tests.resources.server import serve

TOKEN = "the-secret-of-the-operator"
EVIL = "{{ secret('env:TOKEN') }}{% set x = 1 %}"
PRINTS: dict[str, Any] = {"name": "p", "type": "command", "with": {"argv": ["cat", "FOLDER/evil"]}}
PRINTED = "{{ steps.p.outputs.stdout }}"
WRITE: dict[str, Any] = {"name": "w", "type": "file", "with": {"path": "FOLDER/out", "content": PRINTED}}

WAYS: dict[str, list[dict[str, Any]]] = {
    "content of a file": [PRINTS, WRITE],
    "an argument": [PRINTS, {"name": "w", "type": "command", "with": {
        "argv": ["sh", "-c", 'printf %s "$0" >FOLDER/out', PRINTED]}}],
    "an environment": [PRINTS, {"name": "w", "type": "command", "with": {
        "shell": 'printf %s "$V" >FOLDER/out', "env": {"V": PRINTED}}}],
    "a template": [PRINTS, {"name": "w", "type": "template", "with": {
        "src": "t.j2", "path": "FOLDER/out", "vars": {"x": PRINTED}}}],
    "a value that is kept": [PRINTS, {"name": "k", "type": "set", "with": {"values": {"v": PRINTED}}},
                             {**WRITE, "with": {**WRITE["with"], "content": "{{ steps.k.outputs.v }}"}}],
    "an output of the spec": [{**PRINTS, "outputs": {"v": "{{ result.stdout }}"}},
                              {**WRITE, "with": {**WRITE["with"], "content": "{{ steps.p.outputs.v }}"}}],
    "a step that a step returns": [PRINTS, {"name": "f", "type": "fragment", "with": {"steps": [WRITE]}}],
    "an answer of a server": [{"name": "p", "type": "http", "with": {"url": "$WEB"}},
                              {**WRITE, "with": {**WRITE["with"], "content": "{{ steps.p.outputs.body }}"}}],
    "-e, in a loop": [{**WRITE, "forEach": "{{ [params.p] }}", "with": {**WRITE["with"], "content": "{{ item }}"}}],
    "-e": [{**WRITE, "with": {**WRITE["with"], "content": "{{ params.p }}"}}],
    "--vars-file": [{**WRITE, "with": {**WRITE["with"], "content": "{{ params.p }}"}}],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_from_a_host_a_server_or_the_call_is_never_evaluated(sites: Sites, way: str) -> None:
    with serve() as web:
        web.add(EVIL.encode())
        steps = json.dumps(WAYS[way]).replace("$WEB", web.url())
        site = sites(
            "params: {p: {type: string, default: x}}\ninventory: {hosts: [{name: n, connector: local}]}\n"
            f"modules: [{{name: m, tasks: [{{name: t, runOn: n, steps: {steps}}}]}}]\n",
            TOKEN=TOKEN,
        )
        (site.host / "evil").write_text(EVIL)
        (site.folder / "t.j2").write_text("{{ x }}")
        (site.folder / "vars.json").write_text(json.dumps({"p": EVIL}))
        given = {"-e": ("-e", f"p={EVIL}"), "--vars-file": ("--vars-file", "vars.json")}.get(way.partition(",")[0], ())
        site.run("kubexm-run", "spec.yaml", "--output", "plain", *given, code=0)
    assert (site.host / "out").read_text() == EVIL


def test_everything_that_a_run_leaves_is_its_owners_alone(sites: Sites) -> None:
    site = sites(
        "inventory: {hosts: [{name: n, connector: local}]}\n"
        "modules: [{name: m, tasks: [{name: t, runOn: n, steps: [\n"
        "  {name: s, type: command, with: {argv: [echo, hello]}}]}]}]\n"
    )
    site.within = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    before = set(site.folder.rglob("*"))
    site.run("kubexm", "plan", "spec.yaml", "-o", "plan.json", code=0)
    site.run("kubexm-run", "spec.yaml", "--result", "r.json", "--report", "r.html", "--output", "quiet", code=0)
    made = sorted(path for path in site.folder.rglob("*") if path not in before)
    assert {"journal.db", "output.jsonl", "plan.json", "r.json", "r.html"} <= {path.name for path in made}
    assert [str(path.relative_to(site.folder)) for path in made if path.lstat().st_mode & 0o077] == []

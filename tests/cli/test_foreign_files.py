"""Files that are no specs of ours, named wherever a file can be named: nothing of what is in them is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from tests.cli.kit import Folder

# Every word that tells something has "canary" in it.
FOREIGN = {
    "shadow": "root:$6$canary1$canary2/x:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
    "environ": "HOME=/canary\0TOKEN=canary\0",
    "one-word": "canary\n",
    "key.pem": "-----BEGIN OPENSSH PRIVATE KEY-----\ncanarycanarycanary=\n-----END OPENSSH PRIVATE KEY-----\n",
    "dotenv": "# canary\nexport TOKEN='canary with blanks'\nOTHER=canary\n",
    "debian.cnf": "# canary\n[client]\nhost = localhost\npassword = canary\n[canary\n[mysql:canary]\n",
    "netrc": "machine canary.example login canary password canary\n",
    "pgpass": "canary:5432:*:canary:canary\n",
    "htpasswd": "canary:$apr1$canary$canary\n",
    "crypttab": "canary UUID=canary none luks,discard\n",
    "quotes.ini": "'canary\n\"canary canary\n",
    "range.ini": "canary[9:1]\ncanary[a:\n[canary:children]\ncanary\n",
    "list.yaml": "- canary\n- {a: canary}\n",
    "secrets.yaml": "password: canary\nnested: {token: canary}\n",
    "kubeconfig.yaml": "apiVersion: canary/v1\nkind: Canary\nusers: [{user: {token: canary}}]\n",
    "kubernetes.yaml": "apiVersion: v1\nkind: canary\nmetadata: {name: canary}\ndata: {x: canary}\n",
    "kubexm-less.yaml": "kind: Inventory\nmetadata: {name: canary}\nhosts: [{name: canary}]\n",
    "broken.yaml": "password: canary: canary\n",
    "open.yaml": "password: 'canary\n",
    "at.yaml": "password: @canary\n",
    "tag.yaml": "password: !canary canary\n",
    "handle.yaml": "password: !canary!x canary\n",
    "alias.yaml": "password: *canary\n",
    "anchor.yaml": "password: &canary [*canary]\n",
    "twice.yaml": "canary: 1\ncanary: 2\n",
    "numbers.yaml": "1: canary\ntrue: canary\n[canary]: x\n",
    "tab.yaml": "a:\n\tcanary: canary\n",
    "expression.yaml": "a: {{ canary }}\n",
    "broken.json": '{"canary": canary',
    "list.json": '["canary"]',
    "plan.json": '{"kind": "canary", "graph": {"canary": 1}}',
    "broken.toml": 'canary = "canary\n',
    "latin": "canary \udce9 canary\n",
}
MAIN = "modules: [{name: m, tasks: [{name: t, steps: [%s]}]}]\n"
GOOD = MAIN % "{name: s, type: message, with: {text: x}}"


def _as(text: str, *command: str) -> Callable[[Folder, str], tuple[str, ...]]:
    def prepare(folder: Folder, name: str) -> tuple[str, ...]:
        folder.spec(text.replace("NAME", name))
        return tuple(word.replace("NAME", name) for word in command)

    return prepare


PLACES = {
    "the spec": _as("", "validate", "NAME"),
    "what is run": _as("", "run", "NAME"),
    "what is planned": _as("", "plan", "NAME"),
    "uses of a module": _as("modules: [{name: m, uses: NAME}]\n", "validate", "main.yaml"),
    "a document of uses": _as("modules: [{name: m, uses: 'NAME#canar'}]\n", "validate", "main.yaml"),
    "uses of a task": _as("modules: [{name: m, tasks: [{name: t, uses: NAME}]}]\n", "validate", "main.yaml"),
    "the inventory": _as("inventory: NAME\n" + GOOD, "validate", "main.yaml"),
    "-i": _as(GOOD, "validate", "main.yaml", "-i", "NAME"),
    "-i of exec": _as("", "exec", "-i", "NAME", "all", "--", "true"),
    "-i of facts": _as("", "facts", "-i", "NAME"),
    "inventory": _as("", "inventory", "NAME"),
    "--vars-file": _as("params: {p: {type: string, default: x}}\n" + GOOD,
                       "validate", "main.yaml", "--vars-file", "NAME"),
    "varsFiles": _as("varsFiles: [NAME]\n" + GOOD, "validate", "main.yaml"),
    "a template": _as(MAIN % "{name: s, type: template, with: {src: NAME, path: /nowhere/x}}", "validate", "main.yaml"),
    "a script": _as(MAIN % "{name: s, type: script, with: {src: NAME, interpreter: 'true'}}", "validate", "main.yaml"),
    "a file to copy": _as(MAIN % "{name: s, type: copy, with: {src: NAME, path: /nowhere/x}}", "validate", "main.yaml"),
    "a secret file": _as(MAIN % "{name: s, type: message, with: {text: \"{{ secret('file:NAME#key') }}\"}}",
                         "run", "main.yaml"),
}  # fmt: skip
OURS = {
    # A word is an inventory of one host, and what has an expression in it is a template.
    *((place, "one-word") for place in ("-i", "-i of exec", "-i of facts", "the inventory", "inventory")),
    ("a template", "expression.yaml"),
}


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_of_a_file_that_is_no_spec_is_shown(folder: Folder, place: str, output: str) -> None:
    shown = {}
    for name, text in FOREIGN.items():
        folder.path.joinpath(name).write_bytes(text.encode("utf-8", "surrogateescape"))
        command = PLACES[place](folder, name)
        if output == "json" and command[0] not in ("validate", "run"):
            pytest.skip("one of the others is enough")
        result = folder.run(*command, *(("--output", "json") if output == "json" else ()))
        if "canary" in result.output.lower() and (place, name) not in OURS:
            shown[name] = result.output
    assert not shown, json.dumps(shown, indent=1).replace("\\n", "\n")


@pytest.mark.parametrize("name", ["pipe", "pipe.yaml", "pipe.json", "pipe.ini", "/dev/zero"])
@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_or_a_device_is_refused_and_not_read(folder: Folder, place: str, name: str) -> None:
    if not name.startswith("/"):
        os.mkfifo(folder.path / name)
    assert folder.run(*PLACES[place](folder, name)).exit_code in (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: kubexm.io/v1\nkind: Module\nmetadata: {name: [\n",
        '{"apiVersion": "kubexm.io/v1", "kind": canary [}\n',
    ],
)
def test_a_spec_that_cannot_be_read_shows_where(folder: Folder, text: str) -> None:
    folder.spec("modules: [{name: m, uses: module.yaml}]\n")
    folder.file("module.yaml", text)
    result = folder.run("validate", "main.yaml")
    assert result.exit_code == 2
    assert text.splitlines()[-1] in result.stderr

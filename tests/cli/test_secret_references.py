"""References to secrets: a wrong one is an error of the spec, a missing one is told before anything has changed."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from tests.cli.kit import Folder

STEP = "modules: [{name: m, tasks: [{name: t, steps: [%s]}]}]\n"
GOOD = STEP % "{name: s, type: message, with: {text: x}}"
VALUE = """"{{ secret('REF') }}\""""
PLACES = {
    "a step": STEP % """{name: s, type: message, with: {text: VALUE}}""",
    "a beginning": STEP % """{name: s, type: message, with: {text: "{{ secret('REF' ~ host.name) }}"}}""",
    "a sum": STEP % """{name: s, type: message, with: {text: "{{ secret('REF' + host.name) }}"}}""",
    "a filter": STEP % """{name: s, type: message, with: {text: "{{ secret('REF') | upper }}"}}""",
    "a condition": STEP % """{name: s, type: message, when: "secret('REF') == 'x'", with: {text: x}}""",
    "an output": STEP % """{name: s, type: message, outputs: {o: VALUE}, with: {text: x}}""",
    "an expression": STEP % """{name: s, type: user, with: {name: u, passwordHash: "secret('REF')"}}""",
    "headers of http": STEP % """{name: s, type: http, with: {url: 'http://127.0.0.1/', headers: {X: VALUE}}}""",
    "a hook": STEP % "{name: s, type: message, with: {text: x}, hooks: {always: [%s]}}"
    % "{name: h, type: message, with: {text: VALUE}}",
    "a variable": "vars: {v: VALUE}\n" + STEP % "{name: s, type: message, with: {text: '{{ vars.v }}'}}",
    "an unused variable": "vars: {v: VALUE}\n" + GOOD,
    "a variable of a host": "inventory: {hosts: [{name: a, connector: local, vars: {v: VALUE}}]}\n"
    + STEP % "{name: s, type: message, with: {text: '{{ vars.v }}'}}",
    "a default": "params: {p: {type: secret, default: 'REF'}}\n" + GOOD,
    "a parameter of a module": "modules: [{name: m, uses: module.yaml, with: {p: 'REF'}}]\n",
    "a template": STEP % "{name: s, type: template, with: {src: t.j2, path: /nowhere/x}}",
    "a resource": "resources: {r: {url: 'http://127.0.0.1/x', headers: {X: VALUE}}}\n" + GOOD,
    "a key of a store": "resources: {r: {url: 's3://b/x', s3: {accessKeyId: 'REF', secretAccessKey: 'REF'}}}\n" + GOOD,
    "a password": "inventory: {hosts: [{name: a, password: 'REF'}]}\n" + GOOD,
    "a passphrase": "inventory: {hosts: [{name: a, passphrase: 'REF'}]}\n" + GOOD,
    "a key": "inventory: {hosts: [{name: a, privateKey: 'REF'}]}\n" + GOOD,
    "a key of a group": "inventory: {hosts: [{name: a}], groups: {g: {hosts: [a], privateKey: 'REF'}}}\n" + GOOD,
    "become": "inventory: {hosts: [{name: a, become: {password: 'REF'}}]}\n" + GOOD,
}  # fmt: skip
MODULE = """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: m}
params: {p: {type: secret}}
tasks: [{name: t, steps: [{name: s, type: message, with: {text: "{{ params.p }}"}}]}]
"""


def write(folder: Folder, place: str, reference: str) -> None:
    folder.spec(PLACES[place].replace("VALUE", VALUE).replace("REF", reference))
    folder.file("module.yaml", MODULE)
    folder.file("templates/t.j2", VALUE.strip('"').replace("REF", reference))


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_provider_is_an_error_at_its_place_with_the_one_that_is_meant(folder: Folder, place: str) -> None:
    write(folder, place, "evn:KX_SECRET")
    data = folder.data("validate", "main.yaml", exit_code=2)
    errors = [finding for finding in data["diagnostics"] if finding["severity"] == "error"]
    assert errors
    for finding in errors:
        assert 'did you mean "env"?' in finding["hint"] + finding["summary"]
        assert finding["span"] is not None
        assert "KX_SECRET" not in json.dumps(finding)


@pytest.mark.parametrize("place", PLACES)
def test_a_known_provider_is_no_error_and_nothing_is_looked_up_before_a_run(folder: Folder, place: str) -> None:
    write(folder, place, "env:KX_NOT_SET")
    commands = [("validate", "main.yaml"), ("plan", "main.yaml"), ("run", "main.yaml", "--executor", "dry-run")]
    for command in commands:
        result = folder.run(*command)
        assert result.exit_code == 0, (command, result.output)


FIRST = "{name: first, type: command, with: {argv: [touch, DONE]}}, "
RUN = ["a step", "a filter", "an output", "headers of http", "a hook", "a variable", "a variable of a host",
       "a default", "a parameter of a module", "a template", "an expression"]  # fmt: skip


@pytest.mark.parametrize("place", RUN)
def test_a_missing_secret_ends_a_run_before_its_first_action(
    folder: Folder, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KX_NOT_SET", raising=False)
    write(folder, place, "env:KX_NOT_SET")
    done = folder.path / "done"
    text = (folder.path / "main.yaml").read_text()
    if place == "a parameter of a module":
        folder.file("module.yaml", MODULE.replace("steps: [", "steps: [" + FIRST.replace("DONE", str(done))))
    else:
        if place == "a default":
            text = text.replace("{text: x}", "{text: '{{ params.p }}'}")
        folder.file("main.yaml", text.replace("steps: [", "steps: [" + FIRST.replace("DONE", str(done))))
    for output in ((), ("--output", "json")):
        result = folder.run("run", "main.yaml", "--no-journal", *output)
        assert result.exit_code == 2, result.output
        assert "KX_NOT_SET is not set" in result.output
    assert "main.yaml:" in folder.run("run", "main.yaml", "--no-journal").stderr or place == "a parameter of a module"
    assert not done.exists()


def test_all_that_is_missing_is_told_at_once_also_keys_in_files_and_passwords_of_hosts(folder: Folder) -> None:
    folder.file("vault.yaml", "there: x\n")
    folder.spec(
        "inventory: {hosts: [{name: a, address: 127.0.0.1, password: 'env:KX_ONE', become: {password: 'file:none'}}]}\n"
        + STEP % """{name: s, type: command, with: {argv: [echo, "{{ secret('file:vault.yaml#not.there') }}"]}}"""
    )
    result = folder.run("run", "main.yaml", "--no-journal")
    assert result.exit_code == 2
    for what in ("KX_ONE is not set", "there is no file none", '"not" in vault.yaml is not there'):
        assert what in result.stderr
    assert "3 errors" in result.stderr


@pytest.mark.parametrize(
    "body",
    [
        "hosts: [{name: a, address: 127.0.0.1, GIVEN}]",
        "hosts: [{name: a, address: 127.0.0.1}]\ndefaults: {GIVEN}",
        "hosts: [{name: a, address: 127.0.0.1, roles: [r]}]\nroles: {r: {GIVEN}}",
        "hosts: [{name: a, address: 127.0.0.1}]\ngroups: {g: {hosts: [a], GIVEN}}",
    ],
)
@pytest.mark.parametrize(
    "given", ["password: 'env:KX_NOT_SET'", "passphrase: 'env:KX_NOT_SET'", "privateKey: 'env:KX_NOT_SET'",
              "become: {password: 'env:KX_NOT_SET'}"],
)  # fmt: skip
def test_a_missing_secret_of_a_host_is_shown_where_the_inventory_names_it(
    folder: Folder, body: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KX_NOT_SET", raising=False)
    head = "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\n"
    lines = (head + body.replace("GIVEN", given)).splitlines()
    folder.file("hosts.yaml", "\n".join(lines) + "\n")
    folder.spec(GOOD)
    row, column = next((row, line.index("'env:") + 1) for row, line in enumerate(lines, 1) if "'env:" in line)
    result = folder.run("run", "main.yaml", "-i", "hosts.yaml", "--no-journal")
    assert result.exit_code == 2
    assert "host a needs the secret" in result.stderr
    assert f"--> hosts.yaml:{row}:{column}\n" in result.stderr


def test_what_a_condition_may_skip_is_a_warning_until_it_runs(folder: Folder) -> None:
    step = """{name: %s, type: message, when: "%s", with: {text: "{{ secret('env:KX_NOT_SET') }}"}}"""
    folder.spec(STEP % (step % ("s", "host.name == 'x'")))
    result = folder.run("run", "main.yaml", "--no-journal")
    assert result.exit_code == 0, result.output
    assert "warning[missing-secret]" in result.stderr
    folder.spec(STEP % (step % ("s", "host.name != 'x'")))
    result = folder.run("run", "main.yaml", "--no-journal")
    assert result.exit_code == 1, result.output
    assert "KX_NOT_SET is not set" in result.stdout


def test_a_provider_that_is_not_early_is_asked_when_the_step_runs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubexm_exec.secrets.EnvSecrets.early", False)
    done = folder.path / "done"
    late = """{name: s, type: message, with: {text: "{{ secret('env:KX_NOT_SET') }}"}}"""
    folder.spec(STEP % (FIRST.replace("DONE", str(done)) + late))
    assert folder.run("run", "main.yaml", "--no-journal").exit_code == 1
    assert done.exists()


@pytest.fixture
def broken_off(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of which one step is done and one, that needs a secret as the first does, failed."""
    monkeypatch.setenv("KX_FIRST", "secret-of-the-first")
    monkeypatch.setenv("KX_SECOND", "secret-of-the-second")
    one = """{name: one, type: file, with: {path: 'HERE/one', content: "{{ secret('env:KX_FIRST') }}"}}"""
    two = (
        """{name: two, type: command, with: {shell: "[ -e HERE/ready ]", env: {X: "{{ secret('env:KX_SECOND') }}"}}}"""
    )
    folder.spec((STEP % f"{one},\n {two}").replace("HERE", str(folder.path)))
    journal = str(folder.path / "journal.db")
    assert folder.run("run", "main.yaml", "--journal", journal).exit_code == 1
    monkeypatch.delenv("KX_FIRST")
    monkeypatch.delenv("KX_SECOND")
    (folder.path / "ready").touch()
    return journal


def test_a_resume_needs_the_secrets_of_what_is_left_before_it_does_anything(
    folder: Folder, broken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = folder.run("runs", "--journal", broken_off, "resume", "last")
    assert refused.exit_code == 2, refused.output
    assert "KX_SECOND is not set" in refused.stderr
    assert "KX_FIRST is not set" not in refused.stderr
    monkeypatch.setenv("KX_SECOND", "secret-of-the-second")
    assert folder.run("runs", "--journal", broken_off, "resume", "last").exit_code == 0


def test_a_rollback_needs_the_secrets_of_what_it_undoes_before_it_does_anything(
    folder: Folder, broken_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = folder.run("runs", "--journal", broken_off, "rollback", "last", "--yes")
    assert refused.exit_code == 2, refused.output
    assert "KX_FIRST is not set" in refused.stderr
    assert pathlib.Path("one").exists()
    monkeypatch.setenv("KX_FIRST", "secret-of-the-first")
    undone = folder.run("runs", "--journal", broken_off, "rollback", "last", "--yes")
    assert undone.exit_code == 0, undone.output
    assert not os.path.lexists("one")


PLAIN = {
    "a default": "params: {p: {type: secret, default: LEAK}}\n" + GOOD,
    "several lines": "params:\n  p:\n    type: secret\n    default: |\n      LEAK\n      LEAK\n"
    "  q: {type: integer, default: x}\n" + GOOD,
    "an enum": "params: {p: {type: secret, enum: [1, LEAK], default: LEAK}}\n" + GOOD,
    "a number": "params: {p: {type: secret, default: 31337}}\n" + GOOD,
    "a module": "modules: [{name: m, uses: module.yaml, with: {p: LEAK}}]\n",
    "secret()": STEP % """{name: s, type: message, with: {text: "{{ secret('LEAK') }}"}}""",
    "secret() with a colon": STEP % """{name: s, type: message, with: {text: "{{ secret('LEAK:LEAK') }}"}}""",
    "a password": "inventory: {hosts: [{name: a, password: LEAK}]}\n" + GOOD,
    "a key": "inventory: {hosts: [{name: a, privateKey: LEAK}]}\n" + GOOD,
}  # fmt: skip


@pytest.mark.parametrize("place", PLAIN)
def test_a_secret_that_is_written_out_is_not_repeated(folder: Folder, place: str) -> None:
    folder.spec(PLAIN[place].replace("LEAK", "hunter2-of-the-spec"))
    folder.file("module.yaml", MODULE)
    result = folder.run("validate", "main.yaml")
    assert result.exit_code == 2
    assert "hunter2" not in result.output
    assert "31337" not in result.output
    folder.spec("params: {p: {type: secret}}\n" + GOOD)
    assert "hunter2" not in folder.run("validate", "main.yaml", "-e", "p=hunter2").output


def test_secrets_of_a_login_are_not_needed_where_nobody_logs_in(folder: Folder) -> None:
    hosts = "[{name: far}, {name: here, connector: local}]"
    folder.spec(f"inventory: {{defaults: {{privateKey: 'env:NOT_THERE'}}, hosts: {hosts}}}\n" + GOOD)
    assert folder.run("run", "main.yaml", "--no-journal", "--limit", "here").exit_code == 0
    done = folder.run("run", "main.yaml", "--no-journal")
    assert done.exit_code == 2
    assert 'host far needs the secret "env:NOT_THERE"' in done.output

"""validate: files, folders, what is left out, and warnings."""

from __future__ import annotations

import json

from tests.cli.kit import HEAD, Folder

GOOD = "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}}]}]}]\n"
MODULE = """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: m}
tasks:
  - name: t
    steps:
      - {name: s, type: %s, with: {text: x}}
"""


def test_many_files_and_folders_at_once(folder: Folder) -> None:
    folder.spec(GOOD, "a.yaml")
    folder.spec(GOOD, "deep/er/b.yml")
    folder.file("deep/module.yaml", MODULE % "message")
    result = folder.run("validate", "a.yaml", "deep")
    assert (result.exit_code, result.stdout) == (0, "3 files are valid. Nothing was run.\n")


def test_a_program_that_prints_the_inventory_is_said_to_be_run(folder: Folder) -> None:
    program = folder.file("hosts.sh", '#!/bin/sh\necho \'{"web": ["a"], "_meta": {}}\'\n')
    program.chmod(0o755)
    folder.spec(GOOD, "a.yaml")
    folder.spec(GOOD.replace("message", "mesage"), "b.yaml")
    good = folder.run("validate", "a.yaml", "-i", "hosts.sh")
    told = "Nothing was run but the inventory program hosts.sh.\n"
    assert (good.exit_code, good.stdout) == (0, f"1 file is valid. {told}")
    assert folder.run("validate", "b.yaml", "-i", "hosts.sh").stderr.endswith(f"1 error in 1 file. {told}")
    assert folder.run("plan", "b.yaml", "-i", "hosts.sh").stderr.endswith(f"1 error in 1 file. {told}")


def test_a_file_that_is_named_twice_is_checked_once(folder: Folder) -> None:
    folder.spec(GOOD.replace("message", "mesage"), "a.yaml")
    data = folder.data("validate", "a.yaml", ".", "./a.yaml", exit_code=2)
    assert data["errors"] == 1


def test_an_error_in_a_used_file_is_told_once_with_who_uses_it(folder: Folder) -> None:
    folder.spec("modules: [{name: x, uses: lib/module.yaml}]\n", "main.yaml")
    folder.file("lib/module.yaml", MODULE % "mesage")
    (finding,) = folder.data("validate", ".", exit_code=2)["diagnostics"]
    assert (finding["code"], finding["span"]["file"]) == ("unknown-step-type", "lib/module.yaml")
    assert [note["message"] for note in finding["notes"]] == ["used by"]


def test_errors_of_all_files_come_together(folder: Folder) -> None:
    folder.spec(GOOD.replace("message", "mesage"), "a.yaml")
    folder.file("b.yaml", MODULE % "nothing")
    folder.file("c.yaml", "apiVersion: kubexm.io/v1\nkind: Pipelin\n")
    folder.file("d.yaml", "apiVersion: kubexm.io/v1\nkind: [\n")
    data = folder.data("validate", ".", exit_code=2)
    assert [finding["code"] for finding in data["diagnostics"]] == [
        "unknown-step-type", "unknown-step-type", "unknown-kind", "yaml-syntax",
    ]  # fmt: skip


def test_a_module_on_its_own_has_its_steps_checked(folder: Folder) -> None:
    folder.file(
        "m.yaml",
        """\
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: m}
        params: {n: {type: integer, default: x}}
        hooks: {pre: [{name: p, type: message, with: {txt: x}}]}
        tasks:
          - {name: t, uses: nowhere.yaml}
          - name: t
            steps:
              - {name: s, type: mesage}
              - name: s
                type: message
                needs: [x]
                when: "a =="
                with: {text: "{{ 1 + }}"}
                onFailure: [{name: f, type: x}]
        """,
    )
    data = folder.data("validate", "m.yaml", exit_code=2)
    assert sorted(finding["code"] for finding in data["diagnostics"]) == sorted([
        "bad-default", "unknown-key", "file-not-found", "duplicate-name", "duplicate-name", "unknown-step-type",
        "unknown-step-type", "unknown-need", "bad-expression", "bad-expression",
    ])  # fmt: skip


def test_a_task_and_an_inventory_on_their_own_are_fine(folder: Folder) -> None:
    folder.file("t.yaml", "apiVersion: kubexm.io/v1\nkind: Task\nmetadata: {name: t}\nsteps: [{name: s, type: gate}]\n")
    folder.file("i.yaml", "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\nhosts: [{name: a}]\n")
    result = folder.run("validate", "t.yaml", "i.yaml")
    assert "files are valid" in result.output or "needs the key" in result.output


def test_other_tools_files_in_a_folder_are_left_out(folder: Folder) -> None:
    folder.spec(GOOD, "main.yaml")
    folder.file("values.yaml", "size: 3\n")
    folder.file("chart/templates/x.yaml", "{{ if .Values.x }}\na: {{ b }}\n")
    folder.file(".git/x.yaml", HEAD + "wrong: 1\n")
    folder.file(".venv/lib/y.yaml", HEAD + "wrong: 1\n")
    result = folder.run("validate", ".")
    assert (result.exit_code, result.stdout) == (
        0, "1 file is valid. 2 other YAML files were left out. Nothing was run.\n",
    )  # fmt: skip
    assert folder.run("validate", "values.yaml").exit_code == 2


def test_a_folder_without_specs_is_an_error(folder: Folder) -> None:
    folder.file("values.yaml", "size: 3\n")
    result = folder.run("validate", ".")
    assert result.exit_code == 2
    assert "contains no spec" in result.stderr


def test_warnings_are_no_errors(folder: Folder) -> None:
    folder.spec(
        "inventory: {hosts: [{name: a, connector: local}]}\n"
        + GOOD.replace("name: t,", "name: t, runOn: {labels: {x: y}},")
    )
    result = folder.run("validate", "main.yaml")
    assert result.exit_code == 0
    assert "warning[no-hosts]" in result.stderr
    data = folder.data("validate", "main.yaml")
    assert (data["errors"], data["warnings"]) == (0, 1)


def test_warnings_stay_out_of_the_one_document_of_other_commands(folder: Folder) -> None:
    folder.spec(
        "inventory: {hosts: [{name: a, connector: local}]}\n"
        + GOOD.replace("name: t,", "name: t, runOn: {labels: {x: y}},")
    )
    for command in (("plan", "main.yaml"), ("vars", "main.yaml", "--host", "a"), ("diff", "main.yaml", "main.yaml")):
        result = folder.run(*command, "--output", "json")
        assert result.exit_code == 0
        json.loads(result.stdout)
        assert json.loads(result.stderr.splitlines()[0])["warnings"] == 1


def test_values_that_cannot_be_read_are_wrong_calls(folder: Folder) -> None:
    folder.spec(GOOD)
    folder.file("list.yaml", "- 1\n")
    folder.file("broken.yaml", "a: [\n")
    for arguments, words in (
        (("-e", "x"), "a value is given as KEY=VALUE"),
        (("-e", "=x"), "a value is given as KEY=VALUE"),
        (("--vars-file", "list.yaml"), "is not a mapping"),
        (("--vars-file", "broken.yaml"), "error[yaml-syntax]"),
        (("--vars-file", "nowhere.yaml"), "there is no file"),
        (("-i", "nowhere.yaml"), "there is no file"),
        (("-i", "main.yaml"), "contains no Inventory"),
    ):
        result = folder.run("validate", "main.yaml", *arguments)
        assert result.exit_code == 2, arguments
        assert words in result.output, (arguments, result.output)


def test_another_inventory_takes_the_place_of_the_specs_own(folder: Folder) -> None:
    folder.spec("inventory: nowhere.yaml\n" + GOOD.replace("name: t,", "name: t, runOn: {roles: [web]},"))
    folder.file("i.yaml", "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\n"
                "hosts: [{name: a, connector: local, roles: [web]}]\n")  # fmt: skip
    assert folder.run("validate", "main.yaml").exit_code == 2
    assert folder.run("validate", "main.yaml", "-i", "i.yaml").exit_code == 0


def test_an_unknown_command_gets_a_suggestion(folder: Folder) -> None:
    result = folder.run("validte")
    assert result.exit_code == 2
    assert 'did you mean "validate"?' in result.stderr

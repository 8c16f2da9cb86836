"""Messages about mistakes that many people make say what to write instead, and never what is wrong too."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.cli.main import main
from kubexm_exec.plugins import step_registry
from kubexm_spec.diagnostics import did_you_mean, suggest

SPEC = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: site}
params: {number: {type: integer, default: 1}}
inventory:
  defaults: {connector: local}
  groups: {eu: {hosts: [app1]}}
  hosts: [{name: app1, roles: [web]}, {name: app2}]
modules:
  - name: webapp
    tasks:
      - name: t1
        runOn: {roles: [web]}
        steps: [{name: a, type: file, with: {path: FOLDER/x, content: hi}}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "state"))
    return tmp_path


def run(spec: str, *words: str, typed: str = "") -> Result:
    Path("spec.yaml").write_text(spec.replace("FOLDER", str(Path.cwd())))
    return CliRunner().invoke(main, ["run", "spec.yaml", *words], input=typed, catch_exceptions=False)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--check", "--executor check"),
        ("--dry-run", "--executor dry-run"),
        ("--step", "--executor debug"),
        ("--extra-vars", "-e KEY=VALUE"),
        ("--syntax-check", "kubexm validate"),
        ("-l", "--limit HOSTS"),
        ("-t", "--tags TAGS"),
        ("-f", "--forks NUMBER"),
        ("-b", "become: true"),
        ("-K", "become: {password"),
    ],
)
def test_options_of_other_tools_are_answered_with_ours(option: str, words: str) -> None:
    done = run(SPEC, option)
    assert done.exit_code == 2
    assert f"there is no option {option}; " in done.output
    assert words in done.output


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[web]", "should be a mapping, not a list; write {roles: [web]} or {hosts: [web]}"),
        ("web", '"web" is a role: write {roles: [web]}'),
        ("{hosts: [eu]}", '"eu" is a group: write {groups: [eu]}'),
    ],
)
def test_a_role_or_group_where_hosts_are_named_is_said_to_be_one(written: str, words: str) -> None:
    done = run(SPEC.replace("runOn: {roles: [web]}", f"runOn: {written}"))
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("type: shell, with: {cmd: ls}", 'here it is "command" with `shell: ...`'),
        ("type: apt, with: {name: x}", 'here it is "package"'),
        ("type: message, with: {text: x}, runOn: {all: true}", "it is a key of the task"),
        ("type: message, with: {text: x}, hosts: [app1]", 'it is "runOn" of the task'),
        ("type: message, with: {text: '{{ inventory_hostname }}'}", "write host.name"),
        ("type: message, when: 'inventory_hostname == 3', with: {text: x}", "write host.name"),
        ("type: message, with: {text: '{{ ansible_facts.os }}'}", "write facts"),
    ],
)
def test_what_other_tools_have_is_answered_with_what_it_is_here(step: str, words: str) -> None:
    done = run(SPEC.replace("{name: a, type: file, with: {path: FOLDER/x, content: hi}}", f"{{name: a, {step}}}"))
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def test_every_module_of_ansible_that_is_known_is_a_step_type_here() -> None:
    registry = step_registry()
    for name, ours in registry.elsewhere.items():
        assert name not in registry.names()
        assert ours.partition(" ")[0] in registry.names()


def test_a_range_that_names_more_hosts_than_there_are_is_said_so() -> None:
    done = run(SPEC.replace("runOn: {roles: [web]}", 'runOn: {hosts: ["app[1:4]"]}'))
    assert done.exit_code == 0
    assert '"app[1:4]" names hosts that are not in the inventory: app3, app4' in done.output


def test_where_only_hosts_can_be_named_no_role_is_suggested() -> None:
    done = run(SPEC.replace("runOn: {roles: [web]}", "runOn: {all: true, exclude: [web]}"))
    assert done.exit_code == 2
    assert "hosts: app1, app2" in done.output
    assert "write {roles" not in done.output


def test_a_limit_that_leaves_nothing_to_do_is_said_to_be_the_reason() -> None:
    done = run(SPEC, "--limit", "app2")
    assert "--limit app2: no task of the spec runs there" in done.output
    assert "spec.yaml:" not in done.output


HOOK = "{name: NAME, type: message, runOn: ON, with: {text: x}}"


@pytest.mark.parametrize("limit", ["app1", "app1,app2"])
def test_hooks_that_a_limit_leaves_out_are_named_once(limit: str) -> None:
    hooks = {
        "lost": "{hosts: [app2]}",
        "kept": "{hosts: [app1]}",
        "here": "{hosts: [control-node]}",
        "part": "{all: true}",
        "nobody": "{labels: {no: such}}",
    }
    written = ", ".join(HOOK.replace("NAME", name).replace("ON", on) for name, on in hooks.items())
    always = f"hooks: {{always: [{written}]}}"
    step = "{name: s, type: message, with: {text: x}}"
    other = f"  - {{name: other, tasks: [{{name: t, runOn: {{hosts: [app2]}}, {always}, steps: [{step}]}}]}}\n"
    done = run(SPEC.replace("params:", f"{always}\nparams:") + f"    {always}\n" + other, "--limit", limit)
    assert done.exit_code == 0
    told = "2 hooks are not run because all their hosts are excluded: webapp/hooks/always/lost, hooks/always/lost\n"
    assert (f"--limit app1: {told}" in done.output) == (limit == "app1")
    assert done.output.count("are excluded") == (limit == "app1")


def test_a_wrong_value_of_a_vars_file_is_shown_where_it_was_written() -> None:
    Path("values.yaml").write_text("# ours\nnumber: many\n")
    done = run(SPEC, "--vars-file", "values.yaml")
    assert done.exit_code == 2
    assert '"number" (--vars-file): should be of type integer; got "many"\n  --> values.yaml:2:' in done.output
    assert 'parameter "number" is declared here spec.yaml:4:' in done.output
    Path("values.yaml").write_text("numbre: 3\n")
    assert "--> values.yaml:1:" in run(SPEC, "--vars-file", "values.yaml").output


@pytest.mark.parametrize("name", ["hosts", "output", "results"])
def test_no_output_of_a_module_is_suggested_that_is_not_there(name: str) -> None:
    step = "{name: s, type: message, with: {text: '{{ modules.webapp.NAME }}'}}".replace("NAME", name)
    done = run(f"{SPEC}  - {{name: m, tasks: [{{name: t, steps: [{step}]}}]}}\n")
    assert f'a module has no "{name}", only outputs' in done.output
    assert f"outputs.{name}" not in done.output


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("t bogus 3", "parameter bogus: there is no such key"),
        ("t content [1]", "parameter content: should be a text; got a list"),
        ("t createParents perhaps", "parameter createParents: should be true or false; got 'perhaps'"),
    ],
)
def test_the_debugger_says_in_our_words_what_a_parameter_cannot_be(typed: str, words: str) -> None:
    done = run(SPEC, "--executor", "debug", typed=f"{typed}\nq\n")
    assert words in done.output
    assert "Input should" not in done.output
    assert "not permitted" not in done.output


def test_a_task_of_another_module_is_suggested_with_its_module() -> None:
    more = "  - {name: m, tasks: [{name: t, needs: [t1], steps: [{name: s, type: message, with: {text: x}}]}]}\n"
    assert 'did you mean "webapp/t1"?' in run(SPEC + more).output


@given(st.text(max_size=6), st.lists(st.text(max_size=6), max_size=6))
def test_nothing_is_suggested_in_place_of_itself(word: str, candidates: list[str]) -> None:
    assert suggest(word, [*candidates, word]) != word
    assert did_you_mean(word, [word]) == ""

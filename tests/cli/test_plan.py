"""Plans: saved for their owner, run exactly as they are, refused when anything they were made from has changed."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.run import command as run_command
from kubexm_exec.compile.plan import PlanError, StalePlanError, check_plan, load_plan
from kubexm_exec.plugins import PluginInfo, Registry, step_registry
from tests.cli.kit import Folder

SPEC = """
params: {word: {default: hello}}
inventory: hosts.yaml
modules:
  - {name: m, uses: lib/module.yaml, with: {text: "{{ params.word }}"}}
"""
FILES = {
    "hosts.yaml": (
        "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\nhosts: [{name: a, connector: local}]\n"
    ),
    "lib/module.yaml": """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: m}
params: {text: {}}
tasks:
  - name: t
    steps:
      - {name: say, type: message, with: {text: "{{ params.text }}"}}
      - {name: conf, type: template, when: false, with: {src: conf.j2, path: /nonexistent/conf}}
      - {name: run, type: script, when: false, with: {src: files/run.sh}}
""",
    "lib/templates/conf.j2": "{% include 'part.j2' %}\n",
    "lib/templates/part.j2": "x\n",
    "lib/files/run.sh": "echo\n",
}


@pytest.fixture
def planned(folder: Folder) -> Folder:
    folder.spec(SPEC)
    for name, text in FILES.items():
        folder.file(name, text)
    result = folder.run("plan", "main.yaml", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    return folder


def run_plan(*arguments: str) -> Result:
    result = CliRunner().invoke(run_command, ["--plan", "plan.json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_a_plan_says_what_it_holds_and_what_to_type_next(folder: Folder) -> None:
    folder.spec(SPEC)
    for name, text in FILES.items():
        folder.file(name, text)
    result = folder.run("plan", "main.yaml", "-o", "plan.json")
    head, *nodes, digest, end = result.stdout.splitlines()
    assert head.startswith("site: 3 nodes, 3 actions on 1 host")
    assert [line.split(maxsplit=3) for line in nodes] == [
        ["m/t/say", "message", "a"],
        ["m/t/conf", "template", "a"],
        ["m/t/run", "script", "a", "cannot be undone"],
    ]
    assert digest == f"hash {json.loads((folder.path / 'plan.json').read_text())['graph']['hash'][:16]}"
    assert end == "Saved to plan.json. Run it with: kubexm-run --plan plan.json"
    assert folder.run("plan", "main.yaml").stdout.splitlines()[-1] == "Save it with: kubexm plan main.yaml -o plan.json"


def test_a_plan_as_data_names_what_cannot_be_undone(planned: Folder) -> None:
    data = planned.data("plan", "main.yaml", "-o", "other.json")
    assert (data["nodes"], data["actions"], data["hosts"], data["file"]) == (3, 3, ["a"], "other.json")
    assert data["notReversible"] == ["m/t/run"]


def test_a_plan_is_for_its_owner_alone_and_replaced_whole(planned: Folder) -> None:
    path = planned.path / "plan.json"
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    planned.run("plan", "main.yaml", "-o", "plan.json")
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in planned.path.iterdir()) == ["hosts.yaml", "lib", "main.yaml", "plan.json"]


def test_a_plan_that_cannot_be_written_is_one_clear_message(planned: Folder) -> None:
    result = planned.run("plan", "main.yaml", "-o", "nowhere/plan.json")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: nowhere/plan.json cannot be written: there is no folder nowhere\n  → mkdir -p nowhere\n"
    )


def test_a_plan_runs_as_it_was_made(planned: Folder) -> None:
    planned.run("plan", "main.yaml", "-e", "word=bonjour", "-o", "plan.json")
    result = run_plan("--output", "plain")
    assert result.exit_code == 0, result.output
    assert "bonjour" in result.output


def test_a_plan_takes_no_values(planned: Folder) -> None:
    for option in (("-e", "word=x"), ("--limit", "a"), ("--tags", "x"), ("-i", "hosts.yaml")):
        result = run_plan(*option)
        assert result.exit_code == 2
        assert "a plan runs exactly as saved" in result.stderr


@pytest.mark.parametrize("name", ["main.yaml", *FILES])
def test_a_plan_is_stale_when_a_file_changed(planned: Folder, name: str) -> None:
    path = planned.path / name
    path.write_text(path.read_text("utf-8") + "# changed\n", "utf-8")
    result = run_plan()
    assert result.exit_code == 3
    assert f"{name} has changed" in result.stderr
    assert "kubexm plan main.yaml -o plan.json" in result.stderr
    data = json.loads(run_plan("--output", "json").stdout)
    assert data["diagnostics"][0]["code"] == "stale-plan"


@pytest.mark.parametrize("made_in", [".", "sub"])
def test_a_stale_plan_is_made_again_from_where_one_stands(
    planned: Folder, made_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = planned.path / made_in
    there.mkdir(exist_ok=True)
    monkeypatch.chdir(there)
    planned.run("plan", os.path.relpath(planned.path / "main.yaml"), "-o", str(planned.path / "plan.json"))
    (planned.path / "hosts.yaml").write_text(FILES["hosts.yaml"] + "# changed\n", "utf-8")
    elsewhere = planned.path / "my work"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = CliRunner().invoke(run_command, ["--plan", "../plan.json"])
    assert result.exit_code == 3
    typed = shlex.split(result.stderr.rpartition("create it again: kubexm ")[2])
    assert typed == ["plan", "../main.yaml", "-o", "../plan.json"]
    assert planned.run(*typed).exit_code == 0
    assert CliRunner().invoke(run_command, ["--plan", "../plan.json", "--output", "quiet"]).exit_code == 0


@pytest.mark.parametrize("name", ["main.yaml", "lib/files/run.sh"])
def test_a_plan_is_stale_when_a_file_is_gone(planned: Folder, name: str) -> None:
    (planned.path / name).unlink()
    result = run_plan()
    assert result.exit_code == 3
    assert f"{name}: No such file or directory" in result.stderr


def test_all_that_changed_is_told_at_once(planned: Folder) -> None:
    for name in ("main.yaml", "lib/templates/part.j2"):
        (planned.path / name).write_text("x\n#\n", "utf-8")
    assert run_plan().stderr.count("has changed") == 2


def test_a_plan_is_stale_when_a_package_is_another(planned: Folder) -> None:
    class Newer(Registry[Any]):
        def info(self, name: str) -> PluginInfo:
            known = super().info(name)
            return PluginInfo(known.name, known.value, known.distribution, "99.0") if name == "message" else known

    plan = load_plan("plan.json")
    check_plan(plan, step_registry())
    with pytest.raises(StalePlanError, match=r"step type message was kubexm \S+, now kubexm 99\.0"):
        check_plan(plan, Newer("kubexm.steps", "step type"))
    with pytest.raises(StalePlanError, match='there is no step type "message"'):
        check_plan(plan, Registry("kubexm.nothing", "step type"))


def change_spec(data: dict[str, Any]) -> None:
    data["graph"]["nodes"][0]["with"]["text"] = "something else"


def change_digest(data: dict[str, Any]) -> None:
    data["graph"]["sources"]["main.yaml"] = "0" * 64


def change_root(data: dict[str, Any]) -> None:
    data["root"] = "/"


def change_base(data: dict[str, Any]) -> None:
    data["graph"]["scopes"][0]["base"] = "/"


def change_packages(data: dict[str, Any]) -> None:
    data["packages"] = []


def remove_hash(data: dict[str, Any]) -> None:
    del data["hash"]


def remove_nodes(data: dict[str, Any]) -> None:
    del data["graph"]["nodes"]


@pytest.mark.parametrize(
    "edit", [change_spec, change_digest, change_root, change_base, change_packages, remove_hash, remove_nodes]
)
def test_a_plan_that_somebody_edited_is_not_run(planned: Folder, edit: Any) -> None:
    path = planned.path / "plan.json"
    data = json.loads(path.read_text("utf-8"))
    edit(data)
    path.write_text(json.dumps(data), "utf-8")
    result = run_plan()
    assert result.exit_code == 2
    assert "was edited or is damaged" in result.stderr
    assert "kubexm plan SPEC -o plan.json" in result.stderr


def test_reordered_or_reformatted_json_is_still_the_plan(planned: Folder) -> None:
    path = planned.path / "plan.json"
    data = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(data, sort_keys=True, indent=None), "utf-8")
    assert run_plan("--output", "quiet").exit_code == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"kind": "kubexm.io/plan"}', "[" * 100_000, "\ud800"])
def test_what_is_no_plan_is_said_to_be_none(folder: Folder, text: str) -> None:
    (folder.path / "plan.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(PlanError, match=r"plan\.json is not a plan"):
        load_plan("plan.json")
    result = run_plan()
    assert result.exit_code == 2
    assert result.stderr == "error: plan.json is not a plan; create one with: kubexm plan SPEC -o plan.json\n"


def test_a_plan_that_is_not_there_is_one_clear_message(folder: Folder) -> None:
    result = run_plan()
    assert result.exit_code == 2
    assert result.stderr == "error: the plan plan.json cannot be read: No such file or directory\n"


@pytest.mark.parametrize("number", [1, 99])
def test_a_plan_of_another_format_is_refused(planned: Folder, number: int) -> None:
    from kubexm_exec.model.graph import digest

    path = planned.path / "plan.json"
    data = json.loads(path.read_text("utf-8"))
    data["graph"]["format"] = number
    del data["hash"]
    path.write_text(json.dumps({**data, "hash": digest(data)}), "utf-8")
    result = run_plan()
    assert result.exit_code == 2
    assert f"cannot be used by this version of kubexm: its graph is of format {number}, and" in result.stderr
    assert "create one with: kubexm plan SPEC" in result.stderr


def test_a_plan_can_be_run_from_another_folder(
    planned: Folder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (planned.path / "plan.json").rename(elsewhere / "plan.json")
    monkeypatch.chdir(elsewhere)
    assert run_plan("--output", "quiet").exit_code == 0

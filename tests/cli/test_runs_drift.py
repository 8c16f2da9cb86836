"""kubexm drift: what is no longer as the last successful run left it, and nothing else."""

from __future__ import annotations

import pytest

from tests.cli.kit import Folder

BODY = """
params: {content: {type: string, default: hello}}
inventory:
  defaults: {connector: local}
  hosts: [{name: one}, {name: two}]
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: ask
            type: command
            with: {shell: "echo value", changedWhen: false}
          - name: always
            type: command
            with: {shell: "test ! -e DIR/broken"}
          - name: conf
            type: file
            with: {path: "DIR/{{ host.name }}.conf", content: "{{ params.content }} {{ steps.ask.outputs.stdout }}"}
          - name: link
            type: symlink
            with: {path: "DIR/{{ host.name }}.link", target: "DIR/{{ host.name }}.conf"}
"""


@pytest.fixture
def site(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A spec that was run with success."""
    monkeypatch.setenv("KUBEXM_STATE", str(folder.path / "state"))
    folder.spec(BODY.replace("DIR", str(folder.path)))
    done = folder.run("run", "main.yaml", "--output", "quiet", "-e", "content=bye")
    assert done.exit_code == 0, done.output
    return folder


def test_nothing_differs_right_after_a_run_and_what_was_not_looked_at_is_counted_apart(site: Folder) -> None:
    done = site.run("drift", "main.yaml")
    assert done.exit_code == 0
    told = done.output.splitlines()[-1]
    assert told == "Drift: nothing differs on 2 hosts, 4 were not checked, 4 unchanged. Nothing was changed."
    assert site.run("drift", "main.yaml", "--quiet").output == ""


def test_what_was_changed_on_a_host_is_named_with_host_and_step_and_nothing_is_changed(site: Folder) -> None:
    (site.path / "one.conf").write_text("other")
    (site.path / "two.link").unlink()
    done = site.run("drift", "main.yaml", "--quiet")
    assert done.exit_code == 1
    assert f"one: differs: m/t/conf: would change {site.path}/one.conf" in done.output
    assert "two: differs: m/t/link: " in done.output
    assert "2 actions differ on 2 of 2 hosts" in done.output
    assert "kubexm-run main.yaml -e content=bye   restore the desired state" in done.output
    assert (site.path / "one.conf").read_text() == "other"
    assert "    +bye value" in site.run("drift", "main.yaml", "--diff").output


def test_findings_as_data(site: Folder) -> None:
    (site.path / "one.conf").write_text("other")
    data = site.data("drift", "main.yaml", exit_code=1)
    assert data["drift"] is True
    assert [(each["node"], each["host"]) for each in data["differs"]] == [("m/t/conf", "one")]
    assert {each["node"] for each in data["notLookedAt"]} == {"m/t/ask", "m/t/always"}
    assert data["same"] == 3
    assert data["hosts"] == ["one", "two"]
    assert data["run"] == site.data("runs")[0]["id"]


def test_a_spec_that_changed_since_is_said_and_what_was_run_is_compared(site: Folder) -> None:
    spec = site.path / "main.yaml"
    spec.write_text(spec.read_text().replace("name: link", "name: other").replace("echo value", "echo new"))
    data = site.data("drift", "main.yaml")
    assert data["drift"] is False
    assert {change["node"] for change in data["specChanges"]} >= {"m/t/link", "m/t/other", "m/t/ask"}
    assert "the spec has changed since" in data["notes"][0]
    spec.write_text("nonsense")
    assert "the spec cannot be compiled now" in site.data("drift", "main.yaml")["notes"][0]
    spec.unlink()
    assert site.run("drift", "main.yaml").exit_code == 0


def test_a_later_run_that_failed_is_said_and_the_last_success_is_compared(site: Folder) -> None:
    site.file("broken", "")
    assert site.run("run", "main.yaml", "--output", "quiet").exit_code == 1
    data = site.data("drift", "main.yaml")
    assert data["run"] == site.data("runs")[1]["id"]
    assert ": Failed" in data["notes"][0]


def test_without_a_successful_run_it_is_refused(site: Folder) -> None:
    site.spec(
        "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}}]}]}]", "new.yaml"
    )
    none = site.run("drift", "new.yaml")
    assert none.exit_code == 3
    assert "there is no successful run of new.yaml" in none.output
    assert "kubexm-run new.yaml" in none.output
    assert site.run("drift", "main.yaml", "--target", "elsewhere").exit_code == 3
    run = site.data("runs")[0]["id"]
    assert site.run("runs", "rollback", run, "--yes", "--output", "quiet").exit_code == 0
    gone = site.run("drift", "main.yaml")
    assert gone.exit_code == 3
    assert "RolledBack" in gone.output


def test_a_run_from_a_plan_is_a_run_of_its_spec_with_the_values_that_were_chosen_then(site: Folder) -> None:
    assert site.run("plan", "main.yaml", "-o", "plan.json", "-e", "content=planned").exit_code == 0
    none = site.run("drift", "plan.json")
    assert (none.exit_code, "kubexm-run --plan plan.json" in none.output) == (3, True), none.output
    assert site.run("run", "--plan", "plan.json", "--output", "quiet").exit_code == 0
    newest = site.data("runs")[0]["id"]
    assert site.data("drift", "main.yaml")["run"] == newest
    (site.path / "one.conf").write_text("other")
    for name in ("main.yaml", "plan.json"):
        told = site.run("drift", name).output
        assert f"since run {newest}" in told
        assert "Next:  kubexm-run --plan plan.json   restore the desired state" in told
    shown = site.run("runs", "show", "last").output
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith(("  spec", "  plan", "  chosen"))] == [
        str(site.path / "main.yaml"), "plan.json", "content=planned",
    ]  # fmt: skip
    assert "kubexm drift main.yaml" in shown
    data = site.data("runs", "show", "last")
    assert (data["plan"], data["choice"]["values"]) == ("plan.json", ["content=planned"])


def test_a_wrong_call_is_exit_code_2(site: Folder) -> None:
    assert site.run("drift", "nowhere.yaml").exit_code == 2
    site.file("text.db", "this is no database, and long enough to be looked at as one" * 10)
    assert site.run("drift", "main.yaml", "--journal", "text.db").exit_code == 2


def test_what_cannot_be_looked_at_is_told_and_is_exit_code_1(site: Folder) -> None:
    (site.path / "one.conf").unlink()
    (site.path / "one.conf").mkdir()
    done = site.run("drift", "main.yaml")
    assert done.exit_code == 1
    assert "one: FAILED: m/t/conf: " in done.output
    assert "1 could not be checked" in done.output
    assert [(each["node"], each["host"]) for each in site.data("drift", "main.yaml", exit_code=1)["failed"]] == [
        ("m/t/conf", "one")
    ]

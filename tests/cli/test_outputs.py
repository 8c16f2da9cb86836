"""Outputs of steps: every way to reach them, every reason for which there are none, in runs, checks and resumes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.kit import Folder

WAYS = {
    "by name": "{{ steps.probe.outputs.stdout }}",
    "by its path": "{{ steps['m/t/probe'].outputs['stdout'] }}",
    "of a host": "{{ steps.probe.hosts[host.name].outputs.stdout }}",
    "made by the spec": "{{ steps.probe.outputs.loud }}",
    "of the task": "{{ tasks.t.outputs.word }}",
    "of the module": "{{ modules.m.outputs.word }}",
    "by a variable": "{{ vars.word }}",
}

SPEC = """
inventory: {defaults: {connector: local}, hosts: [{name: one}]}
modules:
  - name: m
    outputs: {word: "{{ steps['t/probe'].outputs.stdout }}"}
    tasks:
      - name: t
        outputs: {word: "{{ steps.probe.outputs.stdout }}"}
        steps:
          - PROBE
          - name: use
            type: command
            with: {argv: [echo, USE], readOnly: true}
      - name: u
        vars: {word: "{{ steps['t/probe'].outputs.stdout }}"}
        steps:
          - name: use
            type: command
            with: {argv: [echo, USE], readOnly: true}
  - name: n
    vars: {word: "{{ steps['m/t/probe'].outputs.stdout }}"}
    tasks:
      - name: v
        steps:
          - name: use
            type: command
            with: {argv: [echo, USE], readOnly: true}
"""


def _spec(way: str, probe: str, expression: str = "") -> tuple[str, str]:
    """A spec that reaches for the outputs of a probe in one way only, and the step that does."""
    expression = expression or WAYS[way]
    place = {"of the task": 1, "of the module": 2, "by a variable": 2}.get(way, 0)
    user = ("m/t/use", "m/u/use", "n/v/use")[place]
    text = SPEC.replace("PROBE", probe)
    parts = text.split("USE")
    text = parts[0]
    for number, part in enumerate(parts[1:]):
        text += (json.dumps(expression) if number == place else "nothing") + part
    return text, user


def _probe(more: str = "", with_: str = "shell: 'echo Word'") -> str:
    loud = "{{ result.stdout | upper }}"
    return f"{{name: probe, type: command, {more} outputs: {{loud: '{loud}'}}, with: {{{with_}}}}}"


@pytest.fixture
def site(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("KUBEXM_STATE", str(folder.path / "state"))
    return folder


def _actions(site: Folder, *arguments: str, exit_code: int = 0) -> dict[str, dict[str, Any]]:
    """The results of a run by node."""
    done = site.run("run", "main.yaml", "--output", "json", *arguments)
    assert done.exit_code == exit_code, done.output
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return {event["node"]: event for event in events if event["event"] == "action.finished"}


@pytest.mark.parametrize("way", WAYS)
def test_outputs_are_reached_and_what_check_has_not_run_makes_others_unknown(site: Folder, way: str) -> None:
    text, user = _spec(way, _probe("", "shell: 'echo Word', changedWhen: false"))
    site.spec(text)
    assert _actions(site)[user]["outputs"]["stdout"] in ("Word", "WORD")
    found = _actions(site, "--executor", "check")
    assert (found["m/t/probe"]["forecast"], found[user]["forecast"]) == ("notLookedAt", "unknown")
    assert "m/t/probe" in found[user]["message"]
    dry = _actions(site, "--executor", "dry-run")
    assert dry[user]["forecast"] == "unknown"
    assert site.run("drift", "main.yaml").exit_code == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_probe_that_only_reads_is_run_by_check_and_drift_and_known_to_what_follows(site: Folder, way: str) -> None:
    text, user = _spec(way, _probe("", "shell: 'echo Word; echo ran >> asked', readOnly: true"))
    site.spec(text)
    found = _actions(site, "--executor", "check")
    assert found[user]["outputs"]["stdout"] in ("Word", "WORD")
    assert {each["forecast"] for each in found.values()} == {"satisfied"}
    assert (site.path / "asked").read_text() == "ran\n"
    _actions(site)
    data = site.data("drift", "main.yaml")
    assert (data["same"], data["notLookedAt"], data["unknown"]) == (4, [], [])
    assert (site.path / "asked").read_text() == "ran\n" * 3


REASONS = {
    "a condition": ("when: 'host.name == \"two\"',", "was skipped on one: condition not met"),
    "a failure": ("ignoreErrors: true, timeout: 0.2s,", "failed on one: timed out after 0.2s"),
}


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_missing_names_its_step_and_the_reason(site: Folder, way: str, reason: str) -> None:
    more, said = REASONS[reason]
    text, user = _spec(way, _probe(more, "shell: 'sleep 30'"))
    site.spec(text)
    failed = _actions(site, exit_code=1)[user]
    assert f"step m/t/probe {said}" in failed["message"]
    name = "loud" if way == "made by the spec" else "stdout"
    assert f"there is no '{name}'" in failed["message"]
    text, user = _spec(way, _probe(more, "shell: 'sleep 30'"), WAYS[way].replace(" }}", " | default('none') }}"))
    site.spec(text)
    assert _actions(site)[user]["outputs"]["stdout"] == "none"


@pytest.mark.parametrize("way", WAYS)
def test_outputs_of_a_failure_that_is_ignored_are_kept(site: Folder, way: str) -> None:
    text, user = _spec(way, _probe("ignoreErrors: true,", "shell: 'echo Word; echo why >&2; exit 3'"))
    site.spec(text)
    found = _actions(site)
    assert found["m/t/probe"]["outputs"] == {"stdout": "Word", "stderr": "why", "exitCode": 3, "loud": "WORD"}
    assert found[user]["outputs"]["stdout"] in ("Word", "WORD")


def test_what_the_spec_cannot_make_of_a_failure_is_missing_and_the_rest_is_there(site: Folder) -> None:
    site.spec("""
        modules:
          - name: m
            tasks:
              - name: t
                steps:
                  - name: probe
                    type: command
                    ignoreErrors: true
                    outputs: {number: "{{ result.stdout | int }}", first: "{{ (result.stdout | from_json).a }}"}
                    with: {shell: "echo 7; exit 1"}
                  - {name: use, type: set, with: {values: {n: "{{ steps.probe.outputs.number }}"}}}
                  - {name: not, type: set, with: {values: {n: "{{ steps.probe.outputs.first | default('no') }}"}}}
        """)
    found = _actions(site)
    assert (found["m/t/use"]["outputs"], found["m/t/not"]["outputs"]) == ({"n": 7}, {"n": "no"})


REPAIR = """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: probe
            type: command
            ignoreErrors: true
            with: {shell: "echo probed >> log; echo gone; test -e repaired", readOnly: true}
          - name: repair
            type: command
            when: steps.probe.outputs.exitCode != 0 and steps.probe.outputs.stdout == 'gone'
            with: {shell: "echo repair >> log; test -e ready && touch repaired"}
          - {name: end, type: set, with: {values: {code: "{{ steps.probe.outputs.exitCode }}"}}}
        hooks:
          onFailure:
            - name: tell
              type: command
              with: {shell: "echo {{ steps.probe.outputs.stdout }} {{ steps.repair.outputs.exitCode }} >> log"}
"""


def test_probe_ignore_repair_works_in_a_check_a_run_and_after_a_resume(site: Folder) -> None:
    site.spec(REPAIR)
    found = _actions(site, "--executor", "check")
    assert [found[f"m/t/{name}"].get("forecast") for name in ("probe", "repair", "end")] == [
        None, "notLookedAt", "satisfied",
    ]  # fmt: skip
    assert found["m/t/end"]["outputs"] == {"code": 1}
    (site.path / "log").unlink()
    assert site.run("run", "main.yaml", "--output", "quiet").exit_code == 1
    assert (site.path / "log").read_text() == "probed\nrepair\ngone 1\n", "the hook knows what both gave"
    (site.path / "ready").touch()
    done = site.run("runs", "resume", "last", "--only", "m/t/repair", "--only", "m/t/end", "--output", "quiet")
    assert done.exit_code == 0, done.output
    assert (site.path / "log").read_text() == "probed\nrepair\ngone 1\nrepair\n", "the probe was not asked again"
    assert (site.path / "repaired").exists()


TAGGED = """
inventory: {defaults: {connector: local}, hosts: [{name: one}, {name: two}]}
modules:
  - name: m
    outputs: {word: "{{ steps['t/probe'].outputs.stdout }}"}
    tasks:
      - name: t
        outputs: {word: "{{ steps.probe.outputs.stdout }}"}
        steps:
          - {name: probe, type: command, tags: [asks], with: {shell: "echo x"}}
          - {name: use, type: message, tags: [uses], WHEN with: {text: USE}}
      - name: u
        vars: {word: "{{ steps['t/probe'].outputs.stdout }}"}
        steps:
          - {name: use, type: message, tags: [uses], WHEN with: {text: OTHER}}
"""


@pytest.mark.parametrize("choice", [("--tags", "uses"), ("--skip-tags", "asks")])
@pytest.mark.parametrize(
    ("use", "other"),
    [
        ("{{ steps.probe.outputs.stdout }}", "x"),
        ("x", "{{ steps['m/t/probe'].hosts['two'].outputs.stdout }}"),
        ("x", "{{ steps['m/t/probe'].outputs.stdout }}"),
        ("x", "{{ tasks.t.outputs.word }}"),
        ("x", "{{ vars.word }}"),
    ],
)
def test_outputs_of_a_step_that_tags_leave_out_are_an_error_of_the_call(
    site: Folder, use: str, other: str, choice: tuple[str, str]
) -> None:
    text = TAGGED.replace("USE", json.dumps(use)).replace("OTHER", json.dumps(other))
    site.spec(text.replace("WHEN", ""))
    done = site.run("run", "main.yaml", *choice)
    assert done.exit_code == 2, done.output
    assert "error[unselected-step]: " in done.output
    assert f"does not exist in this run: {choice[0]} " in done.output
    assert " step m/t/probe\n" in done.output
    assert "main.yaml:" in done.output
    assert site.run("run", "main.yaml", "--output", "quiet").exit_code == 0, "with all tags it is right"
    assert site.run("run", "main.yaml", "--tags", "asks", "--output", "quiet").exit_code == 0, "nobody uses it"
    forgiven = [one.replace(" }}", " | default('') }}") for one in (use, other)]
    site.spec(
        TAGGED.replace("USE", json.dumps(forgiven[0])).replace("OTHER", json.dumps(forgiven[1])).replace("WHEN", "")
    )
    assert site.run("run", "main.yaml", *choice, "--output", "quiet").exit_code == 0
    site.spec(text.replace("WHEN", "when: host.name == 'three',"))
    done = site.run("run", "main.yaml", *choice)
    assert done.exit_code == 0, "a condition decides whether it is used at all"
    assert "warning[unselected-step]: " in done.output


def test_a_step_of_a_fragment_that_check_does_not_make_is_unknown(site: Folder) -> None:
    site.spec("""
        modules:
          - name: m
            tasks:
              - name: t
                steps:
                  - name: more
                    type: fragment
                    with: {steps: [{name: ask, type: command, with: {shell: "echo x"}}]}
                  - {name: use, type: set, with: {values: {a: "{{ steps['more+ask'].outputs.stdout }}"}}}
        """)
    found = _actions(site, "--executor", "check")
    assert (found["m/t/use"]["forecast"], found["m/t/use"]["message"]) == ("unknown", "depends on m/t/more")
    assert _actions(site)["m/t/use"]["outputs"] == {"a": "x"}


DOUBTED = """
inventory: {defaults: {connector: local}, hosts: [{name: one}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: first, type: file, with: {path: "HERE/first", content: "2\\n"}}
          - READER
          - {name: last, when: "CONDITION", type: file, with: {path: "HERE/last", content: "2\\n"}}
"""


@pytest.mark.parametrize(
    ("reader", "condition"),
    [
        ("{name: look, type: stat, with: {path: HERE/first}}", "steps.look.outputs.exists"),
        (
            "{name: look, type: command, with: {shell: 'cat HERE/first || true', readOnly: true}}",
            "steps.look.outputs.stdout == '2'",
        ),
    ],
    ids=["stat", "readOnly"],
)
def test_check_does_not_rely_on_what_it_reads_after_something_that_would_change(
    site: Folder, reader: str, condition: str
) -> None:
    text = DOUBTED.replace("READER", reader).replace("CONDITION", condition).replace("HERE", str(site.path))
    site.spec(text)
    found = _actions(site, "--executor", "check")["m/t/last"]
    assert (found["forecast"], found["message"]) == ("unknown", "depends on m/t/first")
    _actions(site)
    assert (site.path / "last").exists()
    found = _actions(site, "--executor", "check")
    assert {each["forecast"] for each in found.values()} == {"satisfied"}

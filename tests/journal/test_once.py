"""Whole runs of what runs once: on whichever level it stands, killed or resumed, it is done on one host."""

from __future__ import annotations

import itertools
import json
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.forker import Forker

HEAD = """apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: once}
maxFailures: 2
inventory:
  defaults: {connector: local}
  hosts: [{name: h1, DEAD}, {name: "h[2:3]"}]
"""
DEAD = 'connector: ssh, address: 127.0.0.1, port: 1, hostKeys: "off"'
PING = """
- name: ping
  tasks:
    - {name: t, runOn: all, steps: [{name: p, type: command, with: {shell: 'true', readOnly: true}}]}
"""
WORK = "{name: w, type: command, with: {shell: 'echo {{ host.name }} >>done'}}"
AFTER = """
- name: after
  tasks:
    - name: t
      runOn: all
      steps:
        - name: a
          type: command
          with: {shell: echo $H >>after, unless: grep -qx $H after, env: {H: "{{ host.name }}"}}
"""
ONCE = "{all: true, runOnce: true}"
_NOTHING = "steps: [{name: x, type: message, with: {text: x}}]"
SHAPES = {
    "task": f"- name: m\n  tasks: [{{name: t, runOn: {ONCE}, steps: [{WORK}]}}]",
    "module": f"- name: m\n  runOn: {ONCE}\n  tasks: [{{name: t, steps: [{WORK}]}}]",
    "linear": f"- name: m\n  tasks: [{{name: t, strategy: linear, runOn: {ONCE}, steps: [{WORK}]}}]",
    "batch": f"- name: m\n  tasks: [{{name: t, batch: {{size: 1, maxFailures: 3}}, runOn: {ONCE}, steps: [{WORK}]}}]",
    "aligned": f"- name: m\n  tasks: [{{name: t, align: host, runOn: {ONCE}, steps: [{WORK}]}}]",
    "loop": f"- name: m\n  tasks: [{{name: t, runOn: {ONCE}, steps: [{WORK[:-1]}, forEach: [one]}}]}}]",
    "maxFailures": f"- name: m\n  tasks: [{{name: t, maxFailures: 3, runOn: {ONCE}, steps: [{WORK}]}}]",
    "hook of the task": f"- name: m\n  tasks: [{{name: t, runOn: {ONCE}, {_NOTHING}, hooks: {{pre: [{WORK}]}}}}]",
    "hook with runOn": f"- name: m\n  tasks: [{{name: t, runOn: h3, {_NOTHING}, "
    f"hooks: {{pre: [{WORK[:-1]}, runOn: {ONCE}}}]}}}}]",
    "hook of a module": f"- name: m\n  hooks: {{post: [{WORK[:-1]}, runOn: {ONCE}}}]}}\n"
    f"  tasks: [{{name: t, runOn: h3, {_NOTHING}}}]",
}


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


def write(folder: Path, *modules: str, dead: str = DEAD) -> None:
    body = "\n".join(text.strip() for text in modules)
    (folder / "spec.yaml").write_text(HEAD.replace("DEAD", dead) + "modules:\n" + textwrap.indent(body, "  "))


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_done_once_on_the_first_host_that_is_there_or_the_run_fails(
    forker: Forker, tmp_path: Path, shape: str
) -> None:
    write(tmp_path, PING, SHAPES[shape], AFTER)
    assert forker.program(tmp_path, "kubexm-run", "spec.yaml", "--output", "plain") == 0, (
        tmp_path / "said"
    ).read_text()
    assert lines(tmp_path / "done") == ["h2"]
    assert sorted(lines(tmp_path / "after")) == ["h2", "h3"], "the first host has left the run"
    # With a limit there is nobody else: it is not done, and what waits for it does not run.
    for name in ("done", "after"):
        (tmp_path / name).unlink()
    code = forker.program(tmp_path, "kubexm-run", "spec.yaml", "--output", "plain", "--limit", "h1")
    assert (code, lines(tmp_path / "done"), lines(tmp_path / "after")) == (1, [], []), (tmp_path / "said").read_text()


@pytest.mark.parametrize("shape", ["task", "hook with runOn"])
def test_a_host_that_fails_when_it_is_chosen_fails_the_run(forker: Forker, tmp_path: Path, shape: str) -> None:
    write(tmp_path, SHAPES[shape], AFTER)
    assert forker.program(tmp_path, "kubexm-run", "spec.yaml", "--output", "plain") == 1
    assert (lines(tmp_path / "done"), lines(tmp_path / "after")) == ([], [])


def test_a_resumed_run_goes_on_where_something_was_done_and_its_outputs_are_those_of_that_host(
    forker: Forker, tmp_path: Path
) -> None:
    steps = f"""
- name: m
  tasks:
    - name: t
      runOn: {ONCE}
      steps:
        - {{name: w, type: command, with: {{shell: 'echo {{{{ host.name }}}} | tee -a done'}}}}
        - {{name: x, type: command, with: {{shell: 'test -e good && echo {{{{ host.name }}}} >>done'}}}}
    - name: u
      runOn: h3
      steps: [{{name: y, type: command, with: {{shell: "echo {{{{ steps['t/w'].outputs.stdout }}}} >>said.y"}}}}]
"""
    write(tmp_path, PING, steps, AFTER)
    assert forker.program(tmp_path, "kubexm-run", "spec.yaml", "--output", "plain") == 1
    assert lines(tmp_path / "done") == ["h2"]
    (tmp_path / "good").touch()
    write(tmp_path, PING, steps, AFTER, dead="connector: local")
    resume = ("kubexm", "runs", "resume", "last", "--accept-changes", "--output")
    assert forker.program(tmp_path, *resume, "plain") == 0, (tmp_path / "said").read_text()
    assert lines(tmp_path / "done") == ["h2", "h2"]
    assert lines(tmp_path / "said.y") == ["h2"]
    assert sorted(lines(tmp_path / "after")) == ["h1", "h2", "h3"], "the first host is there again"
    assert forker.program(tmp_path, "kubexm", "runs", "show", "last", "--output", "json") == 0
    shown = json.loads((tmp_path / "said").read_text())
    assert shown["status"] == "Success"
    assert forker.program(tmp_path, *resume, "plain") == 0
    assert lines(tmp_path / "done") == ["h2", "h2"], "nothing is done twice"


def test_if_nothing_was_done_the_host_is_chosen_anew(forker: Forker, tmp_path: Path) -> None:
    write(tmp_path, SHAPES["task"], AFTER)
    assert forker.program(tmp_path, "kubexm-run", "spec.yaml", "--output", "plain") == 1
    write(tmp_path, SHAPES["task"], AFTER, dead="connector: local")
    assert forker.program(tmp_path, "kubexm", "runs", "resume", "last", "--accept-changes", "--output", "plain") == 0
    assert lines(tmp_path / "done") == ["h1"]


def test_check_names_the_host_that_it_would_be(forker: Forker, tmp_path: Path) -> None:
    write(tmp_path, PING, SHAPES["task"])
    words = ("kubexm-run", "spec.yaml", "--output", "json", "--executor")
    for executor, hosts in (("dry-run", ["h1"]), ("check", ["h2"])):
        forker.program(tmp_path, *words, executor)
        events = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines() if line.startswith("{")]
        ended = [one["host"] for one in events if one["event"] == "action.finished" and one["node"] == "m/t/w"]
        assert ended == hosts, executor


def test_killed_at_any_write_it_is_done_on_one_host_only(forker: Forker, tmp_path: Path) -> None:
    work = "{name: w, type: command, with: {shell: 'echo {{ host.name }} >>done', unless: test -e done}}"
    for write_number in itertools.count(1, 3):
        folder = tmp_path / str(write_number)
        folder.mkdir()
        write(folder, PING, SHAPES["task"].replace(WORK, work), AFTER)
        code = forker.program(folder, "kubexm-run", "spec.yaml", "--output", "plain", die_at=f"any:{write_number}")
        if code == 0:
            assert write_number > 6, "it had hardly anything to write"
            break
        assert code == -signal.SIGKILL
        write(folder, PING, SHAPES["task"].replace(WORK, work), AFTER, dead="connector: local")
        again = forker.program(folder, "kubexm", "runs", "resume", "last", "--accept-changes", "--output", "plain")
        said = (folder / "said").read_text()
        assert again == 0 or "there is no run yet" in said, said
        assert len(lines(folder / "done")) == (again == 0), said

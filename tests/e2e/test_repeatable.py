"""What was running when the run was killed, and is repeatable: a resume runs it again, needs nobody, and says so."""

from __future__ import annotations

import json

from tests.e2e.site import Site, Sites, ended, wait_until

SPEC = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:2]"]}
        TASK
        steps:
          - name: slow
            type: command
            STEP
            with:
              shell: 'echo x >>"$D/count.$N"; test -e "$D/go" || sleep 600'
              env: {D: FOLDER, N: "{{ host.name }}"}
          - {name: file, type: file, with: {path: "FOLDER/{{ host.name }}", content: "done"}}
"""


def killed(sites: Sites, task: str = "", step: str = "") -> Site:
    """A site whose run was killed in the middle of its slow commands."""
    site = sites(SPEC.replace("TASK", task).replace("STEP", step))
    run = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: site.counts() == {"n1": 1, "n2": 1})
    run.kill()
    ended(run)
    (site.host / "go").touch()
    return site


def test_resume_repeats_what_is_repeatable_and_says_what_that_was(sites: Sites) -> None:
    site = killed(sites, step="repeatable: true")
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert site.counts() == {"n1": 2, "n2": 2}
    assert said.count("(repeated: it was not known whether it had completed") == 2
    assert "repeated  m/t/slow on n1, n2: nobody knew how far it had come" in said
    shown = site.run("kubexm", "runs", "show", code=0)
    assert "Repeated: nobody knew how far these had come\n  m/t/slow on n1, n2\n" in shown
    data = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))
    assert [(each["node"], each["host"]) for each in data["repeated"]] == [("m/t/slow", "n1"), ("m/t/slow", "n2")]
    assert data["result"]["nodeResults"]["m/t/slow"]["hostResults"]["n1"]["repeated"] is True
    assert "repeated" not in data["result"]["nodeResults"]["m/t/file"]["hostResults"]["n1"]


def test_a_task_says_it_for_its_steps_and_a_step_for_itself(sites: Sites) -> None:
    site = killed(sites, task="repeatable: true")
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert site.counts() == {"n1": 2, "n2": 2}
    site = killed(sites, task="repeatable: true", step="repeatable: false")
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=1)
    assert site.counts() == {"n1": 1, "n2": 1}
    assert "check on the host whether it was done" in said


def test_without_it_somebody_has_to_say_what_became_of_the_command(sites: Sites) -> None:
    site = killed(sites)
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=1)
    assert site.counts() == {"n1": 1, "n2": 1}
    assert "with `repeatable: true` it simply runs it again" in said
    site.run("kubexm", "runs", "resume", "last", "--done", "m/t/slow", "--output", "quiet", code=0)
    assert site.counts() == {"n1": 1, "n2": 1}


def test_a_resume_of_other_hosts_or_nodes_does_not_run_what_was_interrupted_and_leaves_it_to_be_settled(
    sites: Sites,
) -> None:
    site = killed(sites, step="repeatable: true")
    site.run("kubexm", "runs", "resume", "last", "--hosts", "n2", "--output", "quiet")
    assert site.counts() == {"n1": 1, "n2": 2}
    site.run("kubexm", "runs", "resume", "last", "--only", "m/t/file", "--output", "quiet")
    assert site.counts() == {"n1": 1, "n2": 2}
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert site.counts() == {"n1": 2, "n2": 2}
    assert said.count("(repeated: it was not known whether it had completed") == 1

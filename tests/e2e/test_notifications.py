"""Handlers with the real program: due after a failure, a kill or a cancel, withdrawn by an undo, listed and dropped."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.postgres import Postgres

SPEC = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: web
    tasks:
      - name: app
        handlers:
          - {name: restart, type: command, with: {shell: 'echo x >>FOLDER/count.restart.{{ host.name }}'}}
        steps:
          - name: conf
            type: file
            notify: [restart]
            with: {path: "FOLDER/conf.{{ host.name }}", content: "new\\n"}
          - name: check
            type: command
            with: {shell: 'test ! -e FOLDER/wait || sleep 300; test -e FOLDER/go', readOnly: true}
"""
HANDLER = "web/app/handlers/restart"


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites(SPEC)


def run(site: Site, *options: str, code: int = 0, die_at: str = "") -> str:
    return site.run("kubexm-run", "spec.yaml", "--output", "plain", *options, code=code, KUBEXM_DIE_AT=die_at)


def resume(site: Site, *options: str, code: int = 0) -> str:
    return site.run("kubexm", "runs", "resume", "last", "--output", "plain", *options, code=code)


def due(site: Site) -> list[tuple[str, str, bool]]:
    listed = json.loads(site.run("kubexm", "notifications", "--output", "json", code=0))
    return [(each["handler"], each["host"], each["sure"]) for each in listed]


def restarts(site: Site) -> tuple[int, int]:
    return site.lines("count.restart.n1"), site.lines("count.restart.n2")


BOTH = [(HANDLER, "n1", True), (HANDLER, "n2", True)]


def test_failed_run_leaves_it_due_and_says_so_everywhere(site: Site) -> None:
    said = run(site, code=1)
    assert f"due  {HANDLER} on n1, n2" in said
    assert due(site) == BOTH
    shown = site.run("kubexm", "runs", "show", code=0)
    assert f"Due since this run, with a resume or the next run:\n  {HANDLER} on n1, n2" in shown
    assert "web/app/conf" in site.run("kubexm", "notifications", code=0)
    (site.host / "go").touch()
    checked = run(site, "--executor", "check")
    assert "due since run" in checked
    planned = run(site, "--executor", "dry-run")
    assert "would run command (due since run" in planned
    resume(site)
    assert (restarts(site), due(site)) == ((1, 1), [])
    assert "not notified: nothing changed" in run(site)


def test_run_on_other_hosts_says_that_it_is_due(site: Site) -> None:
    run(site, code=1)
    (site.host / "go").touch()
    said = run(site, "--limit", "n1")
    assert f"due  {HANDLER} on n2: it was notified" in said
    assert due(site) == BOTH[1:]


def test_run_from_a_plan_serves_it(site: Site) -> None:
    run(site, code=1)
    (site.host / "go").touch()
    site.run("kubexm", "plan", "spec.yaml", "-o", "plan.json", code=0)
    site.run("kubexm-run", "--plan", "plan.json", "--output", "quiet", code=0)
    assert (restarts(site), due(site)) == ((1, 1), [])


def test_cancelled_run_leaves_it_due(site: Site) -> None:
    (site.host / "wait").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: len(due(site)) == 2)
    site.run("kubexm", "runs", "cancel", "last", code=0)
    ended(process, 130)
    assert (restarts(site), due(site)) == ((0, 0), BOTH)


def test_rollback_withdraws_what_the_undone_change_made_due(site: Site) -> None:
    run(site, code=1)
    assert due(site) == BOTH
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert due(site) == []
    assert not (site.host / "conf.n1").exists()
    (site.host / "go").touch()
    run(site)
    assert restarts(site) == (1, 1), "the file is there again, and that is a change"


def test_rollback_policy_withdraws_it_too(sites: Sites) -> None:
    site = sites(f"failurePolicy: rollback{SPEC}")
    run(site, code=1)
    assert due(site) == []


def test_rollback_leaves_what_an_earlier_run_made_due(site: Site) -> None:
    (site.host / "conf.n1").write_text("old\n")
    run(site, code=1)
    site.write(SPEC.replace("new", "newer"))
    run(site, code=1)
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert (site.host / "conf.n1").read_text() == "new\n"
    assert due(site) == BOTH, "what runs there still has the old one"


def test_handler_that_is_gone_is_warned_about_and_dropped_by_name(site: Site) -> None:
    run(site, code=1)
    (site.host / "go").touch()
    site.write(SPEC.replace("restart", "reload"))
    said = run(site)
    assert f'warning[lost-handler]: handler "{HANDLER}" is due on n1, n2, but there is no such handler any more' in said
    assert f"kubexm notifications drop {HANDLER}" in said
    refused = site.run("kubexm", "notifications", "drop", "restart", code=3)
    assert "approve it with --yes" in refused
    assert "dropped 1 notification" in site.run(
        "kubexm", "notifications", "drop", "restart", "--host", "n1", "--yes", code=0
    )
    assert due(site) == BOTH[1:]
    assert "dropped 1 notification" in site.run("kubexm", "notifications", "drop", "web/*", "--yes", code=0)
    assert "no handler is due" in site.run("kubexm", "notifications", "list", code=0)
    assert 'no handler "restart" is due' in site.run("kubexm", "notifications", "drop", "restart", "--yes", code=0)


def test_handler_with_items_is_dropped_by_its_name_and_the_command_that_is_offered_is_safe_to_type(
    sites: Sites,
) -> None:
    items = """forEach: ["a", "$(touch FOLDER/owned)"], """
    site = sites(SPEC.replace("{name: restart, type: command, ", f"{{name: restart, type: command, {items}"))
    run(site, code=1)
    assert len(due(site)) == 4
    site.write(SPEC.replace("restart", "reload"))
    said = run(site, code=1)
    lines = [line.partition("not needed: ")[2] for line in said.splitlines() if "not needed: " in line]
    assert len(lines) == 2
    for line in lines:
        words = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
        ).stdout
        assert words.splitlines()[:3] == ["kubexm", "notifications", "drop"]
        assert words.splitlines()[3].startswith(f"{HANDLER}["), words
    assert not (site.host / "owned").exists()
    site.run("kubexm", "notifications", "drop", "restart", "--yes", code=0)
    assert [handler for handler, _, _ in due(site) if "restart" in handler] == []


def test_another_spec_of_the_target_says_nothing_of_it(sites: Sites) -> None:
    site = sites(f"lock: site{SPEC}")
    run(site, code=1)
    site.write(
        "lock: site\nmodules: [{name: m, tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}}]}]}]",
        "b.yaml",
    )
    said = site.run("kubexm-run", "b.yaml", "--output", "plain", code=0)
    assert "lost-handler" not in said
    assert due(site) == BOTH


def test_nothing_is_dropped_while_a_run_works_on_the_target(site: Site) -> None:
    (site.host / "wait").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: len(due(site)) == 2)
    said = site.run("kubexm", "notifications", "drop", "restart", "--yes", code=3)
    assert "is being worked on by run" in said
    assert due(site) == BOTH
    process.terminate()
    ended(process, 130)


def test_handler_is_run_again_on_request(site: Site) -> None:
    (site.host / "go").touch()
    run(site)
    resume(site, "--from", HANDLER)
    assert restarts(site) == (2, 2)
    resume(site)
    assert restarts(site) == (2, 2)


def test_interrupted_handler_that_is_confirmed_has_served(sites: Sites) -> None:
    site = sites(
        SPEC.replace(
            "echo x >>FOLDER/count.restart", "test ! -e FOLDER/hang || sleep 300; echo x >>FOLDER/count.restart"
        )
    )
    (site.host / "go").touch()
    (site.host / "hang").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: site.runs() and sum(each["kind"] == "start" for each in site.entries()) == 6)
    process.send_signal(signal.SIGKILL)
    ended(process, -signal.SIGKILL)
    assert due(site) == BOTH
    (site.host / "hang").unlink()
    assert "outcome" in resume(site, code=1)
    resume(site, "--done", HANDLER)
    assert (restarts(site), due(site)) == ((0, 0), [])


def test_interrupted_handler_is_run_by_the_next_run(sites: Sites) -> None:
    site = sites(
        SPEC.replace(
            "echo x >>FOLDER/count.restart", "test ! -e FOLDER/hang || sleep 300; echo x >>FOLDER/count.restart"
        )
    )
    (site.host / "go").touch()
    (site.host / "hang").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: site.runs() and sum(each["kind"] == "start" for each in site.entries()) == 6)
    process.send_signal(signal.SIGKILL)
    ended(process, -signal.SIGKILL)
    (site.host / "hang").unlink()
    run(site)
    assert (restarts(site), due(site)) == ((1, 1), [])


def test_steps_that_a_step_returns_notify_as_well(sites: Sites) -> None:
    site = sites("""
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: web
    tasks:
      - name: app
        handlers:
          - {name: restart, type: command, with: {shell: 'echo x >>FOLDER/count.restart.{{ host.name }}'}}
        steps:
          - name: more
            type: fragment
            notify: [restart]
            with:
              steps:
                - name: conf
                  type: file
                  notify: [restart]
                  with: {path: "FOLDER/conf.{{ host.name }}", content: "new\\n"}
""")
    run(site)
    assert restarts(site) == (1, 1)
    run(site)
    assert restarts(site) == (1, 1)


def test_task_that_runs_once_restarts_where_it_ran(sites: Sites) -> None:
    site = sites(SPEC.replace("- name: app\n", '- name: app\n        runOn: {hosts: ["n[1:2]"], runOnce: true}\n'))
    (site.host / "go").touch()
    run(site)
    assert restarts(site) == (1, 0)


def test_handler_at_another_place_works_for_each_changed_host(sites: Sites) -> None:
    site = sites(
        SPEC.replace("name: restart, type: command,", "name: restart, type: command, runOn: control-node,")
        .replace("restart.{{ host.name }}", "restart.{{ origin.name }}.{{ host.name }}")
    )  # fmt: skip
    (site.host / "go").touch()
    (site.host / "conf.n2").write_text("new\n")
    (site.host / "conf.n2").chmod(0o644)
    run(site)
    assert dict(site.counts()) == {"restart.n1.control-node": 1}


@pytest.mark.parametrize("die_at", ["append.before:4", "append.between:1", "append.between:3", "append.after:4"])
def test_server_keeps_it_as_well(die_at: str, sites: Sites, server: Postgres) -> None:
    """kill -9 between the entries and the notification leaves neither; and the next run serves what is due.

    A handler that ran without its end being written down runs again.
    """
    site = sites(SPEC, journal=server.new_database())
    (site.host / "go").touch()
    run(site, code=-signal.SIGKILL, die_at=die_at)
    run(site)
    assert (site.host / "conf.n1").exists()
    assert (all(count in (1, 2) for count in restarts(site)), due(site)) == (True, [])


def test_server_runs_resumes_and_rolls_back(sites: Sites, server: Postgres) -> None:
    site = sites(SPEC, journal=server.new_database())
    run(site, code=1)
    assert due(site) == BOTH
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert due(site) == []
    run(site, code=1)
    (site.host / "go").touch()
    resume(site)
    assert (restarts(site), due(site)) == ((1, 1), [])


CHAINED = """
inventory: {hosts: [{name: n1, connector: local}]}
modules:
  - name: web
    tasks:
      - name: app
        handlers:
          - {name: reload, type: command, notify: restart, with: {shell: 'echo x >>FOLDER/count.reload'}}
          - {name: restart, type: command, with: {shell: 'echo x >>FOLDER/count.restart'}}
        steps:
          - {name: conf, type: file, notify: reload, with: {path: FOLDER/conf, content: "new"}}
          - {name: now, flush: [reload]}
          - {name: check, type: command, with: {shell: 'test -e FOLDER/go', readOnly: true}}
"""


def test_resume_runs_what_a_handler_has_notified_that_was_served_before(sites: Sites) -> None:
    site = sites(CHAINED)
    run(site, code=1)
    assert (site.counts(), len(due(site))) == ({"reload": 1}, 1)
    (site.host / "go").touch()
    resume(site)
    assert (site.counts(), due(site)) == ({"reload": 1, "restart": 1}, [])


RESCUED = """
inventory: {hosts: [{name: n1, connector: local}]}
modules:
  - name: web
    tasks:
      - name: app
        handlers:
          - {name: restart, type: command, with: {shell: 'echo x >>FOLDER/count.restart'}}
        steps:
          - name: change
            steps:
              - {name: conf, type: file, notify: restart, with: {path: FOLDER/conf, content: "new"}}
              - {name: check, type: command, with: {shell: 'test -e FOLDER/go', readOnly: true}}
            rescue:
              - {name: old, type: file, notify: restart, with: {path: FOLDER/old, content: "old"}}
              - {name: works, type: command, with: {shell: 'test -e FOLDER/go', readOnly: true}}
"""


def test_resume_serves_also_what_a_rescue_has_notified_that_is_not_needed_any_more(sites: Sites) -> None:
    site = sites(RESCUED)
    run(site, code=1)
    (site.host / "go").touch()
    resume(site)
    assert (site.counts(), due(site)) == ({"restart": 1}, [])


FLUSHED = """
inventory: {hosts: [{name: n1, connector: local}]}
modules:
  - name: web
    tasks:
      - name: app
        handlers:
          - {name: reload, type: command, notify: restart, with: {shell: 'echo reload >>FOLDER/log'}}
          - {name: restart, type: command, with: {shell: 'echo restart >>FOLDER/log'}}
        steps:
          - {name: conf, type: file, notify: restart, with: {path: FOLDER/conf, content: "new"}}
          - {name: now, flush: [restart]}
          - MORE
          - {name: then, flush: [reload]}
          - name: check
            type: command
            with: {shell: 'test ! -e FOLDER/wait || { echo waits >>FOLDER/log; sleep 300; }', readOnly: true}
          - {name: last, type: command, notify: restart, with: {shell: 'echo last >>FOLDER/log'}}
"""
NOTIFYING = {
    "step": "{name: more, type: file, notify: restart, with: {path: FOLDER/more, content: new}}",
    "handler": "{name: more, type: file, notify: reload, with: {path: FOLDER/more, content: new}}",
    "returned step": (
        "{name: more, type: fragment, notify: restart, with: {steps: "
        "[{name: file, type: file, notify: restart, with: {path: FOLDER/more, content: new}}]}}"
    ),
    "rescue": (
        "{name: more, steps: [{name: no, type: command, with: {shell: exit 1}}], "
        "rescue: [{name: file, type: file, notify: restart, with: {path: FOLDER/more, content: new}}]}"
    ),
}


@pytest.mark.parametrize("by", NOTIFYING)
def test_resume_serves_again_after_what_notified_it_and_not_in_a_flush_that_stands_before(
    by: str, sites: Sites
) -> None:
    site = sites(FLUSHED.replace("MORE", NOTIFYING[by]))
    (site.host / "wait").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: site.lines("log") and "waits" in (site.host / "log").read_text())
    process.send_signal(signal.SIGKILL)
    ended(process, -signal.SIGKILL)
    before = (site.host / "log").read_text().split()
    assert before == ["restart", *(["reload"] if by == "handler" else []), "waits"]
    assert due(site) == [(HANDLER, "n1", True)]
    (site.host / "wait").unlink()
    resume(site)
    assert (site.host / "log").read_text().split() == [*before, "last", "restart"]
    assert due(site) == []


def test_handler_that_is_asked_for_runs_at_its_own_place(sites: Sites) -> None:
    site = sites(FLUSHED.replace("MORE", NOTIFYING["step"]))
    run(site)
    resume(site, "--from", HANDLER, "--from", "web/app/last")
    assert (site.host / "log").read_text().split() == ["restart", "last", "restart", "last", "restart"]
    resume(site, "--from", "web/app/now/restart")
    # With all that depends on it: the last step notifies the handler again.
    assert (site.host / "log").read_text().split()[5:] == ["restart", "last", "restart"]

"""Undo on the real program: once for each action, only of what nobody else changed since, and never twice blindly."""

from __future__ import annotations

import hashlib
import json
import signal
from typing import Any

import pytest

from tests.e2e.site import Site, Sites

HEAD = "inventory: {hosts: [{name: n, connector: local}]}\n"


def body(steps: str, further: str = "") -> str:
    """A spec with one task of these steps."""
    indented = "\n".join(f"          {line}" for line in steps.strip("\n").splitlines())
    return (
        f"{HEAD}{further}modules:\n  - name: m\n    tasks:\n      - name: t\n        runOn: {{hosts: [n]}}\n"
        f"        steps:\n{indented}\n"
    )


def roll_back(site: Site, *options: str, code: int) -> str:
    return site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain", *options, code=code)


def resume(site: Site, *options: str, code: int) -> str:
    return site.run("kubexm", "runs", "resume", "last", "--output", "plain", *options, code=code)


def states(site: Site) -> list[tuple[str, str]]:
    """What undos came to, in order."""
    return [(each["node"], each["state"]) for each in site.entries() if each["kind"] == "undone"]


FILES = """
- {name: a, type: file, with: {path: FOLDER/a, content: "ours\\n"}}
- {name: b, type: file, with: {path: FOLDER/b, content: "ours\\n"}}
- {name: c, type: file, with: {path: FOLDER/c, state: absent}}
"""


@pytest.mark.parametrize("name", ["b", "c"])
def test_what_somebody_changed_since_the_run_is_left_alone_and_named_until_told_to_overwrite(
    sites: Sites, name: str
) -> None:
    site = sites(body(FILES))
    (site.host / "b").write_text("before\n")
    (site.host / "c").write_text("before\n")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    meddled = site.host / name
    meddled.write_text("theirs\n")
    said = roll_back(site, code=1)
    assert f"left alone: changed since by somebody else: {meddled}" in said
    assert meddled.read_text() == "theirs\n"
    assert not (site.host / "a").exists(), "the others are undone"
    assert site.status() == "Failed"
    assert (f"m/t/{name}", "leftAlone") in states(site)
    # It can be tried again, and stays so until somebody says otherwise.
    assert "1 left alone" in roll_back(site, code=1)
    shown = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json", code=0))
    assert [each["node"] for each in shown["undone"] if each["undo"].startswith("leftAlone")] == [f"m/t/{name}"]
    roll_back(site, "--overwrite", code=0)
    assert {each: (site.host / each).read_text() for each in "bc"} == {"b": "before\n", "c": "before\n"}
    assert site.status() == "RolledBack"


EDITS = """
- {name: whole, type: file, with: {path: FOLDER/f, content: "one\\n", mode: "0640"}}
- {name: again, type: file, with: {path: FOLDER/f, content: "two\\n"}}
- {name: mode, type: file, with: {path: FOLDER/f, mode: "0600"}}
- {name: first, type: line-in-file, with: {path: FOLDER/f, line: a}}
- {name: second, type: line-in-file, with: {path: FOLDER/f, line: b}}
- {name: third, type: line-in-file, with: {path: FOLDER/f, line: a2, match: ^a}}
- {name: each, type: line-in-file, forEach: [x, y, z], with: {path: FOLDER/f, line: "{{ item }}"}}
- {name: block, type: block-in-file, with: {path: FOLDER/f, content: "k\\n"}}
- {name: link, type: symlink, with: {path: FOLDER/l, target: f}}
- {name: relink, type: symlink, with: {path: FOLDER/l, target: g}}
- {name: gone, type: file, with: {path: FOLDER/f, state: absent}}
"""


@pytest.mark.parametrize("there", [True, False])
def test_steps_that_change_the_same_file_one_after_another_are_undone_to_what_was_there_first(
    sites: Sites, there: bool
) -> None:
    site = sites(body(EDITS))
    if there:
        (site.host / "f").write_text("before\n")
        (site.host / "l").symlink_to("elsewhere")
    before = site.content()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    said = roll_back(site, code=0)
    assert site.content() == before
    assert "13 of 13 actions undone" in said


def test_policy_leaves_alone_what_another_step_changed_behind_its_back_and_overwrites_if_told(sites: Sites) -> None:
    steps = """
- {name: file, type: file, with: {path: FOLDER/f, content: "ours\\n"}}
- {name: meddles, type: command, with: {shell: "echo theirs >FOLDER/f"}}
- {name: fails, type: command, with: {shell: "false"}}
"""
    site = sites(body(steps, "failurePolicy: rollback\n"))
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert f"left alone: changed since by somebody else: {site.host}/f (content)" in said
    assert (site.host / "f").read_text() == "theirs\n"
    (site.host / "f").unlink()
    site.run("kubexm-run", "spec.yaml", "--output", "plain", "--overwrite", code=1)
    assert not (site.host / "f").exists()


# It changes something in each attempt, and only the last one succeeds.
FLAKY = """
- name: flaky
  type: command
  retry: {attempts: 3, delay: 0s}
  with:
    shell: 'echo x >>FOLDER/count.run; test "$(wc -l <FOLDER/count.run)" -ge 3'
    undo: {shell: "echo x >>FOLDER/count.undo"}
"""
FAILS = """
- {name: fails, type: command, with: {shell: "test ! -e FOLDER/fail"}}
"""


@pytest.mark.parametrize("policy", [True, False])
def test_an_action_of_several_attempts_and_sessions_is_undone_once(sites: Sites, policy: bool) -> None:
    site = sites(body(FLAKY.replace("-ge 3", "-ge 5") + FAILS, "failurePolicy: rollback\n" if policy else ""))
    (site.host / "fail").touch()
    if not policy:
        site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
        resume(site, code=1)
        assert site.counts() == {"run": 5}
        roll_back(site, code=0)
    else:
        site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL, KUBEXM_DIE_AT="append.after:6")
        assert site.counts() == {"run": 2}
        resume(site, "--from", "m/t/flaky", code=1)
    assert site.counts()["undo"] == 1
    assert [state for node, state in states(site) if node == "m/t/flaky"] == ["undone"]


def test_a_write_that_failed_and_changed_nothing_is_neither_undone_nor_counted(sites: Sites) -> None:
    steps = """
- {name: good, type: file, with: {path: FOLDER/good, content: x}}
- {name: bad, type: file, with: {path: FOLDER/bad, content: x, owner: nobody-of-that-name}}
"""
    site = sites(body(steps))
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert "nobody-of-that-name" in said
    assert any(each["kind"] == "undo" and each["node"] == "m/t/bad" for each in site.entries()), "it was about to write"
    said = roll_back(site, code=0)
    assert "1 action can be undone" in said
    assert states(site) == [("m/t/good", "undone")]
    site.write(body(steps, "failurePolicy: rollback\n"))
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert "Rolled back: 1 action undone" in said


BREAKS_OFF = """
- name: a
  type: command
  with:
    shell: echo x >>FOLDER/count.run; touch FOLDER/made
    GUARD
    undo: {shell: 'echo x >>FOLDER/count.undo; rm -f FOLDER/made; test -e FOLDER/quiet || kill -9 $PPID'}
- {name: fails, type: command, with: {shell: "test ! -e FOLDER/fail"}}
"""


def broken_off(sites: Sites, guard: str = "") -> Site:
    """A run whose policy began to undo it, and was killed in the middle of that."""
    site = sites(body(BREAKS_OFF.replace("GUARD", guard), "failurePolicy: rollback\n"))
    (site.host / "fail").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    assert site.counts() == {"run": 1, "undo": 1}
    return site


@pytest.mark.parametrize(("option", "undone"), [("--undone", 1), ("--again", 2)])
def test_resume_does_not_repeat_an_undo_that_broke_off_before_somebody_says_so(
    sites: Sites, option: str, undone: int
) -> None:
    site = broken_off(sites)
    for _ in range(2):
        said = resume(site, code=1)
        assert "its undo was interrupted before, and the outcome is unknown" in said
        assert "--undone NODE" in said
        assert "--again NODE" in said
        assert site.counts() == {"run": 1, "undo": 1}, "nothing was run, and nothing undone"
    assert 'no undo of "m/t/fails" was interrupted' in resume(site, option, "m/t/fails", code=2)
    (site.host / "fail").unlink()
    resume(site, option, "m/t/a", code=0)
    assert site.counts() == {"run": 2, "undo": undone}, "it is done again"
    assert site.status() == "Success"
    roll_back(site, code=0)
    assert site.counts() == {"run": 2, "undo": undone + 1}


@pytest.mark.parametrize("took_effect", [True, False])
def test_resume_asks_the_host_whether_an_undo_that_broke_off_was_done(sites: Sites, took_effect: bool) -> None:
    site = broken_off(sites, "creates: FOLDER/made")
    if not took_effect:
        (site.host / "made").touch()
    resume(site, code=1)
    # The run failed once more: what was undone was done again, and then all of it was undone, once.
    assert site.counts() == {"run": 2 if took_effect else 1, "undo": 2}
    assert not (site.host / "made").exists()


def test_digest_of_a_secret_is_not_written_down_as_it_is(sites: Sites) -> None:
    steps = """
- {name: file, type: file, with: {path: FOLDER/f, content: "{{ secret('env:TOKEN') }}"}}
"""
    site = sites(body(steps), TOKEN="a-secret-that-is-easily-guessed")
    (site.host / "f").write_text("before")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    kept: Any = [each for each in site.entries() if each["kind"] == "undo"]
    [left] = kept[0]["data"]["files"][0]["left"]
    plain = hashlib.sha256(site.env["TOKEN"].encode()).hexdigest()
    assert left["sha256"]
    assert plain not in json.dumps(kept)
    # And still it tells whether somebody was there.
    (site.host / "f").write_text("theirs")
    assert "left alone" in roll_back(site, code=1)
    (site.host / "f").write_text(site.env["TOKEN"])
    (site.host / "f").chmod(0o600)
    roll_back(site, code=0)
    assert (site.host / "f").read_text() == "before"


DOUBTFUL = """
failurePolicy: rollback
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - name: z
            type: command
            with: {shell: 'echo z >>FOLDER/log', undo: {shell: 'echo undo-z >>FOLDER/log'}}
          - name: a
            type: command
            with:
              shell: 'echo a >>FOLDER/log; test -e FOLDER/quiet || kill -9 $PPID'
              undo: {shell: 'echo undo-a >>FOLDER/log'}
"""


def test_action_that_was_in_doubt_and_has_been_undone_is_simply_done_anew(sites: Sites) -> None:
    site = sites(DOUBTFUL)
    log = site.host / "log"
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    # Nobody knows whether it was done, so that the policy takes all of it back.
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=1)
    assert log.read_text().split() == ["z", "a", "undo-a", "undo-z"]
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert log.read_text().split() == ["z", "a", "undo-a", "undo-z", "z", "a"]


def test_a_command_with_a_secret_in_its_environment_can_be_undone_in_a_later_session(sites: Sites) -> None:
    step = """
- name: login
  type: command
  sensitive: true
  with:
    shell: 'echo "$WORD" >FOLDER/login'
    env: {WORD: "{{ secret('env:THE_WORD') }}"}
    undo: {shell: 'grep -qx "$WORD" FOLDER/login && rm FOLDER/login'}
"""
    site = sites(body(step), THE_WORD="correct-horse")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert (site.host / "login").exists()
    assert "Rolled back: 1 action undone" in roll_back(site, code=0)
    assert not (site.host / "login").exists()
    assert "correct-horse" not in repr(site.entries())


def test_the_path_of_a_sensitive_file_is_no_secret_that_others_beside_it_would_contain(sites: Sites) -> None:
    site = sites(
        body(
            """
- {name: hidden, type: file, sensitive: true, with: {path: FOLDER/hidden, content: "key of {{ host.name }}\\n"}}
- {name: plain, type: file, with: {path: FOLDER/plain, content: "plain\\n"}}
"""
        )
    )
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0)
    assert f"created {site.host}/plain" in said
    assert "node=m/t/plain" not in said, "a warning that it can be undone in this session only"
    roll_back(site, code=0)
    assert not (site.host / "plain").exists()

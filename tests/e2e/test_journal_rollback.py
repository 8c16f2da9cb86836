"""``kubexm runs rollback``: what a run has done is taken back, each thing once, also after a crash in the middle."""

from __future__ import annotations

import json
import os
import signal
import stat
from typing import Any

import pytest

from tests.e2e.site import Site, Sites

# Files that were there, files that were not, a folder, a step that another one returned, and what cannot be undone.
STEPS = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
FURTHERmodules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:2]"]}
        steps:
          - {name: folder, type: directory, with: {path: "FOLDER/dir.{{ host.name }}", mode: "0750"}}
          - {name: old, type: file, with: {path: "FOLDER/old.{{ host.name }}", content: "new\\n", mode: "0644"}}
          - {name: inside, type: file, with: {path: "FOLDER/dir.{{ host.name }}/inside", content: "x\\n"}}
          - name: more
            type: fragment
            with:
              steps:
                - {name: added, type: file, with: {path: "FOLDER/added.{{ host.name }}", content: "y\\n"}}
          - {name: link, type: symlink, with: {path: "FOLDER/link.{{ host.name }}", target: old}}
          - name: line
            type: lineInFile
            with: {path: "FOLDER/old.{{ host.name }}", line: "size {{ steps['m/t/old'].outputs.size }}"}
          - {name: lasting, type: command, with: {shell: 'echo x >>FOLDER/count.lasting'}}
      - name: after
        runOn: {hosts: [n1]}
        steps:
          - {name: last, type: file, with: {path: FOLDER/last, content: "z\\n"}}
          - {name: fails, type: command, with: {shell: "test ! -e FOLDER/count.fail"}}
"""


def spec(further: str = "") -> str:
    body = STEPS.replace("FURTHER", further)
    return body.replace("type: lineInFile", "type: line-in-file")


class Before:
    """A site with files as they were before the run."""

    def __init__(self, site: Site) -> None:
        self.site = site
        for number in (1, 2):
            path = site.host / f"old.n{number}"
            path.write_text(f"old {number}\n")
            path.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(path, 4242, 4343)
        self.state = self.look()

    def fail(self, wanted: bool = True) -> None:
        """Whether the last step is to fail from now on."""
        path = self.site.host / "count.fail"
        path.touch() if wanted else path.unlink(missing_ok=True)

    def look(self) -> dict[str, Any]:
        """Content, mode and owner of everything, without the counts."""
        found: dict[str, Any] = {}
        for path in sorted(self.site.host.rglob("*")):
            if path.name.startswith("count."):
                continue
            info = path.lstat()
            content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "/"
            found[str(path.relative_to(self.site.host))] = (
                content,
                stat.S_IMODE(info.st_mode),
                info.st_uid,
                info.st_gid,
            )
        return found


@pytest.fixture
def before(sites: Sites) -> Before:
    return Before(sites(spec()))


def undone(site: Site) -> list[tuple[str, str]]:
    """What was undone, as the journal has it."""
    return [
        (each["node"], each["host"])
        for each in site.entries()
        if each["kind"] == "undone" and each["state"] == "undone"
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_run_is_taken_back_after_success_and_after_failure(code: int, before: Before) -> None:
    site = before.site
    before.fail(code == 1)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=code)
    assert before.look() != before.state
    # Without somebody to ask it does nothing, but says what it would leave.
    said = site.run("kubexm", "runs", "rollback", "last", code=3)
    assert "13 actions can be undone" in said
    assert "cannot be undone: m/t/lasting on n1" in said
    assert "approve it with --yes" in said
    assert undone(site) == []
    said = site.run("kubexm", "runs", "rollback", "last", "--yes", code=0)
    assert before.look() == before.state
    assert site.status() == "RolledBack"
    order = undone(site)
    assert len(order) == len(set(order)) == 13
    assert order[0] == ("m/after/last", "n1"), "the barrier between the tasks holds backwards"
    for host in ("n1", "n2"):
        mine = [node.rpartition("/")[2] for node, at in order if at == host and node.startswith("m/t/")]
        assert mine == ["line", "link", "more+added", "inside", "old", "folder"]
    assert "nothing to undo" in site.run("kubexm", "runs", "rollback", "last", "--yes", code=2)
    # What was undone is to be done again.
    before.fail(False)
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert (site.host / "old.n2").read_text() == "new\nsize 4\n"
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert before.look() == before.state


def test_rollback_names_later_runs_on_the_same_target_as_long_as_what_they_did_stands(sites: Sites) -> None:
    body = """
modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: file, with: {path: FOLDER/f, content: "WORD"}}]}]}]
"""
    site = sites(body.replace("WORD", "one"))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    [first] = [run["id"] for run in site.runs()]
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)  # changes nothing
    site.write(body.replace("WORD", "two"))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    second, unchanged, _ = (run["id"] for run in site.runs())
    said = site.run("kubexm", "runs", "rollback", first, code=3)
    assert f"later run on the same target: {second} of test" in said
    assert unchanged not in said
    assert "their changes are kept" in said
    overwriting = site.run("kubexm", "runs", "rollback", first, "--overwrite", code=3)
    assert "what they changed of the same is lost" in overwriting
    assert "are kept" not in overwriting
    assert "later run" not in site.run("kubexm", "runs", "rollback", second, "--yes", code=0)
    assert (site.host / "f").read_text() == "one"
    assert "later run" not in site.run("kubexm", "runs", "rollback", first, "--yes", code=0)
    assert not (site.host / "f").exists()


@pytest.mark.parametrize(
    "die_at",
    ["append.after:1", "append.after:5", "append.before:6", "append.after:6", "append.before:13", "end.before:1"],
)
def test_rollback_that_was_killed_is_gone_on_with_and_everything_is_undone_once(die_at: str, before: Before) -> None:
    site = before.site
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    site.run(
        "kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=-signal.SIGKILL, KUBEXM_DIE_AT=die_at
    )
    assert site.status() == "Interrupted"
    had = undone(site)
    done = site.start("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet")
    said = "".join(done.communicate(timeout=90))
    if die_at.startswith("end"):
        assert "nothing to undo" in said
    else:
        assert done.returncode == 0, said
        assert site.status() == "RolledBack"
        [message] = [run["message"] for run in site.runs()]
        assert message.startswith("13 of "), "of all sessions of the rollback"
    assert before.look() == before.state
    order = undone(site)
    assert len(order) == len(set(order)) == 13, "what the journal calls undone was undone again"
    assert order[: len(had)] == had


def test_resume_after_half_a_rollback_does_again_what_was_undone(before: Before) -> None:
    site = before.site
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    whole = before.look()
    # After an undo took effect, before the journal knew: the first entries say what cannot be undone.
    site.run(
        "kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=-signal.SIGKILL,
        KUBEXM_DIE_AT="append.before:6",
    )  # fmt: skip
    assert before.look() != whole
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert before.look() == whole
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert before.look() == before.state


REACTS = """
FURTHERmodules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: conf, type: file, with: {path: FOLDER/conf, content: "a\\n"}}
          - name: restart
            type: command
            when: "{{ steps.conf.changed }}"
            with: {shell: echo x >>FOLDER/count.restart}
          - {name: verify, type: command, with: {shell: echo x >>FOLDER/count.verify, readOnly: true}}
      - name: apart
        needs: []
        steps:
          - {name: other, type: command, with: {shell: echo x >>FOLDER/count.other}}
      - name: last
        steps:
          - {name: gate, type: command, with: {shell: test -e FOLDER/open}}
"""


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize("policy", [False, True])
def test_resume_does_again_what_depends_on_what_was_undone_or_left_alone(
    sites: Sites, policy: bool, touched: bool
) -> None:
    site = sites(REACTS.replace("FURTHER", "failurePolicy: rollback\n" if policy else ""))
    if policy and touched:
        site.write(
            REACTS.replace("FURTHER", "failurePolicy: rollback\n").replace("test -e", "echo >FOLDER/conf; test -e")
        )
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    if not policy:
        if touched:
            (site.host / "conf").write_text("somebody else's\n")
        said = roll_back(site, code=int(touched))
    assert (site.host / "conf").exists() == touched
    [run] = site.runs()
    shown = site.run("kubexm", "runs", "show", "last", code=0)
    for each in (said, shown):
        assert (f"kubexm runs rollback {run['id']} --overwrite" in each) == touched, each
    if policy or touched:
        left = {each["node"] for each in json.loads(site.run("kubexm", "runs", "show", "--output", "json"))["left"]}
        assert left == {"m/t/conf", "m/t/restart", "m/t/verify", "m/last/gate"}, shown
    (site.host / "open").touch()
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert "1 of 5 actions" in said, said
    assert (site.host / "conf").exists()
    assert site.counts() == {"restart": 2, "verify": 2, "other": 1}, said


def test_policy_rollback_in_a_resumed_run_undoes_what_earlier_sessions_did(sites: Sites) -> None:
    before = Before(sites(spec("failurePolicy: rollback\n")))
    site = before.site
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL, KUBEXM_DIE_AT="append.after:14")
    assert before.look() != before.state
    before.fail()
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=1)
    assert before.look() == before.state, said
    assert site.status() == "Failed"
    order = undone(site)
    assert len(order) == len(set(order)) == 13
    # It can be gone on with: everything is done again.
    before.fail(False)
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert (site.host / "last").exists()
    assert site.status() == "Success"


def test_policy_rollback_that_was_killed_is_gone_on_with_by_the_command(sites: Sites) -> None:
    before = Before(sites(spec("failurePolicy: rollback\n")))
    site = before.site
    before.fail()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    assert before.look() == before.state
    appended = sum(1 for each in site.entries() if each["kind"] == "undone")
    assert appended > 13, "what cannot be undone is written down too"
    assert "nothing to undo" in site.run("kubexm", "runs", "rollback", "last", "--yes", code=2)


def test_undo_of_what_a_changed_spec_has_no_more_or_elsewhere(sites: Sites) -> None:
    before = Before(sites(spec()))
    site = before.site
    before.fail()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    before.fail(False)
    changed = spec().replace("FOLDER/last", "FOLDER/elsewhere").replace("dir.{{", "other.{{")
    start = changed.index("          - {name: link")
    site.write(changed[:start] + changed[changed.index("          - name: line") :])
    site.run("kubexm", "runs", "resume", "last", "--accept-changes", "--output", "quiet", code=0)
    assert (site.host / "elsewhere").exists()
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert before.look() == before.state


def test_undo_that_fails_is_told_the_others_are_undone_and_it_can_be_tried_again(before: Before) -> None:
    site = before.site
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    # A folder that is not empty cannot be taken away.
    guest = site.host / "dir.n1" / "guest"
    guest.write_text("mine")
    said = site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "json")
    left = before.look()
    assert guest.read_text() == "mine"
    guest.unlink()
    states = [json.loads(line)["result"] for line in said.splitlines() if '"action.undone"' in line]
    if "undoFailed" in states:
        assert site.status() == "Failed"
        site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    else:
        # Leaving a folder that somebody else uses is its way of undoing it.
        (site.host / "dir.n1").rmdir()
    assert left != before.state
    assert before.look() == before.state


def test_undo_goes_where_the_work_was_done_although_the_spec_says_another_place_now(sites: Sites) -> None:
    text = """
inventory: {hosts: [{name: n1, connector: local}]}
vars: {place: one}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n1]}
        steps:
          - {name: copy, type: fetch, with: {path: FOLDER/file, to: "FOLDER/{{ vars.place }}", name: file}}
          - {name: folder, type: directory, with: {path: "FOLDER/made.{{ vars.place }}", mode: "0750"}}
          - {name: fails, type: command, with: {shell: "test -e FOLDER/two"}}
"""
    site = sites(text)
    (site.host / "file").write_text("content")
    for place in ("one", "two"):
        (site.host / place / "n1").mkdir(parents=True)
    (site.host / "two").rename(site.host / "two.later")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "two.later").rename(site.host / "two")
    site.write(text.replace("place: one", "place: two"))
    site.run("kubexm", "runs", "resume", "last", "--accept-changes", "--output", "quiet", code=0)
    copies = [site.host / place / "n1" / "file" for place in ("one", "two")]
    assert all(path.read_text() == "content" for path in copies)
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert not any(path.exists() for path in [*copies, *site.host.glob("made.*")])


UNDO_BREAKS_OFF = """
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - name: a
            type: command
            with:
              shell: touch FOLDER/made
              GUARD
              undo: {shell: 'echo x >>FOLDER/count.undo; rm FOLDER/made; test -e FOLDER/quiet || kill -9 $PPID'}
"""


def roll_back(site: Site, *options: str, code: int) -> str:
    return site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain", *options, code=code)


@pytest.mark.parametrize(("option", "times"), [("--undone", 1), ("--again", 2)])
def test_an_undo_that_broke_off_is_not_repeated_before_somebody_says_so(sites: Sites, option: str, times: int) -> None:
    site = sites(UNDO_BREAKS_OFF.replace("GUARD", ""))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet")
    roll_back(site, code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    for _ in range(2):
        said = " ".join(roll_back(site, code=1).split())
        assert "the outcome is unknown" in said
        assert "use --undone NODE if it was undone, or --again NODE to have it undone once more" in said
        assert site.counts() == {"undo": 1}
        shown = site.run("kubexm", "runs", "show", "last", code=0)
        assert (
            "Unknown outcome of the undo (check the host, then use --undone or --again NODE):\n  m/t/a on n\n" in shown
        )
        history = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json", code=0))
        assert [(each["node"], each["host"]) for each in history["undoing"]] == [("m/t/a", "n")]
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=1)
    assert "FAILED  m/t/a on n\n" in said
    assert 'no undo of "m/t/b" was interrupted' in roll_back(site, option, "m/t/b", code=2)
    (site.host / "made").touch()
    roll_back(site, option, "m/t/a", code=0)
    assert site.counts() == {"undo": times}
    assert [run["message"] for run in site.runs()] == ["1 of 1 action undone"], "whichever session did it"
    assert "Unknown outcome of the undo" not in site.run("kubexm", "runs", "show", "last", code=0)
    assert "nothing to undo" in roll_back(site, code=2)


def test_an_undo_that_broke_off_is_done_if_the_host_shows_that(sites: Sites) -> None:
    site = sites(UNDO_BREAKS_OFF.replace("GUARD", "creates: FOLDER/made"))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet")
    roll_back(site, code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    roll_back(site, code=0)
    assert site.counts() == {"undo": 1}

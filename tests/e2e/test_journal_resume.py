"""``kubexm runs resume``: what is done stays, what is not is done; what was chosen or has changed is run again."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from kubexm_exec.model.result import SkipReason
from kubexm_exec.scheduler import Action
from tests.e2e.site import Site, Sites, wait_until

# Every step counts; those named in the folder "count.bad.NAME.HOST" fail.
STEPS = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
vars: {word: one}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:2]"]}
        steps:
          - {name: a, type: command, with: {shell: &sh 'echo x >>"$D/count.$N"; echo "out $N"; test ! -e "$D/bad.$N"', env: {D: FOLDER, N: "a.{{ host.name }}"}}}
          - {name: b, type: command, with: {shell: *sh, env: {D: FOLDER, N: "b.{{ host.name }}"}}}
          - {name: never, type: command, when: "false", with: {shell: *sh, env: {D: FOLDER, N: never}}}
      - name: u
        runOn: {hosts: [n1]}
        steps:
          - {name: c, type: command, with: {shell: *sh, env: {D: FOLDER, N: "c"}}}
          - {name: d, type: file, with: {path: FOLDER/d, content: "{{ steps['m/t/b'].outputs.stdout }}"}}
          - {name: e, type: command, with: {shell: *sh, env: {D: FOLDER, N: "e"}}}
      - name: free
        needs: []
        runOn: {hosts: [n2]}
        steps:
          - {name: f, type: command, ignoreErrors: true, with: {shell: *sh, env: {D: FOLDER, N: "f"}}}
HOOKS
"""  # noqa: E501
HOOKS = """hooks:
  pre: [{name: pre, type: command, with: {shell: &sh2 'echo x >>"$D/count.$N"', env: {D: FOLDER, N: pre}}}]
  post: [{name: post, type: command, with: {shell: *sh2, env: {D: FOLDER, N: post}}}]
  onFailure: [{name: failed, type: command, with: {shell: *sh2, env: {D: FOLDER, N: failed}}}]
  always: [{name: always, type: command, with: {shell: *sh2, env: {D: FOLDER, N: always}}}]
"""


def spec(hooks: str = "") -> str:
    return STEPS.replace("HOOKS", hooks)


def resume(site: Site, *options: str, code: int = 0, cwd: Path | None = None) -> str:
    return site.run("kubexm", "runs", "resume", "last", "--output", "plain", *options, code=code, cwd=cwd)


def run_all(site: Site) -> None:
    """A run in which every step was executed once."""
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    ran(site, {"a.n1": 1, "a.n2": 1, "b.n1": 1, "b.n2": 1, "c": 1, "e": 1, "f": 1})


def bad(site: Site, *names: str) -> None:
    for name in names:
        (site.host / f"bad.{name}").touch()


def good(site: Site) -> None:
    for path in site.host.glob("bad.*"):
        path.unlink()


def ran(site: Site, what: dict[str, int]) -> None:
    """Only these were executed since the counts were last forgotten, so often."""
    assert dict(site.counts()) == what
    for path in site.host.glob("count.*"):
        path.unlink()


def test_resume_runs_what_failed_and_what_was_skipped_for_it_and_hooks_only_around_what_runs(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    bad(site, "b.n2", "f")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    ran(site, {"pre": 1, "a.n1": 1, "a.n2": 1, "b.n1": 1, "b.n2": 1, "f": 1, "failed": 1, "always": 1})
    good(site)
    resume(site)
    # What failed and was ignored is tried again too.
    ran(site, {"pre": 1, "b.n2": 1, "c": 1, "e": 1, "f": 1, "post": 1, "always": 1})
    assert (site.host / "d").read_text() == "out b.n1", "outputs of an earlier session are there"
    assert site.status() == "Success"
    resume(site)
    ran(site, {})
    sessions = site.history().sessions
    assert [(each.mode, each.status) for each in sessions] == [
        ("run", "Failed"), ("resume", "Success"), ("resume", "Success"),
    ]  # fmt: skip


def test_what_is_run_again_can_be_chosen(sites: Sites) -> None:
    site = sites(spec())
    bad(site, "a.n1", "a.n2", "f")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    ran(site, {"a.n1": 1, "a.n2": 1, "f": 1})
    good(site)
    resume(site, "--hosts", "n2", code=1)
    ran(site, {"a.n2": 1, "b.n2": 1, "f": 1})
    # All that was asked for is done, if not all of the run.
    resume(site, "--only", "m/t")
    ran(site, {"a.n1": 1, "b.n1": 1})
    assert site.status() == "Partial"
    assert "■ Partial  test: " in site.run("kubexm", "runs", "show", "last", code=0)
    resume(site)
    ran(site, {"c": 1, "e": 1})
    resume(site, "--from", "m/u/d")
    ran(site, {"e": 1})
    resume(site, "--from", "m/t/b")
    ran(site, {"b.n1": 1, "b.n2": 1, "c": 1, "e": 1})
    said = resume(site, "--from", "m/u/dd", code=2)
    assert 'there is no node "m/u/dd"' in said
    assert "m/u/d" in said
    assert 'hosts of the run: "n9" is not a host' in resume(site, "--hosts", "n9", code=2)
    assert "omit --only and --hosts" in resume(site, "--hosts", "n1", "--accept-changes", code=2)


def test_what_waits_for_something_that_was_not_chosen_is_not_said_to_wait_for_a_failure(sites: Sites) -> None:
    site = sites("""
inventory: {hosts: [{name: "n[1:3]", connector: local}]}
modules:
  - name: m
    tasks:
      - {name: t, runOn: all, steps: [{name: a, type: command, with: {shell: "test -e FOLDER/go"}}]}
      - {name: u, runOn: all, steps: [{name: b, type: command, with: {shell: "true"}}]}
      - {name: v, runOn: all, steps: [{name: c, type: command, with: {shell: "true"}}]}
""")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    said = resume(site, "--only", "m/u", code=1)
    assert "skipped    m/u/b  n1  because m/t/a failed in an earlier session\n" in said
    (site.host / "go").touch()
    said = resume(site, "--only", "m/t")
    assert "skipped    m/v/c  n1  because m/u/b was not chosen\n" in said
    said = resume(site, "--hosts", "n2", code=1)
    assert "skipped    m/v/c  n1  because m/u/b was not chosen\n" in said
    assert "skipped    m/v/c  n2  because m/u/b was not chosen on 2 of its 3 hosts\n" in said
    assert "failed\n" not in said
    left = site.history().actions[Action("m/v/c", "n2")].result
    assert left is not None
    assert (left.reason, left.cause, left.message) == (
        SkipReason.UNCHOSEN, "m/u/b", "m/u/b was not chosen on 2 of its 3 hosts",
    )  # fmt: skip
    assert "m/v/c on n1, n2, n3" in site.run("kubexm", "runs", "show", "last", code=0)
    resume(site)
    assert site.status() == "Success"


def test_what_is_run_again_on_one_host_stays_done_on_the_others(sites: Sites) -> None:
    site = sites(spec())
    run_all(site)
    resume(site, "--from", "m/t/b", "--hosts", "n2")
    ran(site, {"b.n2": 1})
    assert site.status() == "Success"
    resume(site)
    ran(site, {})


BREAKS_OFF = """
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - {name: a, type: command, with: {shell: 'echo x >>FOLDER/count.a; test -e FOLDER/quiet || kill -9 $PPID'}}
          - {name: b, type: command, with: {shell: 'echo x >>FOLDER/count.b'}}
"""


ADDED = """
inventory: {hosts: [{name: n1, connector: local}, {name: n2, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n1, n2]}
        batch: 1
        steps:
          - {name: find, type: command, with: {shell: echo x y, readOnly: true}}
          - name: each
            type: command
            forEach: '{{ steps.find.outputs.stdout.split() }}'
            with: {shell: 'COUNT{{ item }}; test ! -e FOLDER/die-{{ item }} || kill -9 $PPID'}
          - name: more
            type: fragment
            with:
              steps:
                - {name: one, type: command, with: {shell: 'COUNTone; test ! -e FOLDER/die-one || kill -9 $PPID'}}
                - {name: two, type: command, with: {shell: 'COUNTtwo'}}
          - {name: last, type: command, with: {shell: 'test ! -e FOLDER/bad && COUNTlast'}}
""".replace("COUNT", "echo x >>FOLDER/count.{{ host.name }}-")


def test_later_step_that_is_chosen_does_not_repeat_what_was_added_before_it(sites: Sites) -> None:
    site = sites(ADDED)
    (site.host / "bad").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "bad").unlink()
    ran(site, {f"n1-{name}": 1 for name in ("x", "y", "one", "two")})
    resume(site, "--from", "m/t/last")
    ran(site, {"n1-last": 1, **{f"n2-{name}": 1 for name in ("x", "y", "one", "two", "last")}})


@pytest.mark.parametrize(("node", "name"), [("m/t/more+one", "one"), ("m/t/each[y]", "y")])
def test_what_was_added_to_the_graph_can_be_chosen_by_the_name_that_is_shown(
    sites: Sites, node: str, name: str
) -> None:
    site = sites(ADDED)
    (site.host / f"die-{name}").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / f"die-{name}").unlink()
    assert f"--from {node}" in resume(site, code=1).replace("'", "")
    before = site.counts()
    resume(site, "--from", node)
    again = {each: count for each, count in (site.counts() - before).items() if each.startswith("n1-")}
    left = {"one": ("one", "two", "last"), "y": ("y", "one", "two", "last")}[name]
    assert again == {f"n1-{each}": 1 for each in left}


def test_of_what_is_in_doubt_somebody_has_to_say_what_became_of_it(sites: Sites) -> None:
    site = sites(BREAKS_OFF)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    ran(site, {"a": 1})
    for _ in range(2):
        said = resume(site, code=1)
        assert "--done NODE" in said
        for choice in ("--done", "--from"):
            assert f"{choice} m/t/a" in said
            assert f"{choice} m/t/a" in site.run("kubexm", "runs", "show", code=0)
        assert "unreachable: " not in said
        ran(site, {})
    assert 'no outcome of "m/t/b" is unknown' in resume(site, "--done", "m/t/b", code=2)
    resume(site, "--done", "m/t/a")
    ran(site, {"b": 1})
    assert site.status() == "Success"
    resume(site)
    ran(site, {})


def test_what_is_in_doubt_is_run_again_if_somebody_says_so(sites: Sites) -> None:
    site = sites(BREAKS_OFF)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    resume(site, "--from", "m/t/a")
    ran(site, {"a": 2, "b": 1})
    assert site.status() == "Success"


def test_changed_spec_is_refused_with_what_changed_and_accepted_only_that_and_what_depends_on_it_runs(
    sites: Sites,
) -> None:
    site = sites(spec())
    bad(site, "e")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    ran(site, {"a.n1": 1, "a.n2": 1, "b.n1": 1, "b.n2": 1, "c": 1, "e": 1, "f": 1})
    good(site)
    site.write(spec().replace('N: "c"', 'N: "changed"'))
    said = resume(site, code=3)
    assert "the spec has changed since the run, nothing was run" in said
    assert 'changed m/u/c: with.env.N: "c" -> "changed"' in said
    ran(site, {})
    resume(site, "--accept-changes")
    ran(site, {"changed": 1, "e": 1})
    resume(site)
    ran(site, {})
    # Another host: only what is not done there; a host less: nothing. What is taken back is as it was before.
    site.write(spec().replace('N: "c"', 'N: "changed"').replace('"n[1:2]"', '"n[1:3]"'))
    assert "changed m/t/a: on n3 too" in resume(site, code=3)
    resume(site, "--accept-changes")
    counts = dict(site.counts())
    assert {name: counts[name] for name in ("a.n3", "b.n3")} == {"a.n3": 1, "b.n3": 1}
    assert not {"a.n1", "a.n2", "b.n1", "b.n2", "f"} & counts.keys()
    for path in site.host.glob("count.*"):
        path.unlink()
    site.write(spec().replace('N: "c"', 'N: "changed"').replace('"n[1:2]"', '"n[1:2]"'))
    assert "changed m/t/a: no longer on n3" in resume(site, code=3)
    resume(site, "--accept-changes")
    assert not {"a.n1", "a.n2", "a.n3", "f"} & site.counts().keys()


@pytest.mark.parametrize(
    ("dies", "options"),
    [("take.after", ()), ("append.before:1", ()), ("append.before:2", ("--done", "m/u/c")), ("append.after:2", ())],
)
def test_what_is_to_be_run_because_of_changes_is_not_lost_when_who_accepted_them_is_killed(
    sites: Sites, dies: str, options: tuple[str, ...]
) -> None:
    # Without what is looked at again in every session: its entries would come before.
    body = "".join(line for line in spec().splitlines(keepends=True) if "name: never" not in line)
    site = sites(body)
    run_all(site)
    site.write(body.replace('N: "c"', 'N: "changed"'))
    accept = ("kubexm", "runs", "resume", "last", "--output", "quiet", "--accept-changes")
    site.run(*accept, code=-signal.SIGKILL, KUBEXM_DIE_AT=dies)
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))
    assert "m/u/e" in [each["node"] for each in shown["left"]]
    resume(site, *options)
    ran(site, {"changed": 1, "e": 1})
    assert site.status() == "Success"
    resume(site)
    ran(site, {})


def test_what_has_changed_is_run_although_somebody_says_that_it_was_done_before(sites: Sites) -> None:
    site = sites(BREAKS_OFF)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL)
    (site.host / "quiet").touch()
    ran(site, {"a": 1})
    site.write(BREAKS_OFF.replace("count.a", "count.changed"))
    resume(site, "--accept-changes", "--done", "m/t/a")
    ran(site, {"changed": 1, "b": 1})
    assert site.status() == "Success"


def test_show_tells_what_failed_and_what_was_undone_also_if_it_is_to_be_run_again(sites: Sites) -> None:
    site = sites("""
modules:
  - name: m
    tasks:
      - name: t
        steps: [{name: a, type: command, with: {argv: [id]}}, {name: b, type: command, with: {argv: ["false"]}}]
""")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    resume(site, "--from", "m/t/a", "--only", "m/t/a", code=1)
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))
    assert [failure["node"] for failure in shown["failures"]] == ["m/t/b"]
    site = sites(spec())
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    again = ("kubexm", "runs", "resume", "last", "--output", "quiet", "--from", "m/u")
    site.run(*again, code=-signal.SIGKILL, KUBEXM_DIE_AT="take.after")
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))
    assert ("m/u/d", "undone") in [(each["node"], each["undo"]) for each in shown["undone"]]


def test_what_was_to_be_run_again_is_not_lost_when_who_chose_it_is_killed(sites: Sites) -> None:
    site = sites(spec())
    run_all(site)
    again = ("kubexm", "runs", "resume", "last", "--output", "quiet", "--from", "m/t/b", "--hosts", "n2")
    site.run(*again, code=-signal.SIGKILL, KUBEXM_DIE_AT="take.after")
    resume(site)
    ran(site, {"b.n2": 1})
    assert site.status() == "Success"


def test_every_attempt_is_written_down_with_a_digest_of_its_inputs(sites: Sites) -> None:
    site = sites(spec())
    bad(site, "e")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    good(site)
    site.write(spec().replace("FOLDER/d,", "FOLDER/dd,").replace("n[1:2]", "n[1:3]"))
    resume(site, "--accept-changes")
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))["inputs"]
    found: dict[str, list[str]] = {}
    for entry in site.entries():
        if entry["kind"] == "start":
            found.setdefault(entry["node"], []).append(entry["inputs"])
    assert all(re.fullmatch("[0-9a-f]{16}", digest) for digests in found.values() for digest in digests)
    # Of the same step everywhere and always the same, of others and of the same one with other parameters another one.
    assert {node: (len(digests), len(set(digests))) for node, digests in found.items()} == {
        "m/t/a": (3, 1), "m/t/b": (3, 1), "m/t/never": (5, 1),
        "m/u/c": (1, 1), "m/u/d": (2, 2), "m/u/e": (2, 1), "m/free/f": (1, 1),
    }  # fmt: skip
    assert len({digest for digests in found.values() for digest in digests}) == 8
    assert {node: set(digests[-1:]) for node, digests in found.items()} == {
        node: set(by_host.values()) for node, by_host in shown.items()
    }
    site.write(spec().replace("with: {path: FOLDER/d,", "sensitive: true, with: {path: FOLDER/ddd,"))
    resume(site, "--accept-changes")
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))["inputs"]
    assert "m/u/d" not in shown, "who sees the digest of something short can find out what it is"


def test_host_that_is_reached_in_another_way_now_is_told_and_used_when_accepted(sites: Sites) -> None:
    body = spec().replace(
        '{name: "n[1:2]", connector: local}', "{name: n1, connector: local}, {name: n2, connector: WAY}"
    )
    site = sites(body.replace("connector: WAY", "address: 127.0.0.1, port: 9"))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1, HOME=str(site.folder))
    ran(site, {"a.n1": 1, "b.n1": 1})
    site.write(body.replace("WAY", "local"))
    said = resume(site, code=3)
    assert 'host n2: connector: "ssh" -> "local"' in said
    resume(site, "--accept-changes")
    ran(site, {"a.n2": 1, "b.n2": 1, "c": 1, "e": 1, "f": 1})


def test_show_tells_what_is_left_after_a_success_within_max_failures(sites: Sites) -> None:
    site = sites("""
maxFailures: 1
inventory: {hosts: [{name: "n[1:3]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:3]"]}
        steps:
          - {name: a, type: command, with: {shell: "test -e FOLDER/good || test {{ host.name }} != n2"}}
          - {name: b, type: command, with: {shell: echo x >>FOLDER/count.b}}
          - {name: c, type: command, ignoreErrors: true, with: {shell: "false"}}
""")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    for left in ({"m/t/a", "m/t/b", "m/t/c"}, set()):
        history = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json", code=0))
        assert history["status"] == "Success"
        assert {each["node"] for each in history["left"]} == left
        assert {each["host"] for each in history["left"]} <= {"n2"}
        shown = site.run("kubexm", "runs", "show", "last", code=0)
        again = f"kubexm runs resume {history['id']}"
        for words in (again, "Remaining: 3 actions on 1 host", "within maxFailures"):
            assert (words in shown) == bool(left), shown
        assert (again in [each["command"] for each in history["next"]]) == bool(left)
        (site.host / "good").touch()
        site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert site.counts() == {"b": 3}


def test_resume_without_the_spec_or_its_folder_says_so_and_rollback_needs_neither(sites: Sites) -> None:
    site = sites(spec())
    elsewhere = site.folder / "gone"
    elsewhere.mkdir()
    (site.folder / "spec.yaml").rename(elsewhere / "spec.yaml")
    bad(site, "e")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1, cwd=elsewhere)
    (elsewhere / "spec.yaml").unlink()
    assert "spec.yaml" in resume(site, code=2)
    elsewhere.rmdir()
    assert "cannot be used" in resume(site, code=2)
    assert (site.host / "d").exists()
    rollback = ("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain")
    site.run(*rollback, code=0)
    assert not (site.host / "d").exists()


def test_outputs_with_a_secret_are_not_kept_and_who_needs_them_says_so(sites: Sites) -> None:
    body = """
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - {name: gives, type: command, with: {argv: [echo, "{{ secret('env:TOKEN') }}"]}}
          - {name: gate, type: command, with: {shell: "test -e FOLDER/go"}}
          - {name: needs, type: command, with: {argv: [echo, "{{ steps.gives.outputs.stdout }}"]}}
"""
    site = sites(body, TOKEN="hunter2-hunter2")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "go").touch()
    said = resume(site, code=1)
    assert "its outputs were not recorded because they contain a secret" in said
    assert "--from m/t/gives" in said
    resume(site, "--from", "m/t/gives")
    assert site.status() == "Success"
    for path in site.state.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_run_of_a_plan_is_resumed_without_the_plan_but_not_without_its_spec(sites: Sites) -> None:
    site = sites(spec())
    site.run("kubexm", "plan", "spec.yaml", "-o", "plan.json", code=0)
    bad(site, "e")
    site.run("kubexm-run", "--plan", "plan.json", "--output", "quiet", code=1)
    good(site)
    (site.folder / "spec.yaml").rename(site.folder / "other.yaml")
    for path in site.host.glob("count.*"):
        path.unlink()
    (site.folder / "plan.json").unlink()
    assert "spec.yaml" in resume(site, code=2)
    (site.folder / "other.yaml").rename(site.folder / "spec.yaml")
    resume(site, cwd=site.host)
    ran(site, {"e": 1})


def test_relative_names_mean_the_same_when_it_is_resumed_from_another_folder(sites: Sites) -> None:
    site = sites("""
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n]}
        steps:
          - {name: fails, type: command, with: {shell: "test -e go"}}
          - {name: makes, type: command, with: {argv: [touch, made]}}
""")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", "--journal", "here.db", code=1)
    (site.folder / "go").touch()
    place = str(site.folder / "here.db")
    site.run("kubexm", "runs", "--journal", place, "resume", "last", "--output", "quiet", code=0, cwd=site.host)
    assert (site.folder / "made").exists()
    assert list(site.host.iterdir()) == []


def test_debugger_is_written_down_and_retries_are_counted(sites: Sites) -> None:
    site = sites(spec().replace("name: e, type: command,", "name: e, type: command, retry: {attempts: 3, delay: 0s},"))
    bad(site, "e")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    history = site.history()
    assert [len(each.retries) for key, each in history.actions.items() if key.node == "m/u/e"] == [2]
    ran(site, {"a.n1": 1, "a.n2": 1, "b.n1": 1, "b.n2": 1, "c": 1, "e": 3, "f": 1})
    good(site)
    said = site.run("kubexm-run", "spec.yaml", "--executor", "debug", "--output", "plain")
    runs = json.loads(site.run("kubexm", "runs", "--output", "json"))
    assert runs[0]["executor"] == "debug", said


def test_pauses_between_batches_of_an_earlier_session_are_not_waited_for_again(sites: Sites) -> None:
    site = sites(
        """
inventory: {defaults: {connector: local}, hosts: [{name: "n[1:4]"}]}
modules:
  - name: m
    tasks:
      - name: roll
        batch: {size: 1, pause: 0.3s}
        steps:
          - {name: never, type: command, when: "false", with: {argv: ["true"]}}
          - {name: a, type: command, with: {shell: 'test "$N" != n4 || test -e FOLDER/ok', env: {N: "{{ host.name }}"}}}
"""
    )
    first = site.run("kubexm-run", "spec.yaml", "--output", "json", code=1)
    assert first.count('"gate.pause"') == 3
    wait_until(lambda: time.time() > (site.history().sessions[0].last + 0.3))
    (site.host / "ok").touch()
    again = site.run("kubexm", "runs", "resume", "last", "--output", "json", code=0)
    assert "gate.pause" not in again
    repeated = site.run("kubexm", "runs", "resume", "last", "--from", "m/roll/a", "--output", "json", code=0)
    assert repeated.count('"gate.pause"') == 3


def test_what_to_type_next_has_the_values_of_the_run_and_the_plan(sites: Sites) -> None:
    site = sites(
        """
params: {word: {type: string, default: a}}
modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: command, with: {argv: ["false", "{{ params.word }}"]}}]}]}]
"""  # noqa: E501
    )
    site.run("kubexm-run", "spec.yaml", "-e", "word=b c", "--output", "quiet", code=1)
    assert "kubexm-run spec.yaml -e 'word=b c' --executor debug" in resume(site, code=1)
    assert "kubexm-run ../spec.yaml -e 'word=b c' --executor debug" in resume(site, code=1, cwd=site.host)
    site.run("kubexm", "plan", "spec.yaml", "-e", "word=b", "-o", "p.json", code=0)
    site.run("kubexm-run", "--plan", "p.json", "--output", "quiet", code=1)
    told = resume(site, code=1)
    assert "kubexm-run --plan p.json --executor debug" in told
    assert "--limit" not in told

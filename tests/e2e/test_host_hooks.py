"""Whoever is taken out is put back: hooks of each host and of each batch, with the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.e2e.program import BIN
from tests.e2e.program import run as program
from tests.e2e.site import Site, Sites, ended, wait_until

WEB = ("web1", "web2", "web3", "web4")
KINDS = ("pre", "post", "onFailure", "always")


def note(name: str, words: str, check: str = "true", **more: Any) -> dict[str, Any]:
    """A step that writes down that it ran; it may be run again after a kill."""
    script = f"echo {words} >>FOLDER/log; {check}"
    return {"name": name, "type": "command", "repeatable": True, "with": {"shell": script}, **more}


def spec(hooks: Mapping[str, str], batch: Any = 2, head: str = "", **task: Any) -> str:
    """A rolling task: ``hooks`` are those of each host, with what they write; they work at the load balancer."""
    work = (
        "echo work {{ host.name }} >>FOLDER/log; test ! -e FOLDER/bad.{{ host.name }} || exit 1; "
        "test ! -e FOLDER/slow.{{ host.name }} || exec sleep 300"
    )
    own = {
        kind: [
            note(
                kind,
                f"{words} {{{{ origin.name }}}} at {{{{ host.name }}}}",
                f"test ! -e FOLDER/bad.{kind}.{{{{ origin.name }}}}",
                delegateTo="lb",
            )
        ]
        for kind, words in hooks.items()
    }
    steps = [{"name": "work", "type": "command", "repeatable": True, "with": {"shell": work}}]
    rolling = {"name": "t", "runOn": {"roles": ["web"]}, "batch": batch, "hostHooks": own, "steps": steps, **task}
    hosts = [{"name": web, "connector": "local", "roles": ["web"]} for web in WEB]
    body = {
        "inventory": {"hosts": [*hosts, {"name": "lb", "connector": "local"}]},
        "modules": [{"name": "m", "tasks": [rolling]}],
    }
    return head + "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


HOOKS = {"pre": "out", "always": "in"}


def log(site: Site) -> list[str]:
    path = site.host / "log"
    return path.read_text().splitlines() if path.exists() else []


def run(site: Site, *options: str, code: int | None = 0, die_at: str = "") -> str:
    return site.run("kubexm-run", "spec.yaml", "--output", "plain", *options, code=code, KUBEXM_DIE_AT=die_at)


def resume(site: Site, *options: str, code: int | None = 0, die_at: str = "") -> str:
    return site.run("kubexm", "runs", "resume", "last", "--output", "plain", *options, code=code, KUBEXM_DIE_AT=die_at)


def check(lines: Sequence[str], worked: Sequence[str] = WEB) -> None:
    """Nobody is worked on while it is in, and in the end nobody is out; those given were worked on."""
    out: set[str] = set()
    done: set[str] = set()
    for line in lines:
        word, host, *_ = line.split()
        if word == "out":
            out.add(host)
        elif word == "in":
            out.discard(host)
        elif word == "work":
            assert host in out, (line, lines)
            done.add(host)
    assert not out, lines
    assert done == set(worked), lines


def wait_for_work(site: Site, *hosts: str) -> None:
    wait_until(lambda: {f"work {host}" for host in hosts} <= set(log(site)), lambda: str(log(site)))


def test_each_host_is_taken_out_worked_on_and_put_back_before_the_next_batch(sites: Sites) -> None:
    site = sites(spec(HOOKS, batch=1))
    said = " ".join(run(site).split())
    assert log(site) == [
        line for web in WEB for line in (f"out {web} at lb", f"work {web}", f"in {web} at lb")
    ]  # fmt: skip
    assert "changed m/t/hostHooks/pre/pre lb for web1" in said
    site = sites(spec(HOOKS))
    run(site)
    check(log(site))
    first = [line for line in log(site) if "web1" in line or "web2" in line]
    assert log(site)[:6] == first, "the second batch waits until the first one is in again"


def test_after_a_failure_the_host_is_put_back_and_the_kinds_run_where_they_should(sites: Sites) -> None:
    site = sites(spec({**HOOKS, "post": "post", "onFailure": "failed"}, maxFailures=1))
    (site.host / "bad.web2").touch()
    run(site)
    check(log(site))
    found = {kind: [line.split()[1] for line in log(site) if line.startswith(kind)] for kind in ("post", "failed")}
    assert sorted(found["post"]) == ["web1", "web3", "web4"]
    assert found["failed"] == ["web2"]


@pytest.mark.parametrize("policy", ["continue", "failFast", "rollback"])
def test_too_many_failures_stop_the_roll_and_leave_nobody_out(sites: Sites, policy: str) -> None:
    site = sites(spec(HOOKS, head=f"failurePolicy: {policy}\n"))
    (site.host / "bad.web1").touch()
    run(site, code=1)
    check(log(site), [web for web in WEB[:2] if f"work {web}" in log(site)])
    assert not [line for line in log(site) if "web3" in line or "web4" in line], "nothing was done to the next batch"


def test_a_host_that_could_not_be_taken_out_is_not_worked_on_and_is_put_back(sites: Sites) -> None:
    site = sites(spec(HOOKS, maxFailures=1))
    (site.host / "bad.pre.web2").touch()
    run(site)
    check(log(site), ["web1", "web3", "web4"])
    assert "in web2 at lb" in log(site)


def test_cancelled_run_puts_back_who_is_out_and_touches_nobody_else(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    for web in WEB[:2]:
        (site.host / f"slow.{web}").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_for_work(site, "web1", "web2")
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    check(log(site), ["web1", "web2"])
    assert len(log(site)) == 6
    for web in WEB[:2]:
        (site.host / f"slow.{web}").unlink()
    resume(site)
    check(log(site))


def test_a_terminal_that_closes_puts_back_who_is_out(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    (site.host / "slow.web1").touch()
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", str(BIN / "kubexm-run"), "spec.yaml", "--limit", "web1"],
        cwd=site.folder, env=site.env, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    wait_for_work(site, "web1")
    os.close(ours)
    process.wait(timeout=90)
    check(log(site), ["web1"])
    assert site.status() == "Cancelled"


def test_a_run_that_was_told_to_outlive_its_terminal_goes_on(sites: Sites) -> None:
    site = sites(spec(HOOKS).replace("exec sleep 300", "until test -e FOLDER/go; do sleep 0.1; done"))
    (site.host / "slow.web1").touch()
    site.within = ("nohup",)
    process = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_for_work(site, "web1")
    process.send_signal(signal.SIGHUP)
    (site.host / "go").touch()
    ended(process, 0)
    check(log(site))


def test_who_is_out_after_a_second_interrupt_is_put_back_by_a_resume(sites: Sites) -> None:
    body = spec(HOOKS).replace("echo in ", "test ! -e FOLDER/hang || exec sleep 300; echo in ")
    site = sites(body)
    for name in ("slow.web1", "hang"):
        (site.host / name).touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain", "--limit", "web1")
    wait_for_work(site, "web1")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: any(each["kind"] == "start" and "always" in each["node"] for each in site.entries()))
    process.send_signal(signal.SIGINT)
    ended(process)
    for name in ("slow.web1", "hang"):
        (site.host / name).unlink()
    assert "in web1 at lb" not in log(site)
    resume(site)
    check(log(site), ["web1"])


def test_killed_run_puts_everybody_back_when_it_is_resumed_also_if_the_work_fails_then(sites: Sites) -> None:
    for bad in (False, True):
        site = sites(spec(HOOKS, maxFailures=1))
        (site.host / "slow.web2").touch()
        process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
        wait_for_work(site, "web2")
        process.kill()
        ended(process, -signal.SIGKILL)
        (site.host / "slow.web2").unlink()
        if bad:
            (site.host / "bad.web2").touch()
        resume(site)
        check(log(site))


@pytest.mark.parametrize("between", [False, True], ids=["at once", "after it was put back"])
@pytest.mark.parametrize("level", ["hostHooks", "hooks", "batch", "step"])
def test_confirmed_pre_was_done_when_it_was_interrupted_and_runs_again_if_taken_back_since(
    sites: Sites, level: str, between: bool
) -> None:
    """Whoever is back in service is taken out again before work goes on there, whatever was confirmed."""
    hooks = {
        "pre": [note("out", "out web1", "test ! -e FOLDER/slow || exec sleep 300", repeatable=False)],
        "always": [note("back", "in web1")],
    }
    task: dict[str, Any] = {"name": "t", "runOn": {"hosts": ["web1"]}}
    work = note("work", "work web1")
    if level == "step":
        work["hooks"] = hooks
    elif level == "batch":
        task["batch"] = {
            "size": 1,
            "hooks": {kind: [{**hook[0], "runOn": {"hosts": "web1"}}] for kind, hook in hooks.items()},
        }
    else:
        task[level] = hooks
    body = {
        "inventory": {"hosts": [{"name": "web1", "connector": "local"}]},
        "modules": [{"name": "m", "tasks": [{**task, "steps": [work]}]}],
    }
    site = sites("".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items()))
    (site.host / "slow").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_until(lambda: bool(log(site)))
    process.kill()
    ended(process, -signal.SIGKILL)
    (site.host / "slow").unlink()
    if between:
        resume(site, code=1)
        assert "work web1" not in log(site)
    resume(site, "--done", "m/t/**/out")
    check(log(site), ["web1"])
    assert log(site).count("work web1") == 1
    if not between:
        assert log(site).count("out web1") == 1, "it was confirmed, and nothing has taken it back"


@pytest.mark.parametrize("writes", range(3, 35, 4))
def test_nobody_stays_out_when_the_run_and_the_resume_are_killed_at_any_write(sites: Sites, writes: int) -> None:
    hooks = {
        kind: [note(kind, f"batch {kind} {{{{ batch.number }}}}", runOn={"hosts": "lb"})] for kind in ("pre", "always")
    }
    site = sites(spec({**HOOKS, "post": "post"}, batch={"size": 2, "hooks": hooks}))
    (site.host / "bad.web2").touch()
    run(site, code=None, die_at=f"any:{writes}")
    resume(site, code=None, die_at=f"any:{writes // 2 + 1}")
    (site.host / "bad.web2").unlink()
    resume(site)
    check([line for line in log(site) if not line.startswith("batch")])
    batches: dict[str, str] = {}
    for line in log(site):
        if line.startswith("batch"):
            _, kind, number = line.split()
            batches[number] = kind
        elif line.startswith("work"):
            assert batches.get("1" if line.endswith(WEB[:2]) else "2") == "pre", log(site)
    assert batches == {"1": "always", "2": "always"}, log(site)
    assert site.status() == "Success"


def kill_while_it_works(site: Site, host: str) -> str:
    """A run that is killed while a host is out; its id."""
    (site.host / "log").unlink(missing_ok=True)
    (site.host / f"slow.{host}").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    wait_for_work(site, host)
    process.kill()
    ended(process, -signal.SIGKILL)
    (site.host / f"slow.{host}").unlink()
    return str(site.runs()[0]["id"])


@pytest.mark.parametrize("options", [(), ("--from", "m/t/handlers/restart")])
@pytest.mark.parametrize("flush", [False, True])
def test_resume_that_only_serves_a_handler_takes_its_host_out_and_puts_it_back(
    sites: Sites, options: Sequence[str], *, flush: bool
) -> None:
    changes = note("change", "changes {{ host.name }}", notify="restart")
    handler = note("restart", "work {{ host.name }}", "test ! -e FOLDER/bad.restart")
    hooks = {kind: [note(kind, f"{kind} of a batch")] for kind in ("pre", "always")}
    site = sites(
        spec(
            HOOKS,
            batch={"size": 4, "hooks": hooks},
            steps=[changes, *([{"name": "now", "flush": ["restart"]}] if flush else [])],
            handlers=[handler],
        )
    )
    (site.host / "bad.restart").touch()
    run(site, code=1)
    began = [line.split()[1] for line in log(site) if line.startswith("work")]
    (site.host / "bad.restart").unlink()
    before = len(log(site))
    resume(site, *options)
    again = log(site)[before:]
    check([line for line in again if not line.endswith("of a batch")])
    assert {line.split()[0] for line in again if line.endswith("of a batch")} == {"pre", "always"}
    assert began, "a handler failed before"


@pytest.mark.parametrize("level", ["pipeline", "module", "task", "batch", "host", "step"])
def test_pre_hook_that_fails_in_a_resume_does_not_make_the_run_forget_what_was_done(sites: Sites, level: str) -> None:
    hooks = {"pre": [note("pre", "out", "test ! -e FOLDER/bad.pre")], "always": [note("always", "in")]}
    once = [{"name": name, "type": "command", "with": {"shell": f"echo {name} >>FOLDER/log"}} for name in ("a", "b")]
    last = {"name": "last", "type": "command", "with": {"shell": "test ! -e FOLDER/bad && echo last >>FOLDER/log"}}
    group = [*once, last]
    if level == "step":
        group = [*once, {**last, "hooks": hooks}]
    task: dict[str, Any] = {"name": "t", "runOn": {"hosts": ["web1"]}, "steps": group}
    if level == "batch":
        task["batch"] = {"size": 1, "hooks": hooks}
    elif level in ("task", "host"):
        task["hooks" if level == "task" else "hostHooks"] = hooks
    module = {"name": "m", "tasks": [task], **({"hooks": hooks} if level == "module" else {})}
    body = {
        "inventory": {"hosts": [{"name": "web1", "connector": "local"}]},
        "modules": [module],
        **({"hooks": hooks} if level == "pipeline" else {}),
    }
    site = sites("".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items()))
    (site.host / "bad").touch()
    run(site, code=1)
    (site.host / "bad.pre").touch()
    resume(site, code=1)
    for name in ("bad", "bad.pre"):
        (site.host / name).unlink()
    resume(site)
    assert [log(site).count(name) for name in ("a", "b", "last")] == [1, 1, 1], log(site)


DIE = "test -e FOLDER/quiet || { touch FOLDER/quiet; kill -9 $PPID; sleep 60; }"
"""Ends the program the first time, after the work."""


def put_back(level: str, die: str) -> str:
    """One host that is taken out and put back by a hook, or in a group; putting it back ends the program once."""
    back = {"name": "back", "type": "command", "with": {"shell": f"echo in web1 >>FOLDER/log; {die}"}}
    out = {"name": "out", "type": "command", "with": {"shell": "echo out web1 >>FOLDER/log"}}
    work = {"name": "work", "type": "command", "with": {"shell": "test ! -e FOLDER/bad && echo work web1 >>FOLDER/log"}}
    restart = {"name": "restart", "type": "command", "with": {"shell": "echo work web1 >>FOLDER/log"}}
    task: dict[str, Any] = {"name": "t", "runOn": {"hosts": ["web1"]}, "steps": [work], "handlers": [restart]}
    if level == "host":
        task["hostHooks"] = {"pre": [out], "always": [back]}
    elif level == "batch":
        task["batch"] = {"size": 1, "hooks": {"pre": [out], "always": [back]}}
    elif level == "task":
        task["hooks"] = {"pre": [out], "always": [back]}
    else:
        both = {"shell": "echo out web1 >>FOLDER/log; test ! -e FOLDER/bad && echo work web1 >>FOLDER/log"}
        task["steps"] = [{"name": "g", "steps": [{**work, "with": both}], "always": [back]}]
    body = {
        "inventory": {"hosts": [{"name": "web1", "connector": "local"}]},
        "modules": [{"name": "m", "tasks": [task]}],
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


@pytest.mark.parametrize("killed_again", [False, True])
@pytest.mark.parametrize("level", ["host", "batch", "task", "group"])
def test_who_is_taken_out_again_is_put_back_again_however_far_that_came_before(
    sites: Sites, level: str, *, killed_again: bool
) -> None:
    """The put-back of unknown outcome belongs to the time before; nobody has to confirm it."""
    site = sites(put_back(level, DIE))
    (site.host / "bad").touch()
    run(site, code=-signal.SIGKILL)
    assert log(site) == ["out web1", "in web1"]
    (site.host / "bad").unlink()
    if killed_again:
        (site.host / "quiet").unlink()
        resume(site, code=-signal.SIGKILL)
        assert log(site)[2:] == ["out web1", "work web1", "in web1"]
        resume(site, code=1)
        assert log(site)[5:] == [], "nothing was taken out since: somebody has to say"
    else:
        resume(site)
        assert log(site)[2:] == ["out web1", "work web1", "in web1"]


def test_hook_that_follows_runs_if_it_is_asked_for_and_its_unknown_outcome_is_asked_for(sites: Sites) -> None:
    site = sites(put_back("host", DIE))
    (site.host / "quiet").touch()
    back = "m/t/hostHooks/always/back"
    run(site)
    before = ["out web1", "work web1", "in web1"]
    resume(site, "--from", back)
    assert log(site) == [*before, "in web1"]
    (site.host / "quiet").unlink()
    resume(site, "--from", back, code=-signal.SIGKILL)
    said = resume(site, code=1)
    assert f"--done {back}" in said
    assert log(site) == [*before, "in web1", "in web1"]
    resume(site, "--done", back)
    assert log(site) == [*before, "in web1", "in web1"]


def test_the_next_run_names_who_was_left_out_until_somebody_puts_it_back(sites: Sites) -> None:
    site = sites(spec(HOOKS, batch=1))
    killed = kill_while_it_works(site, "web2")
    said = " ".join(run(site, "--limit", "web4").split())
    hook = "m/t/hostHooks/always/always"
    assert f'web2 may still be out of service: run {killed} ended before "{hook}" was done' in said
    assert f"kubexm runs resume {killed} --only {hook}" in said
    assert "this run does it after its own work there" in run(site, "--limit", "web2")
    assert "out of service" not in run(site, "--limit", "web4")
    kill_while_it_works(site, "web2")
    assert "out of service" in run(site)
    assert "out of service" not in run(site)


@pytest.mark.parametrize("writes", range(5, 35, 3))
def test_old_run_takes_out_again_whom_a_newer_one_has_put_back(sites: Sites, writes: int) -> None:
    site = sites(spec(HOOKS, batch=1))
    run(site, code=None, die_at=f"any:{writes}")
    killed = str(site.runs()[0]["id"])
    run(site)
    before = len(log(site))
    site.run("kubexm", "runs", "resume", killed, "--output", "plain", code=0)
    resumed = log(site)[before:]
    check(resumed, [line.split()[1] for line in resumed if line.startswith("work")])


def test_old_run_does_not_put_back_whom_a_newer_one_has_put_back(sites: Sites) -> None:
    body = spec(HOOKS).replace("echo in ", "test ! -e FOLDER/hang || exec sleep 300; echo in ")
    site = sites(body)
    (site.host / "hang").touch()
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain", "--limit", "web1")
    wait_for_work(site, "web1")
    wait_until(lambda: any(each["kind"] == "start" and "always" in each["node"] for each in site.entries()))
    process.kill()
    ended(process, -signal.SIGKILL)
    killed = str(site.runs()[0]["id"])
    (site.host / "hang").unlink()
    run(site)
    before = log(site)
    site.run("kubexm", "runs", "resume", killed, "--output", "plain", code=0)
    assert log(site) == before


def test_one_that_could_not_be_put_back_is_tried_again_alone(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    (site.host / "bad.always.web1").touch()
    said = run(site, code=1)
    assert "FAILED m/t/hostHooks/always/always lb for web1" in " ".join(said.split())
    (site.host / "bad.always.web1").unlink()
    before = len(log(site))
    resume(site)
    again = log(site)[before:]
    assert again[0] == "in web1 at lb"
    assert not [line for line in again if line.startswith(("out web1", "work web1", "out web2", "work web2"))]
    check(log(site))


def test_a_condition_that_leaves_out_the_work_leaves_nobody_out(sites: Sites) -> None:
    site = sites(spec(HOOKS, when="host.name != 'web3'"))
    run(site)
    check(log(site), ["web1", "web2", "web4"])


def test_batch_hooks_run_once_for_each_batch_that_begins(sites: Sites) -> None:
    words = "{{ batch.number }}/{{ batch.count }} {{ batch.hosts }}"
    hooks = {kind: [note(kind, f"{kind} {words}", runOn={"hosts": "lb"})] for kind in KINDS}
    site = sites(spec({}, batch={"size": 2, "hooks": hooks}))
    run(site)
    assert [line for line in log(site) if not line.startswith("work")] == [
        "pre 1/2 [web1, web2]", "post 1/2 [web1, web2]", "always 1/2 [web1, web2]",
        "pre 2/2 [web3, web4]", "post 2/2 [web3, web4]", "always 2/2 [web3, web4]",
    ]  # fmt: skip
    (site.host / "log").unlink()
    (site.host / "bad.web1").touch()
    run(site, code=1)
    assert [line for line in log(site) if not line.startswith("work")] == [
        "pre 1/2 [web1, web2]", "onFailure 1/2 [web1, web2]", "always 1/2 [web1, web2]",
    ]  # fmt: skip


def test_batch_in_which_too_many_have_failed_so_far_has_failed(sites: Sites) -> None:
    told = [note("told", "failed {{ batch.number }}", runOn={"hosts": "lb"})]
    site = sites(spec({}, batch={"size": 1, "hooks": {"onFailure": told}}, maxFailures=1))
    for host in ("web1", "web3"):
        (site.host / f"bad.{host}").touch()
    run(site, code=1)
    assert log(site) == ["work web1", "work web2", "work web3", "failed 3"]


def test_dry_run_shows_batch_after_batch(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    shown = [line for line in run(site, "--executor", "dry-run").splitlines() if " m/t/" in line]
    names = [" ".join(line.rpartition("] ")[2].split()) for line in shown]
    of_batch = [
        ["m/t/hostHooks/pre/pre command on lb for {}", "m/t/hostHooks/pre/pre command on lb for {}"],
        ["m/t/work command on {}", "m/t/work command on {}"],
        ["m/t/hostHooks/always/always command on lb for {}", "m/t/hostHooks/always/always command on lb for {}"],
    ]
    wanted = [
        text.format(host)
        for batch in (WEB[:2], WEB[2:])
        for texts in of_batch
        for text, host in zip(texts, batch, strict=True)
    ]
    assert names == wanted


def test_other_executors_show_them_and_do_nothing(sites: Sites) -> None:
    site = sites(spec(HOOKS))
    checked = " ".join(run(site, "--executor", "check").split())
    assert "m/t/hostHooks/pre/pre lb for web1 not checked: would run: echo out web1 at lb" in checked
    planned = " ".join(run(site, "--executor", "dry-run").split())
    assert "m/t/hostHooks/always/always command on lb for web4" in planned
    assert log(site) == []
    debugged = program("kubexm-run", "spec.yaml", "--executor", "debug", cwd=site.folder, stdin="n\nq\n", env=site.env)
    assert "m/t/hostHooks/pre/pre on lb for web1" in debugged.stdout
    check(log(site), ())
    assert log(site) == ["out web1 at lb", "in web1 at lb"], "who leaves the debugger leaves nobody out"

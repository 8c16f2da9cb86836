"""Work is never done without its ``pre`` hooks, nor left without the others, however often a run stops and goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until

LEVELS = ("pipeline", "module", "task", "step")
ENDS = ("post", "onFailure", "always")
WEB = ("web1", "web2")


def note(level: str, kind: str) -> dict[str, Any]:
    """A hook that writes down that it ran; it can be looked at, so that it may be run again after a kill."""
    shell = f"echo {level} {kind} {{{{ host.name }}}} >>FOLDER/log; test ! -e FOLDER/bad.{level}.{kind}"
    return {"name": kind, "type": "command", "with": {"shell": shell, "unless": "false"}}


def spec(kinds: Sequence[str], levels: Sequence[str] = LEVELS, word: str = "work", when: str = "false") -> str:
    """Work on two hosts with hooks around it at some levels; the second host may fail at it, or wait in it."""
    hooks = {level: {kind: [note(level, kind)] for kind in kinds} if level in levels else {} for level in LEVELS}
    shell = (
        f"echo {word} {{{{ host.name }}}} >>FOLDER/log; test {{{{ host.name }}}} = web1 && exit; "
        "test ! -e FOLDER/bad || exit 1; test ! -e FOLDER/slow || exec sleep 300"
    )
    work = {"name": "work", "type": "command", "with": {"shell": shell, "unless": "false"}, "hooks": hooks["step"]}
    never = {
        "name": "never",
        "type": "command",
        "when": when,
        "with": {"shell": "echo work {{ host.name }} >>FOLDER/log"},
    }
    task = {"name": "t", "runOn": {"hosts": list(WEB)}, "hooks": hooks["task"], "steps": [work, never]}
    body = {
        "inventory": {"hosts": [{"name": web, "connector": "local"} for web in WEB]},
        "hooks": hooks["pipeline"],
        "modules": [{"name": "m", "hooks": hooks["module"], "tasks": [task]}],
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


def log(site: Site) -> list[str]:
    path = site.host / "log"
    return path.read_text().splitlines() if path.exists() else []


def resume(site: Site, *options: str, code: int = 0, flag: str = "") -> None:
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", *options, code=code, FLAG=flag)


def check(lines: Sequence[str], kinds: Sequence[str], levels: Sequence[str] = LEVELS) -> None:
    """Before any work each scope around it was made ready after it was last put back; in the end all are put back."""
    ready: dict[tuple[str, str], bool] = {}
    for line in lines:
        level, *kind, host = line.split()
        scope = (level, host if level == "step" else "")
        if kind:
            ready[scope] = kind == ["pre"]
        else:
            around = [(each, host if each == "step" else "") for each in levels]
            assert all(ready.get(each) for each in around), (line, ready, lines)
    if "always" in kinds:
        assert not any(ready.values()), (ready, lines)


def test_work_that_is_resumed_after_a_failure_has_its_pre_hooks_at_every_level(sites: Sites) -> None:
    for kinds in (("pre", "always"), ("pre", "onFailure"), ("pre", *ENDS)):
        site = sites(spec(kinds))
        (site.host / "bad").touch()
        site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
        resume(site, code=1)
        (site.host / "bad").unlink()
        before = len(log(site))
        resume(site)
        check(log(site), kinds)
        # The other host was done: nothing is done there but the hooks of what both are in.
        last = log(site)[before:]
        assert [line for line in last if line.startswith("work")] == ["work web2"]
        assert not [line for line in last if line.startswith("step") and line.endswith("web1")]
        before = len(log(site))
        resume(site)
        assert len(log(site)) == before, "all is done"


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_alone_is_made_ready_again(sites: Sites, level: str) -> None:
    site = sites(spec(("pre", "always"), [level]))
    (site.host / "bad").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "bad").unlink()
    before = len(log(site))
    resume(site)
    check(log(site), ("pre", "always"), [level])
    there = {"task": 2}.get(level, 1)
    assert [line.split()[0] for line in log(site)[before:]] == [level] * there + ["work"] + [level] * there


def test_work_that_is_resumed_after_a_cancel_has_its_pre_hooks(sites: Sites) -> None:
    kinds = ("pre", *ENDS)
    site = sites(spec(kinds))
    (site.host / "slow").touch()
    run = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: "work web2" in log(site))
    run.send_signal(signal.SIGINT)
    ended(run, 130)
    (site.host / "slow").unlink()
    resume(site)
    check(log(site), kinds)
    assert log(site).count("work web1") == 1


def test_pre_hooks_are_not_repeated_after_a_kill_before_anything_was_put_back(sites: Sites) -> None:
    site = sites(spec(("pre", "always"), ["task"]))
    (site.host / "slow").touch()
    run = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: "work web2" in log(site))
    run.kill()
    ended(run, -signal.SIGKILL)
    (site.host / "slow").unlink()
    resume(site)
    lines = log(site)
    assert sorted(line for line in lines if "pre" in line) == ["task pre web1", "task pre web2"]
    check(lines, ("pre", "always"), ["task"])


@pytest.mark.parametrize("options", [("--from", "m/t/work"), ("--from", "m/t/work", "--hosts", "web2"), ()])
def test_work_that_is_chosen_or_changed_has_its_pre_hooks(sites: Sites, options: tuple[str, ...]) -> None:
    kinds = ("pre", *ENDS)
    site = sites(spec(kinds))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    before = log(site)
    if not options:
        site.write(spec(kinds, word="changed"))
    resume(site, *(options or ("--accept-changes",)))
    check(log(site), kinds)
    worked = [line.split()[1] for line in log(site)[len(before) :] if line.split()[0] in ("work", "changed")]
    assert sorted(worked) == (["web2"] if "--hosts" in options else list(WEB))


@pytest.mark.parametrize("level", LEVELS)
def test_a_hook_that_puts_back_and_failed_is_tried_again_alone_and_post_is_work(sites: Sites, level: str) -> None:
    site = sites(spec(("pre", "post", "always"), [level]))
    for kind, wanted in (("always", {"always"}), ("post", {"pre", "post", "always"})):
        (site.host / f"bad.{level}.{kind}").touch()
        if kind == "always":
            site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
        else:
            resume(site, "--from", "m/t/work", code=1)
        (site.host / f"bad.{level}.{kind}").unlink()
        before = len(log(site))
        resume(site)
        assert {line.split()[1] for line in log(site)[before:]} == wanted


@pytest.mark.parametrize("writes", range(1, 18, 2))
def test_hooks_are_not_lost_when_who_resumes_is_killed_at_any_write(sites: Sites, writes: int) -> None:
    kinds = ("pre", "always")
    site = sites(spec(kinds, ["module", "step"]))
    (site.host / "bad").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "bad").unlink()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", KUBEXM_DIE_AT=f"any:{writes}")
    resume(site)
    check(log(site), kinds, ["module", "step"])
    assert site.status() == "Success"


def test_what_a_condition_left_out_is_not_run_by_itself_in_a_scope_that_was_put_back(sites: Sites) -> None:
    site = sites(spec(("pre", "always"), ["task"], when="secret('env:FLAG') == 'let it be'"), FLAG="leave it out")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    before = len(log(site))
    resume(site, flag="let it be")
    assert len(log(site)) == before
    resume(site, "--from", "m/t/never", flag="let it be")
    check(log(site), ("pre", "always"), ["task"])
    assert [line for line in log(site)[before:] if line.startswith("work")] != []

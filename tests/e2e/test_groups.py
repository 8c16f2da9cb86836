"""Groups of steps with rescue and always, by the real program: failures, kills, cancels, batches and rollbacks."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until

HOSTS = ("n1", "n2", "n3")


def step(name: str, more: str = "", **keys: Any) -> dict[str, Any]:
    """Writes down that it ran; on n2 it fails or waits as long as there is a file that says so."""
    shell = (
        f"echo {name} {{{{ host.name }}}} >>FOLDER/log; {more}"
        f"test {{{{ host.name }}}} = n2 || exit 0; test ! -e FOLDER/slow.{name} || exec sleep 300; "
        f"test ! -e FOLDER/bad.{name}"
    )
    return {"name": name, "type": "command", "repeatable": True, "with": {"shell": shell}, **keys}


def spec(group: dict[str, Any], policy: str = "continue", **task: Any) -> str:
    body = {
        "inventory": {"hosts": [{"name": host, "connector": "local"} for host in HOSTS]},
        "failurePolicy": policy,
        "modules": [
            {
                "name": "m",
                "tasks": [
                    {"name": "t", "runOn": {"hosts": list(HOSTS)}, "steps": [group, step("after")], **task},
                    {"name": "last", "runOn": {"hosts": list(HOSTS)}, "steps": [step("end")]},
                ],
            }
        ],
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


def group(**more: Any) -> dict[str, Any]:
    return {
        "name": "deploy",
        "steps": [step("pull"), step("start")],
        "rescue": [step("back"), step("check")],
        "always": [step("tidy")],
        **more,
    }


def site_of(sites: Sites, body: str, *flags: str) -> Site:
    site = sites(body)
    for flag in flags:
        (site.host / flag).touch()
    return site


def on(site: Site, host: str) -> list[str]:
    """What was done on a host, in order."""
    path = site.host / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[0] for line in lines if line.split()[1] == host]


def run(site: Site, code: int = 0) -> None:
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=code)


def resume(site: Site, *options: str, code: int = 0) -> str:
    return site.run("kubexm", "runs", "resume", "last", *options, code=code)


def results(site: Site, node: str) -> dict[str, Any]:
    shown = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json"))
    found: dict[str, Any] = shown["result"]["nodeResults"][node]["hostResults"]
    return found


GOOD = ["pull", "start", "tidy", "after", "end"]
RESCUED = ["pull", "back", "check", "tidy", "after", "end"]


@pytest.mark.parametrize("task", [{}, {"strategy": "linear"}, {"batch": 1}, {"batch": 2, "strategy": "linear"}])
@pytest.mark.parametrize("policy", ["continue", "failFast", "rollback"])
def test_host_that_was_rescued_goes_on_and_its_failure_does_not_count(
    sites: Sites, policy: str, task: dict[str, Any]
) -> None:
    site = site_of(sites, spec(group(), policy, **task), "bad.pull")
    run(site)
    assert {host: on(site, host) for host in HOSTS} == {"n1": GOOD, "n2": RESCUED, "n3": GOOD}
    failed = site.history().actions[("m/t/pull", "n2")].result  # type: ignore[index]
    assert failed is not None
    assert (failed.status, failed.rescued, failed.ignored) == ("Failed", True, True)


def test_rescue_that_fails_leaves_both_failures_and_always_still_runs(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.start", "bad.back")
    run(site, code=1)
    assert on(site, "n2") == ["pull", "start", "back", "tidy"]
    # What failed begins anew with the next session, and so does its rescue.
    (site.host / "bad.back").unlink()
    resume(site)
    assert on(site, "n2")[4:] == ["start", "back", "check", "tidy", "after", "end"]
    assert on(site, "n1") == GOOD


def test_rescue_that_was_killed_goes_on_where_it_was(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull", "slow.check")
    process = site.start("kubexm-run", "spec.yaml")
    wait_until(lambda: "check" in on(site, "n2"))
    process.kill()
    process.communicate()
    (site.host / "slow.check").unlink()
    resume(site)
    assert on(site, "n2") == ["pull", "back", "check", "check", "tidy", "after", "end"]
    resume(site)
    assert on(site, "n2") == ["pull", "back", "check", "check", "tidy", "after", "end"]
    # The kill may have hit it in the middle of a step, which is repeatable.
    assert list(dict.fromkeys(on(site, "n1"))) == GOOD


def test_group_that_was_killed_is_tidied_by_the_next_session_whatever_that_is_asked_to_do(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "slow.start")
    process = site.start("kubexm-run", "spec.yaml")
    wait_until(lambda: "start" in on(site, "n2"))
    process.kill()
    process.communicate()
    (site.host / "slow.start").unlink()
    resume(site, "--only", "m/t/nothing*", code=2)
    resume(site)
    assert on(site, "n2") == ["pull", "start", "start", "tidy", "after", "end"]


def test_cancel_in_a_rescue_runs_always_and_a_resume_goes_on(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull", "slow.back")
    process = site.start("kubexm-run", "spec.yaml")
    wait_until(lambda: "back" in on(site, "n2"))
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    assert on(site, "n2") == ["pull", "back", "tidy"]
    (site.host / "slow.back").unlink()
    resume(site)
    assert on(site, "n2") == ["pull", "back", "tidy", "back", "check", "tidy", "after", "end"]


def test_what_was_done_before_the_failure_is_undone_by_a_later_rollback(sites: Sites) -> None:
    made = {"name": "made", "type": "file", "with": {"path": "FOLDER/{{ host.name }}", "content": "x"}}
    body = group(steps=[made, step("pull")])
    site = site_of(sites, spec(body), "bad.pull")
    run(site)
    assert (site.host / "n2").exists()
    site.run("kubexm", "runs", "rollback", "last", "--yes")
    assert not any((site.host / host).exists() for host in HOSTS)


def test_inner_group_that_is_not_rescued_is_a_failure_of_the_outer_one(sites: Sites) -> None:
    inner = {"name": "inner", "steps": [step("pull")], "rescue": [step("again")], "always": [step("inner-tidy")]}
    outer = group(steps=[inner, step("start")])
    site = site_of(sites, spec(outer), "bad.pull")
    run(site)
    assert on(site, "n2") == ["pull", "again", "inner-tidy", "start", "tidy", "after", "end"]
    site = site_of(sites, spec(outer), "bad.pull", "bad.again")
    run(site)
    assert on(site, "n2") == ["pull", "again", "inner-tidy", "back", "check", "tidy", "after", "end"]


def test_rescue_knows_what_failed(sites: Sites) -> None:
    said = "echo {{ failure.step }} {{ failure.kind }} {{ failure.exitCode }} >FOLDER/said; "
    tell = "echo {{ failure.step if failure else 'nothing' }} >FOLDER/tidy.{{ host.name }}; "
    site = site_of(sites, spec(group(rescue=[step("back", said)], always=[step("tidy", tell)])), "bad.pull")
    run(site)
    assert (site.host / "said").read_text() == "pull failed 1\n"
    assert [(site.host / f"tidy.{host}").read_text().strip() for host in HOSTS] == ["nothing", "pull", "nothing"]


@pytest.mark.parametrize(
    ("inner", "bad", "told"),
    [
        ({}, ["bad.pull"], "pull"),
        ({"rescue": [step("again")]}, ["bad.pull"], "nothing"),
        ({"rescue": [step("again")]}, ["bad.pull", "bad.again"], "pull"),
    ],
    ids=["no rescue inside", "rescued inside", "rescue inside fails"],
)
def test_outer_group_knows_what_failed_in_an_inner_one_unless_that_was_rescued_there(
    sites: Sites, inner: dict[str, Any], bad: list[str], told: str
) -> None:
    tell = "echo {{ failure.step if failure else 'nothing' }} >FOLDER/tidy.{{ host.name }}; "
    steps = [{"name": "inner", "steps": [step("pull")], "always": [step("inner-tidy")], **inner}]
    site = site_of(sites, spec(group(steps=steps, always=[step("tidy", tell)])), *bad)
    run(site)
    assert [(site.host / f"tidy.{host}").read_text().strip() for host in HOSTS] == ["nothing", told, "nothing"]


def test_handlers_that_a_rescued_group_notified_still_run(sites: Sites) -> None:
    body = group(steps=[step("start", notify=["restart"]), step("pull")])
    site = site_of(sites, spec(body, handlers=[step("restart")]), "bad.pull")
    run(site)
    assert on(site, "n2") == ["start", "pull", "back", "check", "tidy", "after", "restart", "end"]


def test_condition_of_a_group_skips_it_as_a_whole(sites: Sites) -> None:
    site = site_of(sites, spec(group(when="host.name == 'n2'")), "bad.pull")
    run(site)
    assert on(site, "n1") == ["after", "end"]
    assert on(site, "n2") == RESCUED


@pytest.mark.parametrize("tags", [[], ["never"]], ids=["of steps", "of a group that never runs by itself"])
def test_tags_keep_the_rescue_of_a_step_whole(sites: Sites, tags: list[str]) -> None:
    nested = {"name": "inner", "steps": [step("check")], "rescue": [step("again")]}
    body = group(
        steps=[step("pull", tags=["some"]), step("start")], rescue=[step("back", tags=["always"]), nested], tags=tags
    )
    site = site_of(sites, spec(body), "bad.pull", "bad.check")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", "--tags", "some", code=0)
    assert on(site, "n2") == ["pull", "back", "check", "again", "tidy"]
    assert on(site, "n1") == ["pull", "tidy"]


def test_rescue_that_skipped_tags_leave_out_rescues_nothing(sites: Sites) -> None:
    site = site_of(sites, spec(group(rescue=[step("back", tags=["some"])])), "bad.pull")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", "--skip-tags", "some", code=1)
    assert on(site, "n2") == ["pull", "tidy"]


@pytest.mark.parametrize("executor", ["check", "dry-run"])
def test_failure_is_unknown_in_all_groups_around_a_step_that_has_not_run(sites: Sites, executor: str) -> None:
    """A step that is done, and a rescue that has nothing to do, tell nothing of what may still fail."""
    tell = "echo {{ failure.step if failure else 'nothing' }}; "
    done = {"name": "done", "type": "command", "with": {"shell": "true", "creates": "/"}}
    inner = {"name": "inner", "steps": [done, step("pull")], "rescue": [step("again")], "always": [step("it", tell)]}
    site = site_of(sites, spec(group(steps=[inner], always=[step("tidy", tell)])))
    said = site.run("kubexm-run", "spec.yaml", "--executor", executor, "--output", "json", code=0)
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    found = {each["node"]: each for each in events if each["event"] == "action.finished" and each["host"] == "n1"}
    said_of = [found[f"m/t/{node}"]["message"] for node in ("inner/always/it", "deploy/always/tidy")]
    assert all("failure" in each for each in said_of), said_of


def test_check_says_that_a_rescue_runs_only_after_a_failure(sites: Sites) -> None:
    site = site_of(sites, spec(group()))
    for executor in ("check", "dry-run"):
        said = site.run("kubexm-run", "spec.yaml", "--executor", executor, "--output", "json", code=0)
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        found = [each for each in events if each.get("node") == "m/t/back" and each["event"] == "action.finished"]
        assert [each["message"] for each in found] == ["runs only if a step of the group m/t/deploy fails"] * 3
    assert on(site, "n1") == []

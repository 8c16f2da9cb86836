"""Groups of steps together with what else a spec can say, by the real program."""

from __future__ import annotations

from typing import Any

from tests.e2e.site import Sites
from tests.e2e.test_groups import GOOD, RESCUED, group, on, results, run, site_of, spec, step


def fragment(*steps: dict[str, Any]) -> dict[str, Any]:
    """A step that returns others."""
    return {"name": "more", "type": "fragment", "with": {"steps": list(steps)}}


def inner(name: str, **keys: Any) -> dict[str, Any]:
    """A step of a fragment, which is known to nobody before the run."""
    return step(name, **keys)


def test_failure_of_a_fragment_is_rescued_like_that_of_its_step(sites: Sites) -> None:
    body = group(steps=[fragment(inner("x"), inner("y")), step("start")])
    site = site_of(sites, spec(body), "bad.x")
    run(site)
    assert on(site, "n2") == ["x", "back", "check", "tidy", "after", "end"]
    assert on(site, "n1") == ["x", "y", "start", "tidy", "after", "end"]


def test_step_of_a_fragment_elsewhere_does_not_keep_its_rescue_waiting(sites: Sites) -> None:
    away = inner("y", runOn={"hosts": ["n3"]})
    body = group(steps=[fragment(inner("x"), away), step("start")], when="host.name == 'n2'")
    site = site_of(sites, spec(body), "bad.x")
    run(site)
    assert on(site, "n2") == ["x", "back", "check", "tidy", "after", "end"]
    assert on(site, "n3") == ["after", "end"]


def test_host_goes_on_after_a_rescue_of_what_its_last_step_did_elsewhere(sites: Sites) -> None:
    away = {**inner("y", runOn={"hosts": ["n1"]}), "with": {"shell": "echo y n1 >>FOLDER/log; exit 1"}}
    body = group(steps=[step("pull"), fragment(inner("x"), away)], when="host.name == 'n2'")
    site = site_of(sites, spec(body))
    run(site)
    assert on(site, "n2") == ["pull", "x", "back", "check", "tidy", "after", "end"]
    assert sorted(on(site, "n1")) == ["after", "end", "y"]


def test_loop_that_only_the_run_knows_is_rescued(sites: Sites) -> None:
    words = {"name": "words", "type": "command", "repeatable": True, "with": {"shell": "echo a b"}}
    loop = step("pull", forEach="{{ steps.words.outputs.stdout.split() }}")
    site = site_of(sites, spec(group(steps=[words, loop, step("start")])), "bad.pull")
    run(site)
    assert on(site, "n2") == ["pull", "back", "check", "tidy", "after", "end"]
    assert on(site, "n1") == ["pull", "pull", "start", "tidy", "after", "end"]


def test_delegated_steps_of_a_group_are_rescued_for_their_origin(sites: Sites) -> None:
    fails = {
        "name": "pull", "type": "command", "repeatable": True, "delegateTo": "n1",
        "with": {"shell": "echo pull {{ origin.name }} >>FOLDER/log; test {{ origin.name }} != n2"},
    }  # fmt: skip
    site = site_of(sites, spec(group(steps=[fails, step("start")])))
    run(site)
    assert on(site, "n2") == RESCUED
    assert on(site, "n1") == GOOD


def test_task_that_runs_once_is_rescued_on_its_host(sites: Sites) -> None:
    site = site_of(sites, spec(group(), runOn={"hosts": ["n2", "n3"], "runOnce": True}), "bad.pull")
    run(site)
    assert on(site, "n2") == RESCUED
    assert on(site, "n3") == ["end"]


def test_limit_rescues_the_hosts_that_are_left(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", "--limit", "n2", code=0)
    assert on(site, "n2") == RESCUED
    assert on(site, "n1") == []


def test_host_that_cannot_be_reached_fails_with_its_rescue_and_the_others_go_on(sites: Sites) -> None:
    dead = '{"name": "n2", "connector": "ssh", "address": "127.0.0.1", "port": 1}'
    body = spec(group(), maxFailures=1).replace('{"name": "n2", "connector": "local"}', dead)
    site = site_of(sites, body)
    run(site)
    assert on(site, "n2") == []
    assert on(site, "n1") == GOOD
    assert results(site, "m/t/back")["n2"]["failureKind"] == "unreachable"

"""Groups of steps in a run that is resumed, by the real program: what was rescued stays so, and doubts are asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.site import Site, Sites, wait_until
from tests.e2e.test_groups import GOOD, group, on, results, resume, run, site_of, spec, step


def kill_in(site: Site, name: str) -> None:
    """Kill the program during a step of n2 that waits; the next time the step does not wait."""
    process = site.start("kubexm-run", "spec.yaml")
    wait_until(lambda: name in on(site, "n2") and on(site, "n1")[-1:] == ["after"])
    process.kill()
    process.communicate()
    (site.host / f"slow.{name}").unlink()


def waiting(**more: Any) -> str:
    """A pipeline in which nobody but n2 has anything in the middle while n2 waits."""
    body = group(when="host.name == 'n2'", **more)
    return spec(body)


def test_rescued_step_that_a_resume_starts_from_is_tried_again(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull")
    run(site)
    before = len(on(site, "n2"))
    (site.host / "bad.pull").unlink()
    resume(site, "--from", "m/t/pull", "--hosts", "n2")
    assert on(site, "n2")[before:] == GOOD
    assert results(site, "m/t/pull")["n2"]["status"] == "Success"
    # Also while the rescue has not ended.
    site = site_of(sites, spec(group()), "bad.pull", "bad.check")
    run(site, code=1)
    (site.host / "bad.pull").unlink()
    resume(site, "--from", "m/t/pull", "--hosts", "n2")
    assert on(site, "n2") == ["pull", "back", "check", "tidy", *GOOD]


def test_unknown_outcome_is_not_rescued_until_somebody_says_what_it_was(sites: Sites) -> None:
    once = step("pull", repeatable=False)
    site = site_of(sites, waiting(steps=[once, step("start")]), "slow.pull")
    kill_in(site, "pull")
    for _ in range(2):
        said = resume(site, code=1)
        assert results(site, "m/t/pull")["n2"]["outcomeUnknown"]
        assert "the outcome of a step of the group m/t/deploy is unknown" in said
        assert {"back", "start", "after"}.isdisjoint(on(site, "n2"))
        assert on(site, "n2")[-1] == "tidy"
    before = len(on(site, "n2"))
    resume(site, "--done", "m/t/pull")
    assert on(site, "n2")[before:] == ["start", "tidy", "after", "end"]


def test_unknown_outcome_in_an_inner_group_is_not_rescued_by_the_outer_one_either(sites: Sites) -> None:
    inner = {"name": "inner", "steps": [step("pull", repeatable=False)], "rescue": [step("again")]}
    site = site_of(sites, waiting(steps=[inner, step("start")]), "slow.pull")
    kill_in(site, "pull")
    resume(site, code=1)
    assert on(site, "n2") == ["pull", "tidy"]
    (site.host / "bad.pull").touch()
    resume(site, "--from", "m/t/pull", "--hosts", "n2")
    assert on(site, "n2") == ["pull", "tidy", "pull", "again", "start", "tidy", "after", "end"]


def test_unknown_outcome_in_a_rescue_does_not_start_the_group_over(sites: Sites) -> None:
    site = site_of(sites, waiting(rescue=[step("back", repeatable=False)]), "bad.pull", "slow.back")
    kill_in(site, "back")
    for _ in range(2):
        resume(site, code=1)
        assert [name for name in on(site, "n2") if name != "tidy"] == ["pull", "back"]
    resume(site, "--done", "m/t/back")
    assert [name for name in on(site, "n2") if name != "tidy"] == ["pull", "back", "after", "end"]
    assert results(site, "m/t/pull")["n2"]["rescued"]


@pytest.mark.parametrize("inside", [False, True], ids=["ignored", "rescued inside the rescue"])
def test_failure_in_a_rescue_that_does_not_count_does_not_start_the_group_over(sites: Sites, inside: bool) -> None:
    back = step("back", ignoreErrors=True)
    nested = {"name": "inner", "steps": [step("back")], "rescue": [step("again")]}
    site = site_of(sites, spec(group(rescue=[nested if inside else back, step("check")])), "bad.pull", "bad.back")
    run(site)
    resume(site)
    assert on(site, "n2").count("pull") == 1
    assert results(site, "m/t/pull")["n2"]["rescued"]


def test_always_whose_failure_the_outer_group_has_rescued_is_not_tried_again(sites: Sites) -> None:
    inner = {"name": "inner", "steps": [step("pull")], "always": [step("inner-tidy")]}
    site = site_of(sites, spec(group(steps=[inner, step("start")])), "bad.inner-tidy")
    run(site)
    rescued = ["pull", "inner-tidy", "back", "check", "tidy", "after", "end"]
    assert on(site, "n2") == rescued
    (site.host / "bad.inner-tidy").unlink()
    resume(site)
    assert on(site, "n2") == rescued
    assert results(site, "m/t/after")["n2"]["status"] == "Success"
    resume(site, "--from", "m/t/pull", "--hosts", "n2")
    assert on(site, "n2")[len(rescued) :] == ["pull", "inner-tidy", "start", "tidy", "after", "end"]


@pytest.mark.parametrize("renamed", [{"always": []}, {"name": "other"}], ids=["its always", "the group"])
def test_always_that_a_changed_spec_drops_is_named_with_its_host(sites: Sites, renamed: dict[str, Any]) -> None:
    site = site_of(sites, waiting(), "slow.start")
    kill_in(site, "start")
    site.write(waiting(**renamed))
    said = resume(site, "--accept-changes")
    assert "owed-hook-dropped" in said
    assert '"m/t/deploy/always/tidy" had to follow what began on n2' in said
    assert "owed-hook-dropped" not in resume(site)

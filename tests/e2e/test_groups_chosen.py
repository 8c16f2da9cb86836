"""Groups of steps with the debugger, with resumes that choose, and with what compares: drift and diff."""

from __future__ import annotations

from typing import Any

from tests.e2e.program import run as program
from tests.e2e.site import Site, Sites, ended, wait_until
from tests.e2e.test_groups import GOOD, HOSTS, RESCUED, group, on, resume, run, site_of, spec, step


def file(name: str) -> dict[str, Any]:
    """A step that leaves a file behind."""
    return {"name": name, "type": "file", "with": {"path": f"FOLDER/{name}.{{{{ host.name }}}}", "content": "x"}}


def filed() -> str:
    """A spec whose group writes files, in its body and in its rescue."""
    return spec(group(steps=[file("made"), step("pull")], rescue=[file("mended"), step("back")]))


def anew(site: Site) -> None:
    """Forget what was done."""
    (site.host / "log").unlink()


def test_debugger_stops_at_steps_of_a_rescue_where_one_is_needed(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull")
    done = program("kubexm-run", "spec.yaml", "--executor", "debug", cwd=site.folder, stdin="next\n" * 40, env=site.env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {host: on(site, host) for host in HOSTS} == {"n1": GOOD, "n2": RESCUED, "n3": GOOD}
    assert "] m/t/back on n2" in done.stdout
    assert "] m/t/back on n1" not in done.stdout


def test_resume_from_the_step_that_failed_starts_its_group_over(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull")
    run(site)
    anew(site)
    resume(site, "--from", "m/t/pull")
    assert {host: on(site, host) for host in HOSTS} == {"n1": GOOD, "n2": RESCUED, "n3": GOOD}
    # It works by now: nothing is rescued any more.
    (site.host / "bad.pull").unlink()
    anew(site)
    resume(site, "--from", "m/t/pull", "--hosts", "n2")
    assert {host: on(site, host) for host in HOSTS} == {"n1": [], "n2": GOOD, "n3": []}


def test_resume_from_a_step_of_the_rescue_does_not_try_again_what_failed(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull")
    run(site)
    anew(site)
    resume(site, "--from", "m/t/check")
    assert on(site, "n2") == ["check", "tidy", "after", "end"]
    assert on(site, "n1") == ["after", "end"]


def test_resume_of_a_killed_rescue_from_what_failed_starts_over(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull", "slow.check")
    process = site.start("kubexm-run", "spec.yaml")
    wait_until(lambda: "check" in on(site, "n2"))
    process.kill()
    ended(process)
    (site.host / "slow.check").unlink()
    anew(site)
    resume(site, "--from", "m/t/pull")
    assert on(site, "n2") == RESCUED


def test_resume_of_chosen_steps_of_a_rescue_leaves_the_rest(sites: Sites) -> None:
    site = site_of(sites, spec(group()), "bad.pull", "bad.check")
    run(site, code=1)
    (site.host / "bad.check").unlink()
    anew(site)
    resume(site, "--only", "m/t/deploy", "--only", "m/t/pull", "--only", "m/t/back", "--only", "m/t/check")
    assert on(site, "n2") == ["pull", "back", "check", "tidy"]


def test_drift_looks_at_what_a_rescue_has_made_on_its_host_only(sites: Sites) -> None:
    site = site_of(sites, filed(), "bad.pull")
    run(site)
    said = site.run("kubexm", "drift", "spec.yaml", code=0)
    assert "nothing differs on 3 hosts" in said
    (site.host / "mended.n2").write_text("y")
    said = site.run("kubexm", "drift", "spec.yaml", code=1)
    assert "mended.n2" in said
    assert "mended.n1" not in said


def test_diff_names_the_steps_of_a_group_that_differ(sites: Sites) -> None:
    site = site_of(sites, filed())
    text = (site.folder / "spec.yaml").read_text()
    (site.folder / "new.yaml").write_text(text.replace("mended.{{", "repaired.{{"))
    said = site.run("kubexm", "diff", "spec.yaml", "new.yaml", code=1)
    assert "~ m/t/mended  n1, n2, n3" in said
    assert "0 added, 0 removed, 1 changed." in said

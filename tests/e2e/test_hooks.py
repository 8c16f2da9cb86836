"""Hooks of every kind at every level run where their ``runOn`` says, for whom they are there, and say both."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.e2e.site import Site, Sites

KINDS = ("pre", "post", "onFailure", "always")
WEB, LB = ("web1", "web2", "web3"), ("lb1", "lb2")
BALANCER = {"web1": "lb1", "web2": "lb2", "web3": "lb1"}
"""The variable ``lb`` of each host: a place of its own for each that is served."""
SHAPES: dict[str, Any] = {
    "none": None,
    "one": "lb1",
    "several": {"roles": ["lb"]},
    "here": "control-node",
    "served": {"hosts": ["web3"]},
    "own": "{{ vars.lb }}",
}
"""What the ``runOn`` of a hook can be like, by the name of the hook."""
LEVELS = ("step", "task", "module", "pipeline")


def inventory() -> dict[str, Any]:
    return {
        "hosts": [
            *({"name": web, "connector": "local", "vars": {"me": web, "lb": BALANCER[web]}} for web in WEB),
            *({"name": lb, "connector": "local", "roles": ["lb"], "vars": {"me": lb}} for lb in LB),
        ],
        "groups": {"web": {"hosts": list(WEB)}},
    }


def note(level: str, kind: str, shape: str) -> dict[str, Any]:
    """A step of a hook that writes down where it is, and for whom."""
    whom = "{{ origin.name }}" if level == "step" else "-"
    me = "{{ vars.me | default(host.name) }}"
    line = f"{level} {kind} {shape} {{{{ host.name }}}} {me} {whom}"
    made: dict[str, Any] = {"name": shape, "type": "command", "with": {"shell": f"echo {line} >>FOLDER/log"}}
    if SHAPES[shape] is not None:
        made["runOn"] = SHAPES[shape]
    return made


def hooks(level: str) -> dict[str, Any]:
    # What a task, module or pipeline does is done for no single host, so that its places cannot follow from one.
    shapes = [shape for shape in SHAPES if level == "step" or shape != "own"]
    return {kind: [note(level, kind, shape) for shape in shapes] for kind in KINDS}


def pipeline(*, fails: bool, **task: Any) -> str:
    task = dict(task)
    step: dict[str, Any] = {"name": "work", "type": "command", "hooks": hooks("step")}
    step["with"] = {
        "shell": f"echo work {{{{ host.name }}}} >>FOLDER/log; test {{{{ host.name }}}} != {fails and 'web2'}"
    }
    step.update(task.pop("step", {}))
    body = {
        "inventory": inventory(),
        "hooks": hooks("pipeline"),
        "modules": [
            {
                "name": "m",
                "hooks": hooks("module"),
                "tasks": [{"name": "t", "runOn": {"groups": ["web"]}, "hooks": hooks("task"), "steps": [step], **task}],
            }
        ],
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


def places(level: str, shape: str, host: str) -> tuple[str, ...]:
    """Where a hook works, for a host that it serves."""
    alone = {"step": (host,), "task": WEB, "module": ("control-node",), "pipeline": ("control-node",)}[level]
    return {
        "none": alone, "one": ("lb1",), "several": LB, "here": ("control-node",), "served": ("web3",),
        "own": (BALANCER.get(host, ""),),
    }[shape]  # fmt: skip


def expected(failed: set[str], *, tolerated: bool) -> Counter[str]:
    """Every line that the hooks write, by the laws; ``tolerated``: who failed has left the run, which goes on."""
    lines: Counter[str] = Counter()
    for kind in KINDS:
        served = {"post": set(WEB) - failed, "onFailure": failed}.get(kind, set(WEB))
        for shape in SHAPES:
            lines.update(
                f"step {kind} {shape} {place} {place} {host}"
                for host in served
                for place in places("step", shape, host)
            )
        if kind == ("post" if failed and not tolerated else "onFailure"):
            continue
        gone = failed if kind == "post" else set()
        for level in LEVELS[1:]:
            for shape in SHAPES:
                if shape != "own":
                    there = [place for place in places(level, shape, "") if place not in gone]
                    lines.update(f"{level} {kind} {shape} {place} {place} -" for place in there)
    return lines


def written(site: Site) -> list[str]:
    return (site.host / "log").read_text().splitlines()


VARIANTS: dict[str, dict[str, Any]] = {
    "free": {},
    "linear": {"strategy": "linear"},
    "batches": {"batch": {"size": 2, "maxFailures": 3}},
    "loop": {"step": {"forEach": ["only"]}},
    "retried": {"step": {"retry": {"attempts": 2, "delay": "0s"}}},
}


@pytest.mark.parametrize("fails", [False, True], ids=["good", "bad"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_hooks_of_every_kind_and_level_run_where_they_say_for_those_they_serve(
    sites: Sites, variant: str, fails: bool
) -> None:
    site = sites(pipeline(fails=fails, **VARIANTS[variant]))
    tolerated = variant == "batches"
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=int(fails and not tolerated))
    lines = written(site)
    assert Counter(line for line in lines if not line.startswith("work")) == expected(
        {"web2"} if fails else set(), tolerated=tolerated
    )
    for number, line in enumerate(lines):
        level, *_, host = line.split()
        if level == "step":
            first, last = lines.index(f"work {host}"), len(lines) - 1 - lines[::-1].index(f"work {host}")
            assert number < first if " pre " in line else number > last, line


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_names_the_place_and_the_host_it_is_for(sites: Sites, kind: str) -> None:
    step = {"name": "s", "type": "command", "with": {"argv": ["false" if kind == "onFailure" else "true"]}}
    hook = {"name": "h", "type": "command", "runOn": "lb1", "with": {"argv": ["echo", "{{ origin.name }}"]}}
    tasks = [{"name": "t", "runOn": "web1", "steps": [{**step, "hooks": {kind: [hook]}}]}]
    site = sites(f"inventory: {json.dumps(inventory())}\nmodules: {json.dumps([{'name': 'm', 'tasks': tasks}])}\n")
    said = site.run("kubexm-run", "spec.yaml", "--result", "result.json", "--output", "plain", "-v")
    node = f"m/t/s/hooks/{kind}/h@lb1"
    lines = [line.split(None, 2)[1:] for line in said.splitlines() if node in line]
    assert {word for word, rest in lines if rest.split(None, 1)[1].startswith("lb1 for web1")} == {
        "start", "out", "changed"
    }  # fmt: skip
    shown = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json", code=0))["result"]
    for view in (json.loads((site.folder / "result.json").read_text()), shown):
        result = view["nodeResults"][node]["hostResults"]["web1"]
        assert (result["hostName"], result["place"], result["stdout"]) == ("web1", "lb1", "web1\n")
    site.run("kubexm", "runs", "report", "last", "-o", "report.html", code=0)
    assert "lb1 for web1" in (site.folder / "report.html").read_text()


def test_a_place_that_cannot_be_reached_fails_the_host_it_is_for_and_stays_in_the_run(sites: Sites) -> None:
    hosts = inventory()
    hosts["hosts"].append({"name": "dead", "connector": "ssh", "address": "127.0.0.1", "port": 1, "user": "root"})
    hook: dict[str, Any] = {"name": "h", "type": "command", "runOn": "{{ 'dead' if host.name == 'web2' else 'lb1' }}"}
    hook["with"] = {"argv": ["true"]}
    note = {"type": "command", "with": {"shell": "echo {{ host.name }} >>FOLDER/log"}}
    tasks = [
        {
            "name": "t", "runOn": {"groups": ["web"]}, "maxFailures": 1,
            "steps": [{"name": "s", **note, "hooks": {"pre": [hook]}}],
        },
        {"name": "u", "runOn": {"hosts": ["web[1:2]", "lb1"]}, "steps": [{"name": "later", **note}]},
    ]  # fmt: skip
    site = sites(f"inventory: {json.dumps(hosts)}\nmodules: {json.dumps([{'name': 'm', 'tasks': tasks}])}\n")
    site.run("kubexm-run", "spec.yaml", "--result", "result.json", "--output", "quiet", code=0)
    nodes = json.loads((site.folder / "result.json").read_text())["nodeResults"]
    failed = nodes["m/t/s/hooks/pre/h@dead"]["hostResults"]["web2"]
    assert (failed["status"], failed["failureKind"], failed["place"]) == ("Failed", "unreachable", "dead")
    assert nodes["m/t/s"]["hostResults"]["web2"]["cause"] == "m/t/s/hooks/pre/h@dead"
    assert sorted(written(site)) == ["lb1", "web1", "web1", "web3"]


def test_a_limit_chooses_whom_hooks_serve_and_not_their_places(sites: Sites) -> None:
    site = sites(pipeline(fails=False))
    site.run("kubexm-run", "spec.yaml", "--limit", "web1", "--output", "quiet", code=0)
    lines = [line for line in written(site) if line.startswith("step")]
    assert {line.split()[-1] for line in lines} == {"web1"}
    assert {line.split()[3] for line in lines if " pre " in line} == {"web1", "web3", "lb1", "lb2", "control-node"}


def test_previews_show_where_hooks_would_run_and_run_none(sites: Sites) -> None:
    site = sites(pipeline(fails=False))
    for executor in ("check", "dry-run"):
        said = site.run("kubexm-run", "spec.yaml", "--executor", executor, "--output", "plain", code=0)
        assert "lb2 for web2" in said
    assert not (site.host / "log").exists()


def test_a_resume_serves_only_those_that_were_not_served_from_the_first_hook_on(sites: Sites) -> None:
    site = sites(pipeline(fails=True).replace("!= web2", "!= web2 || test -e FOLDER/good"))
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "log").unlink()
    (site.host / "good").touch()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    lines = [line for line in written(site) if line.startswith("step")]
    wanted = [
        f"step {kind} {shape} {place} {place} web2"
        for kind in ("pre", "post", "always")
        for shape in SHAPES
        for place in places("step", shape, "web2")
    ]
    assert sorted(lines) == sorted(wanted)


@pytest.mark.parametrize("ignored", [False, True], ids=["counts", "ignored"])
@pytest.mark.parametrize("fails", ["pre", "work", "post"])
@pytest.mark.parametrize("loop", [{}, {"forEach": ["a", "b"]}], ids=["once", "loop"])
def test_on_failure_runs_whatever_failed_in_its_scope_at_every_level(
    sites: Sites, fails: str, loop: dict[str, Any], ignored: bool
) -> None:
    for level in LEVELS:
        # At the second of two places it fails, for one of the hosts if it serves single ones.
        whom = "{{ origin.name }}" if level == "step" else "web2"
        shell = f"test {{{{ host.name }}}}{whom} != lb2web2"
        bad = {"name": "bad", "type": "command", "runOn": {"roles": ["lb"]}, "with": {"shell": shell}}
        back = {"name": "back", "type": "command", "with": {"shell": "echo {{ host.name }} >>FOLDER/log"}}
        hooks: dict[str, Any] = {"onFailure": [back]}
        if fails != "work":
            hooks[fails] = [{**bad, "ignoreErrors": ignored}]
        elif ignored:
            continue
        work = {"name": "s", "type": "command", "with": {"shell": "true"}, **loop}
        if fails == "work":
            work["with"] = {"shell": "test {{ host.name }} != web2"}
        step, task, module = ({"hooks": hooks} if level == each else {} for each in LEVELS[:3])
        tasks = [{"name": "t", "runOn": {"groups": ["web"]}, "steps": [{**work, **step}], **task}]
        body: dict[str, Any] = {"inventory": inventory(), "modules": [{"name": "m", "tasks": tasks, **module}]}
        if level == "pipeline":
            body["hooks"] = hooks
        site = sites("".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items()))
        said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=0 if ignored else 1)
        if ignored:
            assert not (site.host / "log").exists(), level
            continue
        served = {"step": {"web2"}, "task": set(WEB)}.get(level, {"control-node"})
        assert set(written(site)) == served, (level, said)


@pytest.mark.parametrize("policy", ["rollback", "continue"])
def test_what_a_hook_did_at_its_place_is_undone_there_once_for_each_host(sites: Sites, policy: str) -> None:
    hook: dict[str, Any] = {"name": "h", "type": "file", "runOn": {"roles": ["lb"]}}
    hook["with"] = {"path": "FOLDER/{{ host.name }}-{{ origin.name }}", "content": "x"}
    bad = {"name": "bad", "type": "command", "when": "host.name == 'web1'", "with": {"argv": ["false"]}}
    steps = [{"name": "s", "type": "command", "with": {"argv": ["true"]}, "hooks": {"post": [hook]}}, bad]
    tasks = [{"name": "t", "strategy": "linear", "runOn": {"groups": ["web"]}, "steps": steps}]
    modules = json.dumps([{"name": "m", "tasks": tasks}])
    site = sites(f"failurePolicy: {policy}\ninventory: {json.dumps(inventory())}\nmodules: {modules}\n")
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    if policy == "continue":
        assert len(list(site.host.iterdir())) == len(WEB) * len(LB)
        said = site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain")
    undone = Counter(line.partition("h@")[2].strip() for line in said.splitlines() if " undone " in line)
    assert list(site.host.iterdir()) == []
    for lb in LB:
        for web in WEB:
            assert sum(number for text, number in undone.items() if f"{lb} for {web}" in text) == 1

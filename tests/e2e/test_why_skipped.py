"""A node that did not run says why, for every reason there is, and says the same in all views of the run."""

from __future__ import annotations

import json
import signal
from typing import Any, NamedTuple

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until

HOSTS = 'inventory: {hosts: [{name: "n[1:2]", connector: local}]}\n'
OK, BAD = "{type: command, with: {argv: ['true']}", "{type: command, with: {argv: ['false']}"


class Why(NamedTuple):
    """A run in which a node does not run, or not everywhere; and what it says of that."""

    steps: str
    node: str
    message: str
    options: tuple[str, ...] = ()
    code: int = 0
    more: str = ""
    task: str = ""


WHYS = {
    "dependency": Why(
        f"[{BAD}, name: a}}, {OK}, name: b}}]", "m/t/b", "Skipped due to failed dependency 'm/t/a'", code=1
    ),
    "dependency on one host": Why(
        f"[{{type: command, name: a, with: {{shell: 'test {{{{ host.name }}}} = n1'}}}}, {OK}, name: b}}]",
        "m/t/b", "Skipped due to failed dependency 'm/t/a' (1 of 2 hosts)", code=1,
    ),
    "condition": Why(f"[{OK}, name: a, when: host.name == 'n3'}}]", "m/t/a", "condition not met: host.name == 'n3'"),
    "condition on one host": Why(
        f"[{OK}, name: a, when: host.name == 'n2'}}]", "m/t/a", "condition not met: host.name == 'n2' (1 of 2 hosts)"
    ),
    "condition of the task": Why(f"[{OK}, name: a}}]", "m/t/a", "condition not met: host.name == 'n3'",
                                 task="when: host.name == 'n3'"),
    "tags": Why(
        f"[{OK}, name: a, tags: [x]}}, {OK}, name: b}}]", "m/t/b", "its tags are not selected", ("--tags", "x")
    ),
    "skipped tags": Why(
        f"[{OK}, name: a, tags: [x]}}, {OK}, name: b}}]", "m/t/a", "its tag is skipped", ("--skip-tags", "x")
    ),
    "limit": Why(f"[{OK}, name: a}}]", "m/t/a", "--limit excludes all its hosts", ("--limit", "n1"),
                 task="runOn: {hosts: [n2]}"),
    "no hosts": Why(f"[{OK}, name: a}}]", "m/t/a", "there is no host for it to run on",
                    task="runOn: {labels: {no: such}}"),
    "empty loop": Why(f"[{OK}, name: a, forEach: []}}]", "m/t/a", "there is nothing to loop over"),
    "too many failures": Why(
        f"[{BAD}, name: a}}]", "m/t/a", "1 of 2 hosts failed", code=1, task="batch: 1",
    ),
    "batch": Why(
        "[{type: command, name: a, with: {shell: 'test {{ host.name }} = n2'}}]",
        "m/t/a", "1 of 2 hosts failed", code=1, task="batch: {size: 1}",
    ),
    "limit of failures": Why(
        "[{type: command, name: a, maxFailures: 1, with: {shell: 'test {{ host.name }} = n2'}}]",
        "m/t/a", "Skipped because too many hosts failed, such as in 'm/t/a' (1 of 2 hosts)", code=1,
        task="batch: {size: 1, maxFailures: '0%'}",
    ),
    "hook not needed": Why(
        f"[{OK}, name: a, onFailure: [{OK}, name: h}}]}}]", "m/t/a/hooks/onFailure/h", "nothing failed"
    ),
    "failFast": Why(
        f"[{BAD}, name: a}}]", "m/u/b", "Cancelled before it started because 'm/t/a' failed", code=1,
        more="failurePolicy: failFast\n",
    ),
    "rollback": Why(
        f"[{BAD}, name: a}}]", "m/u/b", "Cancelled before it started because 'm/t/a' failed", code=1,
        more="failurePolicy: rollback\n",
    ),
}  # fmt: skip


def spec(why: Why) -> str:
    task = f"\n        {why.task}" if why.task else ""
    return f"""{HOSTS}{why.more}modules:
  - name: m
    tasks:
      - name: t{task}
        steps: {why.steps}
      - name: u
        steps: [{OK}, name: b}}]
"""


def finished(said: str) -> dict[str, str]:
    """What the events of a run say of each node."""
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {one["node"]: one["message"] for one in events if one["event"] == "node.finished"}


def messages(nodes: dict[str, Any]) -> dict[str, str]:
    return {name: node["message"] for name, node in nodes.items()}


def shown(site: Site) -> dict[str, Any]:
    """The nodes of the last run as its journal has them."""
    history = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json", code=0))
    nodes: dict[str, Any] = history["result"]["nodeResults"]
    return nodes


@pytest.mark.parametrize("why", WHYS.values(), ids=WHYS.keys())
def test_a_node_that_did_not_run_says_why_in_every_view(sites: Sites, why: Why) -> None:
    site = sites(spec(why))
    options = (*why.options, "--result", "result.json", "--output", "json")
    told = finished(site.run("kubexm-run", "spec.yaml", *options, code=why.code))
    assert told[why.node] == why.message
    assert messages(json.loads((site.folder / "result.json").read_text())["nodeResults"]) == told
    assert messages(shown(site)) == told


def test_a_node_that_was_cancelled_says_so_in_every_view(sites: Sites) -> None:
    site = sites(
        f"""{HOSTS}modules:
  - name: m
    tasks:
      - name: t
        runOn: {{hosts: [n1]}}
        steps:
          - {{name: a, type: command, with: {{shell: 'touch FOLDER/on; sleep 60'}}}}
          - {OK}, name: b}}
"""
    )
    process = site.start("kubexm-run", "spec.yaml", "--output", "json")
    wait_until((site.host / "on").exists)
    process.send_signal(signal.SIGINT)
    told = finished(ended(process, 130))
    nodes = shown(site)
    assert told["m/t/a"] == nodes["m/t/a"]["hostResults"]["n1"]["message"] != ""
    assert told["m/t/b"] == "Cancelled before it started"
    assert messages(nodes) == told


def test_what_was_not_chosen_for_a_resume_and_what_waits_for_it_say_so(sites: Sites) -> None:
    why = Why("[{name: a, type: command, with: {shell: 'test -e FOLDER/good'}}]", "", "", more=WHYS["failFast"].more)
    site = sites(spec(why) + f"      - {{name: v, steps: [{OK}, name: c}}]}}\n")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "good").touch()
    said = site.run("kubexm", "runs", "resume", "last", "--only", "m/t", "--output", "json")
    told = finished(said)
    assert told == {"m/t/a": "", "m/u/b": "not chosen for this session", "m/v/c": "m/u/b was not chosen"}
    assert messages(shown(site))["m/v/c"] == "m/u/b was not chosen"

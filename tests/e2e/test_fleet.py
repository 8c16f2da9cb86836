"""Many hosts: what was stopped before it began is one line a step for people, and an event for each for machines."""

from __future__ import annotations

import json
import signal

from tests.e2e.site import Site, Sites, ended, wait_until

SPEC = """
inventory: {hosts: [{name: "n[1:20]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: all
        steps:
          - {name: a, type: command, with: {shell: 'touch FOLDER/at.{{ host.name }}; sleep 300'}}
          - {name: b, type: command, with: {shell: "true"}}
          - {name: c, type: command, with: {shell: "true"}}
"""


def interrupted(site: Site, output: str) -> list[str]:
    process = site.start("kubexm-run", "spec.yaml", "--forks", "2", "--output", output)
    wait_until(lambda: len(list(site.host.glob("at.*"))) == 2)
    process.send_signal(signal.SIGINT)
    return ended(process, 130).splitlines()


def test_an_interrupt_is_told_in_a_line_for_each_step_that_did_not_begin(sites: Sites) -> None:
    lines = interrupted(sites(SPEC), "plain")
    told = [line[10:] for line in lines if line[10:].startswith("cancelled ")]
    for step, many in {
        "a": "on 18 hosts: n3, n4, n5, n6, n7, + 13 more",
        "b": "on 20 hosts: n1, n2, n3, n4, n5, + 15 more",
        "c": "on 20 hosts: n1, n2, n3, n4, n5, + 15 more",
    }.items():
        assert f"cancelled  m/t/{step}  -    Cancelled before it started; {many}" in told
    assert len(told) == 3 + 2, told


def test_machines_are_told_of_each_action_that_did_not_begin(sites: Sites) -> None:
    events = [json.loads(line) for line in interrupted(sites(SPEC), "json") if line.startswith("{")]
    ends = [(each["node"], each["host"]) for each in events if each.get("event") == "action.finished"]
    assert sorted(ends) == sorted((f"m/t/{step}", f"n{number}") for step in "abc" for number in range(1, 21))

"""Loops over what a run finds out: each host its own items, exactly once, whatever ends the run in between."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.program import run
from tests.e2e.site import Sites, ended, wait_until

SPEC = """
inventory:
  defaults: {connector: local}
  hosts: [{name: a, vars: {list: one two three}}, {name: b, vars: {list: three one}}]
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: find
            type: command
            with: {shell: 'cat FOLDER/list 2>/dev/null || echo {{ vars.list }}', readOnly: true}
          - name: each
            type: command
            forEach: "{{ steps.find.outputs.stdout.split() }}"
            when: item != 'never'
            notify: restart
            with:
              shell: 'echo x >> "$D/count.$W"; touch "$D/$W"; test "$W" != a-two || test -e "$D/go" || sleep 600'
              env: {D: FOLDER, W: "{{ host.name }}-{{ item }}"}
              undo: {shell: 'rm "$D/$W"'}
            repeatable: true
          - name: after
            type: message
            with: {text: "{{ steps.each.items.keys() | list | join(' ') }}, {{ steps['each[one]'].changed }}"}
        handlers: [{name: restart, type: message, with: {text: "again on {{ host.name }}"}}]
"""
DONE = {"a-one": 1, "a-two": 1, "a-three": 1, "b-three": 1, "b-one": 1}


def test_each_host_has_its_own_items_in_its_own_order(sites: Sites) -> None:
    site = sites(SPEC)
    (site.host / "go").touch()
    said = site.run("kubexm-run", "spec.yaml", "--executor", "dry-run", code=0)
    assert "would run command, one for each of {{ steps.find.outputs.stdout.split() }} (known at run time" in said
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", code=0)
    assert "m/t/each[two]" in said
    assert not site.counts()
    said = site.run("kubexm-run", "spec.yaml", "--output", "json", code=0)
    assert site.counts() == DONE
    events = [json.loads(line) for line in said.splitlines()]
    ends = [one for one in events if one["event"] == "action.finished"]
    order = [one["node"] for one in ends if one["host"] == "b" and "each" in one["node"]]
    assert order == ["m/t/each", "m/t/each[three]", "m/t/each[one]"]
    assert {one["host"] for one in ends if one["node"] == "m/t/handlers/restart"} == {"a", "b"}
    shown = site.run("kubexm", "runs", "show", "--output", "json", code=0)
    assert set(json.loads(shown)["result"]["nodeResults"]) >= {f"m/t/each[{key}]" for key in ("one", "two", "three")}
    site.run("kubexm", "runs", "rollback", "last", "--yes", code=0)
    assert set(site.content()) == {"go"}


def test_a_killed_run_goes_on_with_the_same_items_and_repeats_none_that_was_done(sites: Sites) -> None:
    site = sites(SPEC)
    killed = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: site.counts()["a-two"] and site.history().of("m/t/after", "b").done)
    killed.kill()
    ended(killed)
    (site.host / "go").touch()
    # What would be found now is something else; a run goes on with what it found.
    (site.host / "list").write_text("one four\n")
    said = site.run("kubexm", "runs", "resume", "last", code=0)
    assert site.counts() == {**DONE, "a-two": 2}, "only what was running is run again, since it is repeatable"
    assert "four" not in said
    assert "one two three, True" in said
    assert "again on a" in said
    # Told to begin there again, it looks again; what it did before is still known, and taken back with the rest.
    said = site.run("kubexm", "runs", "resume", "last", "--from", "m/t/find", code=0)
    assert site.counts() == {**DONE, "a-two": 2, "a-one": 2, "b-one": 2, "a-four": 1, "b-four": 1}
    site.run("kubexm", "runs", "rollback", "last", "--yes", code=0)
    assert set(site.content()) == {"go", "list"}


def test_the_debugger_stops_at_each_item(sites: Sites) -> None:
    site = sites(SPEC)
    (site.host / "go").touch()
    done = run("kubexm-run", "spec.yaml", "--executor", "debug", cwd=site.folder, stdin="next\n" * 20, env=site.env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.counts() == DONE
    for key in ("one", "two", "three"):
        assert f"m/t/each[{key}]" in done.stdout


WRONG = """
inventory: {defaults: {connector: local}, hosts: [{name: a, vars: {n: 1}}, {name: b, vars: {n: 2}}]}
params: {key: {type: secret, default: "env:KEY"}}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: find, type: set, with: {values: {list: LIST}}}
          - {name: each, type: message, forEach: LOOP, with: {text: "{{ item }}"}}
"""
LIST = '"{{ steps.find.outputs.list }}"'


@pytest.mark.parametrize(
    ("given", "loop", "said"),
    [
        ("[x, y/z, y z]", LIST, 'two items of the loop have the key "y_z"'),
        ("[x, y/z, y z]", LIST, "in a key, all but letters, digits and _ . , : @ = - becomes _"),
        ("[x, x]", LIST, "take each only once: `| unique`"),
        ("text", LIST, "a loop needs a list, but this is str 'text'"),
        ("null", LIST, "[] is a loop without items"),
        ("[x]", '"{{ range(10001) | list + steps.find.outputs.list }}"', "a loop has at most 10,000 items"),
        ('[{name: x, n: "{{ vars.n }}"}]', LIST, "m/t/each[x] is not the same on "),
        ("[x]", '{items: LIST, key: "item + params.key"}', "the key of an item contains a secret"),
        ("[x]", "{items: LIST, key: item.nothing}", "nothing"),
    ],
)
def test_items_that_cannot_be_used_fail_the_step_with_a_reason(sites: Sites, given: str, loop: str, said: str) -> None:
    site = sites(WRONG.replace("LIST", given).replace("LOOP", loop.replace("LIST", LIST)))
    text = site.run("kubexm-run", "spec.yaml", code=1, KEY="s3cret-word")
    assert said in text
    assert "s3cret-word" not in text


@pytest.mark.parametrize("secret", ["Xy/7q+Zp/9k=w!Lm", "two words of it", "línea/señal"])
def test_a_secret_is_recognized_in_a_key_before_its_special_characters_are_replaced(sites: Sites, secret: str) -> None:
    site = sites(WRONG.replace("LIST", "[x]").replace("LOOP", '{items: LIST, key: "params.key"}'.replace("LIST", LIST)))
    text = site.run("kubexm-run", "spec.yaml", code=1, KEY=secret)
    assert "the key of an item contains a secret" in text
    assert re.sub("[^A-Za-z0-9=]+", "_", secret) not in text


def test_no_items_is_nothing_to_do_and_a_condition_without_the_item_is_judged_before_the_list(sites: Sites) -> None:
    site = sites(
        """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: find, type: set, with: {values: {list: []}}}
          - {name: skipped, type: command, when: "false", with: {argv: ["true"]}}
          - {name: none, type: message, forEach: "{{ steps.find.outputs.list }}", with: {text: x}}
          - name: unasked
            type: message
            when: steps.skipped.status == 'Success'
            forEach: "{{ steps.skipped.outputs.stdout.split() }}"
            with: {text: x}
          - {name: after, type: message, with: {text: "{{ steps.none.items | length }}"}}
"""
    )
    said = site.run("kubexm-run", "spec.yaml", code=0)
    assert "condition not met: steps.skipped.status == 'Success'" in said
    assert "m/t/after" in said

"""Patterns of hosts, as --limit and commands about hosts take them: one language, whatever it is asked of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.cli.main import main
from kubexm_exec.compile.hostpatterns import PatternError, choose
from kubexm_exec.model.graph import GraphHost

CONTROL = "control-node"
HOSTS = {
    "web1": GraphHost("web1", roles=("web",), groups=("eu",), labels={"tier": "front"}),
    "web2": GraphHost("web2", roles=("web",), groups=("us",), labels={"tier": "front"}),
    "db1": GraphHost("db1", roles=("db",), groups=("eu",), labels={"tier": "back", "raid": "10"}),
    "db2": GraphHost("db2", roles=("db", "backup"), groups=("us",), labels={"tier": "back"}),
    "lone": GraphHost("lone"),
    CONTROL: GraphHost(CONTROL, connector="local"),
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("web1", "web1"),
        ("web[1:2]", "web1 web2"),
        ("*1", "web1 db1"),
        ("web", "web1 web2"),
        ("eu", "web1 db1"),
        ("b*k*", "db2"),
        ("tier=back", "db1 db2"),
        ("tier=fr*", "web1 web2"),
        ("raid=*", "db1"),
        ("all", "web1 web2 db1 db2 lone"),
        ("*", "web1 web2 db1 db2 lone"),
        ("control-node", "control-node"),
        ("control-node,lone", "lone control-node"),
        ("db1,web", "web1 web2 db1"),
        ("web&eu", "web1"),
        ("web,&eu", "web1"),
        ("web, db ,&eu", "web1 db1"),
        ("!web", "db1 db2 lone"),
        ("all,!web,!db2", "db1 lone"),
        ("web,!web2", "web1"),
        ("db&!eu", "db2"),
        ("tier=back&us", "db2"),
        ("!web&eu", "web2 db1 db2 lone"),
    ],
)
def test_a_pattern_means_these_hosts(pattern: str, expected: str) -> None:
    assert choose(HOSTS, [pattern], CONTROL) == expected.split()


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("wbe1", '"wbe1" is not a host, group or role of the inventory', 'did you mean "web1"?'),
        ("web,nothing", '"nothing" is not a host, group or role', "hosts: web1, web2, db1, db2, lone"),
        ("tier=bac", '"tier=bac" is not a label of a host', 'did you mean "tier=back"?'),
        ("rack=1", '"rack=1" is not a label of a host', "labels: tier=front, tier=back, raid=10"),
        ("web&db", '"web&db" selects no host', "hosts: web1, web2, db1, db2, lone"),
        ("all,!all", '"all,!all" selects no host', "hosts: web1, web2"),
        (",", "no host is named", "hosts: web1"),
        ("", "no host is named", "hosts: web1"),
        ("!nothing", '"nothing" is not a host, group or role', "hosts: web1"),
        # As ansible joins them; a colon in a range stays.
        ("web:!web1", '"web:!web1" is not a host', '":" does not join patterns: did you mean "web,!web1"?'),
        ("web:&eu", '"web:" is not a host', '":" does not join patterns: did you mean "web,&eu"?'),
        ("web[1:2]:db", '"web[1:2]:db" is not a host', '":" does not join patterns: did you mean "web[1:2],db"?'),
        ("web:nothing", '"web:nothing" is not a host', "hosts: web1"),
    ],
)
def test_a_pattern_that_means_no_host_is_an_error_that_says_what_there_is(
    pattern: str, message: str, hint: str
) -> None:
    with pytest.raises(PatternError) as caught:
        choose(HOSTS, [pattern], CONTROL)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


ATOMS = {"web": {"web1", "web2"}, "eu": {"web1", "db1"}, "db*": {"db1", "db2"}, "lone": {"lone"},
         "tier=back": {"db1", "db2"}, "all": set(HOSTS) - {CONTROL}}  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["", "&", "!"]), st.sampled_from(sorted(ATOMS))), min_size=1, max_size=6))
def test_patterns_are_sets_that_are_united_then_kept_then_left_out(words: list[tuple[str, str]]) -> None:
    plain = [ATOMS[atom] for sign, atom in words if not sign]
    expected = set().union(*plain) if plain else ATOMS["all"]
    for sign, atom in words:
        expected = expected & ATOMS[atom] if sign == "&" else expected
    for sign, atom in words:
        expected = expected - ATOMS[atom] if sign == "!" else expected
    text = ",".join(sign + atom for sign, atom in words)
    if expected:
        assert choose(HOSTS, [text], CONTROL) == [name for name in HOSTS if name in expected]
    else:
        with pytest.raises(PatternError, match="selects no host"):
            choose(HOSTS, [text], CONTROL)


SPEC = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: site}
inventory:
  defaults: {connector: local}
  groups: {eu: {hosts: [web1, db1]}}
  hosts:
    - {name: "web[1:2]", roles: [web], labels: {tier: front}}
    - {name: db1, roles: [db]}
modules:
  - name: m
    tasks:
      - {name: t, steps: [{name: s, type: command, with: {argv: ["true"], creates: "/"}}]}
"""


@pytest.mark.parametrize(
    ("pattern", "expected"), [("web&eu", "web1"), ("!web", "db1"), ("tier=front", "web1 web2"), ("eu,!db1", "web1")]
)
def test_all_commands_take_the_same_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "state"))
    Path("spec.yaml").write_text(SPEC)

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    hosts = set(expected.split())
    named = ("--spec", "spec.yaml", "--output", "json")
    assert set(json.loads(run("facts", pattern, *named, "--fact", "kernel"))) == hosts
    for said in (
        run("exec", pattern, *named, "--", "true"),
        run("run", "spec.yaml", "--limit", pattern, "--output", "json", "--executor", "dry-run"),
    ):
        assert {line["host"] for line in map(json.loads, said.splitlines()) if line.get("host")} == hosts
    run("run", "spec.yaml", "--output", "quiet")
    assert set(json.loads(run("drift", "spec.yaml", "--limit", pattern, "--output", "json"))["hosts"]) == hosts


@pytest.mark.parametrize("limit", ["", ",", " "])
def test_a_limit_that_names_no_host_is_refused_and_never_means_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    result = CliRunner().invoke(main, ["run", "spec.yaml", "--limit", limit], catch_exceptions=False)
    assert result.exit_code == 2
    assert "--limit names no host" in result.output

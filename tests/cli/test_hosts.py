"""Commands about hosts: the inventory as a table, a command on some hosts, a shell on one."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main
from kubexm_exec.cli.shell import shell_argv
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.runner.facts import FACT_NAMES

INI = """\
[web]
web[1:3] ansible_connection=local zone=a

[db]
db1 ansible_host=10.0.0.9 ansible_user=me ansible_port=2222

[web:vars]
zone=b
"""
SPEC = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {name: site}
inventory:
  defaults: {connector: local}
  hosts:
    - {name: a, roles: [etcd], labels: {zone: x}}
    - {name: b}
modules:
  - name: m
    tasks:
      - name: t
        steps: [{name: s, type: message, with: {text: hi}}]
"""


@pytest.fixture(autouse=True)
def _site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    pathlib.Path("hosts.ini").write_text(INI)
    pathlib.Path("site.yaml").write_text(SPEC)


def kubexm(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.mark.parametrize(
    "arguments",
    [
        ("exec", "all", "-i", "empty.ini", "--shell", "touch ran"),
        ("exec", "all", "-i", "empty.ini", "--spec", "site.yaml", "--shell", "touch ran"),
        ("facts", "-i", "empty.ini"),
        ("inventory", "-i", "empty.ini"),
        ("shell", "control-node", "-i", "empty.ini", "--print"),
        ("validate", "site.yaml", "-i", "empty.ini"),
        ("plan", "site.yaml", "-i", "empty.ini"),
        ("run", "site.yaml", "-i", "empty.ini"),
    ],
)
def test_inventory_without_hosts_ends_every_command_before_anything_runs(arguments: tuple[str, ...]) -> None:
    pathlib.Path("empty.ini").write_text("[web]\n")
    result = kubexm(*arguments)
    assert result.exit_code == 2
    assert "error[empty-inventory]: the inventory has no hosts" in result.output
    assert not pathlib.Path("ran").exists()


def test_glob_means_hosts_of_the_inventory_and_not_this_machine() -> None:
    result = kubexm("exec", "*", "--spec", "site.yaml", "--output", "json", "--shell", "true")
    assert result.exit_code == 0, result.output
    assert "control-node" not in result.output


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_inventory_is_a_table() -> None:
    result = kubexm("inventory", "-i", "hosts.ini")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["host", "address", "port", "user", "connector", "roles", "groups", "labels"]
    assert lines[1] == ["web1", "web1", "-", "-", "local", "web", "web", "-"]
    assert lines[4] == ["db1", "10.0.0.9", "2222", "me", "ssh", "db", "db", "-"]
    assert result.stdout.endswith("\n4 hosts\n")


def test_inventory_of_a_spec_is_shown_as_data() -> None:
    first, second = json.loads(kubexm("inventory", "site.yaml", "--output", "json").stdout)
    assert (first["host"], first["roles"], first["labels"], first["connector"]) == (
        "a",
        ["etcd"],
        {"zone": "x"},
        "local",
    )
    assert second["host"] == "b"


def test_one_host_is_shown_with_its_variables_and_where_they_come_from() -> None:
    text = kubexm("inventory", "-i", "hosts.ini", "--host", "web2").stdout
    assert '  zone  "a"  host vars at hosts.ini:2:35\n      hides group web at hosts.ini:8:1\n' in text
    data = json.loads(kubexm("inventory", "-i", "hosts.ini", "--host", "web2", "--output", "json").stdout)
    assert data["vars"] == [
        {"name": "zone", "value": "a", "source": "host vars at hosts.ini:2:35", "hides": ["group web at hosts.ini:8:1"]}
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inventory"], "which hosts?"),
        (["inventory", "-i", "hosts.ini", "--host", "wab1"], 'did you mean "web1"?'),
        (["inventory", "-i", "nothing.ini"], "there is no file nothing.ini"),
        (["exec", "web", "-i", "hosts.ini"], "either a command after --"),
        (["exec", "web", "-i", "hosts.ini", "--shell", "true", "--", "true"], "either a command after --"),
        (["exec", "nobody", "-i", "hosts.ini", "--", "true"], "not a host, group or role"),
        (["exec", "web", "-i", "hosts.ini", "--shell", " "], "is empty"),
        (["exec", "web", "--", "true"], "which hosts?"),
        (["exec", ",", "-i", "hosts.ini", "--", "true"], "no host is named"),
        (["shell", "web", "-i", "hosts.ini"], "selects 3 hosts"),
    ],
)
def test_call_that_cannot_be_is_told_with_exit_code_2(arguments: list[str], words: str) -> None:
    result = kubexm(*arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("web", {"web1", "web2", "web3"}),
        ("web1,web3", {"web1", "web3"}),
        ("web[2:3]", {"web2", "web3"}),
        ("w*1", {"web1"}),
    ],
)
def test_command_runs_on_the_hosts_of_the_pattern_as_it_was_typed(pattern: str, hosts: set[str]) -> None:
    result = kubexm("exec", pattern, "-i", "hosts.ini", "--output", "json", "--", "printf", "%s", "{{ x }} $HOME")
    assert result.exit_code == 0
    done = [event for event in events(result) if event["event"] == "action.finished"]
    assert {event["host"] for event in done} == hosts
    assert {event["stdout"] for event in done} == {"{{ x }} $HOME"}


def test_a_failure_names_no_place_in_a_file_that_nobody_wrote() -> None:
    result = kubexm("exec", "web1", "-i", "hosts.ini", "--output", "plain", "--", "false")
    assert result.exit_code == 1
    assert "FAILED  exec/command/command on web1" in result.output
    assert " at " not in result.output.partition("FAILED  exec")[2]


def test_line_of_shell_runs_on_the_hosts_of_a_spec() -> None:
    result = kubexm("exec", "all", "--spec", "site.yaml", "--output", "plain", "--shell", "echo $((40 + 2)) | cat")
    assert result.exit_code == 0
    assert result.stdout.count("| 42") == 2
    assert "Next:" not in result.stdout


def test_command_that_fails_somewhere_ends_with_1_and_the_others_are_done() -> None:
    pathlib.Path("only-once").mkdir()
    result = kubexm("exec", "web", "-i", "hosts.ini", "--result", "r.json", "--shell", "rmdir only-once")
    assert result.exit_code == 1
    assert "1 changed, 2 failed" in result.stdout
    saved = json.loads(pathlib.Path("r.json").read_text())
    assert saved["status"] == "Failed"


def test_output_of_a_command_names_no_more_hosts_at_once_than_forks() -> None:
    line = "mkdir lock && sleep 0.05 && rmdir lock"
    assert kubexm("exec", "web", "-i", "hosts.ini", "--forks", "1", "--shell", line).exit_code == 0


def test_shell_on_a_host_by_ssh_takes_everything_from_the_inventory() -> None:
    options = {"privateKeyPath": "/k", "proxyJump": "bastion", "hostKeys": "strict", "knownHosts": "/known"}
    host = GraphHost(name="a", connector="ssh", address="10.0.0.1", port=2222, user="me", options=options)
    assert shell_argv(host, "/bin/zsh") == [
        "ssh", "-p", "2222", "-l", "me", "-i", "/k", "-J", "bastion",
        "-o", "UserKnownHostsFile=/known", "-o", "StrictHostKeyChecking=yes", "--", "10.0.0.1",
    ]  # fmt: skip
    assert shell_argv(GraphHost(name="a", connector="local", address="a"), "/bin/zsh") == ["/bin/zsh"]
    assert shell_argv(GraphHost(name="a", connector="other", address="a"), "/bin/zsh") is None


def test_shell_with_a_certificate_names_its_private_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    host = GraphHost(name="a", connector="ssh", address="a", options={"privateKeyPath": "~/.ssh/k-cert.pub"})
    argv = shell_argv(host, "")
    assert argv is not None
    assert argv[:5] == ["ssh", "-i", "/home/me/.ssh/k", "-o", "CertificateFile=/home/me/.ssh/k-cert.pub"]


def test_shell_on_a_local_host_has_the_terminal() -> None:
    above, below = pty.openpty()
    program = pathlib.Path(sys.executable).with_name("kubexm")
    with subprocess.Popen(
        [program, "shell", "a", "--spec", "site.yaml"],
        stdin=below, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "SHELL": "/bin/sh"},
    ) as process:  # fmt: skip
        os.write(above, b"test -t 0 && echo on a terminal; exit 7\n")
        out, _ = process.communicate(timeout=60)
    os.close(above)
    os.close(below)
    assert b"on a terminal" in out
    assert process.returncode == 7


def test_facts_of_hosts_are_a_table_or_all_of_them_as_data() -> None:
    lines = [line.split() for line in kubexm("facts", "web1,web2", "-i", "hosts.ini").stdout.splitlines()]
    assert [line[0] for line in lines] == ["host", "web1", "web2"]
    data = json.loads(kubexm("facts", "w*3", "-i", "hosts.ini", "--output", "json").stdout)
    assert list(data) == ["web3"]
    assert set(data["web3"]) == set(FACT_NAMES)
    assert data["web3"]["hostname"] == os.uname().nodename


def test_chosen_facts_only_are_shown() -> None:
    lines = kubexm("facts", "--spec", "site.yaml", "--fact", "machine", "--fact", "cpus").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["host", "machine"], *([name, os.uname().machine] for name in "ab")]
    result = kubexm("facts", "--spec", "site.yaml", "--fact", "machin")
    assert result.exit_code == 2
    assert 'did you mean "machine"?' in result.output


def test_host_that_does_not_answer_is_named_and_the_others_are_shown() -> None:
    pathlib.Path("dead.ini").write_text("here ansible_connection=local\ndead ansible_host=127.0.0.1 ansible_port=1\n")
    result = kubexm("facts", "-i", "dead.ini", "--fact", "kernel")
    assert result.exit_code == 1
    assert "error: dead: " in result.stderr
    assert f"here  {os.uname().release}" in result.stdout
    data = json.loads(kubexm("facts", "-i", "dead.ini", "--fact", "kernel", "--output", "json").stdout)
    assert data["here"] == {"kernel": os.uname().release}
    assert set(data["dead"]) == {"error"}

"""Names, addresses and users from an inventory never become a part of a command line on the machine of the operator."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubexm_exec.cli.shell import shell_argv
from kubexm_exec.connectors.ssh.config import expanded
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.options import SshOptions
from kubexm_exec.control import Deadline
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost
from kubexm_spec.hostnames import is_address, is_host_name, is_user
from kubexm_spec.models.hops import parse_hops

HOSTILE = [
    "$(touch MARK)", "`touch MARK`", "a;touch MARK", "a|touch MARK", "a&touch MARK", "a\ntouch MARK", "a>MARK",
    "-oProxyCommand=touch MARK", "-oProxyCommand=touch${IFS}MARK", "a\nProxyCommand touch MARK", "a b", "a'b", 'a"b',
    "a\x1b]0;x\x07", "a\0b", "..", ".", "", "a\u202eb", "a{b,c}", "a\\", "~root", "!x", "a<MARK", "a(b)",
]  # fmt: skip
CONFIGURATIONS = [
    "Host *\n  ProxyCommand false %h %n %r %p %u\n",
    "Match exec \"true %h %n %r %p %u\"\n  User x\n",
    "Host *\n  RemoteCommand true %h %n\n  LocalCommand true %h\n",
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_shell_or_a_terminal_would_obey_is_no_name_address_or_user(hostile: str) -> None:
    assert not is_host_name(hostile)
    assert not is_address(hostile)
    assert not is_user(hostile)
    for hop in (hostile, f"{hostile}@bastion"):
        if hop not in ("..", "", "@bastion") and not hop.startswith((".@", "..@")):
            with pytest.raises(ValueError, match="write for example"):
                parse_hops(f"inner,{hop}")


@pytest.mark.parametrize(
    "good", ["web1", "web-1.example.org", "10.0.0.1", "fe80::1", "::1", "fe80::1%eth0", "under_score", "xn--mnchen-3ya"]
)
def test_what_people_have_is_an_address(good: str) -> None:
    assert is_address(good)


@pytest.mark.parametrize(
    "good", ["root", "_apt", "jane.doe", "ACME\\jane", "jane@acme.org", "svc-1", "node$", "jürgen"]
)
def test_what_people_have_is_a_user(good: str) -> None:
    assert is_user(good)


@pytest.mark.parametrize("configuration", ["", *CONFIGURATIONS])
@pytest.mark.parametrize("hostile", [each for each in HOSTILE if "MARK" in each])
def test_no_command_of_a_hostile_name_runs_also_if_the_graph_comes_from_elsewhere(
    home: Path, configuration: str, hostile: str
) -> None:
    mark = home / "mark"
    (home / ".ssh" / "config").write_text(configuration)
    bad = hostile.replace("MARK", str(mark))
    hosts = [GraphHost("box", address=bad), GraphHost(bad), GraphHost("box", address="127.0.0.1", user=bad)]
    if not configuration:
        hosts = [replace(host, options={"proxyCommand": "false %h %n %r %p %u"}) for host in hosts]
        hosts.append(GraphHost("box", address="127.0.0.1", options={"proxyJump": bad}))
    for host in hosts:
        with pytest.raises(ConnectorError):
            SshConnector(host, str).open(Deadline.after(30.0))
        assert not mark.exists()


@given(st.text(min_size=1), st.text(min_size=1))
def test_whatever_a_proxy_command_is_given_stays_one_word(host: str, user: str) -> None:
    options = SshOptions("box", host, user=user)
    words = shlex.split(expanded("nc %h %n %r 100%% %p", host, options, {}))
    assert words == ["nc", host, host, user, "100%", "22"]


def test_a_shell_of_ssh_takes_no_option_from_an_inventory() -> None:
    argv = shell_argv(GraphHost("box", address="-oProxyCommand=x"), "")
    assert argv is not None
    assert argv[-2:] == ["--", "-oProxyCommand=x"]

"""How SSH hosts are reached and what happens when that goes wrong, on real servers."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.cli.shell import shell_argv
from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import ConnectorError, OutcomeUnknown
from kubexm_exec.model.graph import GraphHost
from tests.lab.sshd import MISSING, SSHD, SshHost, make_key, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)
SOON = 60.0


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture
def opened() -> Iterator[Any]:
    """Makes open connectors, closed at the end."""
    with ExitStack() as stack:

        def make(host: GraphHost) -> SshConnector:
            connector = SshConnector(host, lambda reference: os.environ[reference.removeprefix("env:")])
            stack.callback(connector.close)
            connector.open(Deadline.after(SOON))
            return connector

        yield make


def run(connector: SshConnector, *argv: str, shell: str = "", stdin: bytes | None = None) -> CommandResult:
    command = Command(argv=argv, shell=shell, stdin=stdin)
    return connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel())


# who and where


def test_the_users_own_ssh_configuration_is_followed(box: SshHost, home: Path, opened: Any) -> None:
    (home / ".ssh" / "config").write_text(
        f"Host web*\n  HostName 127.0.0.1\n  Port {box.port}\n  User {box.user}\n"
        f"  IdentityFile {home}/not-there\n  IdentityFile {box.key}\n  HostKeyAlias the-web\n"
    )
    assert run(opened(GraphHost("web1", address="web1")), "echo", "here").out == "here\n"
    assert (home / ".ssh" / "known_hosts").read_text().startswith("the-web ssh-ed25519 ")


def test_several_hops_are_gone_through_in_the_order_they_are_written(
    box: SshHost, home: Path, tmp_path: Path, opened: Any
) -> None:
    (home / ".ssh" / "config").write_text(f"Host 127.0.0.*\n  IdentityFile {box.key}\n")
    with (
        ssh_host(tmp_path / "outer", "127.0.0.21") as outer,
        ssh_host(tmp_path / "inner", "127.0.0.22", settings=("PermitOpen 127.0.0.1:*",)) as inner,
    ):
        for hop in (outer, inner):
            hop.authorized.write_text((box.folder / "id.pub").read_text())
        outer.stop()
        outer.settings = (f"PermitOpen 127.0.0.22:{inner.port}",)
        outer.start()
        hops = [f"{hop.user}@{hop.address}:{hop.port}" for hop in (outer, inner)]
        connector = opened(box.host(proxyJump=", ".join(hops)))
        assert run(connector, "echo", "through").out == "through\n"
        inner.drop_connections()
        with pytest.raises(ConnectorError, match=r"127\.0\.0\.2[12].*cannot be reached"):
            opened(box.host(proxyJump=",".join(reversed(hops))))


def test_a_dead_gateway_is_named(box: SshHost, opened: Any) -> None:
    with pytest.raises(ConnectorError, match=r"its gateway 127.0.0.1:1 cannot be reached: connection refused"):
        opened(box.host(proxyJump="127.0.0.1:1"))


def test_a_gateway_or_a_port_that_cannot_be_one_is_said_so(box: SshHost, home: Path, opened: Any) -> None:
    (home / ".ssh" / "config").write_text("Host 127.0.0.1\n  ProxyJump a,,b\nHost odd\n  Port abc\n")
    with pytest.raises(ConnectorError, match=r'"me@127.0.0.1:x" has the port "x".*look at `proxyJump`'):
        opened(box.host(proxyJump="me@127.0.0.1:x"))
    with pytest.raises(
        ConnectorError, match=r"host box: .*lacks the name of a gateway.*ssh/config.* as ProxyJump for 127\.0\.0\.1"
    ):
        opened(box.host())
    with pytest.raises(ConnectorError, match=r"says Port abc for odd, .*correct it in ~/\.ssh/config"):
        opened(GraphHost("odd"))


def test_a_proxy_command_makes_the_connection(box: SshHost, tmp_path: Path, opened: Any) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import socket, sys, threading, os\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n    while data := os.read(0, 65536): s.sendall(data)\n    s.shutdown(1)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536): os.write(1, data)\n"
    )
    connector = opened(box.host(proxyCommand=f"python3 {relay} %h %p"))
    assert run(connector, "echo", "by proxy").out == "by proxy\n"


@pytest.mark.parametrize(
    ("command", "words", "most"),
    [
        ("/no/such/prog %h %p", r"proxyCommand failed with exit code 127: .*/no/such/prog: not found", 0),
        ("sh -c 'echo x >> {log}; echo one >&2; echo boom. >&2; exit 3'", r"failed with exit code 3: boom; look at", 3),
        ("sh -c 'echo x >> {log}; kill -9 $$'", r"was killed by signal 9: it said nothing; look at `proxyCommand`", 3),
        ("sh -c 'echo x >> {log}; echo it timed out >&2; exit 1'", r"exit code 1: it timed out", 3),
    ],
)
def test_a_proxy_command_that_fails_says_how_and_is_not_tried_for_long(
    box: SshHost, tmp_path: Path, opened: Any, command: str, words: str, most: int
) -> None:
    log = tmp_path / "tries"
    with pytest.raises(ConnectorError, match=rf"host box cannot be reached at .*{words}"):
        opened(box.host(proxyCommand=command.replace("{log}", str(log))))
    assert (len(log.read_text().split()) if log.exists() else 0) == most


def test_a_proxy_command_that_hands_on_a_closed_connection_is_not_the_culprit(box: SshHost, opened: Any) -> None:
    with pytest.raises(ConnectorError, match="it closes the connection"):
        opened(box.host(proxyCommand="true", connectTimeout=2))


def test_a_proxy_command_may_complain_a_lot_and_leaves_nothing(box: SshHost, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    relay = tmp_path / "relay"
    relay.write_text(f"#!/bin/bash\nyes complaint | head -c 300000 >&2\nexec 3<>/dev/tcp/127.0.0.1/{box.port}\n")
    with relay.open("a") as file:
        file.write("cat <&3 &\ncat >&3\n")
    relay.chmod(0o755)
    connector = SshConnector(box.host(proxyCommand=str(relay)), str)
    connector.open(Deadline.after(SOON))
    assert run(connector, "echo", "here").out == "here\n"
    connector.close()
    assert set(threading.enumerate()) <= before


# keys


def test_a_key_with_a_passphrase_needs_it(box: SshHost, tmp_path: Path, opened: Any, monkeypatch: Any) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    with box.authorized.open("a") as file:
        file.write((tmp_path / "locked.pub").read_text())
    with pytest.raises(ConnectorError, match=r"passphrase: env:NAME"):
        opened(box.host(privateKeyPath=str(key)))
    monkeypatch.setenv("KX_PASS", "open sesame")
    assert run(opened(box.host(privateKeyPath=str(key), passphrase="env:KX_PASS")), "true").exit_code == 0


def test_the_agents_keys_are_used(box: SshHost, home: Path, tmp_path: Path, opened: Any, monkeypatch: Any) -> None:
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        while subprocess.run(["ssh-add", "-q", str(box.key)], stderr=subprocess.DEVNULL, check=False).returncode == 2:
            assert agent.poll() is None
        assert run(opened(box.host(privateKeyPath=None)), "true").exit_code == 0
        # As with ssh: the agent may hold the key whose public half is named.
        assert run(opened(box.host(privateKeyPath=f"{box.key}.pub")), "true").exit_code == 0
    finally:
        agent.kill()
        agent.wait()


def test_a_certificate_is_used(box: SshHost, tmp_path: Path, opened: Any) -> None:
    authority = make_key(tmp_path / "ca")
    key = make_key(tmp_path / "signed")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", box.user, f"{key}.pub"]
    subprocess.run(sign, check=True)
    with ssh_host(tmp_path / "trusting", settings=(f"TrustedUserCAKeys {authority}.pub",)) as host:
        host.authorized.write_text("")
        certified = host.host(privateKeyPath=f"{key}-cert.pub")
        assert run(opened(certified), "true").exit_code == 0
        argv = shell_argv(certified, "")
        assert argv is not None
        said = subprocess.run([*argv, "echo", "here"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert said.stdout == b"here\n", said.stderr


def test_a_refused_login_says_who_and_what_was_tried(box: SshHost, tmp_path: Path, opened: Any) -> None:
    stranger = make_key(tmp_path / "stranger")
    with pytest.raises(ConnectorError, match=rf"host box refused the login as {box.user} .*tried: .*stranger"):
        opened(box.host(privateKeyPath=str(stranger)))
    with pytest.raises(ConnectorError, match=r"tried: keys of the agent"):
        opened(box.host(privateKeyPath=None))


def test_a_key_file_that_is_missing_is_named(box: SshHost, opened: Any) -> None:
    with pytest.raises(ConnectorError, match=r"/none/id cannot be read: No such file.*privateKeyPath"):
        opened(box.host(privateKeyPath="/none/id"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty; look at `privateKeyPath`"),
        ("hello\n", "is not a private key; look at `privateKeyPath`"),
        ("ssh-ed25519 AAAA me\n", "holds a public key; name the private one as `privateKeyPath`"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "is of a kind that is not supported"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "is damaged"),
    ],
)
def test_a_file_that_is_no_key_is_named(box: SshHost, tmp_path: Path, opened: Any, content: str, words: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    with pytest.raises(ConnectorError) as caught:
        opened(box.host(privateKeyPath=str(path)))
    assert str(caught.value).startswith(f"host box: no login as {box.user}: the key file {path} {words}")


def test_a_folder_in_place_of_a_key_and_a_certificate_without_its_key_are_named(
    box: SshHost, tmp_path: Path, opened: Any
) -> None:
    with pytest.raises(
        ConnectorError, match=rf"the key file {tmp_path} cannot be read: it is a folder.*`privateKeyPath`"
    ):
        opened(box.host(privateKeyPath=str(tmp_path)))
    (tmp_path / "k-cert.pub").write_text("ssh-ed25519-cert-v01@openssh.com AAAA me\n")
    with pytest.raises(ConnectorError, match=rf"the key file {tmp_path}/k cannot be read: No such file"):
        opened(box.host(privateKeyPath=f"{tmp_path}/k-cert.pub"))


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_wrong_passphrase_is_said_with_the_name_of_the_key(
    box: SshHost, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    key = make_key(tmp_path / "locked", kind=kind, passphrase="open sesame")
    monkeypatch.setenv("KX_PASS", "wrong")
    with pytest.raises(ConnectorError, match=rf"the key file {key} cannot be opened with.*look at `passphrase`"):
        opened(box.host(privateKeyPath=str(key), passphrase="env:KX_PASS"))


def test_a_wrong_password_is_the_one_to_look_at(tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KX_PASS", "wrong")
    with ssh_host(tmp_path / "asking", settings=("PasswordAuthentication yes",)) as host:
        with pytest.raises(ConnectorError, match=r"tried: password\. Look at `user` and `password`") as caught:
            opened(host.host(privateKeyPath=None, password="env:KX_PASS"))
        assert "authorized_keys" not in str(caught.value)
        (tmp_path / "key").write_text("")
        with pytest.raises(ConnectorError, match=r"is empty.*refused the password too: look at `password`"):
            opened(host.host(privateKeyPath=str(tmp_path / "key"), password="env:KX_PASS"))


def test_an_unknown_name_and_a_silent_address_are_told_apart(box: SshHost, opened: Any) -> None:
    with pytest.raises(ConnectorError, match="its name is not known"):
        opened(replace(box.host(), address="no-such-host.invalid"))
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ConnectorError, match="no answer in time"):
        opened(replace(box.host(connectTimeout=1), port=silent.getsockname()[1]))


# limits and faults


def test_more_commands_than_the_host_allows_sessions_wait_for_their_turn(tmp_path: Path, opened: Any) -> None:
    with ssh_host(tmp_path / "small", settings=("MaxSessions 2",)) as host:
        connector = opened(host.host())
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda n: run(connector, "cat", stdin=b"%d" % n).out, range(12)))
        assert results == [str(n) for n in range(12)]


def test_a_host_that_takes_few_logins_at_once_is_tried_again(tmp_path: Path) -> None:
    with ssh_host(tmp_path / "shy", settings=("MaxStartups 1:100:2",)) as host:
        connectors = [SshConnector(host.host(), str) for _ in range(6)]
        try:
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(lambda connector: connector.open(Deadline.after(SOON)), connectors))
            assert [run(connector, "echo", "here").out for connector in connectors] == ["here\n"] * 6
        finally:
            for connector in connectors:
                connector.close()


def test_a_gateway_that_takes_few_logins_at_once_is_tried_again(box: SshHost, home: Path, tmp_path: Path) -> None:
    (home / ".ssh" / "config").write_text(f"Host 127.0.0.*\n  IdentityFile {box.key}\n")
    with ssh_host(tmp_path / "shy", "127.0.0.23", settings=("MaxStartups 1:100:2",)) as shy:
        shy.authorized.write_text((box.folder / "id.pub").read_text())
        jump = f"{shy.user}@{shy.address}:{shy.port}"
        connectors = [SshConnector(box.host(proxyJump=jump), str) for _ in range(4)]
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda connector: connector.open(Deadline.after(SOON)), connectors))
            assert [run(connector, "echo", "here").out for connector in connectors] == ["here\n"] * 4
        finally:
            for connector in connectors:
                connector.close()


def test_a_host_that_its_gateway_cannot_reach_is_said_so(box: SshHost, home: Path, tmp_path: Path, opened: Any) -> None:
    (home / ".ssh" / "config").write_text(f"Host 127.0.0.1\n  IdentityFile {box.key}\n")
    jump = f"{box.user}@127.0.0.1:{box.port}"
    with pytest.raises(ConnectorError, match=r"its gateway cannot get there \(connect failed\)"):
        opened(replace(box.host(proxyJump=jump), address="127.0.0.24", port=1))


def test_a_connection_that_dropped_is_opened_again_for_the_next_command(box: SshHost, opened: Any) -> None:
    connector = opened(box.host())
    assert run(connector, "echo", "one").out == "one\n"
    transport = connector._connection._link.transport
    box.drop_connections()
    transport.join(10)
    assert run(connector, "echo", "two").out == "two\n"


@pytest.mark.parametrize("stdin", [None, b"input"])
def test_a_connection_whose_end_shows_only_when_a_command_is_sent_is_opened_again(
    box: SshHost, tmp_path: Path, opened: Any, stdin: bytes | None
) -> None:
    connector = opened(box.host())
    counter = tmp_path / "ran"
    assert run(connector, "echo", "one").out == "one\n"
    # Nobody answers and nobody says so: only a write fails.
    box.freeze()
    connector._connection._link.transport.sock.plain.shutdown(socket.SHUT_WR)
    assert run(connector, shell=f"echo x >> {counter}; echo two", stdin=stdin).out == "two\n"
    assert counter.read_text() == "x\n"


def test_a_connection_that_breaks_while_much_output_is_read_leaves_an_unknown_outcome(
    box: SshHost, opened: Any
) -> None:
    connector = opened(box.host())
    sock = connector._connection._link.transport.sock.plain

    def cut(stream: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)

    command = Command(shell="yes | head -c 20000000; sleep 60")
    with pytest.raises(OutcomeUnknown, match=r"the connection dropped during a command"):
        connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel(), on_output=cut)
    assert run(connector, "echo", "there").out == "there\n"


def test_a_command_during_which_the_connection_drops_has_an_unknown_outcome_and_runs_once(
    box: SshHost, tmp_path: Path, opened: Any
) -> None:
    for number, stdin in enumerate((None, b"input")):
        connector = opened(box.host())
        counter = tmp_path / f"ran-{number}"
        seen = threading.Event()

        def listen(stream: str, data: bytes, seen: threading.Event = seen) -> None:
            seen.set()

        def cut(seen: threading.Event = seen) -> None:
            assert seen.wait(SOON)
            box.drop_connections()

        cutter = threading.Thread(target=cut)
        cutter.start()
        command = Command(shell=f"echo x >> {counter}; echo up; sleep 20", stdin=stdin)
        with pytest.raises(OutcomeUnknown, match=r"the connection dropped during a command.*unknown"):
            connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel(), on_output=listen)
        cutter.join()
        assert run(connector, "cat", str(counter)).out == "x\n"


def test_a_restarted_server_is_connected_to_again(tmp_path: Path, opened: Any) -> None:
    with ssh_host(tmp_path / "box") as host:
        connector = opened(host.host())
        transport = connector._connection._link.transport
        host.stop()
        transport.join(10)
        threading.Timer(0.1, host.start).start()
        assert run(connector, "echo", "back").out == "back\n"


def test_what_a_login_shell_prints_is_not_taken_for_output(tmp_path: Path, opened: Any) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text('#!/bin/sh\necho welcome; echo to you >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    noisy.chmod(0o755)
    with ssh_host(tmp_path / "box", settings=(f"ForceCommand {noisy}",)) as host:
        connector = opened(host.host())
        for stdin in (None, b""):
            result = run(connector, shell="echo out; echo err >&2", stdin=stdin)
            assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


def test_an_account_without_a_shell_is_said_so(tmp_path: Path, opened: Any) -> None:
    closed = tmp_path / "closed"
    closed.write_text("#!/bin/sh\necho This account is not available.\nexit 1\n")
    closed.chmod(0o755)
    with ssh_host(tmp_path / "box", settings=(f"ForceCommand {closed}",)) as host:
        connector = opened(host.host())
        with pytest.raises(ConnectorError, match=r"its shell ended at once: This account is not available"):
            run(connector, "true")


def test_short_commands_share_one_shell_and_it_survives_what_they_do_to_theirs(box: SshHost, opened: Any) -> None:
    connector = opened(box.host())
    ask = "read -r _ _ _ parent _ < /proc/$PPID/stat; echo $parent"
    first = run(connector, "sh", "-c", ask).out
    run(connector, shell="exec >/dev/null 2>&1; kill -9 $$")
    run(connector, shell="cd /; umask 0; exit 3")
    assert run(connector, "sh", "-c", ask).out == first
    assert run(connector, shell="umask").out != "0000\n"


def test_a_command_that_prints_the_list_of_processes_does_not_confuse_anybody(box: SshHost, opened: Any) -> None:
    connector = opened(box.host())
    look = "for f in /proc/[0-9]*/cmdline; do cat $f 2>/dev/null; done; echo; echo end"
    for stdin in (None, b""):
        assert run(connector, shell=look, stdin=stdin).out.endswith("\nend\n")


def test_nothing_is_left_of_a_closed_connection(box: SshHost) -> None:
    before = set(threading.enumerate())
    connector = SshConnector(box.host(), str)
    connector.open(Deadline.after(SOON))
    run(connector, "true")
    run(connector, "cat", stdin=b"x")
    connector.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectorError, match="the run is over"):
        run(connector, "true")


def test_small_files_of_any_content_arrive_also_where_there_is_no_base64(
    box: SshHost, tmp_path: Path, opened: Any
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("dd", "chmod", "mv", "rm", "stat", "cat", "wc", "setsid", "chown"):
        (bare / tool).symlink_to(f"/usr/bin/{tool}")
    poor = tmp_path / "poor"
    poor.write_text(f'#!/bin/sh\nPATH={bare}; export PATH\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    poor.chmod(0o755)
    contents = [b"", b"\n", b"no end", b"a\0b\n", bytes(range(256)) * 200, b"'$x`\\\n\n"]
    with ssh_host(tmp_path / "box", settings=(f"ForceCommand {poor}",)) as host:
        for connector in (opened(box.host()), opened(host.host())):
            for data in contents:
                path = str(tmp_path / "file")
                connector.put(data, path, mode=0o600, deadline=Deadline.after(SOON), cancel=Cancel())
                assert Path(path).read_bytes() == data
                assert connector.get(path, deadline=Deadline.after(SOON), cancel=Cancel()) == data
        assert list(tmp_path.glob(".kx-*")) == []


def test_a_frozen_host_is_given_up_on_when_the_time_is_over(tmp_path: Path, opened: Any) -> None:
    with ssh_host(tmp_path / "box") as host:
        connector = opened(host.host())
        run(connector, "true")
        host.freeze()
        command = Command(argv=("true",))
        with pytest.raises(OutcomeUnknown, match="it may still run there"):
            connector.run(command, deadline=Deadline.after(0.5), cancel=Cancel())

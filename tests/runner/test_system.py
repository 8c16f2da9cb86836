"""Looking at a system, with the tools of a full one and with busybox's: nothing is changed on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Deadline
from kubexm_exec.runner import Runner
from kubexm_exec.runner.files.probe import look
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.git import Access
from kubexm_exec.runner.system.nftables import Chain, Opening, config_text, live_script, read_chains, rules_text
from kubexm_exec.step import StepFailed


@pytest.fixture
def session(connector: LocalConnector) -> Session:
    return Session(connector, Deadline.after(60))


def test_files_and_what_a_script_prints_come_in_one_answer(session: Session, folder: Path) -> None:
    plain, link, odd = folder / "plain", folder / "link", folder / "odd"
    plain.write_bytes(b"a\nb")
    plain.chmod(0o640)
    odd.write_bytes(bytes(range(1, 256)) + b"\n")
    link.symlink_to("plain")
    paths = [str(plain), str(link), str(odd), str(folder / "none"), str(folder / "no" / "folder")]
    seen = look(session, paths, 'part one; printf %s "$1"; printf "%s\\n" "$2"; part two', "x y", "$z")
    assert seen.text("one") == "x y$z\n"
    assert seen.lines("one") == ["x y$z"]
    assert seen.parts["two"] == b""
    assert seen.text("three") == ""
    held = [seen.files[path] for path in paths]
    assert [one.exists for one in held] == [True, True, True, False, False]
    assert [one.folder for one in held] == [True, True, True, True, False]
    assert held[0].text == "a\nb"
    assert held[0].state.mode == 0o640
    assert held[0].state.uid == os.getuid()
    assert held[1].path == str(plain)
    assert held[2].data == bytes(range(1, 256)) + b"\n"


def test_what_is_no_file_is_told(session: Session, folder: Path) -> None:
    with pytest.raises(StepFailed, match="it is a folder"):
        look(session, [str(folder)])
    with pytest.raises(StepFailed, match="device, pipe or socket"):
        look(session, ["/dev/null"])


def test_a_script_that_fails_says_what_it_was_for(session: Session) -> None:
    with pytest.raises(StepFailed, match="look at the moon: exit code 7") as caught:
        look(session, (), "echo dark >&2; exit 7", what="look at the moon")
    assert "dark" in caught.value.stderr


def test_kernel_settings_are_read_and_those_that_are_not_there_are_told_with_their_neighbours(runner: Runner) -> None:
    now = runner.kernel.settings(["kernel/ostype", "kernel/ostyp"], "/etc/sysctl.d/kx-none.conf")
    assert now.live == {"kernel/ostype": "Linux"}
    assert "ostype" in now.missing["kernel/ostyp"]
    assert not now.file.exists


def test_a_module_that_is_not_there_is_neither_loaded_nor_built_in(runner: Runner) -> None:
    now = runner.kernel.module("kx_no_such_module", ["/etc/modprobe.d/kx-none.conf"])
    assert (now.loaded, now.builtin) == (False, False)
    assert now.kernel == os.uname().release


def test_what_is_mounted_is_seen(runner: Runner) -> None:
    now = runner.mounts.look("/proc", "proc")
    assert now.here()[-1].fstype == "proc"
    assert now.kind == "folder"
    assert not runner.mounts.look("/kx-no-such-folder").here()


def test_a_swap_file_is_told_from_another_file(runner: Runner, folder: Path) -> None:
    file = folder / "swap"
    file.write_bytes(b"x" * 8192)
    now = runner.swap.look(str(file))
    assert (now.kind, now.size, now.signed) == ("file", 8192, False)
    assert now.free
    with file.open("r+b") as opened:
        opened.seek(os.sysconf("SC_PAGE_SIZE") - 10)
        opened.write(b"SWAPSPACE2")
    assert runner.swap.look(str(file)).signed


def test_the_host_says_its_name(runner: Runner) -> None:
    assert runner.system.names().live == os.uname().nodename


def test_a_host_without_git_says_so_and_one_with_it_what_it_says(runner: Runner, busybox: bool, folder: Path) -> None:
    if busybox:
        assert not runner.git.look("/kx-none", str(folder / "x"), "HEAD", Access()).git
    else:
        with pytest.raises(StepFailed, match="ask /kx-none: '/kx-none' does not appear to be a git repository"):
            runner.git.look("/kx-none", str(folder / "x"), "HEAD", Access())


def test_what_a_tool_says_is_hidden_if_the_step_is_sensitive(connector: LocalConnector) -> None:
    runner = Runner(connector, Deadline.after(60), sensitive=True)
    with pytest.raises(StepFailed) as caught:
        runner.mounts.mount("secret-source", "/kx-no-such-folder", "tmpfs", "password=secret")
    assert caught.value.stderr == ""
    assert "hidden" in caught.value.message


CHAIN = """{"nftables": [{"metainfo": {}}, {"chain": {"family": "inet", "table": "t", "name": "in", "handle": 1,
"type": "filter", "hook": "input", "prio": 0, "policy": "%s"}}, {"rule": {"family": "inet", "table": "t", "chain": "in",
"handle": 4, "expr": [%s]}}]}"""
OWN = """{"nftables": [{"chain": {"family": "inet", "table": "t", "name": "kubexm", "handle": 6}}, {"rule": {"family":
"inet", "table": "t", "chain": "kubexm", "handle": 8, "comment": "kubexm 80/tcp", "expr": [{"accept": null}]}}]}"""


@pytest.mark.parametrize(
    ("policy", "expression", "filters"),
    [
        ("accept", '{"counter": null}', False),
        ("drop", '{"counter": null}', True),
        ("accept", '{"counter": null}, {"drop": null}', True),
        ("accept", '{"reject": {"type": "tcp reset"}}', True),
        ("accept", '{"jump": {"target": "other"}}', False),
    ],
)
def test_a_chain_that_turns_packets_away_is_told_from_one_that_does_not(
    policy: str, expression: str, filters: bool
) -> None:
    (chain,) = read_chains([CHAIN % (policy, expression)])
    assert chain.filters is filters


def test_openings_of_nftables_are_found_added_and_taken_away() -> None:
    web, api = Opening("80", "tcp"), Opening("6443", "tcp", "fd00::/8")
    chains = read_chains([CHAIN % ("drop", '{"jump": {"target": "kubexm"}}'), OWN])
    (chain,) = chains
    assert chain.has(web)
    assert not chain.has(api)
    rule = 'add rule inet t kubexm ip6 saddr fd00::/8 tcp dport 6443 accept comment "kubexm 6443/tcp from fd00::/8"\n'
    assert live_script(chains, api, True) == rule
    assert live_script(chains, web, False).splitlines() == [
        "delete rule inet t in handle 4",
        "flush chain inet t kubexm",
        "delete chain inet t kubexm",
    ]
    assert live_script(chains, web, True) == ""
    assert live_script(chains, api, False) == ""


def test_the_file_of_openings_is_the_same_the_second_time_and_none_when_nothing_is_open() -> None:
    chains = [Chain("inet", "t", "in", "drop", filters=True)]
    one, two = Opening("80", "tcp"), Opening("1-9", "udp")
    text = rules_text("", chains, one, True)
    assert text is not None
    both = rules_text(text, chains, two, True)
    assert both is not None
    assert both.startswith(text)
    assert rules_text(both, chains, two, True) == both
    assert rules_text(both, chains, two, False) == text
    assert rules_text(text, chains, one, False) is None


def test_our_file_is_included_once_at_the_end_of_the_main_one() -> None:
    path = "/etc/nftables.d/kubexm.nft"
    assert config_text("flush ruleset", path, True) == f'flush ruleset\ninclude "{path}"\n'
    for included in (f'include "{path}"\n', 'include "/etc/nftables.d/*.nft"\n'):
        assert config_text(included, path, True) == included
    assert config_text(f'a\ninclude "{path}"\nb\n', path, False) == "a\nb\n"


def test_a_table_with_an_odd_name_is_not_guessed_at() -> None:
    with pytest.raises(StepFailed, match="not a plain word"):
        live_script([Chain("inet", 'a"; flush ruleset', "in", "drop")], Opening("80", "tcp"), True)

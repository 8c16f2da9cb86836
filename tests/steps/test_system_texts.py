"""Files of the system that steps edit: only what belongs to a step changes, and doing it again changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.runner.files.filestate import Kind
from kubexm_exec.runner.system.mounts import (
    FstabLine,
    appended,
    edited,
    escape,
    fstab_lines,
    mounts_at,
    parse_mount,
    unescape,
)
from kubexm_exec.step.host import FileState, Held
from kubexm_steps.hostname import with_own_name
from kubexm_steps.lib.edits import Edit
from kubexm_steps.lib.hosts import parse_line, with_entries, without_entries
from kubexm_steps.lib.lines import with_block
from kubexm_steps.mount import differ, kernel_options, remount_options
from kubexm_steps.sysctl import key_of, overridden, path_of, with_values

LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
    | st.sampled_from(["# c", "", "127.0.0.1 localhost", "10.0.0.1 a b # x", "a = 1", "/dev/x /y ext4", "# END x"]),
    max_size=8,
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
NAMES = st.sampled_from(["a", "b", "node1", "node1.example"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "127.0.0.1"])
ENTRIES = st.dictionaries(ADDRESSES, st.lists(NAMES, min_size=1, unique=True), min_size=1)


def without_double_names(entries: dict[str, list[str]]) -> dict[str, list[str]]:
    """One address for each name, as entries that make sense have it."""
    seen: set[str] = set()
    made: dict[str, list[str]] = {}
    for address, names in entries.items():
        left = [name for name in names if name not in seen]
        seen |= set(left)
        if left:
            made[address] = left
    return made


@given(TEXTS, ENTRIES.map(without_double_names))
def test_names_of_hosts_are_there_the_second_time_and_no_comment_is_lost(
    text: str, entries: dict[str, list[str]]
) -> None:
    once = with_entries(text, entries)
    assert with_entries(once, entries) == once
    said = [line for line in map(parse_line, once.split("\n")) if line is not None]
    for address, names in entries.items():
        (line, *_) = [line for line in said if line.address == address]
        assert set(names) <= set(line.names)
    kept = [line for line in text.split("\n") if line and parse_line(line) is None]
    assert [line for line in once.split("\n") if line in kept and parse_line(line) is None] == kept


@given(TEXTS, ENTRIES)
def test_names_that_are_taken_away_are_gone_and_localhost_is_not(text: str, entries: dict[str, list[str]]) -> None:
    text = f"127.0.0.1 localhost\n{text}"
    without = without_entries(text, {**entries, "127.0.0.1": ["localhost", "a"]})
    assert without_entries(without, entries) == without
    assert parse_line(without.split("\n")[0]) == parse_line("127.0.0.1 localhost")


def test_a_thousand_hosts_go_into_a_hosts_file_at_once() -> None:
    entries = {
        f"10.1.{number // 250}.{number % 250 + 1}": [f"node{number}.example", f"node{number}"] for number in range(1000)
    }
    text = with_entries("127.0.0.1 localhost\n10.1.0.7 old node6\n", entries)
    assert text.count("\n") == 1001
    assert text.startswith("127.0.0.1 localhost\n10.1.0.7 node6.example node6\n10.1.0.1 node0.example node0\n")
    assert with_entries(text, entries) == text


@given(TEXTS, st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n#"), max_size=9), max_size=3))
def test_a_block_is_there_the_second_time_and_gone_without_a_trace(text: str, block: list[str]) -> None:
    begin, end = "# BEGIN kubexm x", "# END kubexm x"
    once = with_block(text, begin, end, block)
    assert with_block(once, begin, end, block) == once
    assert with_block(once, begin, end, None).rstrip("\n") == text.rstrip("\n")


@given(TEXTS)
def test_a_kernel_setting_is_in_its_file_once_and_others_stay(text: str) -> None:
    once = with_values(text, {"a": "2", "net.x": "1 2"})
    assert with_values(once, {"net.x": "1 2", "a": "2"}) == once
    assert once.endswith("net.x = 1 2\n")
    for line in text.splitlines():
        assert line in once.splitlines() or line.strip().startswith("a"), line


def test_the_first_separator_of_a_kernel_setting_tells_what_the_other_one_means() -> None:
    assert path_of("net.ipv4.conf.eth0/7.forwarding") == "net/ipv4/conf/eth0.7/forwarding"
    assert path_of("net/ipv4/conf/eth0.7/forwarding") == "net/ipv4/conf/eth0.7/forwarding"
    assert key_of("net/ipv4/conf/eth0.7/forwarding") == "net.ipv4.conf.eth0/7.forwarding"


def test_only_files_that_are_read_later_and_say_something_else_win_at_boot() -> None:
    others = [
        ("/usr/lib/sysctl.d/10-a.conf", "a.b = 0"),
        ("/etc/sysctl.d/90-kubexm.conf", "a.b = 0"),
        ("/run/sysctl.d/99-z.conf", "a/b=0"),
        ("/etc/sysctl.d/99-z.conf", "a.b = 1"),
        ("/etc/sysctl.conf", "-a.b = 0"),
        ("/etc/sysctl.conf", "c.d = 0"),
    ]
    found = overridden(others, "/etc/sysctl.d/90-kubexm.conf", {"a.b": "1"})
    assert found == [("/run/sysctl.d/99-z.conf", "a/b"), ("/etc/sysctl.conf", "a/b")]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1), TEXTS)
def test_a_line_of_fstab_is_read_as_it_was_written(name: str, text: str) -> None:
    line = FstabLine(f"/dev/{name} x\\", f"/mnt/{name}\ty", "ext4", "ro", 1, 2)
    assert unescape(escape(line.path)) == line.path
    written = appended(text, line)
    assert mounts_at(written, line.path)[-1] == line
    assert written.startswith(text)
    assert edited(written, lambda each: None if each == line else each).rstrip("\n") == text.rstrip("\n")


def test_what_is_not_a_line_of_fstab_is_left_alone() -> None:
    text = "# c\n\nodd\nUUID=1 none swap sw\n  /dev/x\t/y   ext4"
    assert [line.src for line in fstab_lines(text)] == ["UUID=1", "/dev/x"]
    assert edited(text, lambda line: line) == text
    assert edited(text, lambda line: None if line.is_swap else line) == "# c\n\nodd\n  /dev/x\t/y   ext4"


def test_options_of_a_mount_are_compared_as_far_as_they_can_be_seen() -> None:
    seen = "36 35 0:40 / /srv/a\\040b rw,noexec,relatime shared:1 - tmpfs t ro,size=1024k,mode=700,uid=5"
    mount = parse_mount(seen)
    assert mount is not None
    assert mount.path == "/srv/a b"
    for options, missing in {
        "noexec,size=1m,mode=0700,uid=5,x-any,nosuch=1,size=50%": "",
        "defaults": "rw",
        "ro": "",
        "exec": "exec",
        "nosuid": "nosuid",
        "size=2m": "size=2m",
        "mode=0755": "mode=0755",
        "uid=6": "uid=6",
        "noatime": "noatime",
    }.items():
        assert differ(options, mount) == missing, options
    assert parse_mount("nonsense") is None


def test_a_bound_folder_gets_its_other_options_by_a_remount() -> None:
    assert kernel_options("bind,ro,x-systemd.automount") == ("bind", "remount,bind,ro")
    assert kernel_options("rbind") == ("rbind", "")
    assert kernel_options("noatime,comment=x") == ("noatime", "")
    assert remount_options("bind,ro") == "remount,bind,rw,suid,dev,exec,ro"
    assert remount_options("defaults,size=1m") == "remount,rw,suid,dev,exec,size=1m"


def test_a_host_finds_its_own_name_once() -> None:
    assert with_own_name("", "a.example") == "127.0.1.1 a.example a\n"
    assert with_own_name("10.0.0.1 a.example\n", "a.example") == "10.0.0.1 a.example\n"
    assert with_own_name("127.0.1.1 old\n", "new") == "127.0.1.1 new\n"


@pytest.mark.parametrize("before", [None, "old\n"])
@pytest.mark.parametrize("after", [None, "new\n"])
def test_an_edit_that_is_taken_back_leaves_the_text_that_was_there(before: str | None, after: str | None) -> None:
    kind: Kind = "absent" if before is None else "file"
    edit = Edit(Held(FileState("/etc/x", kind, above=0 if before else 1), (before or "").encode()), after)
    back = edit.back()
    assert (back.held.exists, back.held.text, back.held.folder) == (after is not None, after or "", True)
    assert back.after == before

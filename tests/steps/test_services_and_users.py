"""What the steps for users, keys, services, units, timers and cron refuse, and laws of the texts that they edit."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kubexm_exec.plugins import step_registry
from kubexm_exec.runner.system.services import OpenrcServices, SystemdServices, unit_name
from kubexm_steps.authorized_key import Key, parse, read, with_keys, without_keys
from kubexm_steps.cron import cron_schedule, entry, with_entry
from kubexm_steps.lib.units import install_section
from kubexm_steps.timer import unit_word


def blob(kind: str, content: bytes) -> str:
    name = kind.encode()
    return base64.b64encode(len(name).to_bytes(4, "big") + name + len(content).to_bytes(4, "big") + content).decode()


A, B, C = (f"ssh-ed25519 {blob('ssh-ed25519', bytes([number] * 32))}" for number in range(3))


@pytest.mark.parametrize(
    ("step", "wrong", "message"),
    [
        ("user", {"name": "-x"}, "not a name for a user"),
        ("user", {"name": "a b"}, "not a name for a user"),
        ("user", {"name": "x", "comment": "a:b"}, "colon"),
        ("user", {"name": "x", "home": "relative"}, 'starts with "/"'),
        ("user", {"name": "x", "home": "/a:b"}, "colon"),
        ("user", {"name": "x", "passwordHash": "$6$salt$hash"}, "given as a secret, never as its value"),
        ("user", {"name": "x", "passwordHash": "'$6$salt$hash'"}, "given as a secret, never as its value"),
        ("user", {"name": "x", "expires": "tomorrow"}, "is not a date"),
        ("user", {"name": "x", "expires": "2030-02-30"}, "is not a date"),
        (
            "user",
            {"name": "x", "state": "absent", "shell": "/bin/sh", "appendGroups": True},
            "appendGroups and shell cannot be used with `state: absent`",
        ),
        ("user", {"name": "x", "removeHome": True}, "state: absent"),
        ("user", {"name": "x", "appendGroups": True}, "needs `groups`"),
        ("user", {"name": "x", "uid": -1}, "greater than or equal"),
        ("group", {"name": "x", "state": "absent", "gid": 3}, "gid cannot be used"),
        ("group", {"name": "x", "appendMembers": True}, "needs `members`"),
        ("group", {"name": "x", "members": ["a", "b c"]}, "not a name"),
        ("authorized-key", {"user": "x", "keys": []}, "contains no key"),
        ("authorized-key", {"user": "x", "keys": "# only this"}, "contains no key"),
        ("authorized-key", {"user": "x", "keys": "ssh-ed25519 AAAA"}, "key 1 is damaged"),
        ("authorized-key", {"user": "x", "keys": [A, "ssh-ed25519 !!!"]}, r"key 2 \(ssh-ed25519\) is damaged"),
        ("authorized-key", {"user": "x", "keys": A.replace("ssh-ed25519 ", "ssh-rsa ")}, "not that of a key of type"),
        ("authorized-key", {"user": "x", "keys": "hello world"}, "key 1 is not a public key"),
        ("authorized-key", {"user": "x", "keys": "-----BEGIN OPENSSH PRIVATE KEY-----\nx"}, "this is a private key"),
        ("authorized-key", {"user": "x", "keys": A, "options": ["no pty"]}, "not options of a key"),
        ("authorized-key", {"user": "x", "keys": A, "options": ['command="x']}, "not options of a key"),
        ("authorized-key", {"user": "x", "keys": f"no-pty {A}", "options": "no-pty"}, "in one place"),
        ("authorized-key", {"user": "x", "keys": A, "state": "absent", "exclusive": True}, "exclusive cannot be used"),
        ("service", {"name": "x"}, "say what should be true"),
        ("service", {"name": "a b", "enabled": True}, "not the name of a service"),
        ("service", {"name": "-x", "enabled": True}, "not the name of a service"),
        ("service", {"name": "x", "masked": True, "state": "started"}, "neither started nor enabled"),
        ("systemd-unit", {"name": "x"}, "say what the unit is"),
        ("systemd-unit", {"name": "../x", "content": "a"}, "not the name of a unit"),
        ("systemd-unit", {"name": "x", "content": "a", "template": "b"}, "exclude each other"),
        ("systemd-unit", {"name": "x", "content": "a", "vars": {"a": 1}}, "go with `template`"),
        ("systemd-unit", {"name": "x", "content": "[Service]\n", "enabled": True}, "no .Install. section"),
        ("systemd-unit", {"name": "x", "state": "absent", "started": False}, "started cannot be used"),
        ("systemd-unit", {"name": "x", "dropIns": {"../x": "a"}}, "not the name of a drop-in"),
        ("timer", {"name": "x", "schedule": "daily"}, "say what it runs"),
        ("timer", {"name": "x", "command": ["true"]}, "say when it runs"),
        ("timer", {"name": "x@", "schedule": "daily", "command": "true"}, "not a name for a timer"),
        ("timer", {"name": "x", "schedule": "daily\nOnBootSec=1", "command": "true"}, "one line"),
        ("timer", {"name": "x", "schedule": "daily", "command": ["-true"]}, "cannot start a program"),
        ("timer", {"name": "x", "schedule": "daily", "command": "true", "env": {"A B": "c"}}, "not the name of a var"),
        ("timer", {"name": "x", "state": "absent", "schedule": "daily"}, "schedule cannot be used"),
        ("cron", {"name": "x", "schedule": "@daily"}, "say when and what"),
        ("cron", {"name": "x\ny", "schedule": "@daily", "command": "a"}, "one line"),
        ("cron", {"name": "x", "schedule": "@daily", "command": "a\nb"}, "one line"),
        ("cron", {"name": "x", "schedule": "@daily", "command": "a", "file": "x.y"}, "not a name that cron reads"),
        (
            "cron",
            {"name": "x", "schedule": "@daily", "command": "a", "env": {"MAILTO": "b"}},
            "give the entry a `file`",
        ),
        ("cron", {"name": "x", "schedule": "@daily", "command": "a", "env": {"A": "b\nc"}}, "one line"),
        ("cron", {"name": "x", "state": "absent", "command": "a"}, "command cannot be used"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_with_the_reason(
    step: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        step_registry().load(step).params_model.model_validate(wrong)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0 3 * * *", "0 3 * * *"),
        (" */15   *  1,15 jan-MAR mon ", "*/15 * 1,15 jan-MAR mon"),
        ("0-30/5 0 31 12 7", "0-30/5 0 31 12 7"),
        ("@Daily", "@daily"),
    ],
)
def test_times_of_cron_are_taken(written: str, read: str) -> None:
    assert cron_schedule(written) == read


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "not a time of cron"),
        ("* * * *", "not a time of cron"),
        ("@often", "not one of @reboot"),
        ("60 * * * *", "60 is not a minute: it goes from 0 to 59"),
        ("* 24 * * *", "24 is not a hour"),
        ("* * 0 * *", "0 is not a day of the month"),
        ("* * * foo *", "'foo' is not a month.*jan"),
        ("* * * * fry", "'fry' is not a day of the week.*fri"),
        ("*/0 * * * *", "above 0"),
        ("5/10 * * * *", "after `\\*` or a range"),
        ("30-10 * * * *", "runs backwards"),
        ("1,,2 * * * *", "'' is not a minute"),
        ("-5 * * * *", "not a minute"),
    ],
)
def test_times_that_cron_would_not_take_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cron_schedule(wrong)


LINES = st.lists(st.sampled_from(["", "# kubexm: x", "# kubexm: y", "1 2 3 4 5 a", "A=b", "# x"]), max_size=8)
TABLES = LINES.map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(TABLES, st.sampled_from(["1 1 1 1 1 new", None]))
def test_an_entry_of_cron_is_there_once_afterwards_and_a_second_time_changes_nothing(
    table: str, line: str | None
) -> None:
    changed = with_entry(table, "x", line)
    assert entry(changed, "x") == line
    assert with_entry(changed, "x", line) == changed
    assert changed.count("# kubexm: x\n") == (0 if line is None else 1)


@given(TABLES)
def test_what_is_put_into_a_table_of_cron_and_taken_out_again_leaves_the_rest(table: str) -> None:
    rest = with_entry(table, "x", None)
    assert with_entry(with_entry(rest, "x", "1 1 1 1 1 new"), "x", None) == rest


OTHERS = st.lists(
    st.sampled_from([A, f"{A} me", f"no-pty {A}", f'command="a b",no-pty {B} x y', C, "# note", "", "what?"]),
    max_size=8,
)


@given(OTHERS, st.booleans())
def test_a_key_is_there_once_afterwards_and_a_second_time_changes_nothing(lines: list[str], exclusive: bool) -> None:
    text = "".join(f"{line}\n" for line in lines)
    wanted = [*parse(A), *parse(f'from="10.0.0.0/8" {B} you')]
    changed = with_keys(text, wanted, exclusive=exclusive)
    keys = [key for line in changed.splitlines() if (key := read(line)) is not None]
    for want in wanted:
        assert [key.options for key in keys if key.same(want)] == [want.options]
    assert with_keys(changed, wanted, exclusive=exclusive) == changed
    kept = [line for line in lines if line.startswith("#")]
    assert [line for line in changed.splitlines() if line.startswith("#")] == kept
    if exclusive:
        assert len(keys) == 2
        assert "what?" not in changed


@given(OTHERS)
def test_keys_that_are_removed_are_gone_and_the_other_lines_are_as_they_were(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    changed = without_keys(text, parse(A))
    assert changed.splitlines() == [line for line in lines if A.split()[1] not in line]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"{A} a comment", Key("ssh-ed25519", A.split()[1], comment="a comment")),
        (
            f'  from="a b",command="say \\"hi\\"" {A}',
            Key("ssh-ed25519", A.split()[1], options='from="a b",command="say \\"hi\\""'),
        ),
        ("# " + A, None),
        ("", None),
        ("ssh-ed25519", None),
        ('command="open ' + A, None),
    ],
)
def test_a_line_of_keys_is_read(line: str, key: Key | None) -> None:
    assert read(line) == key


def test_a_unit_without_a_kind_is_a_service() -> None:
    names = ["a", "a.timer", "a.b", "getty@tty1", "x.service"]
    assert [unit_name(name) for name in names] == [
        "a.service", "a.timer", "a.b.service", "getty@tty1.service", "x.service",
    ]  # fmt: skip


def test_words_for_systemd_are_quoted_only_where_they_must_be() -> None:
    words = ["/bin/a", "--x=y,z", "", "a b", "50%", "$x", '"', "\\", ";", "é\t"]
    assert [unit_word(word) for word in words] == [
        "/bin/a", "--x=y,z", '""', '"a b"', '"50%%"', '"$$x"', '"\\""', '"\\\\"', '";"', '"é\\t"',
    ]  # fmt: skip


def test_only_the_install_section_of_a_unit_says_how_it_is_enabled() -> None:
    unit = "[Unit]\nA=b\n[Install]\nWantedBy=x\n\n[Service]\nC=d\n"
    assert install_section(unit) == "WantedBy=x"
    assert install_section("[Service]\n") == ""


@pytest.mark.parametrize(
    ("said", "enabled", "fixed", "masked"),
    [
        ("LoadState=loaded\nUnitFileState=enabled", True, False, False),
        ("LoadState=loaded\nUnitFileState=disabled", False, False, False),
        ("LoadState=loaded\nUnitFileState=static", True, True, False),
        ("LoadState=loaded\nUnitFileState=generated\nSysv=disabled", False, False, False),
        ("LoadState=loaded\nUnitFileState=generated\nSysv=enabled", True, False, False),
        ("LoadState=masked\nUnitFileState=masked", False, False, True),
    ],
)
def test_what_systemctl_says_about_boot_is_understood(said: str, enabled: bool, fixed: bool, masked: bool) -> None:
    state = SystemdServices.parse("x.service", said)
    assert (state.enabled, bool(state.fixed), state.masked) == (enabled, fixed, masked)


def test_what_rc_service_says_is_understood() -> None:
    crashed = OpenrcServices.parse("x", "exists=yes\nstatus=32\nrunlevel=boot\nrunlevel=default\nreload=yes\n")
    assert (crashed.active, crashed.detail, crashed.runlevels) == ("failed", "crashed", ("boot", "default"))
    assert OpenrcServices.parse("x", "exists=no\n").exists is False

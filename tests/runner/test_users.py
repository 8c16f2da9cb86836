"""Users on full hosts, where cases cannot say it: passwords from secrets, hosts without shadow's tools, plain users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec import testing
from kubexm_exec.connectors.base import Command, Connector, OnOutput
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.result import ForecastState
from kubexm_exec.runner import Runner
from kubexm_exec.runner.system.users import Accounts, day_of, days_of, parse
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine

on_a_machine = pytest.mark.xdist_group("machines")

HASH = "$6$saltsaltsalt$" + "Ab0./" * 17 + "x"
OTHER = "$6$othersalt$" + "Zz9./" * 17 + "y"
# Calls itself chpasswd, notes every command line there is, and goes on to the real one.
SPY = """#!/bin/sh
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' >>/tmp/kx.seen
exec /usr/sbin/chpasswd "$@"
"""


def world(machine: Machine, base: Path, step: str, host: dict[str, Any] | None = None, **params: Any) -> StepTest:
    return StepTest(base, step, params, host=machine.host(**(host or {})), timeout=60)


@pytest.fixture
def kxu(machine: Machine) -> Iterator[Machine]:
    yield machine
    machine.sh("userdel kxu; groupdel kxu; groupdel kxg; rm -rf /home/kxu /tmp/kx.seen", check=False)


def field(machine: Machine) -> str:
    return machine.sh("getent shadow kxu | cut -d: -f2").strip()


@on_a_machine
def test_a_password_comes_from_a_secret_and_is_seen_nowhere(
    kxu: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KX_HASH", HASH)
    kxu.sh('printf %s "$1" >/usr/local/sbin/chpasswd; chmod +x /usr/local/sbin/chpasswd', SPY)
    made = world(kxu, tmp_path, "user", name="kxu", createHome=False, passwordHash="{{ secret('env:KX_HASH') }}")
    try:
        forecast = made.forecast()
        result = made.run()
        assert field(kxu) == HASH
        assert made.forecast().state is ForecastState.SATISFIED
        assert made.run().changed is False
        seen = kxu.sh("cat /tmp/kx.seen")
        assert "chpasswd" in seen, "nobody looked"
        shown = f"{seen}{forecast}{result}{made.undo}{made.events}"
        assert HASH not in shown
        assert "saltsaltsalt" not in shown
    finally:
        made.close()
        kxu.sh("rm /usr/local/sbin/chpasswd")


@on_a_machine
@pytest.mark.parametrize(
    ("before", "params", "after"),
    [
        (OTHER, {}, HASH),
        (OTHER, {"locked": True}, "!" + HASH),
        # Somebody locked it: another password does not unlock it.
        ("!" + OTHER, {}, "!" + HASH),
        ("!" + OTHER, {"locked": False}, HASH),
        ("!" + HASH, {"locked": False}, HASH),
        # There was no password at all: then the new one is to be used.
        ("!", {}, HASH),
        ("*", {}, HASH),
    ],
)
def test_a_password_is_changed_and_put_back(
    kxu: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, params: dict[str, Any], after: str
) -> None:
    monkeypatch.setenv("KX_HASH", HASH)
    kxu.sh("""useradd -M kxu; printf 'kxu:%s\\n' "$1" | chpasswd -e""", before)
    made = world(kxu, tmp_path, "user", name="kxu", passwordHash="secret('env:KX_HASH')", **params)
    try:
        assert made.forecast().state is ForecastState.CHANGE
        made.run()
        undo = made.undo
        assert field(kxu) == after
        assert made.forecast().state is ForecastState.SATISFIED
        for _ in range(2):
            made.undo = undo
            made.rollback()
            assert field(kxu) == before
    finally:
        made.close()


@on_a_machine
def test_a_password_itself_is_refused_and_not_repeated(
    kxu: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KX_HASH", "correct horse battery")
    made = world(kxu, tmp_path, "user", name="kxu", passwordHash="secret('env:KX_HASH')")
    with pytest.raises(StepFailed, match="not the hash of a password") as caught:
        made.forecast()
    made.close()
    assert "horse" not in f"{caught.value}{caught.value.hint}"


@on_a_machine
def test_a_hash_that_is_no_secret_is_refused(kxu: Machine, tmp_path: Path) -> None:
    made = world(kxu, tmp_path, "user", name="kxu", passwordHash=f"secret and '{HASH}' or vars.x | default('{HASH}')")
    with pytest.raises(StepFailed, match="does not come from a secret"):
        made.forecast()
    made.close()


@on_a_machine
def test_undo_of_a_new_user_leaves_a_home_that_holds_something(kxu: Machine, tmp_path: Path) -> None:
    made = world(kxu, tmp_path, "user", name="kxu")
    made.run()
    kxu.sh("echo mine >/home/kxu/work")
    made.rollback()
    made.close()
    assert kxu.sh("getent passwd kxu; cat /home/kxu/work").strip() == "mine"


@on_a_machine
def test_a_plain_user_is_told_to_become_root(kxu: Machine, tmp_path: Path) -> None:
    kxu.sh("useradd -m -s /bin/sh kxu; mkdir /home/kxu/.ssh; cp /root/.ssh/authorized_keys /home/kxu/.ssh")
    kxu.sh("chown -R kxu: /home/kxu/.ssh")
    plain = {"user": "kxu"}
    for step, params in (
        ("user", {"name": "kxother"}),
        ("group", {"name": "kxg"}),
        ("service", {"name": "cron", "state": "stopped"}),
        ("systemd-unit", {"name": "kxs", "content": "[Service]\nExecStart=true\n"}),
        ("cron", {"name": "x", "schedule": "@daily", "command": "true"}),
    ):
        made = world(kxu, tmp_path, step, plain, **params)
        with pytest.raises(StepFailed) as caught:
            made.run()
        made.close()
        assert "become" in f"{caught.value.message} {caught.value.hint}", step
    assert kxu.sh("systemctl is-active cron").strip() == "active"


@on_a_machine
def test_a_plain_user_changes_its_own_crontab_and_keys(kxu: Machine, tmp_path: Path) -> None:
    kxu.sh("useradd -m -s /bin/sh kxu; mkdir -m 700 /home/kxu/.ssh; cp /root/.ssh/authorized_keys /home/kxu/.ssh")
    kxu.sh("chown -R kxu: /home/kxu/.ssh; chmod 600 /home/kxu/.ssh/authorized_keys")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB5SCsiJuABdSKHiJqlFBX8Y2oWq0Jp3+LNfbbJVhXw2"
    entry = {"name": "x", "schedule": "@daily", "command": "true", "user": "kxu"}
    for step, params in (("cron", entry), ("authorized-key", {"user": "kxu", "keys": key})):
        made = world(kxu, tmp_path, step, {"user": "kxu"}, **params)
        assert made.run().changed
        assert made.forecast().state is ForecastState.SATISFIED
        made.rollback()
        made.close()
    assert key not in kxu.sh("cat /home/kxu/.ssh/authorized_keys")


# Stand-ins for busybox's applets, which Debian's busybox does not have: the options that Alpine's documentation names,
# done by shadow's tools, which the steps do not find.
APPLETS = {
    "adduser": """
m=-m; while getopts DHSu:G:h:s:g: o; do case $o in
  H) m=-M ;; S) r=-r ;; u) u=$OPTARG ;; G) g=$OPTARG ;; h) h=$OPTARG ;; s) s=$OPTARG ;; g) c=$OPTARG ;;
esac; done; shift $((OPTIND - 1))
exec /usr/sbin/useradd $m $r ${u:+-u "$u"} ${g:+-g "$g"} ${h:+-d "$h"} ${s:+-s "$s"} ${c:+-c "$c"} "$1"
""",
    "addgroup": """
while getopts Sg: o; do case $o in S) r=-r ;; g) g=$OPTARG ;; esac; done; shift $((OPTIND - 1))
if [ $# = 2 ]; then exec /usr/bin/gpasswd -a "$1" "$2"; fi
exec /usr/sbin/groupadd $r ${g:+-g "$g"} "$1"
""",
    "deluser": 'exec /usr/sbin/userdel "$1"',
    "delgroup": 'if [ $# = 2 ]; then exec /usr/bin/gpasswd -d "$1" "$2"; fi; exec /usr/sbin/groupdel "$1"',
    "chpasswd": 'exec /usr/sbin/chpasswd "$@"',
}
SMALL = "/tmp/kx.small"


class WithoutShadow(SshConnector):
    """A host where usermod and the others are not found."""

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        # The steps look into the system's folders too: these are hidden.
        hide = f'mount --bind {SMALL} /usr/sbin && PATH={SMALL}:/usr/bin:/bin && exec "$@"'
        argv = ("unshare", "-m", "sh", "-c", hide, "sh", *command.argv)
        return super().run(replace(command, argv=argv), deadline=deadline, cancel=cancel, on_output=on_output)


class OnlyThat:
    def load(self, name: str) -> Callable[..., Connector]:
        return WithoutShadow

    def names(self) -> list[str]:
        return ["ssh"]


@pytest.fixture
def small(kxu: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(testing, "connector_registry", OnlyThat)
    kxu.sh(f"mkdir {SMALL} /tmp/kx.sbin; mount --bind /usr/sbin /tmp/kx.sbin")
    for name, body in APPLETS.items():
        body = body.replace("/usr/sbin/", "/tmp/kx.sbin/")
        kxu.sh(f'printf "#!/bin/sh\\n%s\\n" "$1" >{SMALL}/{name}; chmod +x {SMALL}/{name}', body)
    yield kxu
    kxu.sh(f"umount /tmp/kx.sbin; rm -rf {SMALL} /tmp/kx.sbin")


def undone_twice(made: StepTest) -> None:
    undo = made.undo
    for _ in range(2):
        made.undo = undo
        made.rollback()
    made.close()


@on_a_machine
def test_users_without_usermod_are_made_changed_and_removed_with_stand_ins_for_busybox(
    small: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KX_HASH", HASH)
    group = world(small, tmp_path, "group", name="kxg", gid=4400)
    hosts = Runner(group.runtime.connect("m1", Deadline.after(60), Cancel()))
    assert hosts.users.look().tools == "busybox"
    assert group.run().changed
    assert group.forecast().state is ForecastState.SATISFIED

    made = world(small, tmp_path, "user", name="kxu", uid=4321, group="kxg", groups=["bin"], expires="2035-01-31")
    assert made.run().changed
    assert made.forecast().state is ForecastState.SATISFIED
    entry = "kxu:x:4321:4400::/home/kxu:/bin/sh"
    assert small.sh("getent passwd kxu; id -nG kxu").split("\n")[:2] == [entry, "kxg bin"]

    more: dict[str, Any] = {
        "uid": 4322,
        "shell": "/bin/bash",
        "comment": "Kay & <X>",
        "groups": ["sys"],
        "home": "/srv",
    }
    changed = world(
        small, tmp_path, "user", name="kxu", expires="never", locked=True, passwordHash="secret('env:KX_HASH')", **more
    )
    assert changed.run().changed
    assert changed.forecast().state is ForecastState.SATISFIED
    assert small.sh("getent passwd kxu; id -nG kxu").split("\n")[:2] == [
        "kxu:x:4322:4400:Kay & <X>:/srv:/bin/bash",
        "kxg sys",
    ]
    assert small.sh("getent shadow kxu | cut -d: -f2,8").strip() == f"!{HASH}:"
    assert small.sh("stat -c '%a %U:%G' /etc/passwd /etc/shadow /etc/group").split("\n")[:3] == [
        "644 root:root",
        "640 root:shadow",
        "644 root:root",
    ]
    undone_twice(changed)
    assert small.sh("getent passwd kxu; id -nG kxu").split("\n")[:2] == [entry, "kxg bin"]
    assert small.sh("getent shadow kxu | cut -d: -f2,8").strip() == f"!:{days_of('2035-01-31')}"

    members = world(small, tmp_path, "group", name="kxg", gid=4401, members=["bin", "sys"])
    assert members.run().changed
    assert small.sh("getent group kxg; id -g kxu").split() == ["kxg:x:4401:bin,sys", "4401"]
    undone_twice(members)
    assert small.sh("getent group kxg; id -g kxu").split() == ["kxg:x:4400:", "4400"]

    gone = world(small, tmp_path, "user", name="kxu", state="absent")
    assert gone.run().changed
    assert small.sh("getent passwd kxu || echo none").strip() == "none"
    undone_twice(gone)
    assert small.sh("getent passwd kxu; id -nG kxu").split("\n")[:2] == [entry, "kxg bin"]
    undone_twice(made)
    assert small.sh("getent passwd kxu || echo none; ls /home").strip() == "none"
    group.close()


def test_a_day_and_its_number_are_the_same() -> None:
    assert (day_of("0"), day_of("23771"), day_of(""), day_of("-1")) == ("1970-01-01", "2035-01-31", "", "")
    assert (days_of("2035-01-31"), days_of("")) == ("23771", "")


def test_users_and_groups_of_a_directory_are_told_from_those_of_the_host() -> None:
    accounts = parse(
        "tools:shadow\nuser:a:x:1:2:A:/a:/bin/sh\nuser:broken\ngroup:g:x:2:\n"
        "elsewhere:a:x:1:2:A:/a:/bin/sh\nelsewhere:l:x:900:901:L:/l:/bin/sh\ngroup-elsewhere:dir:x:901:a,l\n"
        "home:no:/home/l:x\nshadow:yes:20000:abc\n"
    )
    assert isinstance(accounts, Accounts)
    assert [(user.name, user.local) for user in accounts.users.values()] == [("a", True), ("l", False)]
    assert [(group.name, group.local) for group in accounts.groups.values()] == [("g", True), ("dir", False)]
    assert (accounts.home, accounts.home_exists, accounts.locked, accounts.expires) == (
        "/home/l:x",
        False,
        True,
        "2024-10-04",
    )
    assert accounts.groups_of("a") == ("dir",)
    assert (accounts.group_name(2), accounts.group_name(77)) == ("g", "77")

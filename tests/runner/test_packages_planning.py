from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.runner.packages import first_lookup, make_plan, wants_all
from kubexm_exec.runner.packages.apt import Apt
from kubexm_exec.runner.packages.base import explain
from kubexm_exec.runner.packages.data import Ask, Found, Goal, Move, Plan, Survey, Target, pair
from kubexm_exec.runner.packages.dnf import Dnf
from kubexm_exec.runner.packages.versions import compare_deb
from kubexm_exec.runner.packages.zypper import Zypper
from kubexm_exec.runner.session import Session
from kubexm_exec.step import StepFailed

TOOL = Found(name="tool", candidate="2.0-1", versions=("2.0-1", "1.2-3", "1.0-1"))
INSTALLED = replace(TOOL, installed="1.2-3")


def plan(ask: Ask, found: Found, **goal: Any) -> Plan:
    return make_plan([ask], Survey((found,), 0.0), Goal(**goal), compare_deb)


def test_what_is_installed_is_left_alone_whatever_the_index_has() -> None:
    assert plan(Ask("tool"), INSTALLED).done
    assert plan(Ask("tool"), replace(INSTALLED, versions=(), candidate="")).done
    assert not plan(Ask("tool"), INSTALLED).indexed


def test_what_is_missing_is_installed_as_the_manager_chooses() -> None:
    found = plan(Ask("tool"), TOOL)
    assert found.change.install == (Target("tool", "2.0-1"),)
    assert found.moves == (Move("tool", "", "2.0-1"),)


def test_latest_follows_the_candidate_not_the_newest() -> None:
    pinned = replace(INSTALLED, candidate="1.2-3")
    assert plan(Ask("tool"), pinned, state="latest").done
    assert plan(Ask("tool"), INSTALLED, state="latest").moves == (Move("tool", "1.2-3", "2.0-1"),)


def test_latest_of_a_pattern_is_the_newest_that_it_means() -> None:
    old = replace(TOOL, installed="1.0-1")
    assert plan(Ask("tool", "1.*"), old, state="latest").moves == (Move("tool", "1.0-1", "1.2-3"),)
    assert plan(Ask("tool", "1.*"), old).done


def test_what_is_newer_than_the_index_stays() -> None:
    assert plan(Ask("tool"), replace(TOOL, installed="3.0-1"), state="latest").done
    assert plan(Ask("tool"), replace(TOOL, installed="3.0-1", candidate="", versions=()), state="latest").done


def test_an_older_version_needs_permission() -> None:
    with pytest.raises(StepFailed, match=r"1\.0-1 is older than 1\.2-3"):
        plan(Ask("tool", "1.0"), INSTALLED)
    assert plan(Ask("tool", "1.0"), INSTALLED, downgrade=True).change.downgrade


def test_what_the_index_lacks_is_missing_with_what_it_has() -> None:
    (missing,) = plan(Ask("tool", "9"), TOOL).missing
    assert missing.versions == TOOL.versions
    assert plan(Ask("nothing"), Found(name="nothing")).missing


def test_who_provides_a_name_will_do_unless_a_version_is_asked_for() -> None:
    provided = Found(name="mail", installed="3.1", provider="mailer")
    assert plan(Ask("mail"), provided).done
    assert plan(Ask("mail"), provided, state="latest").done
    assert plan(Ask("mail", "3.1"), provided).missing
    assert plan(Ask("mail"), Found(name="mail", virtual=True)).change.install == (Target("mail"),)


def test_a_file_is_installed_unless_just_that_version_is() -> None:
    file = replace(INSTALLED, file_version="2.0-1")
    assert plan(Ask(file="/a.deb"), file).change.install == (Target("tool", "2.0-1", "/a.deb"),)
    assert plan(Ask(file="/a.deb"), replace(file, installed="2.0-1")).done
    assert plan(Ask(file="/a.deb"), Found(name="")).missing


def test_a_hold_of_others_is_respected_and_our_own_is_lifted_for_the_move() -> None:
    held = replace(INSTALLED, held=True)
    with pytest.raises(StepFailed, match=r"held at 1\.2-3"):
        plan(Ask("tool"), held, state="latest")
    with pytest.raises(StepFailed, match="would have to be removed"):
        plan(Ask("tool"), held, state="absent")
    moved = plan(Ask("tool"), held, state="latest", hold=True).change
    assert (moved.unhold, moved.hold) == (("tool",), ("tool",))
    assert plan(Ask("tool"), held, hold=True).done
    assert plan(Ask("tool"), held, hold=False).change.unhold == ("tool",)
    assert plan(Ask("tool"), held).done


def test_leftover_configuration_is_removed_only_by_a_purge() -> None:
    left = Found(name="tool", leftover=True)
    assert plan(Ask("tool"), left, state="absent").done
    assert plan(Ask("tool"), left, state="absent", purge=True).change.remove == ("tool",)


def test_half_an_installation_is_finished_or_removed() -> None:
    half = replace(TOOL, broken=True)
    assert plan(Ask("tool"), half).change.install
    assert plan(Ask("tool"), half, state="absent").change.remove == ("tool",)


def test_the_index_is_asked_only_where_it_decides() -> None:
    assert [first_lookup(Goal(state)) for state in ("present", "latest", "absent")] == ["missing", "all", "none"]
    assert not wants_all([Ask("tool")], Survey((INSTALLED,)), Goal())
    assert not wants_all([Ask("tool", "1.2")], Survey((INSTALLED,)), Goal())
    assert wants_all([Ask("tool", "2.0")], Survey((INSTALLED,)), Goal())
    assert not wants_all([Ask("tool", "2.0")], Survey((TOOL,)), Goal())


def test_what_went_and_came_has_changed_and_kernels_stand_side_by_side() -> None:
    moves = pair([("a", "1"), ("b", "1"), ("kernel", "1")], [("a", "2"), ("c", "1"), ("kernel", "2"), ("kernel", "3")])
    assert moves == (
        Move("a", "1", "2"),
        Move("b", "1", ""),
        Move("c", "", "1"),
        Move("kernel", "1", ""),
        Move("kernel", "", "2"),
        Move("kernel", "", "3"),
    )


SESSION = Session(LocalConnector(GraphHost("here", connector="local"), lambda reference: reference), cancel=Cancel())


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
         "an earlier run of dpkg was interrupted", "dpkg --configure -a"),
        ("E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n"
         "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?",
         "only root may do this", "become"),
        ("Error: This command has to be run with superuser privileges (under the root user on most systems).",
         "only root may do this", "become"),
        ("Root privileges are required for installing or uninstalling packages.", "only root may do this", "become"),
        ("W: GPG error: x InRelease: ... NO_PUBKEY 0123456789ABCDEF", "signed with the key 0123456789ABCDEF", "key"),
        ("E: Failed to fetch http://x/a.deb  Hash Sum mismatch", "does not match the index", "update: always"),
        ("E: Failed to fetch http://x/  Temporary failure resolving 'x'", "Temporary failure resolving", "reach"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "no space left", "df -h"),
        ("Error: GPG check FAILED", "a signature is missing or wrong", "key"),
        ("mumble\nE: Something new", "Something new", "output"),
        ("only this", "only this", "output"),
        ("", "exit code 100", "output"),
    ],
)  # fmt: skip
def test_what_a_package_manager_says_becomes_a_reason_and_a_way_out(said: str, message: str, hint: str) -> None:
    result = CommandResult(command="", exit_code=100, stderr=said.encode())
    failure = explain(SESSION, "apt", "install tool", result, locked=Apt.locked, waited=1)
    assert failure.message.startswith("install tool: ")
    assert message in failure.message
    assert hint in failure.hint


@pytest.mark.parametrize(
    ("manager", "said", "who"),
    [
        (Apt, "E: Could not get lock /var/lib/dpkg/lock. It is held by process 42 (unattended-upgr)",
         "process 42 (unattended-upgr)"),
        (Apt, "E: Could not get lock /var/lib/dpkg/lock - open (11: Resource temporarily unavailable)",
         "another package manager"),
        (Dnf, "RPMDB already locked by 42\n  The application with PID 42 is: dnf", "process 42 (dnf)"),
        (Zypper, "System management is locked by the application with pid 42 (zypper).",
         "process 42 (zypper)"),
    ],
)  # fmt: skip
def test_who_holds_the_lock_is_named(manager: type[Apt | Dnf | Zypper], said: str, who: str) -> None:
    result = CommandResult(command="", exit_code=1, stderr=said.encode())
    failure = explain(SESSION, "x", "install tool", result, locked=manager.locked, waited=7)
    assert failure.message == f"install tool: {who} still has the lock after 7s"


def test_a_sensitive_step_shows_nothing_of_the_output() -> None:
    result = CommandResult(command="", exit_code=1, stdout=b"secret", stderr=b"E: secret")
    failure = explain(replace(SESSION, sensitive=True), "apt", "install x", result, locked=Apt.locked, waited=0)
    assert "secret" not in failure.message + failure.stderr + failure.stdout

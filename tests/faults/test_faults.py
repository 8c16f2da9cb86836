"""Faults of real hosts during whole runs of the real program: cut off, hung, dead, restarted, full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.kit import ALIVE, Project
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("faults")
Pair = tuple[Machine, Machine]

# Begins, waits until somebody lets it go on, and ends; how often it was started can be counted.
WORK = "echo begun >>/srv/begun; until [ -e /srv/go ]; do sleep 0.1; done; echo done >>/srv/done"
MARK = {"name": "mark", "type": "file", "with": {"path": "/srv/mark", "content": "here\n"}}


def work(**more: Any) -> dict[str, Any]:
    """A step that takes as long as the test wants; whether it was done can be seen on the host."""
    return {"name": "work", "type": "command", "with": {"shell": WORK, "creates": "/srv/done"}, **more}


def begun(machine: Machine) -> bool:
    return (machine.root / "srv/begun").exists()


def let_go(machine: Machine) -> None:
    (machine.root / "srv/go").touch()


def lines(machine: Machine, name: str) -> int:
    path = machine.root / "srv" / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def patient(attempts: int = 60) -> dict[str, Any]:
    """Tries again until the host is back, however slow this computer is."""
    return {"attempts": attempts, "delay": "500ms", "on": ["unreachable"]}


def project(folder: Path, *machines: Machine, **defaults: Any) -> Project:
    """Impatient, so that the tests are quick: what decides is the policy, not its size."""
    return Project(folder / "project", machines, **{"connectTimeout": "3s", **ALIVE, **defaults})


def test_a_host_cut_off_in_the_middle_of_a_step_is_unreachable_and_harms_nobody(pair: Pair, tmp_path: Path) -> None:
    cut, well = pair
    what = project(tmp_path, *pair)
    what.write(work(), MARK)
    with what.running() as run:
        run.until(lambda: begun(cut) and begun(well), "both hosts are at work")
        cut.cut()
        let_go(well)
        outcome = run.end()
    assert outcome.code == 1
    assert outcome.of("work") == {cut.name: "unreachable", well.name: "Success"}, outcome.text
    assert outcome.of("mark") == {cut.name: "Skipped", well.name: "Success"}
    assert "unknown" in outcome.action("work", cut.name)["message"]
    assert lines(well, "done") == 1
    assert lines(cut, "begun") == 1


def test_work_that_ended_while_its_host_was_cut_off_is_found_done_and_not_done_again(
    pair: Pair, tmp_path: Path
) -> None:
    cut, well = pair
    what = project(tmp_path, *pair)
    what.write(work(retry=patient()), MARK)
    with what.running() as run:
        run.until(lambda: begun(cut) and begun(well), "both hosts are at work")
        cut.cut()
        let_go(well)
        let_go(cut)
        run.until(lambda: lines(cut, "done") == 1, "the work is done, unseen")
        run.until(lambda: lines(well, "mark") == 1, "the other host is through")
        run.until(lambda: run.said("retry"), "it is noticed")
        cut.heal()
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    assert outcome.of("mark") == {cut.name: "Success", well.name: "Success"}
    assert (lines(cut, "begun"), lines(cut, "done"), lines(cut, "mark")) == (1, 1, 1)


def test_work_whose_outcome_nobody_can_know_is_never_done_a_second_time(pair: Pair, tmp_path: Path) -> None:
    cut = pair[0]
    what = project(tmp_path, cut)
    what.write({"name": "work", "type": "command", "with": {"shell": WORK}, "retry": patient()})
    with what.running() as run:
        run.until(lambda: begun(cut), "the host is at work")
        cut.drop_connections()
        outcome = run.end()
    assert outcome.code == 1
    assert outcome.of("work") == {cut.name: "unreachable"}
    assert "unknown" in outcome.action("work", cut.name)["message"]
    assert lines(cut, "begun") == 1


def test_a_host_that_hangs_in_the_middle_of_a_step_is_noticed_and_harms_nobody(pair: Pair, tmp_path: Path) -> None:
    hung, well = pair
    what = project(tmp_path, *pair)
    what.write(work(), MARK)
    with what.running() as run:
        run.until(lambda: begun(hung) and begun(well), "both hosts are at work")
        hung.hang()
        let_go(well)
        outcome = run.end()
    assert outcome.code == 1
    assert outcome.of("work") == {hung.name: "unreachable", well.name: "Success"}, outcome.text
    assert outcome.of("mark") == {hung.name: "Skipped", well.name: "Success"}
    assert "unknown" in outcome.action("work", hung.name)["message"]


def test_a_host_that_hangs_before_it_greets_is_unreachable_and_harms_nobody(pair: Pair, tmp_path: Path) -> None:
    hung, well = pair
    hung.hang()
    what = project(tmp_path, *pair)
    what.write(MARK)
    outcome = what.run()
    assert outcome.code == 1
    assert outcome.of("mark") == {hung.name: "unreachable", well.name: "Success"}, outcome.text
    assert hung.name in outcome.action("mark", hung.name)["message"]


def test_a_hung_host_that_goes_on_in_time_is_like_any_other(pair: Pair, tmp_path: Path) -> None:
    hung, well = pair
    hung.hang()
    what = project(tmp_path, *pair)
    what.write({**MARK, "retry": patient()})
    with what.running() as run:
        run.until(lambda: lines(well, "mark") == 1, "the other host is through")
        run.until(lambda: run.said("retry"), "it is noticed")
        hung.resume()
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    assert outcome.of("mark") == {hung.name: "Success", well.name: "Success"}


@pytest.mark.parametrize("budget", [0, 1], ids=["strict", "one may fail"])
def test_one_dead_host_of_twenty_is_unreachable_and_nineteen_finish(pair: Pair, tmp_path: Path, budget: int) -> None:
    machine = pair[0]
    addresses = machine.more_addresses(20)
    machine.cut(addresses[7])
    what = project(tmp_path, machine)
    what.hosts = [{"name": f"n{number}", "address": address} for number, address in enumerate(addresses)]
    folder = "/srv/{{ host.name }}"
    what.write(
        {"name": "one", "type": "command", "with": {"argv": ["mkdir", folder], "creates": folder}},
        {"name": "two", "type": "file", "with": {"path": f"{folder}/two", "content": "{{ host.name }}\n"}},
        maxFailures=budget,
    )
    outcome = what.run()
    names = {f"n{number}" for number in range(20)} - {"n7"}
    assert outcome.of("one") == {"n7": "unreachable", **dict.fromkeys(names, "Success")}, outcome.text
    assert outcome.of("two") == {"n7": "Skipped", **dict.fromkeys(names, "Success")}
    assert {path.parent.name for path in (machine.root / "srv").glob("*/two")} == names
    assert outcome.code == (0 if budget else 1)
    assert "n7" in outcome.text


@pytest.mark.parametrize("how", ["restart", "kill -9"])
def test_an_sshd_that_is_restarted_between_two_steps_goes_unnoticed(pair: Pair, tmp_path: Path, how: str) -> None:
    machine = pair[0]
    what = project(tmp_path, machine)
    what.hosts = [*what.hosts, {"name": "here", "connector": "local"}]
    wait = f"touch {tmp_path}/waits; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    after = {"name": "after", "type": "file", "with": {"path": "/srv/after", "content": "here\n"}}
    what.write_tasks(
        {"name": "one", "runOn": machine.name, "steps": [MARK]},
        {"name": "two", "runOn": "here", "steps": [{"name": "wait", "type": "command", "with": {"shell": wait}}]},
        {"name": "three", "runOn": machine.name, "steps": [after]},
    )
    with what.running() as run:
        run.until((tmp_path / "waits").exists, "the first step is done")
        if how == "restart":
            machine.sh("systemctl restart ssh")
        else:
            machine.kill_sshd()
        machine.wait()
        (tmp_path / "go").touch()
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    assert (machine.root / "srv/after").exists()


def test_an_sshd_that_is_restarted_during_a_step_does_not_touch_it(pair: Pair, tmp_path: Path) -> None:
    machine = pair[0]
    what = project(tmp_path, machine)
    what.write(work(), MARK)
    with what.running() as run:
        run.until(lambda: begun(machine), "the host is at work")
        machine.sh("systemctl restart ssh")
        machine.wait()
        let_go(machine)
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    assert (lines(machine, "begun"), lines(machine, "done"), lines(machine, "mark")) == (1, 1, 1)


@pytest.mark.parametrize("how", ["kill -9 of sshd", "reboot"])
def test_a_step_that_its_host_has_not_survived_is_done_when_the_host_is_back(
    pair: Pair, tmp_path: Path, how: str
) -> None:
    machine = pair[0]
    what = project(tmp_path, machine)
    what.write(work(retry=patient()), MARK)
    with what.running() as run:
        run.until(lambda: begun(machine), "the host is at work")
        if how == "reboot":
            machine.reboot()
        else:
            machine.kill_sshd()
            # It does not end by itself with its connection.
            machine.sh("pkill -KILL -f 'unti[l] .* -e /srv/go' || :")
        let_go(machine)
        outcome = run.end()
    assert outcome.code == 0, outcome.text
    assert (lines(machine, "done"), lines(machine, "mark")) == (1, 1)


def test_a_lossy_network_only_takes_longer(pair: Pair, tmp_path: Path) -> None:
    machine = pair[0]
    machine.loss(10)
    what = project(tmp_path, machine, connectTimeout="60s")
    content = "".join(f"line {number}\n" for number in range(5000))
    what.write({"name": "big", "type": "file", "with": {"path": "/srv/big", "content": content}})
    outcome = what.run()
    assert outcome.code == 0, outcome.text
    assert (machine.root / "srv/big").read_text() == content


@pytest.mark.parametrize("how", ["file", "copy", "template", "line-in-file"])
def test_a_full_disk_fails_the_write_and_leaves_the_old_file_whole(pair: Pair, tmp_path: Path, how: str) -> None:
    machine = pair[0]
    machine.small_disk("/srv/small", 300)
    try:
        machine.sh("echo old >/srv/small/conf; chmod 640 /srv/small/conf")
        what = project(tmp_path, machine)
        text = "a line of some length, many times\n" * 20_000
        path = "/srv/small/conf"
        (what.folder / "files").mkdir()
        (what.folder / "templates").mkdir()
        (what.folder / "files" / "conf").write_text(text)
        (what.folder / "templates" / "conf.j2").write_text(text)
        with_: dict[str, Any] = {
            "file": {"path": path, "content": text[:400_000]},
            "copy": {"path": path, "src": "files/conf"},
            "template": {"path": path, "src": "conf.j2"},
            "line-in-file": {"path": path, "line": "x" * 400_000},
        }[how]
        what.write({"name": "write", "type": how, "with": with_})
        outcome = what.run()
        assert outcome.code == 1
        assert outcome.of("write") == {machine.name: "failed"}
        said = outcome.action("write", machine.name)
        assert "no space left" in f"{said['message']} {said['stderr']}".lower()
        assert machine.sh("cd /srv/small; ls -A; cat conf; stat -c %a conf") == "conf\nold\n640\n"
    finally:
        machine.sh("umount /srv/small")

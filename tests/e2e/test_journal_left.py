"""What a killed run was doing on SSH hosts runs on: who goes on with the run ends it before anything else there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.people import PASSWORD, missing, peopled_host
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)

# Writes down who it is, and which of those that came before it still live. Only the first one takes its time.
COUNTS = """
for pid in $(cat "$D/pids.$N" 2>/dev/null); do
  read -r line 2>/dev/null </proc/$pid/stat || continue
  case ${line##*) } in Z*|X*) ;; *) echo "$pid" >>"$D/beside.$N" ;; esac
done
"""
SLOW = f"""{COUNTS}
echo $$ >>"$D/pids.$N"
[ "$(wc -l <"$D/pids.$N")" -gt 1 ] || sleep 71
"""
STUBBORN = "trap '' HUP TERM"
Step = dict[str, Any]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "box") as host:
        yield host


@pytest.fixture
def peopled() -> Iterator[SshHost]:
    if missing():
        pytest.skip(missing())
    with peopled_host() as host:
        yield host


@pytest.fixture
def place(sites: Sites, tmp_path: Path) -> Iterator[Any]:
    """Makes a site whose hosts are SSH hosts; what is left on them at the end is ended."""
    with ExitStack() as stack:

        def make(host: SshHost, *tasks: list[Step], **options: Any) -> Site:
            site = sites("", HOME=str(tmp_path), SSH_AUTH_SOCK="", PASS=PASSWORD)
            # All users of the host can write there.
            site.host = host.prefix
            stack.callback(end_all, host)
            site.write(body(host, tasks, options))
            return site

        yield make


def body(host: SshHost, tasks: Sequence[list[Step]], options: dict[str, Any]) -> str:
    """A spec whose tasks run side by side on one host."""
    one = {
        "name": "n", "address": host.address, "port": host.port, "user": host.user, "perHostLimit": len(tasks),
        "privateKeyPath": str(host.key), "knownHosts": str(host.known_hosts), **options,
    }  # fmt: skip
    each = [{"name": f"t{number}", "needs": [], "steps": steps} for number, steps in enumerate(tasks, 1)]
    modules = json.dumps([{"name": "m", "tasks": each}])
    return f"inventory: {json.dumps({'hosts': [one]})}\nmodules: {modules}\n"


def command(name: str, script: str, **more: Any) -> Step:
    return {"name": name, "type": "command", "with": {"shell": script, "env": {"D": "FOLDER", "N": name}, **more}}


def slow(name: str = "slow", before: str = "", *, guarded: bool = True, **more: Any) -> Step:
    """A step that takes its time when it runs first; if it is guarded, the host shows whether it was done."""
    guard = {"creates": f"FOLDER/made.{name}"} if guarded else {}
    return command(name, f'{before}\n{SLOW}: >"$D/made.$N"', **guard, **more)


def pids(host: SshHost, name: str = "slow") -> list[str]:
    path = host.prefix / f"pids.{name}"
    return path.read_text().split() if path.exists() else []


def works(host: SshHost, *numbers: str) -> bool:
    """Whether all of them are still at work; who has got the number of one by now has not got its environment."""
    return all(f"D={host.prefix}".encode() in environment(number) for number in numbers)


def environment(pid: str) -> list[bytes]:
    """What a process was given; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def end_all(host: SshHost) -> None:
    """Each has a process group of its own."""
    for pid in [pid for file in host.prefix.glob("pids.*") for pid in file.read_text().split()]:
        if works(host, pid):
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(int(pid)), signal.SIGKILL)


def kill_at_work(site: Site, host: SshHost, *words: str, names: tuple[str, ...] = ("slow",)) -> list[str]:
    """Start a run, and kill it once its slow commands are at work; gives these."""
    process = site.start(*(words or ("kubexm-run", "spec.yaml", "--output", "quiet")))
    wait_until(lambda: process.poll() is not None or all(pids(host, name) for name in names))
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = [pid for name in names for pid in pids(host, name)]
    assert len(found) == len(names)
    return found


def again(site: Site, verb: str, *options: str, code: int | None = 0) -> str:
    return site.run("kubexm", "runs", verb, "last", "--output", "plain", *options, code=code)


def never_beside(host: SshHost) -> None:
    assert [path.name for path in host.prefix.glob("beside.*")] == []


WAYS: dict[str, dict[str, Any]] = {
    "shell": {},
    "input": {"stdin": "x"},
    "terminal": {"pty": True},
}


@pytest.mark.parametrize("before", ["", STUBBORN], ids=["willing", "stubborn"])
@pytest.mark.parametrize("way", WAYS)
def test_resume_ends_what_runs_on_before_it_looks_and_runs_it_again(
    box: SshHost, place: Any, way: str, before: str
) -> None:
    site = place(box, [slow(before=before, **WAYS[way])])
    [lost] = kill_at_work(site, box)
    if before or way != "terminal":
        assert works(box, lost), "the host does not end it by itself"
    again(site, "resume")
    never_beside(box)
    assert not works(box, lost)
    assert len(pids(box)) == 2
    assert (box.prefix / "made.slow").exists()
    assert site.status() == "Success"


@pytest.mark.parametrize(
    ("user", "become"),
    [
        ("trusted", {"user": "root"}),
        ("asked", {"user": "other", "password": "env:PASS"}),
        ("ttyonly", {"user": "other", "pty": True}),
    ],
    ids=["root", "other", "terminal"],
)
def test_resume_ends_what_runs_on_as_another_user(peopled: SshHost, place: Any, user: str, become: Any) -> None:
    site = place(peopled, [slow(before=STUBBORN)], user=user, become=become)
    [lost] = kill_at_work(site, peopled)
    assert works(peopled, lost)
    again(site, "resume")
    never_beside(peopled)
    assert not works(peopled, lost)
    assert site.status() == "Success"


@pytest.mark.parametrize("then", [True, False, "other"])
def test_what_a_step_runs_on_as_its_own_user_is_ended_as_that_one_whoever_comes_next(
    peopled: SshHost, place: Any, then: bool | str
) -> None:
    site = place(peopled, [slow(before=STUBBORN) | {"become": True}], user="trusted")
    [lost] = kill_at_work(site, peopled)
    assert works(peopled, lost)
    site.write(body(peopled, [[slow(before=STUBBORN) | {"become": then}]], {"user": "trusted"}))
    # What they write into belongs to root.
    for path in peopled.prefix.iterdir():
        path.chmod(0o666)
    again(site, "resume", "--accept-changes")
    never_beside(peopled)
    assert not works(peopled, lost)
    assert len(pids(peopled)) == 2
    assert site.status() == "Success"


@pytest.mark.parametrize(("before", "after"), [(None, True), (True, None), ("other", "root")])
def test_what_runs_on_is_found_also_if_the_host_is_worked_on_as_another_user_now(
    peopled: SshHost, place: Any, before: Any, after: Any
) -> None:
    step = slow(before=STUBBORN) | ({} if before == "other" else {"become": "root"})
    site = place(peopled, [step], user="trusted", become=before)
    [lost] = kill_at_work(site, peopled)
    assert works(peopled, lost)
    site.write(body(peopled, [[step]], {"user": "trusted", "become": after}))
    for path in peopled.prefix.iterdir():
        path.chmod(0o666)
    again(site, "resume", "--accept-changes", "--from", "m/t1/slow")
    never_beside(peopled)
    assert not works(peopled, lost)
    assert site.status() == "Success"


def test_all_of_several_commands_on_one_host_are_ended(box: SshHost, place: Any) -> None:
    names = ("a", "b", "c")
    site = place(box, *([slow(name)] for name in names))
    lost = kill_at_work(site, box, names=names)
    assert works(box, *lost)
    again(site, "resume")
    never_beside(box)
    assert not any(works(box, pid) for pid in lost)
    assert [len(pids(box, name)) for name in names] == [2, 2, 2]


def test_what_the_host_shows_nothing_of_is_ended_once_somebody_says_that_it_is_to_be_run_again(
    box: SshHost, place: Any
) -> None:
    site = place(box, [slow(guarded=False)])
    [lost] = kill_at_work(site, box)
    assert "--done NODE" in again(site, "resume", code=1)
    assert len(pids(box)) == 1
    again(site, "resume", "--from", "m/t1/slow")
    never_beside(box)
    assert not works(box, lost)
    assert len(pids(box)) == 2


def test_what_runs_on_is_ended_also_after_a_session_that_could_not_reach_the_host(box: SshHost, place: Any) -> None:
    site = place(box, [slow()])
    [lost] = kill_at_work(site, box)
    box.stop()
    assert "unreachable" in again(site, "resume", code=1)
    assert works(box, lost)
    box.start()
    again(site, "resume")
    never_beside(box)
    assert not works(box, lost)
    assert site.status() == "Success"


def test_what_runs_on_after_a_lost_connection_is_ended_by_who_resumes_the_run(box: SshHost, place: Any) -> None:
    site = place(box, [slow()])
    process = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    [lost] = wait_until(lambda: pids(box))
    box.drop_connections()
    ended(process, 1)
    assert works(box, lost)
    again(site, "resume")
    never_beside(box)
    assert not works(box, lost)


def test_another_run_on_the_same_host_is_left_alone(box: SshHost, place: Any) -> None:
    other = place(box, [slow("other")])
    goes_on = other.start("kubexm-run", "spec.yaml", "--output", "quiet")
    [busy] = wait_until(lambda: pids(box, "other"))
    site = place(box, [slow()])
    [lost] = kill_at_work(site, box)
    again(site, "resume")
    assert not works(box, lost)
    assert works(box, busy)
    assert goes_on.poll() is None
    # One that was killed itself belongs to whoever goes on with that run.
    goes_on.send_signal(signal.SIGKILL)
    goes_on.wait()
    again(site, "resume", "--from", "m/t1/slow")
    assert works(box, busy)
    again(other, "resume")
    never_beside(box)
    assert not works(box, busy)


def test_what_cannot_be_ended_is_named_and_nothing_else_is_begun(peopled: SshHost, place: Any) -> None:
    step = slow(before=STUBBORN)
    step["with"]["shell"] = f'sudo -n D="$D" N="$N" sh -c {shlex.quote(step["with"]["shell"])}'
    site = place(peopled, [step], user="trusted")
    [lost] = kill_at_work(site, peopled)
    for _ in range(2):
        said = again(site, "resume", code=1)
        assert "session of the run, which was killed, may still run there and cannot be ended (processes" in said
        assert f" {lost}" in said
        assert len(pids(peopled)) == 1
    assert works(peopled, lost)
    os.killpg(os.getpgid(int(lost)), signal.SIGKILL)
    again(site, "resume")
    never_beside(peopled)
    assert site.status() == "Success"


def test_rollback_ends_what_runs_on_before_it_undoes_anything(box: SshHost, place: Any) -> None:
    undo = {"shell": f'{COUNTS.replace("$N", "slow")}: >"$D/undone"'}
    site = place(box, [command("first", "true", undo=undo), slow()])
    [lost] = kill_at_work(site, box)
    again(site, "rollback", "--yes")
    never_beside(box)
    assert not works(box, lost)
    assert (box.prefix / "undone").exists()
    assert not (box.prefix / "made.slow").exists()
    assert site.status() == "RolledBack"


def test_undo_that_runs_on_is_ended_before_it_is_undone_again(box: SshHost, place: Any) -> None:
    site = place(box, [command("slow", ": done", undo={"shell": SLOW}, unless="false")])
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    [lost] = kill_at_work(site, box, "kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet")
    assert works(box, lost)
    again(site, "rollback", "--yes", "--again", "m/t1/slow")
    never_beside(box)
    assert not works(box, lost)
    assert len(pids(box)) == 2
    assert site.status() == "RolledBack"


def with_token(token: str) -> list[Path]:
    """What holds a text in the temporary folders of this machine."""
    found = []
    for path in Path("/tmp").glob("kx.*/*"):
        with suppress(OSError):
            if token.encode() in path.read_bytes():
                found.append(path)
    return found


@pytest.mark.parametrize("connector", ["ssh", "local"])
@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_whoever_goes_on_removes_the_script_that_a_killed_run_has_left(
    box: SshHost, place: Any, connector: str, verb: str
) -> None:
    token = f"secret-{uuid.uuid4()}"
    done = {"name": "done", "type": "file", "with": {"path": "FOLDER/done", "content": "x"}}
    body = f"{SLOW}: {{{{ secret('env:KX_TOKEN') }}}}\n"
    script = {"name": "slow", "type": "script", "with": {"content": body, "env": {"D": "FOLDER", "N": "slow"}}}
    site = place(box, [done, script], connector=connector)
    site.env["KX_TOKEN"] = token
    kill_at_work(site, box)
    assert with_token(token), "the test sees what is left"
    again(site, verb, *(("--from", "m/t1/slow") if verb == "resume" else ("--yes",)), code=None)
    assert not with_token(token)


@pytest.mark.parametrize("connector", ["ssh", "local"])
def test_whoever_goes_on_removes_the_content_that_a_killed_run_had_judged(
    box: SshHost, place: Any, connector: str
) -> None:
    token = f"secret-{uuid.uuid4()}"
    judge = ["env", "D=FOLDER", "N=slow", "sh", "-c", SLOW, "%s"]
    write = {"path": "FOLDER/written", "content": "{{ secret('env:KX_TOKEN') }}", "validate": judge}
    site = place(box, [{"name": "slow", "type": "file", "with": write}], connector=connector)
    site.env["KX_TOKEN"] = token
    kill_at_work(site, box)
    assert with_token(token), "the test sees what is left"
    again(site, "resume", code=0)
    assert not with_token(token)
    assert (box.prefix / "written").read_text() == token

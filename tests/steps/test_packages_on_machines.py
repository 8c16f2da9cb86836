"""Package managers that are busy, broken or without their index, and repositories with real signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.step import StepFailed
from kubexm_exec.testing import StepTest
from kubexm_steps.formats.openpgp import dearmor
from tests.faults.kit import wait_until
from tests.lab.machines import Machine
from tests.steps.server import serve
from tests.steps.test_openpgp import FINGERPRINT
from tests.steps.test_openpgp import KEY as OTHER_KEY

pytestmark = pytest.mark.xdist_group("machines-packages")

SETUP = (Path(__file__).parent / "machines" / "packages.sh").read_text("utf-8")
Make = Callable[..., StepTest]


@pytest.fixture
def host(machine: Machine) -> Iterator[Machine]:
    machine.sh(SETUP)
    try:
        yield machine
    finally:
        machine.sh("sh /var/lib/kx/clean.sh")


@pytest.fixture
def step(host: Machine, tmp_path: Path) -> Iterator[Make]:
    made: list[StepTest] = []

    def make(type_: str, *, user: str = "root", **with_: Any) -> StepTest:
        made.append(StepTest(tmp_path, type_, with_, host=host.host(user=user), timeout=60))
        return made[-1]

    yield make
    for world in made:
        world.close()


# package managers that are busy

BUSY = {
    "apt": """exec python3 -c '
import fcntl, os, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
open("/var/lib/kx/started", "w")
while os.path.exists("/var/lib/kx/wait"): time.sleep(0.05)'""",
    "dnf": "exec dnf -y install kx-slow",
    "zypper": "exec zypper -n install kx-slow",
}
PROGRAM = {"apt": "python3", "dnf": "dnf", "zypper": "zypper"}


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_a_busy_package_manager_is_waited_for_and_then_named(host: Machine, step: Make, manager: str) -> None:
    host.sh(
        {"apt": "apt-get update", "dnf": "dnf -q makecache", "zypper": "zypper -n refresh"}[manager]
        + " >/dev/null 2>&1"
    )
    host.sh(
        'touch /var/lib/kx/wait; rm -f /var/lib/kx/started; nohup sh -c "$1" >/var/lib/kx/busy 2>&1 &'
        "n=600; until [ -e /var/lib/kx/started ]; do sleep 0.05; n=$((n - 1)); [ $n -gt 0 ] || exit 1; done",
        BUSY[manager],
    )
    try:
        impatient = step("package", names="kx-tool", manager=manager, lockTimeout="500ms")
        with pytest.raises(StepFailed, match=rf"process \d+ \({PROGRAM[manager]}\) still has the lock after 0.5s"):
            impatient.run()
        assert "waiting up to 0.5s: " in impatient.output()
    finally:
        host.sh("rm -f /var/lib/kx/wait")
    patient = step("package", names="kx-tool", manager=manager, lockTimeout="50s")
    assert patient.run().changed is True


def test_an_interrupted_dpkg_is_completed_first(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null; mkdir -p /var/lib/dpkg/updates; echo 'Package: kx' >/var/lib/dpkg/updates/0001")
    assert step("package", names="kx-tool").run().changed is True
    assert host.sh("ls /var/lib/dpkg/updates; dpkg --audit") == ""


def test_what_came_along_with_an_interrupted_installation_is_undone_too(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null; touch /var/lib/kx/wait; rm -f /var/lib/kx/started")
    killed, resumed = step("package", names="kx-slow"), step("package", names="kx-slow")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(killed.run)
        try:
            wait_until((host.root / "var/lib/kx/started").exists, "the last package is at work", running.done)
        finally:
            killed.cancel.set()
            host.sh("rm -f /var/lib/kx/wait")
        with pytest.raises(CommandCancelled):
            running.result()
    assert host.sh("dpkg-query -W -f '${db:Status-Abbrev}' kx-lib") == "ii "
    resumed.undo = killed.undo
    assert resumed.run_again().changed is True
    assert resumed.undo_run() == ("undone", "")
    assert host.sh("dpkg-query -W -f '${db:Status-Abbrev}' 'kx-*' 2>/dev/null | grep -c i || :") == "0\n"


def test_an_interrupted_dpkg_that_cannot_be_completed_is_told_with_what_repairs_it(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null; mkdir -p /var/lib/dpkg/updates; echo nonsense >/var/lib/dpkg/updates/0001")
    try:
        with pytest.raises(StepFailed, match="an earlier run of dpkg was interrupted") as caught:
            step("package", names="kx-tool").run()
    finally:
        host.sh("rm -f /var/lib/dpkg/updates/0001")
    assert "dpkg --configure -a" in caught.value.hint


def test_a_user_who_may_not_install_is_told_so_and_may_still_look(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null; id kxu >/dev/null 2>&1 || useradd -m kxu; cp -rp /root/.ssh /home/kxu/; "
            "chown -R kxu /home/kxu/.ssh")  # fmt: skip
    try:
        world = step("package", user="kxu", names="kx-tool")
        assert world.forecast().message == "would install kx-tool 2.0-1"
        with pytest.raises(StepFailed, match="install kx-tool: only root may do this") as caught:
            world.run()
        assert "become" in caught.value.hint
    finally:
        world.close()
        host.sh("userdel -rf kxu 2>/dev/null")


# the index


def test_an_old_index_is_used_if_it_cannot_be_refreshed_and_will_do(
    host: Machine, step: Make, caplog: pytest.LogCaptureFixture
) -> None:
    host.sh("apt-get update >/dev/null; echo 'deb file:/srv/none ./' >>/etc/apt/sources.list; "
            "touch -d '-2 days' /var/lib/apt/lists")  # fmt: skip
    strict = step("package", names="kx-tool", update="always")
    with pytest.raises(StepFailed, match="does not have a Release file"):
        strict.run()
    lenient = step("package", names="kx-tool", update="1d")
    assert lenient.run().changed is True
    assert "the package index could not be refreshed" in caplog.text
    absent = step("package", names="kx-none", update="1d")
    with pytest.raises(StepFailed, match="does not have a Release file"):
        absent.run()


def test_an_old_index_is_refreshed_only_when_something_is_looked_up_in_it(host: Machine, step: Make) -> None:
    host.sh(
        "apt-get update >/dev/null; apt-get install -y kx-tool >/dev/null 2>&1; touch -d '-2 days' /var/lib/apt/lists"
    )
    age = "echo $(($(date +%s) - $(stat -c %Y /var/lib/apt/lists)))"
    assert step("package", names="kx-tool", update="1d").run().changed is False
    assert int(host.sh(age)) > 86400
    assert step("package", names="kx-tool", state="latest", update="1d").run().changed is False
    assert int(host.sh(age)) < 3600


# undo


def test_an_undo_takes_away_nothing_that_others_installed(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null")
    world = step("package", names="kx-lib")
    world.run()
    host.sh("apt-get install -y kx-app >/dev/null 2>&1")
    with pytest.raises(StepFailed, match="cannot remove kx-lib: kx-app would go with it"):
        world.rollback()
    assert host.sh("dpkg-query -W -f '${Package} ' kx-app kx-lib") == "kx-app kx-lib "


def test_an_undo_names_the_version_that_is_to_be_had_no_more(host: Machine, step: Make) -> None:
    host.sh("apt-get update >/dev/null; apt-get install -y kx-tool=1.0-1 >/dev/null 2>&1")
    world = step("package", names=["kx-tool", "kx-extra"], state="latest")
    world.run()
    host.sh(
        "mkdir /var/lib/kx/less; cp /var/lib/kx/apt/kx-tool_2* /var/lib/kx/less; cd /var/lib/kx/less;"
        "apt-ftparchive packages . >Packages;"
        "echo 'deb [trusted=yes] file:/var/lib/kx/less ./' >/etc/apt/sources.list; apt-get update >/dev/null"
    )
    try:
        with pytest.raises(StepFailed, match=r"cannot restore kx-tool 1\.0-1: no repository"):
            world.rollback()
    finally:
        host.sh("rm -rf /var/lib/kx/less")
    assert host.sh("dpkg-query -W -f '${db:Status-Abbrev}' kx-extra 2>/dev/null || echo gone").strip() in ("un", "gone")


# repositories

REPOSITORIES: dict[str, dict[str, Any]] = {
    "apt": {"url": "file:/var/lib/kx/apt", "suites": "./"},
    "dnf": {"url": "file:///var/lib/kx/rpm", "options": {"repo_gpgcheck": 1, "gpgcheck": 0}},
    "zypper": {"url": "file:///var/lib/kx/rpm"},
}
FILES = (
    "find /etc/apt/sources.list.d /etc/apt/keyrings /etc/yum.repos.d /etc/zypp/repos.d /etc/pki -name '*kx*' "
    "-exec sha256sum {} + 2>/dev/null | sort; rpm -qa gpg-pubkey"
)
MANAGERS = pytest.mark.parametrize("manager", REPOSITORIES)


@pytest.fixture
def bare(host: Machine) -> Machine:
    """No repository but those that the test adds."""
    host.sh("sh /var/lib/kx/clean.sh; echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros.kx")
    return host


def key_of(host: Machine) -> str:
    return host.sh("cat /var/lib/kx/key.asc")


@MANAGERS
def test_a_signed_repository_gives_packages_and_its_undo_leaves_nothing(
    bare: Machine, step: Make, manager: str
) -> None:
    before = bare.sh(FILES)
    world = step("repository", name="kx", manager=manager, key=key_of(bare), **REPOSITORIES[manager])
    assert world.forecast().message == "would write the repository kx"
    assert bare.sh(FILES) == before
    result = world.run()
    undo = world.undo
    again = world.forecast()
    assert (again.message, dict(again.outputs)) == ("repository kx is as it should be", dict(result.outputs))
    assert world.run().changed is False
    # The index was fetched: there is no need to do it again.
    assert step("package", names="kx-tool", manager=manager, update="never").run().changed is True
    world.undo = undo
    for _ in range(2):
        world.rollback()
        assert bare.sh(FILES) == before


@MANAGERS
def test_a_repository_that_another_key_signed_never_stays(bare: Machine, step: Make, manager: str) -> None:
    before = bare.sh(FILES)
    world = step("repository", name="kx", manager=manager, key=OTHER_KEY, **REPOSITORIES[manager])
    with pytest.raises(StepFailed, match=r"fetch the index of kx: .*(?:signed|signature)") as caught:
        world.run()
    assert "key" in caught.value.hint
    assert bare.sh(FILES) == before


@MANAGERS
def test_a_repository_that_is_not_there_leaves_the_one_that_was(bare: Machine, step: Make, manager: str) -> None:
    right = {"name": "kx", "manager": manager, "key": key_of(bare), **REPOSITORIES[manager]}
    step("repository", **right).run()
    before = bare.sh(FILES)
    with pytest.raises(StepFailed, match="fetch the index of kx: "):
        step("repository", **{**right, "url": "file:///srv/none"}).run()
    assert bare.sh(FILES) == before


@MANAGERS
def test_a_repository_goes_with_its_key_and_comes_back_with_it(bare: Machine, step: Make, manager: str) -> None:
    empty = bare.sh(FILES)
    step("repository", name="kx", manager=manager, key=key_of(bare), **REPOSITORIES[manager]).run()
    before = bare.sh(FILES)
    world = step("repository", name="kx", manager=manager, state="absent")
    assert len(world.forecast().diffs) == 2
    assert world.run().changed is True
    assert bare.sh(FILES) == empty
    undo = world.undo
    assert world.forecast().message == "repository kx does not exist"
    assert world.run().changed is False
    world.undo = undo
    for _ in range(2):
        world.rollback()
        assert bare.sh(FILES) == before


@MANAGERS
def test_a_trusted_repository_needs_no_key(bare: Machine, step: Make, manager: str) -> None:
    more = {"url": REPOSITORIES[manager]["url"], "suites": "./"}
    step("repository", name="kx", manager=manager, trusted=True, **more).run()
    assert step("package", names="kx-tool", manager=manager, update="never").run().changed is True


def test_the_refresh_of_one_repository_makes_the_whole_index_no_younger(bare: Machine, step: Make) -> None:
    bare.sh("echo 'deb [trusted=yes] file:/var/lib/kx/apt ./' >/etc/apt/sources.list; apt-get update >/dev/null 2>&1;"
            "touch -d '-2 days' /var/lib/apt/lists")  # fmt: skip
    step("repository", name="kx", key=key_of(bare), **REPOSITORIES["apt"]).run()
    assert int(bare.sh("echo $(($(date +%s) - $(stat -c %Y /var/lib/apt/lists)))")) > 86400


def test_a_key_with_another_fingerprint_or_digest_is_refused_before_anything_is_written(
    bare: Machine, step: Make
) -> None:
    before = bare.sh(FILES)
    common = {"name": "kx", "key": key_of(bare), **REPOSITORIES["apt"]}
    with pytest.raises(StepFailed, match=r"has the fingerprint [0-9A-F]{40}, which is not"):
        step("repository", **common, fingerprint="0" * 40).run()
    with pytest.raises(StepFailed, match=r"has the sha256 [0-9a-f]{64}, not 0000"):
        step("repository", **common, keySha256="0" * 64).run()
    with pytest.raises(StepFailed, match="the key of kx cannot be used: it contains no public key block"):
        step("repository", **{**common, "key": "-----BEGIN CERTIFICATE-----"}).forecast()
    assert bare.sh(FILES) == before


def test_a_key_is_fetched_once_and_written_in_the_form_that_the_package_manager_wants(
    bare: Machine, step: Make, tmp_path: Path
) -> None:
    (tmp_path / "key.gpg").write_bytes(dearmor(OTHER_KEY.encode()))
    common = {"name": "kx", "url": "file:/srv/none", "suites": "./", "refresh": False, "fingerprint": FINGERPRINT}
    with serve() as site:
        site.pages["/key.asc"] = (200, {}, OTHER_KEY.encode())
        fetched = step("repository", **common, keyUrl=site.url("/key.asc"))
        assert fetched.run().outputs["fingerprints"] == [FINGERPRINT]
        assert fetched.forecast().message == "repository kx is as it should be"
        assert len(site.asked) == 1
        with pytest.raises(StepFailed, match=r"fetch the key of kx from .*: the server answered 404"):
            step("repository", **common, keyUrl=site.url("/none")).forecast()
    # The same key from another place, in another form: nothing to do for apt, text for rpm.
    assert step("repository", **common, keyFile="key.gpg").run().changed is False
    step("repository", **{**common, "manager": "dnf"}, keyFile="key.gpg").run()
    assert bare.sh("cat /etc/pki/rpm-gpg/RPM-GPG-KEY-kx") == OTHER_KEY


def test_the_suite_is_the_hosts_own_release_unless_it_is_named(bare: Machine, step: Make) -> None:
    step("repository", name="kx", url="https://packages.example.com/debian", refresh=False, enabled=False).run()
    assert bare.sh("grep -v '^#' /etc/apt/sources.list.d/kx.sources").splitlines() == [
        "Enabled: no",
        "Types: deb",
        "URIs: https://packages.example.com/debian",
        "Suites: bookworm",
        "Components: main",
    ]

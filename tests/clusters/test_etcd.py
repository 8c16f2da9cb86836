"""etcd of our own on full hosts: made once, grown and shrunk while somebody writes, restored from a snapshot."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.service.snapshots import read_snapshot
from kubexm_spec.clusters.build import FLOWS, Asked, pipeline_text
from tests.clusters.kit import checked
from tests.clusters.real import changed
from tests.e2e.program import environment, run, start
from tests.lab import programs
from tests.lab.machines import Machine

NEEDED = ["etcd", "etcdctl", "etcdutl"]
pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED)),
]
Hosts = Mapping[str, tuple[Machine, str]]
_LONG = 300.0
_CTL = """
etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/trusted-ca.crt \
  --cert=/etc/etcd/pki/healthcheck-client.crt --key=/etc/etcd/pki/healthcheck-client.key "$@"
"""
_WRITER = """
# A key a time; what etcd has acknowledged is written down.
n=0
while test -e /run/write; do
  n=$((n + 1))
  if ctl put "acknowledged/$n" "$n" >/dev/null 2>&1; then echo "$n" >>/root/acknowledged; fi
  sleep 0.1
done
"""


def archive(path: Path) -> None:
    """The programs, as etcd's own archive has them."""
    with tarfile.open(path, "w") as made:
        for name in NEEDED:
            source = programs.find(name)
            assert source is not None
            content = source.read_bytes()
            info = tarfile.TarInfo(f"etcd-lab/{name}")
            info.size, info.mode = len(content), 0o755
            made.addfile(info, io.BytesIO(content))


def pipeline(
    folder: Path, hosts: Hosts, flow: str = "create", asked: Asked | None = None, etcd: str = "backup: {keep: 2}"
) -> None:
    """What `kubexm cluster` would do about etcd alone, with the programs of the lab."""
    key = next(iter(hosts.values()))[0].key
    text = (
        "apiVersion: kubexm.io/v1\nkind: Cluster\nmetadata: {name: lab}\n"
        "kubernetes: {version: 1.36.4, certificates: {algorithm: ECDSA-P256}}\n"
        f"defaults: {{user: root, privateKeyPath: {key}, knownHosts: {folder}/known_hosts}}\n"
        "controlPlaneEndpoint: {address: 10.0.0.100}\nloadBalancer: {type: external}\n"
        f"etcd: {{{etcd}}}\nhosts:\n"
    )
    for name, (machine, roles) in hosts.items():
        text += f"  - {{name: {name}, address: {machine.address}, roles: [{roles}]}}\n"
    built = FLOWS[flow](checked(folder, text), asked or Asked())
    built["modules"] = [module for module in built["modules"] if module["name"].startswith("etcd")]
    built["resources"] = {"etcd": {"path": "etcd.tar"}}
    (folder / "pipeline.yaml").write_text(pipeline_text(built, "cluster.yaml"))


def surroundings(folder: Path) -> dict[str, str]:
    return environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")


def kubexm(folder: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """A command to its end, by default that of the pipeline: its result, and what it said."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command = words or ("run", "pipeline.yaml")
    options = [] if command[0] == "runs" else ["--result", result.name]
    env = surroundings(folder)
    done = run("kubexm", *command, "--output", "plain", *options, cwd=folder, env=env, timeout=_LONG)
    assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    return {**found, "said": done.stdout + done.stderr}


@contextlib.contextmanager
def killed(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed with SIGKILL at the end of the block."""
    process = start("kubexm", *words, "--output", "plain", cwd=folder, env=surroundings(folder))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(machine: Machine, script: str, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a script succeeds on a machine, as long as a process runs."""
    end = time.monotonic() + _LONG
    while machine.sh(f"({script}) >/dev/null 2>&1 && echo yes || echo no").strip() != "yes":
        assert time.monotonic() < end, f"{machine.name}: {script}"
        assert process is None or process.poll() is None, f"it has ended by itself:\n{process.communicate()}"
        time.sleep(0.1)


def hold(machine: Machine, when: str) -> None:
    """Let etcd wait there as long as there is /run/hold."""
    line = f'{when}=/bin/sh -c "while test -e /run/hold; do sleep 0.1; done"'
    folder = machine.root / "etc/systemd/system/etcd.service.d"
    folder.mkdir(parents=True)
    (folder / "hold.conf").write_text(f"[Service]\n{line}\n")
    machine.sh("touch /run/hold")


def members(machine: Machine) -> dict[str, bool]:
    """The voters by name, and which of them leads."""
    listed = json.loads(machine.sh(_CTL, "member", "list", "-w", "json"))["members"]
    told = json.loads(machine.sh(_CTL, "endpoint", "status", "--cluster", "-w", "json", check=False))
    leaders = {each["Status"]["leader"] for each in told}
    assert len(leaders) == 1, told
    assert not any(each.get("isLearner") for each in listed), listed
    return {each["name"]: each["ID"] in leaders for each in listed}


@contextlib.contextmanager
def writing(machine: Machine, *others: Machine) -> Iterator[None]:
    """Somebody writes to these members; at the end, all that was acknowledged is there."""
    urls = ",".join(f"https://{each.address}:2379" for each in (machine, *others))
    ctl = _CTL.strip().replace("https://127.0.0.1:2379", urls)
    machine.sh("touch /run/write && cat >/root/writer.sh <<'END'\nctl() { " + ctl + "; }\n" + _WRITER + "END")
    machine.sh("systemd-run --quiet --unit=writer sh /root/writer.sh")
    yield
    before = int(machine.sh("wc -l </root/acknowledged"))
    until(machine, f"test $(wc -l </root/acknowledged) -gt {before}")  # it still writes
    machine.sh("rm /run/write && while systemctl is-active --quiet writer; do sleep 0.1; done")
    kept = machine.sh(_CTL, "get", "acknowledged/", "--prefix", "--keys-only").split()
    written = machine.sh("cat /root/acknowledged").split()
    assert {f"acknowledged/{number}" for number in written} <= set(kept)


def test_etcd_with_tls_is_made_once(machines: Callable[[int], list[Machine]], tmp_path: Path) -> None:
    first, second, third = machines(3)
    archive(tmp_path / "etcd.tar")
    hosts = {"e1": (first, "controlPlane, etcd"), "e2": (second, "etcd"), "e3": (third, "etcd")}
    pipeline(tmp_path, hosts)
    assert changed(kubexm(tmp_path))
    assert changed(kubexm(tmp_path)) == [], "the second run changes nothing"

    members = json.loads(first.sh(_CTL, "endpoint", "status", "--cluster", "-w", "json"))
    assert len(members) == 3
    assert len({each["Status"]["leader"] for each in members}) == 1
    second.sh(_CTL, "put", "greeting", "hello")
    assert third.sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"
    # The API server's certificate is a client's; without one, nobody is let in.
    client = "--cert=/etc/kubernetes/pki/apiserver-etcd-client.crt --key=/etc/kubernetes/pki/apiserver-etcd-client.key"
    ask = f"etcdctl --endpoints=https://{second.address}:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt"
    assert first.sh(f"{ask} {client} get greeting --print-value-only").strip() == "hello"
    assert first.sh(f"{ask} --command-timeout=2s get greeting >/dev/null 2>&1 || echo refused").strip() == "refused"
    # Each of them may be lost, so that each has the CA; nobody else reads its key.
    for machine in (first, second, third):
        assert machine.sh("stat -c %a /etc/etcd/pki/*.key").split() == ["600"] * 4
    assert len({machine.sh("sha256sum </etc/etcd/pki/ca.key") for machine in (first, second, third)}) == 1
    assert second.sh("stat -c '%a %U' /var/lib/etcd").split() == ["700", "etcd"]
    assert "unrecognized environment" not in first.sh("journalctl -u etcd --no-pager")

    # A member that is gone and comes back finds its data, and its peers.
    second.sh("systemctl kill -s KILL etcd")
    second.sh("until systemctl is-active --quiet etcd; do systemctl reset-failed etcd; systemctl start etcd; done")
    assert second.sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"
    assert changed(kubexm(tmp_path)) == []

    # All data is gone: nobody begins an empty etcd under a cluster that lives.
    for machine in (first, second, third):
        machine.sh("systemctl stop etcd && mv /var/lib/etcd/member /var/lib/etcd/elsewhere")
    refused = kubexm(tmp_path, code=1)
    assert "no host of role etcd has its data" in refused["said"]
    assert changed(refused) == []
    for machine in (first, second, third):
        machine.sh("mv /var/lib/etcd/elsewhere /var/lib/etcd/member")
    # Members that were stopped are started, and find each other.
    assert changed(kubexm(tmp_path)) == [f"etcd/wake/begin on {name}" for name in hosts]
    assert third.sh(_CTL, "get", "greeting", "--print-value-only").strip() == "hello"


def test_etcd_grows_and_shrinks_by_its_document_and_loses_no_acknowledged_write(
    machines: Callable[[int], list[Machine]], tmp_path: Path
) -> None:
    made = {f"e{number}": machine for number, machine in enumerate(machines(5), 1)}
    hosts = {name: (machine, "controlPlane, etcd" if name == "e2" else "etcd") for name, machine in made.items()}
    archive(tmp_path / "etcd.tar")
    pipeline(tmp_path, {name: hosts[name] for name in ("e1", "e2", "e3")})
    kubexm(tmp_path)
    with writing(made["e2"], made["e3"]):
        # From three to five. The first new member cannot start before kubexm is killed: it is a learner by then.
        pipeline(tmp_path, hosts)
        hold(made["e4"], "ExecStartPre")
        with killed(tmp_path, "run", "pipeline.yaml") as process:
            until(made["e4"], "systemctl is-active etcd | grep -qx activating", process)
        made["e4"].sh("rm /run/hold")
        kubexm(tmp_path)
        assert set(members(made["e2"])) == {"e1", "e2", "e3", "e4", "e5"}
        states = [
            each.sh("sed -n 's/^ETCD_INITIAL_CLUSTER_STATE=//p' /etc/etcd/*.env").strip() for each in made.values()
        ]
        assert states == ["new", "new", "new", "existing", "existing"]
        assert changed(kubexm(tmp_path)) == []

        # Back to three: the leader goes, which also made the CA or not, and one whose plug is pulled.
        until(made["e2"], "ls /root/acknowledged")
        leader = next(name for name, leads in members(made["e2"]).items() if leads)
        dead = "e5" if leader != "e5" else "e4"
        if leader == "e2":  # it is needed, to write
            heir = json.loads(made["e2"].sh(_CTL, "member", "list", "-w", "json"))["members"]
            made["e2"].sh(_CTL, "move-leader", next(f"{each['ID']:x}" for each in heir if each["name"] == "e1"))
            leader = "e1"
        made[dead].stop()
        pipeline(tmp_path, {name: host for name, host in hosts.items() if name not in (leader, dead)})
        shrunk = kubexm(tmp_path)
        assert sum(" leave[" in line or "/leave[" in line for line in changed(shrunk)) == 2
        assert set(members(made["e2"])) == {"e1", "e2", "e3", "e4", "e5"} - {leader, dead}
        assert changed(kubexm(tmp_path)) == []


def test_etcd_comes_back_from_a_snapshot_after_all_its_data_is_gone(
    machines: Callable[[int], list[Machine]], tmp_path: Path
) -> None:
    made = machines(3)
    first, second, third = made
    archive(tmp_path / "etcd.tar")
    hosts = {"e1": (first, "controlPlane, etcd"), "e2": (second, "etcd"), "e3": (third, "etcd")}
    pipeline(tmp_path, hosts, etcd="backup: {keep: 2}, walDir: /var/lib/etcd-log")
    kubexm(tmp_path)
    first.sh(_CTL, "put", "greeting", "hello")
    revision = json.loads(first.sh(_CTL, "get", "greeting", "-w", "json"))["header"]["revision"]

    # One member that lives is enough for a snapshot; of two, the follower is asked.
    third.stop()
    taken = kubexm(tmp_path, "cluster", "backup", "-f", "cluster.yaml", "-o", "copies")
    (copy,) = (tmp_path / "copies").rglob("*.db")
    assert oct(copy.stat().st_mode & 0o777) == "0o600"
    told = taken["nodeResults"]["etcd-snapshot/take/snapshot"]["hostResults"]["e1"]["outputs"]
    assert told["sha256"] in taken["said"]
    assert f"revision {told['revision']}," in taken["said"]
    assert (told["revision"], told["size"]) == (revision, copy.stat().st_size)
    asked = json.loads(told["stdout"])["endpoint"]
    leads = {
        each["Endpoint"]: each["Status"]["leader"] == each["Status"]["header"]["member_id"] for each in status(first)
    }
    assert leads[asked] is False
    third.start()
    third.wait()

    # By the timer: old ones go, and one that fails is a failed unit.
    for _ in range(3):
        second.sh("systemctl start kubexm-etcd-backup")
        second.sh("while ls /var/backups/etcd/timer-$(date -u +%Y%m%dT%H%M%SZ).db 2>/dev/null; do sleep 0.1; done")
    assert second.sh("ls /var/backups/etcd/*.db | wc -l; systemctl is-enabled kubexm-etcd-backup.timer").split() == [
        "2",
        "enabled",
    ]
    second.sh("systemctl stop etcd")
    second.sh("systemctl start kubexm-etcd-backup", check=False)
    assert second.sh("systemctl is-failed kubexm-etcd-backup; ls /var/backups/etcd/*.db | wc -l").split() == [
        "failed",
        "2",
    ]
    second.sh("systemctl reset-failed && systemctl start etcd")

    # What cannot be restored is refused before anything is changed.
    broken = tmp_path / "broken.db"
    broken.write_bytes(copy.read_bytes()[:-40] + b"x" + copy.read_bytes()[-39:])
    restore = ("cluster", "restore", "-f", "cluster.yaml", "--yes", "--snapshot")
    assert "digest of the snapshot broken.db is wrong" in kubexm(tmp_path, *restore, "broken.db", code=2)["said"]
    third.sh("systemctl stop ssh.socket ssh.service")
    refused = kubexm(tmp_path, *restore, str(copy), code=1)
    assert changed(refused) == []
    third.sh("systemctl start ssh")

    # All data is destroyed, and kubexm is killed while it restores: a member that does not stop holds it.
    first.sh(_CTL, "put", "later", "lost")
    first.sh("systemctl stop etcd && rm -rf /var/lib/etcd /var/lib/etcd-log")
    second.sh("systemctl stop etcd && rm -rf /var/lib/etcd/member")
    hold(third, "ExecStop")
    third.sh("systemctl daemon-reload")
    with killed(tmp_path, *restore, str(copy)) as process:
        until(third, "systemctl is-active etcd | grep -qx deactivating", process)
    third.sh("rm /run/hold")
    kubexm(tmp_path, "runs", "resume", "last")
    for machine in made:
        assert machine.sh(_CTL, "get", "", "--prefix", "--print-value-only").split() == ["hello"]
    found = json.loads(first.sh(_CTL, "get", "greeting", "-w", "json"))["header"]
    assert found["revision"] > revision + 1_000_000_000 - 1
    assert set(members(second)) == {"e1", "e2", "e3"}
    assert third.sh("ls /var/lib/etcd | sed 's/before-.*/before/'").split() == ["member", "member.before"]
    assert third.sh("ls /var/lib/etcd-log | sed 's/before-.*/before/'").split() == ["wal", "wal.before"]
    assert changed(kubexm(tmp_path)) == []


_STANDIN = """
cat >/etc/systemd/system/pod-etcd.service <<'END'
[Service]
EnvironmentFile=/etc/etcd/etcd.env
EnvironmentFile=/etc/etcd/initial.env
ExecStart=/usr/local/bin/etcd
END
cat >/etc/systemd/system/pod-kube-apiserver.service <<'END'
[Service]
ExecStart=/usr/local/bin/kube-apiserver infinity
END
cat >/root/kubelet.sh <<'END'
while :; do
  for each in etcd kube-apiserver; do
    if test -e /etc/kubernetes/manifests/$each.yaml; then systemctl start pod-$each; else systemctl stop pod-$each; fi
  done
  sleep 0.2
done
END
systemctl disable --now etcd && rm -r /etc/systemd/system/etcd.service && systemctl daemon-reload
cp /bin/sleep /usr/local/bin/kube-apiserver && ln -s /bin/true /usr/local/bin/kubectl
mkdir -p /etc/kubernetes/manifests /etc/kubernetes/pki/etcd
touch /etc/kubernetes/manifests/etcd.yaml /etc/kubernetes/manifests/kube-apiserver.yaml
cp /etc/etcd/pki/trusted-ca.crt /etc/kubernetes/pki/etcd/ca.crt
cp /etc/etcd/pki/healthcheck-client.* /etc/kubernetes/pki/etcd/
chown -R root:root /var/lib/etcd /etc/etcd
systemd-run --quiet --unit=kubelet sh /root/kubelet.sh
"""


@pytest.mark.kubernetes
def test_etcd_of_static_pods_comes_back_from_a_snapshot_with_a_stand_in_for_the_kubelet(
    machines: Callable[[int], list[Machine]], tmp_path: Path
) -> None:
    first, second = made = machines(2)
    archive(tmp_path / "etcd.tar")
    pipeline(tmp_path, {"e1": (first, "controlPlane, etcd"), "e2": (second, "etcd")})
    kubexm(tmp_path)
    stacked = {"e1": (first, "controlPlane"), "e2": (second, "controlPlane")}
    for machine in made:
        machine.sh(_STANDIN)
    until(first, _CTL.replace('"$@"', "endpoint health"))
    first.sh(_CTL, "put", "greeting", "hello")

    pipeline(tmp_path, stacked, "backup", Asked(fetch_to=str(tmp_path / "copies")))
    kubexm(tmp_path)
    (copy,) = (tmp_path / "copies").rglob("*.db")
    first.sh(_CTL, "put", "later", "lost")
    second.sh("rm -rf /var/lib/etcd/member")
    found = read_snapshot(str(copy), str(tmp_path))
    pipeline(tmp_path, stacked, "restore", Asked(snapshot=found.path, sha256=found.sha256))
    kubexm(tmp_path)
    for machine in made:
        assert machine.sh(_CTL, "get", "", "--prefix", "--print-value-only").split() == ["hello"]
        assert machine.sh(
            "ls /etc/kubernetes/manifests /etc/kubernetes/kubexm; pgrep -x kube-apiserver | wc -l"
        ).split() == [
            "/etc/kubernetes/kubexm:",
            "/etc/kubernetes/manifests:",
            "etcd.yaml",
            "kube-apiserver.yaml",
            "1",
        ]
    assert "member.before-" in first.sh("ls /var/lib/etcd")


def status(machine: Machine) -> list[dict[str, Any]]:
    """What the members that answer say about themselves."""
    told: list[dict[str, Any]] = json.loads(
        machine.sh(_CTL, "endpoint", "status", "--cluster", "-w", "json", check=False)
    )
    return told

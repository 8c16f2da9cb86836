"""The upgrade from its first check to its last uncordon on full hosts, with stand-ins for the programs of Kubernetes.

The real programs are asked in test_real_upgrade.py; here every refusal, failure and kill can be had in seconds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import shutil
import signal
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.real import changed
from tests.e2e.program import environment, run, start
from tests.lab import machines
from tests.lab.machines import Machine, running

pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(machines.missing()), reason=machines.missing()),
]
_LONG = 300.0
OLD, NEW = "1.35.8", "1.36.4"
NAMES = ("cp1", "worker1", "worker2")
PROGRAMS = {"containerd": "2.3.4", "runc": "1.4.3", "cniPlugins": "1.9.1", "crictl": "1.36.0"}
PAUSE = {OLD: "registry.k8s.io/pause:3.10.1", NEW: "registry.k8s.io/pause:3.10.2"}


class Host(Machine):
    """A host on which stand-ins are the programs of Kubernetes."""

    def make(self) -> None:
        super().make()
        (self.root / "etc/hostname").write_text(f"{NAMES[self._number - 1]}\n")
        self.shared.mkdir(exist_ok=True)

    @property
    def shared(self) -> Path:
        """The folder that all of them have."""
        return self._ground.folder / "shared"

    @property
    def gateway(self) -> str:
        """The address of this computer on its network."""
        return self._ground.gateway

    def _options(self) -> list[str]:
        return [f"--bind={self.shared}:/shared"]


def program(name: str, version: str) -> bytes:
    return f'#!/bin/sh\nexec /shared/standin.py {name} {version} "$@"\n'.encode()


def archive(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


class Cluster:
    """A cluster of one control plane and two workers, of the old version."""

    def __init__(self, folder: Path, hosts: list[Host], url: str, files: Path) -> None:
        self.folder, self.url, self.files = folder, url, files
        self.hosts = dict(zip(NAMES, hosts, strict=True))
        self.shared = hosts[0].shared
        self.versions = {"containerd": PROGRAMS["containerd"]}
        self.document: dict[str, Any] = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "lab"},
            "versions": "versions.yaml",
            "defaults": {
                "user": "root",
                "privateKeyPath": str(hosts[0].key),
                "knownHosts": str(folder / "known_hosts"),
            },
            "hosts": [
                {"name": name, "address": host.address, "roles": ["controlPlane" if name == "cp1" else "worker"]}
                for name, host in self.hosts.items()
            ],
            "kubernetes": {"version": NEW},
            "containerRuntime": {
                "version": PROGRAMS["containerd"],
                "runcVersion": PROGRAMS["runc"],
                "cniPluginsVersion": PROGRAMS["cniPlugins"],
                "crictlVersion": PROGRAMS["crictl"],
            },
            "network": {"plugin": "none"},
        }
        self._env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")

    def begin(self, **nodes: dict[str, Any]) -> None:
        """The cluster as it is before an upgrade, with what is special about some nodes."""
        shutil.copy(Path(__file__).with_name("standin.py"), self.shared / "standin.py")
        (self.shared / "standin.py").chmod(0o755)
        for each in [*self.shared.glob("fault-*"), self.shared / "log"]:
            each.unlink(missing_ok=True)
        (self.shared / "log").touch()
        usual = {"kubelet": f"v{OLD}", "ready": "True", "cordoned": False, "annotations": {}, "blocked": False}
        state = {name: {**usual, "images": [], "pods": [f"web-{name}"], **nodes.get(name, {})} for name in NAMES}
        self.write({"nodes": state})
        self.workloads(web=2, broken=0)
        for name, host in self.hosts.items():
            host.sh(
                """
rm -rf /etc/kubernetes /var/backups/etcd
mkdir -p /etc/kubernetes/manifests /etc/kubernetes/kubexm/patches /var/lib/etcd
mkdir -p /etc/containerd /opt/cni/bin /var/lib/containerd /usr/local/sbin
echo "sandbox = \\"$2\\"" >/etc/containerd/config.toml
[ "$1" != cp1 ] || echo "    image: registry.k8s.io/kube-apiserver:v$3" >/etc/kubernetes/manifests/kube-apiserver.yaml
""",
                name, PAUSE[OLD], OLD,
            )  # fmt: skip
            for tool in ("kubeadm", "kubelet", "kubectl"):
                self.put(host, f"usr/local/bin/{tool}", program(tool, OLD))
            for tool, place in {
                "containerd": "usr/local/bin/containerd",
                "runc": "usr/local/sbin/runc",
                "crictl": "usr/local/bin/crictl",
                "loopback": "opt/cni/bin/loopback",
            }.items():
                self.put(host, place, program(tool, PROGRAMS.get(tool, PROGRAMS["cniPlugins"])))
            for unit in ("kubelet", "containerd"):
                text = f"[Service]\nExecStart=/usr/local/bin/{unit}\nKillSignal=SIGKILL\n"
                self.put(host, f"etc/systemd/system/{unit}.service", text.encode())
            host.sh("systemctl daemon-reload && systemctl restart kubelet containerd")
        self.until(
            lambda: len([line for line in self.log() if line.startswith(("kubelet ", "containerd "))]) == 2 * len(NAMES)
        )
        (self.shared / "log").write_text("")

    def put(self, host: Host, path: str, content: bytes) -> None:
        place = host.root / path
        place.unlink(missing_ok=True)
        place.write_bytes(content)
        place.chmod(0o755)

    def fault(self, what: str, kind: str = "fail") -> None:
        (self.shared / f"fault-{what.replace(' ', '-')}").write_text(kind)

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.shared / "state.json").read_text())
        return found

    def write(self, state: dict[str, Any]) -> None:
        (self.shared / "state.json").write_text(json.dumps(state))

    def workloads(self, **ready: int) -> None:
        """How many of their two pods are ready."""
        scratch = self.shared / "workloads.new"
        scratch.write_text(json.dumps(ready))
        scratch.rename(self.shared / "workloads.json")

    def log(self) -> list[str]:
        return (self.shared / "log").read_text().splitlines()

    def until(self, condition: Any) -> None:
        end = time.monotonic() + _LONG
        while not condition():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def serve(self) -> None:
        """What the document asks for, as its projects would have it."""
        sums: dict[str, dict[str, dict[str, str]]] = {}

        def add(name: str, version: str, content: bytes) -> None:
            place = self.files / name / f"{version}.tar.gz"
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
            sums.setdefault(name, {})[version] = {"amd64": hashlib.sha256(content).hexdigest()}

        version = self.document["kubernetes"]["version"]
        for name in ("kubeadm", "kubelet", "kubectl"):
            add(name, version, program(name, version))
        runtime = self.versions["containerd"]
        add("containerd", runtime, archive({"bin/containerd": program("containerd", runtime)}))
        add("runc", PROGRAMS["runc"], program("runc", PROGRAMS["runc"]))
        plugins = PROGRAMS["cniPlugins"]
        add("cniPlugins", plugins, archive({"loopback": program("loopback", plugins)}))
        add("crictl", PROGRAMS["crictl"], archive({"crictl": program("crictl", PROGRAMS["crictl"])}))
        data = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Versions",
            "metadata": {"name": "standin"},
            "kubernetes": {
                version.rpartition(".")[0]: {"patches": [version], "pause": PAUSE.get(version, "x").rpartition(":")[2]}
            },
            "artifacts": {
                name: {"url": f"{self.url}/{name}/{{version}}.tar.gz", "sha256": each} for name, each in sums.items()
            },
        }
        (self.folder / "versions.yaml").write_text(json.dumps(data))
        (self.folder / "cluster.yaml").write_text(json.dumps(self.document, indent=1))

    def words(self, *options: str) -> list[str]:
        self.serve()
        return ["cluster", "upgrade", "-f", "cluster.yaml", "--output", "plain", "--result", "result.json", *options]

    def upgrade(self, *options: str, code: int = 0) -> dict[str, Any]:
        said = self.kubexm(*self.words(*options), code=code)
        return {**json.loads((self.folder / "result.json").read_text()), "said": said}

    def resume(self, code: int = 0) -> str:
        return self.kubexm("runs", "resume", "last", "--output", "plain", code=code)

    def kubexm(self, *words: str, code: int) -> str:
        done = run("kubexm", *words, cwd=self.folder, env=self._env, timeout=_LONG)
        assert done.returncode == code, f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout + done.stderr

    def killed_at(self, what: str) -> None:
        """Begin an upgrade, and kill it in the middle of something."""
        self.fault(what, "hang")
        begun = start("kubexm", *self.words(), cwd=self.folder, env=self._env)
        try:
            self.until(lambda: begun.poll() is not None or f"fault {what}" in self.log())
            assert begun.poll() is None, begun.communicate()
        finally:
            begun.send_signal(signal.SIGKILL)
            begun.communicate()

    def is_upgraded(self) -> None:
        nodes = self.read()["nodes"]
        assert {name: node["kubelet"] for name, node in nodes.items()} == dict.fromkeys(NAMES, f"v{NEW}")
        self.is_free()
        for host in self.hosts.values():
            assert host.sh("ls /etc/kubernetes/kubexm/upgrading 2>/dev/null || :") == ""

    def is_free(self) -> None:
        """No node is cordoned, or marked."""
        nodes = self.read()["nodes"]
        assert {name: (node["cordoned"], node["annotations"]) for name, node in nodes.items()} == dict.fromkeys(
            NAMES, (False, {})
        )


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def standing_in(folder: Path) -> Iterator[Cluster]:
    files = folder / "files"
    files.mkdir()
    handler = functools.partial(_Quiet, directory=str(files))
    with running(Host, len(NAMES)) as hosts, http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Cluster(folder, hosts, f"http://127.0.0.1:{server.server_port}", files)
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standing_in(tmp_path_factory.mktemp("standin")) as made:
        yield made


def steps(log: list[str]) -> list[str]:
    """What was done, without looking and without the images."""
    return [line for line in log if not line.startswith(("pull ", "workloads", "fault "))]


def test_with_stand_ins_nodes_follow_one_another_and_a_second_run_changes_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.begin()
    forecast = cluster.upgrade("--executor", "check", code=0)
    assert cluster.log() == []
    assert "upgrade/hostHooks/pre/drain" in forecast["said"]
    cluster.upgrade()
    cluster.is_upgraded()
    log = cluster.log()
    pulls = [number for number, line in enumerate(log) if line.startswith("pull ")]
    assert max(pulls) < log.index("kubeadm 1.36.4 upgrade plan on cp1")
    assert f"pull registry.k8s.io/kube-apiserver:v{NEW} on cp1" in log
    assert f"pull registry.k8s.io/kube-proxy:v{NEW} on worker2" in log

    def window(name: str) -> list[str]:
        node = [] if name == "cp1" else [f"kubeadm {NEW} upgrade node on {name}"]
        return [
            f"cordon {name}", f"drain {name}", f"containerd {PROGRAMS['containerd']} on {name}", *node,
            f"kubelet {NEW} on {name}", f"uncordon {name}",
        ]  # fmt: skip

    assert steps(log) == [
        f"kubeadm {NEW} upgrade plan on cp1",
        "snapshot on cp1",
        f"kubeadm {NEW} upgrade apply on cp1",
        *window("cp1"),
        *window("worker1"),
        *window("worker2"),
    ]
    kept = cluster.hosts["cp1"].sh("cd /var/backups/etcd && sha256sum -c --quiet *.sha256 && ls").split()
    assert [name.partition("-2")[0] for name in kept] == [
        "lab-before-upgrade", "lab-before-upgrade", "lab-before-upgrade-kubernetes",
    ]  # fmt: skip
    assert PAUSE[NEW] in cluster.hosts["worker1"].sh("cat /etc/containerd/config.toml")

    (cluster.shared / "log").write_text("")
    assert changed(cluster.upgrade()) == []
    assert steps(cluster.log()) == []
    assert "Check: 0 would change, 0 unknown" in cluster.upgrade("--executor", "check")["said"]

    # Another containerd alone is a window of each node, too.
    monkeypatch.setitem(cluster.versions, "containerd", "2.3.5")
    monkeypatch.setitem(cluster.document["containerRuntime"], "version", "2.3.5")
    cluster.upgrade()
    assert steps(cluster.log()) == [
        line
        for name in NAMES
        for line in (
            *(["snapshot on cp1"] if name == "cp1" else []),
            f"cordon {name}", f"drain {name}", f"containerd 2.3.5 on {name}", f"kubelet {NEW} on {name}",
            f"uncordon {name}",
        )
    ]  # fmt: skip
    cluster.is_upgraded()


def test_with_stand_ins_what_does_not_fit_is_refused_before_the_first_change(cluster: Cluster) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"worker1": {"ready": "False"}}, "worker1 cannot be upgraded to Kubernetes 1.36.4: it is not Ready"),
        ({"worker2": {"blocked": True}}, "node worker2 could not be drained"),
    ]
    for nodes, message in cases:
        cluster.begin(**nodes)
        for executor in ("check", "concurrent"):
            assert message in cluster.upgrade("--executor", executor, code=1)["said"]
        assert cluster.log() == []
    cluster.begin()
    state = cluster.read()
    state["nodes"]["worker1"]["kubelet"] = "v1.34.11"
    state["nodes"]["stranger"] = state["nodes"]["worker2"]
    cluster.write(state)
    said = cluster.upgrade(code=1)["said"]
    assert "the cluster has nodes that the document does not have: stranger" in said
    del state["nodes"]["stranger"], state["nodes"]["worker2"]
    cluster.write(state)
    said = cluster.upgrade(code=1)["said"]
    assert (
        "worker1 cannot be upgraded to Kubernetes 1.36.4: its kubelet 1.34.11 is more than one minor version behind"
        in said
    )
    assert "worker2 cannot be upgraded to Kubernetes 1.36.4: it is no node of the cluster, add it first" in said
    assert cluster.log() == []


def test_with_stand_ins_a_failure_leaves_no_node_cordoned_and_a_resume_goes_on(cluster: Cluster) -> None:
    cluster.begin()
    for what in ("snapshot", "kubeadm apply cp1", "drain cp1", "kubeadm node worker1", "drain worker2"):
        cluster.fault(what)
        said = cluster.upgrade(code=1)["said"] if what == "snapshot" else cluster.resume(code=1)
        assert "fails as it was told to" in said
        cluster.is_free()
    cluster.resume()
    cluster.is_upgraded()
    log = steps(cluster.log())
    assert [line for line in log if line.startswith("snapshot")] == ["snapshot on cp1"]
    assert log.index(f"kubelet {NEW} on worker1") < log.index("drain worker2")
    assert changed(cluster.upgrade()) == []


def test_with_stand_ins_a_kill_is_made_up_for_by_a_resume(cluster: Cluster) -> None:
    cluster.begin()
    cluster.killed_at("kubeadm node worker1")
    assert cluster.read()["nodes"]["worker1"]["cordoned"] is True
    cluster.resume()
    cluster.is_upgraded()


def test_with_stand_ins_a_kill_is_made_up_for_by_a_new_run_of_another_machine(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.begin()
    cluster.killed_at("drain worker1")
    assert cluster.read()["nodes"]["worker1"]["annotations"] == {"kubexm.io/upgrade": f"v{NEW}"}
    monkeypatch.setitem(cluster._env, "KUBEXM_STATE", str(tmp_path / "another"))
    cluster.upgrade()
    cluster.is_upgraded()
    assert steps(cluster.log()).count(f"kubeadm {NEW} upgrade apply on cp1") == 1


def test_with_stand_ins_a_node_that_somebody_cordoned_stays_so(cluster: Cluster) -> None:
    cluster.begin(worker2={"cordoned": True})
    cluster.upgrade()
    nodes = cluster.read()["nodes"]
    assert {name: (node["kubelet"], node["cordoned"], node["annotations"]) for name, node in nodes.items()} == {
        "cp1": (f"v{NEW}", False, {}), "worker1": (f"v{NEW}", False, {}), "worker2": (f"v{NEW}", True, {}),
    }  # fmt: skip


def test_with_stand_ins_workloads_are_whole_before_the_next_nodes_are_drained(cluster: Cluster) -> None:
    cluster.begin()
    cluster.fault("drain worker1", "break")
    begun = start("kubexm", *cluster.words(), cwd=cluster.folder, env=cluster._env)

    def looks() -> int:
        log = cluster.log()
        return log[log.index("uncordon worker1") :].count("workloads") if "uncordon worker1" in log else 0

    try:
        cluster.until(lambda: begun.poll() is not None or looks() > 2)
        assert "drain worker2" not in cluster.log()
        cluster.workloads(web=2, broken=0)
        said, _ = begun.communicate(timeout=_LONG)
        assert begun.returncode == 0, said
    finally:
        begun.kill()
    cluster.is_upgraded()


def test_with_stand_ins_a_worker_is_not_upgraded_before_the_control_planes(cluster: Cluster) -> None:
    cluster.begin()
    found = cluster.upgrade("--limit", "worker1", code=1)
    assert "upgrade the control planes first" in found["said"]
    assert [line for line in steps(cluster.log()) if "worker1" in line] == []
    cluster.is_free()

"""`kubexm cluster preflight`: real hosts with what is wrong with them, one table, and nothing changed."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Mapping

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, NodeResult, Status
from kubexm_exec.service.clusters import build
from kubexm_exec.service.preflight import Level, Preflight, findings_of
from kubexm_spec.models.cluster import PREFLIGHT_CHECKS
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST
from tests.e2e.program import environment, run
from tests.e2e.site import wait_until
from tests.lab.machines import Machine

GOLDEN = pathlib.Path(__file__).with_name("golden") / "preflight.txt"
_LONG = 300.0
# Of this computer, which the machines share: its control groups, modules and firmware.
_SHARED = ["cgroup", "modules", "productUuid", "kernel"]


def written(folder: pathlib.Path, hosts: Mapping[str, tuple[Machine, str]], **preflight: object) -> None:
    first = next(iter(hosts.values()))[0]
    document = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "lab"},
        "kubernetes": {"version": "1.36.4"},
        "network": {"plugin": "none"},
        "defaults": {
            "user": "root",
            "privateKeyPath": str(first.key),
            "knownHosts": str(folder / "known_hosts"),
            "connectTimeout": "5s",
        },
        "hosts": [
            {"name": name, "address": machine.address, "roles": [roles]} for name, (machine, roles) in hosts.items()
        ],
        # Something that answers.
        "registry": {"mirrors": {"registry.k8s.io": f"http://{first.address}:22"}},
        "preflight": preflight,
    }
    (folder / "cluster.yaml").write_text(json.dumps(document))


def preflight(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="")
    return run("kubexm", "cluster", "preflight", "-f", "cluster.yaml", *options, cwd=folder, env=env, timeout=_LONG)


def plain(text: str, machines: Mapping[str, Machine]) -> str:
    """The text without what differs from run to run."""
    for name, machine in machines.items():
        text = text.replace(machine.address, f"<{name}>")
    text = re.sub(r"process \d+", "process <pid>", text)
    return re.sub(r"\d+Mi(?=;)", "<found>Mi", text)


@pytest.mark.xdist_group("machines")
def test_what_is_wrong_with_hosts_is_one_table_and_nothing_is_changed(
    machines: Callable[[int], list[Machine]], tmp_path: pathlib.Path
) -> None:
    one, two, three = machines(3)
    by_name = {"n1": one, "n2": two, "n3": three}
    hosts = {"n1": (one, "controlPlane"), "n2": (two, "worker"), "n3": (three, "worker")}
    for each in (one, two, three):
        each.sh("hostname $1; echo $2 >/etc/machine-id", each.name, f"{each.name:0<32}")
    fine = {"minCPU": 1, "minMemory": "1Mi", "minDisk": "1Mi", "etcdFsync": "1m"}
    written(tmp_path, hosts, skip=_SHARED, **fine)
    # Files, ports and processes; the folder for etcd's test is gone again.
    state = """
find /etc /var /root /tmp -newer /run/before ! -name lib ! -path '/var/log/*' | sort
find / -xdev -name '*kubexm*'; ss -ltnH | awk '{print $4}' | sort; ps -eo comm= | sort"""
    before = {}
    for name, each in by_name.items():
        each.sh("touch /run/before")
        before[name] = each.sh(state)
    done = preflight(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(preflight(tmp_path, "--output", "json").stdout)
    assert found["ok"], found
    assert found["reachable"] == {
        "n1": {"n2": {"10250": "ok"}, "n3": {"10250": "ok"}},
        "n2": {"n1": {"6443": "ok"}},
        "n3": {"n1": {"6443": "ok"}},
    }
    # What sshd has for a connection that was closed ends a moment later.
    wait_until(lambda: all(each.sh(state) == before[name] for name, each in by_name.items()))

    one.sh("systemd-run -q --unit=squatter systemd-socket-activate -l 10259 sleep infinity")
    one.sh("until ss -ltnH | grep -q :10259; do systemctl is-active -q squatter || exit 1; done")
    two.sh("cp /dev/null /etc/machine-id; echo $1 >/etc/machine-id", f"{one.name:0<32}")
    two.sh("printf 'Filename Type Size Used Priority\\n/dev/sdb1 partition 1 0 -2\\n' >/run/swaps")
    two.sh("mount --bind /run/swaps /proc/swaps")
    rules = "table inet wall { chain input { type filter hook input priority 0; tcp dport 10250 drop; }; }"
    two.sh('printf "%s\\n" "$1" | nft -f -', rules)
    three.stop()
    written(tmp_path, hosts, skip=_SHARED, **fine | {"minMemory": "100Ti"})
    done = preflight(tmp_path)
    assert done.returncode == 1, done.stderr
    text = plain(done.stdout, by_name)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")


@pytest.mark.xdist_group("machines")
def test_ports_of_the_cluster_itself_are_no_obstacle_and_a_user_without_rights_is_one_finding(
    machines: Callable[[int], list[Machine]], tmp_path: pathlib.Path
) -> None:
    one, two = machines(2)
    # Something that listens under the name of the program that has the port in a cluster.
    one.sh("""
cp /usr/bin/systemd-socket-activate /usr/local/bin/kube-apiserver
systemd-run -q --unit=api kube-apiserver -l 6443 sleep infinity
until ss -ltnH | grep -q :6443; do systemctl is-active -q api || exit 1; done""")
    two.sh("useradd -m plain && cp -r /root/.ssh /home/plain/ && chown -R plain /home/plain/.ssh")
    written(
        tmp_path,
        {"n1": (one, "controlPlane"), "n2": (two, "worker")},
        skip=[*_SHARED, "memory", "disk"],
        etcdFsync="0.0001ms",
    )
    document = json.loads((tmp_path / "cluster.yaml").read_text())
    document["hosts"][1]["user"] = "plain"
    (tmp_path / "cluster.yaml").write_text(json.dumps(document))

    def found() -> dict[tuple[str, str, str], str]:
        done = preflight(tmp_path, "--output", "json")
        assert done.returncode == 1, done.stdout + done.stderr
        return {
            (each["check"], each["host"], each["subject"]): each["level"]
            for each in json.loads(done.stdout)["findings"]
        }

    assert found()["portsFree", "n1", "6443"] == "fail", "there is no cluster yet"
    one.sh("mkdir -p /etc/kubernetes && touch /etc/kubernetes/kubelet.conf")
    later = found()
    assert later["portsFree", "n1", "6443"] == "ok"
    assert later["portsReachable", "n1", "n2:10250"] == "unseen", "nothing listened on the other one"
    assert later["etcdFsync", "n1", "/var/lib"] == "fail", "no disk is that fast"
    assert {key: level for key, level in later.items() if key[1] == "n2"} == {
        ("ssh", "n2", ""): "ok",
        ("sudo", "n2", ""): "fail",
    }


def results(**steps: Mapping[str, HostResult]) -> GraphExecutionResult:
    """A result in which steps of the module ended so on hosts."""
    nodes = {
        f"preflight/host/{name}": NodeResult(node_name=name, step_name="command", host_results=dict(of_hosts))
        for name, of_hosts in steps.items()
    }
    return GraphExecutionResult(graph_name="preflight-lab", status=Status.SUCCESS, node_results=nodes)


def said(host: str, *lines: str, at: float = 1000.0) -> HostResult:
    """A check that printed lines with | for tabs, in a second."""
    text = "".join(line.replace("|", "\t") + "\n" for line in lines)
    return HostResult(host_name=host, status=Status.SUCCESS, stdout=text, start_time=at, end_time=at + 1)


def levels(found: Preflight, check: str) -> dict[str, tuple[str, str]]:
    return {each.host: (each.level.value, each.measured) for each in found.of(check)}


def test_the_clock_that_differs_from_the_most_others_is_named() -> None:
    clocks = {"a": 1000.4, "b": 1060.5, "c": 1000.6}
    lines = {host: said(host, f"value|clock|{clock:.9f}|in time|set it") for host, clock in clocks.items()}
    found = levels(findings_of(results(time=lines), list(clocks), []), "time")
    assert found == {"a": ("ok", "in time"), "b": ("fail", "60 s ahead"), "c": ("ok", "in time")}
    # This computer is the one that is wrong.
    lines = {host: said(host, f"value|clock|{clock:.9f}|in time|set it", at=9000.0) for host, clock in clocks.items()}
    found = levels(findings_of(results(time=lines), list(clocks), []), "time")
    assert found["b"] == ("fail", "60 s ahead")
    assert found["a"] == ("ok", "in time")
    # A clock without fractions is less sure, and a text is no clock.
    lines = {"a": said("a", "value|clock|1003|in time|"), "b": said("b", "value|clock|noon|in time|")}
    found = levels(findings_of(results(time=lines), ["a", "b"], []), "time")
    assert found == {"a": ("ok", "in time"), "b": ("unseen", "the clock cannot be read")}


def test_a_check_that_did_not_come_to_its_end_has_failed() -> None:
    broken = HostResult(host_name="a", status=Status.FAILED, kind=FailureKind.TIMED_OUT, message="no end in 60 s")
    dead = HostResult(host_name="b", status=Status.FAILED, kind=FailureKind.UNREACHABLE, message="no route")
    found = findings_of(results(ssh={"b": dead}, disk={"a": broken, "b": dead}), ["a", "b"], [])
    assert [(each.check, each.host, each.level) for each in found.findings] == [
        ("disk", "a", Level.FAIL),
        ("ssh", "b", Level.FAIL),
    ]
    assert found.lost == ["b"]
    assert found.failed


def test_a_connection_that_nobody_waited_for_was_not_looked_at() -> None:
    tried = {"a": said("a", "fail|b:6443|refused|a connection|open it", "fail|b:2379|refused|a connection|open it")}
    found = findings_of(results(listen={"b": said("b", "2379", "process 12")}, portsReachable=tried), ["a", "b"], [])
    assert [(each.subject, each.level) for each in found.findings] == [("b:2379", Level.FAIL), ("b:6443", Level.UNSEEN)]
    assert found.matrix() == {"a": {"b": {"2379": "fail", "6443": "unseen"}}}


def test_checks_are_steps_with_their_ids_and_all_can_be_left_out() -> None:
    module = YAML(typ="safe").load(pathlib.Path(__file__).parents[2] / "specs" / "modules" / "preflight.yaml")
    steps = {step["name"]: step for task in module["tasks"] for step in task["steps"]}
    assert set(PREFLIGHT_CHECKS) <= set(steps)
    for check in PREFLIGHT_CHECKS:
        assert f"'{check}' not in params.skip" in steps[check]["when"], check
    for name, step in steps.items():
        assert step["with"]["readOnly"], name
        # Without a login or the rights of root there is nothing else to be seen on a host.
        assert step.get("ignoreErrors", False) == (name not in ("ssh", "sudo")), name


def test_who_needs_which_port_follows_from_the_document(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cluster.yaml").write_text(HIGHLY_AVAILABLE)
    (module,) = build("cluster.yaml", str(tmp_path), lambda *found: None, "preflight")["modules"]
    ports = {(each["port"], each["program"]): each for each in module["with"]["ports"]}
    control, workers = ["cp1", "cp2", "cp3"], ["worker1", "worker2"]
    assert ports[6443, "kube-apiserver"]["from"] == [*control, *workers]
    assert ports[2380, "etcd"] == {"port": 2380, "program": "etcd", "on": control, "from": control}
    assert ports[6443, "haproxy"] == {"port": 6443, "program": "haproxy", "on": workers, "from": []}
    registries = {each["name"]: each["places"] for each in module["with"]["registries"]}
    assert registries["registry.k8s.io"] == ["registry.k8s.io 443"]
    assert set(registries) == {"registry.k8s.io", "docker.io", "quay.io"}


@pytest.mark.parametrize(
    ("preflight", "message"),
    [
        ("{skip: [cpus]}", 'did you mean "cpu"'),
        ("{skip: [all]}", 'there is no check "all"'),
        ("{minCPU: 0}", "minCPU"),
        ("{minMemory: lots}", "minMemory"),
        ("{etcdFsync: 0s}", "etcdFsync"),
    ],
)
def test_wrong_demands_are_refused_before_a_host_is_asked(preflight: str, message: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SMALLEST + f"preflight: {preflight}\n")
    result = CliRunner().invoke(main, ["cluster", "preflight", "-f", str(path)])
    assert result.exit_code == 2, result.output
    assert message in result.output

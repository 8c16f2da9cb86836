"""`kubexm cluster status` and `certs`: what hosts, API servers, etcd and load balancers say, as tables."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubexm_exec.cli.main import main
from kubexm_exec.cli.status import age, certificates_json, certificates_lines, status_json, status_lines
from kubexm_exec.console.text import Paint, unstyle
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, NodeResult, Status
from kubexm_exec.service.certificates import Validity, certificates_in
from kubexm_exec.service.status import BackendRow, ClusterStatus, Level, status_in
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked
from tests.clusters.test_etcd import NEEDED, archive, kubexm, pipeline
from tests.e2e.program import environment, run, start
from tests.lab import programs
from tests.lab.machines import Machine

GOLDEN = pathlib.Path(__file__).with_name("golden") / "status.txt"
NOW = datetime(2026, 11, 18, tzinfo=UTC)
KEY = ec.generate_private_key(ec.SECP256R1())
DEAD = "host cp1 cannot be reached at [10.0.0.1]:22: no route to host"


def certificate(name: str, days: float, *, ca: bool = False) -> str:
    """A certificate that ends so many days from now, as hosts show it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=4000))
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(KEY, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def said(host: str, text: str = "", stderr: str = "") -> HostResult:
    return HostResult(host_name=host, status=Status.SUCCESS, stdout=text, stderr=stderr)


AUTHORITY = certificate("kubernetes", 3650, ca=True)


def files(host: str, **certificates: str) -> HostResult:
    """Certificates by their paths."""
    return said(host, "".join(f"{path}\t{data}\n" for path, data in certificates.items()))


def packed(host: str, *rows: str) -> HostResult:
    """Lines with | for tabs, as steps compress them."""
    text = "\n".join(row.replace("|", "\t") for row in rows)
    return said(host, base64.b64encode(gzip.compress(text.encode())).decode())


def failed(host: str, message: str, kind: FailureKind = FailureKind.FAILED, stdout: str = "") -> HostResult:
    return HostResult(host_name=host, status=Status.FAILED, kind=kind, message=message, stdout=stdout, ignored=True)


def results(**steps: list[HostResult]) -> GraphExecutionResult:
    nodes = {}
    for name, of_hosts in steps.items():
        step = name.replace("_", "-")
        by_host = {each.host_name: each for each in of_hosts}
        nodes[f"status/look/{step}"] = NodeResult(node_name=step, step_name="command", host_results=by_host)
    return GraphExecutionResult(graph_name="status-lab", status=Status.SUCCESS, node_results=nodes)


def node(name: str, address: str, **more: str) -> str:
    """A line of a node; keys of `more` replace parts of it."""
    parts = {
        "created": "2026-11-15T00:00:00Z",
        "cordoned": "",
        "kubelet": "v1.36.4",
        "runtime": "containerd://2.3.4",
        "addresses": json.dumps([{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]),
        "taints": "",
        "labels": json.dumps({"kubernetes.io/hostname": name}),
        "conditions": "MemoryPressure=False=KubeletHasSufficientMemory;Ready=True=KubeletReady;",
    }
    return "|".join([name, *{**parts, **more}.values()])


CONTROL: Mapping[str, str] = {
    "labels": json.dumps({"node-role.kubernetes.io/control-plane": ""}),
    "taints": json.dumps([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
}
MEMBERS = json.dumps({"members": [{"ID": number, "name": f"cp{number}"} for number in (1, 2, 3)]})


def member(number: int, leader: int, version: str = "3.6.14", **more: Any) -> str:
    status = {
        "header": {"member_id": number}, "version": version, "dbSize": 52_000_000, "dbSizeInUse": 31_000_000,
        "leader": leader, "raftIndex": 9000 + number, **more,
    }  # fmt: skip
    return json.dumps([{"Endpoint": "https://127.0.0.1:2379", "Status": status}])


STATS = """\
HTTP/1.0 200 OK

# pxname,svname,qcur,scur,status,last_chk,check_status
health,FRONTEND,,1,OPEN,,
apiservers,cp1,0,0,DOWN,no route to host,L4CON
apiservers,cp2,0,7,UP,,L7OK
apiservers,cp3,0,2,UP 1/2,,L7OK
apiservers,BACKEND,0,9,UP,,
"""


def broken() -> GraphExecutionResult:
    """The first control plane is gone, a worker is cordoned and old, a node is of nobody, a certificate ends soon."""
    alive = ["cp2", "cp3", "worker1", "worker2"]
    dead = failed("cp1", DEAD, FailureKind.UNREACHABLE)
    nodes = [
        node("cp1", "10.0.0.1", **CONTROL, conditions="Ready=Unknown=NodeStatusUnknown;"),
        node("cp2", "10.0.0.2", **CONTROL),
        node("cp3", "10.0.0.3", **CONTROL),
        node("worker1", "10.0.0.11", cordoned="true", kubelet="v1.35.8"),
        node("stranger", "10.0.0.99"),
    ]
    components = [
        f"{part}|{name}|registry.k8s.io/{part}:v1.36.4|true|0"
        for part in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        for name in ("cp2", "cp3")
    ]
    workloads = [
        "DaemonSet|kube-system|kube-proxy|5|4|registry.k8s.io/kube-proxy:v1.36.4",
        "Deployment|kube-system|coredns|2|2|registry.k8s.io/coredns/coredns:v1.14.2",
        "Deployment|default|shop|3|0|shop:1",
    ]
    etcd = f"{MEMBERS}\n{json.dumps({'alarms': [{'memberID': 3, 'alarm': 1}]})}"
    pki = "/etc/kubernetes/pki"
    return results(
        host=[dead, *(said(host) for host in alive)],
        readyz=[
            said("cp2", "[+]ping ok\nreadyz check passed"),
            failed("cp3", "exit code 1", stdout="[+]ping ok\n[-]etcd failed: reason withheld\n"),
        ],
        nodes=[failed("cp3", "timed out", FailureKind.TIMED_OUT), packed("cp2", *nodes)],
        components=[packed("cp2", *components), packed("cp3", *components)],
        workloads=[packed("cp2", *workloads)],
        etcd=[said("cp2", f"{member(2, leader=3)}\n{etcd}"), said("cp3", f"{member(3, leader=3, version='3.6.6')}\n")],
        haproxy=[said("worker1", STATS), failed("worker2", "exit code 1")],
        certificates=[
            dead,
            files("cp2", **{f"{pki}/ca.crt": AUTHORITY, f"{pki}/apiserver.crt": certificate("api", 12.5)}),
            files("cp3", **{f"{pki}/apiserver.crt": certificate("api", -3), f"{pki}/odd.crt": "bm90aGluZw=="}),
            files("worker1", **{"/var/lib/kubelet/pki/kubelet-client-current.pem": certificate("worker1", 200)}),
            said("worker2"),
        ],
    )  # fmt: skip


def found_in(result: GraphExecutionResult, tmp_path: pathlib.Path, document: str = HIGHLY_AVAILABLE) -> ClusterStatus:
    return status_in(result, checked(tmp_path, document), 30, NOW)


def test_what_is_broken_is_in_the_tables_and_below_them_with_what_to_do(tmp_path: pathlib.Path) -> None:
    found = found_in(broken(), tmp_path)
    text = "\n".join(status_lines(found, "cluster.yaml", Paint(False))) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")
    colored = "\n".join(status_lines(found, "cluster.yaml", Paint(True))) + "\n"
    assert colored != text
    assert unstyle(colored) == text, "colours say nothing that the words do not"


def test_the_first_control_plane_that_answers_is_asked_and_all_that_differs_is_told(tmp_path: pathlib.Path) -> None:
    found = found_in(broken(), tmp_path)
    assert found.asked == "cp2"
    told = {(each.level.value, each.where, each.what) for each in found.problems}
    for expected in [
        ("fail", "cp1", DEAD),
        ("fail", "cp3", "its API server is not ready: etcd"),
        ("fail", "cp1", "the node is Unknown: NodeStatusUnknown"),
        ("fail", "etcd member cp3", "it has the alarm NOSPACE"),
        ("drift", "etcd member cp3", "version is 3.6.6, the document says 3.6.14"),
        ("drift", "worker1", "kubelet is 1.35.8, the document says 1.36.4"),
        ("drift", "worker2", "it is in the document, and no node of the cluster"),
        ("drift", "stranger", "it is a node of the cluster, and not in the document"),
        ("warn", "worker1", "the node is cordoned: nothing new is scheduled there"),
        ("fail", "worker1", "its load balancer sees cp1 as DOWN: no route to host"),
        ("fail", "worker2", "haproxy does not answer"),
        ("fail", "kube-system/kube-proxy", "4 of 5 pods are ready"),
        ("fail", "cp3:/etc/kubernetes/pki/apiserver.crt", "it has expired on 2026-11-15"),
        ("fail", "cp3:/etc/kubernetes/pki/odd.crt", "this certificate cannot be read"),
        ("warn", "cp2:/etc/kubernetes/pki/apiserver.crt", "it expires in 12 days"),
    ]:
        assert expected in told, "\n".join(map(str, sorted(told)))
    assert {each.name: each.state for each in found.members} == {"cp1": "no answer", "cp2": "follower", "cp3": "leader"}
    assert "shop" not in {each.name for each in found.workloads}, "that is the users' own"


def test_backends_are_read_also_from_an_answer_in_chunks(tmp_path: pathlib.Path) -> None:
    _, _, body = STATS.partition("\n\n")
    parts = [body[:70], body[70:75], body[75:]]
    chunks = "".join(f"{len(part):X}\r\n{part}\r\n" for part in parts)
    answer = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"

    def backends(text: str) -> list[BackendRow]:
        return found_in(results(haproxy=[said("worker1", text)], host=[said("worker1")]), tmp_path).backends

    assert backends(answer) == backends(STATS)
    assert [each.server for each in backends(answer)] == ["cp1", "cp2", "cp3"]
    assert backends("HTTP/1.1 403 Forbidden\r\n\r\nno") == backends("") == []


def test_a_cluster_as_its_document_says_has_no_problems(tmp_path: pathlib.Path) -> None:
    document = SMALLEST.replace(
        "roles: [controlPlane]",
        "roles: [controlPlane], node: {taints: [{key: gpu, value: a, effect: NoSchedule}]}",
    )

    def state(taints: list[dict[str, str]]) -> ClusterStatus:
        line = node("cp1", "10.0.0.1", labels=CONTROL["labels"], taints=json.dumps(taints))
        result = results(
            host=[said("cp1")],
            readyz=[said("cp1")],
            nodes=[packed("cp1", line)],
            components=[packed("cp1", "kube-apiserver|cp1|registry.k8s.io/kube-apiserver:v1.36.4|true|0")],
            etcd=[said("cp1", f'{member(1, leader=1)}\n{{"members": [{{"ID": 1, "name": "cp1"}}]}}')],
            certificates=[said("cp1")],
        )
        return found_in(result, tmp_path, document)

    own = {"key": "gpu", "value": "a", "effect": "NoSchedule"}
    system = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    fine = state([own, system])
    assert fine.problems == []
    assert not fine.failed
    assert [each.what for each in state([]).problems] == ["taint gpu=a:NoSchedule is not there, the document has it"]
    other = state([own, {"key": "mine", "effect": "NoExecute"}])
    assert [each.what for each in other.problems] == ["taint mine:NoExecute is there, the document does not have it"]
    assert other.failed
    assert other.problems[0].level is Level.DRIFT


def test_json_of_the_status_has_all_parts(tmp_path: pathlib.Path) -> None:
    data = json.loads(json.dumps(status_json(found_in(broken(), tmp_path))))
    assert data["ok"] is False
    assert set(data) == {
        "ok", "name", "version", "endpoint", "loadBalancer", "virtualAddress", "etcd", "asked", "hosts", "unseen",
        "nodes", "apiServers", "components", "workloads", "members", "balancers", "backends", "certificates",
        "problems",
    }  # fmt: skip
    worker = next(each for each in data["nodes"] if each["name"] == "worker1")
    assert worker == {
        "name": "worker1", "host": "worker1", "roles": ["worker"], "ready": True, "status": "Ready", "cordoned": True,
        "conditions": [], "kubelet": "1.35.8", "runtime": "containerd 2.3.4", "address": "10.0.0.11",
        "created": "2026-11-15T00:00:00Z", "age": 3 * 86400.0,
    }  # fmt: skip
    leader = next(each for each in data["members"] if each["name"] == "cp3")
    assert (leader["state"], leader["size"], leader["used"]) == ("leader", 52_000_000, 31_000_000)


def test_certificates_are_due_by_the_threshold(tmp_path: pathlib.Path) -> None:
    hosts = ["cp1", "cp2", "cp3", "worker1", "worker2"]

    def due(threshold: int) -> list[tuple[str, str]]:
        found = certificates_in(broken(), hosts, threshold, NOW)
        assert [each.host for each in found.unseen] == ["cp1"]
        return [(each.host, each.validity.value) for each in found.due]

    always = [("cp3", "expired"), ("cp3", "unreadable")]
    assert due(12) == always
    assert due(13) == [("cp2", "expires soon"), *always]
    found = certificates_in(broken(), hosts, 13, NOW)
    assert certificates_json(found)["ok"] is False
    text = "\n".join(certificates_lines(found, "cluster.yaml", Paint(False)))
    assert "Certificates: 5 certificates on 4 hosts, 1 expired, 1 unreadable, 1 expires soon, 1 host" in text
    assert "kubexm cluster renew-certs -f cluster.yaml --days 13" in text
    authority = next(each for each in found.certificates if each.path.endswith("/ca.crt"))
    assert (authority.ca, authority.validity, authority.days_left) == (True, Validity.VALID, 3650)


def test_ages_are_told_in_their_largest_unit() -> None:
    assert [age(each) for each in (None, 5, 61, 7200, 90000)] == ["-", "5s", "1m", "2h", "1d"]


@pytest.mark.parametrize("command", ["status", "certs"])
def test_wrong_documents_and_options_are_refused_before_a_host_is_asked(command: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SMALLEST.replace("1.36.4", "1.36.4x"))
    assert CliRunner().invoke(main, ["cluster", command, "-f", str(path)]).exit_code == 2
    path.write_text(SMALLEST)
    assert CliRunner().invoke(main, ["cluster", command, "-f", str(path), "--days", "-1"]).exit_code == 2


def test_watching_looks_again_until_it_is_interrupted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SMALLEST.replace("address: 10.0.0.1", "address: 127.0.0.1, port: 1"))
    env = environment(HOME=str(tmp_path), KUBEXM_STATE=str(tmp_path / "state"), SSH_AUTH_SOCK="")
    words = ["cluster", "status", "-f", "cluster.yaml", "--watch", "--interval", "0.1", "--output", "json"]
    watching = start("kubexm", *words, cwd=tmp_path, env=env)
    assert watching.stdout is not None
    with watching:
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["unseen"][0]["host"] == "cp1"
        watching.send_signal(signal.SIGINT)
        _, stderr = watching.communicate(timeout=120)
    assert watching.returncode == 130, stderr
    assert "Traceback" not in stderr


@pytest.mark.xdist_group("machines")
@pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED))
def test_members_and_certificates_of_a_real_etcd_are_shown_also_if_a_host_is_gone(
    machines: Callable[[int], list[Machine]], tmp_path: pathlib.Path
) -> None:
    first, second, third = machines(3)
    archive(tmp_path / "etcd.tar")
    pipeline(tmp_path, {"e1": (first, "controlPlane, etcd"), "e2": (second, "etcd"), "e3": (third, "etcd")})
    kubexm(tmp_path)

    def cluster(*words: str, code: int) -> dict[str, Any]:
        env = environment(HOME=str(tmp_path), KUBEXM_STATE=str(tmp_path / "state"), SSH_AUTH_SOCK="")
        done = run(
            "kubexm", "cluster", *words, "-f", "cluster.yaml", "--output", "json", cwd=tmp_path, env=env, timeout=300
        )
        assert done.returncode == code, done.stdout + done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    everything = cluster("certs", code=0)
    paths = {each["path"] for each in everything["certificates"] if each["host"] == "e2"}
    names = ("ca", "server", "peer", "healthcheck-client", "trusted-ca")
    assert paths == {f"/etc/etcd/pki/{name}.crt" for name in names}
    assert cluster("certs", "--days", "100000", code=1)["ok"] is False

    third.stop()
    found = cluster("status", code=1)
    states = {each["name"]: each for each in found["members"]}
    assert sorted(each["state"] for each in states.values()) == ["follower", "leader", "no answer"]
    assert states["e3"]["state"] == "no answer"
    assert states["e1"]["size"] > 0
    assert [each["host"] for each in found["unseen"]] == ["e3"]
    assert found["apiServers"] == [
        {"host": "e1", "ready": False, "message": found["apiServers"][0]["message"], "failing": []}
    ]
    assert {each["host"] for each in found["certificates"]["certificates"]} == {"e1", "e2"}


API = ["etcd", "kube-apiserver", "kubectl"]
SERVE = r"""
mkdir -p /run/lab /etc/kubernetes && cd /run/lab
openssl genrsa -out sa.key 2048 2>/dev/null
echo 'lab-token,admin,admin,system:masters' >tokens
setsid etcd --data-dir /run/lab/etcd >etcd.log 2>&1 </dev/null &
setsid kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --cert-dir=/run/lab/certs \
  --service-account-key-file=sa.key --service-account-signing-key-file=sa.key --authorization-mode=RBAC \
  --service-account-issuer=https://kubernetes.default --token-auth-file=tokens --service-cluster-ip-range=10.96.0.0/16 \
  --disable-admission-plugins=ServiceAccount >api.log 2>&1 </dev/null &
printf '%s\n' 'apiVersion: v1' 'kind: Config' \
  'clusters: [{name: k, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]' \
  'users: [{name: u, user: {token: lab-token}}]' 'contexts: [{name: c, context: {cluster: k, user: u}}]' \
  'current-context: c' >/etc/kubernetes/admin.conf
k() { kubectl --kubeconfig=/etc/kubernetes/admin.conf --server=https://127.0.0.1:6443 "$@"; }
until k get --raw /readyz >/dev/null 2>&1 && k get namespace kube-system >/dev/null 2>&1; do sleep 1; done
k create -f - <<END
apiVersion: v1
kind: Node
metadata: {name: cp2, labels: {node-role.kubernetes.io/control-plane: ""}}
spec: {unschedulable: true}
---
apiVersion: v1
kind: Node
metadata: {name: stranger}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "r/coredns:v1.14.2"}]}}
END
"""


@pytest.mark.xdist_group("machines")
@pytest.mark.skipif(bool(programs.missing(API)), reason=programs.missing(API))
def test_a_real_api_server_is_asked_on_the_second_control_plane_while_the_first_is_dead(
    machines: Callable[[int], list[Machine]], tmp_path: pathlib.Path
) -> None:
    one, two = machines(2)
    programs.bring(two, API)
    two.sh(SERVE)
    document = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "lab"},
        "kubernetes": {"version": "1.36.4"},
        "loadBalancer": {"type": "external"},
        "controlPlaneEndpoint": {"address": two.address},
        "defaults": {"user": "root", "privateKeyPath": str(one.key), "knownHosts": "known_hosts"},
        "hosts": [
            {"name": "cp1", "address": one.address, "roles": ["controlPlane"]},
            {"name": "cp2", "address": two.address, "roles": ["controlPlane"]},
        ],
    }  # fmt: skip
    (tmp_path / "cluster.yaml").write_text(json.dumps(document))
    one.stop()
    env = environment(HOME=str(tmp_path), KUBEXM_STATE=str(tmp_path / "state"), SSH_AUTH_SOCK="")
    words = ["kubexm", "cluster", "status", "-f", "cluster.yaml", "--output", "json"]
    done = run(*words, cwd=tmp_path, env=env, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["asked"] == "cp2"
    assert found["apiServers"] == [{"host": "cp2", "ready": True, "message": "", "failing": []}]
    assert {each["name"]: each["status"] for each in found["nodes"]} == {
        "cp1": "missing",
        "cp2": "Unknown",
        "stranger": "Unknown",
    }
    assert [each["name"] for each in found["nodes"] if each["cordoned"]] == ["cp2"]
    assert [(each["name"], each["wanted"], each["ready"]) for each in found["workloads"]] == [("coredns", 2, 0)]

    words = ["kubexm", "cluster", "kubeconfig", "-f", "cluster.yaml"]
    done = run(*words, cwd=tmp_path, env=env, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lab-token" not in done.stdout + done.stderr
    written = tmp_path / "lab.kubeconfig"
    assert written.stat().st_mode & 0o777 == 0o600
    kubectl = [str(programs.find("kubectl")), "--kubeconfig", str(written), "get", "nodes", "-o", "name"]
    said = subprocess.run(kubectl, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.split() == ["node/cp2", "node/stranger"]

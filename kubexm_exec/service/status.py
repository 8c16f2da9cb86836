"""What a running cluster is like: nodes, etcd, certificates, load balancers, and what differs from its document."""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

from msgspec import Struct

from kubexm_exec.model.result import GraphExecutionResult, HostResult, Status
from kubexm_exec.service.certificates import (
    Certificates,
    HostRow,
    Validity,
    certificates_in,
    results_of,
    unseen_host,
)
from kubexm_spec.clusters.checks import CheckedCluster
from kubexm_spec.clusters.hosts import CONTROL_PLANE, WORKER, ClusterHost
from kubexm_spec.clusters.inventory import node_taints

T = TypeVar("T")
_ROLE_LABEL: Final = "node-role.kubernetes.io/"
_SYSTEM_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that Kubernetes itself sets and removes."""
_SYSTEM_NAMESPACES: Final = ("kube-", "calico-", "cilium", "tigera-")
_PRESSURE: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_ALARMS: Final = {1: "NOSPACE", 2: "CORRUPT"}


class Level(StrEnum):
    """How bad a problem is, the worst first."""

    FAIL = "fail"
    DRIFT = "drift"
    """It works, and is not what the document says."""
    WARN = "warn"


class Problem(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    level: Level
    where: str
    what: str
    advice: str = ""


class NodeRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A node of the cluster, or a host of the document that should be one."""

    name: str
    host: str = ""
    """Of the document; empty if it is not in there."""
    roles: list[str]
    ready: bool = False
    status: str
    """Ready, NotReady, Unknown, or missing."""
    cordoned: bool = False
    conditions: list[str] = []
    """What weighs on it, such as DiskPressure."""
    kubelet: str = ""
    runtime: str = ""
    address: str = ""
    created: str = ""
    age: float | None = None
    """Seconds."""


class MemberRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A member of etcd, or a host that should have one."""

    name: str
    host: str = ""
    state: str
    """leader, follower, learner, not started, no answer, or missing."""
    answers: bool = False
    version: str = ""
    size: int = 0
    used: int = 0
    quota: int = 0
    raft_index: int = 0
    id: str = ""
    alarms: list[str] = []
    message: str = ""


class ApiRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """The API server of a control plane, asked on its own host."""

    host: str
    ready: bool
    message: str = ""
    failing: list[str] = []
    """Checks of its readiness that fail."""


class ComponentRow(Struct, frozen=True, kw_only=True):
    """A static pod of a control plane."""

    component: str
    node: str
    version: str
    ready: bool
    restarts: int


class WorkloadRow(Struct, frozen=True, kw_only=True):
    """A part of the cluster that runs in it: DNS, the proxy, the network plugin, an addon."""

    kind: str
    namespace: str
    name: str
    version: str
    wanted: int
    ready: int


class BackendRow(Struct, frozen=True, kw_only=True):
    """An API server as a load balancer sees it."""

    balancer: str
    server: str
    state: str
    up: bool
    check: str = ""
    sessions: int = 0


class BalancerRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A host with a load balancer, or that may have the virtual address."""

    host: str
    answers: bool
    message: str = ""
    has_address: bool = False


class ClusterStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """All that was found."""

    name: str
    version: str
    endpoint: str
    load_balancer: str
    virtual_address: str
    etcd: str
    """Who runs it."""
    asked: str
    """The control plane whose API server has answered; empty if none has."""
    hosts: list[str]
    unseen: list[HostRow]
    nodes: list[NodeRow]
    api_servers: list[ApiRow]
    components: list[ComponentRow]
    workloads: list[WorkloadRow]
    members: list[MemberRow]
    balancers: list[BalancerRow]
    backends: list[BackendRow]
    certificates: Certificates
    problems: list[Problem]
    cancelled: bool = False

    @property
    def failed(self) -> bool:
        """Whether something is broken, or not what the document says; warnings do not count."""
        return any(each.level is not Level.WARN for each in self.problems)


def status_in(
    result: GraphExecutionResult, cluster: CheckedCluster, threshold: int, now: datetime | None = None
) -> ClusterStatus:
    """The state of a cluster in the result of the module's run."""
    return _Reader(result, cluster, threshold, now or datetime.now(UTC)).read()


class _Reader:
    def __init__(self, result: GraphExecutionResult, cluster: CheckedCluster, threshold: int, now: datetime) -> None:
        self.result, self.cluster, self.threshold, self.now = result, cluster, threshold, now
        self.settings = cluster.settings
        self.hosts = [host for host in self.settings.hosts.by_name.values() if host.roles]
        self.by_node = {host.node_name: host for host in self.hosts if host.is_node}
        self.problems: list[Problem] = []
        self.asked = ""

    def read(self) -> ClusterStatus:
        settings = self.settings
        names = [host.name for host in self.hosts]
        gates = results_of(self.result, "host")
        unseen = [
            unseen_host(name, gates.get(name))
            for name in names
            if name not in gates or gates[name].status is not Status.SUCCESS
        ]
        for each in unseen:
            self._problem(Level.FAIL, each.host, each.message, each.hint)
        self.lost = {each.host for each in unseen}
        api = self._api_servers()
        nodes = self._nodes()
        components = self._components()
        workloads = self._workloads()
        members = self._members()
        balancers, backends = self._balancers()
        certificates = certificates_in(self.result, names, self.threshold, self.now)
        self._check_certificates(certificates)
        order = {level: number for number, level in enumerate(Level)}
        return ClusterStatus(
            name=settings.document.metadata.name,
            version=self.cluster.versions.kubernetes,
            endpoint=settings.endpoint,
            load_balancer=settings.load_balancer,
            virtual_address=self._virtual_address,
            etcd=settings.etcd_type,
            asked=self.asked,
            hosts=names,
            unseen=unseen,
            nodes=nodes,
            api_servers=api,
            components=components,
            workloads=workloads,
            members=members,
            balancers=balancers,
            backends=backends,
            certificates=certificates,
            problems=sorted(self.problems, key=lambda each: order[each.level]),
            cancelled=self.result.status is Status.CANCELLED,
        )

    def _problem(self, level: Level, where: str, what: str, advice: str = "") -> None:
        self.problems.append(Problem(level=level, where=where, what=what, advice=advice))

    def _differs(self, where: str, what: str, wanted: str, found: str) -> None:
        if wanted != found:
            self._problem(Level.DRIFT, where, f"{what} is {found or 'not there'}, the document says {wanted}")

    # what API servers say

    def _api_servers(self) -> list[ApiRow]:
        of_hosts = results_of(self.result, "readyz")
        rows = []
        for host in self.settings.control_planes:
            if host.name in self.lost:
                continue
            found = of_hosts.get(host.name)
            ready = found is not None and found.status is Status.SUCCESS
            message = "" if ready or found is None else last_line(found.stderr) or found.message
            lines = (found.stdout + found.stderr).splitlines() if found is not None else []
            failing = [line[3:].split(" ")[0] for line in lines if line.startswith("[-]")]
            rows.append(ApiRow(host=host.name, ready=ready, message=message, failing=failing))
            if not ready:
                what = f"its API server is not ready: {', '.join(failing) or message or 'no answer'}"
                self._problem(Level.FAIL, host.name, what, "crictl ps -a, and journalctl -u kubelet on that host")
        return rows

    def _first(self, step: str, read: Callable[[list[str]], T]) -> list[T]:
        """The lines of the first control plane in the document that has answered."""
        of_hosts = results_of(self.result, step)
        for host in self.settings.control_planes:
            found = of_hosts.get(host.name)
            text = unpacked(found) if found is not None and found.status is Status.SUCCESS else None
            if text is not None:
                self.asked = self.asked or host.name
                return [read(line.split("\t")) for line in text.splitlines() if line.strip()]
        return []

    def _nodes(self) -> list[NodeRow]:
        there: dict[str, list[str]] = {}
        for words in self._first("nodes", lambda words: words):
            if len(words) >= 9:
                there[words[0]] = words
        rows = [self._node(name, there[name], host) for name, host in self.by_node.items() if name in there]
        for name, host in self.by_node.items():
            if name not in there:
                roles = ["control-plane"] if CONTROL_PLANE in host.roles else [WORKER]
                status = "missing" if self.asked else "not known"
                rows.append(NodeRow(name=name, host=host.name, roles=roles, status=status, address=host.ip))
                if self.asked:
                    advice = "create or add-nodes brings it in; or take it out of the document"
                    self._problem(Level.DRIFT, name, "it is in the document, and no node of the cluster", advice)
        order = {name: number for number, name in enumerate(self.by_node)}
        rows.sort(key=lambda row: order[row.name])
        for name in there.keys() - self.by_node.keys():
            rows.append(self._node(name, there[name], None))
            advice = "put it into the document, or remove it: kubectl drain, kubectl delete node"
            self._problem(Level.DRIFT, name, "it is a node of the cluster, and not in the document", advice)
        if not self.asked:
            what = "no control plane answers: nothing is known of nodes and components"
            self._problem(Level.FAIL, "cluster", what, "see what is told of the hosts and their API servers")
        return rows

    def _node(self, name: str, words: list[str], host: ClusterHost | None) -> NodeRow:
        _, created, cordoned, kubelet, runtime, addresses, taints, labels, conditions = words[:9]
        states = {
            parts[0]: (parts[1], parts[2]) for each in conditions.split(";") if len(parts := each.split("=", 2)) == 3
        }
        status, reason = states.get("Ready", ("Unknown", ""))
        pressure = [kind for kind in _PRESSURE if states.get(kind, ("", ""))[0] == "True"]
        found_labels: dict[str, str] = as_json(labels) or {}
        found_taints: list[dict[str, str]] = as_json(taints) or []
        internal = [each.get("address", "") for each in as_json(addresses) or [] if each.get("type") == "InternalIP"]
        roles = [label.removeprefix(_ROLE_LABEL) for label in found_labels if label.startswith(_ROLE_LABEL)]
        row = NodeRow(
            name=name,
            host=host.name if host is not None else "",
            roles=sorted(each for each in roles if each) or [WORKER],
            ready=status == "True",
            status={"True": "Ready", "False": "NotReady"}.get(status, "Unknown"),
            cordoned=cordoned == "true",
            conditions=pressure,
            kubelet=kubelet.removeprefix("v"),
            runtime=runtime.replace("://", " "),
            address=",".join(internal),
            created=created,
            age=age_of(created, self.now),
        )
        if not row.ready:
            said = f": {reason}" if reason else ""
            advice = "journalctl -u kubelet on that host, and kubectl describe node"
            self._problem(Level.FAIL, name, f"the node is {row.status}{said}", advice)
        if row.cordoned:
            self._problem(
                Level.WARN, name, "the node is cordoned: nothing new is scheduled there", f"kubectl uncordon {name}"
            )
        for kind in pressure:
            self._problem(Level.WARN, name, f"the node reports {kind}", "kubectl describe node says why")
        if host is not None:
            self._compare_node(row, host, found_labels, found_taints)
        return row

    def _compare_node(
        self, row: NodeRow, host: ClusterHost, labels: dict[str, str], taints: Sequence[dict[str, str]]
    ) -> None:
        versions = self.cluster.versions
        self._differs(row.name, "kubelet", versions.kubernetes, row.kubelet)
        self._differs(
            row.name, "container runtime", f"containerd {versions.containerd}", row.runtime.replace(" v", " ")
        )
        if host.ip not in row.address.split(","):
            self._differs(row.name, "address", host.ip, row.address)
        if (CONTROL_PLANE in host.roles) != ("control-plane" in row.roles):
            wanted = "a control plane" if CONTROL_PLANE in host.roles else "a worker"
            other = "a worker" if CONTROL_PLANE in host.roles else "a control plane"
            self._differs(row.name, "role", wanted, other)
        for key, value in host.node.labels.items():
            self._differs(row.name, f"label {key}", value, labels.get(key, ""))
        wanted_taints = node_taints(self.settings, host)
        shown = {_taint(each) for each in taints if not str(each.get("key", "")).startswith(_SYSTEM_TAINTS)}
        if wanted_taints is None:
            # Left to kubeadm, which taints control planes.
            shown = {each for each in shown if not each.startswith("node-role.kubernetes.io/control-plane")}
        asked = {_taint(each) for each in wanted_taints or []}
        for each in sorted(asked - shown):
            self._problem(Level.DRIFT, row.name, f"taint {each} is not there, the document has it")
        for each in sorted(shown - asked):
            self._problem(Level.DRIFT, row.name, f"taint {each} is there, the document does not have it")

    def _components(self) -> list[ComponentRow]:
        def row(words: list[str]) -> ComponentRow:
            component, node, image, ready, restarts = (words + [""] * 5)[:5]
            number = int(restarts) if restarts.isdigit() else 0
            return ComponentRow(
                component=component, node=node, version=tag(image), ready=ready == "true", restarts=number
            )

        rows = sorted(self._first("components", row), key=lambda each: (each.component, each.node))
        for each in rows:
            where = f"{each.component} on {each.node}"
            if not each.ready:
                self._problem(
                    Level.FAIL, where, "it is not ready", f"kubectl -n kube-system logs {each.component}-{each.node}"
                )
            if each.component.startswith("kube-"):
                self._differs(where, "version", self.cluster.versions.kubernetes, each.version)
        return rows

    def _workloads(self) -> list[WorkloadRow]:
        def row(words: list[str]) -> WorkloadRow:
            kind, namespace, name, wanted, ready, image = (words + [""] * 6)[:6]
            return WorkloadRow(
                kind=kind, namespace=namespace, name=name, version=tag(image),
                wanted=int(wanted) if wanted.isdigit() else 0, ready=int(ready) if ready.isdigit() else 0,
            )  # fmt: skip

        addons = {addon.namespace for addon in self.settings.document.addons}
        rows = [
            each
            for each in self._first("workloads", row)
            if each.namespace.startswith(_SYSTEM_NAMESPACES) or each.namespace in addons
        ]
        for each in rows:
            if each.ready < each.wanted:
                where = f"{each.namespace}/{each.name}"
                advice = f"kubectl -n {each.namespace} describe {each.kind.lower()} {each.name}"
                self._problem(Level.FAIL, where, f"{each.ready} of {each.wanted} pods are ready", advice)
        return sorted(rows, key=lambda each: (each.namespace, each.name))

    # etcd

    def _members(self) -> list[MemberRow]:
        said = {
            host.name: Member.read(found)
            for host in self.settings.etcd_hosts
            if (found := results_of(self.result, "etcd").get(host.name)) is not None
        }
        listed = next((each.members for each in said.values() if each.members), [])
        alarms = next((each.alarms for each in said.values() if each.members), {})
        by_id = {each.id: (host, each) for host, each in said.items() if each.id}
        own = {
            host.node_name if self.settings.etcd_type == "kubeadm" else host.name: host
            for host in self.settings.etcd_hosts
        }
        rows = []
        for entry in listed:
            member_id, name = entry.get("ID", 0), entry.get("name", "")
            where, status = by_id.get(member_id, ("", None))
            where = where or (own[name].name if name in own else "")
            rows.append(self._member(name, where, member_id, entry, status, alarms.get(member_id, []), said.get(where)))
        seen = {row.host for row in rows}
        for host in self.settings.etcd_hosts:
            if host.name not in seen:
                state = "missing" if listed else "no answer"
                answer = said.get(host.name)
                message = answer.message if answer is not None else ""
                rows.append(MemberRow(name=host.name, host=host.name, state=state, message=message))
                if host.name not in self.lost:
                    what = f"its member is {state}: {message}".removesuffix(": ")
                    self._problem(Level.FAIL, f"etcd on {host.name}", what, self._etcd_advice)
        leaders = [row for row in rows if row.state == "leader"]
        if listed and len(leaders) != 1:
            shown = ", ".join(row.name for row in leaders) or "none"
            self._problem(Level.FAIL, "etcd", f"there has to be one leader, and there is: {shown}")
        for row in rows:
            if row.host == "":
                advice = "put its host into the document, or remove it: etcdctl member remove"
                self._problem(Level.DRIFT, f"etcd member {row.name or row.id}", "it is not in the document", advice)
        return rows

    @property
    def _etcd_advice(self) -> str:
        command = "journalctl -u etcd" if self.settings.etcd_type == "kubexm" else "crictl ps -a --name etcd"
        return f"{command} on its host"

    def _member(
        self, name: str, host: str, member_id: int, entry: dict[str, Any], status: Member | None,
        alarms: list[str], answer: Member | None,
    ) -> MemberRow:  # fmt: skip
        where = f"etcd member {name or f'{member_id:x}'}"
        for alarm in alarms:
            advice = (
                "compact and defragment it, then etcdctl alarm disarm"
                if alarm == "NOSPACE"
                else "restore it from a backup"
            )
            self._problem(Level.FAIL, where, f"it has the alarm {alarm}", advice)
        if status is None:
            state = "no answer" if name else "not started"
            message = answer.message if answer is not None else ""
            if host not in self.lost or not host:
                self._problem(Level.FAIL, where, f"{state}{f': {message}' if message else ''}", self._etcd_advice)
            return MemberRow(name=name, host=host, state=state, id=f"{member_id:x}", alarms=alarms, message=message)
        found = status.status
        state = "leader" if found.get("leader") == member_id else "learner" if entry.get("isLearner") else "follower"
        version = str(found.get("version", ""))
        if self.settings.etcd_type == "kubexm":
            # A stacked one has the version that kubeadm has chosen.
            self._differs(where, "version", self.cluster.versions.etcd, version)
        for error in found.get("errors") or []:
            self._problem(Level.FAIL, where, str(error))
        return MemberRow(
            name=name,
            host=host,
            state=state,
            answers=True,
            version=version,
            size=int(found.get("dbSize", 0)),
            used=int(found.get("dbSizeInUse", 0)),
            quota=int(found.get("dbSizeQuota", 0)),
            raft_index=int(found.get("raftIndex", 0)),
            id=f"{member_id:x}",
            alarms=alarms,
        )

    # load balancers

    @property
    def _virtual_address(self) -> str:
        return self.settings.endpoint_address if self.settings.load_balancer in ("haproxyKeepalived", "kubeVip") else ""

    def _balancers(self) -> tuple[list[BalancerRow], list[BackendRow]]:
        said, addresses = results_of(self.result, "haproxy"), results_of(self.result, "virtual-address")
        hosts = self.settings.balancers or (self.settings.control_planes if self._virtual_address else [])
        rows, backends = [], []
        for host in hosts:
            if host.name in self.lost:
                continue
            found, address = said.get(host.name), addresses.get(host.name)
            has = address is not None and bool(address.stdout.strip())
            if not self.settings.balancers:
                rows.append(BalancerRow(host=host.name, answers=True, has_address=has))
                continue
            seen = list(_backends(host.name, found.stdout if found is not None else ""))
            answers = bool(seen)
            message = "" if answers else "haproxy does not answer"
            rows.append(BalancerRow(host=host.name, answers=answers, message=message, has_address=has))
            backends += seen
            if not answers:
                advice = (
                    "systemctl status haproxy" if self.settings.load_balancer == "haproxyKeepalived" else "crictl ps -a"
                )
                self._problem(Level.FAIL, host.name, message, f"{advice} on that host")
            for each in seen:
                if not each.up:
                    self._problem(
                        Level.FAIL, host.name, f"its load balancer sees {each.server} as {each.state}: {each.check}"
                    )
        if self._virtual_address and len(self.lost) < len(self.hosts):
            holders = [row.host for row in rows if row.has_address]
            if len(holders) != 1:
                what = (
                    f"the virtual address {self._virtual_address} is on {', '.join(holders) or 'no host that answers'}"
                )
                self._problem(Level.FAIL, "load balancer", what, "it has to be on exactly one host")
        return rows, backends

    def _check_certificates(self, found: Certificates) -> None:
        for each in found.due:
            where = f"{each.host}:{each.path}"
            if each.validity is Validity.UNREADABLE:
                self._problem(Level.FAIL, where, "this certificate cannot be read")
            elif each.validity is Validity.EXPIRED:
                self._problem(
                    Level.FAIL, where, f"it has expired on {each.not_after[:10]}", "kubexm cluster renew-certs"
                )
            else:
                what = f"it expires in {each.days_left} days"
                self._problem(Level.WARN, where, what, "kubexm cluster renew-certs")


class Member(Struct, frozen=True, kw_only=True):
    """What a member of etcd has said."""

    id: int = 0
    status: dict[str, Any] = {}
    members: list[dict[str, Any]] = []
    alarms: dict[int, list[str]] = {}
    message: str = ""

    @classmethod
    def read(cls, result: HostResult) -> Member:
        """The three answers, one a line: its status, the list of members, the alarms."""
        answers = [as_json(line) for line in result.stdout.splitlines() if line.startswith(("[", "{"))]
        statuses = next((each for each in answers if isinstance(each, list)), [])
        if not statuses:
            return cls(message=last_line(result.stderr) or result.message)
        status = statuses[0].get("Status") or {}
        members: list[dict[str, Any]] = []
        alarms: dict[int, list[str]] = {}
        for each in answers:
            if isinstance(each, dict):
                members = each.get("members") or members
                for alarm in each.get("alarms") or []:
                    kind = _ALARMS.get(alarm.get("alarm", 0), "unknown")
                    alarms.setdefault(alarm.get("memberID", 0), []).append(kind)
        return cls(id=status.get("header", {}).get("member_id", 0), status=status, members=members, alarms=alarms)


def _backends(balancer: str, text: str) -> Iterator[BackendRow]:
    """The servers in the statistics of haproxy, which follow the head of an answer."""
    _, found, table = _body(text).partition("# pxname,")
    for row in csv.DictReader(("pxname," + table).splitlines()) if found else ():
        if row.get("pxname") == "apiservers" and row.get("svname") not in ("BACKEND", "FRONTEND"):
            state = str(row.get("status") or "")
            sessions = str(row.get("scur") or "")
            yield BackendRow(
                balancer=balancer,
                server=str(row.get("svname") or ""),
                state=state,
                up=state.startswith("UP") or state == "no check",
                check=str(row.get("last_chk") or row.get("check_status") or ""),
                sessions=int(sessions) if sessions.isdigit() else 0,
            )


def _body(text: str) -> str:
    """The body of an answer of HTTP, which may be in chunks."""
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    if "transfer-encoding: chunked" not in head.lower():
        return body
    # Sizes count the line ends as they were sent.
    head, _, rest = text.partition("\r\n\r\n")
    found = ""
    while match := re.match(r"([0-9A-Fa-f]+)[^\n]*\n", rest):
        size = int(match[1], 16)
        if size == 0:
            break
        found += rest[match.end() : match.end() + size]
        rest = rest[match.end() + size :].removeprefix("\r\n")
    return found


def unpacked(result: HostResult) -> str | None:
    """The text that a step has sent compressed; None if it is not whole."""
    try:
        return zlib.decompress(base64.b64decode(result.stdout.strip(), validate=True), 31).decode("utf-8", "replace")
    except (binascii.Error, ValueError, zlib.error):
        return None


def as_json(text: str) -> Any:
    """The value in a text; None if there is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def age_of(created: str, now: datetime) -> float | None:
    """Seconds since a time of Kubernetes."""
    try:
        return max(0.0, (now - datetime.fromisoformat(created)).total_seconds())
    except ValueError:
        return None


def tag(image: str) -> str:
    """The version in the reference of an image: its tag without what follows the version proper."""
    name = image.partition("@")[0]
    _, colon, found = name.rpartition(":")
    return found.removeprefix("v") if colon and "/" not in found else ""


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _taint(taint: dict[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"

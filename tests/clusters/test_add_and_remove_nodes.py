"""`kubexm cluster add-nodes` and `remove-nodes`: who takes part, in which order, and what is refused before that."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections.abc import Mapping

import networkx
import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main
from kubexm_exec.compile import compile_pipeline
from kubexm_exec.model.graph import ExecutionGraph, Hook
from kubexm_spec.clusters.build import FLOWS, Asked, pipeline_text
from kubexm_spec.clusters.membership import Membership, check_joining, check_leaving, membership_of, named_nodes
from kubexm_spec.diagnostics import Diagnostics
from tests.clusters.kit import HIGHLY_AVAILABLE, checked
from tests.clusters.test_build import GOLDEN, KEEPALIVED, document, pairwise

STACKED = HIGHLY_AVAILABLE.replace("[controlPlane, etcd]", "[controlPlane]")
GROWN = STACKED.replace("worker[1:2]", "worker[1:3]").replace("[11:12]", "[11:13]")
NODES = {f"cp{number}": True for number in (1, 2, 3)} | {f"worker{number}": True for number in (1, 2)}
MEMBERS = {f"cp{number}": True for number in (1, 2, 3)}


def built(folder: pathlib.Path, text: str, flow: str, asked: Asked) -> str:
    return pipeline_text(FLOWS[flow](checked(folder, text), asked), "cluster.yaml")


def compiled(folder: pathlib.Path, text: str, flow: str, asked: Asked) -> ExecutionGraph:
    path = folder / "pipeline.yaml"
    path.write_text(built(folder, text, flow, asked), "utf-8")
    return compile_pipeline(path)


def touched(graph: ExecutionGraph) -> dict[str, set[str]]:
    """By host the work that is done there, for itself or for another one; but for the look whether it is ready."""
    found: dict[str, set[str]] = {}
    for node in graph.nodes.values():
        for host in node.hosts:
            if node.step_name not in ("", "ready"):
                found.setdefault(node.places.get(host, host), set()).add(node.id)
    return found


def before(graph: ExecutionGraph, first: str, second: str) -> bool:
    order: networkx.DiGraph[str] = networkx.DiGraph()
    for node in graph.nodes.values():
        order.add_edges_from((each.node, node.id) for each in node.dependencies)
    return bool(networkx.has_path(order, first, second))


@pytest.mark.parametrize(
    ("name", "text", "flow", "asked"),
    [
        ("add-worker", GROWN, "add-nodes", Asked(nodes=("worker3",))),
        ("add-control-planes", STACKED, "add-nodes", Asked(nodes=("cp1", "cp3"), through="cp2")),
        ("remove-nodes", STACKED, "remove-nodes", Asked(nodes=("cp1", "cp3", "worker2"), gone=("cp3",))),
        ("remove-member-of-etcd", HIGHLY_AVAILABLE + KEEPALIVED, "remove-nodes", Asked(nodes=("cp1",))),
        ("membership", STACKED, "membership", Asked(through="cp2", probed=("cp1",))),
    ],
)
def test_the_pipeline_is_what_is_kept(name: str, text: str, flow: str, asked: Asked, tmp_path: pathlib.Path) -> None:
    found = built(tmp_path, text, flow, asked)
    golden = GOLDEN / "nodes" / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, "utf-8")
    assert found == golden.read_text("utf-8")
    assert found == built(tmp_path, text, flow, asked)


@pytest.mark.parametrize("choice", list(pairwise()), ids="-".join)
def test_nodes_come_and_go_with_every_two_choices_together(choice: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("a certificate\n")
    text, etcd, balancer = document(*choice), choice[1], choice[2]
    several = balancer != "none"
    nodes = ("cp1", "worker2") if several else ("worker2",)
    joining = compiled(tmp_path, text, "add-nodes", Asked(nodes=nodes))
    assert set(joining.hosts) - {"control-node"} >= {*nodes}
    # A control plane has from another one what makes it a client of an etcd beside Kubernetes.
    copied = json.dumps(dict(joining.scopes["more-control-planes"].params)) if several else ""
    assert ("apiserver-etcd-client.key" in copied) == (several and etcd != "kubeadm")
    leaving = compiled(tmp_path, text, "remove-nodes", Asked(nodes=nodes))
    assert ("etcd-leave/leave/member" in leaving.nodes) == (several and etcd == "kubexm")
    for graph in (joining, leaving):
        modules = {node.module for node in graph.nodes.values()}
        assert ("load-balancer" in modules) == (balancer in ("local", "haproxyKeepalived"))


def test_a_new_worker_costs_itself_and_one_control_plane_which_only_gives_a_token(tmp_path: pathlib.Path) -> None:
    work = touched(compiled(tmp_path, GROWN, "add-nodes", Asked(nodes=("worker3",), through="cp2")))
    assert set(work) == {"worker3", "cp2"}
    assert work["cp2"] == {"workers/join/token", "joined/ready/nodes"}


def test_load_balancers_learn_of_a_new_control_plane_and_nothing_else_is_touched(tmp_path: pathlib.Path) -> None:
    work = touched(compiled(tmp_path, STACKED, "add-nodes", Asked(nodes=("cp3",))))
    assert set(work) == {"cp1", "cp3", "worker1", "worker2"}
    assert {each.partition("/")[0] for each in work["worker1"]} == {"load-balancer"}
    given = {"more-control-planes/join/token", "more-control-planes/join/authorities", "joined/ready/nodes"}
    assert work["cp1"] == given


def test_a_host_that_does_not_answer_is_left_out(tmp_path: pathlib.Path) -> None:
    asked = Asked(nodes=("cp3",), silent=("worker1",))
    assert set(touched(compiled(tmp_path, STACKED, "add-nodes", asked))) == {"cp1", "cp3", "worker2"}


def test_control_planes_join_one_by_one_before_workers_which_join_together(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, GROWN, "add-nodes", Asked(nodes=("cp2", "cp3", "worker2", "worker3")))
    gates = [each for each in graph.nodes["more-control-planes/join/joined"].dependencies if "#batch" in each.node]
    assert [each.hosts for each in gates] == [("cp3",)]
    assert not [each for each in graph.nodes["workers/join/joined"].dependencies if "#batch" in each.node]
    assert before(graph, "more-control-planes/join/answers", "workers/join/join")


def test_control_planes_leave_one_by_one_and_what_leads_to_that_is_in_order(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, STACKED, "remove-nodes", Asked(nodes=("cp1", "cp2", "worker2")))
    assert set(touched(graph)) == {"cp1", "cp2", "cp3", "worker1", "worker2"}
    leave = "remove-control-planes/leave"
    gates = [
        each for each in graph.nodes[f"{leave}/hostHooks/pre/cordon"].dependencies if "#batch" in each.node
    ]  # fmt: skip
    assert [each.hosts for each in gates] == [("cp2",)]
    chain = ["load-balancer/balancers/pod", f"{leave}/hostHooks/pre/cordon", f"{leave}/hostHooks/pre/drain"]
    chain += [f"{leave}/volumes", f"{leave}/member", f"{leave}/node", f"{leave}/kubeadm", "reset/hosts/files"]
    for first, second in itertools.pairwise(chain):
        assert before(graph, first, second), (first, second)
    # The servers of the load balancer are those that stay, on hosts that stay.
    assert [each["name"] for each in graph.scopes["load-balancer"].params["servers"]] == ["cp3"]
    assert graph.nodes["load-balancer/balancers/config"].hosts == ("worker1",)


def test_every_node_that_is_cordoned_takes_pods_again_if_it_stays(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, STACKED, "remove-nodes", Asked(nodes=("cp1", "worker1", "worker2"), gone=("worker1",)))
    cordons = [node for node in graph.nodes.values() if node.with_.get("schedulable") is False]
    assert {host for node in cordons for host in node.hosts} == {"cp1", "worker2"}
    for cordon in cordons:
        always = graph.nodes[f"{cordon.module}/{cordon.task}/hostHooks/always/uncordon"]
        assert always.hook is Hook.ALWAYS
        assert always.hosts == cordon.hosts
        assert (always.with_["schedulable"], always.with_["ifExists"]) == (True, True)


def test_nothing_is_done_on_a_host_that_is_gone(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, STACKED, "remove-nodes", Asked(nodes=("cp1",), gone=("cp1",)))
    assert "cp1" not in graph.hosts
    assert set(touched(graph)) == {"cp2", "worker1", "worker2"}
    assert before(graph, "remove-gone/members/member[cp1]", "remove-gone/nodes/node[cp1]")


def test_the_ca_of_etcd_is_handed_over_before_its_keeper_leaves(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, HIGHLY_AVAILABLE, "remove-nodes", Asked(nodes=("cp1",)))
    assert graph.nodes["etcd-leave/leave/handover"].places == {"cp1": "cp2"}
    assert before(graph, "etcd-leave/leave/handover", "etcd-leave/leave/member")
    assert before(graph, "etcd-leave/leave/member", "reset/hosts/etcd")


def test_a_module_of_the_user_goes_round_the_removal(tmp_path: pathlib.Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "apiVersion: kubexm.io/v1\nkind: Module\nmetadata: {name: agent}\n"
        "tasks: [{name: tell, steps: [{name: say, type: message, with: {text: hello}}]}]\n"
    )
    hooks = "hooks: {removeNode: {before: [{uses: agent.yaml}]}}\n"
    graph = compiled(tmp_path, STACKED + hooks, "remove-nodes", Asked(nodes=("worker2",)))
    assert graph.nodes["before-remove-node-1/tell/say"].hosts == ("worker2",)
    assert before(graph, "before-remove-node-1/tell/say", "remove-workers/leave/hostHooks/pre/cordon")


# what is refused


def membership(
    nodes: Mapping[str, bool] | None = None, members: Mapping[str, bool] | None = None, **more: str
) -> Membership:
    endpoint = more.get("endpoint", "api.lab.internal:6443")
    return Membership(
        through="cp2",
        nodes=NODES if nodes is None else nodes,
        endpoint=endpoint,
        version=more.get("version", "1.36.4"),
        members=MEMBERS if members is None else members,
    )


def said(found: Diagnostics) -> list[str]:
    return [str(each) for each in found]


def leaving(
    folder: pathlib.Path, names: str, known: Membership | None, text: str = STACKED, gone: tuple[str, ...] = ()
) -> list[str]:
    cluster, found = checked(folder, text), Diagnostics()
    check_leaving(cluster, named_nodes(cluster, names.split(","), found), gone, known, found)
    return said(found)


def joining(folder: pathlib.Path, names: str, known: Membership, text: str = STACKED) -> list[str]:
    cluster, found = checked(folder, text), Diagnostics()
    check_joining(cluster, named_nodes(cluster, names.split(","), found), known, found)
    return said(found)


def test_any_control_plane_can_leave_and_any_node_can_join(tmp_path: pathlib.Path) -> None:
    assert leaving(tmp_path, "cp1", membership()) == []
    assert leaving(tmp_path, "cp1,cp2", membership()) == []
    assert joining(tmp_path, "cp3", membership({"cp1": True, "worker1": True}, {"cp1": True})) == []


def test_unknown_hosts_and_hosts_that_are_no_nodes_are_told(tmp_path: pathlib.Path) -> None:
    text = STACKED + "  - {name: db1, address: 10.0.0.31, roles: [etcd]}\n"
    cluster, found = checked(tmp_path, text), Diagnostics()
    assert named_nodes(cluster, ["wroker1", "db1", "cp[1:2]"], found)
    first, second = said(found)
    assert first.startswith('cluster.yaml:5:1: error[unknown-host]: there is no host "wroker1" in the document')
    assert 'did you mean "worker1"' in first
    assert second.startswith('cluster.yaml:8:5: error[not-a-node]: host "db1" is no node of Kubernetes (roles: etcd)')


def test_the_last_control_plane_stays(tmp_path: pathlib.Path) -> None:
    (finding,) = leaving(tmp_path, "cp*", None)
    assert finding.startswith("cluster.yaml:6:5: error[last-control-plane]: all 3 control planes would leave")
    assert "kubexm cluster reset" in finding


def test_a_removal_that_would_cost_the_quorum_is_refused(tmp_path: pathlib.Path) -> None:
    (finding,) = leaving(tmp_path, "cp1", membership(members={"cp1": True, "cp2": True, "cp3": False}))
    assert finding.startswith(
        'cluster.yaml:6:5: error[quorum]: without host "cp1", 1 of the 2 members of etcd that stay'
    )
    assert "start or remove cp3 first" in finding


def test_dead_members_leave_first_so_that_others_can_follow(tmp_path: pathlib.Path) -> None:
    known = membership(nodes=NODES | {"cp3": False}, members=MEMBERS | {"cp3": False})
    assert leaving(tmp_path, "cp1,cp3", known, gone=("cp3",)) == []


def test_a_host_whose_node_is_ready_is_not_dead(tmp_path: pathlib.Path) -> None:
    (finding,) = leaving(tmp_path, "worker1", membership(), gone=("worker1",))
    assert 'error[not-dead]: host "worker1" does not answer, but its node is Ready' in finding


def test_the_host_of_the_endpoint_stays(tmp_path: pathlib.Path) -> None:
    text = STACKED + "loadBalancer: {type: none}\ncontrolPlaneEndpoint: {address: 10.0.0.1}\n"
    (finding,) = leaving(tmp_path, "cp1", membership(), text)
    assert 'error[endpoint-leaves]: host "cp1" has the address of the endpoint, 10.0.0.1:6443' in finding


def test_the_last_worker_stays_if_the_load_balancer_runs_on_workers(tmp_path: pathlib.Path) -> None:
    (finding,) = leaving(tmp_path, "worker*", membership())
    assert "error[last-worker]: all workers would leave" in finding


def test_all_members_of_an_etcd_of_ours_stay(tmp_path: pathlib.Path) -> None:
    text = HIGHLY_AVAILABLE.replace("[controlPlane, etcd]", "[controlPlane]").replace("[worker]", "[worker, etcd]")
    text += "loadBalancer: {type: haproxyKeepalived}\ncontrolPlaneEndpoint: {address: 10.0.0.100}\n"
    (finding,) = leaving(tmp_path, "worker*", None, text)
    assert "error[quorum]: all 2 members of etcd would leave" in finding


def test_an_endpoint_that_is_not_that_of_the_cluster_is_refused(tmp_path: pathlib.Path) -> None:
    (finding,) = joining(tmp_path, "cp2", membership({"cp1": True}, {"cp1": True}, endpoint="10.0.0.1:6443"))
    assert "the endpoint of the cluster is 10.0.0.1:6443, that of the document is api.lab.internal:6443" in finding
    assert "the default depends on the number of control planes" in finding


def test_nodes_of_another_version_are_refused(tmp_path: pathlib.Path) -> None:
    (finding,) = joining(tmp_path, "worker2", membership({"cp1": True}, {"cp1": True}, version="1.35.8"))
    assert finding.startswith("cluster.yaml:4:23: error[another-version]: the cluster has Kubernetes 1.35.8")


def test_nobody_joins_an_etcd_with_a_dead_member_but_workers_do_join(tmp_path: pathlib.Path) -> None:
    known = membership({"cp1": True, "cp2": False}, {"cp1": True, "cp2": False})
    (finding,) = joining(tmp_path, "cp3,worker1", known)
    assert 'error[dead-member]: host "cp3" would be one more member of an etcd in which cp2 does not answer' in finding


def test_a_new_member_of_an_etcd_of_ours_is_not_added(tmp_path: pathlib.Path) -> None:
    (finding,) = joining(tmp_path, "cp3", membership({"cp1": True}, {"cp1": True}), HIGHLY_AVAILABLE)
    assert 'error[member-of-etcd]: host "cp3" is a member of etcd in the document' in finding


def test_what_programs_say_is_read() -> None:
    members = {
        "members": [
            {"ID": 1, "name": "cp1", "clientURLs": ["https://10.0.0.1:2379"]},
            {"ID": 2, "name": "cp2", "clientURLs": ["https://10.0.0.2:2379"]},
            {"ID": 255, "peerURLs": ["https://10.0.0.4:2380"]},
            {"ID": 3, "name": "cp3", "clientURLs": ["https://10.0.0.3:2379"], "isLearner": True},
        ]
    }
    health = [
        {"endpoint": "https://10.0.0.1:2379", "health": True},
        {"endpoint": "https://10.0.0.2:2379", "health": False, "error": "context deadline exceeded"},
    ]
    found = membership_of(
        "cp1",
        {
            "nodes": "cp1\tTrue\ncp2\tUnknown\nworker1\t\n",
            "configuration": "apiVersion: kubeadm.k8s.io/v1beta4\ncontrolPlaneEndpoint: api.lab.internal:6443\n"
            "kubernetesVersion: v1.36.4\n",
            "members": json.dumps(members),
            "health": json.dumps(health),
        },
        {"worker1": "no route"},
    )
    assert found == Membership(
        through="cp1",
        nodes={"cp1": True, "cp2": False, "worker1": False},
        endpoint="api.lab.internal:6443",
        version="1.36.4",
        members={"cp1": True, "cp2": False, "ff": False},
        silent={"worker1": "no route"},
    )


# the commands

NOBODY = """\
apiVersion: kubexm.io/v1
kind: Cluster
metadata: {name: lab}
kubernetes: {version: 1.36.4}
defaults: {port: 1}
hosts:
  - {name: cp1, address: 127.0.0.1, internalAddress: 10.0.0.1, roles: [controlPlane]}
  - {name: cp2, address: 127.0.0.1, internalAddress: 10.0.0.2, roles: [controlPlane]}
  - {name: worker1, address: 127.0.0.1, internalAddress: 10.0.0.11, roles: [worker]}
"""


@pytest.fixture
def nobody(tmp_path: pathlib.Path) -> str:
    """A cluster of which no host answers."""
    path = tmp_path / "cluster.yaml"
    path.write_text(NOBODY)
    return str(path)


def told(*words: str, code: int) -> str:
    result = CliRunner().invoke(main, ["cluster", *words, "--no-journal"])
    assert result.exit_code == code, result.output
    return result.output


def test_nothing_is_removed_without_a_selection(nobody: str) -> None:
    assert "name them with --nodes" in told("remove-nodes", "-f", nobody, "--yes", code=2)
    assert "--nodes names no host" in told("remove-nodes", "-f", nobody, "--yes", "--nodes", ",", code=2)
    assert "leave out --limit" in told("add-nodes", "-f", nobody, "--nodes", "cp1", "--limit", "cp2", code=2)


def test_a_dry_run_contacts_nobody_and_so_has_to_be_told_the_hosts(nobody: str) -> None:
    assert "name them with --nodes" in told("add-nodes", "-f", nobody, "--executor", "dry-run", code=2)
    shown = told("add-nodes", "-f", nobody, "--limit", "worker1", "--executor", "dry-run", code=0)
    assert "on cp1 for worker1" in shown
    shown = told("remove-nodes", "-f", nobody, "--nodes", "cp1", "--dead", "--executor", "dry-run", code=0)
    assert "member[cp1]  etcd-member  on cp2" in shown


def test_a_cluster_in_which_no_control_plane_answers_is_left_alone(nobody: str) -> None:
    shown = told("add-nodes", "-f", nobody, code=3)
    assert "no control plane answers for the cluster: cp1: host cp1 cannot be reached" in shown
    assert "cp2: host cp2 cannot be reached" in shown
    shown = told("remove-nodes", "-f", nobody, "--nodes", "cp1", "--dead", "--yes", code=3)
    assert "cp1:" not in shown

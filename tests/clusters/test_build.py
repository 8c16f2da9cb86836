"""The builder: the same document gives the same pipeline, which compiles for every choice and keeps its order."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator

import networkx
import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main
from kubexm_exec.compile import compile_pipeline
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_spec.clusters.build import build_create, pipeline_text
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked

GOLDEN = pathlib.Path(__file__).with_name("golden")
KEEPALIVED = """\
controlPlaneEndpoint: {address: 10.0.0.100, domain: api.lab.example.org}
loadBalancer: {type: haproxyKeepalived, keepalived: {authPass: "env:VRRP_PASSWORD"}}
network: {plugin: flannel}
registry: {mirrors: {docker.io: "https://mirror.example.org"}}
"""
EXTERNAL = """\
etcd:
  type: external
  external: {endpoints: ["https://10.0.0.91:2379"], ca: pki/ca.crt, cert: "env:ETCD_CERT", key: "env:ETCD_KEY"}
"""
DOCUMENTS = {
    "smallest": SMALLEST,
    "highly-available": HIGHLY_AVAILABLE,
    "haproxy-keepalived": HIGHLY_AVAILABLE + KEEPALIVED,
}
CHOICES: dict[str, tuple[str, ...]] = {
    "version": ("1.36.4", "1.35.8", "1.34.11"),
    "etcd": ("kubeadm", "kubexm", "external"),
    "balancer": ("none", "local", "haproxyKeepalived", "kubeVip", "external"),
    "plugin": ("calico", "flannel", "none"),
    "proxy": ("auto", "iptables", "nftables", "ipvs"),
}


def pairwise() -> Iterator[tuple[str, ...]]:
    """Choices in which every two values of two different ones come together at least once."""

    def pairs(row: tuple[str, ...]) -> set[tuple[tuple[int, str], tuple[int, str]]]:
        return set(itertools.combinations(enumerate(row), 2))

    rows = list(itertools.product(*CHOICES.values()))
    left = set().union(*map(pairs, rows))
    while left:
        best = max(rows, key=lambda row: len(pairs(row) & left))
        left -= pairs(best)
        yield best


def document(version: str, etcd: str, balancer: str, plugin: str, proxy: str) -> str:
    roles = "[controlPlane, etcd]" if etcd == "kubexm" else "[controlPlane]"
    hosts = '"cp[1:3]", address: "10.0.0.[1:3]"' if balancer != "none" else "cp1, address: 10.0.0.1"
    mode = "" if proxy == "auto" else f", proxy: {{mode: {proxy}}}"
    endpoint = "" if balancer in ("none", "local") else "controlPlaneEndpoint: {address: 10.0.0.100}\n"
    return (
        "apiVersion: kubexm.io/v1\nkind: Cluster\nmetadata: {name: lab}\n"
        f"kubernetes: {{version: {version}{mode}}}\n"
        f"hosts:\n  - {{name: {hosts}, roles: {roles}}}\n"
        '  - {name: "worker[1:2]", address: "10.0.0.[11:12]", roles: [worker]}\n'
        f"{endpoint}loadBalancer: {{type: {balancer}}}\nnetwork: {{plugin: {plugin}}}\n"
        f"{EXTERNAL if etcd == 'external' else ''}"
    )


def built(folder: pathlib.Path, text: str) -> str:
    return pipeline_text(build_create(checked(folder, text)), "cluster.yaml")


def compiled(folder: pathlib.Path, text: str) -> ExecutionGraph:
    path = folder / "pipeline.yaml"
    path.write_text(built(folder, text), "utf-8")
    return compile_pipeline(path)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_pipeline_of_a_document_is_what_is_kept(name: str, tmp_path: pathlib.Path) -> None:
    text = built(tmp_path, DOCUMENTS[name])
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")
    assert text == built(tmp_path, DOCUMENTS[name])


@pytest.mark.parametrize("choice", list(pairwise()), ids="-".join)
def test_every_two_choices_together_compile(choice: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("a certificate\n")
    graph = compiled(tmp_path, document(*choice))
    names = {node.scope.partition("/")[0] for node in graph.nodes.values()}
    assert "control-plane" in names
    assert ("etcd" in names) == (choice[1] != "kubeadm")
    assert ("network" in names) == (choice[3] != "none")
    assert ("load-balancer" in names) == (choice[2] in ("local", "haproxyKeepalived", "kubeVip"))


def test_what_comes_first_is_done_first(tmp_path: pathlib.Path) -> None:
    graph = compiled(tmp_path, HIGHLY_AVAILABLE)
    order: networkx.DiGraph[str] = networkx.DiGraph()
    for node in graph.nodes.values():
        order.add_edges_from((each.node, node.id) for each in node.dependencies)
    chain = [
        "prepare/system/sysctl",
        "etcd/authority/ca",
        "etcd/certificates/server",
        "etcd/healthy/members",
        "control-plane/init/init",
        "workers/join/join",
        "network/apply/apply",
    ]
    for before, after in itertools.pairwise(chain):
        assert networkx.has_path(order, before, after), (before, after)
    # One control plane at a time: the third waits at a gate until the second has joined.
    gates = [
        edge for edge in graph.nodes["more-control-planes/join/joined"].dependencies if edge.node.endswith("#batch2")
    ]
    assert [edge.hosts for edge in gates] == [("cp3",)]


def test_a_cluster_is_built_by_the_program_and_what_it_prints_is_valid(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(HIGHLY_AVAILABLE)
    result = CliRunner().invoke(main, ["cluster", "build", "-f", "cluster.yaml", "-o", "pipeline.yaml"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["validate", "pipeline.yaml"])
    assert result.exit_code == 0, result.output


def test_a_module_of_the_user_comes_before_and_after_a_part(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.yaml").write_text(
        """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: agent}
params: {text: {type: string}}
tasks:
  - name: tell
    steps: [{name: say, type: message, with: {text: "{{ params.text }}"}}]
"""
    )
    hooks = """\
hooks:
  prepare: {after: [{uses: agent.yaml, with: {text: hello}}]}
  workers: {before: [{name: mine, uses: agent.yaml, with: {text: hello}}]}
"""
    names = [module["name"] for module in build_create(checked(tmp_path, HIGHLY_AVAILABLE + hooks))["modules"]]
    assert names.index("after-prepare-1") == names.index("prepare") + 1
    assert names.index("mine") == names.index("workers") - 1
    result = CliRunner().invoke(main, ["cluster", "create", "-f", "cluster.yaml", "--executor", "dry-run"])
    assert result.exit_code == 0, result.output
    assert "mine/tell/say" in result.output

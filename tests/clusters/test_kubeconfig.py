"""`kubexm cluster kubeconfig`: from a living control plane, for its owner alone, and nothing of others replaced."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from kubexm_exec.cli.targets import Product
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, NodeResult, Status
from kubexm_exec.service.errors import Invalid, Refused
from kubexm_exec.service.kubeconfig import Kubeconfig, NoKubeconfig, kubeconfig_in, kubeconfig_text, merged
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked

ADMIN = """\
apiVersion: v1
clusters:
- {cluster: {certificate-authority-data: Q0E=, server: "https://api.lab.internal:6443"}, name: kubernetes}
contexts:
- {context: {cluster: kubernetes, user: kubernetes-admin}, name: kubernetes-admin@kubernetes}
current-context: kubernetes-admin@kubernetes
kind: Config
users:
- {name: kubernetes-admin, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
"""
OTHER = """\
# mine
apiVersion: v1
kind: Config
current-context: home
clusters:
- {name: home, cluster: {server: "https://home:6443"}}
contexts:
- {name: home, context: {cluster: home, user: me}}
users:
- {name: me, user: {token: secret}}
"""


def found_in(tmp_path: pathlib.Path, document: str, **said: str) -> Kubeconfig | NoKubeconfig:
    """From what control planes have said; an empty text is no answer."""
    results = {
        host: HostResult(host_name=host, status=Status.SUCCESS, stdout=text)
        if text
        else HostResult(host_name=host, status=Status.FAILED, kind=FailureKind.UNREACHABLE, message="no route")
        for host, text in said.items()
    }
    node = NodeResult(node_name="kubeconfig", step_name="command", host_results=results)
    result = GraphExecutionResult(
        graph_name="kubeconfig-lab", status=Status.SUCCESS, node_results={"kubeconfig/look/kubeconfig": node}
    )
    return kubeconfig_in(result, checked(tmp_path, document).settings)


def one(tmp_path: pathlib.Path, more: str = "") -> Kubeconfig:
    found = found_in(tmp_path, SMALLEST + more, cp1=ADMIN)
    assert isinstance(found, Kubeconfig)
    return found


def test_the_first_control_plane_that_answers_gives_it_and_the_server_can_be_reached(tmp_path: pathlib.Path) -> None:
    found = found_in(tmp_path, HIGHLY_AVAILABLE, cp1="", cp2="not: a config", cp3=ADMIN)
    assert isinstance(found, Kubeconfig)
    # The name of a local load balancer means something on nodes alone.
    assert (found.host, found.server) == ("cp3", "https://10.0.0.3:6443")
    vip = "loadBalancer: {type: kubeVip}\ncontrolPlaneEndpoint: {address: 10.0.0.100, domain: api.example.org}\n"
    other = found_in(tmp_path, HIGHLY_AVAILABLE + vip, cp1=ADMIN)
    assert isinstance(other, Kubeconfig)
    assert (other.host, other.server) == ("cp1", "https://api.example.org:6443")
    nobody = found_in(tmp_path, HIGHLY_AVAILABLE, cp1="", cp2="")
    assert isinstance(nobody, NoKubeconfig)
    assert [each.host for each in nobody.unseen] == ["cp1", "cp2", "cp3"]


def test_a_file_of_its_own_is_one_that_kubectl_takes_and_that_is_recognised_later(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lab.kubeconfig"
    path.write_text(kubeconfig_text(one(tmp_path), "cluster.yaml"))
    assert Product.KUBECONFIG.made(str(path))
    data = YAML(typ="safe").load(path)
    assert data["current-context"] == "lab"
    assert data["users"][0]["user"] == {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    if shutil.which("kubectl"):
        words = ["kubectl", "--kubeconfig", str(path), "config", "view", "--raw", "-o", "json"]
        shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        cluster = json.loads(shown.stdout)["clusters"][0]["cluster"]
        assert cluster["server"] == "https://10.0.0.1:6443"
        assert cluster["certificate-authority-data"] == "Q0E="


def test_merging_keeps_what_is_there_and_a_second_time_changes_nothing(tmp_path: pathlib.Path) -> None:
    found = one(tmp_path)
    once = merged(found, OTHER, "config", force=False)
    assert once.startswith("# mine\n")
    data = YAML(typ="safe").load(once)
    assert [each["name"] for each in data["clusters"]] == ["home", "lab"]
    assert data["current-context"] == "home"
    assert merged(found, once, "config", force=False) == once
    # Renewed certificates replace those of before.
    renewed = found_in(tmp_path, SMALLEST, cp1=ADMIN.replace("Y2VydA==", "bmV3"))
    assert isinstance(renewed, Kubeconfig)
    users = YAML(typ="safe").load(merged(renewed, once, "config", force=False))["users"]
    assert [each["user"].get("client-certificate-data") for each in users] == [None, "bmV3"]
    alone = YAML(typ="safe").load(merged(found, "", "config", force=False))
    assert alone["current-context"] == "lab"


def test_an_entry_of_another_cluster_is_replaced_by_force_alone(tmp_path: pathlib.Path) -> None:
    found, theirs = one(tmp_path), OTHER.replace("name: home", "name: lab")
    with pytest.raises(Refused, match='an entry "lab" in clusters'):
        merged(found, theirs, "config", force=False)
    data = YAML(typ="safe").load(merged(found, theirs, "config", force=True))
    assert [each["cluster"]["server"] for each in data["clusters"]] == ["https://10.0.0.1:6443"]
    for wrong in ("kind: Pod\n", "a: [\n", "kind: Config\nclusters: 3\n", "kind: Config\nusers: [1]\n"):
        with pytest.raises(Invalid, match="config is no kubeconfig"):
            merged(found, wrong, "config", force=False)


def test_other_files_are_not_replaced_and_nothing_is_written_if_nobody_answers(tmp_path: pathlib.Path) -> None:
    document, target = tmp_path / "cluster.yaml", tmp_path / "mine.txt"
    document.write_text(SMALLEST.replace("address: 10.0.0.1", "address: 127.0.0.1, port: 1"))
    target.write_text("precious\n")
    refused = CliRunner().invoke(main, ["cluster", "kubeconfig", "-f", str(document), "-o", str(target)])
    assert refused.exit_code == 2
    assert "is not a kubeconfig of kubexm" in refused.output
    itself = CliRunner().invoke(main, ["cluster", "kubeconfig", "-f", str(document), "-o", str(document)])
    assert itself.exit_code == 2
    both = CliRunner().invoke(main, ["cluster", "kubeconfig", "-f", str(document), "-o", "-", "--merge"])
    assert both.exit_code == 2
    nobody = CliRunner().invoke(main, ["cluster", "kubeconfig", "-f", str(document), "-o", str(tmp_path / "new")])
    assert nobody.exit_code == 1, nobody.output
    assert "no control plane has answered" in nobody.output
    assert not (tmp_path / "new").exists()
    assert target.read_text() == "precious\n"

"""`kubexm cluster convert`: documents of others as valid ones of ours, and every loss told with its place."""

from __future__ import annotations

import copy
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from kubexm_exec.service.convert import _read, convert
from kubexm_exec.service.errors import Invalid
from kubexm_spec.clusters.convert_kubekey import convert_kubekey, convert_kubexm_go
from kubexm_spec.clusters.convert_kubespray import convert_kubespray
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.yaml.source import SourceFile

FOREIGN = pathlib.Path(__file__).with_name("foreign")
GOLDEN = pathlib.Path(__file__).with_name("golden")
INPUTS = {
    "kubekey": "kubekey.yaml",
    "kubexm-go": "kubexm-go.yaml",
    "kubespray": "kubespray/hosts.yaml",
    "kubespray-ini": "kubespray/inventory.ini",
}
KUBEKEY = """\
apiVersion: kubekey.kubesphere.io/v1alpha2
kind: Cluster
metadata: {name: small}
spec:
  hosts: [{name: node1, address: 10.0.0.1}]
  roleGroups: {etcd: [node1], control-plane: [node1], worker: [node1]}
  kubernetes: {version: v1.36.4}
"""


@pytest.mark.parametrize("name", INPUTS)
def test_realistic_documents_become_valid_ones_with_all_losses_told(name: str) -> None:
    made = convert(INPUTS[name], str(FOREIGN), "", "cluster.yaml")
    assert [str(each) for each in made.findings.errors] == []
    golden = GOLDEN / f"converted-{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(made.text, "utf-8")
    assert made.text == golden.read_text("utf-8")
    for word in ("Qcloud@123", "Harbor12345", "global_password", "adminPassword=Secret"):
        assert word not in made.text, "secrets are not copied"
    assert all(each.span is not None for each in made.lost)


def test_the_smallest_document_loses_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kk.yaml").write_text(KUBEKEY)
    made = convert("kk.yaml", str(tmp_path), "kubekey", "cluster.yaml")
    assert not made.findings.has_errors, made.findings.errors
    assert len(made.lost) == 0
    assert made.data == {
        "apiVersion": "kubexm.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "small"},
        "kubernetes": {"version": "1.36.4", "schedulableControlPlane": True},
        "hosts": [{"name": "node1", "address": "10.0.0.1"}],
        "roleGroups": {"etcd": ["node1"], "controlPlane": ["node1"], "worker": ["node1"]},
    }


@pytest.mark.parametrize(
    ("more", "load_balancer"),
    [
        ("internalLoadbalancer: haproxy, domain: lb.example.org", "local"),
        ("internalLoadbalancer: kubevip, address: 10.0.0.100, kubevip: {mode: ARP}", "kubeVip"),
        ("domain: lb.example.org, address: 10.9.0.1, port: 6443", "external"),
    ],
)
def test_each_load_balancer_of_kubekey_has_its_counterpart(
    more: str, load_balancer: str, tmp_path: pathlib.Path
) -> None:
    hosts = ", ".join(f"{{name: node{each}, address: 10.0.0.{each}}}" for each in range(1, 5))
    text = KUBEKEY.replace("{name: node1, address: 10.0.0.1}", hosts).replace("[node1]", "[node1, node2, node3]")
    text = text.replace("worker: [node1, node2, node3]", "worker: [node4]") + f"  controlPlaneEndpoint: {{{more}}}\n"
    (tmp_path / "kk.yaml").write_text(text)
    made = convert("kk.yaml", str(tmp_path), "", "cluster.yaml")
    assert not made.findings.has_errors, made.findings.errors
    assert made.data["loadBalancer"]["type"] == load_balancer
    assert len(made.lost) == 0, [str(each) for each in made.lost]


def test_a_version_that_is_not_known_is_replaced_and_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kk.yaml").write_text(KUBEKEY.replace("v1.36.4", "v1.23.10"))
    made = convert("kk.yaml", str(tmp_path), "", "cluster.yaml")
    assert "Kubernetes 1.23.10 is not known here" in made.text
    assert str(next(iter(made.lost)).span) == "kk.yaml:7:16"
    assert not made.findings.has_errors


def test_what_nobody_has_heard_of_is_told_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kk.yaml").write_text(KUBEKEY + "  brandNew: {deep: [1]}\n  off: {enabled: false}\n")
    made = convert("kk.yaml", str(tmp_path), "", "cluster.yaml")
    assert [each.summary for each in made.lost] == ["spec.brandNew: there is no counterpart"]


@pytest.mark.parametrize(
    ("text", "tool", "message"),
    [
        (KUBEKEY, "kubexm-go", "has no Cluster of kubexm-go"),
        (KUBEKEY, "kubespray", "kk.yaml"),
        ("a: [1", "kubekey", "kk.yaml"),
        ("kind: Pod\n", "", "is no inventory of kubespray"),
        ("all: {hosts: {a: }}\n", "kubespray", "no group kube_control_plane"),
        (KUBEKEY[: KUBEKEY.index("spec:")], "kubekey", "has no spec"),
        (None, "", "does not exist"),
    ],
)
def test_what_is_no_such_document_is_refused(text: str | None, tool: str, message: str, tmp_path: pathlib.Path) -> None:
    if text is not None:
        (tmp_path / "kk.yaml").write_text(text)
    with pytest.raises(Invalid, match=message):
        convert("kk.yaml", str(tmp_path), tool, "cluster.yaml")


def test_the_command_writes_once_and_replaces_only_its_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("kk.yaml").write_text(KUBEKEY.replace("roleGroups", "brandNew: 1\n  roleGroups"))
    runner = CliRunner()
    for _ in range(2):
        done = runner.invoke(main, ["cluster", "convert", "kk.yaml", "--from", "kubekey", "-o", "cluster.yaml"])
        assert done.exit_code == 0, done.output
        assert "kk.yaml:6:3: spec.brandNew: there is no counterpart" in done.output
    assert runner.invoke(main, ["validate", "cluster.yaml"]).exit_code == 0
    own = runner.invoke(main, ["cluster", "convert", "kk.yaml", "-o", "kk.yaml"])
    assert own.exit_code == 2, own.output
    pathlib.Path("mine.yaml").write_text("precious: true\n")
    assert runner.invoke(main, ["cluster", "convert", "kk.yaml", "-o", "mine.yaml"]).exit_code == 2
    shown = runner.invoke(main, ["cluster", "convert", "kk.yaml", "--output", "json"])
    assert json.loads(shown.stdout)["kind"] == "Cluster"


def test_a_result_with_errors_is_written_and_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("kk.yaml").write_text(KUBEKEY.replace("[node1], worker", "[node7], worker"))
    done = CliRunner().invoke(main, ["cluster", "convert", "kk.yaml", "-o", "cluster.yaml"])
    assert done.exit_code == 1, done.output
    assert 'there is no host "node7"' in done.output
    assert YAML(typ="safe").load(pathlib.Path("cluster.yaml"))["metadata"] == {"name": "small"}


ODD: list[Any] = [None, 3, "x", [1], [[{}]], {"a": 1}, True]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in some data."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


@pytest.mark.parametrize(
    ("file", "way"),
    [
        ("kubekey.yaml", convert_kubekey),
        ("kubexm-go.yaml", convert_kubexm_go),
        ("kubespray/hosts.yaml", convert_kubespray),
    ],
)
def test_no_value_of_another_type_anywhere_breaks_it(file: str, way: Callable[..., dict[str, Any]]) -> None:
    _, source, index = _read(file, str(FOREIGN), "")
    data = json.loads(json.dumps(source.documents[index]))
    text = SourceFile.from_text(json.dumps(data), "odd.yaml")
    for path in list(paths(data)):
        for odd in ODD:
            changed = copy.deepcopy(data)
            target = changed
            for part in path[:-1]:
                target = target[part]
            target[path[-1]] = odd
            # The text stays: to find places in a new one takes longer than all the rest.
            text.documents[0] = changed
            made = way(text, 0, Diagnostics())
            assert made["kind"] == "Cluster"

"""The upgrade: its pipeline is what is kept, compiles for every choice, and its graph keeps the promised order."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess

import networkx as nx
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main
from kubexm_exec.compile import compile_pipeline
from kubexm_spec.clusters.build import build_upgrade, pipeline_text
from tests.clusters.kit import HIGHLY_AVAILABLE, SMALLEST, checked
from tests.clusters.test_build import DOCUMENTS, GOLDEN, document, pairwise
from tests.clusters.test_render import FORMS, unknown_keys
from tests.lab import programs

Action = tuple[str, str]
SHAPES = {
    "one node": SMALLEST,
    "stacked, two workers": SMALLEST + '  - {name: "worker[1:2]", address: "10.0.0.[11:12]", roles: [worker]}\n',
    "own etcd on the control planes": HIGHLY_AVAILABLE,
    "own etcd elsewhere, batches of two": HIGHLY_AVAILABLE.replace(
        '"cp[1:3]", address: "10.0.0.[1:3]", roles: [controlPlane, etcd]',
        '"cp[1:3]", address: "10.0.0.[1:3]", roles: [controlPlane]}\n'
        '  - {name: "db[1:3]", address: "10.0.0.[4:6]", roles: [etcd]}\n'
        '  - {name: "more[1:3]", address: "10.0.0.[21:23]", roles: [worker]',
    )
    + "operations: {workers: {batch: 2}}\n",
    "five stacked control planes": SMALLEST.replace("cp1, address: 10.0.0.1", '"cp[1:5]", address: "10.0.0.[1:5]"')
    + "controlPlaneEndpoint: {address: 10.0.0.100}\nloadBalancer: {type: kubeVip}\n",
}
WITHOUT_PROXY = SMALLEST.replace("1.36.4}", "1.36.4, proxy: {mode: none}, ignorePreflightErrors: [NumCPU]}") + (
    "network: {plugin: none}\n"
)
LOOKING = ("readyFirst", "upgrade-check/", "etcd-check/")
"""Work that changes nothing."""


def built(folder: pathlib.Path, text: str) -> str:
    return pipeline_text(build_upgrade(checked(folder, text)), "cluster.yaml")


def order(folder: pathlib.Path, text: str) -> nx.DiGraph[Action]:
    path = folder / "pipeline.yaml"
    path.write_text(built(folder, text), "utf-8")
    return compile_pipeline(path).digraph()


def actions(graph: nx.DiGraph[Action], *starts: str) -> list[Action]:
    return [each for each in graph if each[1] and each[0].startswith(starts)]


def hosts(found: list[Action]) -> list[str]:
    return list(dict.fromkeys(host for _, host in found))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_upgrade_of_a_document_is_what_is_kept(name: str, tmp_path: pathlib.Path) -> None:
    text = built(tmp_path, DOCUMENTS[name])
    golden = GOLDEN / f"upgrade-{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("choice", list(pairwise()), ids="-".join)
def test_the_upgrade_of_every_two_choices_together_compiles_and_keeps_its_order(
    choice: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("a certificate\n")
    graph = order(tmp_path, document(*choice))
    names = {name.partition("/")[0] for name, _ in graph}
    assert ("etcd" in names) == (choice[1] == "kubexm")
    assert ("network" in names) == (choice[3] != "none")
    check_one_control_plane_at_a_time(graph)
    check_snapshot_first(graph)
    check_uncordon(graph)


@pytest.mark.parametrize("shape", SHAPES)
def test_control_planes_and_members_of_etcd_change_one_at_a_time(shape: str, tmp_path: pathlib.Path) -> None:
    check_one_control_plane_at_a_time(order(tmp_path, SHAPES[shape]))


def check_one_control_plane_at_a_time(graph: nx.DiGraph[Action]) -> None:
    for module in ("control-planes/", "etcd/"):
        # Hooks of batches look at the cluster, on the first control plane.
        work = [each for each in actions(graph, module) if "/batchHooks/" not in each[0]]
        for one, other in itertools.pairwise(hosts(work)):
            last = [each for each in work if each[1] == one]
            after = set[Action]().union(*(nx.descendants(graph, each) for each in work if each[1] == one))
            begins = [each for each in work if each[1] == other]
            assert set(begins) <= after, (module, one, other)
            # Not one of the other's actions comes before one of the first's.
            assert not any(nx.descendants(graph, each) & set(last) for each in begins), (module, one, other)
            for each in last:
                assert set(begins) <= nx.descendants(graph, each), (each, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_etcd_is_kept_before_the_first_change(shape: str, tmp_path: pathlib.Path) -> None:
    check_snapshot_first(order(tmp_path, SHAPES[shape]))


def check_snapshot_first(graph: nx.DiGraph[Action]) -> None:
    saves = [each for each in graph if each[1] and each[0] in ("snapshot/etcd/save", "snapshot/control-planes/save")]
    assert saves
    changes = actions(graph, "etcd/", "control-planes/", "workers/", "network/")
    for save in saves:
        assert set(changes) <= nx.descendants(graph, save)
    everything = actions(graph, "")
    assert set(everything) == set(changes) | set(actions(graph, *LOOKING, "upgrade-prepare/", "snapshot/"))
    # All that looks has looked before anything else begins, images and the snapshot included.
    looking = set(actions(graph, *LOOKING))
    for each in actions(graph, "upgrade-prepare/", "snapshot/"):
        assert looking <= nx.ancestors(graph, each)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_uncordon_is_reached_from_every_path_of_a_node_that_was_drained(shape: str, tmp_path: pathlib.Path) -> None:
    check_uncordon(order(tmp_path, SHAPES[shape]))


def check_uncordon(graph: nx.DiGraph[Action]) -> None:
    drains = [each for each in graph if each[0].endswith("/hostHooks/pre/drain")]
    assert drains
    for drain, host in drains:
        task = drain.removesuffix("/hostHooks/pre/drain")
        back = (f"{task}/hostHooks/always/uncordon", host)
        window = [each for each in graph if each[1] == host and each[0].startswith(f"{task}/") and each != back]
        for each in window:
            if "/batchHooks/" not in each[0]:
                # `begun`: it runs whatever has become of that one, success, failure or an end in the middle.
                assert graph.edges[each, back]["on"] == "begun", each
        # No other node is drained, and no other batch begins, before this one is back.
        later = {each for each in drains if each in nx.descendants(graph, (drain, host))}
        assert later <= nx.descendants(graph, back)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_kubelet_follows_its_api_servers(shape: str, tmp_path: pathlib.Path) -> None:
    graph = order(tmp_path, SHAPES[shape])
    control = [each for each in graph if each[0] in ("control-planes/apply/apply", "control-planes/others/node")]
    workers = [each for each in graph if each[0] == "workers/upgrade/kubelet"]
    for each in workers:
        assert set(control) <= nx.ancestors(graph, each)
    for task in ("control-planes/first", "control-planes/others", "workers/upgrade"):
        for name, host in [each for each in graph if each[0] == f"{task}/kubelet"]:
            before = nx.ancestors(graph, (name, host))
            assert {(f"{task}/{step}", host) for step in ("node", "programs[kubelet]", "runtime-ready")} <= before
            assert (f"{task}/ready", host) in nx.descendants(graph, (name, host))
    # `kubeadm upgrade apply` is never done in a drained node: on a cluster of one its test job could not run.
    [apply] = [each for each in graph if each[0] == "control-planes/apply/apply"]
    assert not any("/drain" in name for name, _ in nx.ancestors(graph, apply) if "/hostHooks/" in name)


def test_batches_of_workers_are_those_of_the_document(tmp_path: pathlib.Path) -> None:
    more = "operations: {workers: {batch: 2, maxFailures: 1, pause: 30s}, drain: {timeout: 7m, force: true}}\n"
    pipeline = build_upgrade(checked(tmp_path, HIGHLY_AVAILABLE, more))
    [task] = next(each for each in pipeline["modules"] if each["name"] == "workers")["tasks"]
    assert {key: task["batch"][key] for key in ("size", "maxFailures", "pause")} == {
        "size": "2", "maxFailures": "1", "pause": "30s",
    }  # fmt: skip
    assert task["with"]["drain"] == {
        "enabled": True, "timeout": "420s", "gracePeriod": None, "deleteEmptyDirData": True, "force": True,
    }  # fmt: skip


def test_the_only_node_is_not_drained(tmp_path: pathlib.Path) -> None:
    pipeline = build_upgrade(checked(tmp_path, SMALLEST))
    tasks = next(each for each in pipeline["modules"] if each["name"] == "control-planes")["tasks"]
    assert [each["with"]["drain"]["enabled"] for each in tasks if "drain" in each["with"]] == [False]


def test_images_of_another_repository_are_those_that_kubeadm_asks_for(tmp_path: pathlib.Path) -> None:
    text = SMALLEST.replace("{version: 1.36.4}", "{version: 1.36.4, imageRepository: registry.example.org/k8s}")
    pipeline = build_upgrade(checked(tmp_path, text))
    images = next(each for each in pipeline["modules"] if each["name"] == "upgrade-prepare")["with"]["images"]
    ours = [each for each in images["controlPlane"] if each.startswith("registry.example.org/")]
    assert sorted(ours) == [
        "registry.example.org/k8s/coredns:v1.14.2",
        "registry.example.org/k8s/etcd:3.6.8-0",
        "registry.example.org/k8s/kube-apiserver:v1.36.4",
        "registry.example.org/k8s/kube-controller-manager:v1.36.4",
        "registry.example.org/k8s/kube-proxy:v1.36.4",
        "registry.example.org/k8s/kube-scheduler:v1.36.4",
        "registry.example.org/k8s/pause:3.10.2",
    ]
    assert [each for each in images["worker"] if "apiserver" in each] == []


def upgrade_configuration(folder: pathlib.Path, text: str) -> str:
    """The file of kubeadm of the first control plane, as the program would write it."""
    from kubexm_exec.cli.rendering import rendered_files
    from kubexm_exec.service.clusters import documents

    (folder / "cluster.yaml").write_text(text)
    found = rendered_files(documents("cluster.yaml", str(folder), lambda *_: None, "upgrade"))
    [content] = {content for host, path, content in found if path.endswith("kubexm/upgrade.yaml") and host == "cp1"}
    return content


def test_the_file_for_kubeadm_has_only_keys_of_its_type(tmp_path: pathlib.Path) -> None:
    found = YAML(typ="safe").load(upgrade_configuration(tmp_path, WITHOUT_PROXY))
    assert unknown_keys(found, json.loads((FORMS / "UpgradeConfiguration.json").read_text())) == []
    shared = {
        "patches": {"directory": "/etc/kubernetes/kubexm/patches"},
        "ignorePreflightErrors": ["NumCPU"],
        # What was left out at the beginning is not brought along by an upgrade.
        "skipPhases": ["addon/kube-proxy"],
    }
    assert found["apply"] == {"kubernetesVersion": "v1.36.4", **shared}
    assert found["node"] == shared


@pytest.mark.skipif(programs.find("kubeadm") is None, reason="no kubeadm here: `make kubernetes` builds it")
@pytest.mark.parametrize("text", [SMALLEST, WITHOUT_PROXY, HIGHLY_AVAILABLE])
def test_kubeadm_accepts_the_file(text: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "upgrade.yaml"
    file.write_text(upgrade_configuration(tmp_path, text))
    command = [str(programs.find("kubeadm")), "config", "validate", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr


def test_a_dry_run_shows_the_upgrade_without_a_host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "state"))
    (tmp_path / "cluster.yaml").write_text(HIGHLY_AVAILABLE)
    result = CliRunner().invoke(main, ["cluster", "upgrade", "-f", "cluster.yaml", "--executor", "dry-run"])
    assert result.exit_code == 0, result.output
    for name in ("snapshot/etcd/save", "control-planes/apply/apply", "workers/upgrade/hostHooks/always/uncordon"):
        assert name in result.output

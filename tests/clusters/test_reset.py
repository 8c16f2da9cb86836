"""`kubexm cluster reset`: what was made is removed and nothing else, and what is left is shown."""

from __future__ import annotations

import json
import pathlib

from click.testing import CliRunner

from kubexm_exec.cli.main import main
from kubexm_exec.service.clusters import build
from tests.clusters.kit import HIGHLY_AVAILABLE


def written(folder: pathlib.Path, more: str = "") -> str:
    path = folder / "cluster.yaml"
    path.write_text(HIGHLY_AVAILABLE + more)
    return str(path)


def test_nobody_removes_a_cluster_without_saying_so(tmp_path: pathlib.Path) -> None:
    result = CliRunner().invoke(main, ["cluster", "reset", "-f", written(tmp_path), "--no-journal"])
    assert result.exit_code == 3
    assert "approve it with --yes" in result.output


def test_a_reset_empties_the_folders_of_the_document_and_restores_its_settings(tmp_path: pathlib.Path) -> None:
    more = "containerRuntime: {dataDir: /data/containers}\nsystem: {sysctl: {vm.swappiness: 1}, modules: [ip_vs]}\n"
    pipeline = build(written(tmp_path, more), str(tmp_path), lambda *_: None, "reset")
    (module,) = pipeline["modules"]
    assert module["with"]["dataFolders"] == ["/var/lib/kubelet", "/data/containers", "/var/lib/etcd"]
    assert "vm.swappiness" in module["with"]["sysctl"]
    assert "ip_vs" in module["with"]["kernelModules"]
    assert "resources" not in pipeline
    created = build(written(tmp_path, more), str(tmp_path), lambda *_: None)
    before = next(each for each in created["modules"] if each["name"] == "before")
    assert before["with"]["sysctl"] == module["with"]["sysctl"]
    assert created["lock"] == pipeline["lock"]
    assert json.dumps(pipeline) == json.dumps(build(written(tmp_path, more), str(tmp_path), lambda *_: None, "reset"))

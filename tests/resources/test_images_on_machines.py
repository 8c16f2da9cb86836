"""An image of a bundle reaches the real containerd of a full host, offline, under its own name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.program import environment, run
from tests.lab import programs
from tests.lab.depot import registry
from tests.lab.machines import Machine
from tests.lab.oci import Image, push_index

FUNCTIONS = (Path(__file__).parents[1] / "steps" / "machines" / "images.sh").read_text()
NEEDED = ["containerd", "ctr"]
pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(programs.missing(NEEDED)), reason=programs.missing(NEEDED)),
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="there is no docker-registry"),
]


def test_an_image_of_an_index_is_imported_from_a_bundle_without_a_network(machine: Machine, tmp_path: Path) -> None:
    programs.bring(machine, NEEDED)
    (tmp_path / "program").write_text("the program\n")
    host = {"name": "node", "address": machine.address, "user": "root", "privateKeyPath": str(machine.key)}
    spec = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": "images"},
        "inventory": {"hosts": [{**host, "knownHosts": str(tmp_path / "known")}]},
        "modules": [
            {
                "name": "m",
                "tasks": [
                    {
                        "name": "t",
                        "runOn": {"hosts": ["node"]},
                        "steps": [
                            {
                                "name": "import",
                                "type": "container-image",
                                "with": {
                                    "localSrc": "resource:app",
                                    "images": "registry.example/team/app:1",
                                    "address": "/srv/ctd/c.sock",
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    }
    env = environment(HOME=str(tmp_path), KUBEXM_STATE=str(tmp_path / "state"), SSH_AUTH_SOCK="")
    with registry(tmp_path / "storage", "127.0.0.1", writable=True) as url:
        made = [Image({"/app": tmp_path / "program"}, ["/app"], arch) for arch in ("arm64", "amd64")]
        top = push_index(url, "team/app", "1", made)
        pinned = f"registry.example/team/app:1@{top}"
        spec["resources"] = {"app": {"image": {"amd64": pinned, "arm64": pinned}, "registry": {"mirrors": [url]}}}
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        words = ["resources", "bundle", "spec.yaml", "-o", "offline.tar.gz", "--arch", "amd64"]
        done = run("kubexm", *words, cwd=tmp_path, env=env, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    machine.sh(FUNCTIONS + "store")
    try:
        words = ["spec.yaml", "--bundle", "offline.tar.gz", "--offline", "--output", "plain"]
        done = run("kubexm-run", *words, cwd=tmp_path, env=env, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        names = machine.sh(FUNCTIONS + "images").split()
        assert names == ["registry.example/team/app:1", f"registry.example/team/app@{top}"]
        # What the index names for other architectures is not there, and nothing misses it.
        assert top in machine.sh(FUNCTIONS + "ct images ls")
        assert "incomplete" not in machine.sh(FUNCTIONS + "ct images check")
        again = run("kubexm-run", *words, cwd=tmp_path, env=env, timeout=300)
        assert "1 unchanged" in again.stdout, again.stdout
    finally:
        machine.sh(FUNCTIONS + "end")

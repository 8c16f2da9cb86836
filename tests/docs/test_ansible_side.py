"""What pages show of Ansible is what the real one takes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.docs.book import ANSIBLE, ROOT, blocks, pages

PROGRAM = ROOT / ".venv-peers" / "ansible" / "bin" / "ansible-playbook"
MISSING = "there is no ansible to ask: make .venv-peers/ansible/.stamp"


@pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)
def test_ansible_takes_all_of_its_plays_and_tasks(tmp_path: Path) -> None:
    yaml = YAML(typ="safe")
    plays: list[dict[str, Any]] = []
    for block in (block for page in pages() for block in blocks(page) if ANSIBLE in block.marks):
        content = yaml.load(block.text)
        plays += content if block.marks[ANSIBLE] == "plays" else [{"hosts": "all", "tasks": content}]
    assert plays
    (tmp_path / "roles" / "site" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "site" / "tasks" / "main.yml").write_text("[]\n")
    with (tmp_path / "playbook.yml").open("w") as stream:
        yaml.dump(plays, stream)
    # One inventory for all: --syntax-check warns of hosts that are in none.
    (tmp_path / "hosts.ini").write_text("lb1\n[web]\nweb1\n")
    done = subprocess.run(
        [PROGRAM, "--syntax-check", "-i", "hosts.ini", "playbook.yml"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr

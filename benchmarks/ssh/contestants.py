"""The same work written for each tool, and the command line that a user would run it with."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.ssh.server import Host, Site

ROOT: Final = Path(__file__).resolve().parents[2]
PEERS: Final = ROOT / ".venv-peers"
FORKS: Final = 50
COMMAND: Final = "echo hello"


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done on the first so many hosts; exactly one of commands, templates and file is given."""

    site: Site
    folder: Path
    """Where the files of this work lie."""
    target: Path
    """Where files land; each host has a folder of its own in it."""
    hosts: tuple[Host, ...]
    commands: int = 0
    templates: tuple[Path, ...] = ()
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A command line, what it adds to the environment, and what is to be done before each time it is called."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)
    fresh: Callable[[], Mapping[str, str]] = dict


def _peer(name: str, program: str) -> str:
    return str(PEERS / name / "bin" / program)


def kubexm(work: Work) -> Call:
    """The whole program with a spec."""
    site = work.site
    inventory = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Inventory",
        "metadata": {"name": "bench"},
        "defaults": {
            "user": site.user,
            "port": site.port,
            "privateKeyPath": str(site.key),
            "knownHosts": str(site.known_hosts),
        },
        "hosts": [{"name": host.name, "address": host.address} for host in work.hosts],
    }
    here = f"{work.target}/{{{{ host.name }}}}"
    steps: list[dict[str, object]] = [
        {"name": f"c{number}", "type": "command", "with": {"shell": COMMAND}} for number in range(work.commands)
    ]
    steps += [
        {
            "name": path.stem,
            "type": "template",
            "with": {"src": path.name, "path": f"{here}/{path.stem}", "vars": {"host_name": "{{ host.name }}"}},
        }
        for path in work.templates
    ]
    if work.file is not None:
        steps.append({"name": "file", "type": "copy", "with": {"src": str(work.file), "path": f"{here}/file"}})
    pipeline = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": "bench"},
        "inventory": "inventory.yaml",
        "modules": [{"name": "m", "tasks": [{"name": "t", "steps": steps}]}],
    }
    # JSON is YAML, and reads the same.
    (work.folder / "inventory.yaml").write_text(json.dumps(inventory, indent=1))
    (work.folder / "spec.yaml").write_text(json.dumps(pipeline, indent=1))
    templates = ["--templates", str(work.templates[0].parent)] if work.templates else []
    return Call([_peer("kubexm", "kubexm-run"), str(work.folder / "spec.yaml"), "--forks", str(FORKS), *templates])


def kubexm_unwritten(work: Work) -> Call:
    """The same without a journal, which no other tool has."""
    call = kubexm(work)
    return Call([*call.argv, "--no-journal"])


def _fabric(work: Work, do: str) -> Call:
    site = work.site
    job = {
        "do": do,
        "user": site.user,
        "port": site.port,
        "key": str(site.key),
        "hosts": [(host.name, host.address) for host in work.hosts],
        "commands": [COMMAND] * work.commands,
        "templates": [(str(path), f"{work.target}/HOST/{path.stem}") for path in work.templates],
        "file": str(work.file),
        "target": f"{work.target}/HOST/file",
    }
    path = work.folder / f"fabric-{do}.json"
    path.write_text(json.dumps(job))
    return Call([_peer("fabric", "python"), str(Path(__file__).with_name("fabric_peer.py")), str(path)])


def fabric(work: Work) -> Call:
    """A pool of threads, each with a connection of its own at a time."""
    return _fabric(work, "commands" if work.commands else "templates" if work.templates else "file")


def fabric_group(work: Work) -> Call:
    """fabric's own way to several hosts: a thread for each of them."""
    return _fabric(work, "group")


def pyinfra(work: Work) -> Call:
    """A deploy with an inventory, both in Python as pyinfra has it."""
    site = work.site
    data = {
        "ssh_user": site.user,
        "ssh_port": site.port,
        "ssh_key": str(site.key),
        "ssh_known_hosts_file": str(site.known_hosts),
    }
    hosts = [(host.name, {**data, "ssh_hostname": host.address}) for host in work.hosts]
    lines = ["from pyinfra import host", "from pyinfra.operations import files, server", ""]
    lines += [f"server.shell(name='c{number}', commands=[{COMMAND!r}])" for number in range(work.commands)]
    lines += [
        f"files.template(name={path.stem!r}, src={str(path)!r}, dest=f'{work.target}/{{host.name}}/{path.stem}', "
        "create_remote_dir=False, host_name=host.name)"
        for path in work.templates
    ]
    if work.file is not None:
        lines.append(
            f"files.put(name='file', src={str(work.file)!r}, dest=f'{work.target}/{{host.name}}/file', "
            "create_remote_dir=False)"
        )
    (work.folder / "pyinfra_inventory.py").write_text(f"hosts = {hosts!r}\n")
    (work.folder / "pyinfra_deploy.py").write_text("\n".join(lines) + "\n")
    argv = ["-y", "--parallel", str(FORKS), "pyinfra_inventory.py", "pyinfra_deploy.py"]
    return Call(["env", "-C", str(work.folder), _peer("pyinfra", "pyinfra"), *argv])


_ANSIBLE_CFG: Final = """\
[defaults]
forks = {forks}
gathering = explicit
inventory = {folder}/ansible_inventory.ini
interpreter_python = {python}
local_tmp = {folder}/ansible_tmp
remote_tmp = {folder}/ansible_remote_tmp
retry_files_enabled = False
[ssh_connection]
pipelining = True
ssh_args = -F none -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={known} -o IdentityAgent=none
"""


def ansible(work: Work) -> Call:
    """A playbook that gathers no facts, tuned as its own documentation advises."""
    site = work.site
    folder = work.folder
    lines = [
        f"{host.name} ansible_host={host.address} ansible_port={site.port} ansible_user={site.user} "
        f"ansible_ssh_private_key_file={site.key}"
        for host in work.hosts
    ]
    here = f"{work.target}/{{{{ inventory_hostname }}}}"
    tasks: list[dict[str, object]] = [
        {"name": f"c{number}", "ansible.builtin.shell": COMMAND} for number in range(work.commands)
    ]
    tasks += [
        {
            "name": path.stem,
            "ansible.builtin.template": {"src": str(path), "dest": f"{here}/{path.stem}"},
            "vars": {"host_name": "{{ inventory_hostname }}"},
        }
        for path in work.templates
    ]
    if work.file is not None:
        tasks.append({"name": "file", "ansible.builtin.copy": {"src": str(work.file), "dest": f"{here}/file"}})
    config = folder / "ansible.cfg"
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    config.write_text(_ANSIBLE_CFG.format(forks=FORKS, folder=folder, python=python, known=site.known_hosts))
    (folder / "ansible_inventory.ini").write_text("\n".join(["[all]", *lines, ""]))
    playbook = folder / "playbook.yaml"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}], indent=1))

    def fresh() -> Mapping[str, str]:
        # Connections that persist would make the next run a warm one; short, for the path of a socket is.
        return {"ANSIBLE_SSH_CONTROL_PATH_DIR": tempfile.mkdtemp(prefix="cp", dir=site.folder)}

    return Call([_peer("ansible", "ansible-playbook"), str(playbook)], {"ANSIBLE_CONFIG": str(config)}, fresh)


def scp(work: Work) -> Call:
    """One scp a host, all at the same time."""
    site = work.site
    options = f"-q -F none -o IdentityAgent=none -o UserKnownHostsFile={site.known_hosts} -i {site.key} -P {site.port}"
    goals = work.folder / "scp.txt"
    goals.write_text("".join(f"{site.user}@{host.address}:{work.target}/{host.name}/file\n" for host in work.hosts))
    argv = ["xargs", "-a", str(goals), "-P", str(FORKS), "-I", "GOAL", "scp", *options.split(), str(work.file), "GOAL"]
    return Call(argv)


CONTESTANTS: Final[Mapping[str, Callable[[Work], Call]]] = {
    "kubexm": kubexm,
    "kubexm, no journal": kubexm_unwritten,
    "fabric": fabric,
    "fabric group": fabric_group,
    "pyinfra": pyinfra,
    "ansible": ansible,
    "scp": scp,
}


def environment(home: Path, call: Call) -> dict[str, str]:
    """Nothing of the user's: no agent, no configuration of any tool."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **call.env, **call.fresh()}


def missing(name: str) -> str:
    """Why a tool cannot take part, or nothing."""
    programs = {
        "kubexm": _peer("kubexm", "kubexm-run"),
        "kubexm, no journal": _peer("kubexm", "kubexm-run"),
        "fabric": _peer("fabric", "python"),
        "fabric group": _peer("fabric", "python"),
        "pyinfra": _peer("pyinfra", "pyinfra"),
        "ansible": _peer("ansible", "ansible-playbook"),
        "scp": shutil.which("scp") or "scp",
    }
    return "" if Path(programs[name]).exists() else f"{name} is not installed: make bench-ssh does it"


def version(name: str) -> str:
    """Which version of a tool takes part."""
    import subprocess

    if name == "scp":
        return subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr.split(",")[0].strip()
    peer = name.split()[0].rstrip(",")
    package = {"ansible": "ansible-core"}.get(peer, peer)
    python = _peer(peer, "python")
    code = (
        "import importlib.metadata as m, importlib.util as u; "
        f"print(m.version({package!r}) + (', paramiko ' + m.version('paramiko') if u.find_spec('paramiko') else ''))"
    )
    return (
        f"{package} {subprocess.run([python, '-c', code], capture_output=True, text=True, check=True).stdout.strip()}"
    )

"""Inventories in other forms: what ansible, terraform, programs and third parties say becomes the same hosts."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.compile import Compilation, inventories
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.plugins import Registry
from kubexm_spec.inventories import program as inventory_program
from tests.compile.kit import Spec

PIPELINE = """
modules:
  - name: site
    tasks:
      - name: hello
        steps:
          - {name: hi, type: message, with: {text: "{{ host.name }}"}}
"""

INI = """\
# the site
lonely ansible_connection=local

[web]
web[01:02] ansible_user=deploy http_port=8080
web9:2222 ansible_host=10.0.0.9 note="two words" # here

[db]
db1 ansible_ssh_private_key_file=~/.ssh/db ansible_become=True ansible_become_user=postgres

[site:children]
web
db

[site:vars]
tier=site
ansible_user=admin

[web:vars]
tier=web
ports=[80, 443]

[all:vars]
tier=all
ansible_python_interpreter=/usr/bin/python3
"""

YAML = """\
all:
  vars:
    tier: all
    ansible_python_interpreter: /usr/bin/python3
  hosts:
    lonely: {ansible_connection: local}
  children:
    site:
      vars: {tier: site, ansible_user: admin}
      children:
        web:
          hosts:
            web[01:02]: {ansible_user: deploy, http_port: 8080}
            web9: {ansible_host: 10.0.0.9, ansible_port: 2222, note: two words}
          vars:
            tier: web
            ports: [80, 443]
        db:
          hosts:
            db1:
              ansible_ssh_private_key_file: ~/.ssh/db
              ansible_become: true
              ansible_become_user: postgres
"""

PRINTED = {
    "_meta": {
        "hostvars": {
            "lonely": {"ansible_connection": "local"},
            "web01": {"ansible_user": "deploy", "http_port": 8080},
            "web02": {"ansible_user": "deploy", "http_port": 8080},
            "web9": {"ansible_host": "10.0.0.9", "ansible_port": 2222, "note": "two words"},
            "db1": {"ansible_ssh_private_key_file": "~/.ssh/db", "ansible_become": True,
                    "ansible_become_user": "postgres"},
        }
    },
    "all": {"children": ["ungrouped", "site"],
            "vars": {"tier": "all", "ansible_python_interpreter": "/usr/bin/python3"}},
    "ungrouped": {"hosts": ["lonely"]},
    "site": {"children": ["web", "db"], "vars": {"tier": "site", "ansible_user": "admin"}},
    "web": {"hosts": ["web01", "web02", "web9"], "vars": {"tier": "web", "ports": [80, 443]}},
    "db": ["db1"],
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.chdir(tmp_path)
    return Spec(tmp_path).write(PIPELINE)


def program(folder: Path, text: str) -> Path:
    path = folder / "hosts.sh"
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return path


def hosts_of(result: Compilation) -> dict[str, GraphHost]:
    assert result.graph is not None, [str(finding) for finding in result.diagnostics]
    return dict(result.graph.hosts)


def written(spec: Spec, form: str) -> str:
    if form == "ini":
        return str(spec.file("hosts.ini", INI))
    if form == "bare":
        return str(spec.file("hosts", INI))
    if form == "yaml":
        return str(spec.file("hosts.yaml", YAML))
    if form == "json":
        return str(spec.file("hosts.json", json.dumps(PRINTED)))
    spec.file("printed.json", json.dumps(PRINTED))
    return str(program(spec.folder, '[ "$1" = --list ] && cat printed.json\n'))


@pytest.mark.parametrize("form", ["ini", "bare", "yaml", "json", "program"])
def test_ansible_inventory_of_any_form_gives_the_same_hosts(spec: Spec, form: str) -> None:
    hosts = hosts_of(spec.compile(inventory=written(spec, form)))
    assert set(hosts) == {"lonely", "web01", "web02", "web9", "db1"}
    web1, web9, db1, lonely = (hosts[name] for name in ("web01", "web9", "db1", "lonely"))
    assert (web1.user, web9.user, db1.user, lonely.user) == ("deploy", "admin", "admin", None)
    assert (web9.address, web9.port, web1.address, web1.port) == ("10.0.0.9", 2222, "web01", None)
    assert lonely.connector == "local"
    assert db1.connector == "ssh"
    assert db1.options == {"privateKeyPath": "~/.ssh/db", "become": "postgres"}
    assert set(web1.groups) == set(web1.roles) == {"site", "web"}
    assert lonely.groups == ()
    assert web1.vars == {
        "tier": "web",
        "ports": [80, 443],
        "http_port": 8080,
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    assert [host.vars["tier"] for host in (db1, lonely)] == ["site", "all"]
    assert web9.vars["note"] == "two words"


def test_spec_names_an_ansible_inventory_beside_it(spec: Spec) -> None:
    spec.file("site/hosts.ini", INI)
    spec.write("inventory: site/hosts.ini\n" + PIPELINE)
    assert "web02" in hosts_of(spec.compile())


def test_deeper_groups_win_and_equally_deep_ones_in_order_of_priority_and_name(spec: Spec) -> None:
    text = """
        [b]
        h
        [a]
        h
        [c]
        h
        [a:vars]
        x=a
        y=a
        [b:vars]
        x=b
        [c:vars]
        y=c
        ansible_group_priority=0
        [top:children]
        a
        [top:vars]
        x=top
        z=top
    """
    (host,) = (h for h in hosts_of(spec.compile(inventory=str(spec.file("hosts.ini", text)))).values() if h.name == "h")
    assert host.vars == {"x": "a", "y": "a", "z": "top"}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ansible_password=hunter2", "ansible_password"),
        ("ansible_ssh_pass=hunter2", "ansible_ssh_pass"),
        ("ansible_become_pass=hunter2", "ansible_become_pass"),
    ],
)
def test_password_in_plain_text_is_refused_with_its_place(spec: Spec, line: str, key: str) -> None:
    result = spec.compile(inventory=str(spec.file("hosts.ini", f"[web]\nweb1 {line}\n")))
    (finding,) = result.diagnostics.errors
    assert finding.code == "plain-password"
    assert key in finding.summary
    assert "hunter2" not in str(finding)
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (2, 6)


def test_password_from_the_environment_becomes_a_reference(spec: Spec) -> None:
    text = """
        all:
          hosts:
            a: {ansible_password: "{{ lookup('env', 'PASS') }}"}
            b: {ansible_password: "env:OTHER", ansible_become: yes, ansible_become_password: "file:pw"}
            c: {ansible_become_password: "file:pw"}
            d: {ansible_become_user: postgres}
            e: {ansible_become_method: enable}
    """
    hosts = hosts_of(spec.compile(inventory=str(spec.file("hosts.yml", text))))
    assert hosts["a"].options["password"] == "env:PASS"
    assert hosts["b"].options == {
        "password": "env:OTHER",
        "become": {"user": "root", "method": "sudo", "password": "file:pw"},
    }
    # How, if a task or step asks for it.
    assert hosts["c"].options["become"] == {"user": "root", "method": "sudo", "password": "file:pw", "always": False}
    assert "become" not in hosts["d"].options
    assert hosts["e"].options["become"] == {"user": "root", "method": "sudo", "always": False}


@pytest.mark.parametrize(
    ("name", "text", "code", "line"),
    [
        ("h.ini", "[web\nweb1\n", "bad-section", 1),
        ("h.ini", "[web:things]\nweb1\n", "bad-section", 1),
        ("h.ini", "[web]\nweb1\n[web:vars]\nnothing\n", "bad-variable", 4),
        ("h.ini", "[web]\nweb1 loose\n", "bad-variable", 2),
        ("h.ini", "[web]\nweb1 a='open\n", "bad-host", 2),
        ("h.ini", "[web]\n\nweb[5:1]\n", "bad-range", 3),
        ("h.ini", "[a:children]\nb\n[b:children]\na\n", "group-cycle", 1),
        ("h.ini", "[web]\nweb1 ansible_port=99999\n", "wrong-value", 2),
        ("h.ini", "[web]\nweb1 ansible_connection=telnet\n", "unknown-connector", 2),
        ("h.ini", "[web]\nweb1 ansible_user='{{ me }}'\n", "templated-connection", 2),
        ("h.yaml", "all:\n  hosts:\n    web1:\n  chidren: {}\n", "unknown-key", 4),
        ("h.yaml", "all:\n  hosts: 5\n  vars: {}\n", "missing-api-version", 1),
        ("h.yaml", "all:\n  hosts: {a: 5}\n", "wrong-type", 2),
        ("h.yaml", "all:\n  hosts: {a: {bad-name: 1}}\n", "wrong-value", 2),
        ("h.json", '{"other": {"sensitive": false, "type": "string", "value": 1}}', "no-inventory-output", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_where_it_is_written(spec: Spec, name: str, text: str, code: str, line: int) -> None:
    result = spec.compile(inventory=str(spec.file(name, text)))
    assert [finding.code for finding in result.diagnostics.errors] == [code]
    (finding,) = result.diagnostics.errors
    assert finding.span is not None
    assert finding.span.line == line
    assert finding.span.file in result.sources


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h.ini", ""),
        ("h.ini", "[web]\n[all:vars]\nx=1\n"),
        ("h.ini", "[site:children]\nungrouped\n"),
        ("h.yaml", "all:\n  hosts: {}\n"),
        ("h.yaml", "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: x}\nhosts: []\n"),
        ("h.yaml", "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: x}\n"),
        ("h.json", '{"_meta": {"hostvars": {}}, "all": {"children": ["ungrouped"]}}'),
        ("h.json", '{"hosts": {"sensitive": false, "type": ["map", "string"], "value": {}}}'),
        ("hosts.sh", "#!/bin/sh\necho '{}'\n"),
    ],
)
def test_inventory_without_hosts_is_refused_and_never_means_this_machine(spec: Spec, name: str, text: str) -> None:
    path = spec.folder / name
    path.write_text(text)
    path.chmod(0o755 if name.endswith(".sh") else 0o644)
    for result in (spec.compile(inventory=str(path)), spec.write(f"inventory: {name}\n{PIPELINE}").compile()):
        (finding,) = result.diagnostics.errors
        assert finding.code == "empty-inventory"
        assert finding.span is not None
        assert finding.hint
        assert result.graph is None


def test_control_node_in_an_inventory_has_variables_and_stays_this_machine(spec: Spec) -> None:
    path = spec.file("hosts.ini", "control-node ansible_connection=local tier=here\n")
    (host,) = hosts_of(spec.compile(inventory=str(path))).values()
    assert (host.name, host.connector, host.vars) == ("control-node", "local", {"tier": "here"})


def test_place_of_a_variable_is_the_line_of_the_foreign_file(spec: Spec) -> None:
    path = spec.file("hosts.ini", INI)
    result = spec.compile(inventory=str(path))
    assert result.bundle is not None
    assert result.bundle.inventory is not None
    place = result.bundle.inventory.place("groups", "web", "vars", "tier")
    assert place.span().line == INI.splitlines().index("tier=web") + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo nothing", "did not print JSON"),
        ("echo trouble >&2; exit 3", "exit code 3"),
        ("echo '[1]'", "did not print an object"),
    ],
)
def test_program_that_does_not_work_is_told(spec: Spec, text: str, words: str) -> None:
    result = spec.compile(inventory=str(program(spec.folder, text)))
    (finding,) = result.diagnostics.errors
    assert finding.code == "inventory-program"
    assert words in finding.summary


HANGS = """
    exec 9>alive
    printf x >&9
    sleep 600 >/dev/null 2>&1 </dev/null &
    wait
"""
"""It and its child hold the write end of the pipe for as long as they live."""


def heard(reader: int, until: bytes | None = None) -> bytes:
    """What came through a pipe until it was closed by the last who could write to it, or until these bytes came."""
    data = b""
    while select.select([reader], [], [], 30)[0]:
        if not (piece := os.read(reader, 100)):
            return data
        data += piece
        if data == until:
            return data
    raise TimeoutError(f"somebody still holds the pipe, after {data!r}")


@pytest.fixture
def alive(spec: Spec) -> Iterator[int]:
    os.mkfifo(spec.folder / "alive")
    reader = os.open(spec.folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


def test_program_that_hangs_is_killed_with_its_children(
    spec: Spec, alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_program, "SECONDS", 2)
    result = spec.compile(inventory=str(program(spec.folder, HANGS)))
    (finding,) = result.diagnostics.errors
    assert finding.code == "inventory-program"
    assert "did not end within 2 seconds" in finding.summary
    assert heard(alive) == b"x"


def test_program_is_killed_with_its_children_when_only_we_are_interrupted(spec: Spec, alive: int) -> None:
    path = program(spec.folder, HANGS)
    code = "from kubexm_exec.cli.programs import kubexm; kubexm()"
    argv = [sys.executable, "-c", code, "inventory", "-i", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert heard(alive, until=b"x") == b"x"
        process.send_signal(signal.SIGINT)
        assert heard(alive) == b""
        assert process.wait(30) == 130


def test_program_without_meta_is_asked_for_each_host(spec: Spec) -> None:
    text = """
        if [ "$1" = --list ]; then echo '{"web": ["a", "b"]}'; else echo "{\\"me\\": \\"$2\\"}"; fi
    """
    hosts = hosts_of(spec.compile(inventory=str(program(spec.folder, text))))
    assert {name: host.vars["me"] for name, host in hosts.items()} == {"a": "a", "b": "b"}


def test_program_is_known_by_its_own_bytes_so_that_plans_can_compare_it(spec: Spec) -> None:
    path = program(spec.folder, 'echo \'{"web": ["a"], "_meta": {"hostvars": {}}}\'')
    graph = spec.graph(inventory=str(path))
    import hashlib

    assert graph.sources["hosts.sh"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_text_with_a_careless_mode_is_not_run(spec: Spec) -> None:
    path = spec.file("hosts.yaml", YAML)
    path.chmod(0o755)
    assert "web01" in hosts_of(spec.compile(inventory=str(path)))


def output(value: Any) -> dict[str, Any]:
    return {"sensitive": False, "type": "dynamic", "value": value}


@pytest.mark.parametrize(
    "outputs",
    [
        {"hosts": output({"a": "10.0.0.1", "b": "10.0.0.2"}), "other": output(1)},
        {"hosts": output([{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2", "user": None}])},
        {
            "kubexm_inventory": output(
                {"hosts": {"a": "10.0.0.1", "b": {"address": "10.0.0.2", "internal_address": ""}}}
            )
        },
    ],
)
def test_output_of_terraform_gives_hosts(spec: Spec, outputs: dict[str, Any]) -> None:
    hosts = hosts_of(spec.compile(inventory=str(spec.file("tf.json", json.dumps(outputs, indent=2)))))
    assert {name: host.address for name, host in hosts.items()} == {"a": "10.0.0.1", "b": "10.0.0.2"}


def test_whole_inventory_of_terraform_keeps_names_of_variables(spec: Spec) -> None:
    value = {
        "vars": {"cluster_name": "x"},
        "defaults": {"private_key_path": "key", "user": "core"},
        "groups": {"etcd": {"hosts": ["a"], "per_host_limit": 2, "vars": {"data_dir": "/d"}}},
        "hosts": [{"name": "a", "address": "10.0.0.1", "vars": {"my_var": 1}}],
    }
    path = spec.file("tf.json", json.dumps({"kubexm_inventory": output(value)}))
    host = hosts_of(spec.compile(inventory=str(path)))["a"]
    assert host.vars == {"cluster_name": "x", "data_dir": "/d", "my_var": 1}
    assert (host.user, host.per_host_limit, host.options) == ("core", 2, {"privateKeyPath": "key"})


def acme(argument: str) -> Any:
    if argument == "bad":
        raise ConnectionError("no answer")
    if argument == "odd":
        return ["a"]
    return {"hosts": [{"name": f"{argument}1", "addres": "x"} if argument == "typo" else {"name": f"{argument}1"}]}


@pytest.fixture
def source_of_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = Registry("kubexm.inventories", "inventory source")
    entry = EntryPoint("acme", f"{acme.__module__}:acme", "kubexm.inventories")
    registry.__dict__["_entries"] = {"acme": [entry]}
    registry._loaded["acme"] = acme
    monkeypatch.setattr(inventories, "inventory_registry", lambda: registry)


@pytest.mark.usefixtures("source_of_acme")
def test_third_party_gives_an_inventory_by_name_and_argument(spec: Spec) -> None:
    assert "prod1" in hosts_of(spec.compile(inventory="acme:prod"))
    spec.write('inventory: "acme:stage"\n' + PIPELINE)
    result = spec.compile()
    assert "stage1" in hosts_of(result)
    assert result.graph is not None
    assert list(result.graph.sources) == ["main.yaml"]


@pytest.mark.usefixtures("source_of_acme")
@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("acme:bad", "inventory-source-failed"),
        ("acme:odd", "inventory-source-failed"),
        ("acmy:prod", "unknown-inventory-source"),
        ("acme:typo", "unknown-key"),
        ("nothing.yaml", "file-not-found"),
    ],
)
def test_third_party_that_cannot_help_is_told(spec: Spec, reference: str, code: str) -> None:
    assert [f.code for f in spec.compile(inventory=reference).diagnostics.errors] == [code]
    spec.write(f'inventory: "{reference}"\n' + PIPELINE)
    assert [f.code for f in spec.compile().diagnostics.errors] == [code]

"""What ansible-inventory makes of an inventory, we make of it: compared with the real program."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubexm_exec.cli.main import main
from kubexm_exec.compile.adhoc import load_site
from kubexm_spec.excerpt import render
from tests.compile import ansible_lists
from tests.compile.kit import Spec
from tests.compile.test_inventories import PIPELINE

PYTHON = pathlib.Path(__file__).parents[2] / ".venv-peers/ansible/bin/python"
Files = Mapping[str, str]
"""Texts by their paths; the inventory is `inv`, or what has that stem."""
Listing = tuple[dict[str, dict[str, Any]], dict[str, set[str]]]
"""Variables by host, and hosts by group."""
REACHED = {"ansible_host": "address", "ansible_user": "user", "ansible_port": "port"}


@pytest.fixture(scope="module")
def ansible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[pathlib.Path], Listing | None]]:
    """Lists an inventory with the real program; None if that refuses it."""
    if not PYTHON.exists():
        pytest.skip("there is no ansible to compare with: make .venv-peers/ansible/.stamp")
    empty = tmp_path_factory.mktemp("ansible")
    (empty / "ansible.cfg").touch()
    known = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env = {**known, "ANSIBLE_HOME": str(empty), "ANSIBLE_CONFIG": str(empty / "ansible.cfg"), "LC_ALL": "C.UTF-8",
           "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1"}  # fmt: skip
    argv = [str(PYTHON), ansible_lists.__file__]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=empty, env=env, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def listed(path: pathlib.Path) -> Listing | None:
            stdin.write(json.dumps(str(path)) + "\n")
            stdin.flush()
            code, text = json.loads(stdout.readline())
            return _theirs(json.loads(text)) if code == 0 else None

        yield listed
        stdin.close()


def _plain(value: Any) -> Any:
    """Without ansible's mark of texts that are no templates."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return value["__ansible_unsafe"] if "__ansible_unsafe" in value else {k: _plain(v) for k, v in value.items()}


def _theirs(data: dict[str, Any]) -> Listing:
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, set[str]] = {}

    def below(name: str) -> set[str]:
        group = data.get(name, {})
        if name not in groups:
            groups[name] = set(group.get("hosts", []))
            for child in group.get("children", []):
                groups[name] |= below(child)
        return groups[name]

    for host in below("all"):
        hosts[host] = _plain(data["_meta"]["hostvars"].get(host, {}))
    return hosts, {name: found for name, found in groups.items() if found and name not in ("all", "ungrouped")}


def _ours(path: pathlib.Path) -> Listing:
    site = load_site(None, str(path))
    assert site.state is not None, [str(finding) for finding in site.diagnostics]
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, set[str]] = {}
    for name in site.names:
        host = site.state.hosts[name]
        reached = {"ansible_host": host.address if host.address != name else None, "ansible_user": host.user,
                   "ansible_port": host.port}  # fmt: skip
        hosts[name] = json.loads(json.dumps({**host.vars, **{k: v for k, v in reached.items() if v is not None}}))
        for group in host.groups:
            if group != "ungrouped":
                groups.setdefault(group, set()).add(name)
    return hosts, groups


def write(folder: pathlib.Path, files: Files) -> pathlib.Path:
    """The files in the folder; gives the inventory."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    return next(path for path in sorted(folder.iterdir()) if path.name.split(".")[0] == "inv")


CASES: dict[str, Files] = {
    "files beside it are stronger than the inventory, and those of hosts than all": {
        "inv.ini": "[web]\nw x=inv y=inv\n[all:vars]\nz=inv\n[web:vars]\nz=web\nq=web\n",
        "group_vars/all.yml": "z: all\n",
        "group_vars/web": "y: web\nq: file\n",
        "host_vars/w.json": '{"x": "host"}',
    },
    "a file of a weak group is stronger than the inventory's word on a strong one": {
        "inv.ini": "[top:children]\nlow\n[low]\na\nb\n[low:vars]\nx=low\ny=low\n[other]\nb\n[other:vars]\nx=other\n",
        "group_vars/top.yml": "x: top\n",
    },
    "folders of variables are read in order, without hidden files and copies": {
        "inv.ini": "[web]\nw\n",
        "group_vars/web/b.yml": "x: b\n",
        "group_vars/web/a.yml": "x: a\ny: a\n",
        "group_vars/web/.c.yml": "x: hidden\n",
        "group_vars/web/c.yml~": "x: copy\n",
        "group_vars/web/d.txt": "x: text\n",
        "group_vars/web/a_sub/deep": "y: sub\nz: sub\n",
        "group_vars/web.yml": "x: never\n",
        "host_vars/w.yml": "a: 1\n",
        "host_vars/w.yaml": "a: 2\nb: 2\n",
    },
    "files of groups that are not there are not read": {
        "inv.ini": "w\n",
        "group_vars/none.yml": "[broken\n",
        "group_vars/ungrouped.yml": "u: 1\n",
        "host_vars/w": "",
    },
    "folder of several sources": {
        "inv/01-first.ini": "[web]\nw1 x=1\n",
        "inv/02-second.yml": "web: {hosts: {w2: {x: 2}, w1: {x: 3}}, vars: {v: yes}}\ndb: {children: {web: }}\n",
        "inv/03-third.toml": '[web.vars]\nt = "toml"\n[web.hosts]\nw1 = {}\n',
        "inv/04-more/hosts": "w9\n[db]\nd1\n",
        "inv/05-empty.yml": "",
        "inv/hosts.bak": "[no\n",
        "inv/notes.md": "[no\n",
        "inv/ansible.cfg": "[no\n",
        "inv/.hidden": "[no\n",
        "inv/group_vars/db/vars.yml": "d: file\n",
        "inv/host_vars/w1.yml": "h: file\n",
        "group_vars/db.yml": "d: outside\n",
    },
    "program beside others": {
        "inv/a.ini": "[web]\nw1 x=1\n",
        "inv/b.sh": '#!/bin/sh\necho \'{"web": ["w1", "w2"], "db": {"hosts": ["d"], "vars": {"v": 1}, "children": '
        '["web"]}, "_meta": {"hostvars": {"d": {"x": 5}, "nobody": {"x": 1}}}}\'\n',
    },
    "toml": {
        "inv.toml": """[all.vars]
has_java = false
[web]
children = ["apache", "nginx"]
vars = {http_port = 8080, list = [1, "a"], when = 2024-01-31}
[web.hosts]
host1 = {}
host2 = {ansible_port = 222, ansible_user = "me"}
[apache.hosts]
"tom[1:2].example.org" = {}
tom3 = {myvar = 34, "quoted" = "x"}
[nginx.hosts]
jenkins1 = {}
[nginx.vars]
has_java = true
""",
    },
    "numbers, truths and times as ansible's YAML reads them": {
        "inv.yml": "all:\n  hosts:\n    a:\n"
        + "".join(
            f"      v{n}: {v}\n"
            for n, v in enumerate(
                (
                    "yes",
                    "Off",
                    "y",
                    "N",
                    "0644",
                    "12:30",
                    "1:30.5",
                    "1_000",
                    "1e3",
                    "1.5e+3",
                    "0x1F",
                    "0b11",
                    "2024-01-31",
                    "1.10",
                    "'0644'",
                    "~",
                    "0o17",
                    "+5",
                    "-.5",
                    "09",
                    ".5",
                    "1.",
                    "-0x1f",
                    "1__0",
                    "0_7",
                    "-12:30",
                    "!!str 5",
                    "!!int '5'",
                    "{80: x}",
                    "TRUE",
                    "tRUE",
                    "",
                    "1:2:3",
                )
            )
        )
    },
    "json": {"inv.json": '{"all": {"hosts": {"a": {"e": 1e3, "y": "yes", "n": null}}}}'},
    "later mentions of a host win in the order of the file": {
        "inv.yml": "all:\n  children:\n    g: {hosts: {h: {x: 1, y: 1}}}\n  hosts: {h: {x: 2}}\n",
    },
    "text in place of a mapping": {"inv.yml": "all:\n  children:\n    g: {hosts: h}\n    k: {children: g}\n"},
    "ports": {
        "inv.ini": "a:22\na:33\nb[1:2]:44\n[2001:db8::1]:55\n10.0.0.1:66 x=1\n2001:db8::2\n",
    },
    "ports in YAML": {"inv.yml": "all: {hosts: {'a:22': {x: 1}, 'b[1:2]:33': }}\n"},
    "ranges": {"inv.ini": "a[1:3]\nb[01:03]\nc[a:c]\nd[1:9:4]-[a:b].x\ne[:2]\nf[A:C]\n"},
    "literals": {
        "inv.ini": "h a=1 b=01 c='x y' d=\"[1, 'b', (2, 3)]\" e=None f=True g=true h=1.5 i=a=b j= k='{\"a\": 1}' l=1j"
        " m=... n=\"b'x'\" o=0x10 p='\"quoted\"' q=it\\'s r=#no\n[ungrouped:vars]\nv = 1 # kept\nw = 'x y' \nz=\n",
    },
    "group that is called like a host": {"inv.ini": "[web]\nweb x=1\nother\n[web:vars]\ny=2\n"},
    "priorities": {
        "inv.ini": "[a]\nh\n[b]\nh\n[c]\nh\n[a:vars]\nx=a\nansible_group_priority=10\n[b:vars]\nx=b\n[c:vars]\nx=c\n",
        "group_vars/a.yml": "y: a\n",
        "group_vars/b.yml": "y: b\n",
    },
    "hosts that were written before their groups": {
        "inv.ini": "h x=1\nlonely\n[ungrouped:vars]\nu=1\n[g]\nh\n",
    },
    "hosts of all": {"inv.yml": "all: {hosts: {a: }, children: {ungrouped: {vars: {u: 1}}, g: {hosts: {b: }}}}\n"},
    "comments": {"inv.ini": "; one\n# two\n[g] # three\nh x=1 # four\n[top:children]\ng # five\n"},
    "diamond": {
        "inv.ini": "[a:children]\nb\nc\n[b:children]\nd\n[c]\nk\n[d]\nh\n[c:children]\nd\n[a:vars]\nx=a\n"
        "[b:vars]\nx=b\n[c:vars]\nx=c\ny=c\n[d:vars]\ny=d\n",
    },
    "expressions are kept in variables": {"inv.ini": "h x='{{ y }}' y=1\n"},
    "unsafe texts": {"inv.yml": "all: {hosts: {h: {x: !unsafe '{{ y'}}}\n"},
    "merged mappings and anchors": {"inv.yml": "all: {hosts: {a: &a {x: {p: 1}, y: 2}, b: {<<: *a, y: 3}}}\n"},
    "mappings are replaced": {
        "inv.ini": "h\n[all:vars]\nm={'a': 1, 'b': 1}\n",
        "group_vars/all": "m: {b: 2}\n",
    },
}


@pytest.mark.parametrize("files", CASES.values(), ids=CASES)
def test_inventory_gives_what_ansible_makes_of_it(
    tmp_path: pathlib.Path, ansible: Callable[[pathlib.Path], Listing | None], files: Files
) -> None:
    path = write(tmp_path, files)
    theirs = ansible(path)
    assert theirs is not None
    assert _ours(path) == theirs


NAMES = st.sampled_from(["web", "db", "top", "low", "a-b", "x.y", "g_1", "ungrouped"])
HOSTS = st.sampled_from(
    ["h1", "h2", "h[1:3]", "n[08:10].example.org", "r[a:c]x", "10.0.0.7", "web", "h-1:2222", "db_1"]
)
KEYS = st.sampled_from(["x", "y", "z", "ansible_user", "ansible_host"])
TEXTS = st.sampled_from(
    [
        "yes",
        "no",
        "0644",
        "1_0",
        "1:30",
        "a b",
        "it's",
        "None",
        "[1, 2]",
        "{{ x }}",
        "#c",
        "x=y",
        "",
        "1e3",
        "~",
        "true",
        "True",
        "-1",
        "1.10",
        "a, b",
        "é",
        "0x1f",
        '"q"',
        "\\d",
        "a#b",
    ]
)
VALUES = st.one_of(
    TEXTS,
    st.integers(-5, 10**6),
    st.booleans(),
    st.just(1.5),
    st.just([1, "a", None]),
    st.just({"k": "v", "n": [True]}),
)
USERS = st.sampled_from(["me", "root", "admin1"])


@st.composite
def variables(draw: st.DrawFn) -> dict[str, Any]:
    found = {key: draw(VALUES) for key in draw(st.lists(KEYS, max_size=3))}
    return {key: draw(USERS) if key in REACHED else value for key, value in found.items()}


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    """Groups without cycles: children come later in the alphabet of a shuffled order."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=5))
    found: dict[str, Any] = {}
    for index, name in enumerate(names):
        below = [child for child in names[index + 1 :] if child != "ungrouped"]
        children = draw(st.lists(st.sampled_from(below), unique=True)) if below and name != "ungrouped" else []
        own = draw(variables())
        if draw(st.integers(0, 4)) == 0:
            own["ansible_group_priority"] = draw(st.integers(-2, 3))
        hosts = draw(st.dictionaries(HOSTS, variables(), max_size=3))
        found[name] = {"hosts": hosts, "vars": own, "children": children}
    found[names[0]]["hosts"].setdefault("h9", {})
    found["all"] = {"hosts": {}, "vars": draw(variables()), "children": []}
    return found


def _ini_word(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return "'" + text.replace("'", "'\\''") + "'"


def as_ini(found: Mapping[str, Any]) -> str:
    lines = []
    for name, group in found.items():
        lines.append(f"[{name}]")
        for host, own in group["hosts"].items():
            lines.append(" ".join([host, *(f"{key}={_ini_word(value)}" for key, value in own.items())]))
        if group["vars"]:
            lines.append(f"[{name}:vars]")
            lines += [
                f"{key} = {value if isinstance(value, str) else repr(value)}" for key, value in group["vars"].items()
            ]
        if group["children"]:
            lines += [f"[{name}:children]", *group["children"]]
    return "\n".join(lines) + "\n"


def _yaml_scalars(value: Any) -> str:
    """Flow YAML; texts that need no quotes have none, so that they are read as ansible reads them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_yaml_scalars(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml_scalars, value)) + "]"
    if isinstance(value, str) and value.replace("_", "").replace(".", "").replace("-", "").isalnum():
        return value
    return json.dumps(value)


def as_yaml(found: Mapping[str, Any]) -> str:
    groups = {name: {**group, "children": dict.fromkeys(group["children"])} for name, group in found.items()}
    return "\n".join(f"{name}: {_yaml_scalars(group)}" for name, group in groups.items()) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(one) for one in value if one is not None) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_toml(found: Mapping[str, Any]) -> str:
    lines = []
    for name, group in found.items():
        lines += [f"[{json.dumps(name)}]", f"children = {_toml_value(group['children'])}"]
        for kind in ("vars", "hosts"):
            lines.append(f"[{json.dumps(name)}.{kind}]")
            lines += [f"{json.dumps(key)} = {_toml_value(value)}" for key, value in group[kind].items()]
    return "\n".join(lines) + "\n"


FORMS = {"": as_ini, ".ini": as_ini, ".yml": as_yaml, ".yaml": as_yaml, ".toml": as_toml}


@st.composite
def inventories(draw: st.DrawFn) -> dict[str, str]:
    """One file or a folder of them, with variables beside it."""
    endings = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=3))
    folder = len(endings) > 1
    found = [draw(groups()) for _ in (draw(st.just(endings)))]
    files = {
        (f"inv/{number}{ending}" if folder else f"inv{ending}"): FORMS[ending](one)
        for number, (ending, one) in enumerate(zip(endings, found, strict=True))
    }
    names = sorted({name for one in found for name in one} | {"all", "absent"})
    hosts = ["h1", "h2", "h9", "web", "n08.example.org"]
    for kind, known in (("group_vars", names), ("host_vars", hosts)):
        for name in draw(st.lists(st.sampled_from(known), unique=True, max_size=3)):
            shape = draw(st.sampled_from(["{}", "{}.yml", "{}.yaml", "{}.json", "{}/one.yml", "{}/b/two"]))
            where = ("inv/" if folder else "") + f"{kind}/{shape.format(name)}"
            files[where] = _yaml_scalars(draw(variables())) + "\n"
    return files


NUMBERS = itertools.count()


# Each costs half a second on a busy machine.
@settings(
    max_examples=settings().max_examples * 3 // 10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(files=inventories())
def test_any_inventory_gives_what_ansible_makes_of_it(
    tmp_path: pathlib.Path, ansible: Callable[[pathlib.Path], Listing | None], files: Files
) -> None:
    path = write(tmp_path / str(next(NUMBERS)), files)
    theirs = ansible(path)
    if theirs is None:  # a cycle of several files
        assert load_site(None, str(path)).diagnostics.has_errors
    else:
        assert _ours(path) == theirs


def test_numbers_are_names_of_hosts_and_groups_in_yaml(tmp_path: pathlib.Path) -> None:
    """Ansible's own YAML takes them only in quotes; what is meant is plain."""
    path = write(
        tmp_path, {"inv.yml": "all:\n  hosts:\n    101: {x: 1}\n  children:\n    2024:\n      hosts: {007: }\n"}
    )
    hosts, groups = _ours(path)
    assert hosts == {"101": {"x": 1}, "007": {}}
    assert groups == {"2024": {"007"}}


SECRET = "hunter2-of-the-machine"
WRONG: dict[str, tuple[Files, str, str]] = {
    "password beside it": (
        {"inv.ini": "[web]\nw\n", "group_vars/web.yml": f"x: 1\nansible_password: {SECRET}\n"},
        "plain-password",
        "group_vars/web.yml:2:19",
    ),
    "password of a host's file": (
        {"inv.ini": "w\n", "host_vars/w/all.yml": f"ansible_become_pass: {SECRET}\n"},
        "plain-password",
        "host_vars/w/all.yml:1:22",
    ),
    "encrypted file": (
        {"inv.ini": "w\n", "group_vars/all": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"},
        "encrypted-file",
        "group_vars/all:1:1",
    ),
    "encrypted inventory": ({"inv.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}, "encrypted-file", "inv.yml:1:1"),
    "encrypted value": (
        {"inv.ini": "w\n", "group_vars/all.yml": "a: 1\nb: {c: [!vault '6162']}\n"},
        "encrypted-variable",
        "group_vars/all.yml:2:4",
    ),
    "encrypted password": (
        {"inv.yml": "all:\n  hosts:\n    h:\n      ansible_password: !vault |\n        $ANSIBLE_VAULT;1.1\n"},
        "encrypted-variable",
        "inv.yml:4:",
    ),
    "list of variables": (
        {"inv.ini": "w\n", "group_vars/all.yml": f"- {SECRET}\n"},
        "wrong-type",
        "group_vars/all.yml:1:1",
    ),
    "no variables": (
        {"inv.ini": "w\n", "group_vars/all": f"root:{SECRET}:: [\n"},
        "yaml-syntax",
        "group_vars/all:",
    ),
    "no variables, but a mapping": (
        {"inv.ini": "w\n", "group_vars/all": f"root:{SECRET}:20000:0:99999:7::\nbin:*:1::\n"},
        "wrong-value",
        "group_vars/all:1:1",
    ),
    "no inventory, but a mapping": (
        {"inv/a.ini": "w\n", "inv/b.yml": f"root:{SECRET}:20000:0:99999:7::\nbin:*:1::\n"},
        "not-an-inventory",
        "inv/b.yml:1:1",
    ),
    "TOML that is none": ({"inv.toml": f"[web]\n{SECRET}\n"}, "toml-syntax", "inv.toml:2:"),
    "port in TOML": ({"inv.toml": "[web.hosts]\na = {}\nb = {ansible_port = 70000}\n"}, "wrong-value", "inv.toml:3:1"),
    "second file of a folder": (
        {"inv/a.ini": "w\n", "inv/b.ini": "[web]\nweb[3:1]\n"},
        "bad-range",
        "inv/b.ini:2:1",
    ),
    "variable in the second file of a folder": (
        {"inv/a.ini": "w\n", "inv/b.yml": "web: {hosts: {w: {bad-name: 1}}}\n"},
        "wrong-value",
        "inv/b.yml:1:",
    ),
    "child that is nowhere": (
        {"inv/a.ini": "w\n", "inv/b.ini": "[top:children]\nlow\n"},
        "unknown-group",
        "inv/b.ini:2:1",
    ),
    "document of ours in a folder": (
        {"inv/a.ini": "w\n", "inv/b.yaml": "apiVersion: kubexm.io/v1\nkind: Inventory\n"},
        "not-an-inventory",
        "inv/b.yaml:1:1",
    ),
    "any other file in a folder": (
        {"inv/a.ini": "w\n", "inv/b.yaml": f"- {SECRET}\n"},
        "not-an-inventory",
        "inv/b.yaml:1:1",
    ),
    "configured plugin": ({"inv.yml": "plugin: amazon.aws.aws_ec2\nregions: [x]\n"}, "inventory-plugin", "inv.yml:1:9"),
    "folder without hosts": ({"inv/notes.md": "x"}, "empty-inventory", "inv:1:1"),
}


@pytest.mark.parametrize(("files", "code", "place"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_in_its_own_file_without_a_word_of_a_foreign_one(
    tmp_path: pathlib.Path, files: Files, code: str, place: str
) -> None:
    site = load_site(None, str(write(tmp_path, files)))
    (finding,) = site.diagnostics.errors
    assert finding.code == code
    assert str(finding.span).startswith(f"{tmp_path}/{place}")
    assert SECRET not in str(finding)
    assert SECRET not in render(site.diagnostics, sources=site.sources)


@pytest.mark.parametrize(
    "files",
    [
        {"inv.ini": "w\n[web]\n", "group_vars/db.yml": "$ANSIBLE_VAULT;1.1;AES256\n61\n"},
        {"inv.ini": "w\n[web]\n", "group_vars/web.yml": "x: !vault '61'\n"},
        {"inv.ini": "w\n", "host_vars/other": "$ANSIBLE_VAULT;1.1;AES256\n61\n"},
    ],
)
def test_what_is_encrypted_for_nobody_here_is_no_concern(tmp_path: pathlib.Path, files: Files) -> None:
    assert set(_ours(write(tmp_path, files))[0]) == {"w"}


def test_every_file_of_an_inventory_is_known_to_plans(spec: Spec) -> None:
    spec.write("inventory: inv\n" + PIPELINE)
    write(spec.folder, {"inv/a.ini": "w\n", "inv/b.toml": "[web.hosts]\nv = {}\n", "inv/group_vars/all/x.yml": "x: 1\n",
                        "inv/host_vars/v.json": '{"y": 1}'})  # fmt: skip
    graph = spec.graph()
    files = ["inv/a.ini", "inv/b.toml", "inv/group_vars/all/x.yml", "inv/host_vars/v.json"]
    assert list(graph.sources) == [*files, "main.yaml"]
    for name in files:
        assert graph.sources[name] == hashlib.sha256((spec.folder / name).read_bytes()).hexdigest()


def test_folder_of_variables_that_holds_itself_is_read_once(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, {"inv/a.ini": "w\n", "inv/group_vars/all/x.yml": "x: 1\n", "inv/sub/b.ini": "v\n"})
    (path / "group_vars" / "all" / "again").symlink_to(path / "group_vars" / "all")
    (path / "sub" / "again").symlink_to(path)
    assert _ours(path)[0] == {"w": {"x": 1}, "v": {"x": 1}}


REACHED_BY_EXPRESSIONS = """\
all:
  vars:
    domain: example.org
    fqdn: "{{ inventory_hostname_short }}.{{ domain }}"
    ansible_host: "{{ fqdn }}"
    ansible_user: "{{ 'db' if 'db' in group_names else group_names | join('-') }}-user"
    base: 2200
    how: {connection: local}
  hosts:
    lonely: {ansible_ssh_private_key_file: "/keys/{{ ansible_host }}"}
  children:
    db:
      hosts:
        d1.inner:
          ansible_port: "{{ base + 1 }}"
          ansible_become: "{{ domain == 'example.org' }}"
          ansible_become_user: "{{ inventory_hostname | replace('.', '_') }}"
    web:
      hosts:
        w1: {ansible_connection: "{{ how.connection }}", ansible_port: "{{ base }}"}
"""


def test_expressions_say_how_hosts_are_reached(tmp_path: pathlib.Path) -> None:
    site = load_site(None, str(write(tmp_path, {"inv.yml": REACHED_BY_EXPRESSIONS})))
    assert site.state is not None, [str(finding) for finding in site.diagnostics]
    lonely, d1, w1 = (site.state.hosts[name] for name in ("lonely", "d1.inner", "w1"))
    assert (lonely.address, lonely.user) == ("lonely.example.org", "ungrouped-user")
    assert lonely.options == {"privateKeyPath": "/keys/lonely.example.org"}
    assert (d1.address, d1.port, d1.user) == ("d1.example.org", 2201, "db-user")
    assert d1.options == {"become": "d1_inner"}
    assert (w1.connector, w1.port, w1.user) == ("local", 2200, "web-user")
    assert "ansible_host" not in w1.vars


@pytest.mark.parametrize(
    ("settings_of_host", "code"),
    [
        ("ansible_host='{{ nothing }}'", "templated-connection"),
        ("ansible_host='{{ 1 +'", "templated-connection"),
        ("ansible_host='{{ x }}' x='{{ y }}' y='{{ x }}'", "templated-connection"),
        ("ansible_host='{{ ansible_host }}'", "templated-connection"),
        ("ansible_user=\"{{ lookup('pipe', 'touch x') }}\"", "templated-connection"),
        ("ansible_host='{{ x }}' x='-oProxyCommand=x'", "bad-address"),
        ("ansible_host='{{ x }}' x='$(touch x)'", "bad-address"),
        ("ansible_user='{{ x }}' x='-oProxyCommand=x'", "bad-user"),
        ("ansible_port='{{ x }}' x=70000", "wrong-value"),
        ("ansible_port='{{ x }}' x=many", "wrong-value"),
        ("ansible_become_user='{{ x }}' ansible_become=True x='$(id)'", "wrong-value"),
        ("ansible_password='{{ x }}' x=y", "plain-password"),
    ],
)
def test_expression_that_cannot_say_it_is_an_error_at_its_place(
    tmp_path: pathlib.Path, settings_of_host: str, code: str
) -> None:
    site = load_site(None, str(write(tmp_path, {"inv.ini": f"other\nh {settings_of_host}\n"})))
    assert site.diagnostics.errors[0].code == code
    assert {str(finding.span) for finding in site.diagnostics} == {f"{tmp_path}/inv.ini:2:3"}


MIXED = """\
here ansible_connection=local
box ansible_connection=docker
[windows]
win
[windows:vars]
ansible_connection=winrm
"""


def test_connection_plugin_that_we_lack_is_an_error_only_for_work_on_that_host(spec: Spec) -> None:
    path = str(spec.file("inv.ini", MIXED))
    spec.write(PIPELINE)
    assert spec.graph(inventory=path, limit=("here",)).hosts.keys() == {"here", "box", "win"}
    findings = spec.compile(inventory=path, limit=("!box",)).diagnostics.errors
    assert [(one.code, str(one.span)) for one in findings] == [("unknown-connector", f"{path}:6:1")]
    assert spec.codes(inventory=path) == ["unknown-connector", "unknown-connector"]


def test_connector_that_we_lack_is_told_at_once_in_an_inventory_of_ours(spec: Spec) -> None:
    spec.write("inventory: {hosts: [{name: here, connector: local}, {name: box, connector: docker}]}\n" + PIPELINE)
    assert spec.codes(limit=("here",)) == ["unknown-connector"]


@pytest.mark.parametrize("command", [["exec", "{}", "--", "true"], ["facts", "{}"], ["shell", "{}", "--print"]])
def test_commands_about_hosts_refuse_only_those_they_cannot_reach(spec: Spec, command: list[str]) -> None:
    path = str(spec.file("inv.ini", MIXED))
    argv = [word.format("box") for word in command]
    refused = CliRunner().invoke(main, [argv[0], "-i", path, *argv[1:]])
    assert refused.exit_code == 2
    assert 'there is no connector "docker"' in refused.output
    assert f"{path}:2:5" in refused.output
    argv = [word.format("here") for word in command]
    assert CliRunner().invoke(main, [argv[0], "-i", path, *argv[1:]]).exit_code == 0

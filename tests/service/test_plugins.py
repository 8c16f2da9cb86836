"""Mistakes of third parties: named with their package, before anything is run if that is possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubexm_exec.model.result import HostResult
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import Outcome
from tests.service.kit import request, spec

BODY = """
inventory: {hosts: [{name: h, connector: plain}]}
modules: [{name: m, tasks: [{name: t, runOn: all, steps: [{name: s, type: command, with: {argv: [id]}}]}]}]
"""
LOCAL = "from kubexm_exec.connectors.local.connector import LocalConnector as C\nclass Plain(C):\n"
PlugIn = Callable[[str, str], None]


@pytest.fixture
def service(tmp_path: Path) -> LocalService:
    return LocalService(str(tmp_path / "journal.db"), tmp_path / "state")


def only(outcome: Outcome) -> HostResult:
    [found] = [host for node in outcome.result.node_results.values() for host in node.host_results.values()]
    return found


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("Plain = 7\n", "is not a class but 7"),
        ("class Plain: pass\n", "has no method open and no method run"),
        ("class Plain:\n  def __getattr__(self, name): return 1\n", "has no method open"),
        (f"{LOCAL}  get = 3\n", "has no method get"),
        ("def Plain(host): return None\n", "cannot be used: it takes (host): too many positional arguments"),
        (f"{LOCAL}  def open(self): pass\n", "Plain.open takes (self): too many positional arguments"),
        (f"{LOCAL}  def run(self, command): pass\n", "Plain.run takes (self, command): got an unexpected keyword"),
        (f"{LOCAL}  async def run(self, command, **more): pass\n", "has an async method run"),
        (f"{LOCAL}  @classmethod\n  def for_run(cls): return 3\n", "returned 3 from for_run, not a factory"),
        (f"{LOCAL}  @classmethod\n  def for_run(cls): return cls.lost\n", "AttributeError"),
        ("import nothing_like_that\n", "cannot be loaded from acme_plain:Plain: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_connector_that_cannot_be_used_is_named_before_anything_is_run(
    service: LocalService, tmp_path: Path, plug_in: PlugIn, code: str, wrong: str
) -> None:
    plug_in("kubexm.connectors", code)
    spec(tmp_path / "specs", BODY)
    with pytest.raises(Invalid) as caught:
        service.run(request(tmp_path / "specs"))
    assert 'connector "plain" of package acme-plain ' in caught.value.message
    assert wrong in caught.value.message
    if caught.value.diagnostics is None:
        assert caught.value.hint == "repair or remove the package acme-plain"
    else:
        [finding] = caught.value.diagnostics.errors
        assert finding.hint == "repair or remove the package acme-plain"
        assert finding.span is not None
        assert finding.code == "broken-connector"
    assert service.runs() == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        (f"{LOCAL}  def __init__(self, host, secrets): pass\n", "raised TypeError: Plain.__init__() got an unexpected"),
        (f"{LOCAL}  def __init__(self, *a, **more): raise KeyError('port')\n", "raised KeyError: 'port'"),
        ("def Plain(host, secrets): return [1]\n", "made a list, which has no method open"),
        (f"{LOCAL}  def open(self, deadline): host.name\n", "raised NameError: name 'host'"),
        (f"{LOCAL}  def open(self, deadline): raise SystemExit(4)\n", "raised SystemExit: 4"),
        (
            f"class E(Exception):\n  def __str__(self): raise OSError\n{LOCAL}  def open(self, deadline): raise E\n",
            "raised E: (its text cannot be shown: OSError)",
        ),
        (f"{LOCAL}  def run(self, command, **more): return None\n", "returned None from run, not a CommandResult"),
        (f"{LOCAL}  def run(self, command, **more): return (0, '', '')\n", "returned a tuple from run, not a"),
        (
            "from kubexm_exec.model.command import CommandResult\n"
            f"{LOCAL}  def run(self, command, **more): return CommandResult(command='', exit_code=0, stdout='x')\n",
            "returned a str as output from run, not bytes",
        ),
        (f"{LOCAL}  def run(self, command, **more): raise OSError('reset')\n", "raised OSError: reset"),
        (f"{LOCAL}  def run(self, command, **more): raise SystemExit(3)\n", "raised SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_connector_that_cannot_be_made_or_opened_is_named_and_not_the_step(
    service: LocalService, tmp_path: Path, plug_in: PlugIn, code: str, wrong: str
) -> None:
    plug_in("kubexm.connectors", code)
    spec(tmp_path / "specs", BODY)
    action = only(service.run(request(tmp_path / "specs")))
    assert f'connector "plain" of package acme-plain {wrong}' in action.message
    assert action.hint.startswith("repair or remove the package acme-plain")


def test_a_connector_that_raises_during_a_step_is_named_and_its_traceback_is_where_the_hint_says(
    service: LocalService, tmp_path: Path, plug_in: PlugIn
) -> None:
    plug_in(
        "kubexm.connectors",
        f"{LOCAL}  def run(self, command, **more): return {{}}['lost']\n",
    )
    spec(tmp_path / "specs", BODY)
    outcome = service.run(request(tmp_path / "specs"))
    assert only(outcome).message == "connector \"plain\" of package acme-plain raised KeyError: 'lost'"
    assert only(outcome).hint.startswith("repair or remove the package acme-plain; its traceback is in")
    assert "acme_plain.py" in str(outcome.to_json())
    from kubexm_exec.report import render_report

    past = service.report("last").past
    assert "acme_plain.py" in render_report(past.graph, past.shown, [])


FETCH = "fetch, with: {path: /etc/hostname, to: fetched}"
BECOME = "command, become: nobody, with: {argv: [id]}"
FILES = """
inventory: {hosts: [{name: h, connector: plain}]}
modules:
  - name: m
    tasks: [{name: t, runOn: all, steps: [{name: s, type: STEP}]}]
"""


@pytest.mark.parametrize(
    ("step", "code", "wrong"),
    [
        (FETCH, "  def stream(self, *a, **k): 1 / 0", "raised ZeroDivisionErr"),
        ("file, with: {path: PATH, content: x}", "  def put(self, *a, **k): return [][1]", "raised IndexError"),
        (BECOME, "  def as_user(self, user): return 3", "returned a int from as_user"),
        (BECOME, "  def as_user(self, user): {}[user]", "raised KeyError: 'nobody'"),
    ],
)  # fmt: skip
def test_a_connector_with_a_mistake_in_any_method_is_named_and_not_the_step(
    service: LocalService, tmp_path: Path, plug_in: PlugIn, step: str, code: str, wrong: str
) -> None:
    plug_in("kubexm.connectors", f"{LOCAL}{code}\n")
    spec(tmp_path / "specs", FILES.replace("STEP", step).replace("PATH", str(tmp_path / "made")))
    action = only(service.run(request(tmp_path / "specs")))
    assert f'connector "plain" of package acme-plain {wrong}' in action.message
    assert action.hint.startswith("repair or remove the package acme-plain")


def test_what_a_step_raises_while_a_connector_calls_it_is_not_said_of_the_connector(
    service: LocalService, tmp_path: Path, plug_in: PlugIn
) -> None:
    plug_in("kubexm.connectors", f"{LOCAL}  pass\n")
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "fetched").write_text("a file in the place of the folder")
    spec(tmp_path / "specs", FILES.replace("STEP", FETCH))
    assert "acme" not in str(only(service.run(request(tmp_path / "specs"))).message)


def test_a_connector_that_ends_the_program_when_it_closes_does_not(
    service: LocalService, tmp_path: Path, plug_in: PlugIn
) -> None:
    plug_in("kubexm.connectors", f"{LOCAL}  def close(self): raise SystemExit(5)\n")
    spec(tmp_path / "specs", BODY)
    assert service.run(request(tmp_path / "specs")).well


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("Plain = 7\n", "is not a function but 7"),
        ("def Plain(argument): raise SystemExit('over')\n", "failed: SystemExit: over"),
        ("def Plain(argument, more): return {}\n", "takes (argument, more), but is called with one argument"),
        ("async def Plain(argument): return {}\n", "is an async function"),
        (
            "def Plain(argument): return {'hosts': (host for host in ())}\n",
            "a value of the type generator",
        ),
        ("def Plain(argument): return {'hosts': [{'name': b'h'}]}\n", "not plain data: a value of the type bytes"),
        ("def Plain(argument): return {'hosts': [{'name': '\\ud800'}]}\n", "not plain data: 'utf-8' codec"),
        (
            "class E(Exception):\n  def __str__(self): raise OSError\ndef Plain(argument): raise E\n",
            "failed: E: (its text cannot be shown: OSError)",
        ),
        (
            "import collections\n"
            "class Lazy(collections.UserDict):\n  def __getitem__(self, key): raise LookupError('late')\n"
            "def Plain(argument): return Lazy(hosts=[])\n",
            "not plain data: LookupError: late",
        ),
        ("def Plain(argument): return [argument]\n", "returned a list, not a mapping"),
        ("def Plain(argument): return {'hosts': {('a', 'b'): 1}}\n", "not plain data: keys must be"),
        (
            "def Plain(argument):\n  own = {}\n  own['hosts'] = own\n  return own\n",
            "not plain data: Circular reference",
        ),
    ],
)
def test_an_inventory_source_with_a_mistake_is_named(
    service: LocalService, tmp_path: Path, plug_in: PlugIn, code: str, wrong: str
) -> None:
    plug_in("kubexm.inventories", code)
    spec(tmp_path / "specs", BODY.replace("{hosts: [{name: h, connector: plain}]}", '"plain:x"'))
    with pytest.raises(Invalid) as caught:
        service.run(request(tmp_path / "specs"))
    assert 'inventory source "plain" of package acme-plain ' in caught.value.message
    assert wrong in caught.value.message


def test_an_inventory_source_may_return_addresses_and_sets(
    service: LocalService, tmp_path: Path, plug_in: PlugIn
) -> None:
    code = (
        "import ipaddress, types\n"
        "def Plain(argument):\n"
        "  host = {'name': 'h', 'address': ipaddress.ip_address('10.0.0.1'), 'roles': {'web'}, 'connector': 'local'}\n"
        "  return types.MappingProxyType({'hosts': (host,)})\n"
    )
    plug_in("kubexm.inventories", code)
    spec(tmp_path / "specs", BODY.replace("{hosts: [{name: h, connector: plain}]}", '"plain:x"'))
    outcome = service.run(request(tmp_path / "specs"))
    assert outcome.well
    assert (outcome.graph.hosts["h"].address, outcome.graph.hosts["h"].roles) == ("10.0.0.1", ("web",))

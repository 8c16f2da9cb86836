"""Packages of third parties, really built and installed beside the wheel of kubexm in an environment of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.environments import (
    ROOT,
    borrowing_environment,
    build_wheel,
    install,
    locked_environment,
    site_packages,
    succeed,
)

# One process builds and installs them for all of these tests.
pytestmark = pytest.mark.xdist_group("wheel")

HERE = Path(__file__).resolve().parent

SPEC = """\
apiVersion: kubexm.io/v1
kind: Pipeline
metadata: {{name: acme}}
failurePolicy: rollback
params:
  good: {{type: boolean, default: true}}
inventory:
  defaults: {{connector: local}}
  hosts: [{{name: "node[1:3]"}}]
modules:
  - name: greet
    tasks:
      - name: all
        steps:
          - name: hello
            type: acme-greeting
            with: {{path: "{folder}/{{{{ host.name }}}}.txt", greetedName: "{{{{ host.name }}}}"}}
          - name: tell
            type: message
            with: {{text: "said {{{{ steps.hello.outputs.text }}}}"}}
          - name: verify
            type: assert
            with: {{that: params.good}}
"""


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with kubexm, a good package and a broken one."""
    wheels = tmp_path_factory.mktemp("wheels")
    projects = (ROOT, HERE / "acme-kubexm", HERE / "broken-kubexm")
    return locked_environment(tmp_path_factory.mktemp("acme"), *(build_wheel(project, wheels) for project in projects))


@pytest.fixture(scope="module")
def rivals(acme: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one more package, that claims a name of the good one."""
    venv = borrowing_environment(tmp_path_factory.mktemp("rivals"), site_packages(acme))
    install(venv, build_wheel(HERE / "rival-kubexm", tmp_path_factory.mktemp("rival-wheel")))
    return venv


def run(venv: Path, command: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([venv / "bin" / command, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def spec(folder: Path) -> Path:
    path = folder / "acme.yaml"
    path.write_text(SPEC.format(folder=folder))
    return path


def test_list_of_steps_names_the_package_of_each(acme: Path, tmp_path: Path) -> None:
    rows = json.loads(succeed(acme / "bin" / "kubexm", "steps", "--output", "json", cwd=tmp_path))
    owners = {row["name"]: (row["distribution"], row["version"]) for row in rows}
    assert owners["acme-greeting"] == ("acme-kubexm", "1.2.3")
    assert owners["file"][0] == "kubexm"


def test_documentation_of_a_third_partys_step_comes_from_its_class(acme: Path, tmp_path: Path) -> None:
    text = succeed(acme / "bin" / "kubexm", "steps", "acme-greeting", cwd=tmp_path)
    assert "(acme-kubexm 1.2.3)" in text
    assert "A greeting in a file." in text
    assert "greetedName" in text
    assert "It can be undone." in text


def test_schema_has_the_parameters_of_a_third_partys_step(acme: Path, tmp_path: Path) -> None:
    schema = json.loads(succeed(acme / "bin" / "kubexm", "schema", cwd=tmp_path))
    assert set(schema["$defs"]["with:acme-greeting"]["properties"]) == {"path", "greetedName"}


def test_spec_runs_with_a_third_partys_step_and_executor_and_has_nothing_to_do_the_second_time(
    acme: Path, tmp_path: Path
) -> None:
    command = (acme / "bin" / "kubexm-run", spec(tmp_path), "--executor", "acme-count", "--result", "result.json")
    succeed(*command, cwd=tmp_path)
    assert [(tmp_path / f"node{n}.txt").read_text() for n in (1, 2, 3)] == [f"hello node{n}\n" for n in (1, 2, 3)]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["executor"] == "acme-count"
    assert "performed 3 acme-greeting, 3 assert, 3 message" in result["message"]
    assert result["nodeResults"]["greet/all/hello"]["hostResults"]["node2"]["outputs"] == {"text": "hello node2\n"}
    succeed(*command, cwd=tmp_path)
    again = json.loads((tmp_path / "result.json").read_text())["nodeResults"]["greet/all/hello"]["hostResults"]
    assert {host["skipped"] for host in again.values()} == {True}
    assert again["node2"]["outputs"] == {"text": "hello node2\n"}


def test_third_partys_executor_rolls_back_a_third_partys_step(acme: Path, tmp_path: Path) -> None:
    (tmp_path / "node1.txt").write_text("before\n")
    done = run(acme, "kubexm-run", spec(tmp_path), "--executor", "acme-count", "-e", "good=false", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "node1.txt").read_text() == "before\n"
    assert not (tmp_path / "node2.txt").exists()


def test_wrong_parameter_of_a_third_partys_step_is_found_before_anything_runs(acme: Path, tmp_path: Path) -> None:
    path = spec(tmp_path)
    path.write_text(path.read_text().replace("greetedName", "greetedNam"))
    done = run(acme, "kubexm-run", path, cwd=tmp_path)
    assert done.returncode == 2
    assert 'did you mean "greetedName"?' in done.stderr
    assert not list(tmp_path.glob("*.txt"))


def test_name_that_two_packages_claim_is_an_error_that_names_both(rivals: Path, tmp_path: Path) -> None:
    done = run(rivals, "kubexm", "validate", spec(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "error[ambiguous-step-type]" in done.stderr
    assert "acme-kubexm" in done.stderr
    assert "rival-kubexm" in done.stderr


def test_name_that_two_packages_claim_is_listed_as_such(rivals: Path, tmp_path: Path) -> None:
    done = run(rivals, "kubexm", "steps", "--output", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    claims = [row for row in json.loads(done.stdout) if row["name"] == "acme-greeting"]
    assert sorted(row["distribution"] for row in claims) == ["acme-kubexm", "rival-kubexm"]
    assert all("claimed by" in row["error"] for row in claims)


def test_broken_package_is_shown_as_broken_and_breaks_no_other_spec(acme: Path, tmp_path: Path) -> None:
    text = succeed(acme / "bin" / "kubexm", "steps", cwd=tmp_path)
    (line,) = [line for line in text.splitlines() if line.startswith("broken-thing")]
    assert "broken-kubexm 0.0.1" in line
    assert "BROKEN" in line
    succeed(acme / "bin" / "kubexm", "validate", spec(tmp_path), cwd=tmp_path)


def test_spec_that_uses_a_broken_package_says_which_one_and_what_to_do(acme: Path, tmp_path: Path) -> None:
    path = spec(tmp_path)
    path.write_text(path.read_text().replace("type: message", "type: broken-thing"))
    done = run(acme, "kubexm-run", path, cwd=tmp_path)
    assert done.returncode == 2
    assert "error[broken-step-type]" in done.stderr
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "broken-thing" in text)
    assert f"{path.name}:{line}:19" in done.stderr
    assert "broken_kubexm_needs_this" in done.stderr
    assert "repair or remove the package broken-kubexm" in done.stderr
    assert "Traceback" not in done.stderr


def test_hosts_of_a_third_partys_source_are_used_by_name_and_argument(acme: Path, tmp_path: Path) -> None:
    done = run(acme, "kubexm", "exec", "acme", "-i", "acme:2", "--output", "plain", "--", "echo", "hello", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| hello") == 2
    wrong = run(acme, "kubexm", "inventory", "-i", "acme:many", cwd=tmp_path)
    assert wrong.returncode == 2
    assert 'inventory source "acme" of package acme-kubexm failed: ValueError' in wrong.stderr
    unknown = run(acme, "kubexm", "inventory", "-i", "acmy:2", cwd=tmp_path)
    assert 'did you mean "acme"?' in unknown.stderr


def test_secret_of_a_third_partys_store_is_used_and_masked_with_all_that_the_store_hides(
    acme: Path, tmp_path: Path
) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(
        "apiVersion: kubexm.io/v1\nkind: Pipeline\nmetadata: {name: secret}\n"
        "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: command, with: {argv: "
        "[echo, \"{{ secret('acme:staple') | upper }}\", \"{{ secret('acme:horse') }}\", the-master-key-of-acme]"
        "}}]}]}]\n"
    )
    done = run(acme, "kubexm-run", path, "-v", cwd=tmp_path)
    assert "| *** *** ***" in done.stdout, done.stdout + done.stderr
    path.write_text(path.read_text().replace("acme:horse", "acme:2"))
    wrong = run(acme, "kubexm-run", path, cwd=tmp_path)
    assert 'secret "acme:2": is no word' in wrong.stdout
    assert wrong.returncode == 1


def test_hosts_are_reached_by_a_third_partys_connector(acme: Path, tmp_path: Path) -> None:
    account, hosts = tmp_path / "account", tmp_path / "hosts.yaml"
    head = "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: acme}\n"
    hosts.write_text(f"{head}hosts: [{{name: h, connector: acme-accounted, address: {account}}}]\n")
    done = run(acme, "kubexm", "exec", "h", "-i", hosts, "--output", "plain", "--", "echo", "hello there", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| hello there" in done.stdout
    assert "echo 'hello there'" in account.read_text()
    hosts.write_text(f"{head}hosts: [{{name: h, connector: acme-accounted, address: /nowhere/account}}]\n")
    broken = run(acme, "kubexm", "exec", "h", "-i", hosts, "--output", "plain", "--", "true", cwd=tmp_path)
    assert broken.returncode == 1
    assert "no account can be kept: No such file or directory" in broken.stdout
    assert "unreachable" in broken.stdout.lower()

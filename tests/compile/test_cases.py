"""Wrong specs, one or a few mistakes each: what people see is exactly what is written beside them.

A case is ``cases/NAME.yaml``, or ``cases/NAME/main.yaml`` with more files; ``# args:`` in its first lines is given to
the command, and ``# command:`` is another command than ``validate``. UPDATE_GOLDEN=1 writes what is expected anew: look
at the difference before you keep it.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kubexm_exec.cli.main import main
from kubexm_spec.shipped import shipped_root

CASES = pathlib.Path(__file__).with_name("cases")
PACKAGES = pathlib.Path(__file__).parents[2]
NAMES = sorted(path.stem for path in CASES.iterdir() if path.suffix == ".yaml" or path.is_dir())

# Findings about the document as a whole, or about a file that is nothing but the mistake: there is no other place.
AT_THE_TOP = {"empty-file", "missing-api-version", "missing-kind", "no-pipeline", "not-a-document"}
# Findings about the command line: their place is not in a file.
WITHOUT_A_PLACE = {"unknown-host-limit", "unknown-param-from-outside", "no-such-tag", "not-a-file", "file-not-found"}
# Codes that need something which a file in this folder cannot be, with the tests that cover them.
_NODES = "tests/clusters/test_add_and_remove_nodes.py"
ELSEWHERE = {
    **dict.fromkeys(
        ("another-endpoint", "another-version", "dead-member", "endpoint-leaves", "last-control-plane"), _NODES
    ),
    **dict.fromkeys(("last-worker", "member-of-etcd", "not-a-node", "not-dead"), _NODES),
    "lost-handler": "e2e/test_notifications.py",
    "host-left-out": "e2e/test_host_hooks.py",
    "owed-hook-dropped": "e2e/test_groups_resumed.py",
    "ambiguous-step-type": "test_registries.py",
    "broken-executor": "executors/test_base.py",
    "broken-step-type": "test_registries.py",
    "broken-connector": "test_registries.py",
    "ambiguous-connector": "test_registries.py",
    "encrypted-file": "test_ansible_inventories.py",
    "encrypted-variable": "test_ansible_inventories.py",
    "inventory-plugin": "test_ansible_inventories.py",
    "not-an-inventory": "test_ansible_inventories.py",
    "toml-syntax": "test_ansible_inventories.py",
    "control-character": "tests/spec/test_yamlload.py",
    "file-too-large": "tests/spec/test_source.py",
    "format-unsafe": "tests/spec/test_fmt.py",
    "group-cycle": "test_inventories.py",
    "inventory-program": "test_inventories.py",
    "inventory-source-failed": "test_inventories.py",
    "no-inventory-output": "test_inventories.py",
    "missing-secret": "tests/cli/test_secret_references.py",
    "not-utf8": "tests/spec/test_source.py",
    "permission": "tests/spec/test_source.py",
    "too-deep": "tests/spec/test_yamlload.py",
    "unreadable-file": "test_files.py",
}


def spec_of(name: str) -> pathlib.Path:
    folder = CASES / name
    return folder / "main.yaml" if folder.is_dir() else CASES / f"{name}.yaml"


def expected_of(name: str) -> pathlib.Path:
    folder = CASES / name
    return folder / "expected.txt" if folder.is_dir() else CASES / f"{name}.txt"


def run(name: str, *more: str) -> Result:
    spec = spec_of(name)
    lines = dict(re.findall(r"^# (args|command): (.+)$", spec.read_text("utf-8"), re.MULTILINE))
    command = lines.get("command", "validate {}").replace("{}", spec.name)
    os.chdir(spec.parent)
    return CliRunner().invoke(main, [*shlex.split(command), *shlex.split(lines.get("args", "")), *more])


@pytest.fixture(autouse=True)
def _stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)  # so that it is undone, whatever `run` does
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("KUBEXM_TEMPLATES", raising=False)


def shown(result: Result) -> str:
    text = result.output.replace(str(shipped_root("templates")), "<shipped templates>")
    return re.sub(r"shipped: .+", "shipped: ...", text)


@pytest.mark.parametrize("name", NAMES)
def test_people_see_what_is_wrong_and_where(name: str) -> None:
    result = run(name)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    text = f"{shown(result)}exit {result.exit_code}\n"
    expected = expected_of(name)
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(text, "utf-8")
    assert text == expected.read_text("utf-8")
    assert str(PACKAGES) not in text
    assert result.exit_code == (0 if "warning" in name else 2)


@pytest.mark.parametrize("name", NAMES)
def test_machines_get_the_same_as_data_with_places_inside_the_files(name: str) -> None:
    result = run(name, "--output", "json")
    data = json.loads(result.stdout)
    assert data["event"] == "diagnostics"
    text = expected_of(name).read_text("utf-8")
    heads = re.findall(r"^(error|warning)\[(.+?)\]: (.+)$", text, re.MULTILINE)
    assert [(d["severity"], d["code"], " ".join(d["summary"].split())) for d in data["diagnostics"]] == heads
    places = re.findall(r"^ *--> (.+)$", text, re.MULTILINE)
    spans = [d["span"] for d in data["diagnostics"] if d["span"]]
    assert [f"{span['file']}:{span['line']}:{span['column']}" for span in spans] == places
    assert (data["errors"], data["warnings"]) == (
        sum(1 for severity, *_ in heads if severity == "error"),
        sum(1 for severity, *_ in heads if severity == "warning"),
    )
    check_places(name, data["diagnostics"])


def check_places(name: str, findings: list[dict[str, Any]]) -> None:
    """Every finding points into its file, and never just at its beginning."""
    folder = spec_of(name).parent
    for finding in findings:
        if finding["span"] is None:
            assert name in WITHOUT_A_PLACE
            continue
        for span in (finding["span"], *(note["span"] for note in finding["notes"] if note["span"])):
            lines = (folder / span["file"]).read_text("utf-8").splitlines()
            assert 1 <= span["line"] <= len(lines)
            assert 1 <= span["column"] <= len(lines[span["line"] - 1]) + 1
            assert (span["line"], span["column"]) < (span["endLine"], span["endColumn"])
        span = finding["span"]
        assert (span["line"], span["column"]) != (1, 1) or name in AT_THE_TOP


def codes_in_the_code() -> Iterator[str]:
    """Every code that is written in the packages, and those that are made from names."""
    call = re.compile(r"""(?:\.(?:error|warning|add)|Diagnostic|Problem|_failure|_problem|_add|RegistryError)\(
        \s*(?:self\.\w+,\s*)?"([a-z0-9]+(?:-[a-z0-9]+)+|cycle|permission)",""", re.VERBOSE)  # fmt: skip
    for package in ("kubexm_spec", "kubexm_exec"):
        for path in sorted((PACKAGES / package).rglob("*.py")):
            yield from call.findall(path.read_text("utf-8"))
    yield from (f"{what}-{noun}" for what in ("unknown", "ambiguous", "broken") for noun in ("step-type", "connector"))
    yield from ("unknown-role", "unknown-group", "unknown-task", "unknown-module", "later-task", "later-module")
    yield from ("unknown-key", "missing-key", "wrong-type", "wrong-value", "unknown-fact", "unknown-name", "no-hosts")


def test_every_code_has_a_case() -> None:
    seen = {
        code
        for name in NAMES
        for code in re.findall(r"^(?:error|warning)\[(.+?)\]", expected_of(name).read_text("utf-8"), re.MULTILINE)
    }
    missing = sorted(set(codes_in_the_code()) - seen - ELSEWHERE.keys())
    assert missing == []

"""Bundles: what a pipeline uses, found from the file that names it, each file read once."""

from __future__ import annotations

import pathlib

import pytest

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.bundle import Bundle, load_bundle

HEAD = "apiVersion: kubexm.io/v1\nkind: {}\nmetadata: {{name: {}}}\n"
STEP = "{name: s, type: message}"
TASK = HEAD.format("Task", "t") + f"steps: [{STEP}]\n"
MODULE = HEAD.format("Module", "m") + "tasks: [{name: t, uses: tasks/t.yaml}]\n"
INVENTORY = HEAD.format("Inventory", "i") + "hosts: [{name: a, connector: local}]\n"


class Folder:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.diagnostics = Diagnostics()

    def file(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def load(self, inventory: str | None = None) -> Bundle | None:
        self.diagnostics = Diagnostics()
        return load_bundle(self.path / "main.yaml", self.diagnostics, inventory=inventory)

    def codes(self) -> list[str]:
        return [finding.code for finding in self.diagnostics.sorted()]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Folder:
    found = Folder(tmp_path)
    found.file("lib/m.yaml", MODULE)
    found.file("lib/tasks/t.yaml", TASK)
    found.file("hosts/all.yaml", INVENTORY)
    return found


def pipeline(modules: str, more: str = "") -> str:
    return HEAD.format("Pipeline", "p") + more + f"modules: {modules}\n"


def test_paths_start_at_the_file_that_names_them(folder: Folder) -> None:
    folder.file("main.yaml", pipeline("[{name: m, uses: lib/m.yaml}]", "inventory: ./hosts/../hosts/all.yaml\n"))
    bundle = folder.load()
    assert bundle is not None
    assert folder.codes() == []
    assert bundle.inventory is not None
    assert [loaded.document.metadata.name for loaded in bundle.modules.values()] == ["m"]
    assert [loaded.document.metadata.name for loaded in bundle.tasks.values()] == ["t"]
    assert sorted(source.path.name for source in bundle.sources.values()) == [
        "all.yaml",
        "m.yaml",
        "main.yaml",
        "t.yaml",
    ]


def test_a_file_that_is_used_twice_is_read_once(folder: Folder) -> None:
    folder.file("main.yaml", pipeline("[{name: a, uses: lib/m.yaml}, {name: b, uses: ./lib/../lib/m.yaml}]"))
    bundle = folder.load()
    assert bundle is not None
    first, second = bundle.modules.values()
    assert first.source is second.source
    assert first.document is second.document


def test_a_file_may_hold_several_documents(folder: Folder) -> None:
    both = pipeline(
        "[{name: a, uses: '#m1'}, {name: b, uses: '#m2'}, {name: c, uses: 'lib/two.yaml#m2'}]", "inventory: '#i'\n"
    )
    first, second = (HEAD.format("Module", name) + f"tasks: [{{name: t, steps: [{STEP}]}}]\n" for name in ("m1", "m2"))
    folder.file("main.yaml", "---\n".join([both, first, second, INVENTORY]))
    folder.file("lib/two.yaml", "---\n".join([first, second]))
    bundle = folder.load()
    assert folder.codes() == []
    assert bundle is not None
    assert [loaded.document.metadata.name for loaded in bundle.modules.values()] == ["m1", "m2", "m2"]
    assert bundle.inventory is not None


@pytest.mark.parametrize(
    ("uses", "code"),
    [
        ("lib/n.yaml", "file-not-found"),
        ("lib", "file-not-found"),
        ("''", "wrong-kind"),
        ("hosts/all.yaml", "wrong-kind"),
        ("lib/m.yaml#x", "unknown-document"),
        ("'kubexm:nothing-like-it'", "unknown-shipped"),
        ("'kubexm:'", "unknown-shipped"),
        ("'#nope'", "unknown-document"),
    ],
)
def test_what_cannot_be_found_is_told_where_it_is_named(folder: Folder, uses: str, code: str) -> None:
    folder.file("main.yaml", pipeline(f"[{{name: m, uses: {uses}}}]"))
    folder.load()
    (finding,) = folder.diagnostics
    assert finding.code == code
    assert finding.span is not None
    assert (pathlib.Path(finding.span.file).name, finding.span.line) == ("main.yaml", 4)
    assert finding.hint


def test_findings_in_used_files_say_who_uses_them(folder: Folder) -> None:
    folder.file("main.yaml", pipeline("[{name: m, uses: lib/m.yaml}]", "inventory: hosts/all.yaml\n"))
    folder.file("lib/tasks/t.yaml", TASK.replace("steps", "stesp"))
    folder.file("hosts/all.yaml", INVENTORY.replace("name: a", "nme: a"))
    folder.load()
    assert folder.codes() == ["unknown-key", "unknown-key"]
    assert all([note.message for note in finding.notes] == ["used by"] for finding in folder.diagnostics)


def test_a_broken_file_that_is_used_is_told_once(folder: Folder) -> None:
    folder.file("main.yaml", pipeline("[{name: a, uses: lib/m.yaml}, {name: b, uses: lib/m.yaml}]"))
    folder.file("lib/m.yaml", "a: [\n")
    folder.load()
    assert folder.codes() == ["yaml-syntax"]


def test_a_wrong_pipeline_still_has_its_files_checked(folder: Folder) -> None:
    folder.file("main.yaml", pipeline("[{name: m, uses: lib/m.yaml}]", "inventory: hosts/all.yaml\nwrong: 1\n"))
    folder.file("hosts/all.yaml", INVENTORY.replace("hosts:", "hsts:"))
    folder.file("lib/m.yaml", MODULE.replace("tasks/t.yaml", "tasks/u.yaml"))
    assert folder.load() is None
    assert sorted(folder.codes()) == ["file-not-found", "unknown-key", "unknown-key"]


@pytest.mark.parametrize("kind", ["[]", "5", "{a: b}", "null", "''", "Pipelines"])
def test_a_kind_that_is_none_is_told(folder: Folder, kind: str) -> None:
    folder.file("main.yaml", f"apiVersion: kubexm.io/v1\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert folder.load() is None
    assert folder.codes() in (["unknown-kind"], ["missing-kind"])


@pytest.mark.parametrize("version", ["[]", "5", "kubexm.io/v2", "v1", "''"])
def test_a_version_that_is_not_ours_is_told(folder: Folder, version: str) -> None:
    folder.file("main.yaml", f"apiVersion: {version}\nkind: Pipeline\nmetadata: {{name: x}}\n")
    assert folder.load() is None
    assert folder.codes() in (["newer-api-version"], ["unknown-api-version"])

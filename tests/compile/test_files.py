"""Files that steps name: found from the file that names them, on every host, and read without surprises."""

from __future__ import annotations

import os
import pathlib
import socket

import pytest

from tests.compile.kit import Spec


def steps(*lines: str, top: str = "") -> str:
    body = "".join(f"          - {line}\n" for line in lines)
    return f"{top}\nmodules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n{body}"


HOSTS = "inventory: {hosts: [{name: a, connector: local}, {name: b, connector: local}]}"


def test_a_file_that_differs_between_hosts_must_be_there_for_each(spec: Spec) -> None:
    spec.write(steps('{name: s, type: script, with: {src: "{{ host.name }}.sh"}}', top=HOSTS), a__sh="x")
    (finding,) = spec.compile().diagnostics
    assert (finding.code, finding.summary) == ("file-not-found", 'the file "b.sh" does not exist on this machine')
    spec.file("b.sh", "x")
    assert {"a.sh", "b.sh"} <= spec.graph().sources.keys()


def test_a_file_whose_name_is_known_only_later_is_not_looked_for(spec: Spec) -> None:
    spec.write(steps('{name: s, type: script, with: {src: "{{ facts.hostname }}.sh"}}'))
    assert spec.codes() == []


def test_files_of_a_used_document_are_found_from_its_own_folder(spec: Spec) -> None:
    spec.write(
        "modules: [{name: m, uses: lib/u.yaml}]\n",
        lib_S_u__yaml="""
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: u}
        tasks:
          - name: t
            steps:
              - {name: s, type: script, with: {src: run.sh}}
              - {name: p, type: template, with: {src: x.j2, path: /x}}
        """,
        run__sh="wrong one",
        lib_S_templates_S_x__j2="x",
    )
    (finding,) = spec.compile().diagnostics
    assert finding.code == "file-not-found"
    assert [note.message for note in finding.notes] == ["used by"]
    spec.file("lib/run.sh", "right one")
    assert {"lib/run.sh", "lib/templates/x.j2", "lib/u.yaml", "main.yaml"} == spec.graph().sources.keys()


def test_templates_are_searched_in_given_folders_and_never_outside(spec: Spec, tmp_path: pathlib.Path) -> None:
    spec.write(steps("{name: p, type: template, with: {src: x.j2, path: /x}}"))
    assert spec.codes() == ["unknown-template"]
    spec.file("more/x.j2", "x")
    assert spec.codes(templates=(str(spec.folder / "more"),)) == []
    spec.write(steps("{name: p, type: template, with: {src: ../x.j2, path: /x}}"))
    assert spec.codes(templates=(str(spec.folder / "more"),)) == ["unknown-template"]


def test_a_template_that_is_no_text_is_told_at_the_step(spec: Spec) -> None:
    spec.write(steps("{name: p, type: template, with: {src: x.j2, path: /x}}"))
    (spec.folder / "x.j2").write_bytes(b"\xff\xfe\x00")
    (finding,) = spec.compile().diagnostics
    assert (finding.code, finding.hint) == ("bad-template", "save the file as UTF-8")
    assert finding.span is not None
    assert finding.span.line == 10


def test_a_file_that_cannot_be_read_is_told_at_the_step(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket: even root cannot open it."""
    spec.write(steps("{name: s, type: script, with: {src: run.sh}}"))
    monkeypatch.chdir(spec.folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("run.sh")
        (finding,) = spec.compile().diagnostics
    assert (finding.code, finding.span and finding.span.line) == ("unreadable-file", 10)


def test_a_folder_that_vanishes_or_a_pipe_is_no_traceback(spec: Spec) -> None:
    spec.write(steps("{name: s, type: copy, with: {src: things, path: /opt/things}}"))
    assert spec.codes() == ["file-not-found"]
    (spec.folder / "things").mkdir()
    os.mkfifo(spec.folder / "things" / "pipe")
    (spec.folder / "things" / "link").symlink_to("nowhere")
    assert spec.codes() == []

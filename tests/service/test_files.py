"""Documents that a request carries itself: nobody has written a file."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import json as wire
from msgspec.structs import replace

from kubexm_exec.compile.plan import save_plan
from kubexm_exec.model.result import Status
from kubexm_exec.service.errors import Held, Invalid
from kubexm_exec.service.live import LiveRun
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import (
    CommandRequest,
    Documents,
    DriftRequest,
    InventoryRequest,
    PruneRequest,
    ResumeRequest,
    RollbackRequest,
    RunRequest,
    VarsRequest,
)
from tests.service.kit import HEAD, Listener

MODULE = """apiVersion: kubexm.io/v1
kind: Module
metadata: {name: m}
tasks:
  - name: t
    steps:
      - {name: first, type: template, with: {src: word.j2, path: 'ROOM/first'}}
      - name: slow
        type: command
        with:
          shell: "test -e ROOM/go || { echo > ROOM/pipe; read x < ROOM/pipe; }; touch ROOM/slow"
          creates: ROOM/slow
      - {name: last, type: template, with: {src: word.j2, path: 'ROOM/last'}}
"""


def bundle(room: Path) -> Documents:
    """A pipeline in a folder that uses a module in another, with a template and a file of values."""
    return Documents(
        folder="/somewhere/else",
        files={
            "sites/main.yaml": HEAD.replace("NAME", "site") + "params: {word: {default: ''}}\n"
            "modules:\n  - {name: m, uses: ../modules/m.yaml, with: {word: '{{ params.word }}'}}\n",
            "modules/m.yaml": MODULE.replace("ROOM", str(room)).replace("tasks:", "params: {word: {}}\ntasks:", 1),
            "modules/templates/word.j2": "the word is {{ params.word }}\n",
            "values.yaml": "word: hello\n",
        },
        spec="sites/main.yaml",
        vars_files=("values.yaml",),
    )


@pytest.fixture
def service(tmp_path: Path) -> LocalService:
    return LocalService(str(tmp_path / "journal.db"), tmp_path / "state")


@pytest.fixture
def room(tmp_path: Path) -> Path:
    path = tmp_path / "room"
    path.mkdir()
    os.mkfifo(path / "pipe")
    return path


def unpacked(service: LocalService) -> list[Path]:
    return list(service.state.glob("runs/*/documents"))


def test_documents_of_a_request_are_checked_planned_and_compared_without_a_trace(
    service: LocalService, room: Path
) -> None:
    documents = bundle(room)
    assert service.validate(["."], documents).checked == 2
    planned = service.plan(documents)
    assert [node.id for node in planned.plan.graph.steps()] == ["m/t/first", "m/t/slow", "m/t/last"]
    assert planned.plan.root == "/somewhere/else/sites"
    assert planned.plan.graph.target == "/somewhere/else/sites/main.yaml"
    assert str(service.state) not in json.dumps(planned.plan.to_json())
    broken = replace(
        documents, files={**documents.files, "modules/m.yaml": MODULE.replace("type: command", "type: comand")}
    )
    with pytest.raises(Invalid) as caught:
        service.plan(broken)
    assert caught.value.diagnostics is not None
    [file] = [
        each.span.file for each in caught.value.diagnostics.errors if each.code == "unknown-step-type" and each.span
    ]
    assert file == "modules/m.yaml"
    assert unpacked(service) == []


def test_such_documents_are_compared_and_looked_into(service: LocalService, room: Path) -> None:
    was = bundle(room)
    hosts = "inventory: {vars: {a: 1}, hosts: [{name: one, connector: local, vars: {a: 2}}]}\n"
    now = replace(was, files={**was.files, "sites/main.yaml": was.files["sites/main.yaml"] + hosts})
    found = service.diff(was, now)
    assert {change.node: change.hosts_added for change in found.changes if not change.gate}["m/t/first"] == ("one",)
    assert service.diff(was, was).changes == []
    values = service.vars(VarsRequest(documents=now, host="one", scope="m"))
    assert {row.name: row.value for row in values} == {"params.word": "hello", "vars.a": 2}
    [host] = service.inventory(InventoryRequest(documents=now, pattern="one"))
    assert [(row.value, len(row.hidden)) for row in host.vars] == [(2, 1)]
    with pytest.raises(Invalid, match='there is no host "two"'):
        service.vars(VarsRequest(documents=now, host="two"))
    outcome = service.run_command(CommandRequest(documents=now, pattern="all", argv=("cat", "values.yaml")))
    assert "word: hello" in json.dumps(outcome.to_json())
    assert unpacked(service) == []


RUN = """
import sys
from pathlib import Path
from msgspec import json
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import RunRequest
LocalService(sys.argv[1], Path(sys.argv[2])).run(json.decode(sys.argv[3], type=RunRequest))
"""


def test_a_killed_run_of_such_documents_is_resumed_and_taken_back(service: LocalService, room: Path) -> None:
    request = RunRequest(documents=bundle(room))
    argv = [sys.executable, "-c", RUN, service.journal, str(service.state), wire.encode(request).decode()]
    pipe = os.open(room / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(argv, cwd="/")
    try:
        assert select.select([pipe], [], [], 20)[0]  # the step in the middle has begun
        os.close(pipe)
        [folder] = unpacked(service)
        assert (folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777) == (0o700, 0o700)
        assert not (folder / "values.yaml").stat().st_mode & 0o111
        with pytest.raises(Held):  # the same documents work on the same target, wherever they are unpacked
            service.run(request)
        assert unpacked(service) == [folder]
    finally:
        process.kill()
    assert process.wait(20) == -signal.SIGKILL
    (room / "go").touch()
    outcome = service.resume(ResumeRequest(run="last"))
    assert (outcome.well, outcome.done_before) == (True, 1)
    assert (room / "last").read_text() == "the word is hello\n"
    assert service.get("last").request == request
    # Also where nothing of it is left but the journal, and as long as it is needed.
    (room / "last").write_text("other")
    [found] = unpacked(service)
    for path in sorted(found.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    drift = service.drift(DriftRequest(folder="/somewhere/else", spec="sites/main.yaml"))
    assert [node for node, _ in drift.differs] == ["m/t/last"]
    assert drift.changes == []
    assert service.roll_back(RollbackRequest(run="last", overwrite=True)).result.status is Status.SUCCESS
    assert not (room / "first").exists()
    service.prune([each.row.id for each in service.prunable(PruneRequest(everything=True))])
    assert unpacked(service) == []


def test_a_run_that_is_not_recorded_leaves_no_documents(service: LocalService, room: Path) -> None:
    (room / "go").touch()
    seen: list[list[Path]] = []

    class Looking(Listener):
        def attach(self, run: LiveRun) -> None:
            seen.append(unpacked(service))

    assert service.run(RunRequest(documents=bundle(room), journal=False), Looking()).well
    assert len(seen[0]) == 1
    assert unpacked(service) == []


def command(line: str) -> str:
    step = {"name": "work", "type": "command", "with": {"shell": line}}
    return HEAD.replace("NAME", "work") + f"modules: [{{name: m, tasks: [{{name: t, steps: [{json.dumps(step)}]}}]}}]\n"


@pytest.mark.parametrize("form", ["run", "command"])
def test_what_steps_write_beside_the_documents_of_a_request_is_kept(service: LocalService, form: str) -> None:
    work = "cat spec.yaml > copied; mkdir -p a/b; echo more > a/b/made; echo changed >> a/values.yaml"
    documents = Documents(
        folder="/far", spec="spec.yaml",
        files={"spec.yaml": command(work), "a/values.yaml": "x: 1\n", "b/other.yaml": ""},
    )  # fmt: skip
    if form == "run":
        assert service.run(RunRequest(documents=documents, journal=False)).well
    else:
        assert service.run_command(CommandRequest(documents=documents, pattern="control-node", shell=work)).well
    [folder] = unpacked(service)
    left = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert left == {"copied": documents.files["spec.yaml"], "a/b/made": "more\n", "a/values.yaml": "x: 1\nchanged\n"}
    assert not list((service.state / "unpacking").iterdir())


def test_work_that_is_too_deep_to_be_looked_through_is_kept(service: LocalService) -> None:
    work = "i=0; while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i + 1)); done; touch made"
    documents = Documents(folder="/far", files={"spec.yaml": command(work)}, spec="spec.yaml")
    assert service.run(RunRequest(documents=documents, journal=False)).well
    [folder] = unpacked(service)
    assert [path.name for path in folder.iterdir()] == ["d"]
    assert not list((service.state / "unpacking").iterdir())
    subprocess.run(["rm", "-r", folder / "d"], check=True)  # it is deeper than pytest removes


SECRET = "correct horse battery staple"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("echo '{{ secret(\"file:keys/word\") | length }}'", "keys/word"),
        ("echo '{{ secret(\"file:keys/\" ~ host.name) | length }}'", "keys/control-node"),
        ("echo '{{ secret(\"file:keys/all.yaml#word\") | length }}'", "keys/all.yaml"),
        ("echo '{{ secret(\"file:\" ~ vars.key) | length }}'", "keys/word"),
        ("echo '{{ secret(\"file:\" + vars.key) | length }}'", "keys/word"),
        ("echo '{{ secret(\"file:%s\" % vars.key) | length }}'", "keys/word"),
        ('echo \'{{ secret("file:keys/%s" % "word") | length }}\'', "keys/word"),
        ('echo \'{{ secret(["file:keys", "word"] | join("/")) | length }}\'', "keys/word"),
        ("echo '{{ secret(vars.folder ~ vars.key) | length }}'", "keys/word"),
    ],
)
def test_a_secret_among_the_texts_is_only_in_a_file_for_its_owner(
    service: LocalService, tmp_path: Path, line: str, name: str
) -> None:
    text = f"word: {SECRET}\n" if name.endswith("yaml") else SECRET
    line += f"; test -e {tmp_path}/ready"
    spec = command(line).replace("modules:", 'vars: {folder: "file:", key: keys/word}\nmodules:')
    documents = Documents(folder="/far", files={"spec.yaml": spec, name: text}, spec="spec.yaml")
    heard = Listener()
    assert not service.run(RunRequest(documents=documents), heard).well
    [folder] = unpacked(service)
    assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert (folder / "spec.yaml").stat().st_mode & 0o777 == 0o644
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path != folder / name):
        assert SECRET.encode() not in path.read_bytes(), path
    (tmp_path / "ready").touch()
    assert service.resume(ResumeRequest(run="last")).well
    (folder / name).unlink()
    with pytest.raises(Invalid, match=f"{name}: No such file or directory"):
        service.resume(ResumeRequest(run="last", begin=("m/t/work",)))


def test_a_text_with_the_secret_of_another_text_is_not_recorded(service: LocalService, tmp_path: Path) -> None:
    line = "echo '{{ secret(\"file:word\") | length }}'"
    documents = Documents(
        folder="/far", files={"spec.yaml": f"# {SECRET}\n{command(line)}", "word": SECRET}, spec="spec.yaml"
    )
    assert service.run(RunRequest(documents=documents)).well
    assert service.get("last").request.documents.files == {"spec.yaml": "", "word": ""}
    assert service.resume(ResumeRequest(run="last", begin=("m/t/work",))).well


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"spec.yaml": "", "a/" * 2000 + "b": ""}},
        {"files": {"spec.yaml": "", "a/" * 100 + "b": ""}},
        {"files": {"spec.yaml": "", "/".join(["n" * 250] * 20): ""}},
        {"files": {"spec.yaml": ""}, "spec": "s" * 5000},
        {"files": {"spec.yaml": "", "../out.yaml": ""}},
        {"files": {"spec.yaml": "", "a/../../out.yaml": ""}},
        {"files": {"spec.yaml": "", "/etc/out.yaml": ""}},
        {"files": {"spec.yaml": "", "./b": ""}},
        {"files": {"spec.yaml": "", "": ""}},
        {"files": {"spec.yaml": "", ".": ""}},
        {"files": {"spec.yaml": "", "a\0b": ""}},
        {"files": {"spec.yaml": "", "\ud800": ""}},
        {"files": {"spec.yaml": "", "spec.yaml/inside": ""}},
        {"files": {"spec.yaml": "", "n" * 300: ""}},
        {"files": {"other.yaml": ""}},
        {"files": {"spec.yaml": "x" * (17 << 20)}},
        {"files": {"spec.yaml": ""} | {f"{number}.yaml": "" for number in range(1000)}},
        {"files": {"plan.json": ""}, "spec": "", "plan": "plan.json"},
        {"files": {"spec.yaml": "\ud800"}},
        {"files": {"spec.yaml": command("true")}, "inventory": "n" * 5000},
        {"files": {"spec.yaml": command("true")}, "bundle": "n" * 5000},
        {"files": {"spec.yaml": command("true")}, "vars_files": ("a/" * 3000,)},
        {"files": {"spec.yaml": command("true")}, "folder": "/\ud800"},
    ],
)
def test_files_that_cannot_be_are_refused_with_one_message(
    service: LocalService, tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(Invalid) as caught:
        service.run(RunRequest(documents=Documents(**{"folder": "/far", "spec": "spec.yaml", **change})))
    assert len(caught.value.message) < 400
    assert unpacked(service) == []
    assert not list(tmp_path.rglob("out.yaml"))


def test_a_plan_of_such_documents_runs_where_their_files_are(service: LocalService, room: Path, tmp_path: Path) -> None:
    documents = replace(bundle(room), folder=str(tmp_path / "checkout"))
    plan = service.plan(documents).plan
    for name, text in documents.files.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    save_plan(plan, tmp_path / "plan.json")
    (room / "go").touch()
    assert service.run(RunRequest(documents=Documents(folder=str(tmp_path), plan="plan.json"))).well
    assert (room / "first").read_text() == "the word is hello\n"

"""The service without a command line: requests in, results or typed errors out."""

from __future__ import annotations

import inspect
import json
import pydoc
import shutil
import sqlite3
import subprocess
import sys
import threading
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import kubexm_exec.service
from kubexm_exec.compile.plan import save_plan
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import digest
from kubexm_exec.model.result import Status
from kubexm_exec.service.errors import Changed, Held, Invalid, NotFound, Refused, ServiceError, Unavailable
from kubexm_exec.service.live import LiveRun
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import (
    AnswerRequest,
    CommandRequest,
    Documents,
    DriftRequest,
    PruneRequest,
    ResumeRequest,
    RollbackRequest,
    RunRequest,
)
from tests.journal.test_migrations import FAILED, install
from tests.service.kit import HEAD, Listener, request, spec, steps

WRITE = "{{name: write, type: file, with: {{path: '{path}', content: made}}}}"
UNLESS = "{name: fail, type: command, with: {argv: [test, -e, ok]}}"


@pytest.fixture
def service(tmp_path: Path) -> LocalService:
    return LocalService(str(tmp_path / "journal.db"), tmp_path / "state")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its spec makes a file, and fails unless there is another one."""
    path = tmp_path / "site"
    spec(path, steps(WRITE.format(path=path / "made"), UNLESS))
    return path


def test_a_run_is_resumed_looked_at_and_taken_back(service: LocalService, folder: Path) -> None:
    first = service.run(request(folder))
    assert (first.well, first.result.status, first.journaled) == (False, Status.FAILED, True)
    assert (folder / "made").read_text() == "made"
    (folder / "ok").touch()
    second = service.resume(ResumeRequest(run="last"))
    assert (second.run, second.well, second.done_before) == (first.run, True, 1)
    (folder / "made").write_text("other")
    found = service.drift(DriftRequest(folder=str(folder), spec="spec.yaml"))
    assert [node for node, _ in found.differs] == ["m/t/write"]
    (folder / "made").write_text("made")
    undoable = service.undoable(RollbackRequest(run=first.run))
    assert [node for node, _ in undoable.can] == ["m/t/write"]
    assert service.roll_back(RollbackRequest(run=first.run)).well
    assert not (folder / "made").exists()
    [known] = service.runs()
    assert (known.row.id, known.state) == (first.run, Status.ROLLED_BACK)
    kinds = [event.kind for event in service.events(first.run)]
    assert kinds.count("run.started") == kinds.count("run.finished") == 3
    assert service.report(first.run).past.state is Status.ROLLED_BACK
    assert [each.row.id for each in service.prunable(PruneRequest())] == [first.run]
    assert service.prune([first.run]) == 0
    with pytest.raises(NotFound):
        service.get(first.run)


def test_what_is_wrong_with_documents_comes_as_findings(service: LocalService, folder: Path) -> None:
    (folder / "spec.yaml").write_text((folder / "spec.yaml").read_text().replace("type: file", "type: fyle"))
    with pytest.raises(Invalid) as caught:
        service.run(request(folder))
    assert caught.value.diagnostics is not None
    [finding] = caught.value.diagnostics.errors
    assert (finding.code, finding.span is not None and finding.span.file) == ("unknown-step-type", "spec.yaml")
    assert service.validate(["."], Documents(folder=str(folder))).diagnostics.has_errors
    assert service.runs() == []


def test_a_plan_is_run_as_it_is_or_refused_with_what_has_changed(service: LocalService, folder: Path) -> None:
    from kubexm_exec.compile.plan import save_plan

    (folder / "ok").touch()
    save_plan(service.plan(Documents(folder=str(folder), spec="spec.yaml")).plan, folder / "plan.json")
    asked = RunRequest(documents=Documents(folder=str(folder), plan="plan.json"))
    assert service.run(asked).well
    # A run of a plan is gone on with whatever became of the plan.
    (folder / "plan.json").rename(folder / "other.json")
    assert service.resume(ResumeRequest(run="last")).well
    (folder / "spec.yaml").write_text((folder / "spec.yaml").read_text() + "# more\n")
    with pytest.raises(Changed) as caught:
        service.run(replace(asked, documents=Documents(folder=str(folder), plan="other.json")))
    assert caught.value.changes == ["spec.yaml has changed"]


def test_a_changed_spec_is_refused_with_its_changes_unless_they_are_accepted(
    service: LocalService, folder: Path
) -> None:
    service.run(request(folder))
    text = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(text.replace("content: made", "content: changed"))
    (folder / "ok").touch()
    with pytest.raises(Changed) as caught:
        service.resume(ResumeRequest(run="last"))
    assert any("m/t/write" in change for change in caught.value.changes)
    assert service.resume(ResumeRequest(run="last", accept_changes=True)).well
    assert (folder / "made").read_text() == "changed"


def test_only_the_hosts_where_something_failed_are_tried_again(service: LocalService, tmp_path: Path) -> None:
    inventory = "inventory: {hosts: [{name: a, connector: local}, {name: b, connector: local}]}\n"
    step = (
        "{name: s, type: command, with: {shell: 'echo {{ host.name }} >> log; test {{ host.name }} = a || test -e ok'}}"
    )
    spec(tmp_path / "site", steps(step, more=inventory))
    assert not service.run(request(tmp_path / "site")).well
    (tmp_path / "site" / "ok").touch()
    assert service.retry(ResumeRequest(run="last")).well
    assert sorted((tmp_path / "site" / "log").read_text().split()) == ["a", "b", "b"]
    with pytest.raises(Refused, match="no failed action"):
        service.retry(ResumeRequest(run="last"))


class Started(Listener):
    """Says when the first action has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def attach(self, run: LiveRun) -> None:
        super().attach(run)
        run.subscribe(lambda event: self.begun.set() if event.kind == "action.started" else None)


def test_who_holds_a_target_is_told_and_can_be_cancelled_from_elsewhere(service: LocalService, tmp_path: Path) -> None:
    spec(tmp_path / "site", steps("{name: s, type: command, with: {argv: [sleep, '60']}}"))
    watcher = Started()
    found = []
    thread = threading.Thread(target=lambda: found.append(service.run(request(tmp_path / "site"), watcher)))
    thread.start()
    assert watcher.begun.wait(20)
    assert watcher.live is not None
    with pytest.raises(Held) as caught:
        service.run(request(tmp_path / "site"))
    assert caught.value.run == watcher.live.id
    assert "process" in caught.value.by
    assert caught.value.since > 0
    # Another service in the same state folder: it knows the run by the journal alone.
    other = LocalService(service.journal, service.state)
    assert other.cancel("last").row.id == watcher.live.id
    thread.join(20)
    assert [outcome.result.status for outcome in found] == [Status.CANCELLED]
    with pytest.raises(Invalid, match="is not running: it is Cancelled"):
        other.cancel("last")


@pytest.mark.parametrize("answer", [True, False])
def test_a_gate_is_answered_from_elsewhere(service: LocalService, tmp_path: Path, answer: bool) -> None:
    spec(tmp_path / "site", steps("{name: gate, type: gate, with: {question: 'Go on?'}}"))
    asks = threading.Event()

    class Waiting(Listener):
        def attach(self, run: LiveRun) -> None:
            super().attach(run)
            run.subscribe(lambda event: asks.set() if event.kind == "action.asks" else None)

    watcher = Waiting()
    found = []
    asked = request(tmp_path / "site", patient=True)
    thread = threading.Thread(target=lambda: found.append(service.run(asked, watcher)))
    thread.start()
    assert asks.wait(20)
    other = LocalService(service.journal, service.state)
    with pytest.raises(Invalid, match="m/t/none does not wait"):
        other.answer(AnswerRequest(run="last", node="m/t/none", answer=True))
    other.answer(AnswerRequest(run="last", node="m/t/gate", answer=answer))
    thread.join(20)
    [outcome] = found
    assert outcome.well is answer
    [told] = [event.data for event in watcher.events if event.kind == "action.asks"]
    assert told == {"question": "Go on?", "default": None}
    # Without patience nobody is waited for.
    assert "there is nobody to ask" in json.dumps(service.run(request(tmp_path / "site")).to_json())


def test_a_run_that_breaks_off_inside_the_process_does_not_go_on_for_ever(service: LocalService, folder: Path) -> None:
    class Clumsy(Listener):
        def ended(self, result: object) -> None:
            raise RuntimeError("oh")

    with pytest.raises(RuntimeError, match="oh"):
        service.run(request(folder), Clumsy())
    [known] = service.runs()
    assert known.state is not Status.RUNNING
    (folder / "ok").touch()
    assert service.resume(ResumeRequest(run="last")).well


def test_a_command_runs_without_a_spec(service: LocalService, tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\nhosts: [{name: a, connector: local}]\n"
    )
    asked = CommandRequest(
        documents=Documents(folder=str(tmp_path), inventory="hosts.yaml"), pattern="all", argv=("pwd",)
    )
    result = service.run_command(asked).to_json()
    assert result["nodeResults"]["exec/command/command"]["hostResults"]["a"]["stdout"] == f"{tmp_path}\n"


def test_a_journal_that_cannot_be_used_is_an_error_of_its_own(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "journal.db").write_text("something else, and long enough to be no database at all" * 20)
    with pytest.raises(Unavailable):
        LocalService(str(tmp_path / "journal.db"), tmp_path / "state").run(request(folder))
    assert not (folder / "made").exists()


@pytest.mark.parametrize("name", ["spec.yaml", "plan.json"])
def test_what_was_typed_for_a_run_of_an_older_journal_is_what_was_asked_for(
    service: LocalService, tmp_path: Path, name: str
) -> None:
    install(service.journal, tmp_path)
    (tmp_path / "plan.json").write_text('{"kind": "kubexm.io/plan"}')
    choice = {
        "values": ["word=a=b"], "vars_files": ["values.yaml"], "inventory": None, "limit": "one, two", "tags": "t",
        "skip_tags": None, "templates": ["shared"],
    }  # fmt: skip
    with closing(sqlite3.connect(service.journal, isolation_level=None)) as connection:
        [packed] = connection.execute("SELECT data FROM inputs WHERE run = ?", (FAILED,)).fetchone()
        inputs = json.loads(zlib.decompress(packed))
        inputs |= {"spec": str(tmp_path / name), "choice": choice, "forks": 7, "bundle": "bundle"}
        packed = zlib.compress(json.dumps(inputs).encode())
        connection.execute("UPDATE inputs SET data = ? WHERE run = ?", (packed, FAILED))
    spec, plan = (str(tmp_path / name), "") if name == "spec.yaml" else ("", str(tmp_path / name))
    assert service.get(FAILED).request == RunRequest(
        documents=Documents(
            folder=str(tmp_path), spec=spec, plan=plan, texts={"word": "a=b"}, vars_files=("values.yaml",),
            limit=("one", "two"), tags=("t",), templates=("shared",), bundle="bundle",
        ),
        forks=7,
    )  # fmt: skip


@pytest.mark.parametrize("name", kubexm_exec.service.__all__)
def test_every_public_name_can_be_looked_up_with_its_signature(name: str) -> None:
    found = getattr(kubexm_exec.service, name)
    if isinstance(found, type):
        pydoc.render_doc(found)
        assert "ForwardRef" not in str(inspect.signature(found))


def test_the_service_is_imported_without_a_command_line_and_without_a_database() -> None:
    code = "import sys, kubexm_exec.service; print({'click', 'sqlalchemy', 'networkx', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_what_is_wrong_with_a_request_is_said_without_options_of_a_command(service: LocalService, folder: Path) -> None:
    documents = Documents(folder=str(folder), spec="spec.yaml")
    with pytest.raises(Invalid, match=r'no parameter or variable "nope" \(values\)'):
        service.plan(replace(documents, values={"nope": 1}))
    with pytest.raises(Invalid, match="the request names no spec"):
        service.plan(replace(documents, spec=""))
    with pytest.raises(Invalid, match="the documents have no folder"):
        service.run(RunRequest(documents=Documents(files={"spec.yaml": ""}, spec="spec.yaml")))
    for wrong in (request(folder, forks=0), request(folder, uploads=0)):
        with pytest.raises(Invalid, match=r"(forks|uploads) is 0"):
            service.run(wrong)
    service.run(request(folder))
    with pytest.raises(Invalid, match="forks is 0"):
        service.resume(ResumeRequest(run="last", forks=0))
    with pytest.raises(Invalid, match="changes are accepted for the whole run"):
        service.resume(ResumeRequest(run="last", accept_changes=True, only=("m/t/write",)))


def test_only_known_runs_are_removed(service: LocalService, folder: Path) -> None:
    run = service.run(request(folder)).run
    with pytest.raises(NotFound, match='there is no run "zz"'):
        service.prune([run, "zz"])
    assert service.prune([run[:-1]]) == 0


def test_texts_of_the_same_name_in_two_folders_are_different_specs(service: LocalService, tmp_path: Path) -> None:
    for name in ("one", "two"):
        text = HEAD.replace("NAME", name) + steps(WRITE.format(path=tmp_path / name))
        documents = Documents(folder=f"/customers/{name}", files={"spec.yaml": text}, spec="spec.yaml")
        assert service.run(RunRequest(documents=documents)).well
    for name in ("one", "two"):
        found = service.drift(DriftRequest(folder=f"/customers/{name}", spec="spec.yaml"))
        assert (found.row.name, found.row.spec) == (name, f"/customers/{name}/spec.yaml")


def test_a_run_whose_folder_is_gone_is_neither_taken_back_nor_looked_at_anywhere_else(
    service: LocalService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec(folder, steps("{name: make, type: command, with: {argv: [mkdir, build], undo: {argv: [rmdir, build]}}}"))
    assert service.run(request(folder)).well
    folder.rename(folder.with_name("moved"))
    elsewhere = folder.with_name("elsewhere")
    (elsewhere / "build").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    for ask in (
        lambda: service.resume(ResumeRequest(run="last")),
        lambda: service.drift(DriftRequest(folder=str(folder), spec="spec.yaml")),
    ):
        with pytest.raises(Invalid, match=r"the folder of run .* cannot be used"):
            ask()
    with pytest.raises(Invalid, match="names no folder"):
        service.run(RunRequest(documents=Documents(spec=str(folder.with_name("moved") / "spec.yaml"))))
    assert service.runs()[0].state is Status.SUCCESS
    undone = service.roll_back(RollbackRequest(run="last")).result
    [action] = [host for node in undone.node_results.values() for host in node.host_results.values()]
    assert f"cannot change to folder {folder}" in action.undo
    assert (elsewhere / "build").exists()
    assert (folder.with_name("moved") / "build").exists()


def test_what_needs_no_folder_is_undone_without_the_folder_of_its_run(service: LocalService, folder: Path) -> None:
    made = folder.with_name("made")
    spec(folder, steps(f"{{name: make, type: file, with: {{path: {made}, content: x}}}}"))
    assert service.run(request(folder)).well
    (folder / "spec.yaml").unlink()
    folder.rmdir()
    assert service.roll_back(RollbackRequest(run="last")).well
    assert not made.exists()


def test_texts_are_taken_back_where_they_were_unpacked_also_with_another_state_folder(
    service: LocalService, tmp_path: Path
) -> None:
    line = "{name: make, type: command, with: {argv: [mkdir, build], undo: {argv: [rmdir, build]}}}"
    text = spec(tmp_path / "any", steps(line)).read_text()
    assert service.run(RunRequest(documents=Documents(folder="/far", files={"spec.yaml": text}, spec="spec.yaml"))).well
    [made] = service.state.rglob("build")
    other = LocalService(service.journal, tmp_path / "other")
    assert other.roll_back(RollbackRequest(run="last")).well
    assert not made.exists()
    assert not other.state.exists()


def test_texts_that_cannot_be_unpacked_again_keep_nobody_from_an_undo_that_does_not_need_them(
    service: LocalService, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    text = spec(tmp_path / "any", steps(WRITE.format(path=made))).read_text()
    documents = Documents(folder="/far", files={"spec.yaml": text}, spec="spec.yaml")
    assert service.run(RunRequest(documents=documents)).well
    shutil.rmtree(service.state)
    service.state.write_text("a file in the place of the folder")
    other = LocalService(service.journal, tmp_path / "other")
    for ask in (
        lambda: other.resume(ResumeRequest(run="last", begin=("m/t/*",))),
        lambda: other.drift(DriftRequest(folder="/far", spec="spec.yaml")),
    ):
        with pytest.raises(Invalid, match=r"the folder of run \w+ cannot be used: spec.yaml cannot be unpacked: Not a"):
            ask()
    assert other.roll_back(RollbackRequest(run="last")).well
    assert not made.exists()


def test_a_resumed_run_is_as_patient_as_it_was(service: LocalService, tmp_path: Path) -> None:
    spec(tmp_path / "site", steps("{name: gate, type: gate, with: {question: 'Go on?'}}"))

    class Asked(Listener):
        def attach(self, run: LiveRun) -> None:
            super().attach(run)
            run.subscribe(self.hear)

        def hear(self, event: Event) -> None:
            if event.kind == "action.asks":
                self.reply()

        def reply(self) -> None:
            service.cancel("last")

    class Answered(Asked):
        def reply(self) -> None:
            service.answer(AnswerRequest(run="last", node="m/t/gate", answer=True))

    first = service.run(request(tmp_path / "site", patient=True, uploads=3), Asked())
    assert first.result.status is Status.CANCELLED
    again = Answered()
    assert service.resume(ResumeRequest(run="last"), again).well
    assert again.live is not None
    assert again.live.runtime.options.uploads == 3


def test_a_refused_rollback_leaves_the_run_as_it_was_and_needs_no_bundle(
    service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    line = "{name: a, type: file, with: {path: PATH, content: \"{{ secret('env:BOX') }}\"}}"
    spec(site, steps(line.replace("PATH", str(site / "made"))))
    (site / "bundle").mkdir()
    monkeypatch.setenv("BOX", "some-password")
    asked = request(site)
    asked = replace(asked, documents=replace(asked.documents, bundle="bundle"))
    assert service.run(asked).well
    (site / "bundle").rmdir()
    monkeypatch.delenv("BOX")
    before = service.runs()[0]
    with pytest.raises(Invalid, match="BOX"):
        service.roll_back(RollbackRequest(run="last"))
    after = service.runs()[0]
    assert (after.state, after.row.counts) == (Status.SUCCESS, before.row.counts)
    monkeypatch.setenv("BOX", "some-password")
    assert service.roll_back(RollbackRequest(run="last")).well
    assert not (site / "made").exists()


def test_a_run_of_a_plan_is_not_resumed_with_files_that_have_changed_unless_they_are_accepted(
    service: LocalService, folder: Path
) -> None:
    from kubexm_exec.compile.plan import save_plan

    spec(
        folder,
        steps(UNLESS, "{name: last, type: copy, with: {src: data, path: DIR/copied}}").replace("DIR", str(folder)),
    )
    (folder / "data").write_text("approved")
    save_plan(service.plan(Documents(folder=str(folder), spec="spec.yaml")).plan, folder / "plan.json")
    assert not service.run(RunRequest(documents=Documents(folder=str(folder), plan="plan.json"))).well
    (folder / "ok").touch()
    (folder / "data").write_text("changed")
    with pytest.raises(Changed) as caught:
        service.resume(ResumeRequest(run="last"))
    assert "m/t/last" in str(caught.value.changes)
    assert not (folder / "copied").exists()
    assert service.resume(ResumeRequest(run="last", accept_changes=True)).well


@pytest.mark.parametrize("limit", ["globalLimit: 1", "locks: [one]"])
def test_an_undo_keeps_the_limits_of_the_run(service: LocalService, tmp_path: Path, limit: str) -> None:
    site = tmp_path / "site"
    hosts = ", ".join(f"{{name: h{number}, connector: local}}" for number in range(4))
    # Only one at a time can have the folder.
    alone = "mkdir busy && sleep 0.2 && rmdir busy"
    line = f"{{name: a, type: command, resources: {{{limit}}}, with: {{shell: 'true', undo: {{shell: {alone}}}}}}}"
    spec(
        site,
        steps(line, more=f"inventory: {{hosts: [{hosts}]}}\n").replace(
            "- name: t\n", "- name: t\n        runOn: all\n"
        ),
    )
    assert service.run(request(site)).well
    assert service.roll_back(RollbackRequest(run="last")).well


HOSTS = "inventory: {hosts: [{name: one, connector: local}, {name: two, connector: local}]}\n"


@pytest.mark.parametrize(
    "more",
    [
        {"limit": ("one",)}, {"limit": ("nobody",)}, {"tags": ("x",)}, {"skip_tags": ("x",)}, {"values": {"p": 1}},
        {"texts": {"p": "1"}}, {"inventory": "none.yaml"}, {"vars_files": ("none.yaml",)}, {"spec": "spec.yaml"},
    ],
)  # fmt: skip
def test_nothing_is_chosen_beside_a_plan(service: LocalService, tmp_path: Path, more: dict[str, Any]) -> None:
    spec(tmp_path, steps(f"{{name: a, type: file, with: {{path: {tmp_path}/made, content: x}}}}", more=HOSTS))
    save_plan(service.plan(Documents(folder=str(tmp_path), spec="spec.yaml")).plan, tmp_path / "plan.json")
    with pytest.raises(Invalid):
        service.run(RunRequest(documents=Documents(folder=str(tmp_path), plan="plan.json", **more)))
    assert not (tmp_path / "made").exists()


def test_a_command_is_one_command_on_the_hosts_of_its_pattern(service: LocalService, tmp_path: Path) -> None:
    spec(tmp_path, steps("{name: a, type: command, with: {argv: ['true']}}", more=HOSTS))
    documents = Documents(folder=str(tmp_path), spec="spec.yaml")
    for wrong in (
        CommandRequest(documents=documents, pattern="all"),
        CommandRequest(documents=documents, pattern="all", argv=("true",), shell="true"),
        CommandRequest(documents=documents, pattern="all", argv=("",)),
        CommandRequest(documents=documents, pattern="all", shell=" "),
        CommandRequest(documents=documents, pattern="all", argv=("true",), become="a b"),
        CommandRequest(documents=replace(documents, limit=("one",)), pattern="all", argv=("true",)),
    ):
        with pytest.raises(Invalid):
            service.run_command(wrong)
    for no_spec in (Documents(folder=str(tmp_path)), Documents(folder=str(tmp_path), plan="plan.json")):
        with pytest.raises(Invalid):
            service.plan(no_spec)


@pytest.mark.parametrize("key", ["spec", "root", "target", "packages", "choice", "graph"])
@pytest.mark.parametrize("value", [None, [], -1, "\ud800", "a\0b", {"command": {}}, {"command": None}, {"spec": 3}])
def test_a_plan_of_anything_is_run_or_refused_with_a_message(
    service: LocalService, tmp_path: Path, key: str, value: Any
) -> None:
    spec(tmp_path, steps("{name: a, type: command, with: {argv: ['true']}}"))
    data = service.plan(Documents(folder=str(tmp_path), spec="spec.yaml")).plan.to_json()
    data.pop("hash")
    data[key] = value
    (tmp_path / "plan.json").write_text(json.dumps({**data, "hash": digest(data)}))
    request = RunRequest(documents=Documents(folder=str(tmp_path), plan="plan.json"), executor="dry-run")
    try:
        said = service.run(request).shown.status.value
    except ServiceError as error:
        said = str(error)
    assert said.strip()

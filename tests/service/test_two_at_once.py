"""Two runs in one process at once: each has its own folder, secrets, journal and events."""

from __future__ import annotations

import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubexm_exec.service.local import LocalService
from kubexm_exec.service.requests import Outcome
from tests.service.kit import Listener, request, spec, steps

BODY = steps(
    "{name: here, type: command, with: {argv: [cat, note.txt]}}",
    "{name: meet, type: command, timeout: 20s, with: {shell: 'touch ready; until test -e ../OTHER/ready; do :; done'}}",
    "{name: render, type: template, with: {src: page.j2, path: 'DEST'}}",
    "{name: tell, type: command, with: {argv: [echo, \"{{ secret('file:token') }}\", OTHERS]}}",
    "{name: shout, type: command, with: {shell: 'echo \"$T\" >&2; exit 3', env: {T: \"{{ secret('file:token') }}\"}}, "
    "ignoreErrors: true}",
    more="params: {colour: {type: string}}\n",
)
SECRETS = {"red": "hunter-of-red-22", "blue": "keeper-of-blue-33"}


def site(path: Path, name: str, other: str) -> Path:
    folder = path / name
    body = BODY.replace("../OTHER", f"../{other}").replace("OTHERS", SECRETS[other])
    spec(folder, body.replace("DEST", str(folder / "page")), name)
    (folder / "note.txt").write_text(f"note of {name}\n")
    (folder / "page.j2").write_text("{{ params.colour }} page")
    (folder / "values.yaml").write_text(f"colour: {name}\n")
    (folder / "token").write_text(f"{SECRETS[name]}\n")
    (folder / "token").chmod(0o600)
    return folder


def test_each_has_its_own_folder_secrets_events_and_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kubexm")
    before = os.getcwd()  # noqa: PTH109
    names = ("red", "blue")
    folders = {name: site(tmp_path / "sites", name, other) for name, other in zip(names, names[::-1], strict=True)}
    service = LocalService(str(tmp_path / "journal.db"), tmp_path / "state")
    listeners = {name: Listener() for name in names}

    def run(name: str) -> Outcome:
        from msgspec.structs import replace

        asked = request(folders[name])
        asked = replace(asked, documents=replace(asked.documents, vars_files=("values.yaml",)))
        return service.run(asked, listeners[name])

    with ThreadPoolExecutor(2) as threads:
        outcomes = dict(zip(names, threads.map(run, names), strict=True))
    assert os.getcwd() == before  # noqa: PTH109
    for name, other in zip(names, names[::-1], strict=True):
        outcome, listener = outcomes[name], listeners[name]
        assert outcome.well, outcome.to_json()
        assert listener.ends == 1
        hosts = outcome.to_json()["nodeResults"]["m/t/here"]["hostResults"]
        assert next(iter(hosts.values()))["stdout"] == f"note of {name}\n"
        assert (folders[name] / "page").read_text() == f"{name} page"
        # Its own secret is masked, and the other's is only a word to it.
        for text in (json.dumps(outcome.to_json()), listener.text()):
            assert SECRETS[name] not in text
            assert SECRETS[other] in text
        assert {event.run for event in listener.events} == {outcome.run}
        assert [event.kind for event in service.events(outcome.run)].count("run.finished") == 1
        assert service.get(outcome.run).request.documents.folder == str(folders[name])
        assert "note of " + name in "".join(str(event.data["text"]) for event in service.logs(outcome.run))
        assert SECRETS[name] not in "".join(str(event.data["text"]) for event in service.logs(outcome.run))
    assert {each.row.name for each in service.runs()} == set(names)
    assert not list(tmp_path.glob("*.lock"))

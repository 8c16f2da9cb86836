"""kubexm runs: the list of runs, the history, logs, events and report of one, also of one that broke off."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main
from tests.cli.kit import Folder

BODY = """
inventory:
  defaults: {connector: local}
  hosts: [{name: one}, {name: two}]
modules:
  - name: prepare
    tasks:
      - name: files
        steps:
          - name: motd
            type: file
            with: {path: "DIR/{{ host.name }}.motd", content: "hello"}
          - name: look
            type: command
            with: {shell: "echo looking on {{ host.name }}", changedWhen: false}
  - name: app
    tasks:
      - name: install
        steps:
          - name: flaky
            type: command
            retry: {attempts: 2}
            with: {shell: "echo trying; test -e DIR/ok-{{ host.name }} || { echo no file >&2; exit 7; }"}
          - name: conf
            type: file
            with: {path: "DIR/{{ host.name }}.conf", content: "a=1"}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A journal of the test's own."""
    monkeypatch.setenv("KUBEXM_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "state"


@pytest.fixture
def site(folder: Folder) -> Folder:
    """A spec whose run fails on host two, because a file is missing there."""
    folder.spec(BODY.replace("DIR", str(folder.path)))
    folder.file("ok-one", "")
    return folder


def failed_run(site: Folder) -> str:
    """A run of it; gives its id."""
    assert site.run("run", "main.yaml", "--output", "quiet").exit_code == 1
    return newest(site)


def newest(site: Folder) -> str:
    return str(site.data("runs")[0]["id"])


def broken_off(site: Folder) -> None:
    """A run whose process is killed by a step of its own, whose outcome a resume can tell; no other action runs then.

    The number of writes to the journal does not say what runs: entries are written together as time goes.
    """
    here, line = site.path, 'with: {shell: "echo trying; '
    made = f"{here}/{{{{ host.name }}}}.tried"
    dies = f"test -e {here}/died || {{ touch {here}/died; kill -9 $PPID; exit 1; }}; touch {made}"
    spec = (here / "main.yaml").read_text()
    assert line in spec
    site.file("main.yaml", spec.replace(line, f'with: {{creates: "{made}", shell: "{dies}; '))
    program = pathlib.Path(sys.executable).parent / "kubexm-run"
    argv = [str(program), "main.yaml", "--forks", "1"]
    done = subprocess.run(argv, cwd=here, capture_output=True, check=False)
    assert done.returncode == -9, done.stdout


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_list_has_every_run_with_how_it_ended_newest_first(site: Folder) -> None:
    assert "there is no run yet" in site.run("runs").output
    first = failed_run(site)
    site.file("ok-two", "")
    assert site.run("run", "main.yaml", "--output", "quiet").exit_code == 0
    shown = site.run("runs").output.splitlines()
    assert [line.split()[2] for line in shown[1:]] == ["Success", "Failed"]
    assert shown[2].startswith(first)
    data = site.data("runs", "--limit", "1")
    assert [each["status"] for each in data] == ["Success"]
    assert data[0]["spec"] == str(site.path / "main.yaml")
    assert site.run("runs", "list").output.splitlines() == shown
    assert site.data("runs", "list", "--limit", "1") == data
    assert site.data("runs", "list", "--name", data[0]["name"]) == site.data("runs")
    assert site.data("runs", "list", "--name", "another") == []
    assert site.run("runs", "list", "--name", "another").output == 'there is no run of "another"\n'
    assert json.loads(site.run("runs", "--limit", "1", "--output", "json", "list").stdout) == data


def test_story_of_a_failed_run_says_what_failed_why_and_what_to_type(site: Folder) -> None:
    run = failed_run(site)
    shown = site.run("runs", "show", run).output
    for text in (
        f"Run {run} of site: Failed",
        "8 actions of 4 nodes on 2 hosts",
        "FAILED  app/install/flaky on two (attempt 2 of 2",
        "exit code 7",
        "at main.yaml:",
        "app/install/flaky on two: 2 attempts; exit code 7: no file",
        "Remaining: 2 actions on 1 host",
        f"kubexm runs resume {run}",
        f"kubexm runs rollback {run}",
        f"kubexm runs report {run}",
    ):
        assert text in shown
    assert re.search(r"^  run +\d{4}-\d\d-\d\d .* Failed +\S+@", shown, re.MULTILINE)
    assert site.run("runs", "show").output == site.run("runs", "show", run[-8:]).output


def test_story_as_data_has_the_same_and_the_whole_result(site: Folder) -> None:
    run = failed_run(site)
    data = site.data("runs", "show", run)
    assert data["status"] == "Failed"
    assert data["alive"] is False
    assert [(session["mode"], session["status"]) for session in data["sessions"]] == [("run", "Failed")]
    (failure,) = data["failures"]
    assert (failure["node"], failure["hosts"], failure["exitCode"]) == ("app/install/flaky", ["two"], 7)
    assert failure["origin"].startswith("main.yaml:")
    assert [(each["node"], each["host"], each["attempts"]) for each in data["retries"]] == [
        ("app/install/flaky", "two", 2)
    ]
    assert {(each["node"], each["host"]) for each in data["left"]} == {
        ("app/install/flaky", "two"),
        ("app/install/conf", "two"),
    }
    assert data["result"]["nodeResults"]["app/install/flaky"]["status"] == "Failed"
    assert data["result"]["nodeResults"]["prepare/files/motd"]["hostResults"]["one"]["changed"] is True
    assert data["actions"]["total"] == 8


def test_result_of_the_journal_is_that_of_the_run(site: Folder) -> None:
    site.run("run", "main.yaml", "--output", "quiet", "--result", "result.json")
    told = json.loads((site.path / "result.json").read_text())
    kept = site.data("runs", "show")["result"]
    for one in (told, kept):
        for node in one["nodeResults"].values():
            node.pop("startTime"), node.pop("endTime")
            for host in node["hostResults"].values():
                host.pop("startTime"), host.pop("endTime")
    assert kept["nodeResults"] == told["nodeResults"]
    assert (kept["status"], kept["message"]) == (told["status"], told["message"])


def test_story_of_a_resumed_run_has_both_sessions_and_nothing_left(site: Folder) -> None:
    run = failed_run(site)
    site.file("ok-two", "")
    resumed = site.run("runs", "resume", run, "--output", "plain").output
    assert re.search(r"resumed +- +- +6 of 8 actions were done before$", resumed, re.MULTILINE)
    assert "8 actions on 2 hosts" in resumed
    assert "; 6 of them were done before" in resumed
    data = site.data("runs", "show", run)
    assert [(each["mode"], each["status"]) for each in data["sessions"]] == [("run", "Failed"), ("resume", "Success")]
    assert data["left"] == data["failures"] == []
    assert "detect drift" in site.run("runs", "show", run).output


def test_resumed_run_tells_machines_how_much_was_done_before(site: Folder) -> None:
    run = failed_run(site)
    site.file("ok-two", "")
    first, second, *_ = lines_of(site.run("runs", "resume", run, "--output", "json").stdout)
    assert (first["event"], first["done"], first["unknown"], first["actions"]) == ("run.resumed", 6, 0, 8)
    assert second["event"] == "run.started"


def test_story_of_a_run_that_broke_off_says_what_is_not_known_and_what_is_left(site: Folder) -> None:
    site.file("ok-two", "")
    broken_off(site)
    data = site.data("runs", "show")
    assert data["status"] == "Interrupted"
    assert data["sessions"][0]["endTime"] is None
    assert [(each["node"], each["host"]) for each in data["unknown"]] == [("app/install/flaky", "one")]
    assert {(each["node"], each["host"]) for each in data["unknown"]} <= {
        (each["node"], each["host"]) for each in data["left"]
    }
    total = data["actions"]
    assert total["total"] == 8
    assert total["ok"] + total["unknown"] + total["left"] == 8
    shown = site.run("runs", "show").output
    assert "of site: interrupted" in shown
    assert "Interrupted (a resume checks the host first):\n  app/install/flaky on one\n" in shown
    assert "broke off" in shown
    assert "Interrupted" in site.run("runs").output
    assert site.run("runs", "resume", "last", "--output", "quiet").exit_code == 0
    assert site.data("runs", "show")["left"] == []


def test_story_of_a_run_that_was_rolled_back_says_what_was_undone(site: Folder) -> None:
    run = failed_run(site)
    assert site.run("runs", "rollback", run, "--yes", "--output", "quiet").exit_code == 0
    shown = site.run("runs", "show", run).output
    assert "undone: prepare/files/motd on one, two" in shown
    assert "rolled back" in shown
    data = site.data("runs", "show", run)
    assert data["status"] == "RolledBack"
    assert {each["undo"] for each in data["undone"] if each["node"] == "prepare/files/motd"} == {"undone"}
    assert data["left"] == []


def test_story_of_a_run_with_values_says_what_was_chosen(site: Folder) -> None:
    site.run("run", "main.yaml", "--output", "quiet", "--limit", "one")
    assert "--limit one" in site.run("runs", "show").output


def test_a_run_that_is_not_there_is_said_so_and_a_wrong_command_gets_a_suggestion(site: Folder) -> None:
    failed_run(site)
    for name in ("show", "logs", "events"):
        wrong = site.run("runs", name, "01NOPE")
        assert wrong.exit_code == 2
        assert 'there is no run "01NOPE"' in wrong.output
    assert 'did you mean "show"?' in site.run("runs", "shw").output
    assert "kubexm runs show 01ABC" in site.run("runs", "01ABC").output


def test_next_command_names_the_journal_if_it_is_not_the_usual_one(site: Folder) -> None:
    site.run("run", "main.yaml", "--output", "quiet", "--journal", "other.db")
    run = json.loads(site.run("runs", "--journal", "other.db", "--output", "json").stdout)[0]["id"]
    shown = site.run("runs", "--journal", "other.db", "show").output
    assert f"kubexm runs --journal other.db resume {run}" in shown


# Logs


def test_logs_have_every_line_with_node_and_host(site: Folder) -> None:
    failed_run(site)
    shown = site.run("runs", "logs").output
    assert re.search(r"out +prepare/files/look +one +\| looking on one$", shown, re.MULTILINE)
    assert len(re.findall(r"err +app/install/flaky +two +\| no file$", shown, re.MULTILINE)) == 2


def test_logs_can_be_of_some_hosts_and_nodes(site: Folder) -> None:
    failed_run(site)
    assert set(re.findall(r"\b(one|two)  +\|", site.run("runs", "logs", "--host", "tw*").output)) == {"two"}
    of_node = site.run("runs", "logs", "--node", "prepare").output.splitlines()
    assert [" prepare/files/look " in line for line in of_node] == [True, True]
    wrong = site.run("runs", "logs", "--node", "prepare/files/lok")
    assert wrong.exit_code == 2
    assert 'did you mean "prepare/files/look"?' in wrong.output
    assert site.run("runs", "logs", "--host", "three").exit_code == 2


def test_logs_as_data_are_json_lines(site: Folder) -> None:
    failed_run(site)
    pieces = lines_of(site.run("runs", "logs", "--host", "one", "--output", "json").stdout)
    assert {piece["event"] for piece in pieces} == {"action.output"}
    assert {"node": "prepare/files/look", "stream": "stdout", "text": "looking on one\n"}.items() <= pieces[0].items()


def test_logs_of_a_run_elsewhere_say_where_they_are(site: Folder, state: pathlib.Path) -> None:
    run = failed_run(site)
    with contextlib.closing(sqlite3.connect(state / "journal.db")) as lite, lite:
        lite.execute("UPDATE runs SET holder = replace(holder, ?, ?)", ('"host": "', '"host": "far-'))
    shutil.rmtree(state / "runs" / run)
    missing = site.run("runs", "logs", run)
    assert missing.exit_code == 1
    assert "is not here: it was run on far-" in missing.output


def test_logs_of_a_run_that_printed_nothing_say_so(folder: Folder) -> None:
    folder.spec("modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: set, with: {values: {a: 1}}}]}]}]")
    assert folder.run("run", "main.yaml", "--output", "quiet").exit_code == 0
    quiet = folder.run("runs", "logs")
    assert quiet.exit_code == 0
    assert "have no output" in quiet.output


# Events


def test_retold_events_are_those_that_were_told(site: Folder) -> None:
    told = lines_of(site.run("run", "main.yaml", "--output", "json").stdout)
    retold = lines_of(site.run("runs", "events").stdout)
    kinds = {"run.started", "action.started", "action.retry", "action.finished", "run.finished"}
    assert {event["event"] for event in retold} == kinds

    def comparable(events: list[dict[str, Any]]) -> list[str]:
        varies = ("time", "startTime", "endTime", "seconds", "mode", "holder")
        plain = [{key: event[key] for key in event if key not in varies} for event in events]
        return sorted(json.dumps(each, sort_keys=True) for each in plain if each["event"] in kinds)

    assert comparable(retold) == comparable(told)
    assert [event["time"] for event in retold] == sorted(event["time"] for event in retold)


def test_events_of_every_session_are_told_and_one_that_broke_off_has_an_end(site: Folder) -> None:
    site.file("ok-two", "")
    broken_off(site)
    events = lines_of(site.run("runs", "events").stdout)
    assert events[-1]["event"] == "run.finished"
    assert events[-1]["status"] == "Interrupted"
    site.run("runs", "resume", "last", "--output", "quiet")
    events = lines_of(site.run("runs", "events").stdout)
    ends = [
        (event["event"], event.get("mode", event.get("status"))) for event in events if event["event"][:4] == "run."
    ]
    assert ends == [
        ("run.started", "run"),
        ("run.finished", "Interrupted"),
        ("run.started", "resume"),
        ("run.finished", "Success"),
    ]


# Report


def test_report_of_a_past_run_is_a_page_with_its_failures(site: Folder) -> None:
    run = failed_run(site)
    assert "wrote page.html" in site.run("runs", "report", run, "-o", "page.html").output
    page = (site.path / "page.html").read_text()
    for text in ("Failed</span> site", "app/install/flaky", "exit code 7", run, "again after"):
        assert text in page


def test_report_of_a_run_that_broke_off_says_so(site: Folder) -> None:
    broken_off(site)
    page = site.run("runs", "report", "-o", "-").output
    assert "Interrupted</span> site" in page
    assert "unknown" in page


def test_report_that_cannot_be_written_is_refused_before_anything_is_read(site: Folder) -> None:
    wrong = site.run("runs", "report", "-o", "nowhere/page.html")
    assert wrong.exit_code == 2
    assert "there is no folder nowhere" in wrong.output


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://me:SECRET@127.0.0.1:1/x",
        "postgresql://me:SECRET/12@127.0.0.1:1/x",
        "postgresql://me@127.0.0.1:1/x?password=SECRET",
        "postgresql://me@127.0.0.1:1/x?sslmode=disable&sslpassword=SECRET",
        "postgresql://me@127.0.0.1:1/x?password=SECRET&nosuch=SECRET",
        "postgresql://me:x@127.0.0.1:SECRET/x",
        "postgresql://me:x:SECRET@127.0.0.1/x:y",
        "nosuch://me:SECRET@h/x?password=SECRET",
    ],
)
def test_the_password_of_a_journal_is_never_shown(folder: Folder, place: str) -> None:
    for command in (("runs", "--journal", place.replace("SECRET", "s3cret-0f-it")), ("runs", "list")):
        result = CliRunner(env={"KUBEXM_JOURNAL": place.replace("SECRET", "s3cret-0f-it")}).invoke(main, list(command))
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 2
        assert "s3cret" not in result.output

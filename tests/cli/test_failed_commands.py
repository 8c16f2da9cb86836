"""A command that failed: the last lines of both streams in every view; and where long values differ."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.kit import Folder

SPEC = """
params: {token: {type: secret}}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: build
            type: command
            with:
              env: {TOKEN: "{{ params.token }}", LONG: "LONG1"}
              shell: |
                i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo "line $i"; done
                echo "  cause of $TOKEN,"; echo "  line by line"
                echo "a warning" >&2; echo "Error 2" >&2
                exit 2
"""
LINES = ["line 30", "  cause of ***,", "  line by line"]


@pytest.fixture
def failed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run of which the cause is on stdout, and a complaint on stderr."""
    monkeypatch.setenv("KUBEXM_STATE", str(folder.path / "state"))
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-t0k3n")
    folder.spec(SPEC.replace("LONG1", "x" * 200 + "1"))
    return folder


def _shows_both(text: str) -> None:
    assert "stdout, last 10 of 32 lines:\n" in text
    assert "".join(f"    | {line}\n" for line in LINES) in text
    assert "  stderr:\n    | a warning\n    | Error 2\n" in text
    assert "line 22\n" not in text, "bounded"
    assert "s3cr3t" not in text


def test_the_last_lines_of_both_streams_are_shown_everywhere(failed: Folder) -> None:
    done = failed.run("run", "main.yaml", "-e", "token=env:THE_TOKEN", "--report", "report.html")
    assert done.exit_code == 1
    _shows_both(done.stdout)
    _shows_both(failed.run("runs", "show").stdout)
    (told,) = failed.data("runs", "show")["failures"]
    assert told["stdout"].splitlines()[-3:] == LINES
    assert told["stderr"] == "a warning\nError 2\n"
    page = (failed.path / "report.html").read_text()
    article = page[page.index('<article class="failure">') : page.index("</article>")]
    streams = re.findall(r'<p class="stream">(\w+).*?</p><pre>(.*?)</pre>', article, re.DOTALL)
    assert [name for name, _ in streams] == ["stdout", "stderr"]
    assert streams[0][1].splitlines()[-3:] == LINES
    assert streams[1][1].splitlines() == ["a warning", "Error 2"]
    done = failed.run("run", "main.yaml", "-e", "token=env:THE_TOKEN", "--output", "json")
    ended = [json.loads(line) for line in done.stdout.splitlines() if '"action.finished"' in line]
    assert ended[0]["stdout"].splitlines()[-3:] == LINES
    assert ended[0]["stderr"] == "a warning\nError 2\n"


def test_the_debugger_shows_both_streams(failed: Folder) -> None:
    done = failed.run("run", "main.yaml", "-e", "token=env:THE_TOKEN", "--executor", "debug", stdin=b"n\nq\n")
    assert "    |   cause of ***,\n    |   line by line\n    | a warning\n    | Error 2\n" in done.output


def test_diff_and_the_refusal_of_a_resume_show_where_long_values_differ(failed: Folder) -> None:
    assert failed.run("run", "main.yaml", "-e", "token=env:THE_TOKEN", "--output", "quiet").exit_code == 1
    before = (failed.path / "main.yaml").read_text()
    failed.file("old.yaml", before)
    failed.file("main.yaml", before.replace("x1", "x2").replace("exit 2", "exit 3"))
    for done, code in (
        (failed.run("diff", "old.yaml", "main.yaml", "-e", "token=env:THE_TOKEN"), 1),
        (failed.run("runs", "resume", "last"), 3),
    ):
        assert done.exit_code == code
        assert re.search(r'with\.env\.LONG: …x+1" -> …x+2"', done.output), done.output
        assert re.search(r"with\.shell \(from line 4 on\): ….*exit 2\S* -> ….*exit 3", done.output), done.output

"""The end of a program: its exit code, what others want to do at the end, and what has to be waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.program import write_spec


def run(
    body: str, stdout: int | IO[str] = subprocess.PIPE, *, ignoring: bool = False
) -> subprocess.CompletedProcess[str]:
    program = f"import sys\nfrom kubexm_exec.cli.programs import leave_after\ndef work():\n{body}\nleave_after(work)\n"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [*(["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"] if ignoring else []), sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=env,
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("  pass", 0),
        ("  sys.exit()", 0),
        ("  sys.exit(0)", 0),
        ("  sys.exit(3)", 3),
        ("  sys.exit(130)", 130),
        ("  sys.exit(-1)", 255),
        ("  sys.exit(True)", 1),
    ],
)
def test_the_exit_code_is_that_of_the_work(body: str, code: int) -> None:
    done = run(body)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_an_exit_with_a_text_says_it() -> None:
    done = run("  sys.exit('so it ended')")
    assert (done.returncode, done.stderr) == (1, "so it ended\n")


def test_what_was_written_arrives() -> None:
    done = run("  sys.stdout.write('x' * 100_000)\n  sys.stderr.write('no end of line')")
    assert (len(done.stdout), done.stderr) == (100_000, "no end of line")


def test_what_others_want_to_do_at_the_end_is_done_once_and_the_last_first(tmp_path: Path) -> None:
    note = tmp_path / "note"
    body = (
        "  import atexit, pathlib, tempfile\n"
        f"  note = pathlib.Path({str(note)!r})\n"
        "  atexit.register(lambda: note.open('a').write('first '))\n"
        "  atexit.register(lambda: note.open('a').write('last '))\n"
        f"  work.folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})\n"
        "  sys.exit(2)"
    )
    assert run(body).returncode == 2
    assert note.read_text() == "last first "
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_thread_that_is_not_a_daemon_is_waited_for(tmp_path: Path) -> None:
    note = tmp_path / "note"
    body = (
        "  import threading, pathlib\n"
        "  def late():\n"
        "    threading.main_thread().join()\n"
        f"    pathlib.Path({str(note)!r}).write_text('done')\n"
        "  threading.Thread(target=late).start()\n"
        "  sys.exit(4)"
    )
    assert run(body).returncode == 4
    assert note.read_text() == "done"


def test_an_error_is_told_as_ever() -> None:
    done = run("  raise ValueError('a bug')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: a bug\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("  sys.stdout.write('x')", 1),
        ("  print('x', flush=True)", 1),
        ("  sys.stdout.write('x'); sys.exit(3)", 3),
        ("  import click; click.echo('x')", 1),
    ],
)
def test_output_that_cannot_be_written_is_told_and_not_taken_for_success(body: str, code: int) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(body, stdout=full)
    assert (done.returncode, done.stderr) == (code, "error: the output cannot be written: No space left on device\n")


def test_a_full_disk_elsewhere_is_told_as_ever() -> None:
    done = run("  raise OSError(28, 'No space left on device', '/a/file')")
    assert done.returncode == 1
    assert done.stderr.endswith("OSError: [Errno 28] No space left on device: '/a/file'\n")


def test_the_end_of_the_input_at_a_question_is_no_interrupt() -> None:
    done = run(
        "  import click\n  from kubexm_exec.cli.interrupts import interruptible\n"
        "  def ask():\n    with interruptible(): click.confirm('sure?')\n  click.Command('c', callback=ask)([])"
    )
    assert (done.returncode, done.stderr) == (1, "Aborted!\n")


def test_an_interrupt_ends_the_program_with_a_code_of_its_own_and_the_second_one_at_once() -> None:
    press = "os.kill(os.getpid(), signal.SIGINT)"
    done = run(f"  import os, signal\n  {press}")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")
    done = run(f"  import os, signal\n  try:\n    {press}\n  finally:\n    {press}\n    print('not reached')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "where",
    [
        "class D:\n    def __set_name__(self, *of): PRESS\n  class C: d = D()",
        "import click\n  class C(click.Command):\n    def parse_args(self, *a): PRESS\n  C('c')([])",
    ],
    ids=["making a class", "taking words apart"],
)
def test_an_interrupt_that_becomes_something_else_is_one_all_the_same(where: str) -> None:
    done = run(f"  import os, signal\n  {where}".replace("PRESS", "os.kill(os.getpid(), signal.SIGINT)"))
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_to_be_interrupted_is_not() -> None:
    done = run("  import os, signal\n  os.kill(os.getpid(), signal.SIGINT)\n  print('done')", ignoring=True)
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_an_interrupt_that_was_lost_while_loading_still_keeps_anything_from_being_run(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks: [{{name: t, steps: [{{name: s, type: file, with: {{path: "{tmp_path}/made", content: x}}}}]}}]
""",
    )
    done = run(
        "  import contextlib, os, signal\n"
        "  with contextlib.suppress(KeyboardInterrupt): os.kill(os.getpid(), signal.SIGINT)\n"
        "  from kubexm_exec.cli.run import command\n"
        f"  command([{str(tmp_path / 'spec.yaml')!r}, '--no-journal'])"
    )
    assert done.returncode == 130, done.stdout + done.stderr
    assert not (tmp_path / "made").exists()

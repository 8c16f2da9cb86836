"""kubexm-run as a whole: exit codes, outputs, stopping, plans, policies and secrets, on the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.program import environment, run, start, write_spec

ONE = """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: {name}
            type: command
            with: {{shell: {shell}}}
"""


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_success_is_0_failure_is_1_and_a_wrong_spec_is_2(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="ok", shell="'true'"), "good.yaml")
    write_spec(tmp_path, ONE.format(name="no", shell="'exit 7'"), "bad.yaml")
    write_spec(tmp_path, ONE.format(name="x", shell="'true', shel: 1"), "wrong.yaml")
    assert run("kubexm-run", "good.yaml", cwd=tmp_path).returncode == 0
    failed = run("kubexm-run", "bad.yaml", cwd=tmp_path)
    assert failed.returncode == 1
    assert "m/t/no" in failed.stdout
    assert "exit 7" in failed.stdout
    wrong = run("kubexm-run", "wrong.yaml", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "wrong.yaml:12:35" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert run("kubexm-run", cwd=tmp_path).returncode == 2
    assert run("kubexm-run", "good.yaml", "--executor", "nope", cwd=tmp_path).returncode == 2


def test_json_output_is_one_event_a_line_and_ends_with_the_run(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="say", shell="'echo one; echo two'"))
    done = run("kubexm-run", "spec.yaml", "--output", "json", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "run.started"
    assert events[-1]["event"] == "run.finished"
    assert {event["event"] for event in events} >= {"action.started", "action.output", "action.finished"}
    assert len({event["run"] for event in events}) == 1


def test_the_result_has_the_field_names_of_the_contract(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="say", shell="'echo one'"))
    run("kubexm-run", "spec.yaml", "--result", "r.json", cwd=tmp_path)
    result = json.loads((tmp_path / "r.json").read_text())
    assert result.keys() >= {"graphName", "startTime", "endTime", "status", "nodeResults"}
    node = result["nodeResults"]["m/t/say"]
    assert node.keys() >= {"nodeName", "stepName", "status", "startTime", "endTime", "message", "hostResults"}
    host = node["hostResults"]["control-node"]
    assert host.keys() >= {"hostName", "status", "message", "stdout", "stderr", "startTime", "endTime", "skipped"}
    assert host["stdout"] == "one\n" or host["stdout"] == "one"


def test_a_result_that_could_not_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="touch", shell=f"'touch {tmp_path}/ran'"))
    done = run("kubexm-run", "spec.yaml", "--result", "no/such/r.json", cwd=tmp_path)
    assert done.returncode == 2
    assert not (tmp_path / "ran").exists()


def _interruptible(tmp_path: Path) -> subprocess.Popen[str]:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    hooks:
      always:
        - name: clean
          type: command
          with: {{shell: 'touch {tmp_path}/cleaned'}}
    tasks:
      - name: t
        steps:
          - name: long
            type: command
            with: {{shell: 'sleep 300 & echo $! > {tmp_path}/pid; touch {tmp_path}/running; wait'}}
          - name: never
            type: command
            with: {{shell: 'touch {tmp_path}/never'}}
""",
    )
    process = start("kubexm-run", "spec.yaml", "--result", "r.json", cwd=tmp_path)
    until((tmp_path / "running").exists)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_kills_what_runs_runs_always_hooks_reports_and_exits_130(tmp_path: Path, number: signal.Signals) -> None:
    process = _interruptible(tmp_path)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (tmp_path / "cleaned").exists()
    assert not (tmp_path / "never").exists()
    assert not alive(int((tmp_path / "pid").read_text()))
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["status"] == "Cancelled"
    assert result["nodeResults"]["m/t/never"]["status"] == "Cancelled"
    assert "m/t/long" in out


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
hooks:
  always:
    - name: slow
      type: command
      with: {{shell: 'touch {tmp_path}/cleaning; sleep 300'}}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: long, type: command, with: {{shell: 'touch {tmp_path}/running; sleep 300'}}}}
""",
    )
    process = start("kubexm-run", "spec.yaml", cwd=tmp_path)
    until((tmp_path / "running").exists)
    process.send_signal(signal.SIGINT)
    until((tmp_path / "cleaning").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130


def test_a_timeout_kills_the_whole_process_group(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: long
            type: command
            timeout: 500ms
            with: {{shell: 'sleep 300 & echo $! > {tmp_path}/pid; wait'}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--result", "r.json", cwd=tmp_path)
    assert done.returncode == 1
    host = json.loads((tmp_path / "r.json").read_text())["nodeResults"]["m/t/long"]["hostResults"]["control-node"]
    assert host["failureKind"] == "timedOut"
    until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_plan_runs_exactly_and_is_refused_when_stale(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="say", shell=f"'touch {tmp_path}/ran'"))
    assert run("kubexm", "plan", "spec.yaml", "-o", "plan.json", cwd=tmp_path).returncode == 0
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600
    assert run("kubexm-run", "--plan", "plan.json", cwd=tmp_path).returncode == 0
    (tmp_path / "ran").unlink()
    with (tmp_path / "spec.yaml").open("a") as stream:
        stream.write("# changed\n")
    stale = run("kubexm-run", "--plan", "plan.json", cwd=tmp_path)
    assert stale.returncode == 3
    assert "spec.yaml has changed" in stale.stderr
    assert not (tmp_path / "ran").exists()


def test_rollback_undoes_in_reverse_order_and_reports_what_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before\n")
    write_spec(
        tmp_path,
        f"""
failurePolicy: rollback
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: change, type: file, with: {{path: {tmp_path}/old, content: "after\\n"}}}}
          - {{name: add, type: file, with: {{path: {tmp_path}/new, content: "x\\n"}}}}
          - {{name: lasting, type: command, with: {{shell: 'touch {tmp_path}/lasting'}}}}
          - {{name: fail, type: command, with: {{shell: 'exit 3'}}}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--result", "r.json", cwd=tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "old").read_text() == "before\n"
    assert not (tmp_path / "new").exists()
    result = json.loads((tmp_path / "r.json").read_text())
    assert any("m/t/lasting" in text for text in result["notReversible"])
    assert result["nodeResults"]["m/t/change"]["hostResults"]["control-node"]["undo"] == "undone"


def test_check_changes_nothing_and_shows_the_diff(tmp_path: Path) -> None:
    (tmp_path / "motd").write_text("old\n")
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: motd, type: file, with: {{path: {tmp_path}/motd, content: "new\\n"}}}}
          - {{name: dir, type: directory, with: {{path: {tmp_path}/made}}}}
""",
    )
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    folder = tmp_path.stat().st_mtime_ns
    done = run("kubexm-run", "spec.yaml", "--executor=check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-old" in done.stdout
    assert "+new" in done.stdout
    assert "Nothing was changed" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert tmp_path.stat().st_mtime_ns == folder


def test_dry_run_shows_every_action_and_names_unknown_values(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: ask, type: command, with: {{shell: 'touch {tmp_path}/ran'}}}}
          - {{name: say, type: message, with: {{text: "{{{{ steps.ask.outputs.stdout }}}} on {{{{ host.name }}}}"}}}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--executor=dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.index("m/t/ask") < done.stdout.index("m/t/say")
    assert "steps.ask.outputs" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_debug_is_driven_by_a_pipe(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: a, type: command, with: {{shell: 'touch {tmp_path}/a'}}}}
          - {{name: b, type: command, with: {{shell: 'touch {tmp_path}/b'}}}}
          - {{name: c, type: command, with: {{shell: 'touch {tmp_path}/c'}}}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--executor=debug", cwd=tmp_path, stdin="n\ns\nc\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "c").exists()


def test_a_secret_is_nowhere_in_what_is_printed_or_written(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        """
params:
  token: {type: secret}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: leak, type: command, with: {argv: [echo, "token={{ params.token }}"]}}
          - {name: fail, type: command, with: {shell: 'echo {{ secret("env:OTHER") }} >&2; exit 1'}}
""",
    )
    values = {"TOKEN": "s3cr3t-value-one", "OTHER": "another-hidden-text"}
    done = run(
        "kubexm-run", "spec.yaml", "-v", "-e", "token=env:TOKEN", "--result", "r.json", "--report", "r.html",
        "--log-level", "debug", cwd=tmp_path, env=environment(**values),
    )  # fmt: skip
    assert done.returncode == 1
    everything = done.stdout + done.stderr + (tmp_path / "r.json").read_text() + (tmp_path / "r.html").read_text()
    assert "m/t/leak" in everything
    assert not [value for value in values.values() if value in everything]


def test_help_of_both_commands_imports_nothing_heavy(tmp_path: Path) -> None:
    import sys

    code = (
        "import sys, kubexm_exec.cli.main, kubexm_exec.cli.run\n"
        "heavy = {'pydantic', 'jinja2', 'rich', 'networkx', 'structlog', 'fabric', 'paramiko', 'ruamel'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


def test_plain_run_loads_nothing_that_its_spec_does_not_need(tmp_path: Path) -> None:
    """It has a journal, but no expression, no template, no SSH host, no cluster and no plan."""
    import sys

    body = """
modules:
  - name: m
    tasks:
      - {name: t, steps: [{name: s, type: command, with: {argv: ["true"]}}]}
"""
    write_spec(tmp_path, body)
    needless = {
        "alembic", "asyncio", "cryptography", "fabric", "jinja2", "kubexm_spec.clusters", "kubexm_spec.models.cluster",
        "kubexm_spec.models.versions", "networkx", "paramiko", "re2", "sqlalchemy", "structlog", "tomlkit", "urllib3",
    }  # fmt: skip
    code = (
        "import atexit, sys\n"
        "from kubexm_exec.cli.programs import kubexm_run\n"
        f"atexit.register(lambda: print('loaded:', *sorted(set({sorted(needless)!r}) & sys.modules.keys())))\n"
        "sys.argv = ['kubexm-run', 'spec.yaml', '--journal', 'journal.db', '--output', 'quiet']\n"
        "kubexm_run()\n"
    )
    command = [sys.executable, "-c", code]
    for _ in range(2):  # the first one makes the database
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "loaded:"), done.stderr


def test_failfast_stops_new_work_and_continue_goes_on(tmp_path: Path) -> None:
    body = """
failurePolicy: {policy}
modules:
  - name: bad
    tasks:
      - {{name: t, steps: [{{name: fail, type: command, with: {{shell: 'exit 1'}}}}]}}
  - name: after
    tasks:
      - {{name: t, steps: [{{name: never, type: command, with: {{shell: 'touch never'}}}}]}}
  - name: aside
    needs: []
    tasks:
      - name: t
        steps:
          - {{name: wait, type: wait, with: {{file: {flag}, deadline: 20s, interval: 50ms}}}}
          - {{name: work, type: command, with: {{shell: 'true'}}}}
"""
    statuses = {}
    for policy in ("continue", "failFast"):
        flag = tmp_path / policy
        write_spec(tmp_path, body.format(policy=policy, flag=flag), f"{policy}.yaml")
        process = start("kubexm-run", f"{policy}.yaml", "--result", f"{policy}.json", "--output", "json", cwd=tmp_path)
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "action.finished" and event["node"] == "bad/t/fail":
                flag.touch()
        process.communicate(timeout=30)
        assert process.returncode == 1
        nodes = json.loads((tmp_path / f"{policy}.json").read_text())["nodeResults"]
        statuses[policy] = {node: result["status"] for node, result in nodes.items()}
    assert statuses["continue"]["after/t/never"] == "Skipped"
    assert statuses["continue"]["aside/t/work"] == "Success"
    assert statuses["failFast"]["after/t/never"] in ("Cancelled", "Skipped")
    assert statuses["failFast"]["aside/t/work"] == "Cancelled"


def test_a_report_is_one_page_without_anything_from_outside(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="say", shell="'echo one'"))
    run("kubexm-run", "spec.yaml", "--report", "r.html", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "m/t/say" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert os.path.getsize(tmp_path / "r.html") > 1000  # noqa: PTH202


def test_a_fragment_from_several_hosts_refers_to_its_own_steps_on_each(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        """
inventory: {hosts: [{name: "n[1:8]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: more
            type: fragment
            with:
              steps:
                - {name: one, type: command, with: {shell: "sleep 0.0{{ host.name[1:] }}; echo {{ host.name }}"}}
                - {name: two, type: assert, with: {that: ["steps.one.outputs.stdout == host.name"]}}
                - {name: far, type: command, runOn: {hosts: [n2]}, with: {shell: "echo far"}}
          - {name: last, type: message, with: {text: "done"}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--result", "r.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    nodes = json.loads((tmp_path / "r.json").read_text())["nodeResults"]
    assert sorted(nodes) == ["m/t/last", "m/t/more", "m/t/more+far", "m/t/more+one", "m/t/more+two"]
    assert list(nodes["m/t/more+far"]["hostResults"]) == ["n2"]
    assert len(nodes["m/t/more+one"]["hostResults"]) == 8


def test_what_a_sensitive_step_gave_stays_hidden_in_later_steps_that_use_it(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: join, type: command, sensitive: true, with: {{shell: 'echo abcdef.0123456789'}}}}
          - {{name: use, type: command, with: {{argv: [echo, "joined with {{{{ steps.join.outputs.stdout }}}}"]}}}}
          - name: keep
            type: command
            sensitive: true
            with: {{shell: "echo {{{{ steps.join.outputs.stdout }}}} > {tmp_path}/token"}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "-v", "--result", "r.json", "--report", "r.html", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    everything = done.stdout + done.stderr + (tmp_path / "r.json").read_text() + (tmp_path / "r.html").read_text()
    assert "joined with" in everything
    assert "abcdef.0123456789" not in everything
    assert (tmp_path / "token").read_text() == "abcdef.0123456789\n"


def test_log_lines_are_json_on_request_with_run_node_and_host(tmp_path: Path) -> None:
    write_spec(tmp_path, ONE.format(name="no", shell="'echo hidden-not; exit 7'"))
    done = run(
        "kubexm-run", "spec.yaml", "--log-level", "debug", "--log-format", "json", "--output", "quiet", cwd=tmp_path
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    finished = [line for line in lines if line["message"] == "action finished"]
    assert [(line["node"], line["host"], line["level"]) for line in finished] == [("m/t/no", "control-node", "error")]
    assert finished[0]["exitCode"] == 7
    assert len({line["run"] for line in lines}) == 1
    assert {line["message"] for line in lines} >= {"run started", "action started", "output", "run finished"}


def test_a_failure_within_the_budget_is_success_and_said_to_be_a_failure(tmp_path: Path) -> None:
    write_spec(
        tmp_path,
        """
inventory: {hosts: [{name: "n[1:3]", connector: local}]}
maxFailures: 1
modules:
  - name: m
    tasks:
      - {name: t, steps: [{name: a, type: assert, with: {that: ["host.name != 'n3'"]}}]}
""",
    )
    done = run("kubexm-run", "spec.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 failed, within maxFailures" in done.stdout
    assert "Nothing needed to change" not in done.stdout
    assert "--limit n3" in done.stdout


@pytest.mark.parametrize("words", ["kubexm-run spec.yaml", "kubexm validate spec.yaml", "kubexm run spec.yaml"])
def test_an_interrupt_before_anything_is_run_is_no_failure(words: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.sh"
    hosts.write_text("#!/bin/sh\ntouch begun\nexec sleep 300\n")
    hosts.chmod(0o755)
    write_spec(tmp_path, "inventory: ./hosts.sh\nmodules: []\n")
    program, *arguments = words.split()
    process = start(program, *arguments, cwd=tmp_path)
    until((tmp_path / "begun").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "\ninterrupted\n")


DEAF = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: s
            type: command
            with:
              shell: 'trap "" TERM INT HUP; echo $$ >pids.$N; sleep 300 & echo $! >>pids.$N; echo ready; wait'
              env: {N: "{{ host.name }}"}
              cwd: FOLDER
"""


def deaf_run(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A run whose commands hear nothing, and the numbers of their processes."""
    write_spec(tmp_path, DEAF.replace("FOLDER", str(tmp_path)))
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    process = start("kubexm-run", "spec.yaml", "-v", cwd=tmp_path, env=env)
    assert process.stdout is not None
    heard = 0
    while heard < 2:
        line = process.stdout.readline()
        assert line, "it ended"
        heard += line.rstrip().endswith("ready")
    return process, [int(line) for path in tmp_path.glob("pids.*") for line in path.read_text().split()]


def test_what_runs_on_this_machine_does_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    process, pids = deaf_run(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not any(map(alive, pids)))


def test_a_second_interrupt_leaves_nothing_running_that_is_deaf_to_the_first(tmp_path: Path) -> None:
    process, pids = deaf_run(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "stopping" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: not any(map(alive, pids)))

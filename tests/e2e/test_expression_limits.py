"""What a host prints, and what a spec says, cannot make the real program hang or fill the memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.e2e.program import BIN, environment, write_spec

MEMORY = 1 << 30

RUN = """
params:
  name: {type: string, pattern: "(a+)+b", default: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: print, type: command, with: {shell: "printf %050000d 0 | tr 0 a; echo b; echo bbb > lines"}}
          - name: found
            type: assert
            with: {that: ["steps.print.outputs.stdout | regex_search('(a+)+$') == ''"]}
          - name: edit
            type: line-in-file
            with: {path: "{{ vars.folder }}/lines", line: a, match: "(a+)+$"}
          - name: large
            type: message
            with: {text: "{{ ([steps.print.outputs.stdout] * 100000) | join }}"}
"""


def limited(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The program with little memory."""
    command = f'ulimit -v {MEMORY >> 10}; exec "$@"'
    return subprocess.run(
        ["sh", "-c", command, "sh", str(BIN / program), *arguments],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_what_a_host_printed_is_searched_in_time_and_a_huge_value_fails_its_step_alone(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a" * 50_000 + "b\n")
    write_spec(tmp_path, f"vars: {{folder: {tmp_path}}}\n{RUN}", "a.yaml")
    done = limited("kubexm-run", "a.yaml", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "m/t/large" in done.stdout
    assert "the result would be too large" in done.stdout
    assert "([steps.print.outputs.stdout] * 100000) | join" in done.stdout
    assert "at a.yaml:" in done.stdout
    assert (tmp_path / "lines").read_text().endswith("\na\n")


HUGE = [
    "{{ (['a' * 10000000] * 1000) | join }}",
    "{{ ('\t' * 1000000).expandtabs(10000) }}",
    "{{ ('{0}' * 1000).format('a' * 10000000) }}",
    "{{ ('a\n' * 1000000) | indent(10000) }}",
    "{{ ('a ' * 100000) | wordwrap(1, wrapstring='a' * 100000) }}",
    "{{ ('a' * 1000000).translate({97: 'a' * 10000}) }}",
    "{{ 'a' | center(10 ** 10) }}",
    "{{ 10 ** (10 ** 10) }}",
]


def test_validate_refuses_every_huge_value_with_its_place(tmp_path: Path) -> None:
    steps = [{"name": f"s{number}", "type": "message", "with": {"text": text}} for number, text in enumerate(HUGE)]
    lines = "".join(f"          - {json.dumps(step)}\n" for step in steps)
    write_spec(tmp_path, f"modules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n{lines}", "a.yaml")
    done = limited("kubexm", "validate", "a.yaml", cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert said.count("the result would be too large") == len(HUGE)
    places = [f"--> a.yaml:{9 + number}:" for number in range(len(HUGE))]
    assert [place for place in places if place not in said] == []

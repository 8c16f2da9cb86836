"""Secrets are planted wherever a spec can use them; then all that was printed and written is searched for them."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from tests.e2e.program import BIN, environment, run, write_spec
from tests.lab.sshd import SSHD, SshHost, ssh_host
from tests.secrets.vault import TOKEN, StandIn, stand_in

# Characters that every way of writing text down treats in its own way.
ENV = "p@ss w/rd+\"q'&é%x$1-of-env"
FILE = "second\\secret <of> the #file: yes"
VAULT = "third.secret=of/the+vault=="
LONG = "long-secret-" + "0123456789abcdef" * 20
"""Longer than any line that shows it."""
LINES = "-----BEGIN KEY-----\nMIIEvgIBADANBgkqhkiG9w0BAQ\nEFAASCBKgwggSkAgEAAoIBAQC7\n-----END KEY-----"

STEPS = """
params:
  fourth: {type: secret, default: "file:lines"}
vars:
  mixed: "user:{{ secret('env:KX_PLANTED') }}@db"
modules:
  - name: plant
    tasks:
      - name: everywhere
        runOn: {hosts: [h]}
        steps:
          - name: argv
            type: command
            with: {argv: [printf, '%s\\n', "{{ secret('env:KX_PLANTED') }}", "{{ secret('vault:secret/app#token') }}"]}
          - name: shortened
            type: command
            with: {argv: [echo, "some words before it {{ secret('env:KX_LONG') }}"]}
          - name: comes-back-encoded
            type: command
            with:
              shell: 'printf %s "$S" | base64 -w0; echo; printf "x%s" "$S" | base64; echo "$S" >&2'
              env: {S: "{{ secret('env:KX_PLANTED') }}"}
          - name: uses-output
            type: command
            with: {argv: [echo, "again {{ steps.argv.outputs.stdout }}", "{{ secret('env:KX_PLANTED') | urlencode }}"]}
          - name: stdin
            type: command
            with: {argv: [cat], stdin: "{{ secret('file:keys.yaml#db.password') }} {{ vars.mixed }}"}
          - name: file
            type: file
            with: {path: "{{ vars.root }}/file", content: "{{ secret('env:KX_PLANTED') }}|{{ params.fourth }}\\n"}
          - name: template
            type: template
            with:
              src: app.j2
              path: "{{ vars.root }}/app.json"
              vars: {token: "{{ secret('vault:secret/app#token') }}"}
          - name: line
            type: line-in-file
            with: {path: "{{ vars.root }}/app.json", line: "# {{ secret('file:keys.yaml#db.password') }}"}
          - name: named-after-it
            type: file
            with: {path: "{{ vars.root }}/{{ secret('vault:secret/app#token') | b64encode }}", content: x}
          - name: told
            type: message
            with: {text: "the key is {{ params.fourth }}"}
          - name: kept
            type: set
            with: {values: {password: "{{ secret('file:keys.yaml#db.password') }}"}}
          - name: more
            type: fragment
            with:
              steps:
                - {name: echoed, type: command, with: {argv: [echo, "{{ secret('env:KX_PLANTED') }}"]}}
          - name: wrong
            type: assert
            ignoreErrors: true
            with: {that: ["secret('env:KX_PLANTED') == 'other'"]}
          - name: fails-shortened
            type: command
            ignoreErrors: true
            with: {argv: [sh, -c, 'echo "$0" >&2; exit 3', "{{ secret('env:KX_LONG') }}"]}
          - name: wrong-type
            type: command
            ignoreErrors: true
            with: {argv: "{{ secret('env:KX_LONG') }}"}
          - name: fails
            type: command
            with: {argv: [sh, -c, 'echo "$0" >&2; exit 3', "{{ secret('env:KX_PLANTED') }}-{{ params.fourth }}"]}
"""


@pytest.fixture(scope="module")
def vault() -> Iterator[StandIn]:
    with stand_in() as server:
        server.put("secret/app", token=VAULT)
        yield server


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mapping[str, object]]:
    root = tmp_path / "host"
    root.mkdir()
    if request.param == "local":
        yield {"name": "h", "connector": "local", "vars": {"root": str(root)}}
        return
    if SSHD is None:
        pytest.skip("no sshd here")
    with ssh_host(tmp_path / "sshd") as server:
        yield _inventory_host(server, root)


def _inventory_host(server: SshHost, root: Path) -> Mapping[str, object]:
    return {
        "name": "h", "address": server.address, "port": server.port, "user": server.user,
        "privateKeyPath": str(server.key), "vars": {"root": str(root)},
    }  # fmt: skip


class Project:
    """A folder with the spec, and all that was ever printed about it."""

    def __init__(self, folder: Path, vault: StandIn, host: Mapping[str, object]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        for each in (self.home, self.temporary, folder / "templates"):
            each.mkdir(parents=True)
        (folder / "templates" / "app.j2").write_text(
            '{"token": {{ token | tojson }}, "user": {{ vars.mixed | tojson }}}\n'
        )
        self.sources = [folder / "keys.yaml", folder / "lines"]
        self.sources[0].write_text(json.dumps({"db": {"password": FILE}}))
        self.sources[1].write_text(LINES)
        for source in self.sources:
            source.chmod(0o600)
        inventory = {"defaults": {"knownHosts": str(folder / "known_hosts")}, "hosts": [host]}
        self.spec = write_spec(folder, f"inventory: {json.dumps(inventory)}\nfailurePolicy: rollback\n{STEPS}")
        self.env = environment(
            HOME=str(self.home), TMPDIR=str(self.temporary), SSH_AUTH_SOCK="",
            KX_PLANTED=ENV, KX_LONG=LONG, VAULT_TOKEN=TOKEN, VAULT_ADDR=vault.url,
            XDG_STATE_HOME=str(self.home / "state"), XDG_CACHE_HOME=str(self.home / "cache"),
        )  # fmt: skip
        self.printed: list[str] = []

    def run(self, program: str, *arguments: str, expect: int, stdin: str = "") -> str:
        """What a command printed."""
        done = run(program, *arguments, cwd=self.folder, env=self.env, stdin=stdin)
        assert done.returncode == expect, done.stdout + done.stderr
        self.printed += [done.stdout, done.stderr]
        return done.stdout + done.stderr

    def on_a_terminal(self, *arguments: str, expect: int) -> str:
        """The same on a pseudo-terminal, where the live view draws."""
        ours, theirs = pty.openpty()
        env = {key: value for key, value in self.env.items() if key not in ("NO_COLOR", "CI")}
        process = subprocess.Popen(
            [str(BIN / "kubexm-run"), *arguments],
            cwd=self.folder, env={**env, "TERM": "xterm-256color"}, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        seen: list[bytes] = []

        def read() -> None:
            while True:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    return
                if not data:
                    return
                seen.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        assert process.wait(timeout=60) == expect
        reader.join()
        os.close(ours)
        self.printed.append(b"".join(seen).decode("utf-8", "replace"))
        return self.printed[-1]

    def leaks(self) -> list[str]:
        """Where a secret, in any of the ways to write it, is in what was printed or written."""
        wanted = {
            name: form for value in (ENV, FILE, VAULT, LONG, LINES, TOKEN) for name, form in _forms(value).items()
        }
        found = []
        for number, text in enumerate(self.printed):
            found += [f"printed {number}: {name}" for name, form in wanted.items() if form in text]
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path not in self.sources:
                text = path.read_bytes().decode("utf-8", "replace")
                found += [f"{path.relative_to(self.folder)}: {name}" for name, form in wanted.items() if form in text]
        return found


def _forms(value: str) -> dict[str, str]:
    raw = value.encode()
    forms = {
        "plain": value, "quoted": quote(value), "quoted whole": quote(value, safe=""), "plus": quote_plus(value),
        "json": json.dumps(value)[1:-1], "json unicode": json.dumps(value, ensure_ascii=False)[1:-1],
        "twice json": json.dumps(json.dumps(value))[1:-1], "repr": repr(value)[1:-1],
        "base64": base64.b64encode(raw).decode().rstrip("="),
        "url base64": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        # Not at a border of three bytes: the middle of it is the same whatever stands before.
        "shifted base64": base64.b64encode(b"x" + raw).decode()[4:-4],
        "html": value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    }  # fmt: skip
    if value != LINES:  # how a key begins is no secret
        forms["beginning"] = value[:10]
    forms |= {f"line {n}": line for n, line in enumerate(value.splitlines()) if len(line) >= 8 and "KEY" not in line}
    return {f"{value[:6]!r} as {name}": form for name, form in forms.items()}


@pytest.fixture
def project(tmp_path: Path, vault: StandIn, host: Mapping[str, object]) -> Project:
    return Project(tmp_path / "project", vault, host)


def test_no_planted_secret_is_in_anything_that_was_printed_or_written(project: Project, tmp_path: Path) -> None:
    logs = ("--log-level", "debug", "--log-format", "json")
    files = ("--result", "result.json", "--report", "report.html")
    project.run("kubexm-run", "spec.yaml", "-vv", *logs, *files, expect=1)
    # The undo has taken them away; without it they stay.
    spec = project.spec.read_text()
    project.spec.write_text(spec.replace("failurePolicy: rollback", "failurePolicy: continue"))
    project.run("kubexm-run", "spec.yaml", "--output", "json", "--result", "again.json", expect=1)
    root = tmp_path / "host"
    assert (root / "file").read_text() == f"{ENV}|{LINES}\n", "the host must get the real value"
    assert (root / "file").stat().st_mode & 0o777 == 0o600
    assert json.loads((root / "app.json").read_text().splitlines()[0])["token"] == VAULT
    (root / "file").write_text("changed\n")
    project.run("kubexm-run", "spec.yaml", "--executor", "check", "-vv", "--report", "check.html", expect=0)
    project.run("kubexm-run", "spec.yaml", "--executor", "dry-run", "-vv", expect=0)
    debug = "inspect\nnext\ninspect\nnext\nnext\n" + "continue\n" * 9
    project.run("kubexm-run", "spec.yaml", "--executor", "debug", stdin=debug, expect=1)
    project.on_a_terminal("spec.yaml", "-v", expect=1)
    project.run("kubexm", "plan", "spec.yaml", "-o", "plan.json", expect=0)
    project.run("kubexm-run", "--plan", "plan.json", expect=1)
    project.run("kubexm", "vars", "spec.yaml", "--host", "h", expect=0)
    for form in ("json", "mermaid", "html"):
        project.run("kubexm", "graph", "spec.yaml", "--format", form, expect=0)

    # What the host had before holds them too, and is kept for an undo: only as long as the session lasts.
    project.run("kubexm", "runs", "rollback", "last", "--yes", expect=1)
    for command in (("show",), ("logs",), ("events",), ("report", "-o", "past.html")):
        project.run("kubexm", "runs", command[0], "last", *command[1:], expect=0)
    assert list(project.home.rglob("journal.db")), "the runs were written down"

    assert project.leaks() == []
    assert sum(text.count("***") for text in project.printed) > 20, "it was shown, and masked"


def test_the_search_finds_what_is_there(project: Project) -> None:
    """So that the test above can fail."""
    (project.folder / "leak.txt").write_text("x" + base64.b64encode(ENV.encode()).decode())
    project.printed.append(f"oops {json.dumps(FILE)}")
    assert {leak.partition(":")[0] for leak in project.leaks()} == {"leak.txt", "printed 0"}

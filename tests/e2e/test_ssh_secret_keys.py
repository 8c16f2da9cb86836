"""A private key that is a secret logs in from memory: it is in no file and in nothing that is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import environment, run, write_spec
from tests.lab.sshd import MISSING, SSHD, SshHost, make_key, ssh_host
from tests.secrets.vault import TOKEN, stand_in

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    with ExitStack() as stack:
        yield stack.enter_context(ssh_host(tmp_path / "sshd", "127.0.0.1"))


def write(folder: Path, host: SshHost, **more: Any) -> None:
    folder.mkdir()
    entry = {"name": "n", "address": host.address, "port": host.port, "user": host.user, **more}
    inventory = {"defaults": {"knownHosts": str(folder / "known_hosts")}, "hosts": [entry]}
    steps = "[{name: s, type: command, with: {shell: 'cat; echo done'}}]"
    write_spec(
        folder, f"inventory: {json.dumps(inventory)}\nmodules: [{{name: m, tasks: [{{name: t, steps: {steps}}}]}}]\n"
    )


def pieces(key: str) -> list[str]:
    return [line for line in key.splitlines() if "-----" not in line]


def files_with(folder: Path, words: list[str]) -> list[Path]:
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and any(word.encode() in path.read_bytes() for word in words):
            found.append(path)
    return found


@pytest.mark.parametrize("passphrase", ["", "correct horse battery"])
@pytest.mark.parametrize("provider", ["env", "file", "vault"])
def test_a_key_from_a_secret_logs_in(tmp_path: Path, host: SshHost, provider: str, passphrase: str) -> None:
    path = make_key(tmp_path / "own", passphrase=passphrase)
    host.authorized.write_text((tmp_path / "own.pub").read_text())
    key = path.read_text()
    env = environment(HOME=str(tmp_path / "home"), KX_PASSPHRASE=passphrase, TMPDIR=str(tmp_path / "temporary"))
    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    env.pop("SSH_AUTH_SOCK", None)
    more = {"passphrase": "env:KX_PASSPHRASE"} if passphrase else {}
    with stand_in() as vault:
        if provider == "env":
            env["KX_KEY"], reference = key, "env:KX_KEY"
            path.unlink()
        elif provider == "file":
            reference = f"file:{path}"
        else:
            vault.put("secret/ssh", key=key)
            env |= {"VAULT_ADDR": vault.url, "VAULT_TOKEN": TOKEN}
            reference = "vault:secret/ssh#key"
            path.unlink()
        write(tmp_path / "project", host, privateKey=reference, **more)
        done = run("kubexm-run", "spec.yaml", "-vv", "--log-level", "debug", "--journal", "j.db", "--report", "r.html",
                   "--result", "r.json", cwd=tmp_path / "project", env=env)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    words = [*pieces(key), *([passphrase] if passphrase else [])]
    assert not [word for word in words if word in done.stdout + done.stderr]
    for name in ("project", "home", "temporary"):
        assert not files_with(tmp_path / name, words)


@pytest.mark.parametrize(
    ("text", "said"),
    [("no key at all", "is not a private key"), ("locked", "give it as `passphrase: env:NAME`")],
)
def test_a_secret_that_is_no_usable_key_is_told_and_not_quoted(
    tmp_path: Path, host: SshHost, text: str, said: str
) -> None:
    if text == "locked":
        text = make_key(tmp_path / "own", passphrase="right horse").read_text()
    write(tmp_path / "project", host, privateKey="env:KX_KEY")
    done = run("kubexm-run", "spec.yaml", "--no-journal", cwd=tmp_path / "project",
               env=environment(KX_KEY=text, HOME=str(tmp_path)))  # fmt: skip
    assert done.returncode == 1
    assert said in done.stdout
    assert not [word for word in pieces(text) if word in done.stdout + done.stderr]


def test_a_shell_says_that_it_cannot_use_a_key_from_a_secret(tmp_path: Path, host: SshHost) -> None:
    write(tmp_path / "project", host, privateKey="env:KX_KEY")
    done = run("kubexm", "shell", "n", "--spec", "spec.yaml", cwd=tmp_path / "project", env={**os.environ})
    assert done.returncode == 1
    assert "kubexm exec n" in done.stderr

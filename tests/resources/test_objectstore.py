"""s3:// addresses against moto's S3 server, which checks signatures; and what is said without botocore."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.resources.store import ResourceStore
from tests.e2e.program import environment, write_spec
from tests.environments import ROOT, borrowing_environment, site_packages

pytestmark = pytest.mark.xdist_group("objectstore")

CONTENT = random.Random(5).randbytes(3_000_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()

# Requests that moto takes from anybody, to make the first user; after them it checks the signature of each.
ACTIONS = 5
SETUP = """
import json, sys, botocore.session
endpoint, path = sys.argv[1:]
session = botocore.session.get_session()
def client(name):
    return session.create_client(name, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="x",
                                 aws_secret_access_key="x")
s3, iam = client("s3"), client("iam")
s3.create_bucket(Bucket="tools")
s3.put_object(Bucket="tools", Key="v1/a tool+1.bin", Body=open(path, "rb").read())
iam.create_user(UserName="kubexm")
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="kubexm", PolicyName="all", PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName="kubexm")["AccessKey"]
print(json.dumps([key["AccessKeyId"], key["SecretAccessKey"]]))
"""


@dataclass
class Store:
    """A running object store behind a wire that can be cut."""

    python: Path
    port: int
    key: str = ""
    secret: str = ""
    wire: int = 0
    cuts: list[int] = field(default_factory=list)
    """For each of the next connections: cut it after so many bytes of the answer."""
    asked: list[bytes] = field(default_factory=list)
    """The first bytes of each connection."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.wire}"

    def source(self, **s3: Any) -> dict[str, Any]:
        """The resource in a spec."""
        access = {"endpoint": self.endpoint, "accessKeyId": "env:S3_KEY", "secretAccessKey": "env:S3_SECRET", **s3}
        return {"url": "s3://tools/v1/a%20tool+1.bin", "sha256": DIGEST, "s3": access}


def place() -> Path:
    shown = subprocess.run(
        [ROOT / "tools" / "objectstore.sh", "--where"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(shown.stdout.strip())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    home = place()
    if not (home / ".complete").exists():
        pytest.skip("no object store here: `make tests` installs one (tools/objectstore.sh)")
    folder = tmp_path_factory.mktemp("objectstore")
    (folder / "tool").write_bytes(CONTENT)
    store = Store(home / "bin" / "python", free_port())
    env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(ACTIONS)}
    command: list[str | Path] = [
        store.python,
        "-c",
        "from moto.server import main; main()",
        "-H",
        "127.0.0.1",
        "-p",
        str(store.port),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)
    try:
        wait_for(store.port, process, folder / "log")
        made = subprocess.run(
            [store.python, "-c", SETUP, f"http://127.0.0.1:{store.port}", folder / "tool"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        store.key, store.secret = json.loads(made.stdout)
        yield store
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def store(server: Store) -> Iterator[Store]:
    """The store, reached through a wire of ours."""
    listener = socket.create_server(("127.0.0.1", 0))
    server.wire = listener.getsockname()[1]
    server.cuts, server.asked = [], []

    def carry(near: socket.socket) -> None:
        left = server.cuts.pop(0) if server.cuts else None
        with near, socket.create_connection(("127.0.0.1", server.port)) as far:
            threading.Thread(target=forth, args=(near, far), daemon=True).start()
            with contextlib.suppress(OSError):
                while data := far.recv(65536):
                    near.sendall(data if left is None else data[:left])
                    if left is not None:
                        left -= len(data)
                        if left <= 0:
                            near.shutdown(socket.SHUT_RDWR)
                            return

    def forth(near: socket.socket, far: socket.socket) -> None:
        first = True
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                if first:
                    server.asked.append(data)
                    first = False
                far.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=carry, args=(near,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture(scope="module")
def programs(server: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kubexm's commands in an environment that has botocore, as `pip install kubexm[s3]` makes it."""
    import sysconfig

    here = Path(sysconfig.get_path("purelib"))
    there = site_packages(server.python.parents[1])
    return borrowing_environment(tmp_path_factory.mktemp("programs"), here, there) / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "out").mkdir(parents=True)
    return tmp_path / "project"


def run(
    programs: Path, store: Store, folder: Path, resources: dict[str, dict[str, Any]], **more: str
) -> subprocess.CompletedProcess[str]:
    """One task for each resource: none waits for another."""
    tasks = [
        {
            "name": name,
            "needs": [],
            "steps": [{"name": "get", "type": "download", "with": {"resource": name, "path": f"{folder}/out/{name}"}}],
        }
        for name in resources
    ]
    modules = [{"name": "m", "tasks": tasks}]
    write_spec(folder, f"resources: {json.dumps(resources)}\nmodules: {json.dumps(modules)}\n")
    env = environment(
        S3_KEY=store.key, S3_SECRET=store.secret, HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"), **more
    )
    done = subprocess.run(
        [programs / "kubexm-run", "spec.yaml", "--output", "plain"],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert store.secret not in said
    return done


def test_an_object_arrives_with_a_signed_request(programs: Path, store: Store, project: Path) -> None:
    done = run(programs, store, project, {"tool": store.source()})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "out" / "tool").read_bytes() == CONTENT
    assert b"AWS4-HMAC-SHA256" in store.asked[0]


def test_an_object_whose_transfer_is_cut_goes_on_where_it_was(programs: Path, store: Store, project: Path) -> None:
    store.cuts = [1_000_000]
    done = run(programs, store, project, {"tool": store.source()})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "out" / "tool").read_bytes() == CONTENT
    assert len(store.asked) == 2
    assert b"range: bytes=" in store.asked[1].lower()


def test_whatever_is_wrong_is_a_clear_failure(programs: Path, store: Store, project: Path) -> None:
    resources = {
        "wrong-key": store.source(secretAccessKey="env:WRONG"),
        "nothing": {**store.source(), "url": "s3://tools/nothing"},
        "forged": {**store.source(), "sha256": "0" * 64},
        "down": {**store.source(endpoint=f"http://127.0.0.1:{free_port()}"), "sha256": "1" * 64, "retries": 0},
    }
    done = run(programs, store, project, resources, WRONG="this-is-not-the-key")
    assert done.returncode == 1
    for said in (
        "SignatureDoesNotMatch",
        "check secretAccessKey",
        "resource nothing: s3://tools/nothing: the store answered NoSuchKey",
        "check the bucket and the key",
        f"expected {'0' * 64}, got {DIGEST}",
        "Could not connect to the endpoint",
    ):
        assert said in done.stdout
    assert "this-is-not-the-key" not in done.stdout + done.stderr
    assert list((project / "out").iterdir()) == []


def test_without_botocore_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(ResourceError, match="need the package botocore, which is not installed") as caught:
        ResourceStore().fetch(Source.of_url("tool", "s3://bucket/key"))
    assert caught.value.hint == "pip install 'kubexm[s3]'"

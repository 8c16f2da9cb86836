"""A real PostgreSQL server on a socket of its own, started for the tests and gone with them."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

_BINARIES = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
_FOUND = shutil.which("initdb", path=os.pathsep.join([*map(str, _BINARIES), os.environ.get("PATH", "")]))
MISSING = "" if _FOUND else "no PostgreSQL here: install postgresql (as root `make test` does it)"


class Postgres:
    """A server; each test takes a database of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name

    def start(self) -> None:
        """Make the cluster and start it."""
        self._run("initdb", "-D", str(self._data), "-U", "kubexm", "-A", "trust", "--no-sync")
        self.restart()

    def restart(self) -> None:
        """Start it again after a stop."""
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        """End it at once."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"t{uuid.uuid4().hex}"
        self._run("createdb", "-h", str(self._folder), "-U", "kubexm", name)
        return f"postgresql://kubexm@/{name}?host={self._folder}"

    def _run(self, program: str, *arguments: str) -> None:
        assert _FOUND is not None
        command = [str(Path(_FOUND).parent / program), *arguments]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={self._user}", "--regid", self._user, "--init-groups", *command]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert done.returncode == 0, done.stdout.decode("utf-8", "replace")


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server while the block lasts; its folder is short, since a socket's path must be."""
    folder = Path(tempfile.mkdtemp(prefix="kxpg"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server = Postgres(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)

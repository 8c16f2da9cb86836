"""What somebody writes with bare fabric: ``fabric_peer.py JOB`` with what to do as JSON; knows nothing of kubexm."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fabric import Config, Connection, ThreadingGroup

_FORKS = 50


def _connection(job: dict[str, Any], address: str) -> Connection:
    # One Config a connection: a shared one is changed by every thread that uses it.
    return Connection(
        address, user=job["user"], port=job["port"], config=Config(), connect_kwargs={"key_filename": job["key"]}
    )


def _commands(job: dict[str, Any], name: str, address: str) -> None:
    with _connection(job, address) as connection:
        for command in job["commands"]:
            connection.run(command, hide=True)


def _templates(job: dict[str, Any], name: str, address: str) -> None:
    from jinja2 import Template

    with _connection(job, address) as connection:
        for source, target in job["templates"]:
            text = Template(Path(source).read_text(), keep_trailing_newline=True).render(host_name=name)
            connection.put(io.BytesIO(text.encode()), target.replace("HOST", name))


def _file(job: dict[str, Any], name: str, address: str) -> None:
    with _connection(job, address) as connection:
        connection.put(job["file"], job["target"].replace("HOST", name))


def main(job: dict[str, Any]) -> None:
    """Do it on all hosts, at most so many at once."""
    if job["do"] == "group":
        group = ThreadingGroup.from_connections(_connection(job, address) for _, address in job["hosts"])
        with group:
            for command in job["commands"]:
                group.run(command, hide=True)
        return
    work = {"commands": _commands, "templates": _templates, "file": _file}[job["do"]]
    with ThreadPoolExecutor(_FORKS) as pool:
        for done in [pool.submit(work, job, name, address) for name, address in job["hosts"]]:
            done.result()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))

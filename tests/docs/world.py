"""Does what a page says: writes its files, checks its specs and runs its commands, all in a folder of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from ruamel.yaml import YAML

from kubexm_exec.cli.main import main as kubexm
from tests.docs.book import ANSIBLE, ROOT, Block, Command, PageError, commands
from tests.docs.compare import matches

SHOWN_FOLDER = "/home/you/demo"
"""The folder that pages show in place of the real one."""
SHARED = "/tmp/kubexm-"
"""Pages write below here; while they are tested, in a folder of their own instead."""
_TIME = 120
_WRITTEN = ("yaml", "python", "toml", "jinja", "sh", "text", "json")

_INVENTORY = """
defaults: {connector: local}
hosts:
  - {name: "web[1:2]", roles: [web], labels: {zone: north}, vars: {port: 8080}}
  - {name: db1, roles: [db], labels: {zone: south}, vars: {port: 5432}}
"""


# What parts of specs may take for granted, so that they need not say it each time: files, a parameter, an earlier step.
_FILES = (
    "files/scripts/run.sh",
    "files/site/index.html",
    "files/site-ca.pem",
    "files/tune.sh",
    "pki/ca.pem",
    "templates/etcd/etcd.env.j2",
)
_PARAMS = {"members": {"type": "integer", "default": 3}}
_EARLIER = (
    {"name": "probe", "type": "command", "with": {"argv": ["true"], "expect": [0, 1]}},
    {"name": "config", "type": "file", "with": {"path": "/etc/app.conf", "content": "x"}},
)


class World:
    """One page's folder, shell and environment."""

    def __init__(self, bin_folder: Path, more: dict[str, str] | None = None) -> None:
        # Its paths are as long as those that pages show: where lines are cut and columns begin depends on that.
        home = _new_folder()
        self._home = home
        self.folder = home / "dm"
        self.folder.mkdir()
        self._shared = f"{home}/"
        self._state = home / ".state"
        self._state.write_text("")
        self._cwd = home / ".cwd"
        self._cwd.write_text(str(self.folder))
        self._env = {
            "PATH": f"{bin_folder}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "100",
            **(more or {}),
        }

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._home)

    def do(self, block: Block) -> str | None:
        """Do what a block says; gives the text that it should have instead, if it is not right."""
        if block.reason or ANSIBLE in block.marks:
            return None
        if block.language == "console":
            return self._console(block)
        if "title" in block.marks and block.language in _WRITTEN:
            return self._file(block)
        if block.language == "yaml" and "part" in block.marks:
            self._part(block)
            return None
        raise PageError(
            f"{block.where}: nobody runs this block; give it a title= or part=, make it a console block, "
            "or say why not in a comment before it: <!-- not run: reason -->"
        )

    # Files and specs

    def _file(self, block: Block) -> str | None:
        wanted = None
        if "file" in block.marks:
            original = (ROOT / "docs" / block.marks["file"]).read_text("utf-8")
            wanted = original if original != block.text else None
        path = self.folder / block.marks["title"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._real(wanted or block.text), "utf-8")
        if block.language == "yaml" and "apiVersion:" in block.text and "later" not in block.marks:
            self._validate(block, path, wrong="wrong" in block.marks)
        return wanted

    def _part(self, block: Block) -> None:
        folder = self.folder / "parts"
        for name in _FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        path = folder / f"line-{block.line}.yaml"
        document = _complete(block.marks["part"], YAML(typ="safe").load(block.text))
        with path.open("w", encoding="utf-8") as stream:
            YAML(typ="safe").dump(document, stream)
        self._validate(block, path, wrong="wrong" in block.marks)
        if "run" in block.marks:
            self._run(block, Command(f"kubexm-run --output quiet parts/{path.name}"), 0)

    def _validate(self, block: Block, path: Path, *, wrong: bool) -> None:
        result = CliRunner().invoke(kubexm, ["validate", str(path)])
        expected = 2 if wrong else 0
        assert result.exit_code == expected, f"{block.where}: exit code {result.exit_code}\n{result.output}"

    # Commands

    def _console(self, block: Block) -> str | None:
        shown: list[str] = []
        right = True
        asked = commands(block)
        codes = [int(code) for code in block.marks.get("exit", "0").split(",")]
        for command, code in zip_longest(asked, codes, fillvalue=0):
            assert isinstance(command, Command), f"{block.where}: more exit codes than commands"
            printed = self._run(block, command, code)
            same = matches(command.expected, printed)
            right = right and same
            shown += [_prompted(command.text), *(command.expected if same else printed)]
        return None if right else "\n".join(shown) + "\n"

    def _run(self, block: Block, command: Command, code: int) -> list[str]:
        script = (
            f'. "{self._state}"; cd "$(cat "{self._cwd}")"; '
            f'trap \'pwd >"{self._cwd}"; export -p >"{self._state}"\' EXIT\n{self._real(command.text)}'
        )
        done = subprocess.run(
            ["sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            timeout=_TIME,
            check=False,
        )
        printed = self._shown(done.stdout.decode("utf-8", "replace"))
        assert "Traceback (most recent call last)" not in printed, f"{block.where}: $ {command.text}\n{printed}"
        assert done.returncode == code, (
            f"{block.where}: $ {command.text}\nended with {done.returncode}, the page says {code}:\n{printed}"
        )
        return [line.rstrip() for line in printed.rstrip("\n").splitlines()]

    def _real(self, text: str) -> str:
        return text.replace(SHARED, self._shared).replace(SHOWN_FOLDER, str(self.folder))

    def _shown(self, text: str) -> str:
        return text.replace(str(self.folder), SHOWN_FOLDER).replace(self._shared, SHARED)


def _new_folder() -> Path:
    while True:
        folder = Path("/tmp", f"k{secrets.token_hex(3)[:5]}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder


def _prompted(command: str) -> str:
    first, *rest = command.split("\n")
    return "\n".join([f"$ {first}", *(f"> {line}" for line in rest if line)])


def _complete(part: str, content: Any) -> dict[str, Any]:
    """A part of a document as a whole document."""
    step = {"name": "step", "type": "message", "with": {"text": "hello"}}
    tasks = [
        {
            "name": "task",
            "steps": [*(step for step in _EARLIER if step["name"] not in _names(content)), *content]
            if part == "steps"
            else [step],
        }
    ]
    if part == "tasks":
        tasks = content
    modules = content if part == "modules" else [{"name": "module", "tasks": tasks}]
    document: dict[str, Any] = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": "part"},
        "params": _PARAMS,
        "inventory": YAML(typ="safe").load(_INVENTORY),
        "modules": modules,
    }
    if part == "pipeline":
        document.update(content)
    elif part == "inventory":
        document["inventory"] = content
    elif part not in ("steps", "tasks", "modules"):
        raise PageError(f"part={part} is not known")
    return document


def running_environment() -> Path:
    """The folder with the commands of the environment that the tests run in."""
    return Path(sys.executable).parent


def _names(steps: Any) -> set[str]:
    return {step.get("name", "") for step in steps if isinstance(step, dict)} if isinstance(steps, list) else set()

"""Runs inventory programs, as ansible does: ``--list`` prints groups and hosts as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.source import MAX_BYTES

SECONDS: Final = 120
"""A program that takes longer is killed, with all that it has started."""


def is_program(path: pathlib.Path) -> bool:
    """Whether a file is meant to be run: executable, and not merely text with a careless mode."""
    try:
        if not path.is_file() or not os.access(path, os.X_OK):
            return False
        with path.open("rb") as file:
            return file.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:  # told when it is read
        return False


def run_program(path: pathlib.Path, name: str) -> str:
    """What ``--list`` prints, with the variables of hosts in ``_meta``; SpecError if it does not work."""
    text = _run(path, name, "--list")
    data = _json(text, f"{name} --list")
    if not isinstance(data, dict) or "_meta" in data:
        return text
    names: dict[str, None] = {}
    for group in data.values():
        hosts = group if isinstance(group, list) else group.get("hosts") or [] if isinstance(group, dict) else []
        names.update(dict.fromkeys(host for host in hosts if isinstance(host, str)))
    known = {host: _json(_run(path, name, "--host", host) or "{}", f"{name} --host {host}") for host in names}
    return json.dumps({**data, "_meta": {"hostvars": known}}, indent=2, ensure_ascii=False)


def _run(path: pathlib.Path, name: str, *arguments: str) -> str:
    shown = " ".join([name, *arguments])
    try:
        done = _finished([str(path.absolute()), *arguments], path.absolute().parent)
    except subprocess.TimeoutExpired:
        raise _failure(f"{shown} did not end within {SECONDS} seconds", "run it by hand to see why") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _failure(f"{shown} cannot be run: {reason}", "check its first line and its mode") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-5:]
        raise _failure(f"{shown} ended with exit code {done.returncode}", "run it by hand to see why", "\n".join(said))
    if len(done.stdout) > MAX_BYTES:
        raise _failure(f"{shown} printed too much", "")
    try:
        return done.stdout.decode("utf-8")
    except UnicodeDecodeError:
        raise _failure(f"{shown} did not print UTF-8", "") from None


def _finished(argv: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end; after a timeout or an interrupt, kill it with everything that it started."""
    process = None
    with contextlib.ExitStack() as stack:
        try:
            with _interrupted_later():
                process = stack.enter_context(
                    subprocess.Popen(
                        argv,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        # A group of its own: to kill only the program would leave what it has started.
                        start_new_session=True,
                    )
                )
            stdout, stderr = process.communicate(timeout=SECONDS)
        except BaseException:
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until a program is started: before that there is no process id to kill."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(*pressed[0])


def _json(text: str, shown: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _failure(f"{shown} did not print JSON: {error}", "print one object: groups, and _meta.hostvars") from None


def _failure(summary: str, hint: str, detail: str = "") -> SpecError:
    return SpecError([Diagnostic("inventory-program", summary, detail=detail, hint=hint)])

"""What a host printed, or has in its files, is read in time: a long line of anything freezes no reader of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.harmless import clean
from kubexm_exec.runner import facts
from kubexm_exec.runner.files import archives
from kubexm_exec.runner.packages import base, versions, zypper
from kubexm_exec.runner.system import mounts
from kubexm_steps import authorized_key as _keys
from kubexm_steps import sysctl
from kubexm_steps.lib import units

READERS: dict[str, Callable[[str], object]] = {
    "console": clean,
    "console after a carriage return": lambda text: clean(f"\r{text}"),
    "sysctl file": lambda text: sysctl.with_values(text, {"a.b": "1"}),
    "sysctl, other files": lambda text: sysctl.overridden([("/etc/sysctl.d/zz.conf", text)], "a.conf", {"a.b": "1"}),
    "authorized keys": lambda text: _keys.without_keys(text, []),
    "unit file": units.install_section,
    "facts": facts.parse,
    "facts, addresses": lambda text: facts._addresses([f"1: a inet {text}"]),
    "fstab": lambda text: list(mounts.fstab_lines(text)),
    "zypper": lambda text: list(zypper.solvables([text])),
    "zypper, sections": lambda text: list(zypper.sections(text)),
    "zypper, error": lambda text: zypper.TAG.sub(b"", text.encode()),
    "error": reason_of,
    "package manager's error": base.own_words,
    "listing of an archive": lambda text: archives._zip_entries(text, "x.zip"),
    "row of an archive": lambda text: archives._tar_entry("a", text, escaped=True),
    "versions": lambda text: (
        versions.compare_deb(text, "1"),
        versions.compare_rpm(text, "1"),
        versions.compare_apk(text, "1"),
    ),
}
UNITS = [
    " ", "a", "0", "=", "-", "\t", "\r", '"', '\\"', "\\", "<", "<to-install>", "<solvable ", '<solvable a="', "a=",
    " a", "a ", "0.", "[Install]\n", "[", "\n", "#", ":", "/", "E: ", "\x1b[", "\x1b", "1 2", "2026-01-01 ",
]  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_of_anything_is_read_in_time(reader: str) -> None:
    for unit in UNITS:
        text = unit * (60_000 // len(unit)) + "\0"
        began = time.thread_time()
        with suppress(ValueError):  # it is no such thing: said in time
            READERS[reader](text)
        assert time.thread_time() - began < 2, repr(unit)

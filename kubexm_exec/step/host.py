"""Commands, files and paths of a host: what a step hands to its runner, and what it gets back."""

from __future__ import annotations

from kubexm_exec.connectors.base import Command
from kubexm_exec.runner import Runner, join, quote
from kubexm_exec.runner.files.attributes import TAR
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.operations import ancestors
from kubexm_exec.runner.files.probe import Held
from kubexm_exec.runner.files.stat import PathFacts
from kubexm_exec.safepaths import WAY, at, real

__all__ = [
    "TAR",
    "WAY",
    "Command",
    "FileState",
    "Held",
    "PathFacts",
    "Runner",
    "ancestors",
    "at",
    "join",
    "quote",
    "real",
]

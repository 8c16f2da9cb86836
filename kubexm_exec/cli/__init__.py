"""The command line: thin adapters that parse, call the engine and show; nothing heavy is imported before it is needed."""

from __future__ import annotations

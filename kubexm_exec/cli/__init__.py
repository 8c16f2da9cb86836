"""The command line: thin adapters that parse, call the engine and show; what is heavy is imported when needed."""

from __future__ import annotations

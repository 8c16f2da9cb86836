"""The exit codes of all commands."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""All well."""
FAILED: Final = 1
"""Something failed, or differs."""
WRONG: Final = 2
"""The spec or the call is wrong; nothing was run."""
REFUSED: Final = 3
"""Refused: a stale plan, a lock that somebody else holds."""
INTERRUPTED: Final = 130
"""Stopped by the user."""

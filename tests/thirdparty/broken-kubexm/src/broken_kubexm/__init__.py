"""Cannot be imported: what it needs is not installed."""

from __future__ import annotations

import broken_kubexm_needs_this  # type: ignore[import-not-found]  # noqa: F401

"""Requests from the control node."""

from __future__ import annotations

from kubexm_exec.http.client import Trust, fetch
from kubexm_exec.http.messages import Request

__all__ = ["Request", "Trust", "fetch"]

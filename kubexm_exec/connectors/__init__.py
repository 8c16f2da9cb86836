"""Connectors: how commands and files reach a host."""

from __future__ import annotations

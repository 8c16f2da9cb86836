"""Clusters: a Cluster document with its hosts and versions, checked, and turned into a pipeline; all of it pure."""

from __future__ import annotations

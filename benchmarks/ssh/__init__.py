"""Whole runs over SSH, from cold, against the tools that people use for the same work today."""

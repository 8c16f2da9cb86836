"""Compiles a spec into a graph, schedules it and executes it on hosts."""

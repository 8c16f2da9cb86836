"""Benchmarks: speed as a ratio against a peer in the same run, or against a budget; never part of the tests."""

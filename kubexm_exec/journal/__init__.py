"""The journal of runs: what was to be done, what was begun, what it came to; kept so that nothing is lost."""

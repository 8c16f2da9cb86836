"""The journal of runs: a durable record of what each run was made from, what it began and how that ended."""

"""The executors: different ways to walk the same graph, with the same events and the same result."""

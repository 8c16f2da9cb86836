"""The connector for this very machine: processes, terminals and files without any transport."""

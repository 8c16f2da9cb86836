"""The connector for the control node: processes, terminals and files, without a connection."""

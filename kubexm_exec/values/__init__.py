"""Values: expressions, their sandbox and limits, their evaluation for a host, and templates."""

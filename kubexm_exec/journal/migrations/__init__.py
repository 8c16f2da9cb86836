"""How the schema of the journal came to be, step by step."""

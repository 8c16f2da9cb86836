"""The built-in step types, one a file, found only through entry points."""

"""YAML: text to data with positions, and data formatted as text."""
